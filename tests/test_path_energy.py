"""Path averages against every pair walked, the ledger against collectives counted message by message."""

import dataclasses
import itertools

import builders
import jax
import numpy as np
import pytest

from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate, ledger
from codesign.model.networks.fabrics import Group, PathEnergy
from codesign.model.scenario import Scenario
from codesign.model.workloads import Plan

PATHS = PathEnergy(65.0, 35.0, 50.0, 200.0)
CLASSES = ("tray", "rack", "inter_rack")


def path_of(a: int, b: int) -> str:
    """Where two devices meet, trays of 8 in racks of 64."""
    if a // 8 == b // 8:
        return "tray"
    return "rack" if a // 64 == b // 64 else "inter_rack"


def shares(pairs) -> list[float]:
    result = [path_of(a, b) for a, b in pairs]
    return [result.count(name) / len(result) for name in CLASSES]


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (8, 1), (16, 1), (64, 1), (256, 1), (8, 8), (16, 4), (4, 128)])
def test_shares_are_those_of_the_pairs(size, stride):
    ranks = [i * stride for i in range(size)]
    group = Group(float(size), float(stride))
    peers = [(ranks[0], other) for other in ranks[1:]]
    assert np.allclose(PATHS.to_any_peer(group), shares(peers))  # the first member's peers are like anybody's
    assert np.allclose(PATHS.to_next(group, closed=False), shares(itertools.pairwise(ranks)))
    assert np.allclose(PATHS.to_next(group), shares(itertools.pairwise([*ranks, ranks[0]])))


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 64])
def test_any_number_of_members_is_every_pair_enumerated(stride):
    """Of groups that fill no tray or rack the first member is not typical: 15 % too cheap at n = 9, 13 % at 12."""
    for size in [*range(2, 41), 63, 64, 65, 96, 100, 127, 130]:
        ranks = [i * stride for i in range(size)]
        group = Group(float(size), float(stride))
        assert np.allclose(PATHS.to_any_peer(group), shares(itertools.permutations(ranks, 2)))
        assert np.allclose(PATHS.to_next(group, closed=False), shares(itertools.pairwise(ranks)))
        assert np.allclose(PATHS.to_next(group), shares(itertools.pairwise([*ranks, ranks[0]])))


@pytest.mark.parametrize(("size", "short"), [(9, 0.15), (12, 0.13), (16, 0.0), (64, 0.0)])
def test_how_far_the_first_members_peers_are_off(size, short):
    mean = float(PATHS.mean_j_per_byte(PATHS.to_any_peer(Group(float(size)))))
    inside, rack = min(size, 8) - 1, max(min(size, 64) - 8, 0)
    first = (inside * 50 + rack * 165) / (size - 1)
    assert 1 - first / mean == pytest.approx(short, abs=6e-3)


def test_a_path_is_its_adapters_and_switches():
    each = PATHS.j_per_byte()
    assert (float(each["rack"]), float(each["inter_rack"])) == (65 + 35 + 65, 65 + 3 * 35 + 65)


def test_mean_energy_of_the_published_groups():
    """Sixteen devices: seven peers in the tray and eight in the rack."""
    mean = PATHS.mean_j_per_byte(PATHS.to_any_peer(Group(16.0)))
    assert float(mean) == pytest.approx((7 * 50 + 8 * 165) / 15)


def ring_bytes(members: int, buffer: float) -> float:
    """What all members of a ring all-reduce send, chunk by chunk: each of 2 (n-1) rounds moves a chunk per member."""
    return sum(buffer / members for _ in range(2 * (members - 1)) for _ in range(members))


def test_tensor_parallel_traffic_is_counted_ring_by_ring():
    """Two all-reduces forward and two backward a layer and micro-batch, in every replica and stage."""
    scenario = builders.training(64.0, Plan(tp=8.0, pp=4.0, micro_batch=2.0, scatter_gather_p2p=0.0))
    entry = ledger(scenario, PATHS)["tp"]
    buffer = 2 * 2048 * 12288 * 2  # micro-batch, sequence, hidden, bytes
    micro_batches, layers = 1024 / (2 * 2), 96 / 4
    groups = 64 / 8
    assert float(entry.tray) == pytest.approx(ring_bytes(8, buffer) * 4 * layers * micro_batches * groups)
    assert float(entry.rack + entry.inter_rack + entry.offload) == 0.0


def test_pipeline_traffic_crosses_every_boundary_twice():
    scenario = builders.training(64.0, Plan(tp=8.0, pp=4.0, micro_batch=2.0, scatter_gather_p2p=0.0))
    entry = ledger(scenario, PATHS)["pp"]
    boundaries, replicas = 3, 2
    message = 2 * 2048 * 12288 * 2 * 8  # every tensor rank sends the whole activation
    micro_batches = 1024 / (2 * replicas)
    assert float(entry.total_bytes()) == pytest.approx(2 * boundaries * replicas * micro_batches * message)
    assert float(entry.rack) == pytest.approx(float(entry.total_bytes()))  # stages lie 16 devices apart


@pytest.mark.slow
def test_energy_is_linear_in_every_path():
    scenario = builders.training(64.0, Plan(tp=8.0, pp=4.0, offload_activations=1.0))

    def joules(factor):
        paths = jax.tree.map(lambda leaf: leaf, PATHS)
        paths = replace(paths, {"adapter_j_per_byte": 65.0 * factor, "offload_j_per_byte": 200.0 * factor})
        return sum(entry.energy_j(paths) for entry in ledger(scenario, paths).values())

    one, two, three = (float(joules(factor)) for factor in (1.0, 2.0, 3.0))
    assert three - two == pytest.approx(two - one)
    assert float(jax.grad(joules)(1.0)) == pytest.approx(two - one, rel=1e-6)


JOULES = PathEnergy(*(number * 8e-12 for number in (65.0, 35.0, 50.0, 200.0)))


def routed(scenario: Scenario, paths: PathEnergy = JOULES) -> Scenario:
    """The same cluster with paths."""
    return dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, path_energy=paths))


def offloading() -> Scenario:
    return builders.training(
        64.0, Plan(tp=8.0, pp=4.0, micro_batch=2.0, offload_activations=1.0, scatter_gather_p2p=0.0)
    )


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [offloading(), builders.serving(16.0)], ids=["training", "serving"])
def test_paths_take_the_place_of_the_links_own_energies(scenario):
    """Links without energy of their own: what is left is the ledger, priced on the paths."""
    bare = replace(scenario, {"cluster.network.scale_up.fabric.energy_j_per_byte": 0.0})
    assert float(bare.cluster.host.link.energy_j_per_byte) == 0.0
    with_paths, without = evaluate(routed(scenario)), evaluate(bare)
    booked = sum(float(entry.energy_j(JOULES)) for entry in ledger(scenario, JOULES).values())
    assert float(with_paths.extra["movement_j"]) == pytest.approx(booked)
    pue = float(scenario.cluster.facility.pue)
    assert float(with_paths.energy_j) == pytest.approx(float(without.energy_j) + pue * booked, rel=1e-12)
    assert float(with_paths.time_s) == float(without.time_s)
    assert not any(name.startswith("movement_j") for name in without.extra)


@pytest.mark.slow
def test_energy_with_paths_has_the_slopes_of_finite_differences():
    scenario = routed(offloading())
    path = "cluster.path_energy.offload_j_per_byte"

    def joules(value):
        return evaluate(replace(scenario, {path: value})).energy_j

    at, step = 1.6e-9, 1.6e-12
    slope = (float(joules(at + step)) - float(joules(at - step))) / (2 * step)
    assert float(interpreted(jax.grad(joules), always=True)(at)) == pytest.approx(slope, rel=1e-6)
    several = jax.jit(jax.vmap(joules))(np.array([at, 2 * at]))
    assert np.allclose(several, [float(joules(at)), float(joules(2 * at))], rtol=1e-12)
