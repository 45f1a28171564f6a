"""Lengths and micro-batches in flight of pipeline schedules, equal to executing their lists of operations."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pipeline_orders as listed
import pytest
from slopes import combinations, goals_that_fit

from codesign import Continuous, DesignSpace, Objective, Problem, evaluate, study_from_config
from codesign.core.smooth import PNorm, reading
from codesign.model.workloads import DenseFeedForward, GroupedQueryAttention, Layout, Plan, Training, Transformer
from codesign.model.workloads.pipeline_schedules import SCHEDULES, broken_schedule, chunked_length, flying
from codesign.search import Certified

MODEL = Transformer("gpt", 1024.0, 24.0, GroupedQueryAttention(8.0, 8.0, 128.0), DenseFeedForward(4096.0), 0.0)
RUN = {
    "zb_h1": (listed.zb_h1, listed.in_line, 1, 1), "zb_v": (listed.zb_v, listed.in_v, 2, 2),
    "dual_pipe": (listed.dual_pipe, listed.both_ways, 2, 1),
}  # fmt: skip
"""Schedule -> list of operations, what they wait for, micro-batches a stage asks for, chunks of a stage."""


def layout_of(name: str, stages: int) -> Layout:
    chunks = RUN[name][3] if name in RUN else 1
    plan = Plan(pp=float(stages), schedule=name, virtual_stages=float(chunks))
    return Layout(plan, float(stages))


def sizes(name: str, rng: random.Random) -> tuple[int, int]:
    stages = 2 * rng.randint(1, 4) if name == "dual_pipe" else rng.randint(2, 8)
    least = RUN[name][2] * stages
    return stages, least + 2 * rng.randint(0, stages)


@pytest.mark.parametrize("name", RUN)
def test_lengths_are_those_of_the_executed_lists(name: str):
    orders, waits, _, chunks = RUN[name]
    rng = random.Random(61)
    for _ in range(60):
        stages, batches = sizes(name, rng)
        seconds = [rng.uniform(0.05, 2.0) for _ in "FBW"]
        each = {kind: one / chunks for kind, one in zip("FBW", seconds, strict=True)}
        count = batches // 2 if name == "dual_pipe" else batches  # of one direction
        assert all(len(order) for order in orders(stages, batches))
        want = listed.executed(orders(stages, batches), waits(stages), each)
        length = chunked_length(layout_of(name, stages), jnp.asarray(float(batches)), *map(jnp.asarray, seconds))
        np.testing.assert_allclose(float(length), want, rtol=1e-9, err_msg=f"{name} {stages} {batches} {count}")


@pytest.mark.parametrize("name", RUN)
def test_every_operation_is_in_the_list_once(name: str):
    orders, _, _, chunks = RUN[name]
    rng = random.Random(5)
    stages, batches = sizes(name, rng)
    for order in orders(stages, batches):
        parts = [part for operation in order for part in operation]
        assert len(set(parts)) == len(parts) == 3 * batches * chunks


@pytest.mark.parametrize("name", [*RUN, "1f1b"])
def test_micro_batches_in_flight_are_those_of_the_lists(name: str):
    rng = random.Random(7)
    for _ in range(20):
        stages, batches = sizes(name, rng) if name in RUN else (rng.randint(2, 8), rng.randint(1, 20))
        orders = RUN[name][0] if name in RUN else listed.one_f_one_b
        chunks = RUN[name][3] if name in RUN else 1
        job, layout = Training(MODEL, 128.0, float(batches)), layout_of(name, stages)
        for stage, order in enumerate(orders(stages, batches)):
            want = listed.most_in_flight(order) / chunks
            assert float(job.in_flight(layout, jnp.asarray(float(stage)))) == pytest.approx(want, rel=1e-12)


def test_lengths_of_1f1b_are_those_of_the_executed_list():
    rng = random.Random(3)
    for _ in range(60):
        stages, batches = rng.randint(2, 8), rng.randint(1, 20)
        seconds = {kind: rng.uniform(0.05, 2.0) for kind in "FBW"}
        want = listed.executed(listed.one_f_one_b(stages, batches), listed.in_line(stages), seconds)
        job = Training(Transformer(
            "gpt", 1024.0, 2.0 * stages, MODEL.attention, MODEL.feed_forward, 0.0
        ), 128.0, float(batches))  # fmt: skip
        bubbles = float(job.bubbles(layout_of("1f1b", stages)))
        np.testing.assert_allclose((batches + bubbles) * sum(seconds.values()), want, rtol=1e-9)


def test_limits_by_hand():
    """Equal times: ZB-H1 a third of the idle time of 1F1B, ZB-V a stage's skew alone, DualPipe (p / 2 - 1) of two."""
    one = jnp.asarray(1.0)
    idle = {name: float(chunked_length(layout_of(name, 8), jnp.asarray(16.0), one, one, one)) - 48 for name in RUN}
    assert idle == pytest.approx({"zb_h1": 7.0, "zb_v": 3.5, "dual_pipe": 6.0})


@pytest.mark.slow
def test_chosen_lengths_have_slopes_as_differences_say_and_are_log_convex():
    for name in RUN:
        layout = layout_of(name, 4)

        def log_length(logs, layout=layout):
            return jnp.log(chunked_length(layout, jnp.asarray(10.0), *jnp.exp(logs)))

        at, step = jnp.log(jnp.asarray([1.0, 1.3, 0.7])), 1e-6
        slopes = jax.grad(log_length)(at)
        for axis in range(3):
            shift = step * jnp.eye(3)[axis]
            difference = (log_length(at + shift) - log_length(at - shift)) / (2 * step)
            np.testing.assert_allclose(slopes[axis], difference, rtol=1e-5, atol=1e-8)
        ends = np.random.default_rng(1).normal(0, 1, (2, 50, 3))
        for read in (lambda f: f, lambda f: reading(PNorm(8.0), f)):
            first, second, middle = (jax.vmap(read(log_length))(jnp.asarray(x)) for x in (*ends, ends.mean(0)))
            assert np.all(np.asarray(middle) <= 0.5 * np.asarray(first + second) + 1e-9)


@pytest.mark.slow
def test_a_step_takes_as_long_as_its_schedule():
    """Breakdowns sum to the time; deferred weight gradients shorten the step and idle less."""
    from builders import training

    times = {}
    for name in SCHEDULES:
        plan = Plan(tp=8.0, pp=8.0, schedule=name, virtual_stages=2.0 if name == "zb_v" else 1.0)
        metrics = evaluate(training(64.0, plan))
        assert all(float(broken) == 0 for broken in metrics.violations.values())
        np.testing.assert_allclose(float(sum(metrics.breakdown_s.values())), float(metrics.time_s), rtol=1e-9)
        times[name] = float(metrics.breakdown_s["bubble"])
    assert times["zb_v"] < times["zb_h1"] < times["1f1b"]
    assert times["dual_pipe"] < times["1f1b"]


HBM = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
LISTS = {
    "tp": [1, 2], "pp": [2, 4], "virtual_stages": [1, 2], "schedule": [0, 1, 2, 3], "micro_batch": [1, 2],
    "recompute": [0, 2],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "hardware", [{}, {"hbm": Continuous("cluster.accelerator.hbm.bandwidth_bytes_per_s", 2e12, 4e12)}]
)
def test_the_best_of_all_schedules_is_proven(hardware: dict[str, Continuous]):
    words = ("model=llama31_8b", "accelerator=h100_sxm", "cluster.device_count=16", "workload.global_batch=64")
    study = study_from_config(*words, "space=fixed", "plan.zero=1")
    problem = Problem(study.scenario, DesignSpace(LISTS, hardware), Objective(minimise="time_s"))
    result = Certified(gap=1e-4, convexity_samples=64, explain=False).run(problem, 0).certificate
    assert result is not None
    assert result.certified
    levels = {name: [4e12] for name in hardware}
    best = goals_that_fit(problem, combinations(LISTS | levels)).min()
    assert result.best == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize(
    ("plan", "batch", "line"),
    [
        (Plan(schedule="zb_h1"), 8, "needs a pipeline, but plan.pp = 1"),
        (Plan(pp=4.0, schedule="zb_h1", virtual_stages=2.0), 8, "takes plan.virtual_stages = 1"),
        (Plan(pp=4.0, schedule="zb_v"), 8, "takes plan.virtual_stages = 2 (PyTorch: two stages a rank), not 1"),
        (Plan(pp=4.0, schedule="zb_h1"), 3, "takes 4 micro-batches or more over plan.pp = 4 stages, not 3"),
        (Plan(pp=4.0, schedule="dual_pipe"), 9, "takes stages and micro-batches in pairs"),
        (Plan(pp=4.0, schedule="dual_pipe"), 6, "takes 8 micro-batches or more"),
        (Plan(pp=4.0, schedule="zb_h1", last_stage_less=4.0), 8, "takes stages of equal length"),
    ],
)
def test_what_a_schedule_asks_is_said_in_one_line(plan: Plan, batch: int, line: str):
    job, layout = Training(MODEL, 128.0, float(batch)), Layout(plan, float(plan.pp))
    assert float(job.violations(layout)["schedule"]) > 0
    said = broken_schedule(layout, float(batch))
    assert line in said
    assert job.broken_rule("schedule", layout) == said


def test_both_ends_on_one_device_hold_both_tables_and_two_copies():
    job = Training(Transformer("gpt", 1024.0, 24.0, MODEL.attention, MODEL.feed_forward, 32000.0), 128.0, 16.0)
    plain, dual = (job.moments(layout_of(name, 4))["first", "backward"]["weights"][0] for name in ("1f1b", "dual_pipe"))
    np.testing.assert_allclose(float(dual), 2 * float(plain), rtol=1e-12)
    assert float(flying(layout_of("dual_pipe", 4), jnp.asarray(16.0), jnp.asarray(4.0))) == 5.0
