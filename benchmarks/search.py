"""Certified search on six named instances of the project's own model: time to 1 %, time to the proof, what it cost.

    python benchmarks/search.py                      all six, table
    python benchmarks/search.py 175b_time 1t_energy  some of them
    python benchmarks/search.py --json --seeds 3     machine-readable, three seeds
    python benchmarks/search.py --sound 2000         also solve random plans one by one and hold the bounds against them

Each instance has 2e5 legal plans or more and six hardware variables. Times exclude compilation (one warm-up call) and
are given in wall-clock and CPU seconds: on a busy machine the latter say more.
"""

import argparse
import json
import os
import time
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads of the linear algebra only wait

import numpy as np

from codesign import Continuous, DesignSpace, Objective, Problem, prepare_jax, scenario_from_config
from codesign.search.branch_and_bound import (
    AbstractIncumbent,
    Bounding,
    BranchAndBound,
    Oracle,
    Programme,
    SearchEffort,
    check_convexity,
    oracle_for,
    rows_of,
)

ACCELERATOR = "cluster.accelerator"
PEAKS = [f"{ACCELERATOR}.peak_flops_per_s.{name}" for name in ("fp16", "vector")]
CHIP = [f"{ACCELERATOR}.{name}" for name in ("tdp_w", "price_usd", "idle_w")]
HARDWARE = {
    "compute": Continuous(f"{ACCELERATOR}.peak_flops_per_s.bf16", 200e12, 2500e12, tied=[*PEAKS, *CHIP]),
    "hbm_capacity": Continuous(f"{ACCELERATOR}.hbm.capacity_bytes", 16e9, 300e9),
    "hbm_bandwidth": Continuous(f"{ACCELERATOR}.hbm.bandwidth_bytes_per_s", 0.8e12, 12e12),
    "scale_up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 50e9, 3600e9),
    "scale_out": Continuous("cluster.network.scale_out.fabric.bandwidth_bytes_per_s", 6e9, 400e9),
    "ddr": Continuous("cluster.host.memory.capacity_bytes", 32e9, 1200e9),
}
PLANS = {
    "tp": [1, 2, 4, 8, 16, 32],
    "pp": [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16, 20, 21, 24, 30, 32, 35, 42, 48, 64],
    "virtual_stages": [1, 2, 3, 4, 5, 6, 7, 8],
    "micro_batch": [1, 2, 4, 8],
    "recompute": ["none", "selective", "full"],
    "sequence_parallel": [0, 1],
    "zero": [0, 1, 2, 3],
    "offload_optimizer": [0, 0.25, 0.5, 0.75, 1],
    "offload_activations": [0, 0.25, 0.5, 1],
}


class Instance(NamedTuple):
    """A question: overrides of the default study, the goal, its limits, and bounds of HBM if they are not the usual."""

    overrides: tuple[str, ...]
    goal: str
    limits: dict[str, float]
    hbm: tuple[float, float] = (16e9, 300e9)


ROOFLINE = "calibration=h100_sxm_roofline"
INSTANCES = {
    "22b_cost": Instance(
        ("model=megatron_22b", "cluster.device_count=512", "workload.global_batch=512"),
        "usd_per_million_tokens", {"time_s": 2.0},
    ),
    "175b_time": Instance(("model=gpt3_175b",), "time_s", {"capex_usd": 55e6, "provisioned_power_w": 1.4e6}),
    "1t_time": Instance(
        ("model=megatron_1t", "cluster.device_count=4096", "workload.global_batch=2048"),
        "time_s", {"capex_usd": 220e6, "provisioned_power_w": 5.6e6},
    ),
    "1t_energy": Instance(
        ("model=megatron_1t", "cluster.device_count=4096", "workload.global_batch=2048"),
        "joules_per_token", {"time_s": 25.0, "capex_usd": 300e6},
    ),
    "175b_32k_cost": Instance(
        ("model=gpt3_175b", "workload.sequence=32768", "workload.global_batch=128"),
        "usd_per_million_tokens", {"time_s": 30.0},
    ),
    "530b_scarce_hbm": Instance(
        ("model=megatron_530b", "cluster.device_count=2240", "workload.global_batch=2240"),
        "time_s", {"capex_usd": 110e6, "provisioned_power_w": 3.0e6}, (8e9, 40e9),
    ),
}  # fmt: skip


def problem_of(name: str, calibration: str = ROOFLINE, levels: int = 0) -> Problem:
    """The study of a named instance; with so many levels of both offload shares if any."""
    instance = INSTANCES[name]
    scenario = scenario_from_config("experiment=train_gpt3_175b", calibration, *instance.overrides)
    hbm = Continuous(f"{ACCELERATOR}.hbm.capacity_bytes", *instance.hbm)
    shares = [round(share, 6) for share in np.linspace(0.0, 1.0, levels).tolist()]
    finer = {"offload_optimizer": shares, "offload_activations": shares} if levels else {}
    space = DesignSpace(PLANS | finer, HARDWARE | {"hbm_capacity": hbm})
    return Problem(scenario, space, Objective(instance.goal, limits=instance.limits))


def time_within(history: list[tuple[float, float, float]], best: float, share: float) -> float:
    """Seconds until the incumbent was this close to the final one."""
    return next((seconds for seconds, upper, _ in history if upper <= best + np.log1p(share)), float("nan"))


def measure(name: str, oracle: Oracle, seed: int, gap: float, seconds: float) -> tuple[dict[str, Any], BranchAndBound]:
    """One search."""
    cpu = time.process_time()
    search = BranchAndBound(Programme(oracle), SearchEffort(gap=np.log1p(gap), seconds=seconds), seed)
    outcome = search.run()
    history = outcome.bounding.history
    row = {
        "instance": name, "seed": seed, "plans": oracle.plan_count, "variables": len(oracle.variables),
        "best": float(np.exp(outcome.upper)), "gap": float(np.expm1(outcome.gap)),
        "wall_s": outcome.seconds, "cpu_s": time.process_time() - cpu,
        "within_1_percent_s": time_within(history, outcome.upper, 0.01),
        "points": outcome.counts["points"], "solved": outcome.counts["solved"], "open": outcome.counts["open"],
        "design": oracle.point(outcome.bounding.plan, outcome.bounding.u) if outcome.bounding.plan >= 0 else {},
    }  # fmt: skip
    return row, search


class Alone(AbstractIncumbent):
    """Designs of which none closes another's plan: each is solved for itself."""

    def __init__(self) -> None:
        self.upper, self.feasible = np.inf, {}

    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """Keep the best of every plan."""
        self.near(plan, u, exact, single)

    def open(self, lower: np.ndarray, gap: float) -> np.ndarray:
        """All that are not ruled out."""
        return lower < np.inf


def soundness(search: BranchAndBound, count: int, seed: int) -> dict[str, Any]:
    """Random plans solved one by one without any cut: no bound above its solved value, none below the optimum."""
    result, oracle = search.bounding, search.bounding.programme.oracle
    plans = oracle.sample(np.random.default_rng(seed), count)
    result.grow()
    held = oracle.tree.covering(plans, result.table.leaf)
    alone = Bounding(Programme(oracle), 1e-6, incumbent=Alone())
    middle = np.full((len(plans), alone.width), 0.5)
    alone.learn(plans, middle, 50.0)
    best, left = np.full(oracle.count, np.inf), plans
    for _ in range(12):
        for first in range(0, len(left), 1024):
            alone.refine(left[first : first + 1024])
        value = np.array([alone.feasible.get(p, (np.inf,))[0] for p in left.tolist()])
        left = left[np.isfinite(alone.lower[left]) & (value > alone.lower[left] + 1e-5)]
    for plan, (value, _) in alone.feasible.items():
        best[plan] = value
    solved = plans[np.isfinite(best[plans])]
    return {
        "plans_solved": len(plans),
        "feasible": len(solved),
        "infeasible": int(np.isinf(alone.lower[plans]).sum()),
        "median_gap_alone": float(np.median(best[solved] - alone.lower[solved])) if len(solved) else None,
        "bound_above_value": int((result.lower[held[np.isfinite(best[plans])]] > best[solved] + 1e-7).sum()),
        "better_than_certified": int((best[solved] < result.bound - 1e-9).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="*", choices=[*INSTANCES, []], default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--levels", type=int, default=0, help="of both offload shares: 101 make 10^8 plans")
    parser.add_argument("--sound", type=int, default=0, metavar="PLANS")
    parser.add_argument("--calibration", default=ROOFLINE)
    arguments = parser.parse_args()
    prepare_jax()
    for name in arguments.instances or INSTANCES:
        problem = problem_of(name, arguments.calibration, arguments.levels)
        started = time.process_time()
        oracle = oracle_for(problem, rows_of(problem), 512)
        middle = np.full((1, len(oracle.variables)), 0.5)
        oracle.tangents(oracle.roots[:1], middle, 50.0)
        oracle.values(oracle.roots[:1], middle)
        compiled = time.process_time() - started
        verdict = check_convexity(oracle, 0)
        for seed in range(arguments.seeds):
            row, search = measure(name, oracle, seed, arguments.gap, arguments.seconds)
            row |= {
                "compile_cpu_s": compiled,
                "convex": verdict.convex,
                "worst_convexity": max(verdict.worst.values(), default=0.0),
            }
            if arguments.sound:
                row |= soundness(search, arguments.sound, seed)
            show(row, as_json=arguments.json)


def show(row: dict[str, Any], *, as_json: bool) -> None:
    """One line an instance and seed."""
    if as_json:
        print(json.dumps(row), flush=True)
        return
    proof = "certified" if row["convex"] and not row["open"] else "no proof"
    line = (
        f"{row['instance']:>16} seed {row['seed']}: {row['plans']:,} plans, best {row['best']:.6g}, {proof}, "
        f"gap {row['gap']:.2%}, {row['wall_s']:.1f} s ({row['cpu_s']:.1f} CPU s), within 1 % after "
        f"{row['within_1_percent_s']:.2f} s, {row['points']:,} points, {row['solved']:,} programmes, "
        f"compile {row['compile_cpu_s']:.1f} CPU s, convexity {row['worst_convexity']:.0e}"
    )
    if "plans_solved" in row:
        line += (
            f"; {row['plans_solved']:,} plans solved alone ({row['feasible']:,} feasible, {row['infeasible']:,} proven "
            f"infeasible, median gap {row['median_gap_alone']:.0e}), {row['bound_above_value']} bounds above their "
            f"value, {row['better_than_certified']} better than certified"
        )
    print(line, flush=True)


if __name__ == "__main__":
    main()
