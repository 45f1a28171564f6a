"""Bounds over groups of plans: trees of plans, orders of values, soundness on the model, spaces too large to list."""

import numpy as np
import pytest
from builders import training

from codesign.search import Certified, Problem
from codesign.search.branch_and_bound import node_relaxation as groups
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.bounding_state import passed_down
from codesign.search.branch_and_bound.branch_and_bound import BranchAndBound
from codesign.search.branch_and_bound.model_oracle import Oracle
from codesign.search.branch_and_bound.node_relaxation import GroupOracle, PlanTree, find_orders, views
from codesign.search.branch_and_bound.oracle import GOAL, Programme, rows_of
from codesign.search.certificate import GoalQuantity
from codesign.search.front.epsilon_constraint import FrontWalk
from codesign.search.front.parametric_sequence import ParametricSequence, RememberingOracle
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective

LISTS = {"a": np.array([1.0, 2.0, 4.0]), "x": np.linspace(0, 1, 7), "b": np.array([0.0, 1.0]), "y": np.arange(5.0)}
LEGAL = np.array([[1.0, 0.0], [1.0, 1.0], [4.0, 1.0]])


@pytest.fixture
def tree() -> PlanTree:
    return PlanTree(LISTS, LEGAL, ["x", "y"], [1.0, 2.0])


def split_whole(tree: PlanTree) -> np.ndarray:
    """All single plans that splitting the roots arrives at."""
    left, plans = np.arange(tree.roots), []
    while len(left):
        parts, parent = tree.split(left)
        assert (np.bincount(parent, tree.weight(parts), len(left)) == tree.weight(left)).all()
        plans.append(parts[tree.single(parts)])
        left = parts[~tree.single(parts)]
    return np.concatenate(plans)


def test_splitting_arrives_at_every_plan_once(tree: PlanTree):
    known = tree.sample(np.random.default_rng(0), 20)  # listed before their groups are split
    plans = split_whole(tree)
    table = tree.table(plans)
    assert len(plans) == len(np.unique(plans)) == len(np.unique(table, axis=0)) == tree.plans == 3 * 7 * 5
    assert set(known.tolist()) <= set(plans.tolist())
    assert set(tree.sample(np.random.default_rng(1), 1000).tolist()) == set(plans.tolist())


def test_parents_are_groups_around_their_parts(tree: PlanTree):
    tree.sample(np.random.default_rng(0), 20)
    split_whole(tree)
    part, parent = np.arange(tree.count), tree.parent
    assert (tree.outer[part] == tree.outer[parent]).all()
    assert (tree.low[parent] <= tree.low[part]).all()
    assert (tree.high[parent] >= tree.high[part]).all()
    assert (tree.weight(parent[tree.roots :]) > tree.weight(part[tree.roots :])).all()
    assert (passed_down(-np.arange(tree.count, dtype=float), parent) >= -tree.outer).all()


def test_neighbours_differ_in_few_fields_and_are_legal(tree: PlanTree):
    plans = tree.sample(np.random.default_rng(0), 1000)
    table = tree.table(plans)
    for changes in (1, 2, 3):
        expected = plans[(table != table[17]).sum(axis=1) <= changes]
        assert set(tree.near(int(plans[17]), changes).tolist()) == set(expected.tolist())


def test_some_nodes_cover_every_plan(tree: PlanTree):
    plans = tree.sample(np.random.default_rng(0), 1000)
    chosen = np.zeros(tree.count, dtype=bool)
    chosen[: tree.roots] = True
    assert (tree.covering(plans, chosen) == tree.outer[plans]).all()
    parts, _ = tree.split(np.array([1]))
    chosen = np.concatenate([chosen, np.zeros(tree.count - len(chosen), dtype=bool)])
    chosen[1], chosen[parts] = False, True
    held = tree.covering(plans, chosen)
    assert np.bincount(held, minlength=tree.count)[parts].tolist() == tree.weight(parts).tolist()


def test_orders_are_found_and_contradictions_are_not():
    """Rows rise with x, fall with x, are least at x = 0.5; whether y is good for row 0 depends on the hardware."""

    def ask(rows: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = rows[:, 1], rows[:, 3]
        exact = np.stack([x + y * (u[:, 0] - 0.5), -2 * x + y, np.abs(x - 0.5) - 0.1 * y], axis=-1)
        return exact, np.zeros(len(rows))

    plans = np.stack([np.random.default_rng(0).choice(values, 200) for values in LISTS.values()], axis=-1)
    result = find_orders(LISTS, plans, 2, ask, 0, list(LISTS))
    assert set(result) == {"a", "x", "b"}  # a and b have no effect, which is an order as well
    assert set(find_orders(LISTS, plans, 2, ask, 0, ["x"])) == {"x"}
    rising, falling, middle = views([result["x"]], 3)
    assert [view.rows.tolist() for view in (rising, falling, middle)] == [[0], [1], [2]]
    assert [view.best[0][1, 6] for view in (rising, falling, middle)] == [1, 6, 3]
    assert [view.best[0][4, 6] for view in (rising, falling, middle)] == [4, 6, 4]


def test_a_field_that_decides_what_is_legal_is_not_grouped():
    def ask(rows: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rows[:, 1:2] + 0.0, (rows[:, 1] > 0.5).astype(float)

    plans = np.stack([np.random.default_rng(0).choice(values, 200) for values in LISTS.values()], axis=-1)
    assert "x" not in find_orders(LISTS, plans, 2, ask, 0, list(LISTS))


@pytest.fixture(scope="module")
def problem() -> Problem:
    space = DesignSpace(
        plan={
            "tp": [4, 8], "pp": [4, 8, 16], "micro_batch": [1, 2, 4], "recompute": ["none", "full"],
            "offload_optimizer": [0.0, 0.25, 0.5, 0.75, 1.0], "offload_activations": [0.0, 0.5, 1.0],
        },
        hardware={
            "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9),
            "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 30e9, 200e9),
            "ddr": Continuous("cluster.host.memory.capacity_bytes", 30e9, 600e9),
        },
    )  # fmt: skip
    return Problem(training(), space, Objective("usd_per_million_tokens", limits={"time_s": 20.0}))


@pytest.fixture(scope="module")
def grouped(problem: Problem) -> GroupOracle:
    return GroupOracle(problem, rows_of(problem), 256)


def test_a_group_lies_below_all_its_plans(grouped: GroupOracle):
    rng = np.random.default_rng(3)
    assert {"offload_optimizer", "offload_activations"} <= set(grouped.tree.inner)
    plans = grouped.sample(rng, 300)
    parts, _ = grouped.split(grouped.roots)
    chosen = np.zeros(grouped.count, dtype=bool)
    for nodes in (grouped.roots, parts):
        chosen[:] = False
        chosen[nodes] = True
        held = grouped.tree.covering(plans, chosen)
        u, there = rng.uniform(size=(2, len(plans), 3))
        bound = grouped.tangents(held, u, 50.0).affine
        below = bound[..., 0] + np.einsum("prv,pv->pr", bound[..., 1:], there)
        assert (below <= grouped.tangents(plans, there, 50.0).exact + 1e-9).all()


def test_rows_alone_are_those_of_tangents(grouped: GroupOracle):
    """Of groups and of plans, which are asked for together, and to the last bit."""
    rng = np.random.default_rng(5)
    plan = np.concatenate([grouped.roots[:40], grouped.sample(rng, 40)])
    u = rng.uniform(size=(len(plan), len(grouped.variables)))
    whole, (exact, broken) = grouped.tangents(plan, u, 50.0), grouped.values(plan, u)
    np.testing.assert_array_equal(exact, whole.exact)
    np.testing.assert_array_equal(broken, whole.broken)


def test_same_optimum_as_one_by_one(problem: Problem, grouped: GroupOracle):
    """The proof over groups against the proof over every plan by itself, of the same model."""
    effort = SearchEffort(gap=1e-3)
    together = BranchAndBound(Programme(grouped), effort, 0).run()
    plans = grouped.tree.table(grouped.sample(np.random.default_rng(0), 10**6))
    alone = Oracle(problem, rows_of(problem), 256, plans=dict(zip(grouped.tree.fields, plans.T, strict=True)))
    each = BranchAndBound(Programme(alone), effort, 0).run()
    assert together.counts["plans"] == each.counts["plans"] == len(plans)
    assert together.counts["open"] == each.counts["open"] == 0
    assert max(together.lower, each.lower) <= min(together.upper, each.upper) + 1e-9
    assert together.gap <= 1e-3 + 1e-9


def test_front_over_groups_against_random_designs(grouped: GroupOracle):
    """No design that keeps a level lies below the bound proven there; those of the front keep theirs."""
    walk = FrontWalk(
        ParametricSequence(RememberingOracle(grouped), (), SearchEffort(gap=5e-3), 0), (GOAL, "time_s"), 4, between=6
    )
    assert walk.run() == ""
    assert len(walk.designs) > 12
    rng = np.random.default_rng(1)
    plans = grouped.sample(rng, 10**6)
    exact = [grouped.tangents(plans, rng.uniform(size=(len(plans), 3)), 50.0).exact for _ in range(20)]
    goal, others = (np.concatenate(exact)[:, [grouped.names.index(name)]] for name in (GOAL, "time_s"))
    for one in walk.designs:
        assert one.closed
        assert one.gap <= 5e-3 + 1e-9
        assert one.values[1] <= one.levels.get("time_s", np.inf) + 1e-6
        assert goal[others <= one.levels.get("time_s", np.inf)].min(initial=np.inf) >= one.lower - 1e-9


def test_orders_that_no_walk_proves_count_only_where_plans_are_too_many(problem: Problem, monkeypatch):
    monkeypatch.setattr(groups, "order_of", lambda *_: None)
    alone = GroupOracle(problem, rows_of(problem), 256)
    assert (alone.doubt, alone.orders) == ("", {})
    monkeypatch.setattr(groups, "MOST_ROOTS", 10)
    assert "was tested on" in GroupOracle(problem, rows_of(problem), 256).doubt


def test_too_many_to_list_is_searched_without_a_proof(problem: Problem, grouped: GroupOracle, monkeypatch):
    monkeypatch.setattr(groups, "MOST_LISTED", 10)
    monkeypatch.setattr(groups, "MOST_BOUNDED", 10)
    monkeypatch.setattr(groups, "TRIED", 60)
    some = GroupOracle(problem, rows_of(problem), 256)
    trace = Certified(convexity_samples=64, explain=False).search(some, GoalQuantity(problem.objective.goal), 0)
    assert trace.claim.startswith(
        "heuristic solution, no certificate: 540 combinations of plan values are too many to bound"
    )
    assert not trace.certificate.certified
    assert trace.certificate.bound is None
    best = np.exp(BranchAndBound(Programme(grouped), SearchEffort(gap=1e-3), 0).run().upper)
    assert best * 0.999 <= trace.certificate.best <= best * 1.5
