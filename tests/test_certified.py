"""Certified search: bounds against independent solutions, kinks, infeasibility, interruption, the test of convexity."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from builders import training
from conftest import ROOT
from posynomial_oracles import scaled
from scipy.optimize import linprog

from codesign.core.errors import ConfigError
from codesign.search import Certified, Inverse, Problem
from codesign.search.branch_and_bound import interior_point as interior
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.branch_and_bound import BranchAndBound
from codesign.search.branch_and_bound.certified import Resource, held_by, polish, resources
from codesign.search.branch_and_bound.convexity import PROVEN, check_convexity
from codesign.search.branch_and_bound.interior_point import dual_ascent, dual_value
from codesign.search.branch_and_bound.inverse import wanted_rows
from codesign.search.branch_and_bound.model_oracle import Oracle
from codesign.search.branch_and_bound.oracle import GOAL, AbstractRelay, Programme, Tangents, rows_of
from codesign.search.certificate import GoalQuantity
from codesign.search.results import designs
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
OUT = "cluster.network.scale_out.fabric.bandwidth_bytes_per_s"
HBM = "cluster.accelerator.hbm.capacity_bytes"
HBM_RATE = "cluster.accelerator.hbm.bandwidth_bytes_per_s"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_more_brings_is_told_of_the_goal(oracle: Oracle, sign):
    """Rows are minimised; of a goal that is maximised, more of a resource brings more."""
    result = Resource("capex_usd", 1.0, -0.4, -0.3, (-0.1, 0.1), -0.02, 0)
    (row,) = held_by(oracle, 0, np.full(len(oracle.variables), 0.5), [result], sign)["constraints"]
    assert (row.elasticity_fewer, row.elasticity_more) == (-0.4 * sign, -0.3 * sign)
    assert np.log1p(row.tenth_more) == pytest.approx(-0.02 * sign)


def test_optimum_on_a_kink_and_its_elasticity():
    """x = a B / (a + b): time = (a + b) / B, so one per cent more budget is one per cent less time, on both sides."""
    oracle = scaled([(3.0, 1.0), (2.0, 1.5), (5.0, 5.0)])
    bounding = BranchAndBound(Programme(oracle), SearchEffort(gap=1e-4), seed=0).run().bounding
    polish(bounding, bounding.plan, 1e-9)
    assert bounding.plan == 1
    assert np.exp(bounding.upper) == pytest.approx(3.5 / 2.0, rel=1e-6)
    assert bounding.bound <= bounding.upper
    money = resources(bounding, 1e-9)[0]
    assert money.more == pytest.approx(-1.0, abs=1e-4)
    assert money.fewer == pytest.approx(-1.0, abs=1e-4)
    assert np.exp(money.gained) == pytest.approx(1 / 1.1, rel=1e-3)


def test_one_sided_where_another_limit_begins():
    """With time >= 1.75 from elsewhere, more budget brings nothing and less budget costs its full share."""
    oracle = scaled([(2.0, 1.5)])
    oracle.rows[GOAL][0].append([(1.75, np.zeros(2))])
    bounding = BranchAndBound(Programme(oracle), SearchEffort(gap=1e-4), seed=0).run().bounding
    polish(bounding, 0, 1e-9)
    money = resources(bounding, 1e-9)[0]
    assert money.more == pytest.approx(0.0, abs=1e-4)
    assert money.fewer == pytest.approx(-1.0, abs=1e-3)


def test_infeasible_is_proven_and_says_how_much_is_missing():
    """x, y >= 0.05 cost at least 0.1; a budget of 0.05 lacks a factor of two."""
    oracle = scaled([(3.0, 1.0), (2.0, 1.5)])
    for plan in oracle.rows["money"]:
        plan[0] = [(c * 40, power) for c, power in plan[0]]
    outcome = BranchAndBound(Programme(oracle), SearchEffort(gap=1e-4), seed=0).run()
    assert outcome.bounding.plan == -1
    assert outcome.lower == np.inf
    least = BranchAndBound(Programme(oracle, "money", ()), SearchEffort(gap=1e-4), seed=0).run()
    assert np.exp(least.upper) == pytest.approx(2.0, rel=1e-3)
    assert np.exp(least.lower) <= 2.0 + 1e-12


def test_interrupted_search_returns_its_incumbent_with_valid_bounds():
    pairs = [(a, b) for a, b in itertools.product(np.linspace(1, 3, 6), repeat=2)]

    def impatient(progress):
        raise KeyboardInterrupt

    outcome = BranchAndBound(Programme(scaled(pairs)), SearchEffort(gap=1e-9, references=4), 0, impatient).run()
    assert outcome.stopped == "interrupted"
    assert outcome.lower <= np.log(1.0) <= outcome.upper + 1e-9
    assert outcome.counts["open"] > 0


def test_factors_of_few_lanes_are_those_of_many():
    """Number by number, step by step and row by row: to the last bit."""
    root = np.random.default_rng(7).normal(size=(6, 9, 100))
    normal = np.einsum("ikl,jkl->ijl", root, root)
    right = root[:, 0]
    whole = interior._Factor(normal).solve(right)
    for some in (slice(0, 1), slice(1, 1 + interior.FEW), slice(10, 10 + interior.SOME)):
        result = interior._Factor(normal[..., some]).solve(right[:, some])
        np.testing.assert_array_equal(result, whole[:, some])
    np.testing.assert_allclose(np.einsum("ijl,jl->il", normal, whole), right, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("variables", "rows", "count"), [(2, 2, 1), (3, 4, 4), (6, 5, 7)])
def test_interior_point_against_a_simplex(variables, rows, count):
    rng = np.random.default_rng(variables)
    lanes = rng.normal(size=(12, count, rows, 1 + variables)) * 0.5
    lanes[:, :, 1:, 0] -= 1.0
    solved = interior.solve(lanes, np.full(12, 0.1), np.full(12, 1e-8))
    for lane, result in zip(lanes.reshape(12, -1, 1 + variables), solved.lower, strict=True):
        is_goal = np.arange(len(lane)) % rows == 0
        G = np.concatenate([lane[:, 1:], -(~is_goal[:, None]).astype(float), -is_goal[:, None].astype(float)], axis=1)
        cost = [0.0] * variables + [interior.ELASTIC, 1.0]
        bounds = [(0, 1)] * variables + [(0, None), (None, None)]
        exact = linprog(cost, A_ub=G, b_ub=-lane[:, 0], bounds=bounds)
        if exact.x[variables] < 1e-9:  # feasible: the bound is the optimum
            assert result == pytest.approx(exact.fun, abs=1e-6)
        assert result <= exact.fun + 1e-9


def test_multipliers_only_raise_the_bound_and_never_too_far():
    rng = np.random.default_rng(0)
    tangents = rng.normal(size=(40, 4, 4)) * 0.5
    tangents[:, 1:, 0] -= 0.5
    start = np.concatenate([np.ones((40, 1)), rng.uniform(size=(40, 3))], axis=1)
    low, (raised, multipliers) = dual_value(tangents, start), dual_ascent(tangents, start)
    hopeless = np.isinf(raised)  # breaks a constraint everywhere
    np.testing.assert_allclose(dual_value(tangents, multipliers)[~hopeless], raised[~hopeless], atol=1e-12)
    exact = interior.solve(tangents[:, None], np.ones(40), np.full(40, 1e-9))
    assert (raised >= low - 1e-12).all()
    feasible = exact.violation < 1e-7
    assert feasible.any()
    assert (raised[feasible] <= exact.lower[feasible] + 1e-6).all()


@pytest.fixture(scope="module")
def problem() -> Problem:
    space = DesignSpace(
        plan={"tp": [2, 4, 8], "pp": [2, 4, 8, 16], "micro_batch": [1, 2], "recompute": ["none", "full"], "zero": [1]},
        hardware={
            "up": Continuous(UP, 100e9, 900e9),
            "out": Continuous(OUT, 12e9, 200e9),
            "hbm": Continuous(HBM, 40e9, 200e9, tied=[HBM_RATE]),
        },
    )  # fmt: skip
    limits = {"capex_usd": 50e6, "power_w": 2e6}
    return Problem(training(), space, Objective("usd_per_million_tokens", limits=limits))


@pytest.fixture(scope="module")
def oracle(problem: Problem) -> Oracle:
    """Rows of the problem, and beside them the log of one bandwidth, for the inverse question."""
    rows, wanted = rows_of(problem), wanted_rows(problem, GoalQuantity("up"))
    return Oracle(problem, lambda m, v: rows(m, v) | {"least_up": wanted(m, v)[GOAL]}, block=256)


@pytest.fixture(scope="module")
def outcome(oracle: Oracle):
    return BranchAndBound(
        Programme(oracle, constraints=("capex_usd", "usage.ddr", "usage.hbm")), SearchEffort(gap=1e-3), 0
    ).run()


def test_certified_optimum_against_a_fine_grid(oracle: Oracle, outcome):
    """No grid point of any plan beats the optimum or lies below the bound of its plan; the grid comes close."""
    levels = np.linspace(0.0, 1.0, 9)
    grid = np.array(list(itertools.product(levels, repeat=3)))
    index = [oracle.names.index(name) for name in ("capex_usd", "usage.ddr", "usage.hbm")]
    best = np.inf
    for plan in range(oracle.count):
        exact = oracle.tangents(np.full(len(grid), plan), grid, 1e3).exact
        holds = (exact[:, index] <= 0).all(axis=1)
        if holds.any():
            least = exact[holds, oracle.names.index(GOAL)].min()
            assert least >= outcome.bounding.lower[plan] - 1e-9
            best = min(best, least)
    assert outcome.stopped == ""
    assert outcome.gap <= 1e-3 + 1e-9
    assert outcome.lower <= best
    assert outcome.upper <= best + 1e-9
    assert best - outcome.upper < 0.05


@pytest.mark.slow
def test_plans_and_elasticities_against_cvxpy(problem: Problem, oracle: Oracle, outcome, monkeypatch):
    """The best plan with what its limits are worth, another that fits, and one that does not: someone else's solver."""
    pytest.importorskip("cvxpy")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import geometric

    bounding, limits = outcome.bounding, ("capex_usd", "usage.ddr", "usage.hbm")
    easy = dataclasses.replace(problem, objective=dataclasses.replace(problem.objective, limits={"capex_usd": 50e6}))
    model = geometric.Model(easy)
    asked = {plan: model.rows({name: float(column[plan]) for name, column in oracle.plans.items()}) for plan in (
        bounding.plan, max(bounding.feasible, key=lambda plan: bounding.feasible[plan][0]), int(bounding.lower.argmax())
    )}  # fmt: skip
    assert len(asked) == 3
    for plan, rows in asked.items():
        alone, theirs = geometric.inner(oracle, plan, limits), geometric.solved(rows)
        assert theirs == pytest.approx(alone.upper, abs=1e-5)
        assert np.isfinite(theirs) == (bounding.lower[plan] < np.inf)
        if plan == bounding.plan:
            worth = geometric.slopes(rows, alone, theirs)
            assert worth
            assert max(limit["near"] for limit in worth) < 2e-4


def test_ratio_of_metrics_is_refused_the_word_certified(oracle: Oracle):
    verdict = check_convexity(oracle, seed=0, pairs=256)
    assert not verdict.convex
    assert verdict.reason.startswith("power_w is not log-convex along")
    assert verdict.worst[GOAL] < 1e-12
    assert verdict.worst["usage.hbm"] < 1e-12


def test_trace_is_priced_again_and_explains_itself(problem: Problem, oracle: Oracle):
    """The search on the compiled oracle, with power, which no proof can have, left out of the rows."""
    easy = dataclasses.replace(problem, objective=dataclasses.replace(problem.objective, limits={"capex_usd": 50e6}))
    search = Certified(convexity_samples=64)
    verdict = PROVEN
    programme = Programme(oracle, constraints=("capex_usd", "usage.ddr", "usage.hbm"))
    wanted = GoalQuantity("usd_per_million_tokens")
    trace = search.traced(oracle, wanted, verdict, BranchAndBound(programme, search.effort, 0).run(), 0)
    assert trace.certificate.certified
    assert trace.certificate.bound <= trace.certificate.best <= trace.certificate.bound * 1.001
    frame = designs(easy, trace, 0)
    assert frame.iloc[0]["feasible"]
    assert frame.iloc[0]["objective"] == pytest.approx(trace.certificate.best, rel=1e-6)
    used = {row.constraint: row for row in trace.certificate.constraints}
    assert used["capex_usd"].used == pytest.approx(frame.iloc[0]["limit.capex_usd"], rel=1e-6)
    json.dumps(trace.certificate.as_plain(), allow_nan=False)


def test_least_bandwidth_for_a_target(oracle: Oracle, outcome):
    """At the bandwidth found the target is met; with a tenth less of it no plan and no other hardware meets it."""
    target, limits = outcome.upper + 0.002, ("capex_usd", "usage.ddr", "usage.hbm")
    asked = Programme(oracle, "least_up", (GOAL, *limits), {GOAL: target})
    least = BranchAndBound(asked, SearchEffort(gap=1e-3), 0).run()
    assert least.gap <= 1e-3 + 1e-9
    exact = oracle.tangents(np.array([least.bounding.plan]), least.bounding.u[None], 1e3).exact[0]
    assert exact[oracle.names.index(GOAL)] <= target + 1e-6
    low, high = 100e9, 900e9
    assert 1.05 * low < np.exp(least.upper) < high
    share = (least.upper - np.log(1.1) - np.log(low)) / np.log(high / low)
    starved = Programme(_Capped(oracle, share), constraints=limits)
    assert BranchAndBound(starved, SearchEffort(gap=1e-3), 0).run().lower > target


class _Capped(AbstractRelay):
    """The same rows where coordinates of `up` beyond a share are folded back onto it."""

    def __init__(self, oracle: Oracle, share: float):
        super().__init__(oracle)
        self._share, self._at = share, oracle.variables.index("up")

    def tangents(self, plan, u, sharpness):
        squeezed = np.array(u)
        squeezed[:, self._at] *= self._share
        result = self.inner.tangents(plan, squeezed, sharpness)
        affine = result.affine.copy()
        affine[..., 1 + self._at] *= self._share
        return Tangents(result.exact, affine, result.broken)


def test_settings_are_refused_in_one_line(problem: Problem):
    with pytest.raises(ConfigError, match="did you mean 'up'"):
        Inverse("upp").run(problem, 0)
    with pytest.raises(ConfigError, match=r"search\.gap = 0 must be positive"):
        Certified(gap=0)
