"""Promises of every collective algorithm: those of the menu, and every file of conf/collective and conf/scale_out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.menus import built, classes, configs
from contracts.probing import all_finite
from hypothesis import given
from hypothesis import strategies as st

from codesign import collectives
from codesign.collectives import (
    OPERATIONS,
    AbstractCollective,
    BinomialTree,
    ChainAllReduce,
    Chosen,
    CliqueAllGather,
    CliqueAllReduce,
    CliqueAllToAll,
    DirectAllGather,
    DirectAllToAll,
    DoubleBinaryTreeAllReduce,
    Fastest,
    HostPath,
    InNetworkAllReduce,
    Measured,
    MulticastAllReduce,
    OneShotAllReduce,
    PairwiseAllToAll,
    PipelinedChain,
    Quantised,
    RadixAllGather,
    RadixAllReduce,
    RadixAllToAll,
    RecursiveDoublingAllReduce,
    RingAllGather,
    RingAllReduce,
    ScaledVolume,
    ScatterAllGather,
    Send,
    SipacAllGather,
    SipacAllReduce,
    TreeAllReduce,
    Tuned,
    TwoShotAllReduce,
)
from codesign.fabrics import Group
from codesign.fields import check_ranges
from codesign.hardware import Link, ThreeStagePath, infiniband, pcie
from codesign.interpreting import interpreted

EXAMPLES = {
    "RingAllReduce": ("all_reduce", RingAllReduce()),
    "RingAllGather": ("all_gather", RingAllGather()),
    "PairwiseAllToAll": ("all_to_all", PairwiseAllToAll()),
    "Send": ("send", Send()),
    "DoubleBinaryTreeAllReduce": ("all_reduce", DoubleBinaryTreeAllReduce()),
    "RadixAllReduce": ("all_reduce", RadixAllReduce(radix=4.0)),
    "RadixAllGather": ("all_gather", RadixAllGather(radix=3.0)),
    "RadixAllToAll": ("all_to_all", RadixAllToAll(radix=4.0, splitting="equal")),
    "SipacAllReduce": ("all_reduce", SipacAllReduce(radix=4.0)),
    "SipacAllGather": ("all_gather", SipacAllGather(radix=3.0, splitting="ideal")),
    "CliqueAllReduce": ("all_reduce", CliqueAllReduce()),
    "CliqueAllGather": ("all_gather", CliqueAllGather(splitting="equal")),
    "CliqueAllToAll": ("all_to_all", CliqueAllToAll()),
    "BinomialTree": ("broadcast", BinomialTree()),
    "PipelinedChain": ("broadcast", PipelinedChain()),
    "ScatterAllGather": ("broadcast", ScatterAllGather()),
    "TreeAllReduce": ("all_reduce", TreeAllReduce()),
    "ChainAllReduce": ("all_reduce", ChainAllReduce()),
    "RecursiveDoublingAllReduce": ("all_reduce", RecursiveDoublingAllReduce()),
    "OneShotAllReduce": ("all_reduce", OneShotAllReduce()),
    "TwoShotAllReduce": ("all_reduce", TwoShotAllReduce()),
    "DirectAllGather": ("all_gather", DirectAllGather()),
    "DirectAllToAll": ("all_to_all", DirectAllToAll(imbalance_ratio=1.3)),
    "InNetworkAllReduce": ("all_reduce", InNetworkAllReduce(wave_bytes=32768.0)),
    "MulticastAllReduce": ("all_reduce", MulticastAllReduce()),
    "Quantised": ("all_reduce", Quantised(InNetworkAllReduce(wave_bytes=4224.0), codec_s=1e-6, codec_s_per_byte=1e-13)),
    "Chosen": ("all_reduce", Chosen({"ring": RingAllReduce(), "sipac": SipacAllReduce(radix=4.0)})),
    "Fastest": ("all_reduce", Fastest({"ring": RingAllReduce(), "shot": TwoShotAllReduce()})),
    "Tuned": ("all_reduce", Tuned(RadixAllReduce(), launch_s=5e-6, bandwidth_ratio=0.8, latency_ratio=2.0)),
    "HostPath": ("send", HostPath(ThreeStagePath(pcie(5), infiniband("NDR"), pcie(5), 0.0, 4e-7, 220.0, 8e-7))),
    "ScaledVolume": ("all_reduce", ScaledVolume(scalar=2.0, offset=-1.0)),
    "Measured": ("all_reduce", Measured(rounds=2.0)),
}
"""Class -> (operation, an instance); a new algorithm adds a line."""

FILES = [(group, name) for group in ("collective", "scale_out") for name in configs(group)]
SIZES = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 48.0, 64.0, 1024.0)
POINTS = 48


class Point(NamedTuple):
    """One question: logs of alpha, beta and reconfiguration time; bytes; members."""

    logs: jax.Array
    nbytes: jax.Array
    size: jax.Array


def draw(seed: int) -> Point:
    """Random points: 15 ns to 0.1 ms, 10 MB/s to 10 TB/s, a byte to 10 TB, every size above one."""
    rng = np.random.default_rng(seed)
    logs = np.stack(
        [rng.uniform(-18, -9, POINTS), rng.uniform(-30, -16, POINTS), rng.uniform(-18, -9, POINTS)], axis=-1
    )
    size = rng.choice(SIZES[1:], POINTS)
    return Point(jnp.asarray(logs), jnp.exp(jnp.asarray(rng.uniform(0, 30, POINTS))), jnp.asarray(size))


@jax.jit
def costs(algorithm: AbstractCollective, points: Point):
    """[points] seconds and joules; compiled once for each structure."""

    def one(point: Point):
        alpha, beta, setup = jnp.exp(point.logs)
        cost = algorithm.cost(point.nbytes, Group(point.size), Link(alpha, beta, 1e-11, setup, lanes=16.0))
        return jnp.stack(jnp.broadcast_arrays(cost.time_s, cost.energy_j))

    return jax.vmap(one, out_axes=1)(points)


@interpreted
def slopes(algorithm: AbstractCollective, nbytes, size, link: Link):
    """Derivatives of seconds and joules in everything."""

    def both(algorithm, nbytes, size, link):
        cost = algorithm.cost(nbytes, Group(size), link)
        return jnp.stack(jnp.broadcast_arrays(cost.time_s, cost.energy_j))

    return jax.jacrev(both, argnums=(0, 1, 2, 3))(algorithm, nbytes, size, link)


def more_bytes_are_never_cheaper(algorithm, operation, seed):
    less = draw(seed)
    more = less._replace(nbytes=less.nbytes * np.random.default_rng(seed).uniform(1, 100, POINTS))
    assert (costs(algorithm, more) >= costs(algorithm, less) * (1 - 1e-12)).all()


def never_faster_than_the_wire(algorithm, operation, seed):
    """What a member must send at the least: all of it into a sum or to a partner, else all but its own part."""
    points = draw(seed)
    share = 1.0 if operation in ("all_reduce", "send") else (points.size - 1) / points.size
    if isinstance(algorithm, Quantised):
        share = share * algorithm.wire_ratio(Group(jnp.asarray(2.0)))
    assert (costs(algorithm, points)[0] >= share * points.nbytes * jnp.exp(points.logs[:, 1]) * (1 - 1e-9)).all()


def log_convex_in_the_link(algorithm, operation, seed):
    if not algorithm.log_convex:
        return
    a = draw(seed)
    b = a._replace(logs=draw(seed + 1).logs)
    middle = a._replace(logs=(a.logs + b.logs) / 2)
    seconds_a, seconds_b, halfway = (jnp.log(costs(algorithm, point)[0]) for point in (a, b, middle))
    assert (halfway <= (seconds_a + seconds_b) / 2 + 1e-9).all()


def a_group_of_one_is_free(algorithm, operation, seed):
    points = draw(seed)
    assert (costs(algorithm, points._replace(size=jnp.ones(POINTS))) == 0).all()


def nothing_to_move_is_free(algorithm, operation, seed):
    points = draw(seed)
    assert (costs(algorithm, points._replace(nbytes=jnp.zeros(POINTS))) == 0).all()


def finite_slopes_in_everything(algorithm, operation, seed):
    for alpha, setup in ((1e-6, 5e-6), (0.0, 0.0)):
        link = Link(alpha, 1e-9, 1e-11, setup, lanes=16.0)
        for size, nbytes in ((1.0, 0.0), (1.0, 1e6), (2.0, 0.0), (2.0, 1.0), (48.0, 1e9)):
            assert all_finite(slopes(algorithm, jnp.asarray(nbytes), jnp.asarray(size), link)), (size, nbytes)


def one_at_a_time_is_the_same(algorithm, operation, seed):
    points = draw(seed)
    together = costs(algorithm, points)
    for index in range(0, POINTS, 16):
        alpha, beta, setup = (float(x) for x in jnp.exp(points.logs[index]))
        link = Link(alpha, beta, 1e-11, setup, lanes=16.0)
        cost = algorithm.cost(points.nbytes[index], Group(float(points.size[index])), link)
        np.testing.assert_allclose([cost.time_s, cost.energy_j], together[:, index], rtol=1e-12)


PROMISES = [
    more_bytes_are_never_cheaper, never_faster_than_the_wire, log_convex_in_the_link, a_group_of_one_is_free,
    nothing_to_move_is_free, finite_slopes_in_everything, one_at_a_time_is_the_same,
]  # fmt: skip


def test_every_class_of_the_menu_has_an_example():
    assert set(classes(collectives, AbstractCollective)) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("promise", PROMISES[:3], ids=lambda p: p.__name__)
@given(seed=st.integers(0, 2**31))
def test_class_keeps(promise, name, seed):
    operation, algorithm = EXAMPLES[name]
    promise(algorithm, operation, seed)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("promise", PROMISES[3:], ids=lambda p: p.__name__)
def test_class_also_keeps(promise, name):
    operation, algorithm = EXAMPLES[name]
    check_ranges(algorithm)
    promise(algorithm, operation, 0)


@pytest.mark.parametrize(("group", "name"), FILES, ids=["/".join(f) for f in FILES])
def test_file_keeps_every_promise(group, name):
    made = built(group, name)
    for operation in OPERATIONS:
        algorithm = getattr(getattr(made, "collectives", made), operation)
        check_ranges(algorithm)
        for promise in PROMISES:
            promise(algorithm, operation, 7)
