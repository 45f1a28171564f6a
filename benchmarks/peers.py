"""Certified search against other people's at equal wall time, on the six instances of `search.py`.

    python benchmarks/peers.py                            all six, table
    python benchmarks/peers.py 175b_time --seconds 20     one of them, 20 s for each search
    python benchmarks/peers.py --seeds 3 --csv peers.csv  three seeds, every run as a row
    python benchmarks/peers.py 22b_cost --grids           also grid and grid then gradient, which take what they take
    python benchmarks/peers.py 175b_time --front 12       also fronts: certified at so many levels, NSGA-II as long

All peers ask one compiled evaluator over legal plans (a combination that is none stands for the nearest), in float64;
compilation is not counted, except for the grids.
"""

import argparse
import math
import os
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from search import INSTANCES, problem_of

from codesign.objective import Objective
from codesign.results import designs
from codesign.run.setup import prepare_jax
from codesign.search import Blackbox, Grid, GridThenGradient, Nsga2, Pareto, Problem
from codesign.search.blackbox import rows_with
from codesign.search.box import Box, Evaluator
from codesign.search.comparison import BLOCK, NEAR, compare
from codesign.search.front import hypervolume
from codesign.search.oracle import GOAL
from codesign.search.trial import Trial
from codesign.space import DesignSpace

GRID_LEVELS = 2  # of each of six variables: 64 points a plan
FRONT = ("time_s", "capex_usd")


def grids(problem: Problem, optimum: float) -> list[dict[str, Any]]:
    """The exhaustive searches, with their compilation; their time is what they need, not what others have."""
    coarse = {name: variable_with(variable) for name, variable in problem.space.hardware.items()}
    problem = Problem(problem.scenario, DesignSpace(problem.space.plan, coarse), problem.objective)
    rows = []
    for name, search in (("grid", Grid(keep=4)), ("grid then gradient", GridThenGradient(keep=4))):
        began = time.perf_counter()
        trace = search.run(problem, 0)
        taken = time.perf_counter() - began
        best = designs(problem, trace, 0).iloc[0]
        gap = best["objective"] / optimum - 1 if best["feasible"] else math.inf
        rows.append(
            {"method": name, "gap": gap, "hit": gap <= NEAR, "seconds_to_hit": taken if gap <= NEAR else math.nan,
             "points": trace.counts["points"], "seed": 0, "seconds": taken, "proven_gap": math.nan}
        )  # fmt: skip
    return rows


def variable_with(variable: Any) -> Any:
    """A hardware variable at two levels."""
    return type(variable)(**(vars(variable) | {"grid": GRID_LEVELS}))


def fronts(problem: Problem, levels: int, seed: int) -> dict[str, Any]:
    """Hypervolume (of logs, 10 % beyond the worst of either front) of the certified front and of NSGA-II's."""
    trace = Pareto(FRONT, levels=levels, seconds=900).run(problem, seed)
    found, seconds = trace.certificate["front"], trace.seconds["pareto"]
    ours = np.log([[row["values"][name] for name in FRONT] for row in found["points"]])
    asked = Problem(problem.scenario, problem.space, Objective(FRONT[0], limits=problem.objective.limits))
    peer = Nsga2()
    trial = Trial(Evaluator(Box(asked), rows_with(asked, FRONT[1:]), BLOCK, (GOAL, *FRONT[1:])), seconds, math.inf)
    Blackbox(peer).ask(trial, seed)
    theirs = np.array([point[0] for point in trial.front])
    reference = np.maximum(ours.max(axis=0), theirs.max(axis=0)) + np.log(1.1)
    return {
        "designs": len(ours), "certified": sum(row["certified"] for row in found["points"]),
        "worst_gap": max(row["gap"] for row in found["points"]), "seconds": seconds, "nsga2_designs": len(theirs),
        "nsga2_points": trial.count,
        "hypervolume_ratio": hypervolume(ours, reference) / hypervolume(theirs, reference),
        "nsga2_worse_at_levels": behind(ours, theirs),
    }  # fmt: skip


def behind(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Median over our designs of how much worse the best of theirs within the same second metric is (relative)."""
    best = [theirs[theirs[:, 1] <= one[1] + 1e-4, 0].min(initial=np.inf) - one[0] for one in ours]
    return float(np.expm1(np.median(best)))


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One line a method: gap, hit rate, time to 1 %."""
    parts = frame.groupby("method", sort=False)
    table = pd.DataFrame(
        {"runs": parts.size(), "median_gap": parts["gap"].median(), "worst_gap": parts["gap"].max(),
         "hit_rate": parts["hit"].mean(), "median_seconds_to_hit": parts["seconds_to_hit"].median(),
         "median_points": parts["points"].median(), "median_seconds": parts["seconds"].median()}
    )  # fmt: skip
    return table.sort_values("median_gap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="*", choices=[*INSTANCES, []], default=[])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--csv", default="")
    parser.add_argument("--grids", action="store_true")
    parser.add_argument("--front", type=int, default=0, metavar="LEVELS")
    arguments = parser.parse_args()
    prepare_jax()
    rows: list[dict[str, Any]] = []
    for name in arguments.instances or INSTANCES:
        problem = problem_of(name)

        def told(row: dict[str, Any], name: str = name) -> None:
            rows.append({"instance": name} | row)
            print(
                f"{name:>16} {row['method']:>22} seed {row['seed']}: {row['gap']:8.2%} off after {row['seconds']:.1f} "
                f"s, within 1 % after {row['seconds_to_hit']:.2f} s, {row['points']:,} points", flush=True,
            )  # fmt: skip

        if arguments.front:
            print(name, fronts(problem, arguments.front, 0), flush=True)
            continue
        found = compare(problem, arguments.seconds, range(arguments.seeds), told=told)
        if arguments.grids:
            best = min(row["best"] for row in found)
            for row in grids(problem, best):
                told(row)
        if arguments.csv:
            pd.DataFrame(rows).to_csv(arguments.csv, index=False, float_format="%.6g")
    if rows:
        print(summary(pd.DataFrame(rows)).to_string(float_format=lambda value: f"{value:.4g}"))


if __name__ == "__main__":
    main()
