"""Black-box searches: the box and its prices against the model, each search against an exhaustive grid, budgets."""

import copy
import dataclasses

import numpy as np
import pytest
from builders import training

from _lib.comparison import line
from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.search import Blackbox, CmaEs, DifferentialEvolution, Nsga2, Problem, Random, Tpe
from codesign.search.blackbox import blackbox, peers
from codesign.search.blackbox.blackbox import rows_with
from codesign.search.blackbox.trial import Box, Evaluator, Exhausted, Trial
from codesign.search.branch_and_bound.oracle import GOAL
from codesign.search.results import designs
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
HBM = "cluster.accelerator.hbm.capacity_bytes"
HBM_RATE = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
BATCH = 64  # of every search here: one compilation for all
SEARCHES = [DifferentialEvolution(BATCH), CmaEs(BATCH), Nsga2(BATCH), Tpe(BATCH), Random(BATCH)]


@pytest.fixture(scope="module")
def problem() -> Problem:
    space = DesignSpace(
        plan={"tp": [2, 4, 8], "pp": [2, 4, 8, 16], "virtual_stages": [1, 3, 6, 12], "recompute": ["none", "full"]},
        hardware={"up": Continuous(UP, 100e9, 900e9), "hbm": Continuous(HBM, 40e9, 200e9, tied=[HBM_RATE])},
    )
    return Problem(training(), space, Objective("usd_per_million_tokens", limits={"capex_usd": 50e6}))


@pytest.fixture(scope="module")
def evaluator(problem: Problem) -> Evaluator:
    """Two goals: the second is what several-goal searches are asked for."""
    return Evaluator(Box(problem), rows_with(problem, ("time_s",)), (GOAL, "time_s"))


@pytest.fixture(scope="module")
def single(evaluator: Evaluator) -> Evaluator:
    """The same compiled prices with the first goal alone."""
    first = copy.copy(evaluator)
    first.goals = (GOAL,)
    return first


@pytest.fixture(scope="module")
def optimum(single: Evaluator) -> float:
    """The best of all plans on a fine grid of the hardware."""
    line = np.linspace(0.0, 1.0, 25)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    count = len(single.box.plans["tp"])
    goals, violation, _ = single(np.repeat(np.arange(count), len(grid)), np.tile(grid, (count, 1)))
    return float(goals[violation <= 0].min())


def test_every_plan_has_its_place_and_rules_are_kept(problem: Problem):
    box = Box(problem)
    count = len(box.plans["tp"])
    middle = (box._places + 0.5) / np.array(box.sizes)
    x = np.concatenate([middle, np.full((count, 2), 0.5)], axis=1)
    np.testing.assert_array_equal(box.plan_numbers(x), np.arange(count))
    anywhere = np.random.default_rng(0).uniform(size=(500, len(box.names)))
    chosen = box.plan_numbers(anywhere)
    away = np.abs(box._places[chosen] - box.places(anywhere)).sum(axis=1)
    nearest = np.abs(box._places[None] - box.places(anywhere)[:, None]).sum(axis=2).min(axis=1)
    np.testing.assert_array_equal(away, nearest)
    assert (away > 0).any()  # 16 stages of 12 parts are more than the layers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "evaluations", "within"),
    list(zip(SEARCHES, [6000, 6000, 6000, 384, 6000], [1e-3, 1e-3, 0.02, 0.1, 0.05], strict=True)),
)
def test_search_comes_near_the_optimum_of_a_fine_grid(single, optimum: float, peer, evaluations, within):
    """None is better than an exhaustive grid by more than its step; each comes as near as its kind does, twice."""
    trials = [Trial(single, 60.0, evaluations) for _ in range(2)]
    for trial in trials:
        with pytest.raises(Exhausted):
            peer.minimise(trial, seed=4)
    assert optimum - 0.02 <= trials[0].best <= optimum + within
    assert trials[0].best == trials[1].best
    assert evaluations <= trials[0].count < evaluations + BATCH + 1


def test_infeasible_combinations_do_not_stop_a_search(single: Evaluator):
    """A price that no budget bears: every search goes on to the end of its evaluations and shows what came nearest."""
    problem = single.box.problem
    dear = replace(problem.scenario, {"cluster.accelerator.price_usd": 1e9})
    hopeless = copy.copy(single)
    hopeless.box = Box(dataclasses.replace(problem, scenario=dear))
    for peer in (DifferentialEvolution(BATCH), Nsga2(BATCH)):
        trial = Trial(hopeless, 60.0, 300)
        assert Blackbox(peer).ask(trial, 0) == ""
        trace = Blackbox(peer).traced(trial)
        assert trace.claim.startswith("no feasible design found")
        assert trace.counts["points"] >= 300
        assert len(trace.points["tp"]) == 1


def test_front_holds_no_dominated_design_and_prices_are_those_of_the_frame(problem: Problem, evaluator: Evaluator):
    """The front of a search for two goals, and beside it random points, most of them not feasible."""
    search, box = Blackbox(Nsga2(BATCH), objectives=("time_s",), top_k=4), evaluator.box
    trial = Trial(evaluator, 60.0, 2000)
    search.ask(trial, 0)
    trace = search.traced(trial)
    assert trace.claim == "heuristic solution by nsga-ii, no certificate"
    assert trace.method.count("pareto") == len(trial.front) > 3
    front = np.array(sorted(point[0].tolist() for point in trial.front))
    assert (np.diff(front[:, 0]) > 0).all()
    assert (np.diff(front[:, 1]) < 0).all()

    x = np.random.default_rng(1).uniform(size=(40, len(box.names)))
    plan, u = box.plan_numbers(x), box.hardware(x)
    goals, violation, _ = evaluator(plan, u)
    points = {name: np.concatenate([trace.points[name], column]) for name, column in box.designs(plan, u).items()}
    frame = designs(problem, dataclasses.replace(trace, points=points, method=trace.method + ["random"] * 40), 0)
    random = frame[frame["method"] == "random"].sort_values("objective")
    order = np.argsort(goals[:, 0])
    assert frame.iloc[0]["objective"] == pytest.approx(np.exp(trial.best), rel=1e-9)
    assert frame.loc[frame["method"] != "random", "feasible"].all()
    np.testing.assert_allclose(random[["objective", "time_s"]], np.exp(goals[order]), rtol=1e-9)
    shares = random[[name for name in random.columns if name.startswith("limit.")]].to_numpy()
    np.testing.assert_allclose(np.log(np.maximum(shares, 1.0)).sum(axis=1), violation[order], atol=1e-9)
    assert (violation > 0).any()


def test_interrupt_and_time_limit_return_the_incumbent(problem, single, monkeypatch):
    def impatient(progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(blackbox, "Evaluator", lambda *_: single)
    trace = Blackbox(Random(BATCH)).run(problem, 0, impatient)
    assert trace.claim == "heuristic solution by random, no certificate, interrupted"
    assert len(trace.points["tp"]) > 0
    late = Trial(single, 0.3, 1e9)
    assert Blackbox(Random(BATCH)).ask(late, 0) == ""
    assert 0.3 <= late.elapsed < 2.0
    assert late.history[-1][1] == late.best


def test_line_of_a_comparison():
    """Five per cent off after 1 s, half a per cent after 3 s: a hit at 3 s."""
    history = [(0.5, np.log(2.0)), (1.0, np.log(1.05)), (3.0, np.log(1.005))]
    row = line("some", np.log(1.005), history, 0.0, 100)
    assert row["gap"] == pytest.approx(0.005)
    assert row["hit"] is True
    assert row["seconds_to_hit"] == 3.0
    missed = line("some", np.log(1.05), history[:2], 0.0, 100)
    assert missed["hit"] is False
    assert np.isnan(missed["seconds_to_hit"])


def test_settings_and_packages_are_refused_in_one_line(monkeypatch):
    with pytest.raises(
        ConfigError, match=r"search\.objectives = \['time_s'\]: cma-es has one goal; search=nsga2 several"
    ):
        Blackbox(CmaEs(), objectives=("time_s",))
    with pytest.raises(ConfigError, match=r"search\.seconds = 0 must be positive"):
        Blackbox(Random(), seconds=0)
    study = study_from_config("search=cmaes", "search.seconds=3")
    assert isinstance(study.search, Blackbox)
    assert study.search.seconds == 3

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(peers, "import_module", absent)
    with pytest.raises(ConfigError, match=r"needs optuna: pip install 'codesign\[peers\]'"):
        study_from_config("search=optuna")
