"""Bounds against the simulation: `python benchmarks/serving_bounds.py [CONDITIONS] [SEED]`.

`workloads.least_step` at the lengths and the rate that a whole simulated closed loop had, over what it reached: of
times the bound over the simulated one (step, and token by token), of the rate the simulated one over the bound. None
may be above 1.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import serving

from codesign.simulation.serving import TIMELINE, Engine, Requests, lengths, simulate_closed
from codesign.workloads.least_step import least_times, most_requests_s
from codesign.workloads.open_loop import Demand, RooflineTimes

jax.config.update("jax_enable_x64", True)


def compared(count: int, seed: int, requests: int = 2000) -> pd.DataFrame:
    """One row a condition: shares that a bound may not exceed 1 by."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame([_one(serving.drawn(rng), requests) for _ in range(count)])


def _one(one: dict[str, Any], count: int) -> dict[str, float]:
    rng = np.random.default_rng(one["seed"])
    count = max(count, 8 * one["concurrency"])
    prompts = lengths(rng, one["prompt"], one["cv_prompt"], count)
    answers = lengths(rng, one["answer"], one["cv_answer"], count, least=2)
    engine = Engine(serving.steps_of(one), one["budget"] + one["concurrency"], chunk=one["budget"])
    served = simulate_closed(engine, Requests(prompts, answers), one["concurrency"], timeline=True)
    spent = {name: np.array(column) for name, column in zip(TIMELINE, zip(*served.timeline, strict=True), strict=True)}
    total, steps = float(spent["seconds"].sum()), answers - 1
    times = RooflineTimes(*(one[name] for name in serving.STEP))
    demand = Demand(
        rate=count / total, input_tokens=prompts.mean(), output_tokens=answers.mean(), chunk=float(one["budget"]),
        input_cv=prompts.std() / prompts.mean(), output_cv=answers.std() / answers.mean(),
    )  # fmt: skip
    context = jnp.asarray((prompts * steps + 0.5 * steps * (steps - 1)).sum() / steps.sum())
    least = _least(times, demand, context)
    measured = prompts[count - one["concurrency"] - len(served.ttft_s) : count - one["concurrency"]]
    alike = dataclasses.replace(
        demand, input_tokens=jnp.asarray(measured.mean()), input_cv=jnp.asarray(measured.std() / measured.mean())
    )
    most = _most(times, demand, jnp.asarray(float(one["concurrency"])), context)
    seen = (spent["decodes"] * spent["seconds"]).sum() / (spent["decodes"] * spent["steps"]).sum()
    return {
        "step_s": float(least.step_s) / (total / spent["steps"].sum()), "tpot_s": float(least.tpot_s) / float(seen),
        "ttft_s": float(_least(times, alike, context).ttft_s) / float(served.ttft_s.mean()),
        "rate": count / total / float(most),
        "concurrency": one["concurrency"], "seed": one["seed"],
    }  # fmt: skip


_most, _least = jax.jit(most_requests_s), jax.jit(least_times)


def main() -> None:
    """Print how near the bounds are, and how often one is exceeded."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 17
    found = compared(count, seed)
    shares = found[["step_s", "tpot_s", "ttft_s", "rate"]]
    print(shares.describe(percentiles=[0.1, 0.5, 0.9, 0.99]).round(4).to_string())
    print(f"{count} conditions, exceeded: {(shares > 1).sum().to_dict()}")


if __name__ == "__main__":
    main()
