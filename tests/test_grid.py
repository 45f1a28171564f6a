"""The streaming grid against all points at once: nothing lost, nothing kept that grows, continued to the bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training

from codesign.core.errors import ConfigError
from codesign.core.pareto_tools import non_dominated_rows
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.search import Grid, Problem
from codesign.search.exhaustive.grid import CHECKPOINT, CheckpointSettings, Sweep, screen
from codesign.search.exhaustive.sweep import TopDesigns
from codesign.search.results import designs
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import TOLERANCE, Objective, feasible

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


@pytest.mark.slow
def test_keeps_what_all_points_show(problem, everything):
    goal, excess, time, _ = everything
    kept = screen(problem, BLOCK, keep=4).top
    score = np.where(feasible(excess), goal, np.inf)
    assert int(kept.feasible) == np.isfinite(score).sum() < score.size
    assert kept.histogram.sum() == int(kept.feasible)
    best = np.argsort(score.min(axis=1), kind="stable")[:4]
    assert kept.best_at[:, 0].tolist() == best.tolist()
    assert kept.best_at[:, 1].tolist() == score.argmin(axis=1)[best].tolist()
    np.testing.assert_allclose(np.exp(kept.best), score.min(axis=1)[best], rtol=1e-12)
    ok = np.isfinite(score)
    front = np.stack([time[ok], goal[ok]], axis=-1)
    np.testing.assert_allclose(kept.front, front[non_dominated_rows(front)], rtol=1e-12)
    by_level = score.min(axis=0).reshape(5, 8)  # out, up: sorted names, the last fastest
    np.testing.assert_allclose(np.exp(kept.by_value[-13:-8]), by_level.min(axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.exp(kept.by_value[-8:]), by_level.min(axis=0), rtol=1e-12)


@pytest.mark.slow
def test_best_of_the_frame_is_the_exact_arg_min(problem, everything):
    goal, excess, *_ = everything
    frame = designs(problem, Grid(BLOCK, top_k=2).run(problem, 0), 0)
    assert frame.iloc[0]["objective"] == pytest.approx(np.where(feasible(excess), goal, np.inf).min(), rel=1e-12)


@pytest.mark.slow
def test_optimum_that_misses_its_limit_by_a_hair(problem, everything):
    """Blocks are priced as the model is: a miss of three tolerances is a miss."""
    goal, excess, _, capex = everything
    best = np.unravel_index(np.where(feasible(excess), goal, np.inf).argmin(), goal.shape)
    limit = float(capex[best]) / (1 + 3 * TOLERANCE)
    truth = np.where(feasible(np.maximum(excess, capex / limit - 1)), goal, np.inf)  # the limit before was wider
    asked = dataclasses.replace(problem, objective=Objective(problem.objective.goal, limits={"capex_usd": limit}))
    kept = screen(asked, 1280).top
    assert int(kept.feasible) == np.isfinite(truth).sum()
    assert np.exp(kept.best[0]) == pytest.approx(truth.min(), rel=1e-12)
    assert tuple(kept.best_at[0]) == np.unravel_index(truth.argmin(), truth.shape) != best


def same(a: TopDesigns, b: TopDesigns) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(TopDesigns))


@pytest.mark.parametrize("inside", [False, True])
def test_interrupted_search_continues_to_the_bit(problem, tmp_path, monkeypatch, inside):
    """Stopped between blocks, or in the middle of one."""
    whole = screen(problem, BLOCK, keep=4)
    calls, original = [], TopDesigns._front

    def stop(*_):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt

    def stop_inside(self, *args):
        original(self, *args)
        stop()

    if inside:
        monkeypatch.setattr(TopDesigns, "_front", stop_inside)
    first = screen(
        problem, BLOCK, lambda p: None if inside else stop(), 4, CheckpointSettings(str(tmp_path / CHECKPOINT))
    )
    monkeypatch.setattr(TopDesigns, "_front", original)
    assert 0 < first.evaluated < whole.evaluated
    assert "interrupted after" in first.stopped
    assert not same(first.top, whole.top)
    again = screen(problem, BLOCK, keep=4, saving=CheckpointSettings(str(tmp_path / "next.npz"), resume=str(tmp_path)))
    assert same(again.top, whole.top)
    assert again.evaluated == whole.evaluated
    assert (tmp_path / "next.npz").is_file()


def test_state_of_another_study_is_refused(problem, tmp_path):
    screen(
        problem,
        BLOCK,
        lambda p: (_ for _ in ()).throw(KeyboardInterrupt),
        4,
        CheckpointSettings(str(tmp_path / CHECKPOINT)),
    )
    other = dataclasses.replace(problem, objective=Objective("time_s"))
    with pytest.raises(ConfigError, match="of another study"):
        screen(other, BLOCK, saving=CheckpointSettings(resume=str(tmp_path)))
    with pytest.raises(ConfigError, match="does not exist"):
        screen(problem, BLOCK, saving=CheckpointSettings(resume=str(tmp_path / "nowhere")))


def test_memory_does_not_grow_with_points(problem, monkeypatch):
    """A grid of a million times as many levels: states have the size of the values listed, blocks their own."""

    def of(grid: int) -> tuple[int, int]:
        space = DesignSpace(
            problem.space.plan, {n: dataclasses.replace(v, grid=grid) for n, v in problem.space.hardware.items()}
        )
        sweep = Sweep(dataclasses.replace(problem, space=space), BLOCK, keep=4)
        kept = sweep.fresh()
        for plan, level in [next(sweep.blocks())]:
            sweep.take(kept, sweep.evaluated(plan, level))
        fixed = sum(getattr(kept, f.name).nbytes for f in dataclasses.fields(TopDesigns) if f.name != "by_value")
        return sweep.axes.level_count, fixed + sum(level.nbytes for level in sweep.axes.levels)

    few, small = of(30)
    many, large = of(30_000)
    assert many == 1e6 * few
    assert large - small < 2 * 30_000 * 8 + 10_000
