"""Uneven load of experts: the expected load of the busiest expert-parallel rank, dropped and padded tokens.

Experts with shares p_1 >= ... >= p_E of all token copies lie at random on n ranks, k = E / n each; everybody waits for
the busiest rank. The rank whose best-loaded expert is the j-th of such leaders holds that expert, number L_j, and k - 1
of those below it, drawn at random. With G_j(x) the chance that their sum is at most x,

    P(max <= x) = w max(1 - sum_j (1 - G_j), 0) + (1 - w) prod_j G_j        w = 1 / (n - 1)
    ratio       = n E[max] = n integral of P(max > x) dx

The first rank has expert 1: one expert a rank is exact, and so are two ranks, of which one alone can have more than
half. Between the two, ranks are weakly dependent (they share one sum). The distributions of sums are built from the
last expert up, a subset of c + 1 of m + 1 experts having the new one with chance (c + 1) / (m + 1).

Measured loads lie as they are, experts in order: the busiest rank of each layer, averaged over layers. A capacity
factor C cuts each expert at C / E of the copies; what is beyond is dropped. `padded` experts work on C / E each, as do
those of a plan with a capacity factor.

Assumes: many tokens a rank, so that draws of single tokens even out; the placement is not chosen by load.
Source: capacity [fedus2022]; the expected maximum is derived here.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.fields import static
from ...core.module import Module
from ...core.smooth import at_least, at_most

__all__ = ["ExpertLoad", "busiest_ratio", "power_law"]

BINS = 768  # of the load of a rank, from none to that of the k most loaded experts
MOST_EXPERTS = 4096
MOST_EXPONENT = 4.0
MOST_CAPACITY = 64.0

Shares = tuple[float, ...]


def power_law(exponent: float, experts: int) -> Shares:
    """Shares rank^-exponent of `experts`, the largest first; exponent 0 is uniform."""
    weights = np.arange(1.0, experts + 1) ** -exponent
    return tuple((weights / weights.sum()).tolist())


def _leaders(experts: int, ranks: int) -> list[int]:
    """Expected places (from 0) of each rank's most loaded expert.

    With j ranks begun and l experts placed, of E - l free places E - j k belong to ranks that have none.
    """
    each, places = experts // ranks, [1.0]
    for begun in range(1, ranks):
        gap = (experts - places[-1] + 1) / (experts - begun * each + 1)
        places.append(min(places[-1] + gap, experts))
    return [min(round(place), experts) - 1 for place in places]


@functools.cache
def busiest_ratio(shares: Shares, ranks: int) -> float:
    """Expected load of the busiest of `ranks` over their mean, experts placed at random.

    Args:
        shares: of the token copies, in any order; their sum may be below 1 where some are dropped.
        ranks: a divisor of their number.
    """
    loads = np.sort(np.asarray(shares))[::-1]
    experts = len(loads)
    each = experts // ranks
    if ranks == 1:
        return float(loads.sum())
    if each == 1 or loads[0] - loads[-1] < 1e-12:
        return float(loads[0] * each * ranks)
    step = loads[:each].sum() / (BINS - 1)
    grid = np.arange(BINS) * step
    counts = np.bincount(_leaders(experts, ranks), minlength=experts)
    sums = np.zeros((each, BINS))  # row c: distribution of the sum of c of the experts so far
    sums[0, 0] = 1.0
    union, product = np.zeros(BINS), np.ones(BINS)
    for so_far, index in enumerate(range(experts - 1, -1, -1)):
        if counts[index]:
            below = np.cumsum(sums[min(each - 1, so_far)])
            reached = np.interp(grid - loads[index], grid, below, left=0.0)
            union, product = union + counts[index] * (1 - reached), product * reached ** counts[index]
        chance = np.minimum(np.arange(each) / (so_far + 1), 1.0)[:, None]
        whole, part = divmod(loads[index] / step, 1.0)
        moved = np.zeros_like(sums)
        for bins, share in ((int(whole), 1 - part), (int(whole) + 1, part)):
            if bins < BINS:
                moved[1:, bins:] += share * sums[:-1, : BINS - bins]
        sums = (1 - chance) * sums + chance * moved
    weight = 1 / (ranks - 1)
    beyond = 1 - weight * np.maximum(1 - union, 0.0) - (1 - weight) * product
    result = float(np.sum(beyond) * step - 0.5 * step * beyond[0]) * ranks
    return max(result, float(loads.sum()))


def _as_tuples(layers: Sequence[Sequence[float]]) -> tuple[Shares, ...]:
    return tuple(tuple(map(float, layer)) for layer in layers)


class ExpertLoad(Module):
    """Load of the experts of a layer, by a power law or as measured, and what a capacity does to it.

    `experts` of the model; `exponent` of the power law, 0 uniform; `loads`, where measured, shares of each layer's
    experts in the order of their ranks. `capacity_factor` 0 sets no capacity.
    """

    experts: int = static()
    exponent: float = static(default=0.0)
    loads: tuple[Shares, ...] = static(default=(), converter=_as_tuples)
    capacity_factor: float = static(default=0.0)
    padded: bool = static(default=False)

    def __check_init__(self) -> None:
        if not 1 <= self.experts <= MOST_EXPERTS:
            raise ConfigError(f"experts = {self.experts:g} is outside [1, {MOST_EXPERTS:g}] of a load that is uneven")
        if not 0 <= self.exponent <= MOST_EXPONENT:
            raise ConfigError(f"exponent = {self.exponent:g} is outside [0, {MOST_EXPONENT:g}]")
        if self.capacity_factor and not 1 <= self.capacity_factor <= MOST_CAPACITY:
            raise ConfigError(
                f"capacity_factor = {self.capacity_factor:g} is neither 0, without capacity, nor of [1,"
                f" {MOST_CAPACITY:g}]: below 1 even experts drop tokens"
            )
        if self.padded and not self.capacity_factor:
            raise ConfigError("padded = true pads up to a capacity, but capacity_factor is 0 (Megatron:"
                              " --moe-pad-expert-input-to-capacity needs --moe-expert-capacity-factor)")  # fmt: skip
        for layer in self.loads:
            if len(layer) != self.experts or abs(sum(layer) - 1) > 1e-6 or min(layer) < 0:
                raise ConfigError(f"loads: a layer has {len(layer)} shares, not {self.experts} that sum to 1")

    def _layers(self) -> tuple[Shares, ...]:
        """Shares of the experts of each layer, those beyond the capacity cut."""
        shares = self.loads or (power_law(self.exponent, self.experts),)
        if not self.capacity_factor:
            return shares
        most = self.capacity_factor / self.experts
        return tuple(tuple(min(share, most) for share in layer) for layer in shares)

    def dropped_ratio(self) -> float:
        """Share of the token copies that no expert takes."""
        layers = self._layers()
        return 1 - sum(map(sum, layers)) / len(layers)

    def dropped(self, capacity_factor: Array) -> Array:
        """Share of the token copies that no expert takes at a capacity factor C of a plan; its own where that is 0.

        1 - mean over layers of sum_e min(p_e, C / E).
        """
        shares = jnp.asarray(self.loads or (power_law(self.exponent, self.experts),))
        most = capacity_factor[..., None, None] / self.experts
        kept = jnp.sum(jnp.minimum(shares, most), axis=(-2, -1)) / len(shares)
        return jnp.where(capacity_factor > 0, at_least(1 - kept, 0.0), self.dropped_ratio())

    def padded_share(self, capacity_factor: Array) -> Array:
        """Share of the experts' work that is padding: 1 - kept tokens / capacity where they are padded, else 0."""
        own = self.capacity_factor if self.padded else 1.0
        factor = jnp.where(capacity_factor > 0, capacity_factor, own)
        on = jnp.where(capacity_factor > 0, 1.0, float(self.padded))
        return on * (1 - (1 - self.dropped(capacity_factor)) / factor)

    def _ratio(self, ranks: int) -> float:
        layers = self._layers()
        if self.padded:
            return self.capacity_factor
        if not self.loads:
            return busiest_ratio(layers[0], ranks)
        held = [np.asarray(layer).reshape(ranks, -1).sum(axis=1).max() * ranks for layer in layers]
        return float(np.mean(held))

    def ratio(self, ranks: Array) -> Array:
        """Token copies that the busiest of `ranks` works on, over the mean of all that are routed.

        Exact at divisors of the experts, linear in the logarithm of the ranks between them.
        """
        known = [each for each in range(1, self.experts + 1) if self.experts % each == 0]
        values = [self._ratio(each) for each in known]
        result = jnp.zeros_like(ranks) + values[0]
        for low, high, before, after in zip(known, known[1:], values, values[1:], strict=False):
            span = np.log(high / low)
            result = result + (after - before) * at_most(at_least(jnp.log(ranks / low) / span, 0.0), 1.0)
        return result

    @classmethod
    def example(cls) -> "ExpertLoad":
        """Eight experts, the busiest with four times the load of the least busy."""
        return cls(8, 0.667)
