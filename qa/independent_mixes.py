"""One hardware for several workloads, drawn at random with the best plan of each, against the bound of `search=mix`.

At each point of the box every legal plan of every workload is priced by plain evaluation and the best that keeps the
limits taken; the goals are blended here. Points are drawn, then the best are moved in ever smaller steps, the run's own
design among them.

    codesign optimize experiment=workload_mix ... && python qa/independent_mixes.py runs/*
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from codesign import evaluate, prepare_jax
from codesign import study_from_config as composed
from codesign.jaxprs import interpreted
from codesign.search import Mix
from codesign.study import feasible

KEPT, NEXT, WIDTHS = 8, 64, (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
SAME = 1e-8


class Priced:
    """All plans of one workload at points of the box."""

    def __init__(self, problem: Any):
        self.problem, space = problem, problem.space
        self.plans = space.plans(problem.scenario)

        def told(point: Any) -> Any:
            metrics = evaluate(space.place(problem.scenario, point))
            return problem.objective.value(metrics, problem.objective.goal), problem.objective.excess(metrics)

        self._told = interpreted(jax.vmap(told), always=True)

    def best(self, u: np.ndarray) -> np.ndarray:
        """The least goal at each point, inf where no plan keeps the limits."""
        names, count = self.problem.space.names, len(next(iter(self.plans.values())))
        values = self.problem.space.values({name: np.repeat(u[:, at], count) for at, name in enumerate(names)})
        point = {name: np.tile(column, len(u)) for name, column in self.plans.items()}
        goal, excess = self._told(point | {name: np.asarray(value) for name, value in values.items()})
        goal = np.where(np.asarray(feasible(excess)) & np.isfinite(goal), goal, np.inf)
        return goal.reshape(len(u), count).min(axis=1)


def blended(how: str, weights: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """A blend of the workloads' goals, [points, workloads] -> [points]."""
    share = weights / weights.sum()
    if how == "log_sum":
        return np.exp(np.log(goals) @ share)
    if how == "sum":
        return goals @ share
    if how == "worst":
        return goals.max(axis=1)
    raise SystemExit(f"search.aggregate = {how}: only log_sum, sum and worst are attacked")


def attacked(folder: Path, count: int, seed: int) -> bool:
    """Attack one run; True where its bound is refuted."""
    study = composed(*[text for text in (folder / "overrides.txt").read_text().splitlines() if text])
    told = json.loads((folder / "summary.json").read_text())["certificate"]
    mix, rng = study.search, np.random.default_rng(seed)
    assert isinstance(mix, Mix)
    if mix.cases is not None and mix.cases.uncertain:
        raise SystemExit(f"{folder}: uncertain constants are not attacked")
    weights = np.array([mix.entries[name].weight for name in mix.problems])
    own = np.array([one["own_best"] for one in told["workloads"]]) if mix.relative else np.ones(len(weights))
    priced = [Priced(problem) for problem in mix.problems.values()]
    width = len(priced[0].problem.space.names)
    u, best, points, kept = rng.uniform(size=(count, width)), math.inf, 0, 0
    u[::3] = np.round(u[::3])
    frame, space = pd.read_parquet(folder / "designs.parquet"), priced[0].problem.space
    own_u = space.coordinates({name: frame[f"var.{name}"].to_numpy(float)[:1] for name in space.names})
    u = np.concatenate([u, np.clip(np.stack([np.asarray(own_u[name]) for name in space.names], axis=-1), 0, 1)])
    for turn in range(len(WIDTHS) + 1):
        goals = np.stack([one.best(u) for one in priced], axis=-1) / own
        value = blended(mix.aggregate, weights, goals)
        points, kept = points + len(u), kept + int(np.isfinite(value).sum())
        best = min(best, float(value.min()))
        order = np.argsort(value)[:KEPT]
        if turn == len(WIDTHS) or not np.isfinite(value[order[0]]):
            break
        base = u[rng.choice(order[np.isfinite(value[order])], NEXT)]
        moves = WIDTHS[turn] * rng.normal(size=base.shape) * (rng.uniform(size=base.shape) < 0.7)
        u = np.clip(np.concatenate([u[order], base + moves]), 0, 1)
    bound = math.inf if told["bound"] is None and told["certified"] else told["bound"]
    false = bound is not None and best < bound * (1 - SAME)
    plans = sum(len(next(iter(one.plans.values()))) for one in priced)
    print(
        f"{'FALSE' if false else 'no proof' if bound is None else 'holds'}: {folder}: {mix.aggregate} of {len(priced)}"
        f" workloads, best {told['best']}, bound {told['bound']}; {points:,} points of hardware, {points * plans:,}"
        f" designs, {kept:,} points serve all, the best {best:.8g}",
        flush=True,
    )
    return false


def main() -> int:
    """Attack run folders; 1 where a bound is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=256, help="points drawn at first")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    prepare_jax()
    wrong = [attacked(folder, given.count, given.seed) for folder in given.runs]
    print(f"{sum(wrong)} of {len(wrong)} bounds are wrong")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
