"""Collectives through addressable memory: by hand, against their carrying out; the appliance as a network of tiers."""

import jax.numpy as jnp
import numpy as np
import pytest
from simulators.shared_memory import Appliance, carry_out

from codesign.config import scenario_from_config
from codesign.model.hardware import Link
from codesign.model.metrics import evaluate, memory_by_class
from codesign.model.networks.collectives import (
    RingAllReduce,
    SharedMemoryAllGather,
    SharedMemoryAllReduce,
    SharedMemoryAllToAll,
    SharedMemoryReduceScatter,
)
from codesign.model.networks.fabrics import Group

PORT, ALPHA = 9e11, 5e-7
LINK = Link(ALPHA, 1 / PORT, 8e-11)
KINDS = {
    "all_reduce": SharedMemoryAllReduce,
    "all_gather": SharedMemoryAllGather,
    "all_to_all": SharedMemoryAllToAll,
    "reduce_scatter": SharedMemoryReduceScatter,
}


def seconds(algorithm, nbytes, members=16, link=LINK):
    return float(algorithm.cost(jnp.asarray(float(nbytes)), Group(float(members)), link).time_s)


class TestByHand:
    def test_all_reduce(self):
        result = seconds(SharedMemoryAllReduce(), 1e9)
        assert result == pytest.approx(6 * ALPHA + 2 * 15 / 16 * 1e9 / PORT + 1e6 / PORT)

    def test_a_small_one_is_six_trips_where_a_ring_has_thirty(self):
        assert seconds(SharedMemoryAllReduce(), 1) == pytest.approx(6 * ALPHA, rel=1e-3)
        assert seconds(RingAllReduce(), 1) == pytest.approx(30 * ALPHA, rel=1e-3)

    def test_as_many_bytes_as_a_ring(self):
        assert seconds(SharedMemoryAllReduce(), 1e12) / seconds(RingAllReduce(), 1e12) == pytest.approx(1, rel=1e-4)

    def test_a_slow_memory_bounds(self):
        result = seconds(SharedMemoryAllReduce(memory_bytes_per_s=1e12), 1e12)
        assert result == pytest.approx((3 * 16 - 2) * 1e12 / 1e12, rel=1e-4)

    def test_energy_is_of_one_cable_a_byte(self):
        result = SharedMemoryAllGather().cost(jnp.asarray(16.0), Group(16.0), LINK).energy_j
        assert float(result) == pytest.approx((1 + 15) / 2 * 8e-11)


@pytest.mark.parametrize("operation", KINDS)
@pytest.mark.parametrize("members", [2, 5, 16])
@pytest.mark.parametrize("nbytes", [1e3, 1e6, 2e7, 3e8])
def test_carried_out_piece_by_piece(operation, members, nbytes):
    """Later by a ninth at the most: the second exchange of a large buffer hides its trips behind the first."""
    told = seconds(KINDS[operation](piece_bytes=1e6), nbytes, members)
    done = carry_out(operation, nbytes, 1e6, Appliance(members, PORT, ALPHA / 2))
    assert told == pytest.approx(done, rel=0.09)


class TestNetwork:
    """The appliance joins accelerators, in tiers where there are more than ports."""

    @pytest.mark.parametrize(("endpoints", "tiers", "appliances"), [(16, 1, 1), (128, 2, 24), (256, 3, 80)])
    def test_tiers(self, endpoints, tiers, appliances):
        """16 ports: 128 in two tiers at full bisection, as the document has it; 256 take a third."""
        made = scenario_from_config(
            "fabric=photonic_fabric", f"fabric.endpoints={endpoints}", "cluster.device_count=256"
        )
        fabric = made.cluster.network["scale_up"].fabric
        assert (float(fabric.tiers()), float(fabric.switches())) == (tiers, appliances)
        near, far = (fabric.link(Group(size)) for size in (8.0, float(endpoints)))
        assert float(near.beta_s_per_byte) == float(far.beta_s_per_byte) == pytest.approx(8 / 7.2e12)
        assert float(far.alpha_s) == pytest.approx(0.3e-6 + (2 * tiers - 1) * 0.2e-6)

    @pytest.mark.slow
    def test_serving_on_it_is_quicker_than_on_a_node(self):
        base = ("model=llama31_405b", "workload=static_batch_fp8", "plan=serving_node", "cluster.device_count=16",
                "calibration=h100_sxm_roofline", "plan.tp=16", "plan.micro_batch=32")  # fmt: skip
        plain, photonic, shared = (
            float(evaluate(scenario_from_config(*base, *more)).extra["tpot_s"])
            for more in (("collective=ring",), ("fabric=photonic_fabric", "collective=ring"),
                         ("fabric=photonic_fabric", "collective=shared_memory"))
        )  # fmt: skip
        assert shared < photonic < plain

    def test_the_next_one_has_four_times_the_ports_and_the_rate(self):
        now, later = (
            scenario_from_config(f"fabric={name}").cluster.network["scale_up"].fabric
            for name in ("photonic_fabric", "photonic_fabric_next")
        )
        assert float(later.radix / now.radix) == float(later.bandwidth_bytes_per_s / now.bandwidth_bytes_per_s) == 4
        for fabric in (now, later):
            assert 0.99 < float(fabric.limits()["switch"]) <= 1
            assert np.isfinite(float(fabric.capex_usd()))


@pytest.mark.slow
def test_energy_of_paths_with_a_pool_that_computes_prompts():
    """Caches cross racks once, 50 pJ/bit with photonics; what both pools send between ranks is as of one pool."""
    base = ("accelerator=h200", "model=llama2_70b", "workload=disaggregated", "prefill=same", "path_energy=photonic",
            "plan.tp=8", "cluster.device_count=16")  # fmt: skip
    apart = evaluate(scenario_from_config(*base, "plan.prefill_devices=8", "plan.prefill_tp=8")).extra
    together = evaluate(scenario_from_config(*base)).extra
    caches = 2 * 32 * 2048 * 2 * 80 * 8 * 128 * 2  # two replicas of 32 prompts, bytes of keys and values
    assert float(apart["movement_j.kv_transfer"]) == pytest.approx(caches * 8 * 50e-12, rel=1e-6)
    assert float(together["movement_j.kv_transfer"]) == 0
    assert float(apart["movement_j.tp"]) == pytest.approx(float(together["movement_j.tp"]), rel=1e-6)


@pytest.mark.parametrize(("tp", "devices", "copies"), [(1, 16, 1), (4, 16, 1), (16, 64, 4), (8, 64, 4)])
def test_one_copy_of_the_weights_serves_all_replicas_on_a_pool(tp, devices, copies):
    """Bytes of weights on all devices together: one model for each pool of sixteen, or for each replica."""
    base = ("model=llama31_70b", "workload=static_batch", "plan=serving_node", "memory=photonic_pool_shared",
            f"plan.tp={tp}", f"cluster.device_count={devices}")  # fmt: skip
    once, each = (
        float(memory_by_class(scenario_from_config(*base, *more))["hbm/weights"]) * devices
        for more in (("+cluster.accelerator.hbm.one_copy=[weights]",), ())
    )
    assert each / once == pytest.approx(devices / tp / copies)
    assert once == pytest.approx(copies * 141e9, rel=0.03)  # sixteen ranks keep eight heads twice
