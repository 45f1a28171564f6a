"""Hit rate of a prefix cache from its room: Che's approximation, of independent references and of a trace.

A cache that throws out the longest unused keeps a block as long as it is used again within a time T, the same for all
blocks where they are many (the characteristic time). T follows from the room C, which the blocks used within T fill:

    references independent, block b wanted at a rate l_b       C(T) = sum 1 - exp(-l_b T)
                                                               h(T) = sum l_b (1 - exp(-l_b T)) / sum l_b
    of a trace, T counted in blocks asked for                  C(T) = blocks used less than T ago
                                                               h(T) = share of uses within T of the one before

and h against C is the curve. Its slope dh / dC is what one more block brings. A trace's needs nothing of independence:
conversations, whose turns follow each other, have a curve of their own. Since load drifts, T is one for each of
`PARTS` parts of the trace, read off in its middle.

1 - h, the share of the blocks that is computed, is not log-convex in C from end to end: it falls slower than any power
of C near no room, and again where all that is ever reused fits; 1 - C / n of n blocks wanted alike is log-concave.
`power_bounds` gives monomials a C^-b none of which exceeds 1 - h between the first and the last knot, whose maximum is
the largest such log-convex function: what a certificate may use.

Assumes: blocks of one size; no block has a share of the uses that C(T) would notice; a trace whose reuse does not
change much within a part.
Source: [che2002], why it holds [fricker2012]; what was used within a time as what a memory holds [denning1972].
"""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...simulation.fleet import Reuse

__all__ = ["HitCurve", "PowerBounds", "curve_of_rates", "curve_of_reuse", "power_bounds"]

KNOTS = 256
PARTS = 64  # of a trace
LEAST_MISSED = 1e-6
STEEPEST, SHORTEST = 40.0, 1e-3  # times the longest mean time between uses, and the shortest, that curves go to


class HitCurve(Module):
    """Share of the blocks asked for that a cache of `room` blocks holds, linear between knots."""

    rooms: Float[Array, " k"] = quantity()
    shares: Float[Array, " k"] = quantity(high=1.0)
    times: Float[Array, " k"] = quantity(doc="characteristic times at the knots, mean over the parts")

    def hit(self, room: Array) -> Array:
        """See the class; beyond the last knot no more is found."""
        return jnp.interp(room, self.rooms, self.shares)

    def time(self, room: Array) -> Array:
        """Characteristic time: what is used again within it is found."""
        return jnp.interp(room, self.rooms, self.times)

    def room_for(self, share: Array) -> Array:
        """Blocks that a hit rate needs; infinite where none is enough."""
        result = jnp.interp(share, self.shares, self.rooms)
        return jnp.where(share > self.shares[-1], jnp.inf, result)


class PowerBounds(NamedTuple):
    """max_k factors_k room^-powers_k: at most the share of blocks that is not found, log-convex in the room."""

    factors: Array
    powers: Array

    def missed(self, room: Array) -> Array:
        """Share at least, within the knots of the curve that they are of."""
        return jnp.max(self.factors * jnp.asarray(room)[..., None] ** -self.powers, axis=-1)


def curve_of_rates(rates: Float[Array, " n"], knots: int = KNOTS) -> HitCurve:
    """The curve of blocks wanted at these rates, each use independent of all others."""
    wanted = rates > 0
    safe = jnp.where(wanted, rates, 1.0)
    slowest = jnp.min(jnp.where(wanted, rates, jnp.inf))
    times = jnp.geomspace(SHORTEST / safe.sum(), STEEPEST / slowest, knots - 1)
    there = jnp.where(wanted, -jnp.expm1(-safe * times[:, None]), 0.0)
    shares = there @ (rates / rates.sum())
    zero = jnp.zeros(1)
    return HitCurve(*(jnp.concatenate([zero, each]) for each in (there.sum(1), shares, times)))


def curve_of_reuse(reuse: Reuse, knots: int = KNOTS, parts: int = PARTS) -> HitCurve:
    """The curve of a trace, by how long ago blocks were used."""
    count = len(reuse.begins)
    edges = np.unique(np.linspace(0, count, parts + 1).astype(int))
    rooms = np.unique(np.rint(np.geomspace(1, max(reuse.blocks, 2), knots)).astype(int))
    result, longest = np.zeros(len(rooms)), np.zeros(len(rooms))
    ages = reuse.ages
    for low, high in itertools.pairwise(edges.tolist()):
        held = np.append(reuse.held((low + high) // 2), np.inf)  # where there are fewer nothing goes
        times = held[np.minimum(rooms, len(held)) - 1]
        result += np.searchsorted(np.sort(ages[low:high]), times, side="right") - np.isinf(times) * (
            np.isinf(ages[low:high]).sum()
        )
        longest += np.where(np.isfinite(times), times, count) * (high - low) / count
    zero = np.zeros(1)
    return HitCurve(*(jnp.asarray(np.concatenate([zero, each])) for each in (rooms, result / max(count, 1), longest)))


def power_bounds(curve: HitCurve) -> PowerBounds:
    """Monomials below the share that is not found: sides of the convex hull from below, in logarithms.

    Between two knots the share falls along a line, whose logarithm lies above the straight one in logarithms. Knots at
    which less than `LEAST_MISSED` is missed are left out, so that the bound ends before them.
    """
    rooms, missed = np.asarray(curve.rooms[1:], float), 1 - np.asarray(curve.shares[1:], float)
    inside = (rooms > 0) & (missed > LEAST_MISSED)
    x, y = np.log(rooms[inside]), np.log(missed[inside])
    hull: list[int] = []
    for at in range(len(x)):
        while len(hull) > 1:
            one, two = hull[-2:]
            if (y[two] - y[one]) * (x[at] - x[one]) < (y[at] - y[one]) * (x[two] - x[one]):
                break
            hull.pop()
        hull.append(at)
    if len(hull) == 1:
        return PowerBounds(jnp.exp(jnp.asarray(y[hull])), jnp.zeros(1))
    slopes = np.diff(y[hull]) / np.diff(x[hull])
    return PowerBounds(jnp.asarray(np.exp(y[hull][:-1] - slopes * x[hull][:-1])), jnp.asarray(-slopes))
