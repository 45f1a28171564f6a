"""Every legal plan counts in a proof, unless it is equal in every metric to one that does, by the traced program."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from builders import training
from conftest import ROOT
from contracts.problems import made
from slopes import combinations, goals_that_fit

from codesign import DesignSpace, Objective, Problem, evaluate, study_from_config
from codesign.search import Certified
from codesign.search.branch_and_bound.node_relaxation import GroupOracle
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.staging import distinct_plans, equal_plans
from codesign.study.feasible_plans import Rules
from codesign.verification import CheckedModel, Refuted, VerifiedProblem, derivation_of, verify
from codesign.verification.coverage import cover
from codesign.verification.legal_plans import LegalPlans

GPT3 = (
    "model=gpt3_175b",
    "accelerator=h100_sxm",
    "workload.global_batch=96",
    "objective.minimise=time_s",
    "space=fixed",
)
LISTS = {
    "tp": [8], "pp": [4, 8], "virtual_stages": [1], "micro_batch": [1], "recompute": ["selective"], "zero": [0, 1],
    "sequence_parallel": [1], "offload_optimizer": [0], "ep": [2, 3], "cp": [1],
}  # fmt: skip
SEARCH = Certified(gap=1e-4, convexity_samples=64, explain=False)
ODD = (1, 2, 3, 5, 6, 7, 12, 72)


def problem_of(devices: int, **lists: list[float]) -> Problem:
    study = study_from_config(*GPT3, f"cluster.device_count={devices}")
    return Problem(study.scenario, DesignSpace({**LISTS, **lists}), study.objective)


def by_evaluation(problem: Problem) -> float:
    """Least goal of a feasible plan over all listed combinations."""
    return float(goals_that_fit(problem, combinations(problem.space.lists)).min(initial=math.inf))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "lists"),
    [(192, {}), (96, {"tp": [4]}), (192, {"pp": [8]})],
    ids=["a better plan has another ep", "a plan is feasible", "a plan is legal"],
)
def test_no_plan_is_dropped_for_one_that_is_not_legal(devices, lists):
    """Expert parallelism of a dense model changes nothing, but its values divide the data ranks or do not."""
    problem = problem_of(devices, **lists)
    result = SEARCH.run(problem, 0).certificate
    assert result is not None
    assert result.certified
    assert result.best == pytest.approx(by_evaluation(problem), rel=1e-9)


@pytest.mark.slow
def test_a_pool_without_devices_leaves_plans_legal():
    words = (
        "workload=disaggregated",
        "model=llama31_8b",
        "accelerator=h100_sxm",
        "cluster.device_count=8",
        "prefill=same",
        "space=fixed",
    )
    study = study_from_config(*words)
    lists = {"tp": [1, 2], "prefill_devices": [0], "prefill_tp": [2, 3], "prefill_pp": [3]}
    problem = Problem(study.scenario, DesignSpace(lists), Objective(minimise="time_s"))
    trace = SEARCH.run(problem, 0)
    assert trace.counts["plans"] == 2
    assert trace.certificate is not None
    assert trace.certificate.best == pytest.approx(by_evaluation(problem), rel=1e-9)


def test_plans_that_stand_for_others_are_legal_and_equal_in_every_metric():
    problem = made(plan={"tp": [3, 1, 2], "ep": [3, 2, 1], "zero": [1, 0], "sequence_parallel": [1, 0]}, hardware={})
    space, scenario = problem.space, problem.scenario
    legal, names = space.plans(scenario), list(space.plan)
    kept = distinct_plans([scenario], space, legal)
    rows, known = (np.stack([plans[name] for name in names], axis=-1) for plans in (legal, kept))
    assert len(known) < len(rows)
    assert {tuple(row) for row in known.tolist()} <= {tuple(row) for row in rows.tolist()}

    def metrics(row: np.ndarray) -> tuple[float, ...]:
        point = {name: jnp.asarray(value) for name, value in zip(names, row, strict=True)}
        result = dataclasses.replace(evaluate(space.place(scenario, point)), violations={})
        return tuple(float(value) for value in result.flat().values())

    different = {metrics(row) for row in known}
    assert len(different) == len(known)  # nothing is kept that could stand for another
    assert all(metrics(row) in different for row in rows)


def test_groups_count_every_plan_that_equals_no_other():
    """Groups that are equal, value by value of what they leave open, are one."""
    plan = {
        "tp": [1, 2],
        "pp": [1, 2],
        "sequence_parallel": [0, 1],
        "zero": [0, 1, 2],
        "offload_optimizer": [0, 0.5, 1],
    }
    problem = made(plan=plan, hardware={})
    groups = GroupOracle(problem, rows_of(problem), 64)
    legal = problem.space.plans(problem.scenario)
    distinct = len(next(iter(distinct_plans([problem.scenario], problem.space, legal).values())))
    assert "offload_optimizer" in groups.tree.inner
    assert distinct <= groups.plan_count < len(legal["tp"])


@pytest.mark.parametrize("seed", range(4))
def test_legal_plans_are_counted_apart(seed):
    rng = np.random.default_rng(seed)
    names = ("tp", "pp", "ep", "cp", "micro_batch", "zero", "virtual_stages", "recompute")
    lists = {name: np.sort(rng.choice(ODD[:4] if name in ("zero",) else ODD, 4, replace=False)) for name in names}
    lists["zero"], lists["recompute"] = np.arange(4), np.arange(3)
    scenario = training(float(rng.choice([60, 72, 168, 504])))
    apart = LegalPlans(lists, scenario)
    numbers, _ = Rules({name: values.astype(float) for name, values in lists.items()}, scenario).of_all(1 << 20)
    legal = np.zeros(apart.combinations, dtype=bool)
    legal[numbers] = True
    assert np.array_equal(apart.flags(), legal)
    assert apart.count == legal.sum()
    assert apart.check(rng) > 0
    assert apart.fields_of_rules.isdisjoint({"zero", "recompute"})
    some = apart.sample(rng, 50)
    assert len(some) == min(50, legal.sum())
    assert apart.keeps(dict(zip(lists, some.T, strict=True))).all()


@pytest.fixture(scope="module")
def proof():
    """A problem of which some plans equal others, and its certificate."""
    problem = made(plan={"tp": [1, 2], "pp": [1, 2], "sequence_parallel": [0, 1]}, hardware={})
    trace = SEARCH.run(problem, 0)
    assert trace.evidence is not None
    counts = {name: len(next(iter(columns.values()))) for name, columns in trace.evidence.tables.items()}
    asked = VerifiedProblem(problem.scenario, problem.space, problem.objective, problem.objective.goal)
    return asked, derivation_of(trace.evidence.header | {"counts": counts}, trace.evidence.tables)


def test_verification_counts_plans_that_equal_another(proof):
    asked, certificate = proof
    covered = cover(certificate, asked, CheckedModel(asked))
    assert covered.plans == asked.legal.count > len(certificate.low)
    assert covered.twins == covered.plans - len(certificate.low)
    answer = verify(asked, certificate.claim, certificate, 2000, 0)
    assert answer.verified, answer.line
    assert any("counted apart" in text and "equal another in every row" in text for text in answer.checks)


def test_verification_misses_a_plan_that_equals_none(proof):
    asked, certificate = proof
    left = certificate.low[:, 0] > 0  # those of two ranks
    low, high, best = certificate.low[left], certificate.high[left], certificate.best[:, left]
    certificate = dataclasses.replace(certificate, low=low, high=high, best=best)
    with pytest.raises(Refuted, match="legal plans are in no node; the first: "):
        cover(certificate, asked, CheckedModel(asked))


@pytest.mark.slow
def test_studies_with_odd_plans_are_what_evaluation_says(capsys):
    """A small run of `qa/odd_plans.py`, over the families that are traced fastest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "qa")
        import odd_plans

        counts = odd_plans.run(5, 3, 2000, ("training", "static", "recommendation", "training_experts"), quiet=True)
    assert counts["right"] == 5, capsys.readouterr().out


@pytest.mark.parametrize("width", [1, 7, 8, 40])
def test_rows_have_equal_numbers_where_all_their_bytes_are_equal(width, monkeypatch):
    rng = np.random.default_rng(width)
    few = rng.integers(0, 2, (40, width), dtype=np.uint8)
    rows = few[rng.integers(0, len(few), 500)]

    def same(numbers):
        return (numbers[:, None] == numbers[None]) == (rows[:, None] == rows[None]).all(axis=-1)

    assert same(equal_plans.numbered(rows)).all()
    powers = 2.0 ** rng.integers(-8, 8, (500, 3))  # differ in the highest bits alone
    rows = powers.view(np.uint8)
    assert same(equal_plans.numbered(rows)).all()
    monkeypatch.setattr(equal_plans, "MIX", (np.uint64(0), np.uint64(0)))  # every hash is the same
    assert same(equal_plans.numbered(rows)).all()
