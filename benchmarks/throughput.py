"""Evaluations per second and core, gradient cost, compile time, start-up and memory, as ratios measured in one run.

    python benchmarks/throughput.py            table
    python benchmarks/throughput.py --json     the same, machine-readable

Rates are per second of CPU time of one process that may use one core, so a busy machine does not change them much.
`parity` is the model with the peer's choices (stepped efficiencies, dropout, unfused attention, offload, memory,
energy); `default` is the default experiment with fitted kernels.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

from codesign import evaluate, replace, scenario_from_config
from codesign.search.grid import single_precision

BLOCK, BLOCKS = 8192, 32
PARITY = (
    "accelerator=calculon_a100_80g",
    "model=megatron_175b_unfused",
)
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
GRADIENT_BAR, RATE_BAR, START_BAR_S = 8.0, 1.0e6, 1.0


def timed(function, *arguments, repeats: int = 3) -> float:
    """Least CPU seconds of a call, compiled before."""
    jax.block_until_ready(function(*arguments))
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(function(*arguments))
        best = min(best, time.process_time() - start)
    return best


def compiled(function, *arguments):
    """(compiled function, CPU seconds of the compilation)."""
    start = time.process_time()
    result = jax.jit(function).lower(*arguments).compile()
    return result, time.process_time() - start


def measure(name: str, overrides: tuple[str, ...]) -> list[dict]:
    """Rates of one model."""
    scenario = scenario_from_config(*overrides)
    base = np.array([float(_get(scenario, path)) for path in VARIABLES])
    rng = np.random.default_rng(0)
    points = base * np.exp(rng.uniform(-0.7, 0.7, size=(BLOCKS, BLOCK, len(base))))
    plans = 2.0 ** rng.integers(0, 4, size=(BLOCKS, BLOCK, 2))

    def price(tree, point, plan):
        leaves = dict(zip(VARIABLES, point, strict=True)) | {"plan.tp": plan[0], "plan.pp": plan[1]}
        metrics = evaluate(replace(tree, leaves))
        return metrics.time_s * metrics.energy_j * metrics.capex_usd * (1 + metrics.usage["hbm"])

    def blocks(one):
        vector = jax.vmap(one, in_axes=(None, 0, 0))
        return lambda tree, x, p: jax.lax.map(lambda xp: vector(tree, *xp), (x, p))

    rows, rates = [], {}
    for kind, tree, dtype in (("float32", single_precision(scenario), jnp.float32), ("float64", scenario, jnp.float64)):
        x, p = jnp.asarray(points, dtype), jnp.asarray(plans, dtype)
        value, value_compile = compiled(blocks(price), tree, x, p)
        seconds = timed(value, tree, x, p)
        rates[kind] = BLOCKS * BLOCK / seconds
        rows.append(row(name, f"value, {kind}", rates[kind], "points/s/core", RATE_BAR if kind == "float32" else None))
        rows.append(row(name, f"compile value, {kind}", value_compile, "CPU s"))
        if kind == "float32":
            both = blocks(jax.value_and_grad(price, argnums=1))
            gradient, gradient_compile = compiled(both, tree, x, p)
            ratio = timed(gradient, tree, x, p) / seconds
            rows.append(row(name, "value and gradient of 8 variables / value", ratio, "x", GRADIENT_BAR, below=True))
            rows.append(row(name, "compile value and gradient", gradient_compile, "CPU s"))
    rows.append(row(name, "float32 / float64", rates["float32"] / rates["float64"], "x"))
    return rows


def _get(tree, path):
    from codesign.fields import get_path

    return get_path(tree, path)


def row(model: str, what: str, value: float, unit: str, bar: float | None = None, *, below: bool = False) -> dict:
    """One line of the result."""
    ok = None if bar is None else bool(value <= bar if below else value >= bar)
    return {"model": model, "what": what, "value": value, "unit": unit, "bar": bar, "ok": ok}


def start_up() -> dict:
    """Wall seconds of `codesign --help`, the best of five."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "codesign", "--help"], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return row("command line", "codesign --help", best, "s", START_BAR_S, below=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    jax.config.update("jax_enable_x64", True)
    rows = [start_up(), *measure("parity", PARITY), *measure("default", ())]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rows.append(row("all", "peak memory", peak / 1e9, "GB"))
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for entry in rows:
        bar = "" if entry["bar"] is None else f"  bar {entry['bar']:g}  {'ok' if entry['ok'] else 'MISSED'}"
        print(f"{entry['model']:13s} {entry['what']:45s} {entry['value']:12.4g} {entry['unit']}{bar}")


if __name__ == "__main__":
    main()
