"""Tiers that a box lets be smaller than their reserve: their used share is infinite there and has no slope.

Wherever it is finite, log(reserved / capacity) <= 0 holds as well. That row is finite and has slopes everywhere, so a
search that lands where nothing is usable learns from it which way out. Only tiers are asked that every plan fills.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.fields import get_path
from ..core.smooth import at_least, used_share
from ..model.hardware import MemoryTier
from ..model.scenario import Scenario
from ..study.design_space import DesignSpace
from ..study.variables import ends_of

FILLED = ("cluster.accelerator.hbm", "cluster.accelerator.hbm.tier", "cluster.accelerator.hbm.pool")
"""The near memory itself, or what of it holds the data where it is a shared or a cached pool."""
RESERVE = "reserve."  # start of the names of these rows
LEAST = 1e-9  # stands in for a reserve of nothing, which has no logarithm


def tight_tiers(scenario: Scenario, space: DesignSpace) -> tuple[str, ...]:
    """Paths of the tiers whose reserve may be all of them somewhere in the box."""
    ends = ends_of(space.hardware, scenario)
    return tuple(path for path in FILLED if _may_be_full(scenario, path, ends))


def _may_be_full(scenario: Scenario, path: str, ends: dict[str, dict[str, Any]]) -> bool:
    try:
        tier = get_path(scenario, path)
    except ConfigError:
        return False
    if not isinstance(tier, MemoryTier):
        return False
    least = ends["low"].get(f"{path}.capacity_bytes", tier.capacity_bytes)
    most = ends["high"].get(f"{path}.reserved_bytes", tier.reserved_bytes)
    if isinstance(least, Tracer) or isinstance(most, Tracer):
        return False
    return bool(np.min(np.asarray(least)) <= np.max(np.asarray(most)))


def reserve_shares(scenario: Scenario, paths: tuple[str, ...]) -> dict[str, Array]:
    """Row -> reserved share of these tiers; at most 1 wherever anything of them is usable."""
    tiers = {f"{RESERVE}{path}": get_path(scenario, path) for path in paths}
    return {row: used_share(tier.reserved_bytes, tier.capacity_bytes) for row, tier in tiers.items()}


def reserve_rows(shares: dict[str, Array]) -> dict[str, Array]:
    """Row -> log of a reserved share."""
    return {row: jnp.log(at_least(share, LEAST)) for row, share in shares.items()}
