"""Trees, chains, direct exchanges, choices and quantised wrappers against executed schedules and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tree_schedules as executed
from builders import rings

from _lib.quantised_sums import in_network_sum, normalised_error, quantised, ring_sum
from codesign.core.errors import ConfigError
from codesign.model.hardware import Link
from codesign.model.networks.collectives import (
    BinomialTree,
    ChainAllReduce,
    DirectAllGather,
    DirectAllToAll,
    DoubleBinaryTreeAllReduce,
    Fastest,
    NetworkLevel,
    OneShotAllReduce,
    PairwiseAllToAll,
    PipelinedChain,
    Quantised,
    RecursiveDoublingAllReduce,
    RingAllReduce,
    ScatterAllGather,
    TreeAllReduce,
    TwoShotAllReduce,
    hierarchical,
    stages,
)
from codesign.model.networks.collectives.quantised import log_perplexity_penalty, requantisation
from codesign.model.networks.fabrics import Group, SwitchDomain

ALPHA, BETA, JOULES = 3e-6, 1 / 50e9, 2e-11
LINK = Link(ALPHA, BETA, JOULES)
SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17]


def cost(algorithm, elements, size, link=LINK):
    return algorithm.cost(jnp.asarray(8.0 * elements), Group(float(size)), link)


def assert_same(algorithm, elements, size, ports):
    """Time of the rounds, and the energy of an average member."""
    closed = cost(algorithm, elements, size)
    assert float(closed.time_s) == pytest.approx(ports.seconds(ALPHA, 8 * BETA), rel=1e-6)
    assert float(closed.energy_j) == pytest.approx(ports.sent / size * 8 * JOULES, rel=1e-6)


@pytest.mark.parametrize("size", SIZES)
class TestExecuted:
    def test_binomial_tree(self, size):
        ports, result, expected = executed.binomial_broadcast(size, 60)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        assert_same(BinomialTree(), 60, size, ports)
        ports, result, expected = executed.binomial_reduce(size, 60)
        np.testing.assert_array_equal(result, expected)
        assert_same(BinomialTree(), 60, size, ports)

    def test_tree_all_reduce_is_a_reduce_and_a_broadcast(self, size):
        up, down = executed.binomial_reduce(size, 60)[0], executed.binomial_broadcast(size, 60)[0]
        together = executed.Ports(up.rounds + down.rounds, up.elements + down.elements, up.sent + down.sent)
        assert_same(TreeAllReduce(), 60, size, together)

    @pytest.mark.parametrize("chunks", [1, 3, 8])
    def test_chain_at_the_size_for_which_a_chunk_count_is_best(self, size, chunks):
        elements = chunks * 8 if size == 2 else chunks**2 * ALPHA / (size - 2) / (8 * BETA)
        chunks = 1 if size == 2 else chunks
        for add in (False, True):
            ports, result, expected = executed.chain(size, 24 * chunks, chunks, add=add)
            np.testing.assert_array_equal(result, expected if add else np.tile(expected, (size, 1)))
            scale = elements / (24 * chunks)
            scaled = executed.Ports(ports.rounds, ports.elements * scale, ports.sent * scale)
            assert_same(PipelinedChain(), elements, size, scaled)
        assert float(cost(ChainAllReduce(), elements, size).time_s) == pytest.approx(
            2 * scaled.seconds(ALPHA, 8 * BETA), rel=1e-6
        )

    def test_scatter_and_all_gather(self, size):
        ports, result, expected = executed.scatter_all_gather(size, 10 * size)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        closed = float(cost(ScatterAllGather(), 10 * size, size).time_s)
        assert closed == pytest.approx(ports.seconds(ALPHA, 8 * BETA), rel=1e-6)

    def test_recursive_doubling(self, size):
        ports, result, expected = executed.recursive_doubling(size, 60)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        assert_same(RecursiveDoublingAllReduce(), 60, size, ports)

    @pytest.mark.parametrize("chunks", [1, 2, 7])
    def test_double_tree_at_the_size_for_which_a_chunk_count_is_best(self, size, chunks):
        ports, result, expected = executed.double_tree_all_reduce(size, 16 * chunks, chunks)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        height = int(np.ceil(np.log2(size)))
        assert ports.rounds == 2 * (height - 1 + chunks)
        if size < 4:  # no member has two children
            return
        elements = chunks**2 * ALPHA / (height - 1) / (8 * BETA)
        scale = elements / (16 * chunks)
        closed = float(cost(DoubleBinaryTreeAllReduce(), elements, size).time_s)
        in_lockstep = ports.rounds * (ALPHA + ports.longest * scale * 8 * BETA)
        assert closed == pytest.approx(in_lockstep, rel=1e-6)
        lacking = in_lockstep - executed.Ports(ports.rounds, ports.elements * scale).seconds(ALPHA, 8 * BETA)
        assert 0 < lacking <= (2 + 1e-6) * ports.longest * scale * 8 * BETA  # first and last rounds are half empty

    def test_one_shot_and_two_shot(self, size):
        ports, result, expected = executed.one_shot(size, 12)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        assert_same(OneShotAllReduce(), 12, size, ports)
        half, ports, result, expected = executed.two_shot(size, 12 * size)
        np.testing.assert_array_equal(result, np.tile(expected, (size, 1)))
        assert_same(TwoShotAllReduce(), 12 * size, size, ports)
        assert_same(DirectAllGather(), 12 * size, size, half)

    def test_all_to_all_of_unequal_blocks_waits_for_the_busiest(self, size):
        ports, elements, imbalance = executed.uneven_all_to_all(size)
        assert_same(DirectAllToAll(imbalance_ratio=imbalance), elements, size, ports)

    def test_a_quantised_ring_sends_and_codes_what_its_messages_say(self, size):
        nbytes = 2 * 64 * size
        sent, coded = executed.quantised_ring(size, nbytes // 2, 8, 64)
        ring = Quantised(RingAllReduce(), codec_s_per_byte=1e-9, each_round=1.0)
        assert float(ring.coded_bytes(jnp.asarray(float(nbytes)), Group(float(size)))) == pytest.approx(coded)
        result = ring.cost(jnp.asarray(float(nbytes)), Group(float(size)), LINK)
        assert float(result.energy_j) == pytest.approx(sent * JOULES)
        assert float(result.time_s) == pytest.approx(2 * (size - 1) * ALPHA + sent * BETA + coded * 1e-9)


class TestPipelines:
    @pytest.mark.parametrize("algorithm", [PipelinedChain(), DoubleBinaryTreeAllReduce()])
    def test_slope_is_steady_where_chunks_begin(self, algorithm):
        size = 8.0
        ahead = 6 if isinstance(algorithm, PipelinedChain) else 2
        nbytes = ALPHA / BETA / ahead  # one chunk is exactly the best

        def seconds(alpha):
            return algorithm.cost(jnp.asarray(nbytes), Group(size), Link(alpha, BETA)).time_s

        low, high = (jax.grad(seconds)(ALPHA * factor) for factor in (1 - 1e-7, 1 + 1e-7))
        assert float(low) == pytest.approx(float(high), rel=1e-6)

    def test_two_members_exchange_the_whole_buffer_up_and_down(self):
        closed = float(DoubleBinaryTreeAllReduce().cost(jnp.asarray(1e6), Group(2.0), LINK).time_s)
        assert closed == pytest.approx(2 * (ALPHA + 1e6 * BETA))


class TestLevels:
    @pytest.mark.parametrize("operation", ["broadcast", "reduce"])
    def test_the_whole_buffer_crosses_every_level(self, operation):
        levels = [
            NetworkLevel(SwitchDomain(4.0, 400e9, 1e-6), rings()),
            NetworkLevel(SwitchDomain(64.0, 50e9, 5e-6), rings()),
        ]
        nbytes = 1e3  # one chunk on both levels: (n - 2 + 1) steps
        result = hierarchical(operation, jnp.asarray(nbytes), stages(levels, Group(12.0)))
        by_hand = 3 * (1e-6 + nbytes / 400e9) + 2 * (5e-6 + nbytes / 50e9)
        assert float(result.time_s) == pytest.approx(by_hand)


class TestFastest:
    options = Fastest({"ring": RingAllReduce(), "doubling": RecursiveDoublingAllReduce(), "shot": OneShotAllReduce()})

    @pytest.mark.parametrize(("nbytes", "size", "name"), [(64, 4, "shot"), (1e7, 4, "ring"), (3e4, 64, "doubling")])
    def test_takes_time_and_energy_of_the_winner(self, nbytes, size, name):
        group = Group(float(size))
        index = int(self.options.winner(jnp.asarray(float(nbytes)), group, LINK))
        assert self.options.names()[index] == name
        best = self.options.options[name].cost(jnp.asarray(float(nbytes)), group, LINK)
        result = self.options.cost(jnp.asarray(float(nbytes)), group, LINK)
        assert float(result.time_s) == float(best.time_s)
        assert float(result.energy_j) == float(best.energy_j)
        others = [float(o.cost(jnp.asarray(float(nbytes)), group, LINK).time_s) for o in self.options.options.values()]
        assert float(result.time_s) == min(others)

    def test_is_vmapped_over_sizes_and_members(self):
        nbytes, size = jnp.logspace(1, 9, 12), jnp.asarray([2.0, 8.0, 100.0] * 4)
        together = jax.vmap(lambda b, n: self.options.cost(b, Group(n), LINK).time_s)(nbytes, size)
        each = [float(self.options.cost(b, Group(n), LINK).time_s) for b, n in zip(nbytes, size, strict=True)]
        np.testing.assert_allclose(together, each, rtol=1e-12)

    def test_says_that_it_is_not_log_convex(self):
        assert not Fastest.log_convex
        assert RingAllReduce.log_convex

    def test_needs_something_to_choose_from(self):
        with pytest.raises(ConfigError, match="at least one"):
            Fastest({})


class TestQuantised:
    def test_published_ratio(self):
        assert 1 / float(Quantised(RingAllReduce()).wire_ratio()) == pytest.approx(64 / 33)

    @pytest.mark.parametrize("element", [1.0, 0.5, 0.0])
    def test_numbers_of_few_bits_or_that_may_not_be_rounded_are_left_alone(self, element):
        """8-bit numbers on 8 bits, half bytes, and what a model that is trained sums (0)."""
        rounding, group = Quantised(RingAllReduce(), codec_s=1e-3), Group(8.0, element_bytes=element)
        result = rounding.cost(jnp.asarray(1000.0), group, LINK)
        assert float(result.time_s) == float(RingAllReduce().cost(jnp.asarray(1000.0), group, LINK).time_s)
        assert float(rounding.log_perplexity_penalty(group)) == 0.0

    def test_what_is_not_rounded_goes_by_the_plain_algorithm(self):
        both = Quantised(RingAllReduce(), plain=OneShotAllReduce())
        for element, used in ((1.0, OneShotAllReduce()), (4.0, Quantised(RingAllReduce()))):
            group = Group(8.0, element_bytes=element)
            result, wanted = (a.cost(jnp.asarray(1e6), group, LINK) for a in (both, used))
            assert float(result.time_s) == float(wanted.time_s)

    def test_larger_elements_shrink_by_more(self):
        """fp32 to 8 bits and 1/4 byte of scale a number: 33/128."""
        ratio = Quantised(RingAllReduce()).wire_ratio(Group(8.0, element_bytes=4.0))
        assert float(ratio) == pytest.approx(33 / 128)

    def test_bits_that_a_block_really_takes(self):
        wrapper = Quantised(PairwiseAllToAll(), bits=4.0, block_elements=32.0)
        packed = 32 * 4 / 8 + 2  # bytes of a block and its scale factor
        assert float(wrapper.wire_ratio()) == pytest.approx(packed / 64)

    def test_rounding_error_of_a_block_is_half_a_step_at_most(self):
        values = jax.random.normal(jax.random.key(0), (5, 100))
        error = jnp.abs(quantised(values, 8, 32) - values)
        for low in range(0, 100, 32):
            step = jnp.max(jnp.abs(values[:, low : low + 32]), axis=-1, keepdims=True) / 127
            assert (error[:, low : low + 32] <= step / 2 * (1 + 1e-9)).all()

    def test_one_scale_per_block_keeps_an_outlier_to_itself(self):
        values = jnp.ones((1, 128)).at[0, 0].set(1e4)
        assert float(quantised(values, 8, 64)[0, 64]) == pytest.approx(1.0)
        assert float(quantised(values, 8, 128)[0, 64]) == 0.0

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [2, 8])
    def test_a_ring_errs_more_by_the_predicted_factor(self, size):
        """Independent partial sums, as the derivation assumes."""
        parts = jax.random.normal(jax.random.key(size), (size, 64, 16 * 64))
        ring, network = (normalised_error(f(parts, 8, 16), parts) for f in (ring_sum, in_network_sum))
        assert float(ring / network) == pytest.approx(float(requantisation(jnp.asarray(float(size)))), rel=0.06)

    @pytest.mark.slow
    def test_sums_are_exact_with_many_bits(self):
        parts = jax.random.normal(jax.random.key(1), (6, 3, 100))
        for function in (ring_sum, in_network_sum):
            np.testing.assert_allclose(function(parts, 40, 32), parts.sum(axis=0), atol=1e-9)

    def test_penalty_grows_with_every_loss_of_precision(self):
        slope = jax.grad(lambda x: log_perplexity_penalty(x[0], x[1], x[2]))(jnp.asarray([6.0, 64.0, 1.0]))
        assert slope[0] < 0
        assert (slope[1:] > 0).all()
        once, ring = Quantised(RingAllReduce()), Quantised(RingAllReduce(), each_round=1.0)
        assert float(once.log_perplexity_penalty(Group(1.0))) == 0.0
        assert once.log_perplexity_penalty(Group(8.0)) < ring.log_perplexity_penalty(Group(8.0))
