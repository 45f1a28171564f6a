"""Metrics of a scenario: what it does and costs."""

from .evaluation import BANDWIDTH as BANDWIDTH
from .evaluation import Entry as Entry
from .evaluation import Metrics as Metrics
from .evaluation import ScenarioEvaluation as ScenarioEvaluation
from .evaluation import account as account
from .evaluation import computed_by as computed_by
from .evaluation import evaluate as evaluate
from .evaluation import ledger as ledger
from .evaluation import parts_of as parts_of
from .evaluation import priced_ops as priced_ops
from .footprint import cache_budget as cache_budget
from .footprint import cache_room as cache_room
from .footprint import cache_tokens as cache_tokens
from .footprint import chance_that_fits as chance_that_fits
from .footprint import memory_by_class as memory_by_class
from .footprint import memory_moments as memory_moments
from .money import device_capex_usd as device_capex_usd
from .money import device_provisioned_w as device_provisioned_w

__all__ = [
    "BANDWIDTH", "Entry", "Metrics", "ScenarioEvaluation", "account", "cache_budget", "cache_room", "cache_tokens",
    "chance_that_fits", "computed_by", "device_capex_usd", "device_provisioned_w", "evaluate", "ledger",
    "memory_by_class", "memory_moments", "parts_of", "priced_ops",
]  # fmt: skip
