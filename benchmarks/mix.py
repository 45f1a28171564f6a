"""Seven training jobs on one hardware, 69 dimensions: time to equal quality against SciPy's differential evolution.

    python benchmarks/mix.py                        one seed, table
    python benchmarks/mix.py --json --seeds 3       machine-readable, three seeds
    python benchmarks/mix.py --peer-seconds 120     how long differential evolution may try
    python benchmarks/mix.py --seeds 3 --times 32   until 32 times the mix's own CPU time has passed
    python benchmarks/mix.py --bound 300            also how far the mix proves its design, in so many seconds

Each job has nine fields of its plan and some 1e5 legal plans; six hardware variables are common. The goal is the
geometric mean of the jobs' dollars per token, each under its own limit of the step time. Both are given the same
model, compiled once, in float64; differential evolution gets a vectorised evaluator without slopes, a coordinate in
[0, 1] for each dimension (logarithms of the hardware), illegal combinations of plan values replaced by the nearest
legal plan, and an exact penalty. Times exclude compilation; CPU seconds say more than the clock on a busy machine.
"""

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads of the linear algebra only wait

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import differential_evolution
from search import HARDWARE, PLANS, ROOFLINE

from codesign import DesignSpace, Mix, MixEntry, Objective, Problem, evaluate, prepare_jax, scenario_from_config
from codesign.jaxprs import quick_jit
from codesign.search.blackbox import Box
from codesign.search.mix import Alternating, Blend, Member, nameless

JOBS: dict[str, tuple[str, int, int, int, float]] = {  # model, devices, sequences a step, sequence, seconds a step
    "22b": ("megatron_22b", 512, 512, 2048, 2.0),
    "39b": ("megatron_39b", 512, 1536, 2048, 10.0),
    "146b": ("megatron_146b", 1536, 2304, 2048, 16.0),
    "175b": ("gpt3_175b", 1024, 1024, 2048, 10.0),
    "175b_32k": ("gpt3_175b", 1024, 128, 32768, 40.0),
    "530b": ("megatron_530b", 2240, 2240, 2048, 30.0),
    "1t": ("megatron_1t", 4096, 2048, 2048, 30.0),
}
PENALTY = 8.0


def problems() -> dict[str, Problem]:
    """The jobs."""
    result = {}
    for name, (model, devices, batch, sequence, seconds) in JOBS.items():
        scenario = scenario_from_config(
            "experiment=train_gpt3_175b", ROOFLINE, f"model={model}", f"cluster.device_count={devices}",
            f"workload.global_batch={batch}", f"workload.sequence={sequence}",
        )  # fmt: skip
        objective = Objective("usd_per_million_tokens", limits={"time_s": seconds})
        result[name] = Problem(scenario, DesignSpace(PLANS, HARDWARE), objective)
    return result


class Losses:
    """Blended goal plus penalties of many points of the box, one row of coordinates each; counts and remembers."""

    def __init__(self, given: dict[str, Problem], block: int = 512):
        self.problems, self.block = list(given.values()), block
        self.boxes = [Box(problem) for problem in self.problems]
        self.scenarios = [nameless(problem.scenario) for problem in self.problems]
        self.tables = [np.stack(list(box.plans.values()), axis=-1) for box in self.boxes]
        self.space, self.fields = self.problems[0].space, tuple(self.boxes[0].plans)
        self.compiled = quick_jit(jax.vmap(self._one, in_axes=(None, 0, 0)))
        self.width = sum(len(box.sizes) for box in self.boxes) + len(self.space.names)
        self.evaluated, self.best, self.trail = 0, np.inf, []

    def _one(self, scenario: Any, plan: Any, u: Any) -> Any:
        values = self.space.values({name: u[i] for i, name in enumerate(self.space.names)})
        metrics = evaluate(self.space.place(scenario, dict(zip(self.fields, plan, strict=True)) | values))
        over = sum(jnp.maximum(jnp.log(share), 0.0) for share in metrics.usage.values())
        return jnp.log(metrics.get("usd_per_million_tokens")), jnp.log(metrics.time_s), over

    def rows(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(sum of logs of goals / jobs, sum of log-violations)."""
        n, first = len(self.space.names), 0
        u = np.clip(x[:, -n:], 0.0, 1.0)
        goal, excess = np.zeros(len(x)), np.zeros(len(x))
        for k, box in enumerate(self.boxes):
            part = np.concatenate([x[:, first : first + len(box.sizes)], u], axis=1)
            first += len(box.sizes)
            plans = self.tables[k][box.plan_numbers(part)]
            for start in range(0, len(x), self.block):
                index = np.minimum(np.arange(start, start + self.block), len(x) - 1)
                logs, seconds, over = (
                    np.asarray(a)[: len(x) - start] for a in self.compiled(self.scenarios[k], plans[index], u[index])
                )
                part_of = slice(start, start + self.block)
                limit = np.log(self.problems[k].objective.limits["time_s"])
                goal[part_of] += logs / len(self.boxes)
                excess[part_of] += over + np.maximum(seconds - limit, 0.0)
        return goal, excess

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """[coordinates, points] -> losses, as SciPy asks."""
        if time.perf_counter() > self.until or time.process_time() > self.cpu_until:
            raise TimeoutError
        goal, excess = self.rows(x.T)
        self.evaluated += x.shape[1]
        best = float(np.where(excess <= 1e-7, goal, np.inf).min())
        if best < self.best:
            self.best = best
            self.trail.append((time.perf_counter() - self.began, time.process_time() - self.cpu, best))
        return goal + PENALTY * excess

    def start(self, seconds: float, cpu_seconds: float) -> None:
        """Begin to count."""
        self.evaluated, self.best, self.trail = 0, np.inf, []
        self.began, self.cpu = time.perf_counter(), time.process_time()
        self.until, self.cpu_until = self.began + seconds, self.cpu + cpu_seconds


def evolve(losses: Losses, seed: int, seconds: float, cpu_seconds: float, population: int) -> None:
    """Differential evolution until either time is up; begins anew where it has converged."""
    losses.start(seconds, cpu_seconds)
    rng = np.random.default_rng(seed)
    try:
        while True:
            differential_evolution(
                losses, [(0.0, 1.0)] * losses.width, vectorized=True, updating="deferred", polish=False,
                maxiter=1_000_000, tol=1e-5, rng=rng, init=rng.uniform(size=(population, losses.width)),
            )  # fmt: skip
    except TimeoutError:
        return


def alternate(members: list[Member], seed: int) -> tuple[list[tuple[float, float, float]], Alternating]:
    """The mix's own search for a tuple: (wall, CPU, log) after its start and after every step."""
    for member in members:
        member.seen.clear()
    began, cpu = time.perf_counter(), time.process_time()
    search = Alternating(members, Blend("log_sum", np.ones(len(members))), 1e-3, seed)
    trail = [(time.perf_counter() - began, time.process_time() - cpu, search.upper) for _ in search.steps()]
    return trail, search


def reached(trail: list[tuple[float, float, float]], value: float) -> tuple[float, float]:
    """(wall, CPU) seconds until a trail was at or below a value."""
    return next(((wall, cpu) for wall, cpu, log in trail if log <= value + 1e-9), (float("nan"), float("nan")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--times", type=float, default=0.0, help="stop the peer after so many times the mix's CPU time")
    parser.add_argument("--csv", default="")
    parser.add_argument("--peer-seconds", type=float, default=120.0)
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--bound", type=float, default=0.0, metavar="SECONDS")
    arguments = parser.parse_args()
    prepare_jax()
    given = problems()
    mix = Mix({name: MixEntry() for name in given}, seconds=max(arguments.bound, 1.0)).bound(given)
    members = mix.members()
    for member in members:  # compiles the first, which serves all
        member.tangents(np.zeros(1, dtype=int), np.full((1, len(HARDWARE)), 0.5), 50.0, keep=False)
    losses = Losses(given)
    losses.rows(np.full((1, losses.width), 0.5))
    rows = []
    for seed in range(arguments.seeds):
        row = compare(members, losses, seed, arguments.peer_seconds, arguments.population, arguments.times)
        rows.append(row)
        if arguments.csv:
            pd.DataFrame(rows).drop(columns="plans").to_csv(arguments.csv, index=False, float_format="%.6g")
        print(json.dumps(row) if arguments.json else _line(row), flush=True)
    if arguments.bound:
        trace = mix.run(next(iter(given.values())), 0, lambda p: print(f"  {p.stage}: {p.best:.5f} gap {p.gap:.2%}"))
        print(trace.claim, trace.seconds, f"bound of own hardware {trace.certificate.bound_of_own_hardware:.5f}")


def compare(
    members: list[Member], losses: Losses, seed: int, seconds: float, population: int, times: float
) -> dict[str, Any]:
    """One seed of both; the peer has `seconds` of wall time, or less: `times` the mix's CPU time if given."""
    trail, search = alternate(members, seed)
    evolve(losses, seed, seconds, times * trail[-1][1] if times else np.inf, population)
    spent = time.perf_counter() - losses.began, time.process_time() - losses.cpu
    there = reached(losses.trail, search.upper)
    peer = losses.trail[-1] if losses.trail else (seconds, seconds, float("inf"))
    equal = reached(trail, peer[2])
    return {
        "seed": seed, "dimensions": losses.width, "plans": [m.count for m in members],
        "mix": float(np.exp(search.upper)), "mix_wall_s": trail[-1][0], "mix_cpu_s": trail[-1][1],
        "peer": float(np.exp(peer[2])), "peer_wall_s": peer[0], "peer_cpu_s": peer[1],
        "peer_points": losses.evaluated * len(members), "peer_behind": float(np.expm1(peer[2] - search.upper)),
        "equal_wall_s": equal[0], "equal_cpu_s": equal[1],
        "peer_reached_mix": bool(np.isfinite(there[0])),
        "ratio_wall": (there[0] if np.isfinite(there[0]) else spent[0]) / trail[-1][0],
        "ratio_cpu": (there[1] if np.isfinite(there[1]) else spent[1]) / trail[-1][1],
        "ratio_at_peers_best_cpu": peer[1] / equal[1],
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    least = "" if row["peer_reached_mix"] else "more than "
    return (
        f"seed {row['seed']}, {row['dimensions']} dimensions: mix {row['mix']:.5g} in {row['mix_wall_s']:.1f} s "
        f"({row['mix_cpu_s']:.1f} CPU s); differential evolution {row['peer']:.5g} ({row['peer_behind']:+.1%}) after "
        f"{row['peer_wall_s']:.0f} s ({row['peer_cpu_s']:.0f} CPU s), {row['peer_points']:,} points. "
        f"To the mix's quality: {least}{row['ratio_wall']:.0f}x the time, {least}{row['ratio_cpu']:.0f}x the CPU time; "
        f"to the peer's best: {row['ratio_at_peers_best_cpu']:.0f}x the CPU time (the mix was there after "
        f"{row['equal_wall_s']:.1f} s, {row['equal_cpu_s']:.1f} CPU s)"
    )


if __name__ == "__main__":
    main()
