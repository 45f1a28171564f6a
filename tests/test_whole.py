"""Whole numbers: coordinates held exactly, the best of them found, the bound honest."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import serving

from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.search import Certified, Integer, Problem
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.branch_and_bound import BranchAndBound
from codesign.search.branch_and_bound.integer import FixedCoordinateOracle
from codesign.search.branch_and_bound.oracle import AbstractOracle, Programme, Tangents
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
DEVICES = "cluster.device_count"
CENTRES = np.array([[0.2, 0.7, 0.4], [0.6, 0.3, 0.9]])


class Bowls(AbstractOracle):
    """Two plans: goal |u - centre|^2, one limit u_0 + u_1 + u_2 >= 1.2; convex, so tangents are exact bounds."""

    names = ("goal", "limit")
    evaluated = 0
    count = 2  # type: ignore[assignment]
    variables = ("a", "b", "c")  # type: ignore[assignment]

    def near(self, plan, changes):
        return np.arange(2)

    def tangents(self, plan, u, sharpness):
        off = u - CENTRES[plan]
        goal, limit = (off**2).sum(axis=1) + 0.1 * plan, 1.2 - u.sum(axis=1)
        slopes = np.stack([2 * off, -np.ones_like(u)], axis=1)
        exact = np.stack([goal, limit], axis=1)
        intercept = exact - np.einsum("prv,pv->pr", slopes, u)
        return Tangents(exact, np.concatenate([intercept[..., None], slopes], axis=-1), np.zeros(len(plan)))


def test_held_coordinates_stay_and_tangents_touch():
    held = FixedCoordinateOracle(Bowls(), {1: 0.25})
    assert held.variables == ("a", "c")
    rng = np.random.default_rng(0)
    plan, u = rng.integers(0, 2, 50), rng.uniform(size=(50, 2))
    result, full = held.tangents(plan, u, 50.0), held.full_point(u)
    assert (full[:, 1] == 0.25).all()
    touched = result.affine[..., 0] + np.einsum("prv,pv->pr", result.affine[..., 1:], u)
    np.testing.assert_allclose(touched, Bowls().tangents(plan, full, 50.0).exact, atol=1e-12)


@pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 1.0])
def test_solution_with_a_held_coordinate_is_that_of_a_fine_grid(at):
    outcome = BranchAndBound(Programme(FixedCoordinateOracle(Bowls(), {1: at})), SearchEffort(gap=1e-6), 0).run()
    axis = np.linspace(0, 1, 401)
    points = np.array([(a, at, c) for a, c in itertools.product(axis, axis) if a + at + c >= 1.2])
    best = min(Bowls().tangents(np.full(len(points), p), points, 1.0).exact[:, 0].min() for p in (0, 1))
    assert outcome.upper == pytest.approx(best, abs=2e-5)
    assert outcome.lower <= best + 1e-9


@pytest.mark.slow
def test_whole_lanes_of_a_served_model():
    """The bandwidth is a whole number of lanes, as good as the best of all whole numbers priced one by one."""
    space = DesignSpace({"tp": [8, 16], "micro_batch": [4, 16]}, {"up": Continuous(UP, 100e9, 900e9)})
    problem = Problem(serving(), space, Objective("usd_per_million_tokens", limits={"tpot_s": 0.03}))
    trace = Integer({"up": 75e9}, Certified(gap=1e-5, convexity_samples=8, batch_size=16, explain=False)).run(
        problem, 0
    )
    lanes = trace.points["up"] / 75e9
    assert lanes == pytest.approx(np.round(lanes), abs=1e-12)
    assert trace.certificate.certified
    assert trace.certificate.bound <= trace.certificate.best

    def one(tp, batch, up):
        metrics = evaluate(replace(problem.scenario, {"plan.tp": tp, "plan.micro_batch": batch, UP: up}))
        return jnp.where(problem.objective.excess(metrics) <= 1e-6, metrics.usd_per_million_tokens, jnp.inf)

    every = np.array(list(itertools.product([8.0, 16.0], [4.0, 16.0], 75e9 * np.arange(2, 13))))
    prices = interpreted(jax.vmap(one))(*map(jnp.asarray, every.T))
    assert trace.certificate.best == pytest.approx(float(prices.min()), rel=2e-5)


@pytest.mark.slow
def test_listed_values_need_no_convexity_and_the_best_of_them_is_found():
    """The domain's endpoints cut a tensor-parallel group in two or not: no tangent holds across that."""
    ends = "cluster.network.scale_up.fabric.endpoints"
    hardware = {"up": Continuous(UP, 100e9, 900e9), "domain": Continuous(ends, 4.0, 32.0)}
    space = DesignSpace({"tp": [8, 16], "micro_batch": [4, 16]}, hardware)
    problem = Problem(serving(), space, Objective("usd_per_million_tokens", limits={"tpot_s": 0.05}))
    listed = [4.0, 8.0, 16.0]
    proof = Certified(gap=1e-5, convexity_samples=8, batch_size=16, explain=False)
    trace = Integer({}, proof, {"domain": listed}).run(problem, 0)
    assert trace.certificate.certified
    assert trace.points["domain"][0] in listed
    best = []
    for value in listed:
        one = DesignSpace(space.plan, {"up": hardware["up"]})
        held = Problem(replace(problem.scenario, {ends: value}), one, problem.objective)
        best.append(proof.run(held, 0).certificate.best or np.inf)
    assert trace.certificate.best == pytest.approx(min(best), rel=3e-5)
    assert trace.points["domain"][0] == listed[int(np.argmin(best))] or best.count(min(best)) > 1
    assert sorted(trace.points["domain"]) == [
        value for value, price in zip(listed, best, strict=True) if price < np.inf
    ]

    def impatient(progress):
        if progress.stage.startswith("2 of 3"):
            raise KeyboardInterrupt

    cut = Integer({}, proof, {"domain": listed}).run(problem, 0, impatient)
    assert "interrupted" in cut.claim
    assert cut.certificate.bound is None  # nothing is known of the third
    assert 16.0 not in cut.points["domain"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Integer({}), "1 to 10 variables"),
        (lambda: Integer({"up": -1.0}), "must be a positive number"),
        (lambda: Integer({}, allowed_values={"up": []}), "non-empty list"),
        (lambda: Integer({"up": 1.0}, allowed_values={"up": [2.0]}), "leave one of them out"),
        (lambda: Integer({}, allowed_values={"up": [float(i) for i in range(2000)]}), "at most 1000"),
        (
            lambda: Integer({"upp": 1.0}).run(
                Problem(serving(), DesignSpace({}, {"up": Continuous(UP, 1e11, 9e11)}), Objective("time_s")), 0
            ),
            "did you mean 'up'",
        ),
        (
            lambda: Integer({}, allowed_values={"devices": [16.0, 32.0]}).run(
                Problem(serving(), DesignSpace({}, {"devices": Continuous(DEVICES, 8, 64)}), Objective("time_s")), 0
            ),
            "changes which plans are legal: list it in space.plan instead",
        ),
    ],
)
def test_bad_choices_are_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
