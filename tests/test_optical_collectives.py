"""Collectives on circuits: closed forms against schedules carried out on a rack, circuit by circuit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from _lib.circuit_schedule import (
    Rack,
    all_reduce,
    factorisations,
    ring_all_reduce,
    rotations,
)
from codesign.core.errors import ConfigError
from codesign.model.hardware import Link
from codesign.model.networks.collectives import (
    CliqueAllToAll,
    Collectives,
    Fastest,
    NetworkLevel,
    PairwiseAllToAll,
    RadixAllGather,
    RadixAllReduce,
    RadixAllToAll,
    RingAllReduce,
    Send,
    SipacAllGather,
    SipacAllReduce,
    Stage,
    hierarchical,
)
from codesign.model.networks.collectives.radix import divide
from codesign.model.networks.fabrics import Group, OpticalCircuit

ALPHA, DELTA, RATE, NBYTES = 0.7e-6, 3.7e-6, 300e9, 8e6
FACTORS = [(3, 2), (4, 3), (4, 4), (4, 4, 3), (4, 4, 4), (4, 4, 4, 2), (4, 4, 4, 4)]
FACTORS += [(2,) * 4, (2,) * 6, (2,) * 7, (2,) * 8, (8, 8), (16, 16), (8, 6), (6,), (12,), (16, 3)]


@jax.jit
def _cost(algorithm, nbytes, size, link):
    return algorithm.cost(nbytes, Group(size), link)


def cost(algorithm, size, lanes=0.0, nbytes=NBYTES):
    link = Link(ALPHA, 1 / RATE, 2e-11, DELTA, lanes=float(lanes))
    return _cost(algorithm, jnp.asarray(nbytes), jnp.asarray(float(size)), link)


def buffers(size: int, parts: int = 1) -> np.ndarray:
    """[members, chunks] whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(size).integers(-1000, 1000, (size, parts * size)).astype(float)


def executed(rack: Rack, rounds, size: int, parts: int = 1, repeat: int = 1):
    """Outcome of a run; one run must leave the sum everywhere."""
    start = buffers(size, parts)
    out = rack.run(rounds, start, NBYTES, repeat)
    if repeat == 1:
        np.testing.assert_array_equal(out.values, np.tile(start.sum(axis=0), (size, 1)))
    return out


class TestRadix:
    """Circuits that follow the algorithm."""

    @pytest.mark.parametrize("splitting", ["lanes", "ideal", "equal"])
    @pytest.mark.parametrize("factors", FACTORS, ids=str)
    def test_time_bytes_and_sum(self, factors, splitting):
        size, lanes = int(np.prod(factors)), 16
        rack = Rack(ALPHA, DELTA, RATE, lanes, splitting, always=True)
        out = executed(rack, all_reduce(factors), size)
        closed = cost(RadixAllReduce(radix=float(factors[0]), splitting=splitting), size, lanes)
        assert float(closed.time_s) == pytest.approx(out.seconds, rel=1e-6)
        np.testing.assert_allclose(out.sent, 2 * (1 - 1 / size), rtol=1e-12)  # exactly what a sum needs, all alike
        assert float(closed.energy_j) == pytest.approx(out.sent.max() * NBYTES * 2e-11)

    @pytest.mark.parametrize("factors", FACTORS[:7], ids=str)
    def test_rounds_that_find_their_circuits_standing(self, factors):
        size, rack, rounds = int(np.prod(factors)), Rack(ALPHA, DELTA, RATE), all_reduce(factors)
        once, twice = executed(rack, rounds, size), executed(rack, rounds, size, repeat=2)
        assert once.pointed == 2 * len(factors) - 1
        assert twice.pointed - once.pointed == 2 * len(factors) - 2  # the second run begins where the first ended
        for result, seconds in ((1.0, once.seconds), (2.0, twice.seconds - once.seconds)):
            closed = cost(RadixAllReduce(radix=float(factors[0]), found=result), size)
            assert float(closed.time_s) == pytest.approx(seconds, rel=1e-6)

    def test_more_partners_than_lanes_are_served_in_waves(self):
        out = executed(Rack(ALPHA, DELTA, RATE, 16, always=True), all_reduce((48,)), 48)
        assert out.rounds == 2 * 3  # 47 partners, 16 at a time
        assert float(cost(RadixAllReduce(radix=48.0), 48, 16).time_s) == pytest.approx(out.seconds, rel=1e-6)

    @pytest.mark.parametrize(("partners", "loss"), [(1, 1), (3, 16 / 15), (7, 8 / 7), (15, 16 / 15), (16, 1)])
    def test_loss_in_whole_lanes(self, partners, loss):
        assert float(divide(jnp.asarray(float(partners)), jnp.asarray(16.0), "lanes").loss) == pytest.approx(loss)

    def test_an_unknown_splitting_is_refused(self):
        with pytest.raises(ConfigError, match="'lane' is not one of lanes, ideal, equal"):
            RadixAllReduce(splitting="lane")

    @pytest.mark.parametrize("factors", [(2, 2, 2), (4, 4), (4, 3), (4, 4, 2), (3, 3, 2), (6,)], ids=str)
    def test_all_to_all_digit_by_digit(self, factors):
        """Block (a, b) travels the digits of b - a one after the other; everything must arrive."""
        size, strides = int(np.prod(factors)), np.cumprod([1, *factors[:-1]])
        at = {(a, b): a for a in range(size) for b in range(size)}
        seconds = volume = 0.0
        for factor, stride in zip(factors, strides, strict=True):
            sent = np.zeros((size, factor))
            for (a, b), here in at.items():
                digit = (b - a) % size // stride % factor
                if digit:
                    sent[here, digit] += 1 / size
                    at[a, b] = (here + digit * stride) % size
            assert len(set(sent[:, 1:].ravel().round(12))) == 1  # equal shares for all partners
            volume += sent.sum(axis=1).max()
            seconds += ALPHA + DELTA + sent.max() * 16 / (16 // (factor - 1)) * NBYTES / RATE
        assert all(here == b for (_, b), here in at.items())
        closed = cost(RadixAllToAll(radix=float(factors[0])), size, 16)
        assert float(closed.time_s) == pytest.approx(seconds, rel=1e-6)
        assert float(closed.energy_j) == pytest.approx(volume * NBYTES * 2e-11)


class TestStanding:
    """Circuits that stand for the whole job."""

    @pytest.mark.parametrize("factors", [*FACTORS[:10], (4, 4, 2), (3, 3, 2), (6,), (12,)], ids=str)
    def test_sipac_uses_every_dimension_in_every_round(self, factors):
        size, places = int(np.prod(factors)), len(factors)
        rounds = all_reduce(factors, rotations(places))
        widest = {m: len({x.target for x in rounds[0] if x.source == m}) for m in (0, size - 1)}
        assert set(widest.values()) == {sum(f - 1 for f in factors)}
        out = self.over_dimensions(rounds, factors)
        closed = cost(SipacAllReduce(radix=float(factors[0])), size)
        assert float(closed.time_s) == pytest.approx(out, rel=1e-6)

    @staticmethod
    def over_dimensions(rounds, factors) -> float:
        """Seconds where every dimension has an equal part of the channel, divided among its partners."""
        size, places = int(np.prod(factors)), len(factors)
        start = buffers(size, places)
        out = Rack(ALPHA, DELTA, RATE, splitting="ideal").run(rounds, start, NBYTES)
        np.testing.assert_array_equal(out.values, np.tile(start.sum(axis=0), (size, 1)))
        strides, wire = np.cumprod([1, *factors]), 0.0
        for messages in rounds:
            own = [m for m in messages if m.source == 0]
            place = [int(np.searchsorted(strides, m.target, side="right")) - 1 for m in own]
            shares = [1 / (places * (factors[p] - 1)) for p in place]
            load = {(m.target): 0.0 for m in own}
            for m in own:
                load[m.target] += len(m.chunks) / (places * size)
            wire += max(load[m.target] / share for m, share in zip(own, shares, strict=True))
        return len(rounds) * ALPHA + wire * NBYTES / RATE

    @pytest.mark.parametrize(("radix", "places", "lanes"), [(2, 3, 16), (4, 2, 16), (4, 3, 16), (3, 3, 8), (2, 4, 4)])
    def test_sipac_in_whole_lanes(self, radix, places, lanes):
        size, factors = radix**places, (radix,) * places
        rack = Rack(ALPHA, DELTA, RATE, lanes, standing=places * (radix - 1))
        out = executed(rack, all_reduce(factors, rotations(places)), size, places)
        assert out.pointed == 0
        assert float(cost(SipacAllReduce(radix=float(radix)), size, lanes).time_s) == pytest.approx(
            out.seconds, rel=1e-6
        )
        half = cost(SipacAllGather(radix=float(radix)), size, lanes)
        assert 2 * float(half.time_s) == pytest.approx(out.seconds, rel=1e-6)

    @pytest.mark.parametrize("size", [2, 3, 6, 12, 16])
    def test_a_wide_radix_is_the_static_all_to_all(self, size):
        rack = Rack(ALPHA, DELTA, RATE, 16, standing=size - 1)
        out = executed(rack, all_reduce((size,)), size)
        assert float(cost(SipacAllReduce(radix=64.0), size, 16).time_s) == pytest.approx(out.seconds, rel=1e-6)
        exchange = cost(CliqueAllToAll(), size, 16)
        assert float(exchange.time_s) == pytest.approx(out.seconds / 2, rel=1e-6)

    @pytest.mark.parametrize("size", [2, 3, 6, 12, 16])
    def test_static_ring(self, size):
        out = executed(Rack(ALPHA, DELTA, RATE, 16, standing=1), ring_all_reduce(size), size)
        assert float(cost(RingAllReduce(), size, 16).time_s) == pytest.approx(out.seconds, rel=1e-6)

    def test_a_clique_that_has_too_few_lanes_waits_for_circuits(self):
        enough, scarce = (float(cost(CliqueAllToAll(), 33, lanes).time_s) for lanes in (32, 16))
        assert scarce == pytest.approx(enough + 2 * DELTA + ALPHA)


class TestServers:
    """Fibers between servers: two levels in the model, one flat schedule with the inside digits summed first."""

    @pytest.mark.parametrize(("inside", "outside"), [((4, 2), (4, 2)), ((4,), (4, 4)), ((4, 4), (2,)), ((4, 4), (4,))])
    @pytest.mark.parametrize("fibers", [1.0, 4.0, 64.0])
    def test_two_levels_against_the_flat_schedule(self, inside, outside, fibers):
        near, far = int(np.prod(inside)), int(np.prod(outside))
        rack = Rack(ALPHA, DELTA, RATE, always=True, server=near, fibers=fibers, fiber_bytes_per_s=40e9)
        order = [*reversed(range(len(inside))), *reversed(range(len(inside), len(inside) + len(outside)))]
        out = executed(rack, all_reduce((*inside, *outside), [order]), near * far)
        fibered = dict(server_endpoints=float(near), server_fibers=fibers, fiber_bytes_per_s=40e9)
        fabric = OpticalCircuit(float(near * far), RATE, ALPHA, DELTA, **fibered)
        radix = RadixAllReduce(radix=4.0), *[RadixAllGather(radix=4.0)] * 2, PairwiseAllToAll(), Send()
        level = NetworkLevel(fabric, Collectives(*radix))
        stages = [Stage(level, Group(float(near))), Stage(level, Group(float(far), float(near)))]
        closed = hierarchical("all_reduce", jnp.asarray(NBYTES), stages)
        assert float(closed.time_s) == pytest.approx(out.seconds, rel=1e-6)

    def test_one_level_is_never_faster_than_two(self):
        fabric = OpticalCircuit(
            64.0, RATE, ALPHA, DELTA, server_endpoints=8.0, server_fibers=2.0, fiber_bytes_per_s=40e9
        )
        beyond, inside = fabric.link(Group(16.0)), fabric.link(Group(8.0))
        assert float(beyond.beta_s_per_byte) == pytest.approx(8 / (2 * 40e9))
        assert float(inside.beta_s_per_byte) == pytest.approx(1 / RATE)


class TestTenant:
    """The best of what a tenant may set up."""

    best = Fastest({
        "ring": RingAllReduce(), "clique": SipacAllReduce(radix=1024.0), "sipac_4": SipacAllReduce(radix=4.0),
        "lumorph_2": RadixAllReduce(radix=2.0), "lumorph_4": RadixAllReduce(radix=4.0),
    })  # fmt: skip

    def winner(self, size, nbytes, lanes=16.0) -> str:
        link = Link(ALPHA, 1 / RATE, 0.0, DELTA, lanes=lanes)
        index = self.best.winner(jnp.asarray(nbytes), Group(float(size)), link)
        return self.best.names()[int(index)]

    def test_small_tenants_keep_what_stands(self):
        assert self.winner(8, 1e3) == "clique"
        assert self.winner(64, 1e3) == "sipac_4"

    def test_large_messages_give_lanes_back_to_the_ring_or_to_moving_circuits(self):
        assert self.winner(6, 1e9) == "ring"
        assert self.winner(256, 1e9) == "lumorph_2"

    def test_factorisations(self):
        assert set(factorisations(12)) == {(12,), (6, 2), (4, 3), (3, 2, 2)}
        assert list(factorisations(7)) == [(7,)]


@pytest.mark.parametrize(
    ("radix", "size", "largest_us"),
    [(2, 64, 6.7), (2, 128, 12.0), (2, 256, 21.6), (4, 64, 14.0), (4, 128, 21.5), (4, 256, 43.9)],
)
def test_break_even_reconfiguration_time_by_its_slope(radix, size, largest_us):
    """One Newton step in delta, which enters linearly; small messages, against the ring."""

    def behind(delta):
        link = Link(ALPHA, 1 / RATE, 0.0, delta)
        group, nbytes = Group(float(size)), jnp.asarray(1.0)
        ring = RingAllReduce().cost(nbytes, group, link).time_s
        return RadixAllReduce(radix=float(radix)).cost(nbytes, group, link).time_s - ring

    value, slope = jax.value_and_grad(behind)(DELTA)
    assert float(DELTA - value / slope) * 1e6 == pytest.approx(largest_us, abs=0.051)
