"""Evaluations per second and core, gradient cost, compile time, start-up and memory, as ratios measured in one run.

    python benchmarks/throughput.py            table (`--json`, `--parity` for the parity model alone)

Rates are per second of CPU time of one process that may use one core, so a busy machine does not change them much.
`parity` is the model with the peer's choices (stepped efficiencies, dropout, unfused attention, offload, memory,
energy); `default` is the default experiment with fitted kernels.
"""

import argparse
import functools
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"
CORES = sorted(os.sched_getaffinity(0))  # before this process takes one of them
os.sched_setaffinity(0, set(CORES[:1]))

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from codesign import Metrics, Scenario, evaluate, get_path, replace, scenario_from_config
from codesign.jaxprs import quick_jit

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


def timed(*functions: Callable[[], Any], repeats: int = 12, budget_s: float = 2.0) -> list[float]:
    """Least CPU seconds of each call, compiled and run once before; in turn, so that all see the same machine.

    Stops after `budget_s`, but not before the third turn.
    """
    for function in functions:
        jax.block_until_ready(function())
    best = [float("inf")] * len(functions)
    begun = time.process_time()
    for turn in range(repeats):
        if turn >= 3 and time.process_time() - begun > budget_s:
            break
        for index, function in enumerate(functions):
            start = time.process_time()
            jax.block_until_ready(function())
            best[index] = min(best[index], time.process_time() - start)
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


@functools.partial(jax.jit, inline=True)  # traced once for all loops
def price(tree: Scenario, hardware: Leaves, plan: Leaves) -> Array:
    """The same as one number, as a search needs it."""
    return digest(metrics_at(tree, hardware, plan))


def slopes(*paths: str, with_value: bool = False) -> Callable[..., Array]:
    """d price / d one variable, or two numbers (two slopes, or the value and a slope) as one complex number.

    A loop of the compiler has one result. Two numbers in one result share everything that both need.
    """

    def at_point(tree: Scenario, hardware: Leaves, plan: Leaves) -> Array:
        here = {path: hardware[path] for path in paths}
        value, along = jax.linearize(lambda some: price(tree, hardware | some, plan), here)
        none = jax.tree.map(jnp.zeros_like, here)
        result = [value] if with_value else []
        for path in paths:  # `tied` is linear: its derivative by one entry drops the others, where a zero would not
            one = jnp.ones_like(here[path])
            result.append(jax.jvp(lambda step, p=path: along(none | {p: step}), (none[path],), (one,))[1])
        return jax.lax.complex(*result) if len(result) > 1 else result[0]

    return at_point


def in_blocks(*ones: Callable[..., Any]) -> Callable[..., Any]:
    """Each of `ones` over [blocks, block] points, a block at a time, in a loop of its own.

    With one result a loop, the compiler turns the whole model into one vector loop. Several results of one loop (the
    reverse mode of a gradient, all metrics) are computed by hundreds of loops that repeat each other's work.
    """
    vectors = [jax.vmap(one, in_axes=(None, 0, 0)) for one in ones]

    def over_blocks(tree: Scenario, hardware: Leaves, plans: Leaves) -> list[Any]:
        return [jax.lax.map(lambda block, v=v: v(tree, *block), (hardware, plans)) for v in vectors]

    return over_blocks


def value_and_slopes(tree: Scenario, hardware: Leaves, plans: Leaves) -> tuple[Array, Leaves]:
    """The value and its eight slopes at every point, forward mode."""
    pairs = [slopes(*VARIABLES[first : first + 2]) for first in range(1, len(VARIABLES), 2)]
    results = in_blocks(slopes(VARIABLES[0], with_value=True), *pairs)(tree, hardware, plans)
    parts = [part for one in results for part in ((one.real, one.imag) if jnp.iscomplexobj(one) else (one,))]
    return parts[0], dict(zip(VARIABLES, parts[1:], strict=True))


def measure(name: str, overrides: tuple[str, ...], *, barred: bool = False) -> Iterator[dict[str, Any]]:
    """Rates of one model in float32: every point another plan on other hardware; its gradients where it has a bar."""
    tree = single_precision(scenario_from_config(*overrides))
    with jax.enable_x64(False):  # constants inside the model follow
        points = sample(tree)
        value, seconds_compile = compiled(in_blocks(price), tree, *points)
        (seconds,) = timed(lambda: value(tree, *points))
        bar = RATE_BAR if barred else None
        yield row(name, "value", BLOCKS * BLOCK / seconds, "points/s/core", bar)
        yield row(name, "compile value", seconds_compile, "CPU s")

        everything, seconds_compile = compiled(in_blocks(metrics_at), tree, *points)
        count = everything.out_tree.num_leaves
        (seconds,) = timed(lambda: everything(tree, *points))
        yield row(name, f"value, all {count} metrics written out", BLOCKS * BLOCK / seconds, "points/s/core", bar)
        yield row(name, "compile all metrics", seconds_compile, "CPU s")
        if not barred:
            return

        forward, seconds_compile = compiled(value_and_slopes, tree, *points)
        seconds, both = timed(lambda: value(tree, *points), lambda: forward(tree, *points))
        what = "value and gradient of 8 variables / value, forward mode"
        yield row(name, what, both / seconds, "x", GRADIENT_BAR, below=True)
        yield row(name, "compile value and gradient, forward mode", seconds_compile, "CPU s")
        reverse, seconds_compile = compiled(in_blocks(jax.value_and_grad(price, argnums=1)), tree, *points)
        seconds, both = timed(lambda: value(tree, *points), lambda: reverse(tree, *points), budget_s=0.0)
        yield row(name, "value and gradient of 8 variables / value, reverse mode", both / seconds, "x")
        yield row(name, "compile value and gradient, reverse mode", seconds_compile, "CPU s")
        jax.tree.map(agree, forward(tree, *points), reverse(tree, *points)[0])


def single_precision(tree: Scenario) -> Scenario:
    """The same numbers in float32."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)


def agree(one: Array, other: Array) -> None:
    """Raises where two modes of a derivative differ by more than single precision explains."""
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * float(jnp.max(jnp.abs(other))))


def measure_double(name: str, overrides: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Rate in float64."""
    tree = scenario_from_config(*overrides)
    with jax.enable_x64(True):
        points = sample(tree, jnp.float64)
        value, _ = compiled(in_blocks(price), tree, *points)
        (seconds,) = timed(lambda: value(tree, *points))
    yield row(name, "value, float64", BLOCKS * BLOCK / seconds, "points/s/core")


def measure_grid(name: str, overrides: tuple[str, ...], levels: int = 64) -> Iterator[dict[str, Any]]:
    """The same where `levels` hardware points share a plan, as in an exhaustive search."""
    tree = single_precision(scenario_from_config(*overrides))
    over_levels = jax.vmap(price, in_axes=(None, 0, None))
    over_plans = jax.vmap(over_levels, in_axes=(None, None, 0))
    with jax.enable_x64(False):
        hardware, plans = sample(tree)
        level = {path: column[0, :levels] for path, column in hardware.items()}
        plan = {path: column[:, : BLOCK // levels] for path, column in plans.items()}
        function, _ = compiled(
            lambda tree, level, plan: jax.lax.map(lambda block: over_plans(tree, level, block), plan), tree, level, plan
        )
        (seconds,) = timed(lambda: function(tree, level, plan))
    count = BLOCKS * BLOCK // levels * levels
    yield row(name, f"value, {levels} levels a plan", count / seconds, "points/s/core")


def row(model: str, what: str, value: float, unit: str, bar: float | None = None, *, below: bool = False) -> dict:
    """One line of the result."""
    ok = None if bar is None else bool(value <= bar if below else value >= bar)
    return {"model": model, "what": what, "value": value, "unit": unit, "bar": bar, "ok": ok}


def start_up() -> Iterator[dict[str, Any]]:
    """Wall seconds of `codesign --help`, the best of five."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "codesign", "--help"], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    yield row("command line", "codesign --help", best, "s", START_BAR_S, below=True)


def peak_memory(name: str) -> Iterator[dict[str, Any]]:
    """The most this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield row(name, "peak memory so far", peak / 1e9, "GB")


def all_cores() -> Iterator[dict[str, Any]]:
    """Points per wall second of one process on each core at once, over one process alone."""
    workers = []
    for core in CORES:
        os.sched_setaffinity(0, {core})  # inherited, before JAX starts its threads
        command = [sys.executable, __file__, "--worker"]
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    os.sched_setaffinity(0, set(CORES[:1]))

    def rates(asked: list[Any]) -> float:
        for one in asked:
            print("go", file=one.stdin, flush=True)
        return sum(float(one.stdout.readline()) for one in asked)

    for one in workers:
        one.stdout.readline()  # compiled
    alone, together = rates(workers[:1]), rates(workers)
    for one in workers:
        one.communicate()
    yield row("parity", "one process, wall time", alone, "points/s")
    yield row("parity", f"{len(CORES)} processes, wall time", together, "points/s")
    yield row("parity", f"{len(CORES)} processes / one", together / alone, "x")


def worker(seconds: float = 3.0) -> None:
    """Says when it is ready, then its points per wall second over `seconds` for every line it reads."""
    tree = single_precision(scenario_from_config(*PARITY))
    with jax.enable_x64(False):
        points = sample(tree)
        value, _ = compiled(in_blocks(price), tree, *points)
        jax.block_until_ready(value(tree, *points))
        print("ready", flush=True)
        for _ in sys.stdin:
            calls, start = 0, time.perf_counter()
            while time.perf_counter() - start < seconds:
                jax.block_until_ready(value(tree, *points))
                calls += 1
            print(calls * BLOCKS * BLOCK / (time.perf_counter() - start), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parity", action="store_true", help="the parity model only")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    sections = [start_up(), measure("parity", PARITY, barred=True), measure_double("parity", PARITY)]
    sections += [measure_grid("parity", PARITY), peak_memory("parity"), all_cores()]
    if not arguments.parity:
        sections += [measure("default", ()), measure_grid("default", ()), peak_memory("both")]
    rows = []
    for result in itertools.chain(*sections):  # each is printed as soon as it is known
        rows.append(result)
        if not arguments.json:
            print(line(result), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


def line(entry: dict[str, Any]) -> str:
    """One row as text."""
    bar = "" if entry["bar"] is None else f"  bar {entry['bar']:g}  {'ok' if entry['ok'] else 'MISSED'}"
    return f"{entry['model']:13s} {entry['what']:52s} {entry['value']:12.4g} {entry['unit']}{bar}"


if __name__ == "__main__":
    main()
