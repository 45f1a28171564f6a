"""`codesign verify` of uncertain constants: proofs hold over all cases, and lies about bounds or cases are named."""

import copy
import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from builders import training

from codesign.commands.left_files import read_evidence, write_evidence
from codesign.commands.verify import _check_frame, cases_of, check_robust_summary, check_shown
from codesign.commands.verify import problem_of as asked_of_study
from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import get_path, replace
from codesign.model.metrics import evaluate
from codesign.report.run_folder import RunFolder
from codesign.search import Cases, Certificate, Certified, Problem, Robust, Trace, Uncertain
from codesign.search.blend import Blend
from codesign.search.results import designs
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective
from codesign.verification import Answer, Refuted, VerifiedProblem, derivation_of, verify
from codesign.verification.attack import Attack, aims_of
from codesign.verification.bound_check import described
from codesign.verification.model_answers import CheckedModel

GOAL = "capex_usd * provisioned_power_w ** 0.5"  # the model's times are not compiled for these tests
SPACE = DesignSpace(
    plan={"pp": [4, 8], "recompute": ["none", "full"], "offload_optimizer": [0, 1]},
    hardware={
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 8e9, 300e9),
        "ddr": Continuous("cluster.host.memory.capacity_bytes", 16e9, 900e9),
    },
)  # fmt: skip
PROBLEM = Problem(training(), SPACE, Objective(GOAL, limits={"capex_usd": 80e6}))
PRICE = "cluster.accelerator.hbm.usd_per_byte"
UNCERTAIN = {
    "hbm_price": Uncertain(PRICE, (0.5, 30.0)),
    "rest": Uncertain("cluster.accelerator.hbm.reserved_bytes", (1.0, 2.5), ("cluster.host.memory.usd_per_byte",)),
}
PROOF = Certified(gap=1e-3, convexity_samples=8, batch_size=64, explain=False)
STUDIES = {
    "worst": Robust(Cases(UNCERTAIN), "worst", proof=PROOF),
    "cvar": Robust(Cases(UNCERTAIN, samples=3), "cvar", 0.5, PROOF),
    "sum": Robust(Cases(UNCERTAIN), "sum", proof=PROOF),
    "log_sum": Robust(Cases(UNCERTAIN, samples=2), "log_sum", proof=PROOF),
}
SEED = 5


def asked_of(search: Robust) -> VerifiedProblem:
    cases = cases_of(PROBLEM, search.cases, search.aggregate, search.tail, SEED)
    return VerifiedProblem(PROBLEM.scenario, SPACE, PROBLEM.objective, GOAL, targets=(), cases=cases)


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {how: search.run(PROBLEM, SEED) for how, search in STUDIES.items()}


@pytest.fixture(scope="module")
def nominal() -> CheckedModel:
    return CheckedModel(asked_of(STUDIES["worst"]).nominal)


def model_of(asked: VerifiedProblem, nominal: CheckedModel) -> CheckedModel:
    """The same programs: scenarios are an argument of both."""
    model = copy.copy(nominal)
    model.problem = asked
    return model


@pytest.fixture
def kept(traces, tmp_path):
    """As a run folder keeps it."""

    def kept(how: str) -> tuple[dict, dict]:
        write_evidence(traces[how].evidence, tmp_path)
        result = read_evidence(tmp_path)
        assert result is not None
        return result

    return kept


def answer_of(stored: tuple[dict, dict], search: Robust, nominal: CheckedModel, attack: int = 0) -> Answer:
    certificate, asked = derivation_of(*stored), asked_of(search)
    return verify(asked, certificate.claim, certificate, attack, 0, model=model_of(asked, nominal))


@pytest.mark.slow
@pytest.mark.parametrize("how", STUDIES)
def test_an_honest_proof_over_cases_is_verified(how, traces, kept, nominal):
    trace, search = traces[how], STUDIES[how]
    answer = answer_of(kept(how), search, nominal, 512)
    assert answer.verified, answer.line
    assert answer.line.startswith(f"verified: no {GOAL} below")
    assert answer.numbers["bound"] == pytest.approx(trace.certificate.bound, rel=1e-8)
    assert answer.numbers["best_of_attack"] == pytest.approx(trace.certificate.best, rel=1e-2)
    assert answer.numbers["held"] > 300
    count = len(trace.certificate.robust.cases)
    assert any(text.startswith(f"designs are judged in {count} cases: {GOAL} is ") for text in answer.checks)


@pytest.mark.parametrize("how", STUDIES)
def test_blended_tangents_lie_below_the_blended_rows(how, nominal):
    """At random designs, for blunt and sharp maxima; the blend is that of the search, which is other code."""
    asked = asked_of(STUDIES[how])
    assert asked.cases is not None
    model, rng, count = model_of(asked, nominal), np.random.default_rng(1), 64
    plan = np.stack([rng.choice(values, count) for values in asked.lists.values()], axis=-1)
    at, u = rng.uniform(size=(2, count, len(model.variables)))
    value, slope = model.tangents(plan, at, np.exp(rng.uniform(0.0, 10.0, count)))
    rows = model.exact(plan, u).rows
    below = value + np.einsum("prv,pv->pr", slope, u - at)
    assert (below <= rows + 1e-9).all()
    assert (value <= model.exact(plan, at).rows + 1e-9).all()
    assert np.array_equal(model.holds(plan, u).all(axis=0), model.exact(plan, u).feasible)
    assert np.array_equal(model.holds(plan, u, 1)[0], model.holds(plan, u)[1])
    each = [nominal._tabled(one, plan[:, _order(nominal)], u, np.ones(count)) for one in asked.scenarios]
    goals = np.stack([result.exact[:, nominal._order[0]] for result in each], axis=-1)
    blend = Blend(asked.cases.how, np.ones(len(each)), asked.cases.tail)
    assert rows[:, 0] == pytest.approx(blend.value(goals), abs=1e-12)
    assert np.ptp(goals, axis=1).min() > 0.01
    assert ("harmonic" in asked.cases.words(-1.0)) == (how in ("sum", "cvar"))


def _order(model: CheckedModel) -> list[int]:
    return [model.fields.index(name) for name in model.program.fields]


@pytest.mark.slow
def test_a_bound_raised_by_a_percent_is_refused(kept, nominal):
    header, tables = kept("worst")
    claim = header["claim"] | {"bound": header["claim"]["bound"] * 1.01}
    assert "apart, claimed is" in answer_of((header | {"claim": claim}, tables), STUDIES["worst"], nominal).line
    claim |= {"best": None, "gap": None, "design": {}}
    told = answer_of((header | {"claim": claim}, tables), STUDIES["worst"], nominal).line
    assert told.startswith("not verified: node")
    assert "its bound is" in told


@pytest.mark.slow
def test_a_weight_that_is_changed_is_refused(kept, nominal):
    header, tables = kept("sum")
    cuts = {name: column.copy() for name, column in tables["cuts"].items()}
    goal = np.flatnonzero(cuts["row"] == 0)
    cuts["weight"][goal[-1]] *= 1.01
    told = answer_of((header, tables | {"cuts": cuts}), STUDIES["sum"], nominal).line
    assert "the goal's weights add to 1.0" in told
    cuts["weight"][goal] = tables["cuts"]["weight"][goal]
    cuts["weight"][cuts["row"] > 0] *= 0.5
    told = answer_of((header, tables | {"cuts": cuts}), STUDIES["sum"], nominal).line
    assert told.startswith("not verified: node")
    assert "its bound is" in told or "do not rule it out" in told


def test_a_case_left_out_is_refused(traces, kept, nominal):
    """A study of fewer cases has better designs than those that all cases allow, and `summary.json` tells of more."""
    stored, claimed = kept("worst"), traces["worst"].certificate
    few = UNCERTAIN | {"hbm_price": Uncertain(PRICE, (0.5,))}
    search = dataclasses.replace(STUDIES["worst"], cases=Cases(few))
    claim = derivation_of(*stored).claim
    with pytest.raises(
        Refuted, match=r"tells of 4 cases by how = worst, .*; the study asks for 2 cases by how = worst"
    ):
        check_robust_summary(asked_of(search), search, SEED, claimed, claim)
    told = answer_of(stored, search, nominal).line
    assert told.startswith(f"not verified: best design: {GOAL} is ")
    header, tables = stored
    bare = header["claim"] | {"best": None, "gap": None, "design": {}}
    assert "its bound is" in answer_of((header | {"claim": bare}, tables), search, nominal).line
    fewer = dataclasses.replace(derivation_of(*stored).claim, best=None, gap=None, design={})
    asked = asked_of(search)
    told = verify(asked, fewer, None, 512, 0, model=model_of(asked, nominal)).line
    assert f"claimed is that no design's {GOAL} is below" in told
    assert "of 2, which has " in told
    assert f" {PRICE}=" in told


@pytest.mark.slow
def test_a_refuting_design_has_the_value_that_it_is_said_to_have_in_its_case(traces, nominal):
    """The words are those of `codesign evaluate`: leaves of the case, hardware and plan."""
    asked = asked_of(STUDIES["worst"])
    attack = _attack(asked, nominal)
    place = [1, 0, 1]
    text = described(asked, attack.lists, np.array(place), np.array([0.9, 0.9]))
    said = float(text.split("which has ")[1].split(",")[0])
    words = dict(word.split("=") for word in text.rpartition("): ")[2].split())
    leaves = {name: float(value) for name, value in words.items() if name.startswith("cluster.")}
    plan = {f"plan.{name}": float(asked.lists[name][at]) for name, at in zip(asked.lists, place, strict=True)}
    metrics = evaluate(replace(PROBLEM.scenario, leaves | plan))
    assert float(PROBLEM.objective.value(metrics, GOAL)) == pytest.approx(said, rel=1e-8)
    assert leaves[PRICE] in (
        0.5 * float(get_path(PROBLEM.scenario, PRICE)),
        30 * float(get_path(PROBLEM.scenario, PRICE)),
    )


def _attack(asked: VerifiedProblem, nominal: CheckedModel) -> Attack:
    model = model_of(asked, nominal)
    return Attack(
        model, list(asked.lists.values()), *[np.zeros((1, 3), dtype=int)] * 3,
        lambda rows: np.full(len(rows), -math.inf), aims_of(model),
    )  # fmt: skip


def test_what_the_run_says_of_its_cases_is_checked(traces, kept, tmp_path):
    trace, search = traces["cvar"], STUDIES["cvar"]
    asked, claim = asked_of(search), derivation_of(*kept("cvar")).claim
    check_robust_summary(asked, search, SEED, trace.certificate, claim)
    frame = designs(PROBLEM, trace, SEED)
    _check_frame(asked, RunFolder(tmp_path, {}, frame), claim)
    told = trace.certificate.as_plain()
    told["robust"]["cases"][1]["goal"] *= 1.001
    with pytest.raises(Refuted, match=r"^summary\.json: case 2 has goal .*, not "):
        check_robust_summary(asked, search, SEED, Certificate.from_json(told), claim)
    with pytest.raises(Refuted, match=r"^summary\.json: case 1 has hbm_price .*, not "):
        check_robust_summary(asked, search, SEED + 1, trace.certificate, claim)  # other random cases
    others = frame[~np.isclose(frame["var.hbm"], claim.design["hbm"], rtol=1e-6)]
    with pytest.raises(Refuted, match=r"^designs\.parquet does not have the design that is claimed to be the best"):
        check_shown(RunFolder(tmp_path, {}, pd.DataFrame(others).reset_index(drop=True)), claim)
    with pytest.raises(Refuted, match=r"feasible in every case, claimed is that there is none"):
        _check_frame(asked, RunFolder(tmp_path, {}, frame), dataclasses.replace(claim, infeasible=True, design={}))


def test_cases_are_rebuilt_from_the_configuration():
    study = study_from_config(
        "search=robust", "search.aggregate=cvar", "search.tail=0.5", "search.cases.samples=3", "seed=7"
    )
    cases = asked_of_study(study).cases
    assert cases is not None
    assert (len(cases.every), cases.how, cases.tail) == (3, "cvar", 0.5)
    assert isinstance(study.search, Robust)
    price, factors = "cluster.accelerator.price_usd", study.search.cases.factors(7)[:, 0]
    nominal = float(get_path(study.scenario, price))
    assert [case.moved[price] for case in cases.every] == pytest.approx(list(factors * nominal))
    assert [float(get_path(one, price)) for one in cases.scenarios] == pytest.approx(list(factors * nominal))


def test_cases_that_cannot_be_rebuilt_are_refused():
    search = dataclasses.replace(STUDIES["sum"], cases=Cases({"hbm": Uncertain(PRICE + "x", (0.9, 1.1))}))
    with pytest.raises(ConfigError, match=r"search\.cases\.uncertain\.hbm: "):
        cases_of(PROBLEM, search.cases, search.aggregate, search.tail, 0)
