"""Fronts: which designs, how much they dominate, and the proof of each against exhaustive grids."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from builders import training
from example_run import write_run
from hypothesis import given
from hypothesis import strategies as st

from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.core.pareto_tools import hypervolume, knee, non_dominated_rows, spread_rows
from codesign.report import build_report
from codesign.report import sections as front_page
from codesign.report.run_folder import read_run
from codesign.report.wording import degrees
from codesign.search import Pareto, Problem
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.model_oracle import affine
from codesign.search.branch_and_bound.oracle import GOAL, AbstractOracle, Tangents
from codesign.search.front.epsilon_constraint import Cell, FrontWalk, blends, neighbours
from codesign.search.front.level_pairs import LevelSolver
from codesign.search.front.parametric_sequence import Memory, ParametricSequence, RememberingOracle
from codesign.search.results import designs
from codesign.search.settings import FRONT
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

POINTS = st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=12)


@given(POINTS, st.integers(2, 3))
def test_hypervolume_is_the_number_of_unit_cells_that_are_dominated(points, goals):
    values = np.array(points, dtype=float)[:, :goals]
    cells = np.array(list(itertools.product(range(10), repeat=goals)))
    dominated = (values[None] <= cells[:, None]).all(axis=2).any(axis=1)
    assert hypervolume(values, np.full(goals, 10.0)) == pytest.approx(dominated.sum())


@given(POINTS)
def test_front_is_what_pairwise_comparison_leaves(points):
    values = np.array(points, dtype=float)
    front = values[non_dominated_rows(values)]
    better = (values[:, None] <= values[None]).all(axis=2) & (values[:, None] < values[None]).any(axis=2)
    expected = {tuple(row) for row in values[~better.any(axis=0)]}
    assert len(front) == len(expected)
    assert {tuple(row) for row in front} == expected


@pytest.mark.parametrize("goals", [2, 3])
def test_a_row_that_is_not_a_number_is_on_no_front_and_hides_no_other(goals):
    nan, inf = float("nan"), float("inf")
    values = np.array([[2, 1, 0], [nan, 0, 0], [1, 2, 0], [0, nan, 0], [3, 3, 3], [nan] * 3, [-inf, 9, 9]])[:, :goals]
    assert non_dominated_rows(values).tolist() == [6, 2, 0]
    assert non_dominated_rows(np.full((3, goals), nan)).tolist() == []
    assert non_dominated_rows(np.zeros((0, goals))).tolist() == []


def test_knee():
    assert knee(np.array([[0.0, 10.0], [1.0, 2.0], [9.0, 1.0], [10.0, 0.0]])) == 1


def test_rows_far_apart_are_shown_of_a_crowd():
    line = np.concatenate([np.linspace(0.0, 0.1, 50), [0.5, 1.0]])
    assert spread_rows(np.stack([line, 3 - line], axis=-1), 3).tolist() == [0, 50, 51]
    assert spread_rows(np.zeros((4, 2)), 3).tolist() == [0]


def test_a_cell_splits_into_parts_that_fill_it():
    for low, high in (([0.0], [2.0]), ([0.0, -1.0], [2.0, 3.0])):
        cell = Cell(np.array(low), np.array(high))
        parts = cell.split()
        assert len(parts) == 2 ** len(low)
        assert sum(part.size for part in parts) == pytest.approx(cell.size)
        assert all(np.array_equal(part.high - part.low, 0.5 * (cell.high - cell.low)) for part in parts)


class Rooms(AbstractOracle):
    """Plan p: time a/x + b/y, money x + y, energy c x, over x, y from 0.05 to 20; its front is known by calculus."""

    names, variables, count = (GOAL, "energy", "money"), ("x", "y"), 12

    def __init__(self):
        rng = np.random.default_rng(5)
        self.a, self.b, self.c = rng.uniform(0.5, 3.0, (3, self.count))
        self.evaluated = 0

    def near(self, plan: int, changes: int) -> np.ndarray:
        return np.arange(self.count)

    def tangents(self, plan, u, sharpness):
        del sharpness
        self.evaluated += len(plan)
        width = np.log(400.0)
        x, y = (0.05 * np.exp(width * u)).T
        a, b, c, nil = self.a[plan], self.b[plan], self.c[plan], 0 * x
        parts = [(a / x, b / y, -1, -1), (c * x, nil, 1, 1), (x, y, 1, 1)]
        value = np.stack([np.log(p + q) for p, q, _, _ in parts], axis=1)
        slope = np.stack([np.stack([i * p, j * q], axis=1) / (p + q)[:, None] for p, q, i, j in parts], axis=1)
        return Tangents(value, affine(value, width * slope, u), np.zeros(len(plan)))

    def least_time(self, money: float) -> float:
        """(sqrt a + sqrt b)^2 / money, of the best plan."""
        return float(((np.sqrt(self.a) + np.sqrt(self.b)) ** 2).min() / money)


def walked(rows: tuple[str, ...], levels: int, between: int = 0) -> FrontWalk:
    sweep = ParametricSequence(RememberingOracle(Rooms()), (), SearchEffort(gap=5e-3, batch=16, references=8), 0)
    walk = FrontWalk(sweep, rows, levels, between)
    assert walk.run() == ""
    return walk


def test_front_of_two_metrics_against_calculus():
    walk = walked((GOAL, "money"), 6, between=4)
    programmes = walk.sweep.oracle.inner
    assert walk.done == 7
    assert len(walk.designs) >= 24
    for one in walk.designs:
        time, money = np.exp(one.values)
        assert one.closed
        assert -1e-9 <= one.gap <= 5e-3 + 1e-9
        if 0.3 < money < 20:  # the best shares of it lie inside the box
            assert np.exp(one.lower) <= programmes.least_time(np.exp(one.levels["money"])) * (1 + 1e-9)
            assert time >= programmes.least_time(money) * (1 - 1e-6)


def test_hypervolume_of_two_metrics_lies_between_what_is_found_and_what_is_proven():
    """The area above time = K / money, known by calculus; more designs come closer to it."""
    ratios = []
    for between in (0, 8):
        walk = walked((GOAL, "money"), 6, between)
        values = np.array([one.values for one in walk.designs])
        reference = np.array([np.log(100.0), np.log(19.0)])
        line = np.linspace(walk.least["money"], reference[1], 20001)
        top = np.log(walk.sweep.oracle.inner.least_time(1.0)) - line
        true = np.mean(np.clip(reference[0] - top, 0, None)) * (line[-1] - line[0])
        result = hypervolume(values, reference)
        assert result <= true * (1 + 1e-3) <= hypervolume(walk.optimistic(), reference) * (1 + 1e-3)
        ratios.append(result / true)
    assert ratios[1] > ratios[0]
    assert ratios[1] > 0.97


@pytest.mark.slow
def test_front_of_three_metrics_against_a_fine_grid():
    """No grid point within a design's levels lies below its bound; a few levels hold most of what the grid does."""
    walk = walked((GOAL, "energy", "money"), 3, between=6)
    oracle = walk.sweep.oracle.inner
    line = np.linspace(0, 1, 61)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    plan = np.repeat(np.arange(oracle.count), len(grid))
    exact = oracle.tangents(plan, np.tile(grid, (oracle.count, 1)), 1.0).exact
    for one in walk.designs:
        inside = np.ones(len(exact), dtype=bool)
        for name, most in one.levels.items():
            inside &= exact[:, oracle.names.index(name)] <= most
        assert one.closed
        assert not inside.any() or exact[inside, 0].min() >= one.lower - 1e-9
    values = np.array([one.values for one in walk.designs])
    assert len(non_dominated_rows(values)) >= 8
    reference = values.max(axis=0) + 0.1
    best = exact[(exact < reference).all(axis=1)]
    best = best[non_dominated_rows(np.round(best, 2))]
    assert 0.6 < hypervolume(values, reference) / hypervolume(best, reference) < 1.05
    assert hypervolume(best, reference) <= hypervolume(walk.optimistic(), reference) * 1.05  # `best` is rounded


@pytest.mark.parametrize("rows", [(GOAL, "money"), (GOAL, "energy", "money")])
def test_lines_bound_every_plan_at_levels_that_were_never_asked(rows):
    """Of every plan no grid point within a level lies below its line, and where it never keeps to one that is known."""
    walk = walked(rows, 3, between=4)
    oracle = walk.sweep.oracle.inner
    line = np.linspace(0, 1, 61)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    exact = np.array([oracle.tangents(np.full(len(grid), p), grid, 1.0).exact for p in range(oracle.count)])
    values = np.array([one.values for one in walk.designs])[:, 1:]
    rng, columns, raised, never = np.random.default_rng(1), [oracle.names.index(row) for row in rows[1:]], 0, 0
    between = LevelSolver(walk.sweep, rows[1:])
    for _ in range(50):
        level = rng.uniform(values.min(axis=0) - 0.3, values.max(axis=0) + 0.3)
        floor = np.full(oracle.count, -np.inf)
        between.lines.raise_(floor, level)
        best = np.where((exact[..., columns] <= level).all(axis=2), exact[..., 0], np.inf).min(axis=1)
        assert (floor <= best + 1e-6).all()
        raised += int((floor > walk.designs[0].lower).sum())
        never += int((floor > exact[..., 0].max()).sum())
    assert raised > 100
    assert never > 0 or len(rows) == 2


def test_blends_lie_between_neighbours_and_keep_to_their_plans():
    values = np.array([[3.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    plan, u = np.array([7, 8, 9]), np.array([[0.0, 0.9], [0.9, 0.0], [0.45, 0.45]])
    plans, between = blends(values, plan, u)
    assert len(plans) == 4 * FRONT.blends  # two pairs along the front, both ways
    assert (np.bincount(plans, minlength=10)[7:] == [FRONT.blends, FRONT.blends, 2 * FRONT.blends]).all()
    np.testing.assert_allclose(between.sum(axis=1), 0.9)
    np.testing.assert_allclose(between[plans == 7, 0], 0.45 * np.arange(1, FRONT.blends + 1) / (FRONT.blends + 1))
    surface = np.random.default_rng(0).uniform(size=(30, 3))
    one, other = neighbours(surface)
    assert (one != other).all()
    assert set(zip(one, other, strict=True)) == set(zip(other, one, strict=True))
    assert len(neighbours(surface[:2])[0]) == 2


def test_a_front_has_designs_between_those_that_were_solved():
    """Blends: many times the designs of the levels, each within the gap of the true least time at its money."""
    walk = walked((GOAL, "money"), 3, between=2)
    least = walk.sweep.oracle.inner.least_time
    assert len(walk.designs) > 30
    inside = [one for one in walk.designs if 0.3 < np.exp(one.values[1]) < 20]
    assert all(one.values[0] <= np.log(least(np.exp(one.values[1]))) + 6e-3 for one in inside)


def test_later_programmes_ask_less_than_the_first():
    """The same level once more costs hardly a point; a bound never rises above what a fresh search finds."""
    walk = walked((GOAL, "money"), 6)
    sweep, one = walk.sweep, walk.designs[-1]
    before = sweep.oracle.evaluated
    again = sweep.solve(GOAL, dict(one.levels))
    fresh = ParametricSequence(RememberingOracle(Rooms()), (), sweep.effort, 1)
    alone = fresh.solve(GOAL, dict(one.levels))
    assert sweep.oracle.evaluated - before < 0.5 * fresh.oracle.evaluated
    assert again.upper == pytest.approx(alone.upper, abs=5e-3)
    assert again.lower <= alone.upper + 1e-9
    assert alone.lower <= again.upper + 1e-9


def test_remembered_tangents_are_the_latest():
    oracle = RememberingOracle(Rooms(), depth=2)
    u = np.random.default_rng(0).uniform(size=(3, 2))
    result = [oracle.tangents(np.array([4]), point[None], 1.0) for point in u]
    both = [Memory(oracle, slot).tangents(np.array([4]), u[:1], 1.0).exact[0] for slot in (0, 1)]
    np.testing.assert_array_equal(both, [result[2].exact[0], result[1].exact[0]])
    twice = oracle.tangents(np.array([7, 7]), u[:2], 1.0)
    for slot in (0, 1):
        plan, at, number = oracle.recall(np.arange(12), slot)
        assert set(plan) == {4, 7}
        np.testing.assert_array_equal(at[plan == 7][0], u[slot])
        np.testing.assert_array_equal(oracle.places.distinct(number)[0], np.unique(at, axis=0))
        np.testing.assert_array_equal(oracle.exact[7, slot], twice.exact[slot])


def test_interrupt_leaves_the_front_so_far():
    def impatient(progress):
        if progress.done == 4:
            raise KeyboardInterrupt

    walk = FrontWalk(
        ParametricSequence(RememberingOracle(Rooms()), (), SearchEffort(gap=5e-3), 0),
        (GOAL, "money"),
        12,
        report=impatient,
    )
    assert walk.run() == "interrupted"
    assert len(walk.designs) == 3


@pytest.mark.slow
def test_front_of_a_study_is_priced_and_told():
    """End to end on the model: the frame has the designs of the certificate, none dominated, all limits kept."""
    space = DesignSpace(
        plan={"tp": [4, 8], "pp": [4, 8], "recompute": ["none", "full"]},
        hardware={
            "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9),
            "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 30e9, 200e9),
        },
    )
    problem = Problem(training(), space, Objective("time_s", limits={"capex_usd": 60e6}))
    told = []
    search = Pareto(("time_s", "capex_usd"), levels=4, between=3, batch_size=32, convexity_samples=96)
    trace = search.run(problem, 0, lambda progress: told.append(progress))
    front = trace.certificate.front
    json.dumps(trace.certificate.as_plain(), allow_nan=False)
    assert trace.claim.startswith("certified: ")
    assert all(row.certified and row.gap <= 5e-3 * 1.001 for row in front.points)
    frame = designs(problem, trace, 0).sort_values("time_s")
    assert frame["feasible"].all()
    expected = [[row.values[name] for name in ("time_s", "capex_usd")] for row in front.points]
    np.testing.assert_allclose(frame[["time_s", "capex_usd"]], expected, rtol=1e-9)
    assert (np.diff(frame["capex_usd"]) < 0).all()
    assert told[-1].done == told[-1].total or told[-1].done >= 4
    assert len(frame) > 5
    assert front.hypervolume <= front.hypervolume_at_most


@pytest.mark.slow
def test_report_shows_the_front_with_its_bounds(tmp_path):
    """Three designs of a made-up run as a front: heading, gap and plan in the table, a figure, no section of proof."""
    folder = write_run(tmp_path / "run")
    frame = pd.read_parquet(folder / "designs.parquet").head(3)
    metrics = ["time_s", "capex_usd"]
    points = [
        {"values": {name: float(row[name]) for name in metrics}, "bound": 0.996 * row["time_s"], "gap": 0.004,
         "certified": True, "levels": {"capex_usd": float(row["capex_usd"])}}
        for _, row in frame.iterrows()
    ]  # fmt: skip
    summary = json.loads((folder / "summary.json").read_text())
    front = {"metrics": metrics, "maximised": [], "points": points, "knee": 1, "hypervolume": 0.1, "reference": {}}
    summary["certificate"] = {"certified": True, "convex": True, "reason": "", "front": front}
    (folder / "summary.json").write_text(json.dumps(summary))
    page = build_report(folder).read_text(encoding="utf-8")
    assert "<h2>Front</h2>" in page
    assert "<h2>Proof</h2>" not in page
    assert "designs of which none is better in all of step time and capex" in page
    assert (folder / "figures" / "certified_front.png").stat().st_size > 10_000
    shown = front_page.table(read_run(folder))
    assert shown.head[:3] == ("Step time", "Capex", "At least (step time)")
    assert len(shown.rows) == 3
    assert shown.rows[0][3].startswith("0.4")
    assert shown.rows[0][-1] == degrees(frame.iloc[0].to_dict())


def test_settings_are_refused_in_one_line():
    with pytest.raises(ConfigError, match="must name two or three different metrics together"):
        Pareto(("time_s",))
    with pytest.raises(ConfigError, match=r"search\.levels = 1 must be at least 2"):
        Pareto(levels=1)
    study = study_from_config("search=pareto", "search.minimise=[time_s]", "search.maximise=[tokens_per_s]")
    assert isinstance(study.search, Pareto)
    assert study.search.metrics == ("time_s", "tokens_per_s")
