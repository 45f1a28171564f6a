"""Effective capacity of a fragmented rack: the capacity at which the formula grants what a simulation does."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.jax_typed import asarray
from ...jaxprs import interpreted
from .allocators import AbstractAllocator
from .blocking import LOADS, SharedRack
from .demand import DemandMix
from .scheduler import simulate

LEAST = 0.1  # the least that `SharedRack` allows


@functools.cache
def _acceptance(most: int) -> Callable[[SharedRack], Any]:
    """Grants in racks of up to so many accelerators, traced once for all of the same sizes and volumes."""

    def granted(rack: SharedRack) -> Array:
        return rack.acceptance(most)

    return interpreted(granted, always=True)


def effective_ratio(
    rack: Callable[[], AbstractAllocator], mix: DemandMix, load: float = 0.8, arrivals: int = 20_000, seed: int = 0
) -> float:
    """Share of a rack's accelerators with which one without fragmentation grants as much, for `SharedRack`.

    Args:
        rack: makes it, empty.
        mix: what tenants ask for.
        load: offered accelerators over those there are, at which it is simulated.
        arrivals: simulated requests.
        seed: of the simulation.

    Raises:
        ConfigError: a size that the rack can never place.
    """
    empty = rack()
    result = [empty.volume(size) for size in mix.sizes]
    volumes = tuple(volume for volume in result if volume is not None)
    if None in result:
        size = mix.sizes[result.index(None)]
        raise ConfigError(f"sizes = {mix.sizes}: a rack of {empty.capacity} never places a slice of {size}")
    seen = simulate(empty, mix, load, arrivals, seed).acceptance

    def granted(ratio: float) -> float:
        whole, offered, share = asarray(float(empty.capacity)), asarray(load), asarray(ratio)
        return float(_acceptance(empty.capacity)(SharedRack(whole, offered, share, mix.sizes, volumes, mix.weights)))

    low, high = max(LEAST, (min(volumes) + 0.0) / empty.capacity), 1.0
    if granted(high) <= seen:
        return high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if granted(middle) < seen else (low, middle)
    return (low + high) / 2


class EffectiveRatios(NamedTuple):
    """Fields of `SharedRack` of the same names."""

    effective_ratio: float
    light_factor: float
    heavy_factor: float


def effective_ratios(
    rack: Callable[[], AbstractAllocator], mix: DemandMix, arrivals: int = 20_000, seed: int = 0
) -> EffectiveRatios:
    """The ratio at each of `LOADS`, as `SharedRack` takes them; arguments and errors as of `effective_ratio`."""
    light, middle, heavy = (effective_ratio(rack, mix, load, arrivals, seed) for load in LOADS)
    return EffectiveRatios(middle, light / middle, heavy / middle)
