"""Engines that speculate or prepare steps ahead: a plain one to the last digit, by hand, conserved, closed forms."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from codesign.commands.simulate import engine_of, pools_of, simulate_design
from codesign.commands.simulate_forms import open_form
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.report.fleet_figures import pools_figure, timeline_figure, under_way
from codesign.simulation.serving import (
    Engine,
    Replica,
    Requests,
    RooflineSteps,
    SpeculatingReplica,
    arrivals,
    lengths,
    simulate_apart,
    simulate_closed,
    simulate_open,
)
from codesign.simulation.serving.replica import chance_of

STEPS = RooflineSteps(0.002, 0.01, 1e-5, 1e-7, 1e-9)
DESIGN = (
    "calibration=h100_sxm_roofline", "framework=none",
    "model=gpt3_175b", "plan=serving_node", "cluster.device_count=16",
    "workload.input_tokens=1024", "workload.output_tokens=512", "workload.input_cv=0.5", "workload.output_cv=0.5",
)  # fmt: skip
DRAFTS = ("workload.accepted_tokens=1.8", "workload.verified_tokens=3", "workload.draft_ratio=0.1")
AHEAD = ("workload.async_scheduling=true", "workload.step_overhead_s=0.004", "workload.sequence_overhead_s=2e-4")
APART = ("workload=disaggregated", "prefill=same", "plan.prefill_devices=8", "plan.prefill_tp=8",
         "plan.prefill_max_utilisation=0.4", "plan.micro_batch=32")  # fmt: skip


def drawn(seed: int, count: int, rate: float = 0.0, prompt: float = 400.0, answer: float = 60.0) -> Requests:
    rng = np.random.default_rng(seed)
    prompts, answers = (lengths(rng, mean, 0.5, count, least=2) for mean in (prompt, answer))
    return Requests(prompts, answers, arrivals(rng, rate, 1.0, count) if rate else None)


def test_a_token_is_right_as_often_as_is_said():
    assert chance_of(1.75, 3) == pytest.approx(0.5)  # 1 + 1/2 + 1/4
    assert chance_of(1.0, 4) == pytest.approx(0.0, abs=1e-15)
    assert chance_of(4.0, 4) == 1.0


@pytest.mark.parametrize("blocks", [10**9, 240])
def test_who_verifies_one_token_is_a_plain_engine(blocks):
    """Step by step what the other does in runs of steps, with and without preemption."""
    engine, requests = Engine(STEPS, budget=512, blocks=blocks), drawn(0, 120)
    served = []
    for kind in (Replica, SpeculatingReplica):
        replica = kind(engine, requests)
        for request in range(len(requests)):
            replica.add(request)
        while replica.finished < len(requests):
            replica.step(np.inf, lambda _: None)
        served.append(replica)
    for name in ("first", "last"):
        np.testing.assert_allclose(getattr(served[0], name), getattr(served[1], name), rtol=1e-9)
    assert served[0].preempted == served[1].preempted
    assert (served[0].preempted > 0) == (blocks == 240)
    assert served[1].pool.free == blocks


def test_what_is_always_right_divides_the_steps():
    """Nine tokens after the first are three steps of three, ten are four."""
    engine = Engine(RooflineSteps(0.0, 0.1, 1e-12, 0.0, 0.0), budget=100, accepted=3.0, verified=3)
    for outputs, steps in ((10, 3), (11, 4)):
        served = simulate_closed(engine, Requests(np.full(9, 50), np.full(9, outputs)), 1)
        assert served.tpot_s == pytest.approx(0.1 * steps / (outputs - 1))


@pytest.mark.parametrize("blocks", [10**9, 240])
def test_tokens_are_conserved_and_accepted_on_average(blocks):
    requests = drawn(1, 1500, rate=20.0)
    served = simulate_open(Engine(STEPS, 2048, blocks=blocks, accepted=1.8, verified=3), requests, timeline=True)
    counts, table = served.counts, np.array(served.timeline)
    assert counts["finished"] == len(requests)
    assert (counts["preempted"] > 0) == (blocks == 240)
    if blocks > 240:  # who is computed again brings a first token again
        assert counts["decode_tokens"] == (requests.outputs - 1).sum()
        assert counts["prompt_tokens"] == requests.prompts.sum()
    assert counts["decode_tokens"] / counts["sequence_steps"] == pytest.approx(1.8, rel=0.02)
    assert (table[:, 2] * table[:, 3]).sum() == counts["sequence_steps"]


def served_closed(scenario, seed: int, count: int):
    """The closed loop of a design: closed form and simulation."""
    work, closed = scenario.workload, {name: float(value) for name, value in evaluate(scenario).flat().items()}
    engine, group = engine_of(scenario)
    asked = drawn(seed, count, 0.0, float(work.input_tokens), float(work.output_tokens))
    return closed, simulate_closed(engine, asked, round(closed["concurrency"] / group))


@pytest.mark.slow
@pytest.mark.parametrize("more", [DRAFTS, AHEAD, (*DRAFTS, *AHEAD)], ids=["drafts", "ahead", "both"])
def test_the_closed_loop_is_near_the_simulation(more):
    scenario = scenario_from_config(*DESIGN, "workload=continuous", "plan.micro_batch=32", *more)
    closed, served = served_closed(scenario, 3, 3000)
    assert closed["tpot_s"] == pytest.approx(float(served.tpot_s.mean()), rel=0.02)
    assert closed["ttft_s"] == pytest.approx(float(served.ttft_s.mean()), rel=0.1)


@pytest.mark.slow
def test_the_open_loop_is_near_the_simulation():
    scenario = scenario_from_config(*DESIGN, "workload=continuous", "plan.micro_batch=32", *DRAFTS, *AHEAD)
    engine, group = engine_of(scenario)
    asked = drawn(4, 4000, 0.6 * float(evaluate(scenario).extra["requests_per_s"]) / group, 1024.0, 512.0)
    form, served = open_form(engine, asked, 0.0, group), simulate_open(engine, asked).summary()
    assert float(form.tpot_s.mean) == pytest.approx(served["tpot_s"], rel=0.03)
    assert float(form.ttft_s.mean) == pytest.approx(served["ttft_s"], rel=0.06)
    assert float(form.tpot_s.p99) == pytest.approx(served["tpot_s.p99"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), (*DRAFTS, *AHEAD, "plan.prefill_devices=16")], ids=["plain", "both"])
def test_two_pools_are_near_the_simulation(more):
    """Both closed forms, that of the plan and that of percentiles; a slow link, so that what crosses it counts."""
    link = "cluster.prefill.link.fabric.bandwidth_bytes_per_s=2e10"
    scenario = scenario_from_config(*DESIGN, *APART, link, "plan.token_budget=2048", *more)
    closed = {name: float(value) for name, value in evaluate(scenario).flat().items()}
    assert closed["decode_pool_utilisation"] == pytest.approx(1, rel=1e-5)  # else its batch is not full
    pools = pools_of(scenario, *engine_of(scenario))
    asked = drawn(5, 6000, 0.98 * closed["requests_per_s"], 1024.0, 512.0)
    served, form = pools.simulated(asked, lambda done, total: None), pools.closed_form(asked)
    for said in (closed["tpot_s"], float(form.tpot_s.mean)):
        assert said == pytest.approx(float(served.tpot_s.mean()), rel=0.02)
    for said in (closed["ttft_s"], float(form.ttft_s.mean)):
        assert said == pytest.approx(float(served.ttft_s.mean()), rel=0.1)


def test_who_has_entered_and_not_left_is_under_way():
    times, count = under_way(np.array([0.0, 1.0, 2.0, 4.0]), np.array([2.0, 3.0, 3.0, 4.0]))
    assert times.tolist() == [0, 1, 2, 2, 3, 3]
    assert count.tolist() == [1, 2, 1, 2, 1, 0]


def test_two_pools_have_a_timeline_that_conserves_requests():
    requests = drawn(2, 800, rate=20.0)
    prefill, decode = Engine(STEPS, 1024), Engine(STEPS, 1024, sequences=256)
    served = simulate_apart(prefill, decode, (2, 2), requests, lambda tokens: 1e-4 * tokens, timeline=True)
    result = served.handed
    assert result is not None
    assert (result.came <= result.began).all()
    assert (result.began < result.first).all()
    assert (result.first < result.ready).all()
    for enter, leave in ((result.came, result.began), (result.began, result.first), (result.first, result.ready)):
        _, count = under_way(enter, leave)
        assert count.min() >= 0
        assert count[-1] == 0
    together = np.array([requests.prompts[result.began == at].sum() for at in np.unique(result.began)])
    longest = requests.prompts.max()
    assert together.max() < 1024 + longest  # of a step: its room, and what is left of the last prompt
    table = np.array(served.timeline)
    assert (table[:, 2] * table[:, 3]).sum() == (requests.outputs - 1)[np.argsort(result.ready)[::2]].sum()
    assert len(pools_figure(served.timeline, result).axes) == 10
    assert len(timeline_figure(served.timeline).axes) == 8


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((*DRAFTS, "workload.verified_tokens=1"), ["accepted_tokens = 1.8", "verified_tokens = 1", "2 or more"]),
        ((*DRAFTS, "workload.verified_tokens=2.5"), ["verified_tokens = 2.5", "whole number"]),
        ((*APART, "workload.cached_ratio=0.5"), ["cached_ratio = 0.5", "is not simulated"]),
    ],
)  # fmt: skip
def test_what_is_not_simulated_is_refused_in_a_line(overrides, words):
    with pytest.raises(ConfigError) as error:
        simulate_design(
            [*DESIGN, "workload=continuous", *overrides], design=1, requests=200, seed=0, rate=0.0, cv=None, trace="",
            as_json=True,
        )  # fmt: skip
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="no more are right than are verified"):
        Engine(STEPS, 64, accepted=2.0)


@pytest.mark.slow
def test_the_longer_of_both_times_counts_ahead():
    """By hand: a host of 1 s is all that is seen; one of nothing leaves the device."""
    base = scenario_from_config(*DESIGN, "workload=continuous", "plan.micro_batch=32", "workload.async_scheduling=true")
    slow = dataclasses.replace(base, workload=dataclasses.replace(base.workload, step_overhead_s=jnp.asarray(1.0)))
    assert float(evaluate(slow).extra["tpot_s"]) == pytest.approx(1.0, rel=1e-6)
    plain = dataclasses.replace(base, workload=dataclasses.replace(base.workload, async_scheduling=False))
    alone, beside = (evaluate(one).extra for one in (plain, base))
    assert float(alone["tpot_s"]) == pytest.approx(float(beside["tpot_s"]), rel=1e-6)
    assert float(beside["ttft_s"]) > float(alone["ttft_s"])


@pytest.mark.slow
def test_a_rate_near_the_most_is_served_twice(capsys):
    """The second seed is held against what the design sustains, not against the first one's rate."""
    overrides = [*DESIGN, "workload=continuous", "plan.micro_batch=16"]
    most = float(evaluate(scenario_from_config(*overrides)).extra["requests_per_s"])
    done = simulate_design(overrides, design=1, requests=400, seed=0, rate=0.97 * most, cv=None, trace="", as_json=True)
    assert done == 0
    assert '"another_seed": {\n' in capsys.readouterr().out
