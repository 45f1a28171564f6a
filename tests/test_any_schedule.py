"""What no order of serving beats, over boxes: never above the simulation, as near as the programme, proven."""

import dataclasses
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from codesign import Problem, study_from_config
from codesign.core.errors import ConfigError
from codesign.curvature import judge
from codesign.model.metrics.simulated import tabulated_steps
from codesign.model.workloads import AnySchedule, ContinuousServing
from codesign.search import Certificate
from codesign.search.branch_and_bound import Oracle
from codesign.search.results import numbers_of
from codesign.simulation.serving import TIMELINE, Engine, Requests, arrivals, lengths, simulate_open

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from any_schedule import Groups

KINDS = ("space.plan.micro_batch=[1,2,3,5,9,17,33,65,129]", "space.plan.token_budget=[1,2,5,11,23,47,95,191,383,767]",
         "workload.decode_spacing=2", "workload.prompt_spacing=2.2")  # fmt: skip
SMALL = (
    "experiment=serve_any_schedule", "model=llama31_8b", "workload.weights=[]", "space.plan.tp=[1,2]",
    "space.plan.pp=[1]", "space.plan.device_count=[2]", "workload.input_tokens=700", "workload.output_tokens=60",
    *KINDS,
)  # fmt: skip
FORMULAS = ("calibration=h100_sxm_roofline", "collective=ring", "workload.dip=0")
GROUP = {"device_count": 2.0, "tp": 1.0, "pp": 1.0}


@pytest.fixture(scope="module")
def study():
    return study_from_config(*SMALL, *FORMULAS)


def rows(groups: Groups, **changes) -> np.ndarray:
    """Used shares of all kinds on one design of two engines."""
    work = dataclasses.replace(groups.work, **{name: jnp.asarray(value) for name, value in changes.items()})
    kinds = groups.kinds(GROUP, 0.5)
    scenario = groups.study.scenario
    one, layouts = jnp.asarray(1.0), []
    for decodes, tokens in zip(groups.decodes, groups.chunks, strict=True):
        carried = {"micro_batch": jnp.asarray(decodes), "token_budget": jnp.asarray(tokens)}
        plan = dataclasses.replace(scenario.plan, tp=one, pp=one, device_count=2 * one, **carried)
        layouts.append(dataclasses.replace(scenario, plan=plan).layout)
    return np.array([float(work.row(jnp.asarray(s), layout)) for s, layout in zip(kinds.seconds, layouts, strict=True)])


@pytest.mark.slow
def test_some_kind_keeps_the_row_wherever_a_schedule_keeps_the_times(study):
    """Engines of the design served request by request at a rate: what they reach is what is agreed, for any weights."""
    groups, rng = Groups(study), np.random.default_rng(3)
    work, space = study.scenario.workload, study.space
    numbers = {name: v.low * (v.high / v.low) ** 0.5 for name, v in space.hardware.items()}
    plan = {"tp": 1.0, "pp": 1.0, "micro_batch": 33.0, "token_budget": 383.0, "device_count": 2.0}
    placed = space.place(study.scenario, {n: np.asarray(v) for n, v in (plan | numbers).items()})
    served = ContinuousServing(work.model, 700.0, 60.0, input_cv=0.5, output_cv=0.5, precision=work.precision)
    times = tabulated_steps(dataclasses.replace(placed, workload=served))
    count, tightest = 1500, 0.0
    for rate in (5.0, 500.0):  # of one engine: some together, and as many as it can
        asked = Requests(lengths(rng, 700, 0.5, count), lengths(rng, 60, 0.5, count, least=2),
                         arrivals(rng, rate, 1.0, count))  # fmt: skip
        result = simulate_open(Engine(times, 383 + 128, chunk=383, sequences=128), asked, timeline=True)
        spent = {
            name: np.array(column) for name, column in zip(TIMELINE, zip(*result.timeline, strict=True), strict=True)
        }
        steps, seconds = asked.outputs - 1.0, spent["seconds"] / spent["steps"]
        total = float(spent["start_s"][-1] + spent["seconds"][-1])
        tpot = float((spent["decodes"] * seconds * spent["steps"]).sum() / steps.sum())
        reached = {
            "arrivals_per_s": 2 * count / total, "tpot_s": tpot, "ttft_s": 1e9, "input_tokens": asked.prompts.mean(),
            "output_tokens": asked.outputs.mean(),
        }  # fmt: skip
        for weights in rng.uniform(0, [0.5, 2.0, 1.0], size=(6, 3)):
            named = dict(zip(("prompt_worth", "tpot_weight", "ttft_weight"), weights, strict=True))
            least = rows(groups, **reached, **named).min()
            assert least <= 1
            tightest = max(tightest, least)
    assert tightest > 0.3  # of something: kinds are wide here, and weights random


@pytest.mark.slow
def test_weights_of_the_programme_rule_out_what_it_does(study):
    """Beyond the most requests that kinds of steps allow no kind keeps the row, below it one does."""
    groups = Groups(study)
    most, _ = groups.at(GROUP, 0.5)
    asked = dataclasses.replace(groups.work, arrivals_per_s=jnp.asarray(most))
    groups.work = asked
    weights = dict(zip(("prompt_worth", "tpot_weight", "ttft_weight"), groups.at(GROUP, 0.5)[1], strict=True))
    assert rows(groups, **weights).min() == pytest.approx(1, rel=1e-6)
    assert rows(groups, **weights, arrivals_per_s=1.02 * most).min() > 1
    assert rows(groups, **weights, arrivals_per_s=0.98 * most).min() < 1


@pytest.mark.slow
def test_a_study_of_kinds_is_proven_under_its_assumption(study):
    results, trace = study.solve()
    proof = trace.certificate
    assert proof.certified
    assert proof.assuming == study.scenario.workload.words.assuming != ""
    assert trace.claim.startswith(f"bound under the assumption that {proof.assuming}: proven within")
    assert Certificate.from_json(json.loads(json.dumps(proof.as_plain()))).assuming == proof.assuming
    assert "certified" not in trace.claim
    assert proof.convexity is None or not proof.convexity.unproven
    assert proof.bound <= proof.best
    assert proof.gap < 1e-3
    assert results.designs.iloc[0]["usage.engine.schedule"] <= 1 + 1e-9


@pytest.mark.slow
def test_formulas_are_proven_to_take_no_less_for_more(study):
    """What a kind rests on, by the walk: along decodes, and along prompt tokens beside decodes."""
    exact = ("workload.decode_spacing=1", "workload.prompt_spacing=1", "space.plan.micro_batch=[1,2,3,4,5,6,7,8]",
             "space.plan.token_budget=[1,2,3,4,5,6,7,8]")  # fmt: skip
    asked = study_from_config(*SMALL, *FORMULAS, *exact).problem
    ways = directions(asked)
    assert ways == {"micro_batch": 1, "token_budget": 1}


def directions(problem: Problem) -> dict[str, int | None]:
    """Which way steps go along the numbers that they carry."""
    free = {"micro_batch": np.arange(2.0, 9), "token_budget": np.arange(1.0, 9)}
    outer = {"tp": np.array([1.0, 2.0]), "pp": np.ones(2), "device_count": 2 * np.ones(2)}
    plans = {**outer, "micro_batch": 2 * np.ones(2), "token_budget": np.ones(2)}
    step = Oracle(problem, lambda metrics, point: {"goal": jnp.log(metrics.extra["least_step_s"])}, 64, plans=plans)
    said = judge(step.program, [problem.scenario], outer, free, None, tuple(free))
    return {name: said.direction("goal", name) for name in free}


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("space.plan.micro_batch=[1,2,3,9]", "steps of 4 to 4 are of no kind: list a value between 3 and 9"),
        ("space.plan.token_budget=[1,64]", "between 0 and 64"),
        ("space.plan.token_budget=[2,4]", "begin at 1"),
        ("workload.decode_spacing=0.5", "from 1 to"),
        ("workload.dip=1", "less than 1"),
        ("workload.weights=[[1,2,3]]", "prompt_worth"),
    ],
)
def test_kinds_that_leave_steps_out_are_refused_in_a_line(typed, words):
    with pytest.raises(ConfigError, match=words) as error:
        study_from_config(*SMALL, typed)
    assert "\n" not in str(error.value)


def test_engines_that_step_together_are_no_plans():
    work = AnySchedule.example()
    scenario = study_from_config(*SMALL).scenario
    layout = dataclasses.replace(
        scenario, plan=dataclasses.replace(scenario.plan, attention_dp=jnp.asarray(2.0))
    ).layout
    assert float(work.violations(layout)["engines_together"]) > 0
    assert "step alone" in str(work.broken_rule("engines_together", layout))


def test_prices_are_of_the_rate(study):
    told = numbers_of(study.scenario)
    assert told["requests_per_s"] == float(study.scenario.workload.arrivals_per_s)
    assert told["tokens_per_s"] == pytest.approx(told["requests_per_s"] * 60)
