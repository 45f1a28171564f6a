"""Draws in which the engines do not sustain the load: unbounded quantities there, and interval ends all the same.

Where requests come at a rate, or must meet an SLO, a draw of the model's errors may make engines so slow that
prompts or decodes pile up, or that no rate meets the SLO. There is no steady state then, and what a closed form
says is no number: times, joules and dollars grow as long as one waits, and count as infinite. Of goodput nothing is
kept, so throughput is 0; at a rate it is what the engines still answer.

An interval of 90 % ends at the 95th percentile. Where more than one draw in twenty is not sustained that is infinite:
"unbounded" for readers, infinity in frames, null in JSON (`interval_text`). Where more than 19 in twenty are
not, neither end is a number.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.interval_text import AGREED
from ..model.metrics import Metrics
from ..model.workloads.under_load import ENGINE
from ..study.objective import feasible
from .spreads import SHARE

__all__ = ["Interval", "ends", "over_the_load", "quantile", "without_ends", "without_numbers"]

LOAD = "load over what is sustained"  # beside the metrics of draws, and no metric
RATES = ("tokens_per_s", "mfu")  # of which there is less, the less is sustained
FINITE = (*RATES, "power_w")
WAITS, PAID = ("ttft_", "e2e_"), "usd_per_million_"  # how names of metrics begin

Interval = tuple[float, float]


def over_the_load(metrics: Metrics) -> dict[str, Array]:
    """Load of an engine over what it sustains, as a number of a draw; nothing of jobs without a load."""
    flat = metrics.flat()
    shares = [value for name, value in flat.items() if name.startswith(f"usage.{ENGINE}.")]
    if not shares:
        return {}
    most = shares[0]
    for share in shares[1:]:
        most = jnp.maximum(most, share)
    return {LOAD: most} | ({AGREED: flat[AGREED]} if AGREED in flat else {})


def without_ends(drawn: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Numbers of draws with those that are none made infinite, or 0.

    Args:
        drawn: metric -> values in each draw, [..., draws], with what `over_the_load` adds.

    Returns:
        (the metrics, whether each draw is sustained; None of jobs without a load).
    """
    numbers = {name: values for name, values in drawn.items() if name not in (LOAD, AGREED)}
    if LOAD not in drawn:
        return numbers, None
    kept = np.asarray(feasible(drawn[LOAD] - 1), dtype=bool)
    agreed = AGREED in drawn

    def told(name: str, values: np.ndarray) -> np.ndarray:
        if name in RATES and agreed:
            return np.where(kept, values, 0.0)
        return values if name in FINITE else np.where(kept, values, np.inf)

    return {name: told(name, values) for name, values in numbers.items()}, kept


def without_numbers(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of designs where those that are none are infinite: what waits, and dollars where no rate is agreed on.

    Args:
        rows: metric -> values of designs; searches need them finite, readers do not.
    """
    used = [np.asarray(value) for name, value in rows.items() if name.startswith(f"usage.{ENGINE}.")]
    if not used:
        return dict(rows)
    kept = np.asarray(feasible(np.max(np.broadcast_arrays(*used), axis=0) - 1), dtype=bool)
    endless = (*WAITS, *((PAID,) if AGREED in rows else ()))
    return {name: np.where(kept, value, np.inf) if name.startswith(endless) else value for name, value in rows.items()}


def ends(values: np.ndarray, share: float = SHARE) -> Interval:
    """Ends of the interval that holds this share of the draws; infinite where too many of them are."""
    return quantile(values, (1 - share) / 2), quantile(values, (1 + share) / 2)


def quantile(values: np.ndarray, level: float) -> float:
    """Quantile: this share of the draws stays below; infinite where more than the rest of them are."""
    endless = np.isposinf(values)
    if np.mean(endless) > 1 - level + 1e-9:  # rounding of 1 - level must not cost a draw
        return float(np.inf)
    most = values[~endless].max() if endless.any() else 0.0
    return float(np.quantile(np.where(endless, most, values), level))
