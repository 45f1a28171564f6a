"""Staged programs against the plain model: the same numbers and slopes, whatever is tabulated and however it is cut."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_programs import PLANS, random_model

from codesign import study_from_config
from codesign.config import available, scenario_from_config
from codesign.core import replace
from codesign.jaxprs import evaluator as elementary
from codesign.model.metrics import evaluate
from codesign.search.branch_and_bound.model_oracle import Oracle
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.search.exhaustive.grid import BLOCK, Sweep
from codesign.staging import (
    PlanTable,
    Table,
    at_points,
    flatten,
    model_of,
    running,
    slopes_along,
    slopes_of,
    staged,
    written_out,
)
from codesign.staging.points import PlanCache

DESIGNS = 3
MIXES = {"workload_mix"}  # several problems, no scenario of its own


def problem_of(name: str):
    return study_from_config(f"experiment={name}").problem


@pytest.mark.slow
@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize("name", sorted(set(available("experiment")) - MIXES))
def test_a_grid_is_priced_as_the_model_is(name):
    """Any points of the grid of every experiment: goal, excess, time and cost to 1e-12."""
    problem, rng = problem_of(name), np.random.default_rng(0)
    if not problem.space.plan and not problem.space.hardware:
        pytest.skip("nothing varies")
    sweep = Sweep(problem, BLOCK, 4)
    blocks = list(sweep.blocks())
    model = model_of(problem.scenario, problem.space, tuple(sweep.axes.plans))
    told = written_out(model.program).equations
    strangers = sorted({equation.name for equation in told if not elementary.knows(equation.primitive)})
    assert not strangers, f"primitives that codesign/jaxprs/numpy_primitives.py does not know: {strangers}"
    for at in rng.integers(len(blocks), size=DESIGNS):
        block = sweep.evaluated(*blocks[at])
        row, column = rng.integers(len(block.plan)), rng.integers(len(block.level))
        point = sweep.axes.points(np.array([[block.plan[row], block.level[column]]]))
        point = {key: jnp.asarray(float(value[0])) for key, value in point.items()}
        metrics = evaluate(problem.space.place(problem.scenario, point))
        seen = [part[row, column] for part in (block.goal, block.excess, *block.front)]
        told = problem.objective.rank(metrics), problem.objective.excess(metrics)
        truth = [float(each) for each in (*told, metrics.time_s, metrics.usd_per_million_tokens)]
        np.testing.assert_allclose(seen, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_blocks_of_any_size_say_the_same_of_every_point_once():
    """Seven, five and three levels of 13,968 plans: blocks that end within a range, at its end, and hold everything."""
    problem = problem_of("train_gpt3_175b")
    grids = zip(problem.space.hardware.items(), (7, 5, 3), strict=True)
    hardware = {name: dataclasses.replace(variable, grid=grid) for (name, variable), grid in grids}
    problem = dataclasses.replace(problem, space=dataclasses.replace(problem.space, hardware=hardware))
    answers, priced = [], 200  # plans
    for block in (1 << 12, 50_000, 1 << 21):
        sweep = Sweep(problem, block, 4)
        goal = np.full((sweep.axes.plan_count, sweep.axes.level_count), np.nan)
        seen = np.zeros(goal.shape, dtype=int)
        for plan, level in sweep.blocks():
            if plan[0] < priced:
                goal[np.ix_(plan, level)] = sweep.evaluated(plan, level).goal
            seen[np.ix_(plan, level)] += 1
        assert (seen == 1).all()
        answers.append(goal[:priced])
    assert np.isfinite(answers[0]).all()
    for one, other in itertools.pairwise(answers):
        np.testing.assert_allclose(one, other, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_gpt3_175b", "photonic_rack"])
def test_rows_and_slopes_are_those_of_the_traced_program(name):
    problem, rng = problem_of(name), np.random.default_rng(1)
    oracle = Oracle(problem, rows_of(problem))
    plan, u = rng.integers(oracle.count, size=DESIGNS), rng.uniform(size=(DESIGNS, len(oracle.variables)))
    result = oracle.points()(problem.scenario, oracle.table[plan], u, np.full(DESIGNS, 50.0))
    given = (problem.scenario, jnp.asarray(oracle.table[plan[0]]), jnp.asarray(u[0]))
    rows, broken = oracle.program.exact(*given)
    below, slopes = oracle.program.tangent(*given, jnp.asarray(50.0))
    np.testing.assert_allclose(result.exact[0], rows, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.below[0], below, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.slopes[0], slopes, rtol=1e-9, atol=1e-12)
    assert result.broken[0] == pytest.approx(float(broken), rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_slopes_by_every_number_against_differences():
    scenario = problem_of("train_gpt3_175b").scenario
    (slopes,) = slopes_of(scenario, lambda account: [jnp.log(account.metrics.usd_per_million_tokens)])
    leaves, structure = jax.tree.flatten(scenario)
    by_each = jax.tree.leaves(slopes)
    numbers = [i for i, leaf in enumerate(leaves) if np.ndim(leaf) == 0 and abs(float(leaf * by_each[i])) > 1e-4]
    rng = np.random.default_rng(2)

    def goal(i, value):
        changed = [*leaves[:i], jnp.asarray(value), *leaves[i + 1 :]]
        return float(jnp.log(evaluate(jax.tree.unflatten(structure, changed)).usd_per_million_tokens))

    checked, here = 0, goal(numbers[0], float(leaves[numbers[0]]))
    for i in rng.permutation(numbers)[:16]:
        value = float(leaves[i])
        step = 1e-6 * value
        above, below = goal(i, value + step) - here, here - goal(i, value - step)
        if abs(above - below) < 1e-3 * abs(above):  # neither at a kink nor at a step, as whole numbers are
            assert float(by_each[i]) == pytest.approx((above + below) / (2 * step), rel=2e-4)
            checked += 1
    assert checked > 8


@pytest.mark.parametrize("most", [0, 3, 10**6])
def test_random_models_cut_anywhere(most):
    """Whatever goes into tables and whatever is left for every point: the numbers of JAX."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model, plans = random_model(rng, 8), PlanTable({}, PLANS)
        numbers = [jnp.asarray(0.5)] * 4
        program = flatten(jax.make_jaxpr(model)(*numbers))
        given = {slot: Table(frozenset([at]), plans.column(at)) for at, slot in enumerate(program.inputs[:2])}
        cut = staged(program, plans, given, most)
        columns = [rng.choice(PLANS["a"], 20), rng.choice(PLANS["b"], 20), *rng.uniform(size=(2, 20))]
        whole = [np.broadcast_to(x, (20,)) for x in at_points(program, [], columns)]
        rows = [np.searchsorted(np.unique(PLANS[name]), column) for name, column in zip("ab", columns, strict=False)]
        inputs = [_looked_up(table, plans, rows) for table in cut.tables.values()]
        rest = written_out(program)._replace(
            equations=cut.rest, inputs=(*cut.tables, *program.inputs[2:]), outputs=cut.outputs, constants={}
        )
        result = running(rest)(*inputs, *columns[2:])
        for mine, other in zip(result, whole, strict=True):
            np.testing.assert_array_equal(np.broadcast_to(mine, (20,)), other)
        compiled = jax.jit(jax.vmap(model))(*map(jnp.asarray, columns))
        for mine, other in zip(whole, compiled, strict=True):
            np.testing.assert_allclose(mine, np.asarray(other), rtol=1e-9, atol=1e-12)


def _looked_up(table, plans, rows):
    order = sorted(table.fields)
    if not order:
        return table.values
    return table.values[np.ravel_multi_index([rows[i] for i in order], [len(plans.values[i]) for i in order])]


@pytest.mark.slow
def test_slopes_along_a_direction_are_those_of_differences():
    """Two leaves move together, at several points at once; one point alone gives what it gives among others."""
    scenario = scenario_from_config("experiment=busy_node", "plan.micro_batch=4")
    path = "cluster.network.scale_up.fabric"
    paths = (f"{path}.inner.bandwidth_bytes_per_s", f"{path}.background_bytes_per_s")
    start = {paths[0]: np.geomspace(3e11, 9e11, 3), paths[1]: np.geomspace(1e9, 2e10, 3)}

    def told(account):
        return [jnp.log(account.metrics.time_s), account.metrics.energy_j]

    def at(step):
        return {name: values * np.exp(step) for name, values in start.items()}

    result, slopes = slopes_along(scenario, told, start, start)
    above, below = (slopes_along(scenario, told, at(step), start)[0] for step in (1e-5, -1e-5))
    for values, slope, up, down in zip(result, slopes, above, below, strict=True):
        assert values.shape == slope.shape == (3,)
        np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-5, atol=1e-9 * abs(values).max())
    alone, along = slopes_along(scenario, told, *({n: v[1:2] for n, v in start.items()} for _ in range(2)))
    np.testing.assert_allclose([each[0] for each in alone + along], [each[1] for each in result + slopes], rtol=1e-13)
    plain = evaluate(replace(scenario, {name: values[1] for name, values in start.items()}))
    np.testing.assert_allclose(result[0][1], np.log(plain.time_s), rtol=1e-13)


def test_a_plan_that_was_asked_for_is_not_computed_again():
    cache, computed = PlanCache(), []
    codes = np.random.default_rng(0).integers(0, 50, 200) * 10**12

    def ask(places):
        def compute(missing):
            computed.extend(codes[places][missing])
            return np.stack([codes[places][missing] * 2.0, np.sin(codes[places][missing])], axis=1)

        return cache.at(codes[places], compute)

    for places in (np.arange(0, 40), np.arange(20, 200), np.arange(200)[::-1], np.arange(0)):
        result = ask(places)
        np.testing.assert_array_equal(result, np.stack([codes[places] * 2.0, np.sin(codes[places])], axis=1))
    assert sorted(computed) == sorted(set(codes))


def test_a_full_cache_of_plans_begins_anew(monkeypatch):
    monkeypatch.setattr("codesign.staging.points.MOST_PLANS", 8)
    cache = PlanCache()
    for first in (0, 4, 6, 2):
        codes = np.arange(first, first + 6)
        result = cache.at(codes, lambda missing, codes=codes: codes[missing][:, None] + 0.5)
        np.testing.assert_array_equal(result[:, 0], codes + 0.5)
