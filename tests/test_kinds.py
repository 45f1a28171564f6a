"""Lengths of requests as they are: groups, what closed forms make of them, traces of two kinds of requests."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.commands.simulate_forms import demand_of, with_contexts
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.jaxprs.evaluator import interpreted
from codesign.model.workloads.continuous import AbstractContinuousServing
from codesign.model.workloads.kinds import COUNT, TAIL, checked, drawn_from, kinds_of, table_of
from codesign.model.workloads.latency import beside_by_kinds, binned, carried_by_kinds
from codesign.model.workloads.open_loop import Demand, RooflineTimes, open_loop
from codesign.model.workloads.pools_apart import pools_apart
from codesign.model.workloads.steady_state import chunks, chunks_lost, steady_state, whole_chunks
from codesign.search.results import numbers_of
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals, lengths, simulate_open

STEP = {"fixed_s": 2e-3, "weights_s": 5e-3, "token_s": 3e-5, "read_s": 1e-8, "pair_s": 1e-9}
KINDS = ((0.5, 0.8, 0.02), (3.0, 0.2, 0.3))  # 500 and 3,000 tokens in the mean of 1,000
ASK = {
    "rate": 4.0, "input_tokens": 1000.0, "output_tokens": 200.0, "chunk": 1024.0, "input_cv": 1.0, "output_cv": 0.5,
    "arrival_cv": 1.0, "most": 256.0,
}  # fmt: skip


def asked(**changed):
    told = {name: jnp.asarray(value) for name, value in (ASK | changed).items()}
    return Demand(prompts=table_of(KINDS), answers=table_of(((0.5, 0.5, 0.1), (1.5, 0.5, 0.1))), **told)


def step(**changed):
    return RooflineTimes(**{name: jnp.asarray(value) for name, value in (STEP | changed).items()})


def two_kinds(count: int, seed: int, rate: float) -> Requests:
    """Chats, and documents that a fifth of the requests bring."""
    rng = np.random.default_rng(seed)
    long = rng.random(count) < 0.2
    prompts = np.where(long, lengths(rng, 4000.0, 0.2, count), lengths(rng, 250.0, 0.3, count))
    return Requests(prompts, lengths(rng, 150.0, 0.4, count, least=2), arrivals(rng, rate, 1.0, count))


class TestGroups:
    def test_come_to_the_mean_and_variance_of_what_they_stand_for(self):
        drawn = two_kinds(5000, 3, 1.0).prompts
        ratio, share, spread = np.array(kinds_of(drawn)).T
        assert share.sum() == pytest.approx(1)
        assert (share * ratio).sum() == pytest.approx(1)
        square = (share * (ratio**2 + spread**2)).sum()
        assert square - 1 == pytest.approx((drawn.std() / drawn.mean()) ** 2)
        assert (share * spread**2).sum() < 0.01 * (square - 1)
        assert (np.diff(ratio) > 0).all()
        assert len(ratio) == COUNT
        assert checked([list(row) for row in kinds_of(drawn)], "input_lengths") == kinds_of(drawn)

    def test_two_kinds_share_none(self):
        drawn = two_kinds(5000, 3, 1.0).prompts
        for ratio, _, spread in kinds_of(drawn):
            assert spread < 0.2 * ratio, ratio

    def test_few_lengths_are_themselves(self):
        lengths_ = np.repeat([100, 400], [3, 1])
        assert kinds_of(lengths_) == ((100 / 175, 0.75, 0.0), (400 / 175, 0.25, 0.0))
        assert kinds_of(np.array([7, 7])) == ((1.0, 1.0, 0.0),)
        assert all(round(share * 1000) in np.cumsum([round(1000 * row[1]) for row in kinds_of(np.arange(1, 1001))])
                   for share in TAIL)  # fmt: skip

    def test_are_drawn_again(self):
        drawn = drawn_from(KINDS, np.random.default_rng(1), 1000.0, 20_000, least=2)
        assert drawn.mean() == pytest.approx(1000, rel=0.02)
        assert (drawn < 1500).mean() == pytest.approx(0.8, abs=0.01)
        assert 460 <= drawn.min() < drawn.max() < 3600

    @pytest.mark.parametrize(
        "wrong",
        [
            [[1.0, 0.5, 0.0]],
            [[2.0, 1.0, 0.0]],
            [[0.0, 0.5, 0], [2.0, 0.5, 0]],
            [[1.5, 0.5, 0], [0.5, 0.5, 0]],
            [[1, 1]],
            3,
        ],
    )
    def test_what_are_none_is_refused(self, wrong):
        with pytest.raises(ConfigError, match="input_lengths"):
            checked(wrong, "input_lengths")


class TestSteadyState:
    def test_chunks_by_hand(self):
        mean, cv, chunk = jnp.asarray(1000.0), jnp.asarray(1.0), jnp.asarray(1024.0)
        assert float(chunks(mean, cv, chunk, KINDS)) == pytest.approx(0.8 * 1 + 0.2 * 3)
        assert float(whole_chunks(mean, cv, chunk, KINDS)) == pytest.approx(0.2 * 2)
        assert float(chunks_lost(mean, cv, chunk, KINDS)) == pytest.approx(1.4 - 1000 / 1024)
        state = steady_state(*map(jnp.asarray, (32.0, 200.0, 1000.0, 1.0, 1024.0)), kinds=KINDS)
        assert float(state.own_steps) == pytest.approx(1.4)


class TestCrowds:
    def test_bins_keep_the_mean(self):
        rng = np.random.default_rng(0)
        values, weight = rng.random(50), rng.random(50)
        result, likely = binned(jnp.asarray(values), jnp.asarray(weight / weight.sum()))
        assert float((result * likely).sum()) == pytest.approx((values * weight).sum() / weight.sum())
        assert float(likely.sum()) == pytest.approx(1)

    def test_steps_carry_a_short_prompt_or_a_chunk(self):
        """Alone, prompts of 500 tokens in 1,024 and of 3,000 in two whole chunks and 952: no step between."""
        demand = asked(rate=1e-3)
        table = table_of(KINDS)
        assert table is not None
        result, likely = carried_by_kinds(demand, table, jnp.asarray(700.0), jnp.asarray(0.0))
        assert float(likely.sum()) == pytest.approx(1)
        assert float((result * likely).sum()) == pytest.approx(700.0, rel=0.1)
        tokens, often = beside_by_kinds(demand, table, jnp.asarray(0.9), jnp.asarray(-np.log(0.9)))
        assert float(often.sum()) == pytest.approx(1)
        assert float((tokens * often).sum()) == pytest.approx(-1000 * np.log(0.9), rel=1e-6)


class TestOpenLoop:
    @pytest.mark.slow
    def test_jit_and_vmap_are_the_plain_call(self):
        plain = open_loop(step(), asked())
        jitted = jax.jit(open_loop)(step(), asked())
        pair = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 2), (step(), asked()))
        mapped = jax.vmap(open_loop)(*pair)
        seen = (jax.tree.leaves(each._replace(solved=None)) for each in (plain, jitted, mapped))
        for one, other, third in zip(*seen, strict=True):
            assert float(other) == pytest.approx(float(one), rel=1e-9)
            assert np.asarray(third) == pytest.approx(float(one), rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["rate", "input_tokens", "output_tokens"])
    def test_slopes_are_those_of_differences(self, name):
        def log_p99(log):
            result = open_loop(step(), asked(**{name: jnp.exp(log)}))
            return jnp.log(jnp.stack([result.ttft_s.p99, result.tpot_s.p99]))

        at, small = jnp.log(ASK[name] * 1.013), 1e-5
        rise = (log_p99(at + small) - log_p99(at - small)) / (2 * small)
        slopes = interpreted(jax.jacfwd(log_p99), always=True)(at)
        np.testing.assert_allclose(slopes, rise, rtol=1e-4, atol=1e-6)

    @pytest.mark.slow
    def test_of_an_idle_engine_the_percentiles_are_those_of_prompts(self):
        result = open_loop(step(), asked(rate=1e-6))

        def alone(tokens):
            whole, rest = divmod(tokens, 1024)
            times, none = step(), jnp.asarray(0.0)
            return sum(
                float(times.step_s(none, none, jnp.asarray(part), none)) for part in [1024.0] * int(whole) + [rest]
            )

        assert float(result.ttft_s.p50) == pytest.approx(alone(500.0), rel=0.02)
        assert float(result.ttft_s.p99) == pytest.approx(alone(3000.0), rel=0.05)

    @pytest.mark.slow
    def test_a_bimodal_trace_is_nearer_the_simulation_than_its_moments(self):
        """At half of the load: p99 within 15 %, the median, which moments miss, within a fifth."""
        served = two_kinds(6000, 11, 6.0)
        engine = Engine(RooflineSteps(**STEP), 10**9, chunk=1024, sequences=256)
        seen = simulate_open(engine, served).summary()
        demand = demand_of(engine, 1024.0, served)
        result = open_loop(with_contexts(step(), served, demand), demand)
        bare = dataclasses.replace(demand, prompts=None, answers=None)
        alike = open_loop(with_contexts(step(), served, bare), bare)
        for name, bar in (("ttft_s.p50", 0.2), ("ttft_s.p99", 0.15), ("tpot_s", 0.05), ("tpot_s.p99", 0.1)):
            key, _, share = name.partition(".")
            error, other = (
                abs(float(getattr(getattr(one, key), share or "mean")) / seen[name] - 1) for one in (result, alike)
            )
            assert error < bar, name
            if name.startswith("ttft"):
                assert error < other, name


@pytest.mark.slow
def test_a_pool_for_prompts_sees_both_kinds():
    """Alone, half of the prompts take the short ones' time, 99 of 100 the long ones'."""
    demand = asked(rate=1e-6)
    result = pools_apart(step(), step(), demand, (jnp.asarray(1.0), jnp.asarray(1.0)), jnp.asarray(0.0))

    def seconds(tokens):
        whole, rest = divmod(tokens, 1024)
        return whole * (2e-3 + 3e-5 * 1024) + 2e-3 + max(5e-3, 3e-5 * rest) + 1e-9 * tokens**2 / 2

    assert float(result.ttft_s.p50) == pytest.approx(seconds(500), rel=0.03)
    assert float(result.ttft_s.p90) == pytest.approx(seconds(3000), rel=0.1)
    assert float(result.ttft_s.mean) == pytest.approx(0.8 * seconds(500) + 0.2 * seconds(3000), rel=0.02)


class TestTraces:
    DESIGN = (
        "model=llama31_8b", "cluster.device_count=8", "plan.tp=1", "plan.pp=1", "plan.micro_batch=128",
        "plan.token_budget=1024", "calibration=h100_sxm_roofline",
    )  # fmt: skip

    @pytest.fixture
    def path(self, tmp_path):
        rows = two_kinds(800, 5, 20.0)
        lines = zip(rows.arrivals if rows.arrivals is not None else (), rows.prompts, rows.outputs, strict=True)
        file = tmp_path / "two.csv"
        text = "".join(f"{came:.6f},{prompt},{answer}\n" for came, prompt, answer in lines)
        file.write_text("arrival_s,input_tokens,output_tokens\n" + text)
        return file

    @pytest.mark.slow
    @pytest.mark.parametrize("workload", ["at_rate", "continuous"])
    def test_a_study_keeps_its_lengths(self, workload, path):
        scenario = scenario_from_config(*self.DESIGN, f"workload={workload}", f"workload.trace={path}")
        assert isinstance(scenario.workload, AbstractContinuousServing)
        assert len(scenario.workload.input_lengths) == COUNT
        drawn = two_kinds(800, 5, 20.0)
        assert scenario.workload.input_lengths == pytest.approx(np.array(kinds_of(drawn.prompts)))
        assert numbers_of(scenario)["ttft_s"] > 0

    @pytest.mark.slow
    def test_percentiles_follow_them(self, path):
        scenario = scenario_from_config(*self.DESIGN, "workload=at_rate", f"workload.trace={path}")
        bare = dataclasses.replace(scenario.workload, input_lengths=(), output_lengths=())
        known, lognormal = (
            numbers_of(dataclasses.replace(scenario, workload=work)) for work in (scenario.workload, bare)
        )
        assert known["ttft_p50_s"] < 0.8 * lognormal["ttft_p50_s"]  # four of five prompts are short

    def test_lengths_are_not_said_twice(self, path, capsys):
        arguments = ["evaluate", *self.DESIGN, "workload=at_rate", f"workload.trace={path}"]
        assert main([*arguments, "+workload.input_lengths=[[1,1,0]]"]) == 2
        assert "which says them as well: leave one out" in capsys.readouterr().err

    @pytest.mark.slow
    def test_are_simulated(self, path, capsys):
        arguments = ["simulate", *self.DESIGN, "workload=at_rate", f"workload.trace={path}", "--requests", "500"]
        assert main([*arguments, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["simulated"]["ttft_s.p99"] > 3 * told["simulated"]["ttft_s.p50"]


@pytest.mark.parametrize("cv", [0.3, 0.5, 0.6, 1.0])
def test_percentiles_of_even_gaps_are_of_the_scale_of_the_mean(cv):
    """Where hardly anybody waits, the wait of those who do had no scale: 227 s were told for 26 ms."""
    rng = np.random.default_rng(0)
    count = 4000
    asked = Requests(lengths(rng, 1024, 0.7, count), lengths(rng, 256, 0.7, count, 2), arrivals(rng, 5.0, cv, count))
    engine = Engine(RooflineSteps(4e-3, 4e-3, 2e-5, 1e-8, 1e-9), budget=2048, chunk=2048, sequences=128)
    times = RooflineTimes(*map(jnp.asarray, (4e-3, 4e-3, 2e-5, 1e-8, 1e-9)))
    demand = demand_of(engine, 2048.0, asked)
    result = interpreted(open_loop, always=True)(with_contexts(times, asked, demand), demand).ttft_s
    served = simulate_open(engine, asked)
    assert 0 < float(result.p50) < float(result.p90) < float(result.p99) < 4 * float(np.percentile(served.ttft_s, 99))
    assert float(result.mean) == pytest.approx(float(served.ttft_s.mean()), rel=0.1)
