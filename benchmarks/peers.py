"""Certified search against other people's at equal wall time, on the six instances of `search.py`.

    python benchmarks/peers.py                            all six, table
    python benchmarks/peers.py 175b_time --seconds 20     one of them, 20 s for each search
    python benchmarks/peers.py --seeds 3 --csv peers.csv  three seeds, every run as a row
    python benchmarks/peers.py 22b_cost --grids           also grid and grid then gradient, which take what they take
    python benchmarks/peers.py --front 6 --seeds 2        fronts instead: certified from so many levels, NSGA-II as long
    python benchmarks/peers.py --front 6 --peer-cpu 1     NSGA-II for 1 CPU second, whatever the front took
    python benchmarks/peers.py --front 3 --goals 3        of three metrics
    python benchmarks/peers.py train_gpt3_175b --front 6 --metrics time_s capex_usd joules_per_token

All peers ask one compiled evaluator over legal plans (a combination that is none stands for the nearest), in float64;
compilation is not counted, except for the grids.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from search import INSTANCES, problem_of

from codesign import (
    Blackbox,
    DesignSpace,
    Grid,
    GridThenGradient,
    Objective,
    Pareto,
    Problem,
    designs,
    prepare_jax,
    study_from_config,
)
from codesign.search import Nsga2
from codesign.search.blackbox import Box, Evaluator, Trial, rows_with
from codesign.search.branch_and_bound import GOAL, oracle_for
from codesign.search.front import front_rows, hypervolume

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from _lib.comparison import NEAR, compare

FURTHER = ("joules_per_token", "capex_usd")  # metrics of a front beside an instance's own
GRID_LEVELS = 2  # of each of six variables: 64 points a plan


def grids(problem: Problem, optimum: float) -> list[dict[str, Any]]:
    """The exhaustive searches, with their compilation; their time is what they need, not what others have."""
    coarse = {name: variable_with(variable) for name, variable in problem.space.hardware.items()}
    problem = Problem(problem.scenario, DesignSpace(problem.space.plan, coarse), problem.objective)
    rows = []
    for name, search in (("grid", Grid(top_k=4)), ("grid then gradient", GridThenGradient(top_k=4))):
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


class CpuTrial(Trial):
    """A trial whose budget is CPU seconds: on a busy machine those are what both sides can be given alike."""

    @property
    def elapsed(self) -> float:
        """CPU seconds since the first question."""
        self.cpu = getattr(self, "cpu", time.process_time())
        return time.process_time() - self.cpu


def asked_of(name: str, metrics: tuple[str, ...], goals: int = 2) -> tuple[Problem, tuple[str, ...]]:
    """The problem of an instance, or of a study of the configuration, and the metrics of its front.

    Unless they are given: its goal against what it limits first, then energy or capex.
    """
    problem = problem_of(name) if name in INSTANCES else study_from_config(f"experiment={name}").problem
    own = dict.fromkeys((problem.objective.goal, next(iter(problem.objective.limits)), *FURTHER))
    return problem, metrics or tuple(own)[:goals]


def volumes(logs: np.ndarray, front: dict[str, Any]) -> dict[str, float]:
    """Hypervolume of designs and its share of what any front can have.

    Up to the front's own reference, a tenth of each range beyond its worst, and `far`: 10 % of each metric beyond.
    """
    worst = np.log([[row.values[name] for name in front.metrics] for row in front.points]).max(axis=0)
    corners, result = np.log(np.array(front.corners)), {}
    near = np.log([front.reference[name] for name in front.metrics])
    for suffix, reference in (("", near), ("_far", worst + math.log(1.1))):
        result[f"hypervolume{suffix}"] = hypervolume(logs, reference)
        result[f"share{suffix}"] = result[f"hypervolume{suffix}"] / hypervolume(corners, reference)
    return result


def fronts(
    name: str, levels: int, seeds: range, seconds: float, metrics: tuple[str, ...], peer_cpu: float = 0.0
) -> list[dict[str, Any]]:
    """A proven front, and NSGA-II's in the CPU time that took, or in `peer_cpu`; both compiled before.

    Hypervolumes are of logs, with two references (`volumes`). NSGA-II gets credit for every design it priced.
    """
    problem, metrics = asked_of(name, metrics)
    pareto = Pareto(metrics, levels=levels, seconds=seconds)
    oracle = oracle_for(problem, front_rows(problem, pareto.wanted), pareto.block)
    oracle.tangents(oracle.sample(np.random.default_rng(0), 1), np.full((1, len(oracle.variables)), 0.5), 1.0)
    began = time.process_time()
    trace = pareto.front(oracle, 0)
    spent, took, result = time.process_time() - began, trace.seconds["pareto"], trace.certificate.front
    gaps = [row.gap for row in result.points]
    own = volumes(np.log([[row.values[metric] for metric in metrics] for row in result.points]), result)
    common = {"instance": name, "front": " against ".join(metrics)}
    rows = [
        {"method": "certified", "designs": len(gaps), "worst_gap": max(gaps), "seconds": took, "cpu_s": spent,
         "points": trace.counts["points"], "programmes": trace.counts["programmes"],
         "certified": trace.certificate.certified} | own | common
    ]  # fmt: skip
    asked = Problem(problem.scenario, problem.space, Objective(metrics[0], limits=problem.objective.limits))
    evaluator = Evaluator(Box(asked), rows_with(asked, metrics[1:]), (GOAL, *metrics[1:]))
    for seed in seeds:
        trial = CpuTrial(evaluator, peer_cpu or spent, math.inf)
        began = time.perf_counter()
        Blackbox(Nsga2()).ask(trial, seed)
        run = {"cpu_s": trial.elapsed, "seconds": time.perf_counter() - began, "points": trial.count}
        theirs = volumes(np.array([point[0] for point in trial.front]).reshape(-1, len(metrics)), result)
        pairs = {at: (own[f"hypervolume{at}"], theirs[f"hypervolume{at}"]) for at in ("", "_far")}
        ratios = {f"ratio{at}": ours / other if other > 0 else math.inf for at, (ours, other) in pairs.items()}
        rows.append({"method": "nsga-ii", "seed": seed, "designs": len(trial.front)} | run | theirs | ratios | common)
    return rows


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
    parser.add_argument("instances", nargs="*", help=f"of {', '.join(INSTANCES)}; with --front also an experiment")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--csv", default="")
    parser.add_argument("--grids", action="store_true")
    parser.add_argument("--front", type=int, default=0, metavar="LEVELS")
    parser.add_argument("--front-seconds", type=float, default=300.0)
    parser.add_argument("--peer-cpu", type=float, default=0.0, metavar="SECONDS", help="of NSGA-II beside a front")
    parser.add_argument("--metrics", nargs="*", default=[], help="of the front, two or three")
    parser.add_argument("--goals", type=int, default=2, help="how many of them, if they are not given")
    arguments = parser.parse_args()
    prepare_jax()
    rows: list[dict[str, Any]] = []
    seeds = range(arguments.seeds)
    for name in arguments.instances or INSTANCES:
        if arguments.front:
            _, metrics = asked_of(name, tuple(arguments.metrics), arguments.goals)
            for row in fronts(name, arguments.front, seeds, arguments.front_seconds, metrics, arguments.peer_cpu):
                rows.append(row)
                print({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()},
                      flush=True)  # fmt: skip
            if arguments.csv:
                pd.DataFrame(rows).to_csv(arguments.csv, index=False, float_format="%.6g")
            continue
        if name not in INSTANCES:
            parser.error(f"{name} is not one of {', '.join(INSTANCES)}")
        problem = problem_of(name)

        def told(row: dict[str, Any], name: str = name) -> None:
            rows.append({"instance": name} | row)
            print(
                f"{name:>16} {row['method']:>22} seed {row['seed']}: {row['gap']:8.2%} off after {row['seconds']:.1f} "
                f"s, within 1 % after {row['seconds_to_hit']:.2f} s, {row['points']:,} points", flush=True,
            )  # fmt: skip

        result = compare(problem, arguments.seconds, seeds, told=told)
        if arguments.grids:
            best = min(row["best"] for row in result)
            for row in grids(problem, best):
                told(row)
        if arguments.csv:
            pd.DataFrame(rows).to_csv(arguments.csv, index=False, float_format="%.6g")
    if rows and not arguments.front:
        print(summary(pd.DataFrame(rows)).to_string(float_format=lambda value: f"{value:.4g}"))


if __name__ == "__main__":
    main()
