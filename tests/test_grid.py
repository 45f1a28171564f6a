"""The streaming grid against all points at once: nothing lost, nothing kept that grows, continued to the bit."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training
from codesign.search.precision import settle

from codesign.errors import ConfigError
from codesign.interpreting import interpreted
from codesign.metrics import evaluate
from codesign.objective import TOLERANCE, Objective, feasible
from codesign.results import designs
from codesign.search import Grid, Problem
from codesign.search.grid import CHECKPOINT, Saving, Sweep, _point_function, non_dominated, screen
from codesign.search.stream import Block, Kept
from codesign.space import Continuous, DesignSpace

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
OUT = "cluster.network.scale_out.fabric.bandwidth_bytes_per_s"
BLOCK = 24


@pytest.fixture(scope="module")
def problem() -> Problem:
    space = DesignSpace(
        plan={"tp": [4, 8], "pp": [4, 8], "micro_batch": [1, 2], "zero": [0, 1]},
        hardware={"up": Continuous(UP, 100e9, 900e9, grid=8), "out": Continuous(OUT, 20e9, 100e9, grid=5)},
    )
    return Problem(training(), space, Objective("usd_per_million_tokens", limits={"capex_usd": 5.2e7}))


@pytest.fixture(scope="module")
def everything(problem):
    """Every point in double precision, [plans, levels]: goal, excess, time, capex."""
    plans, levels = problem.space.plans(problem.scenario), problem.space.grid()

    def one(plan, level):
        metrics = evaluate(problem.space.place(problem.scenario, plan | level))
        return metrics.usd_per_million_tokens, problem.objective.excess(metrics), metrics.time_s, metrics.capex_usd

    price = interpreted(jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)))
    return [np.asarray(a) for a in price(*({n: jnp.asarray(c) for n, c in d.items()} for d in (plans, levels)))]


@pytest.fixture(scope="module")
def sweep(problem):
    """One compilation for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codesign.search.grid.FEW_POINTS", 0)
        return Sweep(problem, BLOCK, keep=4)


@pytest.fixture
def compiled(sweep, monkeypatch):
    """Searches of this problem share the compiled block function."""
    monkeypatch.setattr("codesign.search.grid._block_function", lambda *_: sweep.function)
    monkeypatch.setattr("codesign.search.grid.MANY_POINTS", np.inf)


@pytest.mark.usefixtures("compiled")
def test_keeps_what_all_points_show(problem, everything):
    goal, excess, time, _ = everything
    kept = screen(problem, BLOCK, keep=4).kept
    score = np.where(feasible(excess), goal, np.inf)
    assert int(kept.feasible) == np.isfinite(score).sum() < score.size
    assert kept.histogram.sum() == int(kept.feasible)
    best = np.argsort(score.min(axis=1), kind="stable")[:4]
    assert kept.best_at[:, 0].tolist() == best.tolist()
    assert kept.best_at[:, 1].tolist() == score.argmin(axis=1)[best].tolist()
    np.testing.assert_allclose(np.exp(kept.best), score.min(axis=1)[best], rtol=1e-5)
    ok = np.isfinite(score)
    front = np.stack([time[ok], goal[ok]], axis=-1)
    np.testing.assert_allclose(kept.front, front[non_dominated(front)], rtol=1e-4)
    by_level = score.min(axis=0).reshape(5, 8)  # out, up: sorted names, the last fastest
    np.testing.assert_allclose(np.exp(kept.by_value[-13:-8]), by_level.min(axis=1), rtol=1e-5)
    np.testing.assert_allclose(np.exp(kept.by_value[-8:]), by_level.min(axis=0), rtol=1e-5)


@pytest.mark.usefixtures("compiled")
def test_best_of_the_frame_is_the_exact_arg_min(problem, everything):
    goal, excess, *_ = everything
    frame = designs(problem, Grid(BLOCK, keep=2).run(problem, 0), 0)
    assert frame.iloc[0]["objective"] == pytest.approx(np.where(feasible(excess), goal, np.inf).min(), rel=1e-12)


def test_optimum_on_a_limit_that_single_precision_cannot_tell(problem, everything, monkeypatch):
    """The best point misses its limit by less than float32 resolves: what is best and feasible is as in float64."""
    goal, excess, _, capex = everything
    best = np.unravel_index(np.where(feasible(excess), goal, np.inf).argmin(), goal.shape)
    limit = float(capex[best]) / (1 + 3 * TOLERANCE)
    truth = np.where(feasible(np.maximum(excess, capex / limit - 1)), goal, np.inf)  # the limit before was wider
    asked = dataclasses.replace(problem, objective=Objective(problem.objective.goal, limits={"capex_usd": limit}))
    monkeypatch.setattr("codesign.search.grid._block_function", lambda p, _: _by_numbers(p, blocks=True))
    monkeypatch.setattr("codesign.search.grid._pair_function", lambda p: _by_numbers(p, blocks=False))
    monkeypatch.setattr("codesign.search.grid.MANY_POINTS", 0)
    kept = screen(asked, 1280).kept
    assert 0 < float(kept.rounding) < 1e-6
    assert int(kept.feasible) == np.isfinite(truth).sum()
    assert np.exp(kept.best[0]) == pytest.approx(truth.min(), rel=1e-12)
    assert tuple(kept.best_at[0]) == np.unravel_index(truth.argmin(), truth.shape) != best


def _by_numbers(problem, *, blocks):
    """The functions of a sweep, run by NumPy."""
    one = _point_function(problem)
    one = jax.vmap(one, in_axes=(None, None, 0)) if blocks else one
    return interpreted(jax.vmap(one, in_axes=(None, 0, None if blocks else 0)))


def test_any_rounding_is_settled():
    """Goals near each other and violations near the limit, both in error: what is kept is what is true."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        goal, excess = 3e-6 * rng.normal(size=(12, 40)), TOLERANCE + 3e-6 * rng.normal(size=(12, 40))
        seen = [a + 1e-6 * rng.uniform(-1, 1, a.shape) for a in (goal, excess)]
        none = np.zeros(goal.shape)

        def exact(pairs, truth=(goal, excess, none, none)):
            return tuple(part[pairs[:, 0], pairs[:, 1]] for part in truth)

        screened, truth = Kept.empty(4, 1), Kept.empty(4, 1)
        for row, column in itertools.product(range(0, 12, 4), range(0, 40, 8)):
            part = np.s_[row : row + 4, column : column + 8]
            at = np.arange(row, row + 4), np.arange(column, column + 8)
            block = Block(*at, seen[0][part].copy(), seen[1][part].copy(), (none[part].copy(), none[part].copy()))
            settle(block, exact, screened)
            pair = (screened, block), (truth, Block(*at, goal[part], excess[part], (none[part], none[part])))
            for kept, found in pair:
                kept.take(found, np.zeros((4, 1), int), np.zeros((8, 1), int))
                if column == 32:
                    kept.finish_plans(at[0], 1)
        assert int(screened.feasible) == int(truth.feasible)
        assert screened.best_at.tolist() == truth.best_at.tolist()
        assert screened.best.tolist() == truth.best.tolist()
        assert 1e-7 < screened.rounding < 2e-6


def test_a_slip_begins_again_in_double_precision(problem, monkeypatch):
    """A sixth of the plans are wrong by 5 % in single precision: nothing of that pass is left."""

    def block_function(asked, _):
        exact = _by_numbers(asked, blocks=True)

        def slipping(scenario, plans, levels):
            goal, *others = map(np.asarray, exact(scenario, plans, levels))
            wrong = 0.05 * (goal.dtype == np.float32) * (np.arange(len(goal)) % 6 == 5)[:, None]
            return goal + wrong.astype(goal.dtype), *others

        return slipping

    monkeypatch.setattr("codesign.search.grid._block_function", block_function)
    monkeypatch.setattr("codesign.search.grid._pair_function", lambda p: _by_numbers(p, blocks=False))
    kept = []
    for many in (np.inf, 0):
        monkeypatch.setattr("codesign.search.grid.MANY_POINTS", many)
        kept.append(screen(problem, 1280).kept)
    assert kept[1].rounding == np.inf
    kept[1].rounding = kept[0].rounding
    assert same(*kept)


def same(a: Kept, b: Kept) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Kept))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("inside", [False, True])
def test_interrupted_search_continues_to_the_bit(problem, tmp_path, monkeypatch, inside):
    """Stopped between blocks, or in the middle of one."""
    whole = screen(problem, BLOCK, keep=4)
    calls, original = [], Kept._front

    def stop(*_):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt

    def stop_inside(self, *args):
        original(self, *args)
        stop()

    if inside:
        monkeypatch.setattr(Kept, "_front", stop_inside)
    first = screen(problem, BLOCK, lambda p: None if inside else stop(), 4, Saving(str(tmp_path / CHECKPOINT)))
    monkeypatch.setattr(Kept, "_front", original)
    assert 0 < first.evaluated < whole.evaluated
    assert "interrupted after" in first.stopped
    assert not same(first.kept, whole.kept)
    again = screen(problem, BLOCK, keep=4, saving=Saving(str(tmp_path / "next.npz"), resume=str(tmp_path)))
    assert same(again.kept, whole.kept)
    assert again.evaluated == whole.evaluated
    assert (tmp_path / "next.npz").is_file()


@pytest.mark.usefixtures("compiled")
def test_state_of_another_study_is_refused(problem, tmp_path):
    screen(problem, BLOCK, lambda p: (_ for _ in ()).throw(KeyboardInterrupt), 4, Saving(str(tmp_path / CHECKPOINT)))
    other = dataclasses.replace(problem, objective=Objective("time_s"))
    with pytest.raises(ConfigError, match="of another study"):
        screen(other, BLOCK, saving=Saving(resume=str(tmp_path)))
    with pytest.raises(ConfigError, match="does not exist"):
        screen(problem, BLOCK, saving=Saving(resume=str(tmp_path / "nowhere")))


@pytest.mark.usefixtures("compiled")
def test_memory_does_not_grow_with_points(problem, monkeypatch):
    """A grid of a million times as many levels: states have the size of the values listed, blocks their own."""

    def of(grid: int) -> tuple[int, int]:
        space = DesignSpace(
            problem.space.plan, {n: dataclasses.replace(v, grid=grid) for n, v in problem.space.hardware.items()}
        )
        sweep = Sweep(dataclasses.replace(problem, space=space), BLOCK, keep=4)
        kept = sweep.fresh()
        for plan, level in [next(sweep.blocks())]:
            sweep.take(kept, plan, level)
        fixed = sum(getattr(kept, f.name).nbytes for f in dataclasses.fields(Kept) if f.name != "by_value")
        return sweep.axes.level_count, fixed + sum(level.nbytes for level in sweep.axes.levels)

    few, small = of(30)
    many, large = of(30_000)
    assert many == 1e6 * few
    assert large - small < 2 * 30_000 * 8 + 10_000
