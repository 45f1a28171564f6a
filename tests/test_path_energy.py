"""Path averages against every pair walked, the ledger against collectives counted message by message."""

import itertools

import builders
import jax
import numpy as np
import pytest

from codesign.fabrics import Group, PathEnergy
from codesign.fields import replace
from codesign.metrics import ledger
from codesign.workloads import Plan

PATHS = PathEnergy(65.0, 35.0, 50.0, 200.0)
CLASSES = ("tray", "rack", "inter_rack")


def path_of(a: int, b: int) -> str:
    """Where two devices meet, trays of 8 in racks of 64."""
    if a // 8 == b // 8:
        return "tray"
    return "rack" if a // 64 == b // 64 else "inter_rack"


def shares(pairs) -> list[float]:
    found = [path_of(a, b) for a, b in pairs]
    return [found.count(name) / len(found) for name in CLASSES]


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (8, 1), (16, 1), (64, 1), (256, 1), (8, 8), (16, 4), (4, 128)])
def test_shares_are_those_of_the_pairs(size, stride):
    ranks = [i * stride for i in range(size)]
    group = Group(float(size), float(stride))
    peers = [(ranks[0], other) for other in ranks[1:]]
    assert np.allclose(PATHS.to_any_peer(group), shares(peers))
    assert np.allclose(PATHS.to_next(group, closed=False), shares(itertools.pairwise(ranks)))
    assert np.allclose(PATHS.to_next(group), shares(itertools.pairwise([*ranks, ranks[0]])))


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
    scenario = builders.training(64.0, Plan(tp=8.0, pp=4.0, micro_batch=2.0, scatter_sends=0.0))
    entry = ledger(scenario, PATHS)["tp"]
    buffer = 2 * 2048 * 12288 * 2  # micro-batch, sequence, hidden, bytes
    micro_batches, layers = 1024 / (2 * 2), 96 / 4
    groups = 64 / 8
    assert float(entry.tray) == pytest.approx(ring_bytes(8, buffer) * 4 * layers * micro_batches * groups)
    assert float(entry.rack + entry.inter_rack + entry.offload) == 0.0


def test_pipeline_traffic_crosses_every_boundary_twice():
    scenario = builders.training(64.0, Plan(tp=8.0, pp=4.0, micro_batch=2.0, scatter_sends=0.0))
    entry = ledger(scenario, PATHS)["pp"]
    boundaries, replicas = 3, 2
    message = 2 * 2048 * 12288 * 2 * 8  # every tensor rank sends the whole activation
    micro_batches = 1024 / (2 * replicas)
    assert float(entry.total_bytes()) == pytest.approx(2 * boundaries * replicas * micro_batches * message)
    assert float(entry.rack) == pytest.approx(float(entry.total_bytes()))  # stages lie 16 devices apart


def test_energy_is_linear_in_every_path():
    scenario = builders.training(64.0, Plan(tp=8.0, pp=4.0, offload_activations=1.0))

    def joules(factor):
        paths = jax.tree.map(lambda leaf: leaf, PATHS)
        paths = replace(paths, {"adapter_j_per_byte": 65.0 * factor, "offload_j_per_byte": 200.0 * factor})
        return sum(entry.energy_j(paths) for entry in ledger(scenario, paths).values())

    one, two, three = (float(joules(factor)) for factor in (1.0, 2.0, 3.0))
    assert three - two == pytest.approx(two - one)
    assert float(jax.grad(joules)(1.0)) == pytest.approx(two - one, rel=1e-6)
