"""Blocking without a simulation: the Kaufman-Roberts recursion, differentiable in load and capacity."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import integer, quantity, static
from ...core.jax_typed import arange, asarray, ones, zeros
from ...core.module import Module
from ...core.smooth import at_most

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
        known = jnp.stack(jnp.broadcast_arrays(self.light_factor, ones(()), self.heavy_factor))
        factor = jnp.exp(jnp.interp(jnp.log(self.load), np.log(LOADS), jnp.log(known)))
        return at_most(self.effective_ratio * factor, 1.0)

    def acceptance(self, most: int = MOST) -> Array:
        """Share of the accelerators asked for that are granted, in racks of up to `most` accelerators."""
        asked = np.array(self.sizes, dtype=float) * self._shares()
        return 1 - self.refused(most) @ (asked / asked.sum())

    def utilisation(self) -> Array:
        """Share of the rack in use."""
        return self.load * self.acceptance()

    def _shares(self) -> np.ndarray:
        weights = np.array(self.weights or (1.0,) * len(self.sizes))
        return weights / weights.sum()
