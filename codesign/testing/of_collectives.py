"""Contract of every algorithm of a collective operation, on links and groups drawn at random."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ..core.jax_typed import asarray, jacrev, jit, ones, zeros
from ..jaxprs.evaluator import interpreted
from ..model.hardware import Link
from ..model.networks.collectives import AbstractCollective, Quantised
from ..model.networks.fabrics import Group
from .keeping import all_finite, must

SIZES = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 48.0, 64.0, 1024.0)
POINTS = 48
ROUNDING = 1e-12


class DrawnLinks(NamedTuple):
    """One question: logs of alpha, beta and reconfiguration time; bytes; members."""

    logs: Array
    nbytes: Array
    size: Array


def wired(alpha: ArrayLike, beta: ArrayLike, setup: ArrayLike) -> Link:
    """Sixteen lanes of a plausible energy."""
    return Link(asarray(alpha), asarray(beta), asarray(1e-11), asarray(setup), lanes=asarray(16.0))


def draw(seed: int) -> DrawnLinks:
    """Random points: 15 ns to 0.1 ms, 10 MB/s to 10 TB/s, a byte to 10 TB, every size above one."""
    rng = np.random.default_rng(seed)
    logs = np.stack(
        [rng.uniform(-18, -9, POINTS), rng.uniform(-30, -16, POINTS), rng.uniform(-18, -9, POINTS)], axis=-1
    )
    size = rng.choice(SIZES[1:], POINTS)
    return DrawnLinks(asarray(logs), jnp.exp(asarray(rng.uniform(0, 30, POINTS))), asarray(size))


@jit
def costs(algorithm: AbstractCollective, points: DrawnLinks) -> Array:
    """[2, points] seconds and joules; compiled once for each structure."""

    def one(point: DrawnLinks) -> Array:
        alpha, beta, setup = jnp.exp(point.logs)
        cost = algorithm.cost(point.nbytes, Group(point.size), wired(alpha, beta, setup))
        return jnp.stack(jnp.broadcast_arrays(cost.time_s, cost.energy_j))

    return jax.vmap(one, out_axes=1)(points)


@interpreted
def slopes(algorithm: AbstractCollective, nbytes: Array, size: Array, link: Link) -> tuple[Any, ...]:
    """Derivatives of seconds and joules in everything."""

    def both(algorithm: AbstractCollective, nbytes: Array, size: Array, link: Link) -> Array:
        cost = algorithm.cost(nbytes, Group(size), link)
        return jnp.stack(jnp.broadcast_arrays(cost.time_s, cost.energy_j))

    return jacrev(both, argnums=(0, 1, 2, 3))(algorithm, nbytes, size, link)


def more_bytes_are_never_cheaper(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Up to a hundred times as many."""
    less = draw(seed)
    more = less._replace(nbytes=less.nbytes * np.random.default_rng(seed).uniform(1, 100, POINTS))
    must(costs(algorithm, more) >= costs(algorithm, less) * (1 - ROUNDING), "more bytes are cheaper")


def never_faster_than_the_wire(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Check against the bytes a member must send: all into a sum or to a partner, else all but its own part."""
    points = draw(seed)
    share = 1.0 if operation in ("all_reduce", "send") else (points.size - 1) / points.size
    if isinstance(algorithm, Quantised):
        share = share * algorithm.wire_ratio(Group(asarray(2.0)))
    wire = share * points.nbytes * jnp.exp(points.logs[:, 1])
    must(costs(algorithm, points)[0] >= wire * (1 - 1e-9), f"{operation} is faster than its bytes are on the wire")


def log_convex_in_the_link(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Check that the time is log-convex in the link, where the class says so."""
    if not algorithm.log_convex:
        return
    a = draw(seed)
    b = a._replace(logs=draw(seed + 1).logs)
    middle = a._replace(logs=(a.logs + b.logs) / 2)
    seconds_a, seconds_b, halfway = (jnp.log(costs(algorithm, point)[0]) for point in (a, b, middle))
    must(halfway <= (seconds_a + seconds_b) / 2 + 1e-9, "the time is not log-convex in the link, and log_convex is set")


def a_group_of_one_is_free(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Nobody to talk to."""
    points = draw(seed)
    must(costs(algorithm, points._replace(size=ones(POINTS))) == 0, "a group of one is not free")


def nothing_to_move_is_free(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """No bytes, no time."""
    points = draw(seed)
    must(costs(algorithm, points._replace(nbytes=zeros(POINTS))) == 0, "no bytes are not free")


def finite_slopes_in_everything(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """At the ends too: no bytes, one member, no latency."""
    for alpha, setup in ((1e-6, 5e-6), (0.0, 0.0)):
        link = wired(alpha, 1e-9, setup)
        for size, nbytes in ((1.0, 0.0), (1.0, 1e6), (2.0, 0.0), (2.0, 1.0), (48.0, 1e9)):
            result = slopes(algorithm, asarray(nbytes), asarray(size), link)
            must(all_finite(result), f"slopes of {nbytes:g} bytes among {size:g} are not finite")


def one_at_a_time_is_the_same(algorithm: AbstractCollective, operation: str, seed: int) -> None:
    """Check that points evaluated one at a time give the same as many together."""
    points = draw(seed)
    together = costs(algorithm, points)
    for index in range(0, POINTS, 16):
        alpha, beta, setup = (float(x) for x in jnp.exp(points.logs[index]))
        link = wired(alpha, beta, setup)
        cost = algorithm.cost(points.nbytes[index], Group(asarray(float(points.size[index]))), link)
        alone = np.array([float(cost.time_s), float(cost.energy_j)])
        must(np.isclose(alone, together[:, index], rtol=ROUNDING), "one question alone has another answer")


AT_RANDOM = (more_bytes_are_never_cheaper, never_faster_than_the_wire, log_convex_in_the_link)
ALWAYS = (
    a_group_of_one_is_free, nothing_to_move_is_free, finite_slopes_in_everything, one_at_a_time_is_the_same,
)  # fmt: skip
PROMISES = (*AT_RANDOM, *ALWAYS)
