"""Load of experts: the formula against random placements, measured counts by hand, capacities that drop and pad."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from codesign import scenario_from_config, solve, study_from_config
from codesign.config import check_plan
from codesign.core.errors import ConfigError
from codesign.model.workloads import (
    ExpertLoad,
    GroupedQueryAttention,
    Layout,
    MixtureOfExperts,
    Plan,
    Training,
    Transformer,
)
from codesign.model.workloads.feed_forward import _most_touched, busiest_ratio, power_law


def at_random(shares: tuple[float, ...], ranks: int, draws: int = 3000) -> tuple[float, float]:
    """(mean, standard error) of the busiest rank over random placements."""
    rng, loads = np.random.default_rng(len(shares) + ranks), np.array(shares)
    result = [rng.permutation(loads).reshape(ranks, -1).sum(axis=1).max() * ranks for _ in range(draws)]
    return float(np.mean(result)), float(np.std(result) / np.sqrt(draws))


CASES = [(experts, exponent) for experts in (8, 64, 160, 256) for exponent in (0.1, 0.4, 0.8, 1.2)]


@pytest.mark.slow
@pytest.mark.parametrize(("experts", "exponent"), CASES)
def test_the_busiest_rank_is_that_of_random_placements(experts: int, exponent: float):
    shares = power_law(exponent, experts)
    for ranks in (2, 4, 8, 16, 32, 64):
        if experts % ranks == 0:
            mean, error = at_random(shares, ranks)
            assert busiest_ratio(shares, ranks) == pytest.approx(mean, rel=0.012, abs=4 * error)


def test_any_shares_not_only_a_power_law():
    rng = np.random.default_rng(1)
    for shape in (0.3, 2.0):
        loads = rng.gamma(shape, size=64)
        shares = tuple((loads / loads.sum()).tolist())
        for ranks in (4, 16):
            mean, error = at_random(shares, ranks)
            assert busiest_ratio(shares, ranks) == pytest.approx(mean, rel=0.012, abs=4 * error)


def test_limits():
    """One rank has all, as many ranks as experts wait for the first, even loads for nobody."""
    shares = power_law(0.7, 32)
    assert busiest_ratio(shares, 1) == pytest.approx(1.0)
    assert busiest_ratio(shares, 32) == pytest.approx(shares[0] * 32)
    assert busiest_ratio(power_law(0.0, 32), 8) == pytest.approx(1.0)
    ratios = [busiest_ratio(shares, ranks) for ranks in (1, 2, 4, 8, 16, 32)]
    assert ratios == sorted(ratios)
    four = (0.5, 0.3, 0.1, 0.1)  # three pairings: 0.8 / 0.2, 0.6 / 0.4, 0.6 / 0.4
    assert busiest_ratio(four, 2) == pytest.approx(2 * (0.8 + 0.6 + 0.6) / 3, rel=0.01)


def test_ratio_between_divisors_is_between():
    load = ExpertLoad(64, 0.5)
    result = [float(load.ratio(jnp.asarray(ranks))) for ranks in (8.0, 11.0, 16.0)]
    assert result[0] == pytest.approx(busiest_ratio(power_law(0.5, 64), 8))
    assert result[0] < result[1] < result[2]
    ranks = jnp.array([1.0, 8.0, 11.0, 64.0, 128.0])
    traced = jax.jit(jax.vmap(load.ratio))(ranks)
    np.testing.assert_allclose(traced, [load.ratio(each) for each in ranks], rtol=1e-12)


def test_measured_loads_lie_in_order():
    load = ExpertLoad(4, loads=((0.4, 0.3, 0.2, 0.1), (0.25, 0.25, 0.25, 0.25)))
    assert float(load.ratio(jnp.asarray(2.0))) == pytest.approx((1.4 + 1.0) / 2)
    assert float(load.ratio(jnp.asarray(4.0))) == pytest.approx((1.6 + 1.0) / 2)


def test_capacity_drops_or_pads():
    """Of shares 0.4, 0.3, 0.2, 0.1 a factor of 1.2 leaves 0.3, 0.3, 0.2, 0.1; padded, everybody works on 0.3."""
    shares = ((0.4, 0.3, 0.2, 0.1),)
    load = ExpertLoad(4, loads=shares, capacity_factor=1.2)
    assert load.dropped_ratio() == pytest.approx(0.1)
    assert float(load.ratio(jnp.asarray(4.0))) == pytest.approx(1.2)
    assert float(load.ratio(jnp.asarray(1.0))) == pytest.approx(0.9)
    padded = ExpertLoad(4, loads=shares, capacity_factor=1.2, padded=True)
    assert [float(padded.ratio(jnp.asarray(each))) for each in (1.0, 2.0, 4.0)] == pytest.approx([1.2] * 3)
    assert padded.dropped_ratio() == pytest.approx(0.1)


def test_dropping_against_tokens_drawn_one_by_one():
    rng, tokens, shares = np.random.default_rng(3), 200_000, power_law(0.6, 16)
    counts = np.bincount(rng.choice(16, size=tokens, p=shares), minlength=16)
    most = 1.25 * tokens / 16
    dropped = np.maximum(counts - most, 0).sum() / tokens
    assert ExpertLoad(16, 0.6, capacity_factor=1.25).dropped_ratio() == pytest.approx(dropped, rel=0.02)


def block(load: ExpertLoad | None, ep: float):
    network = MixtureOfExperts(16.0, 2.0, 512.0, load=load)
    model = Transformer("experts", 256.0, 4.0, GroupedQueryAttention(8.0, 8.0, 32.0), network, 1000.0)
    shard = Training(model, 1024.0, 64.0).shard(Layout(Plan(ep=ep), 16.0))
    return {op.name: op for op in model.layer_ops(shard)}, {comm.name: comm for comm in model.layer_comms(shard)}


@pytest.mark.parametrize("ep", [1.0, 4.0, 16.0])
def test_work_bytes_and_memory_are_those_of_the_busiest_rank(ep: float):
    load = ExpertLoad(16, 0.5)
    (ops, comms), (even, even_comms) = block(load, ep), block(None, ep)
    ratio = busiest_ratio(power_law(0.5, 16), int(ep))
    for name in ("moe_up", "moe_down"):
        for part in ("stored_bytes", "gradient_bytes"):
            np.testing.assert_allclose(getattr(ops[name], part), ratio * getattr(even[name], part), rtol=1e-9)
        np.testing.assert_allclose(ops[name].forward.flops, ratio * even[name].forward.flops, rtol=1e-9)
    np.testing.assert_allclose(comms["moe_dispatch"].nbytes, ratio * even_comms["moe_dispatch"].nbytes, rtol=1e-9)


def test_a_configuration_says_it(tmp_path):
    rows = [f"{layer},{expert},{100 + 10 * expert * layer}" for layer in range(2) for expert in range(8)]
    (tmp_path / "loads.csv").write_text("layer,expert,tokens\n" + "\n".join(rows), encoding="utf-8")
    base = ("workload=training", "space=fixed", "model=mixtral_8x7b", "plan.virtual_stages=1", "plan.pp=1")
    scenario = scenario_from_config(*base, f"workload.expert_load.path={tmp_path / 'loads.csv'}")
    layer = np.array([100 + 10 * expert for expert in range(8)])
    measured = scenario.workload.model.feed_forward.load.ratio(jnp.asarray(8.0))
    assert float(measured) == pytest.approx((1 + 8 * layer.max() / layer.sum()) / 2)
    scenario = scenario_from_config(
        *base, "workload.expert_load.exponent=0.5", "workload.expert_load.capacity_factor=2"
    )
    assert scenario.workload.model.feed_forward.load == ExpertLoad(8, 0.5, capacity_factor=2.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("workload.expert_load.exponent=9",), "exponent = 9 is outside"),
        (("workload.expert_load.capacity_factor=0.5",), "even experts drop tokens"),
        (("workload.expert_load.padded=true",), "--moe-pad-expert-input-to-capacity needs"),
        (("workload.expert_load.exponents=1",), "did you mean 'exponent'"),
        (("workload.expert_load.path=nowhere.csv",), "nowhere.csv"),
        (("model=llama31_8b", "workload.expert_load.exponent=1"), "has no experts"),
    ],
)
def test_wrong_loads_are_one_line(words: tuple[str, ...], told: str):
    with pytest.raises(ConfigError, match=r"expert_load|feed_forward\.load") as caught:
        scenario_from_config(
            "workload=training",
            "space=fixed",
            *(() if words[0].startswith("model") else ("model=mixtral_8x7b",)),
            *words,
        )
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


SEARCHED = (
    "workload=training", "model=mixtral_8x7b", "cluster.device_count=16", "workload.global_batch=64",
    "workload.expert_load.exponent=0.6", "plan.virtual_stages=1", "plan.tp=2", "plan.pp=1", "plan.ep=8", "plan.zero=1",
    "space=fixed", "+space.plan.capacity_factor=[1,1.25,1.5,2,7]",
)  # fmt: skip


def dropped_by_hand(factor: float) -> float:
    shares = [(expert + 1) ** -0.6 for expert in range(8)]
    return sum(max(share / sum(shares) - factor / 8, 0.0) for share in shares)


@pytest.mark.parametrize("factor", [1.0, 1.25, 2.0, 7.0])
def test_a_capacity_of_the_plan_drops_and_pads(factor: float):
    load = ExpertLoad(8, 0.6)
    dropped = float(load.dropped(jnp.asarray(factor)))
    assert dropped == pytest.approx(dropped_by_hand(factor), abs=1e-12)
    assert dropped == pytest.approx(ExpertLoad(8, 0.6, capacity_factor=factor).dropped_ratio(), abs=1e-12)
    assert float(load.padded_share(jnp.asarray(factor))) == pytest.approx(1 - (1 - dropped) / factor)
    slope = jax.grad(lambda c: load.dropped(c))(jnp.asarray(1.3))
    step = (load.dropped(jnp.asarray(1.3 + 1e-5)) - load.dropped(jnp.asarray(1.3 - 1e-5))) / 2e-5
    assert float(slope) == pytest.approx(float(step), rel=1e-6)
    both = jax.jit(jax.vmap(load.dropped))(jnp.asarray([factor, 0.0]))
    np.testing.assert_allclose(both, [dropped, 0.0], atol=1e-15)
    assert float(load.padded_share(jnp.asarray(0.0))) == 0.0
    own = ExpertLoad(8, 0.6, capacity_factor=1.5, padded=True)
    assert float(own.padded_share(jnp.asarray(0.0))) == pytest.approx(1 - (1 - own.dropped_ratio()) / 1.5)


def test_padded_experts_of_a_plan_work_on_their_capacity():
    network = MixtureOfExperts(8.0, 2.0, 512.0, load=ExpertLoad(8, 0.6))
    model = Transformer("experts", 256.0, 4.0, GroupedQueryAttention(8.0, 8.0, 32.0), network, 1000.0)
    even = dataclasses.replace(model, feed_forward=dataclasses.replace(network, load=None))
    ops = [
        {op.name: op for op in one.layer_ops(Training(one, 1024.0, 64.0).shard(Layout(plan, 8.0)))}
        for one, plan in ((model, Plan(ep=4.0, capacity_factor=1.5)), (even, Plan(ep=4.0)))
    ]
    for name in ("moe_up", "moe_down"):
        np.testing.assert_allclose(ops[0][name].forward.flops, 1.5 * ops[1][name].forward.flops, rtol=1e-12)


@pytest.mark.slow
def test_a_search_keeps_a_limit_on_dropped_tokens():
    """The fastest capacity is the least one that keeps the limit; without a limit it is 1."""
    for limit, least in ((None, 1.0), (0.15, 1.25), (0.08, 1.5), (0.001, 7.0)):
        words = (*SEARCHED, f"+objective.limits.dropped_token_ratio={limit}") if limit else SEARCHED
        answer = solve(study_from_config(*words, "search=certified"))
        assert answer.certified
        assert answer.best["var.capacity_factor"] == least, limit
        assert answer.best["dropped_token_ratio"] == pytest.approx(dropped_by_hand(least), abs=1e-12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model=mixtral_8x7b plan.capacity_factor=0.5", "neither 0 nor at least 1: below 1 even experts drop"),
        ("model=llama31_8b plan.capacity_factor=1.25", "this model has no experts"),
        ("model=mixtral_8x7b workload=serving plan.capacity_factor=1.25", "is of training: engines drop no tokens"),
    ],
)
def test_a_capacity_that_is_none_is_one_line(words: str, said: str):
    base = ["workload=training", "cluster.device_count=16", "workload.global_batch=64", "plan.virtual_stages=1"]
    base = [] if "workload=" in words else base
    with pytest.raises(ConfigError, match=said):
        check_plan(scenario_from_config(*base, "plan.tp=2", "plan.pp=1", *words.split()))


@pytest.mark.parametrize(
    ("experts", "top_k", "ranks", "tokens"),
    [
        (256, 8, 1, 4),
        (256, 8, 2, 1),
        (256, 8, 8, 1),
        (128, 4, 4, 8),
        (256, 8, 8, 64),
        (128, 8, 4, 16),
        (256, 8, 32, 32),
    ],
)
def test_the_busiest_rank_reads_as_many_experts_as_random_tokens_reach(experts, top_k, ranks, tokens):
    rng = np.random.default_rng(experts + ranks + tokens)
    draws = rng.random((1500, tokens, experts)).argpartition(top_k, axis=-1)[..., :top_k]  # of each token its experts
    reached = np.zeros((len(draws), experts), bool)
    np.put_along_axis(reached, draws.reshape(len(draws), -1), True, axis=1)
    drawn = reached.reshape(len(draws), ranks, -1).sum(-1).max(-1).mean()
    numbers = (np.asarray(float(each)) for each in (experts / ranks, experts, tokens * top_k, ranks))
    assert float(_most_touched(*numbers)) == pytest.approx(drawn, rel=0.07)
    if ranks > 1:
        mean = experts / ranks * (1 - (1 - 1 / experts) ** (tokens * top_k))
        assert drawn > 1.05 * mean  # the mean alone would not do


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16, 32, 64, 128, 256])
def test_the_largest_of_normal_numbers_is_that_of_a_quadrature(ranks: int):
    """Half of many experts have a copy: (most - mean) / deviation is the expected largest of so many normal numbers."""
    x = np.linspace(-9, 9, 20_001)
    below = scipy.stats.norm.cdf(x)
    expected = np.trapezoid(x * ranks * scipy.stats.norm.pdf(x) * below ** (ranks - 1), x)
    local = 1e8
    copies = np.log(0.5) / np.log1p(-1 / (local * ranks))
    most = float(_most_touched(*map(np.asarray, (local, local * ranks, copies, float(ranks)))))
    assert (most - local / 2) / np.sqrt(local / 4) == pytest.approx(expected, rel=0.016)
