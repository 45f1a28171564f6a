"""Waits behind bursts of other traffic: by hand, against a ring carried out among them, and in studies of plans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.probing import all_finite
from scipy.stats import gamma
from simulators.ring_beside import RingBeside, send_times, simulate_ring

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.model.network_traffic import collective_times, leaving_ratio, tail_s
from codesign.model.networks.collectives import NetworkLevel, RingAllReduce, Stage
from codesign.model.networks.fabrics import BackgroundTraffic, Group, QueuedNode, SwitchDomain
from codesign.model.networks.fabrics.interference import CoupledNode, saturation_load
from codesign.model.networks.fabrics.queued import LATER_OF_TWO
from codesign.model.workloads import CommOp
from codesign.testing.contracts import rings

RATE, ALPHA, BURST = 450e9, 1e-6, 1e6
DOMAIN = SwitchDomain(8.0, RATE, ALPHA)


def q(used, service):
    return used * service / (2 * (1 - used))


def queued(load, beyond=0.2, **changes):
    return QueuedNode(DOMAIN, load * RATE, beyond, BURST, **changes)


class TestByHand:
    def test_nobody_else_changes_nothing(self):
        link, alone = queued(0.0).link(Group(8.0)), DOMAIN.link(Group(8.0))
        assert [float(a) for a in jax.tree.leaves(link)] == [float(a) for a in jax.tree.leaves(alone)]

    def test_inside_two_links_and_the_rate_that_is_left(self):
        link = queued(0.3).link(Group(2.0))
        assert float(link.alpha_s) == pytest.approx(ALPHA + 2 * q(0.3, BURST / RATE))
        assert float(link.beta_s_per_byte) == pytest.approx(1 / RATE / 0.7)

    def test_a_step_that_depends_on_two_waits_for_the_later(self):
        pair, ring = (float(queued(0.3).link(Group(size)).alpha_s) - ALPHA for size in (2.0, 8.0))
        assert ring == pytest.approx(LATER_OF_TWO * pair)

    def test_a_full_card_holds_up_what_means_to_stay(self):
        """p c = 0.5 / 60 GB/s > 1 / 450: 90 GB/s of others would fill 0.75 of the queue, not 0.2."""
        slow = BackgroundTraffic(beyond_s_per_byte=1 / 60e9)
        link = queued(0.2, 0.5).link(Group(2.0, beside=slow))
        assert float(link.beta_s_per_byte) == pytest.approx(1 / RATE / 0.25)

    def test_between_nodes_also_both_cards(self):
        seen, card = BackgroundTraffic(inside_s_per_byte=1 / RATE), SwitchDomain(8.0, 50e9, ALPHA)
        node = QueuedNode(card, 0.1 * RATE, 0.5, BURST, 8.0, 4.0, between=True)
        link = node.link(Group(2.0, beside=seen))
        used, held = 45e9 * 0.5 / 50e9, 0.5 / 50e9
        waits = q(45e9 * held, BURST * held) + q(0.1, BURST / RATE) + 2 * q(used, BURST / 50e9 * 4 / 8)
        assert float(link.alpha_s) == pytest.approx(ALPHA + waits)
        assert float(link.beta_s_per_byte) == pytest.approx(1 / 50e9 / (1 - used))

    def test_more_others_longer_bursts_and_more_of_them_beyond_never_help(self):
        def late(load, beyond, burst):
            seen = BackgroundTraffic(beyond_s_per_byte=1 / 50e9)
            return float(QueuedNode(DOMAIN, load * RATE, beyond, burst).link(Group(8.0, beside=seen)).alpha_s)

        for better, worse in (((0.1, 0.1, 1e5), (0.2, 0.1, 1e5)), ((0.1, 0.1, 1e5), (0.1, 0.1, 1e6)),
                              ((0.1, 0.1, 1e5), (0.1, 0.4, 1e5)), ((0.1, 0.4, 1e5), (9.0, 0.4, 1e5))):  # fmt: skip
            assert late(*better) < late(*worse) < np.inf


class TestNode:
    """Ports and finite buffers, as `CoupledNode` has them."""

    @pytest.mark.parametrize("beyond", [0.0, 0.05, 0.2, 0.5])
    @pytest.mark.parametrize(("port", "buffers"), [(512e9, 8.0), (2e11, 8.0), (512e9, 1.0)])
    def test_saturation_is_where_the_coupled_node_has_it(self, beyond, port, buffers):
        """An accelerator's link of 64 GB/s, a card of 50 GB/s for eight: what others may offer at the most."""
        node = CoupledNode(8.0, 64e9, 50e9, port, nic_header_bytes=0.0, buffer_messages=buffers)
        most = float(saturation_load(node, jnp.asarray(beyond))) * 64e9
        seen = BackgroundTraffic(beyond_s_per_byte=8 / 50e9)
        fabric = QueuedNode(
            SwitchDomain(8.0, 64e9, ALPHA), most, beyond, port_bytes_per_s=port, buffer_messages=buffers
        )
        assert float(fabric.taken_ratio(Group(2.0, beside=seen))) == pytest.approx(1.0)

    def test_without_either_nothing_changes(self):
        link, wide = (
            queued(0.3, **more).link(Group(8.0)) for more in ({}, {"port_bytes_per_s": 1e15, "buffer_messages": 1e9})
        )
        np.testing.assert_allclose(jax.tree.leaves(wide), jax.tree.leaves(link), rtol=1e-6)

    def test_slopes_and_curvature_of_ports_and_buffers(self):
        """By differences, and log-convex in the port and in what others offer."""

        def late(point):
            changes = {"port_bytes_per_s": jnp.exp(point[0]), "background_bytes_per_s": jnp.exp(point[1])}
            made = replace(queued(0.1, buffer_messages=8.0, port_bytes_per_s=1e11), changes)
            return jnp.log(made.link(Group(8.0, beside=BackgroundTraffic(beyond_s_per_byte=1 / 50e9))).alpha_s)

        rng = np.random.default_rng(0)
        for _ in range(30):
            a, b = (jnp.asarray(rng.uniform([23.0, 22.0], [28.0, 26.0])) for _ in range(2))
            assert late((a + b) / 2) <= (late(a) + late(b)) / 2 + 1e-9
        point = jnp.asarray([24.0, 24.0])
        for index, slope in enumerate(jax.grad(late)(point)):
            step = jnp.zeros(2).at[index].set(1e-6)
            assert float(slope) == pytest.approx(float((late(point + step) - late(point - step)) / 2e-6), rel=1e-4)


class TestCarriedOut:
    """Rings among bursts, first come first served on every link."""

    @pytest.mark.parametrize(
        ("nbytes", "load"), [(1e4, 0.1), (1e4, 0.6), (1e5, 0.3), (1e6, 0.3), (1e6, 0.6), (1e7, 0.1), (1e7, 0.6)]
    )
    def test_a_ring_of_eight(self, nbytes, load):
        ring = RingBeside(message_bytes=nbytes, burst_bytes=BURST, load=load)
        seen = float(simulate_ring(ring, 40, seed=1).mean())
        group = Group(8.0)
        told = float(RingAllReduce().cost(jnp.asarray(8 * nbytes), group, queued(load).link(group)).time_s)
        assert told == pytest.approx(seen, rel=0.25)

    @pytest.mark.parametrize("load", [0.3, 0.8])
    def test_each_member_sends_its_messages_one_after_the_other(self, load):
        ring = RingBeside(load=load)
        service = ring.message_bytes / ring.link_bytes_per_s
        for seed in range(10):
            begun = send_times(ring, seed)
            assert np.isfinite(begun).all()
            assert (np.diff(begun, axis=0) >= service * (1 - 1e-9)).all()
            received = np.roll(begun[:-1], 1, axis=1) + service + ring.latency_s
            assert (begun[1:] >= received * (1 - 1e-9)).all()  # no step before the message of the last has come

    def test_alone_it_takes_the_closed_form_s_time(self):
        result = simulate_ring(RingBeside(load=0.0), 2)
        np.testing.assert_allclose(result, 14 * (1e-6 + 1e6 / 450e9))

    @pytest.mark.parametrize("changes", [{"members": 1}, {"load": 1.0}, {"beyond": 1.5}, {"burst_bytes": 0.0}])
    def test_what_is_no_such_traffic_is_refused(self, changes):
        with pytest.raises(ConfigError):
            RingBeside(**changes)


class TestSlowestOfAHundred:
    """The tail of a collective's time."""

    @pytest.mark.parametrize("shape", [0.3, 1.0, 4.0, 30.0])
    def test_tail_is_that_of_a_gamma_distribution(self, shape):
        exact = gamma.ppf(0.99, shape) - shape
        assert float(tail_s(jnp.asarray(shape), jnp.asarray(shape))) == pytest.approx(exact, rel=0.04)

    def test_no_waits_no_tail(self):
        assert float(tail_s(jnp.asarray(0.0), jnp.asarray(0.0))) == 0.0
        assert np.isfinite(float(jax.grad(lambda m: tail_s(m, 1e-12))(1e-9)))

    @pytest.mark.parametrize(("used", "service"), [(0.2, 1.0), (0.6, 2.0), (0.9, 1.0)])
    def test_variance_of_a_queue_s_waits_by_recursion(self, used, service):
        """Lindley's: w' = max(0, w + s - gap), Poisson arrivals."""
        rng, wait, waits = np.random.default_rng(0), 0.0, []
        for gap in rng.exponential(service / used, 400_000):
            waits.append(wait)
            wait = max(0.0, wait + service - gap)
        fabric = QueuedNode(SwitchDomain(8.0, 1.0, 0.0), used, 0.0, service)
        mean, variance = (float(each) / 2 for each in fabric.wait(Group(2.0)))  # of two equal queues
        assert mean == pytest.approx(np.mean(waits), rel=0.05)
        assert variance == pytest.approx(np.var(waits), rel=0.12)

    @pytest.mark.slow
    @pytest.mark.parametrize(("nbytes", "load"), [(1e5, 0.3), (1e6, 0.3), (1e6, 0.6), (1e7, 0.6)])
    def test_rings_carried_out(self, nbytes, load):
        """As far off as the mean is."""
        seen = np.quantile(
            simulate_ring(RingBeside(message_bytes=nbytes, burst_bytes=BURST, load=load), 400, seed=1), 0.99
        )
        fabric = queued(load)
        level = NetworkLevel(fabric, rings())
        op = CommOp("sum", "all_reduce", "tp", "forward", jnp.asarray(8 * nbytes), jnp.asarray(1.0))
        told = collective_times([(op, [Stage(level, Group(8.0))])])
        assert float(told["collective_p99_s.tp"]) == pytest.approx(float(seen), rel=0.25)
        assert float(told["collective_p99_s.tp"]) > float(told["collective_s.tp"])

    @pytest.mark.slow
    def test_they_are_metrics_and_limits(self):
        base = scenario_from_config(*TRAINED, "cluster.network.scale_up.fabric.burst_bytes=1e7")
        numbers = evaluate(base).flat()
        tails = {name: float(value) for name, value in numbers.items() if name.startswith("collective_p99_s.")}
        assert all(value >= float(numbers[name.replace("_p99", "")]) for name, value in tails.items())
        assert tails["collective_p99_s.tp"] > 0
        alone = evaluate(scenario_from_config("experiment=intranode_codesign")).flat()
        assert not any(name.startswith("collective_") for name in alone)


TRAINED = ("experiment=intranode_codesign", "fabric=nvlink4_queued", "scale_out=infiniband_ndr_queued")
SERVED = ("experiment=serve_llama31_405b", "fabric=nvlink4_queued", "scale_out=infiniband_ndr_queued")
UP, OUT = "cluster.network.scale_up.fabric", "cluster.network.scale_out.fabric"


class TestStudies:
    """Through `evaluate`, in training and in serving."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("overrides", "metric"), [(TRAINED, "time_s"), (SERVED, "tpot_s")], ids=["train", "serve"])
    def test_others_lengthen_collectives_and_sends(self, overrides, metric):
        base = scenario_from_config(*overrides)
        times = [
            float(evaluate(replace(base, {f"{UP}.background_bytes_per_s": g, f"{OUT}.background_bytes_per_s": g}))
                  .get(metric))
            for g in (0.0, 20e9, 60e9)
        ]  # fmt: skip
        assert times == sorted(times)
        assert times[2] > 1.005 * times[0]

    @pytest.mark.slow
    def test_what_leaves_is_as_of_the_plan_s_own(self):
        """Llama 2 13B, tp 8, 4 sequences: gradients and parameters of a 32nd leave, the layers' gathers do not."""
        scenario = scenario_from_config(*TRAINED)
        layout, workload = scenario.layout, scenario.workload
        levels = [scenario.cluster.network[name] for name in scenario.cluster.levels]
        share = leaving_ratio(workload.lower(layout), levels, layout, workload.repeats(layout))
        assert float(share) == pytest.approx(0.24, abs=0.01)

    @pytest.mark.slow
    def test_others_that_share_fairly_take_rate_and_hardly_time_alone(self):
        """Exchanges of experts beside others' transfers: as much slower as the rate that is left, not as a queue."""
        base = ("model=mixtral_8x7b", "workload=training", "plan.ep=8", "plan.tp=1", "plan.virtual_stages=4")
        alone, among, behind = (
            float(evaluate(scenario_from_config(*base, "cluster.device_count=64", *more)).breakdown_s["ep"])
            for more in (("fabric=nvlink4",), ("fabric=nvlink4_queued",),
                         ("fabric=nvlink4_queued", "cluster.network.scale_up.fabric.burst_bytes=1.76e9"))
        )  # fmt: skip
        assert alone < among < 1.2 * alone
        assert behind > 1.5 * among  # whole transfers first come first served

    def test_slopes_by_differences_and_the_same_in_every_way_of_calling(self):
        seen = BackgroundTraffic(beyond_ratio=0.3, beyond_s_per_byte=2e-11, inside_s_per_byte=2e-12)

        def told(point):
            changes = {"background_bytes_per_s": point[0], "inner.bandwidth_bytes_per_s": point[1]}
            changed = replace(QueuedNode(DOMAIN), changes)
            link = changed.link(Group(8.0, beside=seen))
            return jnp.log(jnp.stack([link.alpha_s, link.beta_s_per_byte]))

        points = jnp.asarray([[1e10, 4e11], [1e11, 3e11], [9e11, 1e11]])
        plain = jnp.stack([told(point) for point in points])
        np.testing.assert_allclose(jax.jit(jax.vmap(told))(points), plain, rtol=1e-12)
        for point in points:
            slope = interpreted(jax.jacfwd(told), always=True)(point)
            assert all_finite(slope)
            for index in range(2):
                step = jnp.zeros(2).at[index].set(1e-6 * point[index])
                by_differences = (told(point + step) - told(point - step)) / (2e-6 * point[index])
                np.testing.assert_allclose(slope[:, index], by_differences, rtol=1e-4)


@pytest.mark.slow
def test_a_recommendation_model_is_priced_among_bursts():
    """Of its phases nothing says how often they are run: once a batch."""
    study = ("experiment=serve_dlrm", "fabric=nvlink4_queued")
    alone, among = (scenario_from_config(*study, f"fabric.background_bytes_per_s={rate}") for rate in (0.0, 45e9))
    assert float(evaluate(among).time_s) > float(evaluate(alone).time_s)
