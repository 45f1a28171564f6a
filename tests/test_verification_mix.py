"""`codesign verify` on mixes: honest proofs are verified, lies are refused by the line that names them."""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
from builders import gpt3, training
from scipy.optimize import linprog

from codesign.commands.left_files import read_evidence, write_evidence
from codesign.commands.verify import answer_of_mix, problem_of_mix, same_claim
from codesign.search import Cases, Certificate, Mix, MixEntry, Problem, Trace, Uncertain
from codesign.search.blend import HOW
from codesign.search.blend import Blend as Searched
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective
from codesign.verification import Answer, ConfiguredMix
from codesign.verification.goals_blended import CheckedBlend
from codesign.verification.mix_bound import PlanCuts, bounded
from codesign.verification.model_answers import CheckedModel

pytestmark = pytest.mark.slow

TARGETS = ("energy_j",)
SPACE = DesignSpace(
    plan={"tp": [2, 4, 8], "pp": [4, 8], "recompute": ["none", "full"], "micro_batch": [1, 2]},
    hardware={
        "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 50e9, 3600e9),
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 10e9, 160e9),
    },
)
Stored = tuple[dict, dict]


def problem(limit: float, batch: float, layers: float) -> Problem:
    scenario = training(model=gpt3(layers=layers))
    scenario = dataclasses.replace(scenario, workload=dataclasses.replace(scenario.workload, global_batch=batch))
    return Problem(scenario, SPACE, Objective("usd_per_million_tokens", limits={"time_s": limit}))


PROBLEMS = {"short": problem(9.0, 512.0, 96.0), "small": problem(20.0, 1024.0, 48.0)}  # want memory in other plans


def mix_of(how: str, relative: bool = False) -> Mix:
    entries = {"short": MixEntry(weight=2.0), "small": MixEntry()}
    return Mix(entries, aggregate=how, relative=relative, gap=2e-3, convexity_samples=64).bound(PROBLEMS)


def asked_by(mix: Mix) -> ConfiguredMix:
    asked = problem_of_mix(mix, 0)
    few = {name: dataclasses.replace(one, targets=TARGETS) for name, one in asked.workloads.items()}
    return dataclasses.replace(asked, workloads=few)


@pytest.fixture(scope="module")
def models() -> list[CheckedModel]:
    """One program: the scenario is an argument."""
    first = CheckedModel(next(iter(asked_by(mix_of("sum")).workloads.values())))
    second = copy.copy(first)
    second.problem = asked_by(mix_of("sum")).workloads["small"]
    return [first, second]


def kept(trace: Trace, folder) -> Stored:
    assert trace.evidence is not None
    write_evidence(trace.evidence, folder)
    result = read_evidence(folder)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def solved() -> dict[str, Trace]:
    return {}


def trace_of(how: str, solved: dict[str, Trace]) -> Trace:
    if how not in solved:
        solved[how] = mix_of(how, how == "worst").run(PROBLEMS["short"], 0)
    return solved[how]


def answer(
    how: str, trace: Trace, stored: Stored | None, models: list[CheckedModel], attack: int = 0, **claimed
) -> Answer:
    asked = asked_by(mix_of(how, how == "worst"))
    said = Certificate.from_json(trace.certificate.as_plain() | claimed)
    return answer_of_mix(asked, said, stored, attack, 0, lambda stage, done, total: None, same_claim, models)


@pytest.mark.parametrize("how", HOW)
def test_an_honest_mix_is_verified(how, solved, models, tmp_path):
    trace = trace_of(how, solved)
    assert trace.certificate.certified, trace.claim
    told = answer(how, trace, kept(trace, tmp_path), models, 4000 if how == "worst" else 0)
    assert told.verified, told.line
    assert told.line.startswith(f"verified: no {how} of 2 goals")
    assert told.numbers["plans"] == 48
    assert told.numbers["bound"] >= trace.certificate.bound * (1 - 1e-8)
    assert not told.numbers.get("trusted")
    assert told.numbers["best_of_attack"] >= trace.certificate.bound * (1 - 1e-9)
    assert told.numbers["best_of_attack"] <= trace.certificate.best * (1 + 1e-5)  # it polishes a sample of its own


@pytest.fixture
def honest(solved, tmp_path) -> tuple[Trace, Stored]:
    """Relative goals, rounds of duals and tuples that they leave; every test tampers with a copy of its own."""
    trace = trace_of("worst", solved)
    header, tables = kept(trace, tmp_path)
    return trace, (copy.deepcopy(header), {name: dict(columns) for name, columns in tables.items()})


def test_a_bound_that_is_too_good_is_refused(honest, models):
    trace, (header, tables) = honest
    best, bound = trace.certificate.best, trace.certificate.bound
    better = 0.9 * best + 0.1 * bound
    lie = {"bound": better, "gap": best / better - 1}
    header["claim"] |= lie
    told = answer("worst", trace, (header, tables), models, **lie)
    assert "plans that reach less than is claimed have no weights" in told.line
    assert f"summary.json claims bound {bound}" in answer("worst", trace, (header, tables), models).line
    lie = {"bound": 1.01 * bound, "gap": best / (1.01 * bound) - 1}
    header["claim"] |= lie
    assert "is better than the claimed bound" in answer("worst", trace, (header, tables), models, **lie).line


def test_lies_about_duals_are_named(honest, models):
    trace, (header, tables) = honest

    def told(number: int, key: str, change) -> str:
        rounds = copy.deepcopy(header["rounds"])
        rounds[number][key] = change(np.array(rounds[number][key])).tolist()
        return answer("worst", trace, (header | {"rounds": rounds}, tables), models).line

    assert "round 1: the workloads' prices on hardware add to 0.1, not to zero" in told(1, "slopes", lambda m: m + 0.05)
    moved = told(0, "slopes", lambda m: m + np.array([[0.5], [-0.5]]))  # they add to zero, and prove less
    assert moved.startswith("not verified: ")
    assert "shares of the blend's tangents are negative" in told(0, "shares", lambda shares: 0.9 * shares)
    assert "round 0: points is not finite" in told(0, "points", lambda points: points * np.nan)
    assert "slopes has shape" in told(0, "slopes", lambda m: m[:1])
    few = header | {"rounds": header["rounds"][1:]}
    assert "does not exist, there are" in answer("worst", trace, (few, tables), models).line
    other = header | {"offset": [value + 0.01 for value in header["offset"]]}
    assert "offset is not the log of what" in answer("worst", trace, (other, tables), models).line


def test_lies_about_weights_and_plans_are_named(honest, models):
    trace, (header, tables) = honest
    cuts, nodes = tables["cuts"], tables["nodes"]

    def told(counts: dict | None = None, **changed) -> str:
        there = header | {"counts": header["counts"] | (counts or {})}
        return answer("worst", trace, (there, tables | changed), models).line

    half = np.where(cuts["row"] == 0, 0.5 * cuts["weight"], cuts["weight"])
    assert "the goal's weights add to 0.5, not to 1" in told(cuts=cuts | {"weight": half})
    assert "its multiplier is negative" in told(cuts=cuts | {"weight": -cuts["weight"]})
    last = len(nodes["workload"]) - 1
    own, seen = cuts["node"] < last, tables["tangents"]["node"] < last
    fewer = {
        "nodes": {name: column[:last] for name, column in nodes.items()},
        "cuts": {name: column[own] for name, column in cuts.items()},
        "tangents": {name: column[seen] for name, column in tables["tangents"].items()},
    }
    counts = {name: len(next(iter(columns.values()))) for name, columns in fewer.items()}
    assert "small: 1 of 24 legal plans are in no node; the first: tp " in told(counts, **fewer)
    kept_cuts = cuts["node"] > 0
    fewer = {"cuts": {name: column[kept_cuts] for name, column in cuts.items()}}
    told_of = told({"cuts": int(kept_cuts.sum())}, **fewer)
    assert "short, round 0: 1 plans that reach less than is claimed have no weights; the first: node 0 (tp " in told_of


def test_other_designs_are_refused(honest, models):
    trace, stored = honest

    def told(k: int, key: str, **change) -> str:
        rows = trace.certificate.as_plain()["workloads"]
        rows[k][key] = rows[k][key] | change if isinstance(rows[k][key], dict) else change["value"]
        return answer("worst", trace, stored, models, workloads=rows).line

    assert "small: its design: it breaks a constraint by" in told(1, "design", hbm=11e9)
    assert "short: its design has usd_per_million_tokens" in told(0, "value", value=0.5)
    assert "small: its own best design has usd_per_million_tokens" in told(1, "own_best", value=0.5)
    assert "is outside 1e+10 to 1.6e+11" in told(0, "design", hbm=1e9)
    shown = {"var.hbm": 2 * trace.certificate.workloads[0].design["hbm"]}
    told_of = answer_of_mix(
        asked_by(mix_of("worst", relative=True)), trace.certificate, stored, 0, 0, lambda stage, done, total: None,
        same_claim, models, shown,
    )  # fmt: skip
    assert "designs.parquet: the best design has hbm" in told_of.line
    assert "but no designs are kept" in answer("worst", trace, stored, models, workloads=[]).line


def test_the_attack_finds_tuples_below_a_false_bound(solved, models):
    trace = trace_of("log_sum", solved)
    lie = {"best": None, "gap": None, "bound": 1.005 * trace.certificate.best, "workloads": []}
    told = answer("log_sum", trace, None, models, 20_000, **lie)
    assert not told.verified
    assert "but feasible designs have 0.55" in told.line
    assert "; small: usd_per_million_tokens 0.3" in told.line


def test_a_mix_of_uncertain_constants_is_verified_in_every_case(models, tmp_path):
    """Each workload's goal is the worst over the cases; without one of these the same evidence proves nothing."""
    cases = Cases({"price": Uncertain("cluster.accelerator.hbm.usd_per_byte", (0.5, 2.0))})
    mix = dataclasses.replace(mix_of("sum"), cases=cases)
    trace = mix.run(PROBLEMS["short"], 0)
    assert trace.certificate.certified
    stored = kept(trace, tmp_path)

    def told(mix: Mix) -> str:
        asked, there = asked_by(mix), [copy.copy(model) for model in models]
        for model, one in zip(there, asked.workloads.values(), strict=True):
            model.problem = one
        silent = lambda stage, done, total: None  # noqa: E731
        return answer_of_mix(asked, trace.certificate, stored, 2000, 0, silent, same_claim, there).line

    assert told(mix).startswith("verified: no sum of 2 goals")
    fewer = Cases({"price": Uncertain("cluster.accelerator.hbm.usd_per_byte", (0.5,))})
    assert told(dataclasses.replace(mix, cases=fewer)).startswith("not verified: ")


def test_that_a_workload_has_no_design_alone_is_verified(models, tmp_path):
    """One workload asks for what no plan can do: the mix has no design, and the weights of its limits say why."""
    hopeless = dataclasses.replace(
        PROBLEMS["small"], objective=Objective("usd_per_million_tokens", limits={"time_s": 1e-3})
    )
    mix = mix_of("sum").bound(PROBLEMS | {"small": hopeless})
    trace = mix.run(PROBLEMS["short"], 0)
    assert trace.claim == "no feasible design: small has none alone"
    stored, asked = kept(trace, tmp_path), asked_by(mix)
    there = [models[0], CheckedModel(asked.workloads["small"])]  # limits are part of its program

    def told(said: Certificate) -> str:
        return answer_of_mix(asked, said, stored, 500, 0, lambda *_: None, same_claim, there).line

    assert told(trace.certificate).startswith("verified: no design of ")
    assert told(trace.certificate).endswith("keeps all constraints (of small alone)")
    assert "does not say that 'small' has no feasible design" in told(
        dataclasses.replace(trace.certificate, alone_infeasible=())
    )
    there[1] = models[1]  # which has time enough
    assert told(trace.certificate).startswith("not verified: ")


@pytest.mark.parametrize("how", HOW)
def test_blends_agree_with_those_of_the_search(how):
    rng = np.random.default_rng(0)
    weights, offset = np.array([1.0, 2.0, 1.0]), np.array([0.5, -1.0, 0.0])
    own, searched = CheckedBlend(how, weights, 0.4, offset), Searched(how, weights, 0.4, offset)
    logs = 2 * rng.normal(size=(50, 3))
    assert own.value(logs) == pytest.approx(searched.value(logs), abs=1e-12)
    constant, slopes = own.mean(list(logs[:5]), np.full(5, 0.2))
    assert (constant + logs @ slopes <= own.value(logs) + 1e-12).all()


def cuts_of(rng: np.random.Generator, plans: int, each: int) -> PlanCuts:
    """Plans that are good at hardware of their own: tangents of a bowl, and a limit that cuts a corner off."""
    best, plan = rng.uniform(size=(plans, 2)), np.repeat(np.arange(plans), each)
    u = rng.uniform(size=(plans * each, 2))
    slope = np.stack([2 * (u - best[plan]), np.broadcast_to([-1.0, -1.0], u.shape)], axis=1)
    goal = ((u - best[plan]) ** 2).sum(axis=1) + 0.05 * rng.uniform(size=plans)[plan]
    return PlanCuts(plans, plan, u, np.stack([goal, 0.4 - u.sum(axis=1)], axis=-1), slope)


@pytest.mark.parametrize("how", ["log_sum", "worst"])
def test_tuples_left_are_bounded_as_each_solved_for_itself(how):
    rng = np.random.default_rng(3)
    cuts = [cuts_of(rng, 6, 4) for _ in range(3)]
    blend = CheckedBlend(how, np.array([1.0, 2.0, 1.0]), 1.0, np.zeros(3))
    points = np.zeros((1, 3)) if how == "log_sum" else np.eye(3)
    best = min(least_of(cuts, chosen, blend) for chosen in itertools.product(range(6), repeat=3))
    proven = bounded(cuts, blend, points, best - 1e-5, lambda done, total: None)
    assert proven.bound >= best - 1e-5
    assert not proven.trusted
    assert proven.parts > 1
    lie = bounded(cuts, blend, points, best + 1e-3, lambda done, total: None, most=60)
    assert lie.bound == pytest.approx(best, abs=1e-5)
    assert lie.trusted


def least_of(cuts: list[PlanCuts], chosen: tuple[int, ...], blend: CheckedBlend) -> float:
    """The least blended goal of one tuple: of hardware, goals, and the blend of these."""
    upper, right = [], []
    for k, (each, plan) in enumerate(zip(cuts, chosen, strict=True)):
        for i in np.flatnonzero(each.plan == plan):
            for row in range(2):
                goals = np.where(np.arange(3) == k, -1.0, 0.0) if row == 0 else np.zeros(3)
                upper.append(np.concatenate([each.slope[i, row], goals, [0.0]]))
                right.append(-each.constant[i, row])
    for slope in [blend.weights / blend.weights.sum()] if blend.how == "log_sum" else np.eye(3):
        upper.append(np.concatenate([[0.0, 0.0], slope, [-1.0]]))
        right.append(0.0)
    edges = [(0.0, 1.0)] * 2 + [(None, None)] * 4
    result = linprog(np.append(np.zeros(5), 1.0), np.array(upper), right, bounds=edges)
    return result.fun if result.status == 0 else np.inf
