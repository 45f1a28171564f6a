"""Closed form of two networks that share a card: limits, orderings, and the package's own packet simulations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.probing import all_finite, midpoint_excess

from _lib.events import simulate_events
from _lib.node_network import NodeNetwork
from _lib.queues import simulate_queues
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.model.network_traffic import sent_per_step
from codesign.model.networks.fabrics import BackgroundTraffic, Contended, Group, SwitchDomain
from codesign.model.networks.fabrics.interference import (
    CoupledNode,
    RealLifeFatTree,
    carried_load,
    equal_switch_tree,
    flow_completion_s,
    head_of_line_ratio,
    intra_latency_s,
    saturation_load,
    throughput,
    wait_s,
)
from codesign.model.scenario import Scenario

GB = 1e9


def node(link=64 * GB, **changes) -> CoupledNode:
    numbers = {"accelerators": 8, "link_bytes_per_s": link, "nic_bytes_per_s": 50 * GB, "port_bytes_per_s": 8 * link}
    return CoupledNode(**(numbers | changes))


def network(link=64 * GB, **changes) -> NodeNetwork:
    numbers = {"nodes": 8, "leaf_nodes": 2, "link_bytes_per_s": link, "port_bytes_per_s": 8 * link}
    return NodeNetwork(**(numbers | changes))


class TestSaturation:
    """What is carried at most."""

    @pytest.mark.parametrize(
        ("link", "share", "load"), [(16, 0.2, 1), (32, 0.2, 0.9615), (64, 0.2, 0.4808), (64, 0.15, 0.641), (64, 0, 1)]
    )
    def test_by_hand_with_unlimited_buffers(self, link, share, load):
        """50 GB/s x 4096 / 4160 over 8 links of 16, 32 and 64 GB/s."""
        one = node(link * GB, buffer_messages=1e9)
        assert float(saturation_load(one, jnp.asarray(share))) == pytest.approx(load, abs=1e-4)

    def test_a_full_card_drags_the_traffic_inside_down_with_it(self):
        """Carried C (1 - p) / p inside, not more however fast the links inside."""
        for link in (64 * GB, 640 * GB):
            inside, beyond = throughput(node(link), jnp.asarray(1.0), jnp.asarray(0.2))
            assert float(beyond) == pytest.approx(50 * GB * 4096 / 4160)
            assert float(inside) == pytest.approx(50 * GB * 4096 / 4160 * 4)

    def test_below_saturation_all_is_carried(self):
        assert float(carried_load(node(), jnp.asarray(0.3), jnp.asarray(0.2))) == pytest.approx(0.3)

    def test_a_narrow_port_limits_like_a_narrow_card(self):
        narrow = node(port_bytes_per_s=25 * GB)
        assert float(saturation_load(narrow, jnp.asarray(0.2))) == pytest.approx(25 / (8 * 64 * 0.2))

    def test_without_buffers_the_known_limit(self):
        assert float(head_of_line_ratio(jnp.asarray(0.0))) == pytest.approx(2 - 2**0.5)

    def test_falls_in_the_share_and_in_the_bandwidth(self):
        by_share = [float(saturation_load(node(buffer_messages=1e9), jnp.asarray(p))) for p in (0.1, 0.15, 0.2)]
        by_link = [float(saturation_load(node(r * GB, buffer_messages=1e9), jnp.asarray(0.2))) for r in (16, 32, 64)]
        assert by_share == sorted(by_share, reverse=True)
        assert by_link == sorted(by_link, reverse=True)


class TestLatency:
    """Waits, against hand and against the queues."""

    def test_empty_network(self):
        idle = jnp.asarray(1e-9)
        inside = float(intra_latency_s(node(), idle, jnp.asarray(0.1)))
        assert inside == pytest.approx(66e-9, rel=1e-6)  # 4096 + 128 bytes at 64 GB/s
        through = float(flow_completion_s(node(), RealLifeFatTree(32, 4), idle, jnp.asarray(0.1)))
        hops = 6 * (2 + 2 * 28 / 31)
        assert through == pytest.approx((64 + 0.25 + 83.2 + hops + 64 + 2) * 1e-9, rel=1e-4)

    def test_waiting_is_the_text_book_s(self):
        assert float(wait_s(jnp.asarray(0.5), jnp.asarray(2.0))) == pytest.approx(1.0)

    def test_blows_up_towards_saturation_and_stays_finite_beyond(self):
        loads = jnp.asarray([0.2, 0.4, 0.46, 0.48, 0.6, 1.0])
        tree = equal_switch_tree(32.0)
        times = jax.vmap(lambda load: flow_completion_s(node(), tree, load, jnp.asarray(0.2)))(loads)
        assert (np.diff(np.asarray(times)) > 0).all()
        assert float(times[3] / times[0]) > 10
        assert np.isfinite(np.asarray(times)).all()

    def test_more_nodes_leave_the_inside_alone(self):
        small = simulate_queues(network(), 0.3, 0.15, 20e-6, 4e-6)
        large = simulate_queues(network(nodes=32, leaf_nodes=4), 0.3, 0.15, 20e-6, 4e-6)
        assert large.intra_latency_s == pytest.approx(small.intra_latency_s, rel=0.04)

    @pytest.mark.parametrize(("link", "share", "load"), [(64, 0.1, 0.5), (32, 0.05, 0.7), (64, 0.2, 0.3)])
    def test_closed_form_against_the_queues(self, link, share, load):
        result = simulate_queues(network(link * GB), load, share, 80e-6, 10e-6)
        tree = RealLifeFatTree(8, 2)
        inside = float(intra_latency_s(node(link * GB), jnp.asarray(load), jnp.asarray(share)))
        through = float(flow_completion_s(node(link * GB), tree, jnp.asarray(load), jnp.asarray(share)))
        assert inside == pytest.approx(result.intra_latency_s, rel=0.05)
        assert through == pytest.approx(result.flow_completion_s, rel=0.12)

    def test_sizes_of_a_tree_of_equal_switches(self):
        assert [float(equal_switch_tree(n).switches()) for n in (32.0, 128.0)] == pytest.approx([12, 24])


@pytest.mark.slow
def test_log_convex_and_smooth_in_every_rate():
    tree = RealLifeFatTree(32, 4)

    def outputs(logs):
        rates = jnp.exp(logs)
        one = node(rates[0], nic_bytes_per_s=rates[1], port_bytes_per_s=rates[2])
        load = 4 * GB / rates[0]  # the traffic of a job stays what it is
        share = jnp.asarray(0.15)
        saturation = 1 / saturation_load(one, share) / rates[0]
        return jnp.stack([saturation, flow_completion_s(one, tree, load, share)])

    rng = np.random.default_rng(0)
    low, high = np.log([8e9, 10e9, 10e9]), np.log([800e9, 400e9, 4e12])
    for _ in range(20):
        a, b = (jnp.asarray(rng.uniform(low, high)) for _ in range(2))
        assert midpoint_excess(lambda x: outputs(x)[:1], a, b) < 1e-9
    assert all_finite(jax.jacrev(outputs)(jnp.asarray(low)))


class TestSimulation:
    """Two simulations that share nothing but the offered messages."""

    def test_with_room_for_everything_both_agree_to_rounding(self):
        roomy = network(nodes=4, buffer_messages=4000, card_messages=4000, tree_messages=4000)
        events = simulate_events(roomy, 0.6, 0.1, 30e-6, 2e-6, seed=3)
        queues = simulate_queues(roomy, 0.6, 0.1, 30e-6, 2e-6, seed=3)
        assert events.intra_latency_s == pytest.approx(queues.intra_latency_s, rel=1e-9)
        assert events.flow_completion_s == pytest.approx(queues.flow_completion_s, rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize(("nodes", "share", "buffers"), [(2, 0.0, 2), (2, 0.0, 8), (8, 0.2, 8)])
    def test_saturated_throughput(self, nodes, share, buffers):
        result = simulate_events(network(nodes=nodes, buffer_messages=buffers), 1.0, share, 40e-6, 15e-6)
        carried = float(saturation_load(node(buffer_messages=buffers), jnp.asarray(share)))
        assert result.carried_load == pytest.approx(carried, rel=0.05)

    def test_a_lone_message_takes_the_sum_of_its_stages(self):
        quiet = simulate_events(network(), 1e-3, 1.0, 200e-6, seed=1)
        hops = 6 * (2 + 2 * 6 / 7)
        assert quiet.flow_completion_s == pytest.approx((64 + 0.25 + 83.2 + hops + 64 + 2) * 1e-9, rel=0.02)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [({"leaf_nodes": 3}, "no multiple of leaf_nodes"), ({"card_messages": 4}, "at least accelerators"),
         ({"link_bytes_per_s": -1.0}, "link_bytes_per_s = -1"), ({"packet_bytes": 100}, "no multiple of packet_bytes")],
    )  # fmt: skip
    def test_bad_networks_are_refused_in_one_line(self, changes, words):
        with pytest.raises(ConfigError, match=words):
            network(**changes)

    def test_bad_traffic_is_refused(self):
        with pytest.raises(ConfigError, match="no such traffic"):
            simulate_queues(network(), 0.5, 1.5, 1e-6)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return scenario_from_config("experiment=intranode_codesign")


class TestPlanTraffic:
    """A plan's flows on levels that share a queue."""

    UP = "cluster.network.scale_up.fabric"
    OUT = "cluster.network.scale_out.fabric.bandwidth_bytes_per_s"

    def links(self, scenario: Scenario, **changes) -> dict[str, float]:
        """Flow -> seconds per byte inside the node, with everything the plan has beside it."""
        scenario = replace(scenario, changes)
        cluster, layout, workload = scenario.cluster, scenario.layout, scenario.workload
        seen = cluster.beside(workload.lower(layout), layout, workload.repeats(layout))
        fabric = cluster.network["scale_up"].fabric
        group = layout.group("tp")
        return {
            phase: float(fabric.link(dataclasses.replace(group, beside=seen[phase, "tp"][0])).beta_s_per_byte)
            for phase in ("forward", "backward", "recompute")
        }

    @pytest.mark.slow
    def test_bytes_by_hand(self, scenario):
        """Llama 2 13B, tp 8, 4 sequences of 2048: gathers and scatters of 4 x 2048 x 5120 bf16 inside a node."""
        cluster, layout, workload = scenario.cluster, scenario.layout, scenario.workload
        levels = [cluster.network[name] for name in cluster.levels]
        inside, beyond = sent_per_step(workload.lower(layout), levels, layout, workload.repeats(layout))
        exchange = 7 / 8 * 4 * 2048 * 5120 * 2
        assert float(inside) == pytest.approx(40 * 10 * exchange)
        weights = 13.0e9 / 8
        assert float(beyond) == pytest.approx(31 / 32 * weights * (4 + 2), rel=0.02)

    @pytest.mark.slow
    def test_who_meets_whom(self, scenario):
        """Gradients meet the backward pass, gathered parameters the forward pass, nothing meets recomputation."""
        link = self.links(scenario)
        assert link["recompute"] == pytest.approx(1 / 450e9)
        assert link["forward"] > link["recompute"]
        assert link["backward"] > link["recompute"]

    @pytest.mark.slow
    def test_more_micro_batches_meet_the_exchange_less(self, scenario):
        few, many = self.links(scenario), self.links(scenario, **{"workload.global_batch": 1024.0})
        assert many["backward"] - 1 / 450e9 == pytest.approx((few["backward"] - 1 / 450e9) / 8, rel=1e-6)

    @pytest.mark.slow
    def test_a_full_card_decides_however_fast_the_inside(self, scenario):
        slow, fast = (self.links(scenario, **{f"{self.UP}.inner.bandwidth_bytes_per_s": r}) for r in (450e9, 4e12))
        assert slow["forward"] == pytest.approx(fast["forward"])
        doubled = self.links(scenario, **{self.OUT: 100e9, f"{self.UP}.inner.bandwidth_bytes_per_s": 4e12})
        assert doubled["forward"] == pytest.approx(fast["forward"] / 2)

    @pytest.mark.slow
    def test_virtual_channels_leave_only_the_shared_link(self, scenario):
        link = self.links(scenario, **{f"{self.UP}.head_of_line_share": 0.0})
        assert 1 / 450e9 < link["forward"] < 1.5 / 450e9

    @pytest.mark.slow
    def test_nothing_overlaps_nothing_meets(self, scenario):
        link = self.links(scenario, **{"plan.dp_overlap": 0.0})
        assert link["forward"] == pytest.approx(1 / 450e9)

    @pytest.mark.parametrize("share", [0.05, 0.2])
    def test_a_shared_link_carries_what_the_node_carries(self, share):
        """The fluid of `Contended` is the saturated node of the closed form, which the simulations confirm."""
        inside, _ = throughput(node(buffer_messages=1e9), jnp.asarray(1.0), jnp.asarray(share))
        ratio, card = share / (1 - share), 50 * GB * 4096 / 4160 / 8
        beside = BackgroundTraffic(jnp.asarray(ratio), jnp.asarray(ratio / card), jnp.asarray(1.0))
        link = Contended(SwitchDomain(8.0, 64 * GB, 1e-6)).link(Group(8.0, beside=beside))
        assert float(8 / link.beta_s_per_byte) == pytest.approx(float(inside), rel=1e-6)
