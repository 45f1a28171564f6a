"""`codesign verify`: an honest proof is verified, a lie is refused by the line that names it."""

import copy
import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from builders import gpt3, training

from codesign.commands.cli import main
from codesign.commands.left_files import read_evidence, write_evidence
from codesign.search import Certified, Problem, Trace
from codesign.search.branch_and_bound.node_relaxation import GroupOracle
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.search.certificate import GoalQuantity
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective
from codesign.verification import AttackEffort, Derivation, Refuted, VerifiedProblem, derivation_of, verify
from codesign.verification.derivation import FEWEST
from codesign.verification.inequality import derive, lower_of
from codesign.verification.model_answers import CheckedModel

TARGETS = ("capex_usd", "provisioned_power_w")  # the model's times are not compiled for these tests
GOAL = "capex_usd * provisioned_power_w ** 0.5"
SPACE = DesignSpace(
    plan={"pp": [4, 5, 8, 16], "zero": [0, 1], "recompute": ["none", "full"], "offload_optimizer": [0, 0.25, 0.5, 1]},
    hardware={
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 8e9, 300e9),
        "ddr": Continuous("cluster.host.memory.capacity_bytes", 16e9, 600e9),
        "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9),
    },
)  # fmt: skip
PROBLEM = Problem(training(), SPACE, Objective(GOAL, limits={"capex_usd": 60e6}))
ASKED = VerifiedProblem(
    *(getattr(PROBLEM, name) for name in ("scenario", "space", "objective")), goal=GOAL, targets=TARGETS
)
Stored = tuple[dict, dict]


@pytest.fixture(scope="module")
def oracle() -> GroupOracle:
    """Over groups: recomputation and offloading are ordered; stages are not, five of them are not legal."""
    return GroupOracle(PROBLEM, rows_of(PROBLEM), block=64)


@pytest.fixture(scope="module")
def trace(oracle: GroupOracle) -> Trace:
    return Certified(convexity_samples=64, explain=False).search(oracle, GoalQuantity(GOAL), 0)


@pytest.fixture(scope="module")
def model() -> CheckedModel:
    return CheckedModel(ASKED)


@pytest.fixture
def stored(trace, tmp_path) -> Stored:
    """As a run folder keeps it; every test tampers with a copy of its own."""
    write_evidence(trace.evidence, tmp_path)
    result = read_evidence(tmp_path)
    assert result is not None
    return result


def answer_of(stored: Stored, model: CheckedModel, asked: VerifiedProblem = ASKED, attack: int = 0) -> str:
    try:
        certificate: Derivation | Refuted = derivation_of(*stored)
    except Refuted as result:
        return f"not verified: {result}"
    return verify(asked, certificate.claim, certificate, attack, 0, model=model).line


def tightest(stored: Stored, model: CheckedModel) -> int:
    """The node whose bound is the claim."""
    certificate = derivation_of(*stored)
    return int(np.argmin(lower_of(certificate, derive(certificate, model, lambda done, total: None))))


@pytest.mark.slow
def test_an_honest_proof_is_verified(trace, stored: Stored, model: CheckedModel):
    certificate = derivation_of(*stored)
    assert (certificate.low < certificate.high).any()  # groups
    answer = verify(ASKED, certificate.claim, certificate, 4096, 1, model=model)
    assert answer.verified, answer.line
    assert answer.line.startswith(f"verified: no {GOAL} below")
    assert answer.numbers["plans"] == 48
    assert answer.numbers["bound"] == pytest.approx(trace.certificate.bound, rel=1e-8)
    assert answer.numbers["best_of_attack"] == pytest.approx(trace.certificate.best, rel=1e-3)
    assert answer.numbers["held"] > 4000
    assert any("convex by the rules of curvature" in text for text in answer.checks)
    assert answer.numbers["directions_tested"] == 0
    assert answer.numbers["directions_proven"] > 0


@pytest.mark.slow
def test_that_nothing_is_feasible_is_verified(oracle: GroupOracle, model: CheckedModel):
    """A model a thousand times as deep fits nowhere: weights of constraints alone rule out every node."""
    scenario = training(model=gpt3(layers=96e3))
    deep, asked = copy.copy(oracle), dataclasses.replace(ASKED, scenario=scenario)
    deep.model = copy.copy(oracle.model)
    deep.problem = deep.model.problem = dataclasses.replace(PROBLEM, scenario=scenario)
    there = copy.copy(model)  # the same programs: the scenario is an argument of both
    there.problem = asked
    trace = Certified(convexity_samples=64, explain=False).search(deep, GoalQuantity(GOAL), 0)
    assert trace.evidence is not None
    counts = {name: len(next(iter(columns.values()))) for name, columns in trace.evidence.tables.items()}
    stored = trace.evidence.header | {"counts": counts}, trace.evidence.tables
    assert stored[0]["claim"]["infeasible"]
    assert answer_of(stored, there, asked).startswith("verified: no design of 64 combinations of plan values keeps")
    assert "they do not rule it out" in answer_of(stored, model)


@pytest.mark.slow
def test_lies_about_the_numbers_are_named(stored: Stored, model: CheckedModel):
    header, tables = stored
    lies = {
        "its multiplier is negative": ("cuts", "weight", lambda column: -column),
        "does not exist, there are": ("cuts", "point", lambda column: column + 10**6),
        "lies outside the box": ("points", "u.hbm", lambda column: column + 1.5),
        "are no places of the lists": ("nodes", "high.pp", lambda column: column + 3),
        "is not finite in row 0": ("points", "sharpness", lambda column: column * np.nan),
        "holds no whole numbers": ("cuts", "node", lambda column: column + 0.5),
        "cuts.parquet has 3 and": ("cuts", "row", lambda column: column[:3]),
    }  # fmt: skip
    for words, (table, column, change) in lies.items():
        lie = {name: dict(columns) for name, columns in tables.items()}
        lie[table][column] = change(lie[table][column])
        told = answer_of((header, lie), model)
        assert told.startswith("not verified: ")
        assert words in told
    short = tables | {"points": {name: column[:-1] for name, column in tables["points"].items()}}
    assert f"points.parquet has {len(short['points']['u.hbm'])} rows" in answer_of((header, short), model)
    assert "cannot be read" in answer_of(({"claim": {}}, tables), model)


def test_a_bound_raised_by_a_percent_is_refused(stored: Stored, model: CheckedModel):
    header, tables = stored
    claim = header["claim"] | {"bound": header["claim"]["bound"] * 1.01}
    assert "apart, claimed is" in answer_of((header | {"claim": claim}, tables), model)
    claim["gap"] = claim["best"] / claim["bound"] - 1
    assert "is better than the claimed bound" in answer_of((header | {"claim": claim}, tables), model)
    claim |= {"best": None, "gap": None, "design": {}}
    told = answer_of((header | {"claim": claim}, tables), model)
    assert told.startswith("not verified: node")
    assert "its bound is" in told


def test_a_node_dropped_is_named_by_its_plan(stored: Stored, model: CheckedModel):
    header, tables = stored
    last = len(tables["nodes"]["number"]) - 1
    kept = tables["cuts"]["node"] < last
    lie = {
        "nodes": {name: column[:last] for name, column in tables["nodes"].items()},
        "points": tables["points"],
        "cuts": {name: column[kept] for name, column in tables["cuts"].items()},
    }
    counts = {"nodes": last, "points": header["counts"]["points"], "cuts": int(kept.sum())}
    told = answer_of((header | {"counts": counts}, lie), model)
    assert "of 48 legal plans are in no node; the first: pp " in told


def test_where_plans_are_too_many_combinations_are_checked(stored: Stored, model: CheckedModel, monkeypatch):
    """Six legal combinations of stages and sharding, each with all eight choices that nodes leave open."""
    from codesign.verification import coverage

    monkeypatch.setattr(coverage, "MOST_COVERED", 20)
    whole = derivation_of(*stored)
    result = coverage.cover(whole, ASKED, model)
    assert (result.plans, result.exact) == (48, False)
    few = dataclasses.replace(whole, low=whole.low[1:], high=whole.high[1:], best=whole.best[:, 1:])
    with pytest.raises(Refuted, match=r"1 combinations are not covered by nodes; the first: pp "):
        coverage.cover(few, ASKED, model)
    half = whole.high.copy()
    half[0, -1] -= 1
    with pytest.raises(Refuted, match="are not covered by nodes"):
        coverage.cover(dataclasses.replace(whole, high=half), ASKED, model)


def test_a_wrong_direction_is_named(stored: Stored, model: CheckedModel):
    """Groups taken at a value that is not best for their rows."""
    header, tables = stored
    nodes = {name: column.copy() for name, column in tables["nodes"].items()}
    for name in list(nodes):
        if name.startswith("best.") and name.endswith("offload_optimizer"):
            low, high = nodes["low.offload_optimizer"], nodes["high.offload_optimizer"]
            nodes[name] = low + high - nodes[name]
    claim = header["claim"] | {"bound": header["claim"]["bound"] * 0.01, "best": None, "gap": None, "design": {}}
    told = answer_of((header | {"claim": claim}, tables | {"nodes": nodes}), model)
    assert "is not taken where it is least" in told


def test_a_point_moved_without_its_multipliers_is_refused(stored: Stored, model: CheckedModel):
    header, tables = stored
    node = tightest(stored, model)
    point = tables["cuts"]["point"][tables["cuts"]["node"] == node]
    moved = {name: column.copy() for name, column in tables["points"].items()}
    for name in ("u.hbm", "u.ddr", "u.up"):
        moved[name][point] = 1.0 - moved[name][point]
    told = answer_of((header, tables | {"points": moved}), model)
    assert told.startswith("not verified: node")
    assert "its bound is" in told or "rule it out" in told


def test_another_best_design_is_refused(stored: Stored, model: CheckedModel):
    header, tables = stored
    claim = header["claim"]
    for change, words in (
        ({"hbm": claim["design"]["hbm"] * 1.05}, "claimed is"),
        ({"hbm": 9e9}, "it breaks a constraint by"),
        ({"hbm": 1e9}, "is outside 8e+09 to 3e+11"),
        ({"pp": 3.0}, "is not listed in space.plan"),
    ):
        lie = header | {"claim": claim | {"design": claim["design"] | change}}
        told = answer_of((lie, tables), model)
        assert told.startswith("not verified: best design: ")
        assert words in told
    told = answer_of((header | {"claim": claim | {"design": {}}}, tables), model)
    assert "is claimed, but no design is kept" in told
    told = answer_of((header | {"claim": claim | {"goal": "capex_usd"}}, tables), model)
    assert "the claim is to minimise capex_usd, the study asks to minimise" in told


@pytest.mark.slow
def test_a_bonus_beyond_a_cliff_is_refused_by_the_rules_and_by_the_attack(stored: Stored):
    """The tangents do not see a discount for those who spend more; the attack finds the designs that get it."""
    header, tables = stored
    claim = header["claim"]
    dear = float(ASKED.metrics(claim["design"] | {"hbm": 280e9}).capex_usd)

    def net(metrics):
        return ASKED.objective.value(metrics, GOAL) * jnp.where(metrics.capex_usd > dear, 0.7, 1.0)

    objective = dataclasses.replace(PROBLEM.objective, minimise="net", custom={"net": net})
    asked = dataclasses.replace(ASKED, objective=objective, goal="net")
    forced = header | {"claim": claim | {"goal": "net"}}
    model = CheckedModel(asked)
    told = answer_of((forced, tables), model, asked)
    assert told.startswith("not verified: row goal is not proven convex: gt of")
    told = verify(asked, derivation_of(forced, tables).claim, None, 20_000, 0, model=model).line
    assert told.startswith("not verified: claimed is that no design's net is below")
    assert "but a feasible design has net " in told
    assert "plan.pp=" in told


def test_a_proof_of_what_rounding_moves_is_refused(stored: Stored, monkeypatch):
    """Real arithmetic has the certified goal; float64 has steps of a factor of e, down to a third of the bound."""
    header, tables = stored

    def stepped(metrics):
        return jnp.exp((jnp.log(ASKED.objective.value(metrics, GOAL)) + 8e15) - 8e15)

    objective = dataclasses.replace(PROBLEM.objective, minimise="stepped", custom={"stepped": stepped})
    asked = dataclasses.replace(ASKED, objective=objective, goal="stepped")
    best = asked.priced(header["claim"]["design"])[0]
    claim = header["claim"] | {"goal": "stepped", "best": best}
    claim["gap"] = best / claim["bound"] - 1 if best >= claim["bound"] else None
    forged = header | {"claim": claim | ({} if claim["gap"] else {"bound": best, "gap": 0.0})}
    told = answer_of((forged, tables), CheckedModel(asked), asked)
    assert told.startswith("not verified: row goal is not proven: rounding: its log is off by")
    assert "sub at test_verification.py" in told
    trace = Certified(convexity_samples=64, explain=False, seconds=20).run(
        dataclasses.replace(PROBLEM, objective=objective), 0
    )
    assert not trace.certificate.certified
    assert trace.certificate.bound is None
    assert trace.claim.startswith("heuristic solution, no certificate: not proven: goal: rounding")


def test_folders_without_a_proof_are_told_in_one_line(tmp_path, capsys):
    from example_run import write_run

    folder = write_run(tmp_path / "run")
    assert main(["verify", str(folder)]) == 2
    assert main(["verify", str(tmp_path / "none")]) == 2
    (folder / "summary.json").write_text(json.dumps({"certificate": {"goal": "time_s", "sense": "minimise"}}))
    assert main(["verify", str(folder), "--attack", "-1"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "the searches that keep one are certified, grid_then_proof, inverse, integer, pareto, mix" in lines[0]
    assert "is not a folder" in lines[1]
    assert "--attack -1" in lines[2]


@pytest.mark.slow
def test_where_no_hardware_varies_few_designs_are_tried_and_none_by_tables(monkeypatch):
    """Each plan's bound is its own value, derived anew: tables of all plans would be a second whole pricing."""
    space = DesignSpace(plan=SPACE.plan)
    problem = dataclasses.replace(PROBLEM, space=space)
    trace = Certified(convexity_samples=64, explain=False).run(problem, 0)
    assert trace.evidence is not None
    asked = dataclasses.replace(ASKED, space=space)
    counts = {name: len(next(iter(columns.values()))) for name, columns in trace.evidence.tables.items()}
    proof = derivation_of(trace.evidence.header | {"counts": counts}, trace.evidence.tables)
    model = CheckedModel(asked)
    monkeypatch.setattr(model._tabled.tables, "of", lambda scenario: pytest.fail("priced by tables"))
    answer = verify(asked, proof.claim, proof, AttackEffort(), 0, model=model)
    assert answer.verified, answer.line
    assert FEWEST <= answer.numbers["tried"] < 2 * FEWEST
    raised = dataclasses.replace(proof.claim, bound=1.01 * proof.claim.bound, best=1.01 * proof.claim.best)
    lie = dataclasses.replace(proof, claim=raised)
    assert not verify(asked, raised, lie, AttackEffort(), 0, model=model).verified
