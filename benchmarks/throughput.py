"""Evaluations per second and core, gradient cost, compile time, start-up and memory, as ratios measured in one run.

    python benchmarks/throughput.py            table
    python benchmarks/throughput.py --json     the same, machine-readable

Rates are per second of CPU time of one process that may use one core, so a busy machine does not change them much.
`parity` is the model with the peer's choices (stepped efficiencies, dropout, unfused attention, offload, memory,
energy); `default` is the default experiment with fitted kernels.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"
CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, set(CORES[:1]))

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from codesign import Metrics, Scenario, evaluate, replace, scenario_from_config
from codesign.compiling import quick_jit
from codesign.fields import get_path
from codesign.search.grid import single_precision

BLOCK, BLOCKS = 4096, 16
PARITY = ("experiment=calculon",)
VARIABLES = (
    "cluster.accelerator.hbm.bandwidth_bytes_per_s",
    "cluster.accelerator.hbm.capacity_bytes",
    "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_up.fabric.latency_s",
    "cluster.network.scale_out.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_out.fabric.latency_s",
    "cluster.host.memory.capacity_bytes",
    "cluster.accelerator.price_usd",
)
PLAN = {  # every choice that the peer's own search makes
    "plan.tp": (1, 2, 4, 8),
    "plan.pp": (1, 2, 4, 8, 16),
    "plan.micro_batch": (1, 2, 4),
    "plan.virtual_stages": (1, 2, 3),
    "plan.recompute": (0, 1, 2),
    "plan.sequence_parallel": (0, 1),
    "plan.zero": (0, 1),
    "plan.offload_optimizer": (0, 1),
}
GRADIENT_BAR, RATE_BAR, START_BAR_S = 8.0, 1.0e6, 1.0
Rows = list[dict[str, Any]]
Leaves = dict[str, Array]  # path -> numbers


def digest(metrics: Metrics) -> Array:
    """One number that needs every number of the metrics, so that the compiler may drop none."""
    leaves = jax.tree.leaves(metrics)
    return sum(leaf * (1.0 + index / len(leaves)) for index, leaf in enumerate(leaves))


def timed(function: Callable[..., Any], *arguments: Any, repeats: int = 3) -> float:
    """Least CPU seconds of a call, compiled and run once before."""
    jax.block_until_ready(function(*arguments))
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(function(*arguments))
        best = min(best, time.process_time() - start)
    return best


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """(compiled function, CPU seconds of tracing and compiling it)."""
    start = time.process_time()
    result = quick_jit(function).lower(*arguments).compile()
    return result, time.process_time() - start


def sample(scenario: Scenario, dtype: type = jnp.float32) -> tuple[Leaves, Leaves]:
    """(hardware, plans), path -> [blocks, block]; legal or not makes no difference here."""
    rng = np.random.default_rng(0)
    hardware = {
        path: float(get_path(scenario, path)) * np.exp(rng.uniform(-0.7, 0.7, size=(BLOCKS, BLOCK)))
        for path in VARIABLES
    }
    plans = {path: rng.choice(values, size=(BLOCKS, BLOCK)) for path, values in PLAN.items()}
    return jax.tree.map(lambda column: jnp.asarray(column, dtype), (hardware, plans))


def metrics_at(tree: Scenario, hardware: Leaves, plan: Leaves) -> Metrics:
    """The whole of `evaluate` at one point."""
    return evaluate(replace(tree, hardware | plan))


def price(tree: Scenario, hardware: Leaves, plan: Leaves) -> Array:
    """The same as one number, as a search needs it."""
    return digest(metrics_at(tree, hardware, plan))


def partial(path: str) -> Callable[..., Array]:
    """d price / d one variable, forward mode."""

    def slope(tree: Scenario, hardware: Leaves, plan: Leaves) -> Array:
        def along(value: Array) -> Array:
            return price(tree, hardware | {path: value}, plan)

        return jax.jvp(along, (hardware[path],), (jnp.ones_like(hardware[path]),))[1]

    return slope


def in_blocks(*ones: Callable[..., Any]) -> Callable[..., Any]:
    """Each of `ones` over [blocks, block] points, a block at a time, in a loop of its own.

    With one number a loop, the compiler turns the whole model into one vector loop. Several results of one loop (the
    reverse mode of a gradient, all metrics) are computed by hundreds of loops that repeat each other's work.
    """
    vectors = [jax.vmap(one, in_axes=(None, 0, 0)) for one in ones]

    def over_blocks(tree: Scenario, hardware: Leaves, plans: Leaves) -> list[Any]:
        return [jax.lax.map(lambda block, v=v: v(tree, *block), (hardware, plans)) for v in vectors]

    return over_blocks


def measure(name: str, overrides: tuple[str, ...], dtype: type = jnp.float32) -> Rows:
    """Rates of one model: every point another plan on other hardware."""
    scenario = scenario_from_config(*overrides)
    single = dtype == jnp.float32
    tree = single_precision(scenario) if single else scenario
    kind, bar = np.dtype(dtype).name, RATE_BAR if single and name == "parity" else None
    with jax.enable_x64(not single):  # constants inside the model follow
        points = sample(scenario, dtype)
        value, seconds_compile = compiled(in_blocks(price), tree, *points)
        seconds = timed(value, tree, *points)
        rows = [
            row(name, f"value, {kind}", BLOCKS * BLOCK / seconds, "points/s/core", bar),
            row(name, f"compile value, {kind}", seconds_compile, "CPU s"),
        ]
        if single:
            everything, seconds_compile = compiled(in_blocks(metrics_at), tree, *points)
            count = len(jax.tree.leaves(jax.eval_shape(in_blocks(metrics_at), tree, *points)))
            rate = BLOCKS * BLOCK / timed(everything, tree, *points)
            rows += [
                row(name, f"value, all {count} metrics written out, {kind}", rate, "points/s/core", bar),
                row(name, f"compile all metrics, {kind}", seconds_compile, "CPU s"),
            ]
        if single:
            bar = GRADIENT_BAR if bar else None
            modes = {
                "forward": in_blocks(price, *map(partial, VARIABLES)),
                "reverse": in_blocks(jax.value_and_grad(price, argnums=1)),
            }
            for mode, both in modes.items():
                function, seconds_compile = compiled(both, tree, *points)
                what, cost = f"value and gradient of 8 variables / value, {mode} mode", timed(function, tree, *points)
                rows += [
                    row(name, what, cost / seconds, "x", bar if mode == "forward" else None, below=True),
                    row(name, f"compile value and gradient, {mode} mode", seconds_compile, "CPU s"),
                ]
    return rows


def measure_grid(name: str, overrides: tuple[str, ...], levels: int = 64) -> Rows:
    """The same where `levels` hardware points share a plan, as in an exhaustive search."""
    scenario = scenario_from_config(*overrides)
    tree = single_precision(scenario)
    over_levels = jax.vmap(price, in_axes=(None, 0, None))
    over_plans = jax.vmap(over_levels, in_axes=(None, None, 0))
    with jax.enable_x64(False):
        hardware, plans = sample(scenario)
        level = {path: column[0, :levels] for path, column in hardware.items()}
        plan = {path: column[:, : BLOCK // levels] for path, column in plans.items()}
        function, _ = compiled(
            lambda tree, level, plan: jax.lax.map(lambda block: over_plans(tree, level, block), plan), tree, level, plan
        )
        seconds = timed(function, tree, level, plan)
    count = BLOCKS * BLOCK // levels * levels
    return [row(name, f"value, float32, {levels} levels a plan", count / seconds, "points/s/core")]


def row(model: str, what: str, value: float, unit: str, bar: float | None = None, *, below: bool = False) -> dict:
    """One line of the result."""
    ok = None if bar is None else bool(value <= bar if below else value >= bar)
    return {"model": model, "what": what, "value": value, "unit": unit, "bar": bar, "ok": ok}


def start_up() -> Rows:
    """Wall seconds of `codesign --help`, the best of five."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "codesign", "--help"], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return [row("command line", "codesign --help", best, "s", START_BAR_S, below=True)]


def peak_memory(name: str) -> Rows:
    """The most this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [row(name, "peak memory so far", peak / 1e9, "GB")]


def all_cores() -> Rows:
    """Points per wall second of one process on each core at once, over one process alone."""

    def rates(cores: list[int]) -> list[float]:
        command = [sys.executable, __file__, "--worker"]
        workers = [subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
        return [float(worker.communicate()[0]) for worker in workers]

    alone, together = rates(CORES[:1])[0], sum(rates(CORES))
    return [
        row("parity", "one process, wall time", alone, "points/s"),
        row("parity", f"{len(CORES)} processes, wall time", together, "points/s"),
        row("parity", f"{len(CORES)} processes / one", together / alone, "x"),
    ]


def worker(core: int, seconds: float = 4.0) -> float:
    """Points per wall second of this process, over `seconds`."""
    os.sched_setaffinity(0, {core})
    scenario = scenario_from_config(*PARITY)
    tree = single_precision(scenario)
    with jax.enable_x64(False):
        points = sample(scenario)
        value, _ = compiled(in_blocks(price), tree, *points)
        jax.block_until_ready(value(tree, *points))
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            jax.block_until_ready(value(tree, *points))
            calls += 1
    return calls * BLOCKS * BLOCK / (time.perf_counter() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parity", action="store_true", help="the parity model only")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        print(worker(arguments.worker))
        return
    sections = [
        start_up,
        *(functools.partial(measure, "parity", PARITY, dtype) for dtype in (jnp.float32, jnp.float64)),
    ]
    sections += [functools.partial(measure_grid, "parity", PARITY), functools.partial(peak_memory, "parity"), all_cores]
    if not arguments.parity:
        sections += [functools.partial(measure, "default", ()), functools.partial(measure_grid, "default", ())]
        sections += [functools.partial(peak_memory, "all")]
    rows = []
    for section in sections:  # each is printed as soon as it is known
        rows += (found := section())
        if not arguments.json:
            print("\n".join(map(line, found)), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


def line(entry: dict[str, Any]) -> str:
    """One row as text."""
    bar = "" if entry["bar"] is None else f"  bar {entry['bar']:g}  {'ok' if entry['ok'] else 'MISSED'}"
    return f"{entry['model']:13s} {entry['what']:52s} {entry['value']:12.4g} {entry['unit']}{bar}"


if __name__ == "__main__":
    main()
