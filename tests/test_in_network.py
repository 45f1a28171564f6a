"""The in-switch accelerator by hand, against its packet-level simulation, and the multicast baseline."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import tree_schedules as executed

from _lib.in_switch import SwitchedAccelerator, simulate
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges, replace
from codesign.model.hardware import Link
from codesign.model.networks.collectives import (
    Collectives,
    InNetworkAllGather,
    InNetworkAllReduce,
    InNetworkBroadcast,
    InNetworkReduce,
    InNetworkReduceScatter,
    MulticastAllReduce,
    PairwiseAllToAll,
    Quantised,
    RingAllGather,
    RingAllReduce,
    Send,
    Tuned,
)
from codesign.model.networks.fabrics import Group, RoundRobin, SwitchDomain

LINK = SwitchDomain(8.0, 450e9, 500e-9, 2e-11).link(Group(8.0))
SCIN = InNetworkAllReduce()
INQ = Quantised(InNetworkAllReduce(wave_bytes=4224.0, buffer_bytes=67584.0, arithmetic_cycles=100.0))
NVLS = MulticastAllReduce()
RING = Tuned(RingAllReduce(), bandwidth_ratio=128 / 160, latency_ratio=2.0)


def cost(algorithm, nbytes, size=8, link=LINK):
    return algorithm.cost(jnp.asarray(float(nbytes)), Group(float(size)), link)


def seconds(algorithm, nbytes, size=8, link=LINK) -> float:
    return float(cost(algorithm, nbytes, size, link).time_s)


class TestByHand:
    def test_payload_rate_is_the_printed_one(self):
        more = seconds(SCIN, 2e12) - seconds(SCIN, 1e12)
        assert 1e12 / more == pytest.approx(360e9, rel=1e-6)

    def test_small_message(self):
        by_hand = 0.5e-6 + 1e-6 + 109e-9 + 128 * 144 / 128 / 112.5e9 + 512 / 360e9
        assert seconds(SCIN, 512) == pytest.approx(by_hand)

    def test_small_message_of_the_ring(self):
        assert seconds(RING, 512) == pytest.approx(14 * (1e-6 + 512 / 8 / 360e9))

    def test_synchronisation_is_one_trip(self):
        assert seconds(SCIN, 512) - seconds(InNetworkAllReduce(synchronised=0.0), 512) == pytest.approx(500e-9)

    @pytest.mark.parametrize(("nbytes", "speedup"), [(512, 8.69), (2**24, 1.98), (1e12, 1.75)])
    def test_speedups_over_the_ring(self, nbytes, speedup):
        assert seconds(RING, nbytes) / seconds(SCIN, nbytes) == pytest.approx(speedup, abs=0.005)

    @pytest.mark.parametrize(("waves", "share"), [(1, 0.55), (2, 0.76), (4, 0.94), (8, 1.0), (16, 1.0)])
    def test_too_few_waves_in_flight_starve_the_wire(self, waves, share):
        scin = InNetworkAllReduce(wave_bytes=65536.0 / waves)
        assert 1e12 / 360e9 / seconds(scin, 1e12) == pytest.approx(share, abs=0.005)

    def test_the_buffer_of_littles_law_fills_the_wire(self):
        needed = 90e9 * (500e-9 + 89e-9)
        for buffer_bytes, full in ((1.1 * needed, True), (0.7 * needed, False)):
            scin = InNetworkAllReduce(wave_bytes=64.0, buffer_bytes=buffer_bytes)
            assert (1e12 / 360e9 / seconds(scin, 1e12) > 0.999) is full

    def test_a_larger_group_costs_no_more(self):
        assert seconds(SCIN, 1e6, 8) == seconds(SCIN, 1e6, 64)
        assert float(cost(SCIN, 1e6, 64).energy_j) == pytest.approx(1e6 * 2e-11)

    def test_quantisation_nearly_halves_large_messages_and_slows_small_ones(self):
        assert seconds(SCIN, 1e12) / seconds(INQ, 1e12) == pytest.approx(64 / 33, rel=1e-4)
        assert seconds(INQ, 512) - seconds(SCIN, 512) == pytest.approx(80e-9, rel=0.05)


class TestSimulated:
    """The closed form against packets that know nothing of it."""

    @pytest.mark.parametrize("waves", [1, 2, 4, 8, 16])
    @pytest.mark.parametrize("nbytes", [512, 2**15, 2**17, 2**18, 2**19])
    def test_within_four_per_cent(self, waves, nbytes):
        outcome = simulate(nbytes, SwitchedAccelerator(members=2, waves=waves))
        assert all(result == outcome.expected for result in outcome.sums)
        assert seconds(InNetworkAllReduce(wave_bytes=65536.0 / waves), nbytes) == pytest.approx(
            outcome.seconds, rel=0.04
        )

    @pytest.mark.parametrize(
        "changes",
        [
            {"latency_s": 500e-9},
            {"switches": 8},
            {"table_bytes": 32768.0, "waves": 8},
            {"link_bytes_per_s": 900e9},
            {"header_bytes": 32.0, "payload_bytes": 256.0},
            {"response_bytes": 32.0},
        ],
        ids=lambda c: next(iter(c)),
    )
    def test_other_designs_within_four_per_cent(self, changes):
        design = SwitchedAccelerator(members=2, **changes)
        names = {"payload_bytes": "payload_bytes", "header_bytes": "header_bytes", "switches": "switches"}
        numbers = {name: float(getattr(design, field)) for field, name in names.items()}
        closed = InNetworkAllReduce(
            wave_bytes=design.table_bytes / design.waves,
            buffer_bytes=float(design.table_bytes),
            acknowledgement_bytes=float(design.response_bytes),
            **numbers,
        )
        link = Link(2 * design.latency_s, 1 / design.link_bytes_per_s)
        for nbytes in (2**12, 2**20):
            assert seconds(closed, nbytes, 2, link) == pytest.approx(simulate(nbytes, design).seconds, rel=0.04)

    def test_eight_members_sum_exactly_and_send_what_the_packets_say(self):
        outcome = simulate(2**15, SwitchedAccelerator())
        assert outcome.sums == [outcome.expected] * 8
        packets = 2**15 / 128
        assert outcome.up_bytes == outcome.down_bytes == packets * 160
        assert outcome.most_outstanding_bytes <= 65536

    def test_late_members_only_delay(self):
        on_time = simulate(2**16, SwitchedAccelerator(members=4)).seconds
        late = simulate(2**16, SwitchedAccelerator(members=4, jitter_s=100e-9), seed=1)
        assert late.sums == [late.expected] * 4
        assert on_time < late.seconds < on_time + 16 * 100e-9

    def test_prototype(self):
        design = SwitchedAccelerator(4, 1, 8e9 * 64 / 66, 360e-9, 4096, 32, 32, 32, 65536, 16, 16e-9, 80e-9, 16e-9)
        closed = InNetworkAllReduce(
            payload_bytes=4096.0, header_bytes=32.0, request_bytes=32.0, acknowledgement_bytes=32.0, switches=1.0,
            response_s=16e-9, bubble_cycles=4.0, clock_hz=250e6,
        )  # fmt: skip
        link = Link(720e-9, 66 / 64 / 8e9)
        for nbytes in (4096, 2**20):
            assert seconds(closed, nbytes, 4, link) == pytest.approx(simulate(nbytes, design).seconds, rel=0.01)


OTHERS = {
    "reduce": InNetworkReduce(SCIN),
    "broadcast": InNetworkBroadcast(SCIN),
    "reduce_scatter": InNetworkReduceScatter(SCIN),
    "all_gather": InNetworkAllGather(SCIN),
}


class TestOtherOperations:
    """Reduce, broadcast, reduce-scatter and all-gather by bitmasks: by hand, against packets, in a whole network."""

    @pytest.mark.parametrize(
        ("operation", "rate"),
        [
            ("reduce", 450e9 * 128 / 160),
            ("broadcast", 450e9 * 128 / 144),
            ("reduce_scatter", 450e9 * 128 / (144 + 16 / 8)),
            ("all_gather", 450e9 * 128 / (7 / 8 * 144 + 16 / 8)),
        ],
    )
    def test_rates_by_hand(self, operation, rate):
        more = seconds(OTHERS[operation], 2e12) - seconds(OTHERS[operation], 1e12)
        assert 1e12 / more == pytest.approx(rate, rel=1e-9)

    def test_small_gather_by_hand(self):
        """Synchronisation, a request and its data, a write and its acknowledgement; nothing passes the adders."""
        part = 512 / 8
        by_hand = 0.5e-6 + 1e-6 + 89e-9 + part * 144 / 128 / 450e9 + part * (7 * 144 + 16) / 128 / 450e9
        assert seconds(OTHERS["all_gather"], 512) == pytest.approx(by_hand)

    @pytest.mark.parametrize("operation", OTHERS)
    @pytest.mark.parametrize("members", [2, 5, 8])
    def test_packets_agree_and_bring_every_member_what_it_should_have(self, operation, members):
        for nbytes in (2**10, 2**14, 2**17):
            outcome = simulate(nbytes, SwitchedAccelerator(members=members), operation=operation)
            assert outcome.right
            assert seconds(OTHERS[operation], nbytes, members) == pytest.approx(outcome.seconds, rel=0.03)

    @pytest.mark.slow
    @pytest.mark.parametrize("operation", OTHERS)
    @pytest.mark.parametrize("waves", [4, 8, 16])
    def test_few_waves_and_large_messages_agree_with_packets(self, operation, waves):
        algorithm = OTHERS[operation].by(InNetworkAllReduce(wave_bytes=65536.0 / waves))
        for nbytes in (2**18, 2**20, 2**21):
            outcome = simulate(nbytes, SwitchedAccelerator(members=4, waves=waves), operation=operation)
            assert outcome.right
            assert seconds(algorithm, nbytes, 4) == pytest.approx(outcome.seconds, rel=0.05)

    def test_the_numbers_are_those_of_the_all_reduce_beside_it(self):
        algorithms = Collectives(
            SCIN, InNetworkAllGather(), InNetworkReduceScatter(), PairwiseAllToAll(), Send(), InNetworkBroadcast(),
            InNetworkReduce(),
        )  # fmt: skip
        faster = replace(algorithms, {"all_reduce.response_s": 0.0})
        for operation, alone in OTHERS.items():
            assert seconds(algorithms.algorithm(operation), 1e6) == seconds(alone, 1e6)
            saved = seconds(alone, 1e6) - seconds(faster.algorithm(operation), 1e6)
            assert saved == pytest.approx(89e-9)

    def test_sums_are_quantised_as_the_all_reduce_is_and_gathers_are_not(self):
        both = dataclasses.replace(INQ, plain=SCIN)
        algorithms = Collectives(both, InNetworkAllGather(), InNetworkReduceScatter(), PairwiseAllToAll(), Send())
        scatter, gather = algorithms.algorithm("reduce_scatter"), algorithms.algorithm("all_gather")
        assert seconds(gather, 1e6) == seconds(OTHERS["all_gather"], 1e6)
        assert seconds(OTHERS["reduce_scatter"], 1e12) / seconds(scatter, 1e12) == pytest.approx(64 / 33, rel=1e-4)
        eight = Group(8.0)
        assert float(scatter.log_perplexity_penalty(eight)) == float(both.log_perplexity_penalty(eight)) > 0
        assert float(gather.log_perplexity_penalty(eight)) == 0

    def test_without_an_accelerator_in_the_switch_there_are_none(self):
        with pytest.raises(ConfigError, match=r"^all_gather: InNetworkAllGather, all_reduce: RingAllReduce: the all_"):
            Collectives(RingAllReduce(), InNetworkAllGather(), RingAllGather(), PairwiseAllToAll(), Send())
        with pytest.raises(ConfigError, match=r"^InNetworkReduce lacks accelerator"):
            seconds(InNetworkReduce(), 1e6)


class TestRoundRobin:
    """Ordinary packets in the same ports."""

    @pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather"])
    @pytest.mark.parametrize("load", [0.1, 0.3, 0.45, 0.9])
    def test_what_others_leave_as_packets_say(self, operation, load):
        design = SwitchedAccelerator(members=4, others_ratio=load)
        more, less = (simulate(nbytes, design, operation=operation) for nbytes in (2**19, 2**18))
        assert more.right
        fabric = RoundRobin(SwitchDomain(8.0, 450e9, 500e-9), min(load, 144 / 304))
        algorithm = SCIN if operation == "all_reduce" else OTHERS[operation]
        closed = [seconds(algorithm, nbytes, 4, fabric.link(Group(4.0))) for nbytes in (2**19, 2**18)]
        assert closed[0] - closed[1] == pytest.approx(more.seconds - less.seconds, rel=0.06)

    def test_ours_keep_what_others_leave(self):
        inner = SwitchDomain(8.0, 450e9, 500e-9)
        for others, share in ((0.0, 1.0), (0.2, 0.8), (0.5, 0.5)):
            beta = RoundRobin(inner, others).link(Group(8.0)).beta_s_per_byte
            assert float(1 / beta / 450e9) == pytest.approx(share)

    def test_no_more_than_half_can_be_taken(self):
        with pytest.raises(ConfigError, match=r"others_ratio = 0.7 is outside \[0, 0.5\]"):
            check_ranges(RoundRobin(SwitchDomain(8.0, 450e9, 500e-9), 0.7))


class TestMulticast:
    @pytest.mark.parametrize("size", [2, 3, 8, 12])
    def test_trips_and_bytes_of_the_executed_flow(self, size):
        fabric, result, expected = executed.multicast_all_reduce(size, 10 * size)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        assert fabric.up == fabric.down
        found = cost(NVLS, 8 * 10 * size, size)
        wire = 8 * fabric.up / 360e9
        assert float(found.time_s) == pytest.approx(fabric.trips * 500e-9 + 109e-9 + wire)
        assert float(found.energy_j) == pytest.approx(8 * fabric.up * 2e-11)

    def test_lies_between_ring_and_switch_centric(self):
        for nbytes in (512, 2**20, 2**30):
            assert seconds(SCIN, nbytes) < seconds(NVLS, nbytes) < seconds(RING, nbytes)
