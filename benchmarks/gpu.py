"""Objectives on whatever device JAX finds (a GPU where there is one): equality, rates, compile times, memory.

    python benchmarks/gpu.py [--points 1e6] [experiment ...]

Of each experiment `objective_fn` at its middle plan, over random points of the unit cube: values in float64 and float32
beside those of the host in float64, points a second of values and of slopes, seconds to compile, bytes in use. The
first line names the device. Under ten minutes on one GPU; on a CPU it is a test of the script.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from codesign import objective_fn, prepare_jax, study_from_config

EXPERIMENTS = ("codesign_175b", "train_gpt3_175b", "photonic_rack", "train_dlrm", "serve_llama31_405b")
ROUNDS = 5


def timed(function, *arguments) -> tuple[float, float]:
    """(seconds to compile, seconds of a call: the least of a few)."""
    began = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    compile_s, least = time.perf_counter() - began, float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        least = min(least, time.perf_counter() - began)
    return compile_s, least


def measure(name: str, count: int) -> str:
    """One line of an experiment."""
    study = study_from_config(f"experiment={name}")
    plans = study.space.plans(study.scenario)
    plan = {field: float(values[len(values) // 2]) for field, values in plans.items()}
    objective = objective_fn(study, plan)
    points = np.random.default_rng(0).uniform(size=(count, len(objective.names)))
    some = points[:1000]
    with jax.default_device(jax.devices("cpu")[0]):
        expected = np.asarray(jax.jit(jax.vmap(objective))(jnp.asarray(some)))
    told = [f"{name}: {len(objective.names)} variables"]
    for kind in (jnp.float64, jnp.float32):
        u = jax.device_put(jnp.asarray(points, dtype=kind))
        off = np.abs(np.asarray(jax.jit(jax.vmap(objective))(u[:1000])) - expected) / np.maximum(np.abs(expected), 1.0)
        compile_s, call_s = timed(lambda u: jax.vmap(objective)(u).min(), u)
        _, slope_s = timed(lambda u: jax.vmap(jax.grad(objective))(u).sum(), u)
        told.append(
            f"{kind.__name__} off by {off.max():.1e}, {count / call_s:.3g} values/s,"
            f" {count / slope_s:.3g} slopes/s, compiles in {compile_s:.1f} s"
        )
    memory = jax.devices()[0].memory_stats() or {}
    if memory:
        told.append(f"{memory.get('peak_bytes_in_use', 0) / 2**30:.2f} GiB at most")
    return "; ".join(told)


def main() -> None:
    """Read the command line; print a line an experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=float, default=1e6, help="random points of each experiment (1e6)")
    parser.add_argument("experiments", nargs="*", default=list(EXPERIMENTS))
    options = parser.parse_args()
    prepare_jax()
    device = jax.devices()[0]
    print(f"device: {device.device_kind} ({device.platform}), JAX {jax.__version__}", flush=True)
    for name in options.experiments:
        print(measure(name, int(options.points)), flush=True)


if __name__ == "__main__":
    main()
