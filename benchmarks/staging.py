"""Speed of staged programs: grids by NumPy over tables, rows with slopes, one process against the same model compiled.

    python benchmarks/staging.py                       every study below; one line each
    python benchmarks/staging.py photonic_rack         one of them
    python benchmarks/staging.py --points 1e9          the default study with so many points: time and memory
    python benchmarks/staging.py --moments             what the memory of all moments costs a grid of training plans

Rates are points per CPU second of one thread, all that a grid keeps included, tables and traces apart; and per second
of wall-clock time of a whole grid as a user runs it, with all cores and tables. Where a study's own grid is small, it
is given more levels a variable, so that tables weigh nothing. `compiled` is the model traced again and compiled by XLA
for pairs of a plan and a level, in the same run; ratios are against it. `--moments` prices the same grid in turn with
the peak over every moment of a step on the first, a middle and the last stage, and with the first stage's backward
pass alone, tables and traces included; the ratio of the least CPU seconds is the cost.
"""

import argparse
import dataclasses
import itertools
import json
import os
import resource
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from codesign import Continuous, Problem, evaluate, prepare_jax, study_from_config
from codesign.jaxprs import quick_jit
from codesign.search.branch_and_bound import Oracle, rows_of
from codesign.search.exhaustive import BLOCK, Sweep, screen
from codesign.staging import Points

STUDIES = {
    "train_gpt3_175b": ["experiment=train_gpt3_175b"],
    "codesign_175b": ["experiment=codesign_175b"],
    "moe": ["experiment=codesign_175b", "model=mixtral_8x7b"],
    "serve_llama31_405b": ["experiment=serve_llama31_405b"],
    "serve_deepseek_v3": ["experiment=serve_deepseek_v3"],
    "serve_llama31_405b_static": ["experiment=serve_llama31_405b_static"],
    "photonic_rack": ["experiment=photonic_rack"],
    "chip_175b": ["experiment=chip_175b"],
}
TRAINED = ("train_gpt3_175b", "codesign_175b", "moe")
EIGHT = {  # two more variables, for slopes along eight
    "host_bandwidth": Continuous("cluster.host.memory.bandwidth_bytes_per_s", 50e9, 1e12),
    "scale_up_latency": Continuous("cluster.network.scale_up.fabric.latency_s", 1e-7, 1e-5),
}
LEAST = 20_000_000  # points a rate is measured on
ALONE = 400  # blocks that one thread prices
COMPILED = 16_384  # points priced by the compiled model
SLOPES = 4_096  # points of which rows and slopes are asked for


def denser(problem: Problem, points: float) -> Problem:
    """The same problem with more levels of every variable, until there are so many points."""
    hardware, plans = dict(problem.space.hardware), len(next(iter(problem.space.plans(problem.scenario).values()), [0]))
    while hardware and plans * np.prod([v.grid for v in hardware.values()], dtype=float) < points:
        name = min(hardware, key=lambda name: hardware[name].grid)
        hardware[name] = dataclasses.replace(hardware[name], grid=hardware[name].grid + 1)
    return dataclasses.replace(problem, space=dataclasses.replace(problem.space, hardware=hardware))


def grid_of(problem: Problem, block: int) -> dict[str, Any]:
    """CPU seconds of the tables, rate of the points, and how much of the program is left for every point."""
    start = time.process_time()
    sweep = Sweep(problem, block, 64)
    tables = time.process_time() - start
    start, wall = time.process_time(), time.perf_counter()
    done = screen(problem, block)
    cpu, wall = time.process_time() - start - tables, time.perf_counter() - wall
    each = [sweep.priced.operations_at(plan) for plan, _ in itertools.islice(sweep.blocks(), ALONE)]
    alone, points = time.thread_time(), 0
    for plan, level in itertools.islice(sweep.blocks(), ALONE):
        sweep.take(sweep.top, sweep.evaluated(plan, level))
        points += len(plan) * len(level)
    alone = time.thread_time() - alone
    return {
        "points": done.evaluated, "tables_cpu_s": tables, "operations": sweep.priced.operations,
        "fewest": min(each), "most": max(each),
        "m_points_per_cpu_s": points / alone / 1e6, "m_points_per_wall_s": done.evaluated / wall / 1e6,
        "cpu_s": cpu, "wall_s": wall,
    }  # fmt: skip


def one_moment(problem: Problem) -> Problem:
    """The same problem whose memory is that of the first stage in its backward pass, whatever comes later."""
    kind: Any = type(problem.scenario.workload)

    class OneMoment(kind):
        """Memory of a single moment."""

        def moments(self, layout: Any) -> Any:
            """The first stage's backward pass."""
            result = super().moments(layout)
            return {("first", "backward"): result["first", "backward"]}

    own = problem.scenario.workload
    alone = OneMoment(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
    return dataclasses.replace(problem, scenario=dataclasses.replace(problem.scenario, workload=alone))


def moments_of(problem: Problem, block: int, turns: int = 5) -> dict[str, float]:
    """CPU seconds of a whole grid (tables and points), and of its points alone, with all moments over with one."""
    each = {"all": denser(problem, LEAST), "one": denser(one_moment(problem), LEAST)}
    whole, alone = dict.fromkeys(each, np.inf), dict.fromkeys(each, np.inf)
    for _ in range(turns):
        for name, other in each.items():
            sweep = Sweep(other, block, 64)
            start = time.process_time()
            screen(other, block)
            whole[name] = min(whole[name], time.process_time() - start)
            start = time.thread_time()
            for plan, level in itertools.islice(sweep.blocks(), ALONE):
                sweep.take(sweep.top, sweep.evaluated(plan, level))
            alone[name] = min(alone[name], time.thread_time() - start)
    return {
        "cpu_s": whole["all"], "grid_over_one_moment": whole["all"] / whole["one"],
        "points_over_one_moment": alone["all"] / alone["one"],
    }  # fmt: skip


def compiled_of(problem: Problem) -> float:
    """Millions of points per CPU second of the compiled model, pairs of a plan and a level."""
    sweep, rng = Sweep(problem, 4096, 1), np.random.default_rng(0)
    axes, objective = sweep.axes, problem.objective

    def one(scenario: Any, plan: Any, level: Any) -> Any:
        metrics = evaluate(problem.space.place(scenario, plan | level))
        return objective.rank(metrics), objective.excess(metrics), metrics.time_s, metrics.usd_per_million_tokens

    run = quick_jit(jax.vmap(one, in_axes=(None, 0, 0)))
    plan, level = rng.integers(axes.plan_count, size=COMPILED), rng.integers(axes.level_count, size=COMPILED)
    plans = {name: jnp.asarray(column[plan]) for name, column in axes.plans.items()}
    levels = {name: jnp.asarray(column) for name, column in axes.values_of(level).items()}
    jax.block_until_ready(run(problem.scenario, plans, levels))
    start = time.process_time()
    jax.block_until_ready(run(problem.scenario, plans, levels))
    return COMPILED / (time.process_time() - start) / 1e6


def slopes_of(problem: Problem) -> dict[str, float]:
    """Microseconds of CPU time for the rows of one point, and how much longer with slopes by every variable."""
    oracle, rng = Oracle(problem, rows_of(problem)), np.random.default_rng(0)
    rows = oracle.table[rng.integers(oracle.count, size=SLOPES)]
    u = rng.uniform(size=(SLOPES, len(oracle.variables)))
    lists, taken = problem.space.lists, {}
    listed = {name: np.unique([*column, *lists.get(name, ())]) for name, column in oracle.plans.items()}
    for name, slopes in (("value", False), ("slopes", True)):
        points = Points(oracle.program, listed, slopes=slopes)
        points(problem.scenario, rows, u, np.full(SLOPES, 50.0))
        each = []
        for _ in range(7):
            start = time.process_time()
            points(problem.scenario, rows, u, np.full(SLOPES, 50.0))
            each.append(time.process_time() - start)
        taken[name] = min(each) / SLOPES * 1e6
    return {
        "us_value": taken["value"],
        "slopes": float(u.shape[1]),
        "slopes_over_value": taken["slopes"] / taken["value"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="*", choices=[*STUDIES, []])
    parser.add_argument("--points", type=float, default=0.0, help="the default study with so many points")
    parser.add_argument("--moments", action="store_true", help="the cost of the memory of all moments")
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    prepare_jax()
    if options.points:
        problem = denser(study_from_config("experiment=train_gpt3_175b").problem, options.points)
        row = {"study": "train_gpt3_175b", **grid_of(problem, options.block)}
        row["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(json.dumps(row) if options.json else row)
        return
    if options.moments:
        for name in options.study or TRAINED:
            row = {"study": name, **moments_of(study_from_config(*STUDIES[name]).problem, options.block)}
            print(json.dumps(row) if options.json else row, flush=True)
        return
    for name in options.study or STUDIES:
        problem = study_from_config(*STUDIES[name]).problem
        row = {"study": name, **grid_of(denser(problem, LEAST), options.block)}
        row["over_compiled"] = row["m_points_per_cpu_s"] / compiled_of(problem)
        row |= slopes_of(problem)
        if name == "codesign_175b":
            wider = dataclasses.replace(problem.space, hardware={**problem.space.hardware, **EIGHT})
            row["eight_over_value"] = slopes_of(dataclasses.replace(problem, space=wider))["slopes_over_value"]
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
