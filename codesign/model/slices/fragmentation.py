"""Fragmentation of a rack: demand of tenants, blocking, a simulation of the scheduler, effective capacity."""

import functools
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, integer, quantity, static
from ...core.jax_typed import arange, asarray, ones, zeros
from ...core.smooth import at_most
from ...jaxprs import interpreted
from .allocators import AbstractAllocator, SliceHandle

# Demand of tenants: sizes of slices and how often they are asked for.


@dataclass(frozen=True)
class DemandMix:
    """Sizes of requests and their relative frequency (equal unless given)."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Positive sizes, one weight each."""
        if not self.sizes or min(self.sizes) < 1:
            raise ConfigError(f"sizes = {self.sizes} must be whole numbers of at least 1")
        if self.weights and (len(self.weights) != len(self.sizes) or min(self.weights) <= 0):
            raise ConfigError(
                f"weights = {self.weights} must be one positive number for each of {len(self.sizes)} sizes"
            )

    @property
    def shares(self) -> tuple[float, ...]:
        """Probability of each size."""
        weights = self.weights or (1.0,) * len(self.sizes)
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def mean(self) -> float:
        """Accelerators of a mean request."""
        return sum(share * size for share, size in zip(self.shares, self.sizes, strict=True))


MIXES = {
    "uniform 1-16": DemandMix(tuple(range(1, 17))),
    "powers of two to 32": DemandMix((1, 2, 4, 8, 16, 32), (0.30, 0.25, 0.20, 0.15, 0.07, 0.03)),
    "3, 5, 6, 7, 10, 12": DemandMix((3, 5, 6, 7, 10, 12)),
}
"""The mixes of the notes on slices [lumorph_notes].

Equal frequencies give their analytical row exactly for the first and the third. For the second they do not print any;
these give its analytical row (0.758) and, within half a point, its rows of four systems.
"""


# Tenants come and go: a simulation of any rack that allocates and releases.


@dataclass(frozen=True)
class SchedulerOutcome:
    """Outcome of a simulation of tenants.

    acceptance: of the accelerators asked for, the share granted (counting requests would reward refusing large ones);
    requests: share of requests granted; utilisation: share of the rack that tenants asked for and hold, over time;
    fragmented: share of requests refused although enough accelerators were free; stranded: mean of 1 - largest
    request that could be placed / free accelerators, over moments with any free.
    """

    acceptance: float
    requests: float
    utilisation: float
    fragmented: float
    stranded: float


def simulate(
    rack: AbstractAllocator,
    mix: DemandMix,
    load: float = 0.8,
    arrivals: int = 20_000,
    seed: int = 0,
    look_every: int = 20,
) -> SchedulerOutcome:
    """Poisson arrivals, exponential holding times of mean 1, refused requests are lost.

    Args:
        rack: empty at the start.
        mix: sizes asked for.
        load: offered accelerators over those there are.
        arrivals: counted, after a tenth as many that are not.
        seed: of the arrivals; equal seeds give every rack the same tenants.
        look_every: requests between two looks at what could be placed.
    """
    random = np.random.default_rng(seed)
    warm_up = arrivals // 10
    count = arrivals + warm_up
    gaps = random.exponential(mix.mean / (load * rack.capacity), count).tolist()
    sizes = random.choice(np.array(mix.sizes), count, p=mix.shares).tolist()
    holding = random.exponential(1.0, count).tolist()
    now = begun = in_use = integral = 0.0
    requested = granted = accepted = fragmented = 0
    stranded: list[float] = []
    leaving: list[tuple[float, int, int, SliceHandle]] = []

    def until(moment: float) -> None:
        nonlocal now, in_use, integral
        while leaving and leaving[0][0] <= moment:
            end, _, size, handle = heapq.heappop(leaving)
            integral += in_use * (end - now)
            now, in_use = end, in_use - size
            rack.release(handle)
        integral += in_use * (moment - now)
        now = moment

    for index in range(count):
        until(now + gaps[index])
        if index == warm_up:
            begun, integral = now, 0.0
        size, counted = sizes[index], index >= warm_up
        if counted and index % look_every == 0 and rack.free:
            stranded.append(1 - rack.largest() / rack.free)
        enough = rack.free >= size
        handle = rack.allocate(size)
        if handle is not None:
            in_use += size
            heapq.heappush(leaving, (now + holding[index], index, size, handle))
        if counted:
            requested += size
            granted += size * (handle is not None)
            accepted += handle is not None
            fragmented += enough and handle is None
    over = (now - begun) * rack.capacity
    looks = float(np.mean(stranded)) if stranded else 0.0
    return SchedulerOutcome(granted / requested, accepted / arrivals, integral / over, fragmented / arrivals, looks)


# Blocking without a simulation: the Kaufman-Roberts recursion, differentiable in load and capacity.


LOADS = (0.5, 0.8, 3.0)  # offered over capacity, at which a rack's effective ratios are told; between them by log(load)
MOST = 4096  # accelerators of the largest rack: length of the recursion, whatever the capacity


def blocking(offered: Array, volumes: tuple[int, ...], capacity: Array, most: int = MOST) -> Array:
    """[kinds] probability that a request of each kind is refused, in a rack of `capacity` up to `most`.

    With C(j) = q(0) + ... + q(j), the unnormalised probability that at most j are taken of a rack without bound:

        j q(j) = sum_i a_i v_i q(j - v_i)          B_i = (q(C - v_i + 1) + ... + q(C)) / C(C)

    q is kept over C(j), so that large racks neither overflow nor lose digits: all are sums and quotients of positive
    numbers. Capacity is real: linear between whole numbers, so that a search may move it.

    Args:
        offered: [kinds] a_i, mean number of slices of a kind if none were refused.
        volumes: v_i, accelerators of a slice of that kind.
        capacity: C, accelerators, at least 0.
        most: largest capacity that may be asked for.

    Source: [kaufman1981], [roberts1981].
    """
    widest, last = max(volumes), np.array(volumes) - 1
    inflow = zeros(widest).at[last].add(offered * np.array(volumes, dtype=float))
    below = jnp.minimum(jnp.floor(capacity), most - 1.0)
    part = capacity - below

    def share(taken: Array) -> Array:
        """Interpolation weight of a rack with `taken` accelerators in use: nonzero only next to the capacity."""
        return jnp.where(taken == below, 1 - part, jnp.where(taken == below + 1, part, 0.0))

    def step(carry: tuple[Array, Array], taken: Array) -> tuple[tuple[Array, Array], None]:
        window, full = carry  # q(j - 1), q(j - 2), ... over C(j - 1)
        state = inflow @ window / taken
        window = jnp.concatenate([state[None], window[:-1]]) * (1 / (1 + state))
        return (window, full + share(taken) * window), None

    empty = zeros(widest).at[0].set(1.0)
    start = (empty, share(asarray(0.0)) * empty)
    (_, full), _ = jax.lax.scan(step, start, arange(1.0, most + 1))
    return jnp.cumsum(full)[last]


class SharedRack(Module):
    """A rack that tenants share, without a simulation: what share of what they ask for they get, what stays in use.

    Requests of `sizes` (equally frequent unless `weights`) take `volumes` of the `effective_ratio` capacity that a
    rack without fragmentation would need to refuse as many. All but sizes and volumes are traced.

        acceptance  = sum_i w_i s_i (1 - B_i) / sum_i w_i s_i          utilisation = load acceptance

    A rack that is hardly asked leaves less of its room unused by fragmentation than a crowded one, or more: the ratio
    at loads of `LOADS` is `effective_ratio` times `light_factor`, 1 and `heavy_factor`, and log-linear in between.

    Assumes: Poisson arrivals, refused requests lost, any holding time; an effective capacity for a rack and what it is
    asked for. Found for these by simulation (`effective_ratios`) it tells what is granted to 2 points at any load; one
    for all loads is up to 3, and one for all mixes, as the notes have, 7 points off for cubes. Not log-convex.
    Source: [kaufman1981]; effective capacities [lumorph_notes].
    """

    capacity: Float[Array, "*b"] = integer(low=1.0, high=float(MOST), doc="accelerators")
    load: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.8, doc="offered accelerators over capacity")
    effective_ratio: Float[Array, "*b"] = quantity(low=0.1, high=1.0, default=1.0, doc="at a load of 0.8")
    sizes: tuple[int, ...] = static(default=tuple(range(1, 17)), converter=tuple)
    volumes: tuple[int, ...] = static(default=(), converter=tuple)
    weights: tuple[float, ...] = static(default=(), converter=tuple)
    light_factor: Float[Array, "*b"] = quantity(low=0.1, high=10.0, default=1.0, doc="of the ratio at a load of 0.5")
    heavy_factor: Float[Array, "*b"] = quantity(low=0.1, high=10.0, default=1.0, doc="of the ratio at a load of 3")

    def __check_init__(self) -> None:
        """Whole accelerators, one volume and one positive weight for each size, room for a slice."""
        if not self.sizes or min(self.sizes) < 1:
            raise ConfigError(f"sizes = {self.sizes} must be whole numbers of at least 1")
        for name in ("volumes", "weights"):
            given = getattr(self, name)
            if given and len(given) != len(self.sizes):
                raise ConfigError(f"{name} = {given} must have one entry for each of the {len(self.sizes)} sizes")
        if any(volume < size for size, volume in zip(self.sizes, self.volumes, strict=False)):
            raise ConfigError(f"volumes = {self.volumes} must not be less than the sizes {self.sizes}")
        if self.weights and min(self.weights) <= 0:
            raise ConfigError(f"weights = {self.weights} must be positive numbers")
        numbers = self.capacity, self.effective_ratio
        if all(hasattr(number, "dtype") and not isinstance(number, Tracer) for number in numbers):
            room, ratio = (float(np.asarray(number).max()) for number in numbers)
            volumes = self.volumes or self.sizes
            if room * ratio <= min(volumes) - 1:
                raise ConfigError(
                    f"capacity = {room:g} times effective_ratio = {ratio:g} holds no slice of volumes = {volumes};"
                    " make the rack larger or the slices smaller"
                )

    def refused(self, most: int = MOST) -> Array:
        """[sizes] probability that a request is refused, in racks of up to `most` accelerators."""
        sizes, shares = np.array(self.sizes, dtype=float), self._shares()
        slices = self.load * self.capacity / float(sizes @ shares)  # mean number held if none were refused
        return blocking(slices * shares, self.volumes or self.sizes, self.ratio() * self.capacity, most)

    def ratio(self) -> Array:
        """Effective over whole capacity at this load, at most one."""
        factors = jnp.stack(jnp.broadcast_arrays(self.light_factor, ones(()), self.heavy_factor))
        factor = jnp.exp(jnp.interp(jnp.log(self.load), np.log(LOADS), jnp.log(factors)))
        return at_most(self.effective_ratio * factor, 1.0)

    def acceptance(self, most: int = MOST) -> Array:
        """Share of the accelerators asked for that are granted, in racks of up to `most` accelerators."""
        requested = np.array(self.sizes, dtype=float) * self._shares()
        return 1 - self.refused(most) @ (requested / requested.sum())

    def utilisation(self) -> Array:
        """Share of the rack in use."""
        return self.load * self.acceptance()

    def _shares(self) -> np.ndarray:
        weights = np.array(self.weights or (1.0,) * len(self.sizes))
        return weights / weights.sum()


# Effective capacity of a fragmented rack: the capacity at which the formula grants what a simulation does.


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
        capacity, offered, share = asarray(float(empty.capacity)), asarray(load), asarray(ratio)
        return float(_acceptance(empty.capacity)(SharedRack(capacity, offered, share, mix.sizes, volumes, mix.weights)))

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
