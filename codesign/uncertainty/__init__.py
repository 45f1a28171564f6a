"""Uncertainty of predictions: errors met in cross-validation, drawn together and carried to every metric."""

from .draws import Cases as Cases
from .draws import Uncertain as Uncertain
from .draws import strata_of as strata_of
from .metrics import Interval as Interval
from .metrics import MetricIntervals as MetricIntervals
from .metrics import PairedDraws as PairedDraws
from .metrics import Regret as Regret
from .metrics import as_columns as as_columns
from .metrics import intervals as intervals
from .metrics import metrics_under_draws as metrics_under_draws
from .metrics import of_designs as of_designs
from .metrics import trace_with_draws as trace_with_draws
from .metrics import uncertain as uncertain
from .metrics import under_draws as under_draws
from .metrics import wins as wins
from .metrics import with_room as with_room
from .spreads import SHARE as SHARE
from .spreads import Spread as Spread
from .spreads import spreads as spreads

__all__ = [
    "SHARE", "Cases", "Interval", "MetricIntervals", "PairedDraws", "Regret", "Spread", "Uncertain", "as_columns",
    "intervals", "metrics_under_draws", "of_designs", "spreads", "strata_of", "trace_with_draws", "uncertain",
    "under_draws", "wins", "with_room",
]  # fmt: skip
