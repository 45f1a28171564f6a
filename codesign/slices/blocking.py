"""Blocking without a simulation: the Kaufman-Roberts recursion, differentiable in load and capacity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ConfigError
from ..fields import quantity, static


def cumulative_states(offered: Array, volumes: tuple[int, ...], most: int) -> Array:
    """[most + 1] unnormalised probability that at most c of a rack without bound are taken.

    j q(j) = sum_i a_i v_i q(j - v_i): q(j) for j taken, the same for every capacity but for the norm. Rescaled on the
    way, so that large racks do not overflow.

    Args:
        offered: [kinds] a_i, mean number of slices of a kind if none were refused.
        volumes: accelerators of a slice of that kind.
        most: largest capacity of interest.

    Source: [kaufman1981], [roberts1981].
    """
    widest = max(volumes)
    inflow = jnp.zeros(widest).at[np.array(volumes) - 1].add(offered * np.array(volumes, dtype=float))
    start = jnp.zeros(widest).at[0].set(1.0)  # q(j - 1), q(j - 2), ...

    def step(carry: tuple[Array, Array], taken: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        window, log_scale = carry
        state = inflow @ window / taken
        window = jnp.concatenate([state[None], window[:-1]])
        size = jax.lax.stop_gradient(jnp.max(window))
        return (window / size, log_scale + jnp.log(size)), (state, log_scale)

    _, (states, logs) = jax.lax.scan(step, (start, jnp.asarray(0.0)), jnp.arange(1.0, most + 1))
    states, logs = jnp.concatenate([jnp.ones(1), states]), jnp.concatenate([jnp.zeros(1), logs])
    return jnp.cumsum(states * jnp.exp(logs - jax.lax.stop_gradient(jnp.max(logs))))


def blocking(offered: Array, volumes: tuple[int, ...], capacity: Array, most: int) -> Array:
    """[kinds] probability that a request of each kind is refused: sum over j > C - v_i of q(j).

    Capacity is real: linear between whole numbers, so that a search may move it.
    """
    states = cumulative_states(offered, volumes, most)
    below = jnp.clip(jnp.floor(capacity), 0, most - 1)
    part = capacity - below

    def at(whole: Array) -> Array:
        rest = whole.astype(int) - np.array(volumes)
        fits = jnp.where(rest >= 0, states[jnp.maximum(rest, 0)], 0.0)
        return 1 - fits / states[whole.astype(int)]

    return (1 - part) * at(below) + part * at(below + 1)


class SharedRack(eqx.Module):
    """A rack that tenants share, without a simulation: what share of what they ask for they get, what stays in use.

    Requests of `sizes` (equally frequent unless `weights`) take `volumes` of the `effective_ratio` capacity that a
    rack without fragmentation would need to refuse as many. All but sizes and volumes are traced.

        acceptance  = sum_i w_i s_i (1 - B_i) / sum_i w_i s_i          utilisation = load acceptance

    Assumes: Poisson arrivals, refused requests lost, any holding time; the effective capacity was found by
    simulation at a load of 0.8 (`experiments/lumorph_slices`). Not log-convex.
    Source: [kaufman1981]; effective capacities [lumorph_notes].
    """

    capacity: Float[Array, "*b"] = quantity(low=1.0, high=4096.0, doc="accelerators")
    load: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.8, doc="offered accelerators over capacity")
    effective_ratio: Float[Array, "*b"] = quantity(low=0.1, high=1.0, default=1.0)
    sizes: tuple[int, ...] = static(default=tuple(range(1, 17)), converter=tuple)
    volumes: tuple[int, ...] = static(default=(), converter=tuple)
    weights: tuple[float, ...] = static(default=(), converter=tuple)
    most: int = static(default=256)

    def __check_init__(self) -> None:
        """One volume and one weight for each size."""
        for name in ("volumes", "weights"):
            given = getattr(self, name)
            if given and len(given) != len(self.sizes):
                raise ConfigError(f"{name} = {given} must have one entry for each of the {len(self.sizes)} sizes")
        if any(volume < size for size, volume in zip(self.sizes, self.volumes, strict=False)):
            raise ConfigError(f"volumes = {self.volumes} must not be less than the sizes {self.sizes}")

    def refused(self) -> Array:
        """[sizes] probability that a request is refused."""
        sizes, shares = np.array(self.sizes, dtype=float), self._shares()
        slices = self.load * self.capacity / float(sizes @ shares)  # mean number held if none were refused
        return blocking(slices * shares, self.volumes or self.sizes, self.effective_ratio * self.capacity, self.most)

    def acceptance(self) -> Array:
        """Share of the accelerators asked for that are granted."""
        asked = np.array(self.sizes, dtype=float) * self._shares()
        return 1 - self.refused() @ (asked / asked.sum())

    def utilisation(self) -> Array:
        """Share of the rack in use."""
        return self.load * self.acceptance()

    def _shares(self) -> np.ndarray:
        weights = np.array(self.weights or (1.0,) * len(self.sizes))
        return weights / weights.sum()
