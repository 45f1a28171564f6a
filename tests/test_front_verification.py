"""`codesign verify` of a front: what it proves follows from what it keeps, and a lie is refused by its line."""

import copy
import dataclasses
import functools
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from builders import training

from codesign.commands.cli import main
from codesign.commands.left_files import FOLDER, HEADER, read_evidence, write_evidence
from codesign.core.untrusted_io import written
from codesign.report.run_folder import MANIFEST, noted_names
from codesign.search import Pareto, Problem, Trace
from codesign.search.front.dual_pool import Statement
from codesign.search.front.parametric_sequence import ParametricSequence, RememberingOracle
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective
from codesign.verification import Answer, Refuted, VerifiedProblem, verify_front
from codesign.verification.front_check import Statements, check_points, envelope, front_of, volume
from codesign.verification.model_answers import CheckedModel

pytestmark = pytest.mark.slow

SPACE = DesignSpace(
    plan={"tp": [4, 8], "pp": [4, 8], "zero": [0, 1], "offload_optimizer": [0, 0.25, 0.5, 1]},
    hardware={
        "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9),
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 30e9, 200e9),
    },
)  # fmt: skip
PROBLEM = Problem(training(), SPACE, Objective("time_s", limits={"capex_usd": 60e6}))
ASKED = VerifiedProblem(PROBLEM.scenario, SPACE, PROBLEM.objective, "time_s", targets=(), levelled={"capex_usd": 1.0})
Stored = tuple[dict, dict]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Pareto(("time_s", "capex_usd"), levels=4, between=3, batch_size=32, convexity_samples=96).run(PROBLEM, 0)


@pytest.fixture
def stored(trace, tmp_path) -> Stored:
    """As a run folder keeps it; every test tampers with a copy of its own."""
    write_evidence(trace.evidence, tmp_path)
    result = read_evidence(tmp_path)
    assert result is not None
    return result


@functools.cache
def model() -> CheckedModel:
    return CheckedModel(ASKED)


def answer_of(stored: Stored, attack: int = 0) -> Answer:
    return verify_front(ASKED, *stored, attack, 0, model=model())


def test_an_honest_front_is_verified(trace: Trace, stored: Stored):
    answer = answer_of(stored, 4096)
    assert answer.verified, answer.line
    assert answer.line.startswith(f"verified: at the levels of each of the {len(trace.method)} designs of the front no")
    assert answer.numbers["plans"] == 32
    assert answer.numbers["designs"] == len(trace.method)
    assert answer.numbers["held"] > 4000
    assert any("statements derived anew for all 32 legal plans" in text for text in answer.checks)
    assert any("convex by the rules of curvature" in text for text in answer.checks)


def test_lies_about_a_front_are_named(stored: Stored):
    """One number changed at a time: each is refused, by the statement, design, node or volume that does not hold."""

    def told(change) -> str:
        header, tables = copy.deepcopy(stored)
        change(header, tables)
        return answer_of((header, tables)).line

    def of(header, tables, i: int = 3) -> int:
        return int(tables["designs"]["statement"][i])

    def raised(header, tables) -> None:
        """A bound one per cent too high, in the statement and in the front alike, and a design that hides it."""
        at = of(header, tables)
        tables["statements"]["bound"][at] += 0.01
        for i in np.flatnonzero(tables["designs"]["statement"] == at):
            header["front"]["points"][i]["bound"] *= np.exp(0.01)
            header["front"]["points"][i]["gap"] = (1 + header["front"]["points"][i]["gap"]) / np.exp(0.01) - 1

    def hidden(header, tables) -> None:
        tables["statements"]["bound"][of(header, tables)] += 0.01

    def boundless(header, tables) -> None:
        """Statements that say nothing, under a front that says that it has bounds."""
        tables["statements"]["bound"][:] = -np.inf

    def heavier(header, tables) -> None:
        tables["cuts"]["weight"][tables["cuts"]["row"] == 0] *= 1.01

    def negative(header, tables) -> None:
        tables["cuts"]["weight"][5] *= -1

    def without(header, tables) -> None:
        """All that is known of one plan."""
        low = np.stack([tables["nodes"][f"low.{name}"] for name in SPACE.plan], axis=-1)
        keep = ~((low[:, 0] == 0) & (low[:, 1] == 0))
        number = np.cumsum(keep) - 1
        cuts = keep[tables["cuts"]["node"]]
        tables["cuts"] = {name: column[cuts] for name, column in tables["cuts"].items()}
        tables["cuts"]["node"] = number[tables["cuts"]["node"]]
        tables["nodes"] = {name: column[keep] for name, column in tables["nodes"].items()}
        header["counts"] |= {"nodes": int(keep.sum()), "cuts": int(cuts.sum())}

    def faster(header, tables) -> None:
        header["front"]["points"][2]["values"]["time_s"] *= 0.999

    def elsewhere(header, tables) -> None:
        tables["designs"]["hbm"][2] *= 1.05

    def larger(header, tables) -> None:
        header["front"]["hypervolume"] *= 1.1

    def fewer(header, tables) -> None:
        header["front"]["corners"] = header["front"]["corners"][1:]

    assert "better than its bound" in told(raised)
    assert "its bound is" in told(hidden)
    assert "its bound is none, claimed is" in told(boundless)
    assert "have no weights that say so" in told(heavier)
    assert "its multiplier is negative" in told(negative)
    assert "legal plans are in no node" in told(without)
    assert "rests on a statement about other designs" in told(faster) or "its gap is" in told(faster)
    assert "design 2" in told(elsewhere)
    assert "hypervolume is" in told(larger)
    assert "the corners do not lie below" in told(fewer) or "hypervolume_at_most is" in told(fewer)


@pytest.mark.parametrize(("beyond", "refused"), [(5e-8, False), (0.0, True), (-1e-3, True)])
def test_a_bound_is_of_designs_within_its_level(stored: Stored, beyond: float, refused: bool):
    """One beyond its level, as far as rounding may be, can lie below the bound: a level's price may be steep."""
    header, tables = copy.deepcopy(stored)
    front = front_of(header, tables)
    i = int(np.argmax(np.isfinite(front.statements.level[front.of]).any(axis=1)))
    own = int(front.of[i])
    level, bound = front.statements.level.copy(), front.statements.bound.copy()
    level[own] = np.where(np.isfinite(level[own]), front.logs[i] - beyond, np.inf)
    bound[own] = front.logs[i, 0] + 4e-6
    finite, kept = np.isfinite(level[own]), np.exp(level[own] * np.array(front.signs))
    point = header["front"]["points"][i]
    point["levels"] = {name: kept[k] for k, name in enumerate(front.metrics) if finite[k]}
    point |= {"bound": float(np.exp(bound[own])), "gap": float(np.expm1(front.logs[i, 0] - bound[own]))}
    one = {"of": front.of[[i]], "values": front.values[[i]], "summary": {**front.summary, "points": [point]}}
    moved = dataclasses.replace(front, statements=Statements(front.statements.metric, level, bound), **one)
    if refused:
        with pytest.raises(Refuted, match="better than its bound"):
            check_points(moved)
    else:
        assert check_points(moved)


def test_a_statement_that_is_false_is_refused(stored: Stored):
    """Of no design that is shown, so nothing but the weights can tell."""
    header, tables = copy.deepcopy(stored)
    rest = np.setdiff1d(np.arange(header["counts"]["statements"]), tables["designs"]["statement"])
    first = int(rest[np.isfinite(tables["statements"]["bound"][rest])][0])
    tables["statements"]["bound"][first] += 0.01
    line = answer_of((header, tables)).line
    assert line.startswith(f"not verified: statement {first}, that ")
    assert "have no weights that say so; the first: tp" in line


def test_the_attack_alone_finds_what_a_false_statement_forbids(stored: Stored, monkeypatch: pytest.MonkeyPatch):
    """With the derivation blinded, a design beyond the statement is found and can be priced again."""
    from codesign.verification import front_check

    header, tables = copy.deepcopy(stored)
    at = int(tables["designs"]["statement"][len(tables["designs"]["statement"]) // 2])
    lied = tables["statements"]["bound"]
    lied[at] += 0.05
    monkeypatch.setattr(front_check, "covered_by", lambda certificate, asked, model, chosen: ["" for _ in chosen])
    monkeypatch.setattr(front_check, "check_corners", lambda front: "")
    monkeypatch.setattr(front_check, "check_points", lambda front: "")
    line = answer_of((header, tables), 4096).line
    assert "a statement of the front says it cannot be, but a feasible design has time_s" in line


def test_volume_is_the_number_of_unit_cells_that_are_dominated():
    rng = np.random.default_rng(3)
    for goals in (2, 3):
        values = rng.integers(0, 9, (8, goals)).astype(float)
        cells = np.array(list(itertools.product(range(10), repeat=goals)))
        dominated = (values[None] <= cells[:, None]).all(axis=2).any(axis=1)
        assert volume(values, np.full(goals, 10.0)) == pytest.approx(dominated.sum())
    assert volume(np.ones((2, 2)), np.zeros(2)) == 0.0


def test_the_envelope_tells_what_each_statement_would():
    """Random statements and designs: those that the cells call impossible are those that some statement does."""
    rng = np.random.default_rng(0)
    for metrics in (2, 3):
        level = rng.choice([0.1, 0.4, 0.7, np.inf], (12, metrics))
        level[:, 0], metric = np.inf, np.zeros(12, dtype=int)
        metric[10:], level[10:] = range(metrics - 2, metrics), np.inf
        statements = Statements(metric, level, rng.uniform(0, 1, 12))
        values = rng.uniform(0, 1, (500, metrics))
        told = np.isin(np.arange(500), envelope(statements, np.zeros((0, metrics))).impossible(values))
        assert (told == (statements.broken(values) > 0)).all()
        left = statements.strongest()
        assert len(left) < 12
        assert ((left.broken(values) > 0) == told).all()


def test_a_pool_backs_no_more_than_its_weights_say():
    """Every statement's bound lies below the least value that a fine grid of designs has at its levels."""
    from test_pareto import Rooms, walked

    walk = walked(("goal", "energy", "money"), 3, between=4)
    oracle, line = Rooms(), np.linspace(0, 1, 61)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    exact = np.concatenate([oracle.tangents(np.full(len(grid), p), grid, 1.0).exact for p in range(oracle.count)])
    rng = np.random.default_rng(1)
    middle = np.array([one.values for one in walk.designs])[:, 1:]
    levels = rng.uniform(middle.min(axis=0) - 0.3, middle.max(axis=0) + 0.3, (40, 2))
    asked = [Statement("goal", {"energy": float(a), "money": float(b)}, np.inf) for a, b in levels]
    backed = walk.sweep.pool.back(asked, oracle)
    best = [np.where((exact[:, 1:] <= level).all(axis=1), exact[:, 0], np.inf).min() for level in levels]
    assert (backed.bounds <= np.array(best) + 1e-6).all()
    assert np.isfinite(backed.bounds).sum() > 10
    claimed = [Statement("goal", one.levels, one.lower) for one in walk.designs]
    again = walk.sweep.pool.back(claimed, oracle)
    np.testing.assert_allclose(again.bounds, [one.bound for one in claimed], rtol=0, atol=1e-9)
    assert isinstance(ParametricSequence(RememberingOracle(oracle), (), walk.sweep.effort, 0).pool.plan, np.ndarray)


def test_a_run_of_a_front_is_verified_by_command(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    """End to end, then with one number of the summary changed."""
    monkeypatch.chdir(tmp_path)
    plan = ["calibration=h100_sxm_roofline", "~space.plan", "+space.plan={tp: [4, 8], pp: [8]}"]
    search = ["search=pareto", "search.levels=2", "search.between=1", "search.convexity_samples=64"]
    assert main(["optimize", *plan, *search]) == 0
    next(Path("runs").iterdir()).rename("front")
    assert main(["verify", "front", "--attack", "2000"]) == 0
    assert "no design has a time_s better by more than 0.0" in " ".join(capsys.readouterr().out.split())
    summary = json.loads(Path("front/summary.json").read_text())
    summary["certificate"]["front"]["hypervolume"] *= 1.01
    Path("front/summary.json").write_text(json.dumps(summary))
    assert main(["verify", "front", "--attack", "0"]) == 2
    assert "not what the run wrote" in capsys.readouterr().err
    front = Path("front")
    (front / MANIFEST).write_text(json.dumps(written(front, noted_names(front))))  # somebody who wants to be believed
    assert main(["verify", "front", "--attack", "0"]) == 1
    assert "differ in the front's hypervolume" in capsys.readouterr().out
    (front / FOLDER / HEADER).unlink()
    assert main(["verify", "front"]) == 1
    assert "certificate/certificate.json is missing" in capsys.readouterr().out


def test_a_front_that_cannot_be_read_is_refused(stored: Stored):
    header, tables = stored
    for name in ("statements", "designs"):
        with pytest.raises(Refuted, match="the front cannot be read"):
            front_of(header, {key: columns for key, columns in tables.items() if key != name})


def test_a_limit_on_the_first_metric_holds_on_the_front():
    """Fastest first or cheapest first: the limit on what is dear is kept, and what is kept says so."""
    limited = dataclasses.replace(PROBLEM, objective=Objective("time_s", limits={"capex_usd": 48e6}))
    trace = Pareto(("capex_usd", "time_s"), levels=2, between=0, batch_size=32, convexity_samples=96).run(limited, 0)
    values = [one.values["capex_usd"] for one in trace.certificate.front.points]
    assert len(values) > 1
    assert max(values) <= 48e6 * (1 + 1e-6)
    fastest = Pareto(("time_s", "capex_usd"), levels=2, between=0, batch_size=32, convexity_samples=96).run(limited, 0)
    first, last = (trace.certificate.front.points, fastest.certificate.front.points)
    assert min(p.values["time_s"] for p in first) == pytest.approx(min(p.values["time_s"] for p in last), rel=2e-3)
