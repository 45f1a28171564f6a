"""The searches against exhaustive loops a reader can follow."""

import itertools
from collections import OrderedDict
from dataclasses import replace as change

import jax.numpy as jnp
import numpy as np
import pytest
from builders import serving, training

from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.core.pareto_tools import non_dominated_rows
from codesign.model.metrics import account, evaluate
from codesign.search import Certified, Descent, Grid, GridThenGradient, Optimizer, Problem
from codesign.search.descent import gradient
from codesign.search.exhaustive.grid import screen
from codesign.search.results import collect, designs, pareto
from codesign.staging import at_many
from codesign.study.design_space import Continuous, DesignSpace, Ratio
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
HBM = "cluster.accelerator.hbm.capacity_bytes"
HBM_RATE = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
DDR = "cluster.host.memory.capacity_bytes"


@pytest.fixture(scope="module")
def problem() -> Problem:
    space = DesignSpace(
        plan={"tp": [4, 8], "pp": [4, 8], "micro_batch": [1, 2], "recompute": ["none", "full"], "zero": [0, 1]},
        hardware={
            "up": Continuous(UP, 100e9, 900e9, grid=3),
            "hbm_to_ddr": Ratio(HBM, DDR, 0.05, 0.4, grid=3, tied=[HBM_RATE]),
        },
    )
    return Problem(training(), space, Objective("usd_per_million_tokens", limits={"capex_usd": 55e6}))


@pytest.fixture(scope="module")
def screened(problem: Problem):
    return screen(problem, block=64)


@pytest.fixture(scope="module")
def trace(problem: Problem):
    descent = Descent(starts=2, steps=40)
    return GridThenGradient(batch_size=64, top_k=8, candidates=2, descent=descent).run(problem, seed=3)


@pytest.mark.slow
def test_grid_finds_what_a_plain_loop_finds(problem: Problem, screened):
    """Every plan and level one by one, by hand, against the blocked search."""

    def price(point):
        metrics = evaluate(problem.space.place(problem.scenario, point))
        return problem.objective.excess(metrics), metrics.usd_per_million_tokens

    best = np.inf
    plans, levels = problem.space.plans(problem.scenario), problem.space.grid()
    pairs = list(itertools.product(range(len(plans["tp"])), range(9)))
    points = {n: np.array([c[p] for p, _ in pairs]) for n, c in plans.items()}
    points |= {n: np.array([c[level] for _, level in pairs]) for n, c in levels.items()}
    for excess, usd in zip(*at_many(price)(points), strict=True):
        if excess <= 1e-6:
            best = min(best, usd)
    assert np.exp(screened.top.best[0]) == pytest.approx(best, rel=1e-5)
    assert screened.evaluated == len(plans["tp"]) * 9


@pytest.mark.slow
def test_gradient_never_worse_than_grid_and_feasible(problem: Problem, trace):
    frame = designs(problem, trace, seed=3)
    feasible = frame[frame["feasible"]]
    by_method = feasible.groupby("method")["objective"].min()
    assert by_method["gradient"] <= by_method["grid"] * (1 + 1e-6)
    assert frame["rank"].tolist() == list(range(1, len(frame) + 1))
    assert feasible["capex_usd"].max() <= 55e6 * (1 + 1e-5)


def test_a_descent_is_compiled_anew_where_the_question_differs(problem: Problem, monkeypatch):
    """And kept where it is the same, made again: what it takes from the problem beside its arguments is in the key."""
    compiled = []

    def counting(_, space, objective):
        compiled.append((space, objective))
        return lambda carry, *_: carry

    monkeypatch.setattr(Descent, "_compiled", counting)
    monkeypatch.setattr(gradient, "_descents", OrderedDict())
    space, goal = problem.space, problem.objective
    wider = change(space, hardware=space.hardware | {"up": Continuous(UP, 100e9, 901e9, grid=3)})
    untied = change(space, hardware=space.hardware | {"hbm_to_ddr": Ratio(HBM, DDR, 0.05, 0.4, grid=3)})
    custom = [change(goal, custom={"own": lambda metrics, by=by: metrics.time_s * by}) for by in (1.0, 2.0)]
    short = Descent(starts=1, steps=2)
    asked = [
        (short, change(problem, space=wider)), (short, change(problem, space=untied)),
        (short, change(problem, space=change(space, given=("up",)))),
        (short, change(problem, objective=change(goal, limits={"capex_usd": 56e6}))),
        (short, change(problem, objective=change(goal, minimise="time_s"))),
        *((short, change(problem, objective=objective)) for objective in custom),
        (Descent(starts=1, steps=3), problem), (change(short, margin=1e-3), problem),
        (change(short, optimizer=Optimizer("sgd")), problem),
        (change(short, optimizer=Optimizer("adam", options={"b1": 0.8})), problem),
    ]  # fmt: skip
    plans, start = {name: column[:1] for name, column in space.plans(problem.scenario).items()}, np.full((1, 1, 2), 0.5)
    for descent, other in [(short, problem), *asked]:
        compiled.clear()
        for same in (other, change(other, space=change(other.space))):
            assert descent.minimise(same, plans, start, lambda done: None).shape == start.shape
        assert len(compiled) == 1, (descent, other)


def test_an_interrupted_descent_leaves_the_grid(problem: Problem, screened, monkeypatch):
    monkeypatch.setattr(gradient, "screen", lambda *_: screened)

    def impatient(progress):
        if progress.stage == "gradient":
            raise KeyboardInterrupt

    trace = GridThenGradient(batch_size=64, top_k=8).run(problem, 0, impatient)
    assert trace.claim.startswith("interrupted before the descent was done; best of an exhaustive grid")
    assert set(trace.method) == {"grid", "pareto"}


@pytest.mark.slow
def test_same_seed_same_numbers(problem: Problem, trace):
    again = GridThenGradient(batch_size=64, top_k=8, candidates=2, descent=Descent(starts=2, steps=40)).run(
        problem, seed=3
    )
    for name, column in trace.points.items():
        np.testing.assert_array_equal(column, again.points[name])


@pytest.mark.slow
def test_traced_once_whatever_is_asked(problem: Problem, monkeypatch):
    """Grid, proof, designs and elasticities of a study read one trace; other boxes, limits and prices need no other."""
    traces = []

    def counting(scenario):
        traces.append(1)
        return account(scenario)

    monkeypatch.setattr("codesign.staging.model.account", counting)
    monkeypatch.setattr("codesign.staging.model._bases", OrderedDict())
    monkeypatch.setattr("codesign.staging.model._models", OrderedDict())
    monkeypatch.setattr("codesign.core.disk_cache._folder", [])
    assert screen(problem, block=16).evaluated > 32
    trace = Certified(convexity_samples=16, explain=False).run(problem, 0)
    collect(problem, trace, 0, {})
    dearer = replace(problem.scenario, {"cluster.facility.usd_per_j": 1e-7})
    hardware = {name: change(v, high=v.high * 1.1) for name, v in problem.space.hardware.items()}
    asked = Objective(problem.objective.goal, limits={"capex_usd": 9e9})
    other = Problem(dearer, change(problem.space, hardware=hardware), asked)
    assert screen(other, block=16).evaluated > 32
    assert len(traces) == 1


@pytest.mark.slow
def test_results_are_whole(problem: Problem, trace):
    results = collect(problem, trace, 3, {"cluster.accelerator": {"kind": "assumed", "source": "nobody"}})
    best = results.best
    parts = [best[c] for c in results.designs.columns if c.startswith("breakdown_s.")]
    assert sum(parts) == pytest.approx(best["time_s"], rel=1e-9)
    capex = [best[c] for c in results.designs.columns if c.startswith("capex.")]
    assert sum(capex) == pytest.approx(best["capex_usd"], rel=1e-9)
    assert set(results.elasticities["kind"]) <= {"assumed", ""}
    front = pareto(results.designs)
    assert front["time_s"].is_monotonic_increasing
    assert front["usd_per_million_tokens"].is_monotonic_decreasing


@pytest.mark.slow
def test_elasticities_agree_with_reevaluation(problem: Problem, trace):
    results = collect(problem, trace, 3, {})
    row = results.elasticities.set_index("path").loc["cluster.accelerator.price_usd"]
    assert row["time_s"] == 0
    from codesign.core.fields import replace
    from codesign.search.results import placed

    scenario = placed(problem, results.best)
    up = evaluate(replace(scenario, {"cluster.accelerator.price_usd": row["value"] * 1.001}))
    base = evaluate(scenario)
    slope = float(jnp.log(up.usd_per_million_tokens / base.usd_per_million_tokens)) / np.log(1.001)
    assert row["usd_per_million_tokens"] == pytest.approx(slope, abs=1e-3)


def test_serving_search_respects_latency():
    space = DesignSpace(plan={"tp": [8, 16], "micro_batch": [1, 2, 4, 8, 16, 32, 64]}, hardware={})
    problem = Problem(serving(), space, Objective(maximise="tokens_per_s", minimise="", limits={"tpot_s": 0.05}))
    frame = designs(problem, Grid(top_k=20).run(problem, 0), 0)
    best = frame.iloc[0]
    assert best["feasible"]
    assert best["tpot_s"] <= 0.05
    assert (frame[frame["feasible"]]["tokens_per_s"] <= best["tokens_per_s"]).all()


def test_place_moves_ratio_and_what_goes_along(problem: Problem):
    scenario = problem.space.place(problem.scenario, {"hbm_to_ddr": jnp.asarray(0.25)})
    assert float(scenario.cluster.accelerator.hbm.capacity_bytes) == pytest.approx(0.25 * 512e9)
    assert float(scenario.cluster.accelerator.hbm.bandwidth_bytes_per_s) == pytest.approx(3.35e12 * 0.25 * 512 / 80)


def test_coordinates_round_trip(problem: Problem):
    values = {"up": jnp.asarray([100e9, 300e9, 900e9]), "hbm_to_ddr": jnp.asarray([0.05, 0.1, 0.4])}
    there = problem.space.values(problem.space.coordinates(values))
    for name in values:
        np.testing.assert_allclose(there[name], values[name], rtol=1e-12)


def test_non_dominated_by_brute_force():
    points = np.random.default_rng(0).integers(0, 12, size=(60, 2)).astype(float)
    kept = {tuple(points[i]) for i in non_dominated_rows(points)}
    for p in {tuple(q) for q in points}:
        beaten = any((q[0] <= p[0] and q[1] <= p[1] and tuple(q) != p) for q in points)
        assert (p in kept) == (not beaten)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DesignSpace(plan={"tpp": [1]}), "did you mean"),
        (lambda: DesignSpace(plan={"tp": []}), "non-empty"),
        (lambda: DesignSpace(hardware={"x": Continuous(UP, 2.0, 1.0)}), "low < high"),
        (lambda: Objective(minimise="time_s", maximise="mfu"), "exactly one"),
        (lambda: Objective(limits={"capex_usd": -1.0}), "positive"),
        (lambda: Optimizer("os.system"), "not known"),
        (lambda: Optimizer("adm"), "did you mean 'adam'"),
    ],
)
def test_bad_choices_are_refused_in_one_line(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


def test_empty_space_names_the_rule():
    with pytest.raises(ConfigError, match="'heads' alone refuses 100%"):
        DesignSpace(plan={"tp": [64], "pp": [1, 2]}).plans(training())


def test_unknown_path_and_metric_are_refused():
    with pytest.raises(ConfigError, match="bandwidth_bytes_per_s"):
        DesignSpace(hardware={"x": Continuous(UP + "x", 1.0, 2.0)}).check(training())
    with pytest.raises(ConfigError, match="tokens_per_s"):
        Objective(minimise="token_per_s").check(evaluate(training()))
