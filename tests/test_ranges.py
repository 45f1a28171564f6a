"""Ranges of groups of plans hold every plan of them, and proofs made of ranges say what evaluation says."""

import dataclasses
import json
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slopes import goals_that_fit

from codesign import study_from_config
from codesign.commands.certificate_summary import _check_history as check_history
from codesign.core import smooth
from codesign.core.jax_typed import make_jaxpr
from codesign.model.hardware import compute
from codesign.model.networks.fabrics import contended
from codesign.search import Certified
from codesign.search.branch_and_bound import node_relaxation, oracle_for, rows_of
from codesign.search.branch_and_bound.certified import _certificate as certificate_of
from codesign.search.branch_and_bound.range_oracle import RangeOracle
from codesign.search.certificate import GoalQuantity
from codesign.staging import flatten, running
from codesign.staging.ranges import RISING, RULES, Range, range_of_equation
from codesign.study.feasible_plans import Rules
from codesign.verification import CheckedModel, Refuted, VerifiedProblem, derivation_of, verify
from codesign.verification.coverage import cover

SPACE = (
    "model=mixtral_8x7b", "accelerator=h200", "workload=training", "space=every_training_plan", "framework=none",
    "workload.global_batch=16", "++space.plan.device_count=[16,24]", "space.plan.zero=[1,3]", "space.plan.etp=[0,1]",
    "space.plan.micro_batch=[1,2]", "space.plan.virtual_stages=[1,2]", "space.plan.offload_optimizer=[0]",
    "space.plan.recompute=[none,full]",
)  # fmt: skip
GROUPS, INSIDE = 200, 20

OPERATIONS = {
    "sums": lambda a, b: a + b - 2 * b,
    "products": lambda a, b: a * b * (a - b),
    "quotients": lambda a, b: a / b + b / (jnp.abs(a) + 1),
    "powers": lambda a, b: jnp.abs(a) ** b + a**2 + (jnp.abs(b) + 0.1) ** -3 + jax.lax.integer_pow(a, 3),
    "roots": lambda a, b: jnp.sqrt(jnp.abs(a)) + jax.lax.rsqrt(jnp.abs(b) + 0.5) + jnp.square(b),
    "logarithms": lambda a, b: jnp.log(jnp.abs(a)) + jnp.exp(b) + jnp.log1p(jnp.abs(b)) + jnp.expm1(a),
    "bounds": lambda a, b: jnp.maximum(a, b) - jnp.minimum(a, -b) + jnp.clip(a, -0.5, 0.5),
    "choices": lambda a, b: jnp.where(a > b, a, -b) + jnp.where(a <= 0.2, a * b, b) + jnp.where(~(a == b), 1.0, a),
    "several choices": lambda a, b: jax.lax.select_n(jnp.clip(jnp.floor(a), 0, 2).astype(int), a, b, a * b),
    "truths": lambda a, b: ((a > 0) & (b < 0.3) | (a != b)).astype(float) + jnp.isfinite(a / b),
    "whole numbers": lambda a, b: jnp.floor(a) + jnp.ceil(b) + jnp.round(a * 3) + jnp.sign(b) + a.astype(int),
    "arrays": lambda a, b: jnp.stack([a, b, a * b]).sum() + jnp.max(jnp.stack([a, -b])),
    "running sums": lambda a, b: jnp.cumsum(jnp.stack([a, b]))[1] + jnp.prod(jnp.stack([a, b]) ** 2),
    "contractions": lambda a, b: jnp.abs(jnp.stack([a, b])) @ jnp.asarray([1.0, 2.0]),
    "kinks": lambda a, b: smooth.maximum(jnp.abs(a), jnp.abs(b)) + smooth.largest(jnp.stack([a, b])),
    "bounded": lambda a, b: smooth.at_least(a, b) + smooth.at_most(a, b) + smooth.bounded(a, -1.0, b),
    "steps": lambda a, b: smooth.ceil(a) * smooth.floor(b),
    "shares": lambda a, b: smooth.used_share(jnp.abs(a), b) + smooth.ratio(a, jnp.floor(b)),
    "norms": lambda a, b: compute.p_norm(jnp.asarray(3.7), jnp.abs(a) + 0.1, jnp.abs(b)),
    "queues": lambda a, b: contended.slowdown(jnp.abs(a)) * jnp.tanh(b),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_range_holds_whatever_is_computed_of_numbers_inside(name):
    program = flatten(make_jaxpr(OPERATIONS[name])(1.0, 1.0))
    rng = np.random.default_rng(len(name))
    ends = np.sort(rng.normal(scale=2, size=(2, 2, GROUPS)), axis=0)
    ends[1, :, ::4] = ends[0, :, ::4]  # known
    ends[:, :, 1::4] = np.round(ends[:, :, 1::4])  # zeros and steps
    slots = {slot: Range(value[None], value[None]) for slot, value in program.constants.items()}
    slots |= {slot: Range(ends[0, i], ends[1, i]) for i, slot in enumerate(program.inputs)}
    for equation in program.equations:
        result = range_of_equation(equation, [slots[slot] for slot in equation.inputs])
        slots |= dict(zip(equation.outputs, result, strict=True))
    low, high = (np.broadcast_to(each, GROUPS) for each in slots[program.outputs[0]])
    for share in (0.0, 1.0, *rng.uniform(size=INSIDE)):
        at = ends[0] + np.where(share in (0.0, 1.0), share, rng.uniform(size=(2, GROUPS))) * (ends[1] - ends[0])
        value = np.broadcast_to(running(program)(*np.clip(at, *ends))[0], GROUPS)
        assert np.all((low <= value) & (value <= high) | np.isnan(value))
    assert np.isfinite(low).mean() > 0.2  # it says something


def test_no_rule_stands_for_an_operation_that_rises_anyway():
    assert not {*RULES} & {*RISING}


@pytest.fixture(scope="module")
def study():
    return study_from_config(*SPACE)


@pytest.fixture(scope="module")
def oracle(study):
    return RangeOracle(study.problem, rows_of(study.problem))


@pytest.mark.slow
def test_legal_plans_are_counted_and_drawn_without_being_listed(study, oracle):
    legal = study.space.plans(study.scenario)
    table = np.stack(list(legal.values()), axis=-1)
    assert oracle.plans == study.space.size(study.scenario) == len(table) > 2000
    drawn = np.stack(list(oracle.columns(oracle.sample(np.random.default_rng(1), 500)).values()), axis=-1)
    assert len(np.unique(drawn, axis=0)) == len(drawn) > 450
    assert {*map(tuple, drawn.tolist())} <= {*map(tuple, table.tolist())}
    every = np.stack(list(oracle.columns(oracle.sample(np.random.default_rng(1), 10**6)).values()), axis=-1)
    assert np.array_equal(np.unique(every, axis=0), np.unique(table, axis=0))


@pytest.mark.slow
def test_groups_hold_their_plans(study, oracle):
    legal = np.stack(list(study.space.plans(study.scenario).values()), axis=-1)
    exact = oracle.model.evaluate(legal, np.empty((len(legal), 0)), 1.0, slopes=False).exact
    group = oracle.roots
    for _ in range(len(oracle.fields)):
        low, _ = oracle.values(group, np.empty((len(group), 0)))
        first, last = (np.stack([ends[n] for n in oracle.fields], axis=-1) for ends in oracle.ends(group))
        inside = np.stack([np.all((a <= legal) & (legal <= b), axis=-1) for a, b in zip(first, last, strict=True)])
        assert np.array_equal(inside.sum(axis=1), oracle.weight(group))
        least = np.stack([np.where(inside, row, np.inf).min(axis=1) for row in exact.T], axis=-1)
        assert np.all(low <= least)
        some = np.random.default_rng(len(group)).permutation(group)[:60]
        group = oracle.split(some)[0]
    assert oracle.single(group).all()
    assert np.array_equal(np.unique(oracle.split(oracle.roots)[1]), np.arange(len(oracle.roots)))


@pytest.fixture(scope="module")
def proof(study):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_relaxation, "WORTH_RANGES", 1)
        assert isinstance(oracle_for(study.problem, rows_of(study.problem), 512, ranges=True), RangeOracle)
        trace = Certified(gap=1e-3).run(study.problem, 0)
    assert trace.evidence is not None
    counts = {name: len(next(iter(columns.values()))) for name, columns in trace.evidence.tables.items()}
    header = json.loads(json.dumps(trace.evidence.header | {"counts": counts}))
    return trace, header, trace.evidence.tables


@pytest.mark.slow
def test_a_proof_by_ranges_is_what_evaluation_of_all_plans_says(study, proof):
    trace = proof[0]
    least = goals_that_fit(study.problem, study.space.plans(study.scenario)).min()
    certificate = trace.certificate
    assert certificate.certified
    assert certificate.bound <= least * (1 + 1e-12)
    assert certificate.best == pytest.approx(least, rel=1e-3)
    assert trace.counts["plans"] == study.space.size(study.scenario)


def checked(study, header, tables):
    problem = VerifiedProblem(study.scenario, study.space, study.objective, study.objective.goal)
    certificate = derivation_of(header, tables)
    return verify(problem, certificate.claim, certificate, 2000, 0)


@pytest.mark.slow
def test_a_proof_by_ranges_is_verified_and_no_part_of_it_can_be_missing(study, proof):
    _, header, tables = proof
    answer = checked(study, header, tables)
    assert answer.verified, answer.line
    assert answer.numbers["plans"] == study.space.size(study.scenario)
    assert any("the inequality of its node held at" in check for check in answer.checks)
    problem = VerifiedProblem(study.scenario, study.space, study.objective, study.objective.goal)
    certificate = derivation_of(header, tables)
    model = CheckedModel(problem)
    opened = np.flatnonzero((certificate.low < certificate.high).any(axis=1))
    everything = np.ones(len(certificate.low), dtype=bool)
    for lost in opened[:2].tolist():
        some = everything.copy()
        some[lost] = False
        part = dataclasses.replace(
            certificate, low=certificate.low[some], high=certificate.high[some], best=certificate.best[:, some]
        )
        with pytest.raises(Refuted, match="legal plans"):
            cover(part, problem, model)
    twice = [np.concatenate([each, each[..., opened[:1], :]], axis=-2) for each in (certificate.low, certificate.high)]
    with pytest.raises(Refuted, match="stand for the same plans"):
        cover(dataclasses.replace(certificate, low=twice[0], high=twice[1]), problem, model)
    closed = certificate.low[opened[0]].copy()
    within = [np.concatenate([each, closed[None]]) for each in (certificate.low, certificate.high)]
    with pytest.raises(Refuted, match="another node stands for some of its plans"):
        cover(dataclasses.replace(certificate, low=within[0], high=within[1]), problem, model)


@pytest.mark.slow
def test_a_group_by_ranges_with_too_high_a_bound_is_refused(study, proof):
    _, header, tables = proof
    claim = header["claim"] | {"bound": header["claim"]["best"] * (1 - 1e-6)}
    claim["gap"] = math.expm1(math.log(claim["best"]) - math.log(claim["bound"]))
    answer = checked(study, header | {"claim": claim}, tables)
    assert not answer.verified
    assert "claimed is" in answer.line
    name = next(n for n in header["plan"] if (tables["nodes"][f"high.{n}"] > tables["nodes"][f"low.{n}"]).any())
    less = {n: column.copy() for n, column in tables["nodes"].items()}
    at = int(np.argmax(less[f"high.{name}"] > less[f"low.{name}"]))
    less[f"low.{name}"][at] += 1
    with pytest.raises(Refuted, match="leaves some values of a field open"):
        derivation_of(header, tables | {"nodes": less})


def test_rules_joined_from_few_values_on_keep_what_all_of_them_keep(study):
    rules = Rules({name: np.asarray(each, float) for name, each in study.space.lists.items()}, study.scenario)
    numbers, refused = rules.of_all(10**7)
    assert refused == {}
    assert rules.tables.total == len(numbers)
    places = np.unravel_index(numbers, [len(each) for each in study.space.lists.values()])
    for field, at in enumerate(places):
        assert rules.tables.possible(field).tolist() == np.unique(at).tolist()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bound_too_far_off_for_a_number_is_none_in_the_history(sign):
    """First ranges of a large space may be as wide as 10^2000, and verification refuses a bound of 0 or of infinity."""
    lows = [-math.inf, -5000.0, -1e-4]
    bounding = types.SimpleNamespace(history=[(float(second), 0.0, low) for second, low in enumerate(lows)])
    outcome = types.SimpleNamespace(upper=0.0, lower=-1e-4, stopped="", bounding=bounding)
    verdict = types.SimpleNamespace(convex=True, reason="", pairs=0, worst={}, unproven=())
    certificate = certificate_of(GoalQuantity("time_s", sign), verdict, outcome)
    assert [row[2] for row in certificate.history] == [None, None, pytest.approx(math.exp(-1e-4 * sign))]
    check_history(certificate)
