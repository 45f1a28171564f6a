"""Bounds against the simulation: `python benchmarks/serving_bounds.py [CONDITIONS] [SEED]`.

`least_step` at the lengths and the rate that a whole simulated closed loop had, over what it reached: of
times the bound over the simulated one (step, and token by token), of the rate the simulated one over the bound. None
may be above 1. Then open loops at loads up to 0.95 on engines whose steps are tabulated, with tiles (not convex), by
`simulation.serving.no_scheduler`: the least mean time of a token, and the rate served over the most.
"""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import serving
from least_step import least_times, most_requests_s
from rich.console import Console
from rich.progress import track

from codesign.model.workloads.open_loop import Demand, RooflineTimes
from codesign.simulation.serving import (
    TIMELINE,
    Engine,
    Requests,
    TabulatedSteps,
    arrivals,
    least_token_s,
    lengths,
    mean_request,
    most_rate,
    simulate_closed,
    simulate_open,
)

jax.config.update("jax_enable_x64", True)
MOST = 256  # sequences of an open loop
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.95)  # of the most that any scheduler sustains


def compared(count: int, seed: int, requests: int = 2000) -> pd.DataFrame:
    """One row a condition: shares that a bound may not exceed 1 by."""
    rng = np.random.default_rng(seed)
    drawn = [serving.drawn(rng) for _ in range(count)]
    return pd.DataFrame([_one(one, requests) for one in shown(drawn, "closed loops")])


def shown(conditions: list[dict[str, Any]], what: str) -> Iterable[dict[str, Any]]:
    """The conditions one by one, with progress where somebody looks."""
    out = Console(stderr=True)
    return track(conditions, what, console=out, disable=not out.is_terminal, transient=True)


def tabulated(one: dict[str, Any], rng: np.random.Generator) -> TabulatedSteps:
    """The steps of a condition in tiles: kernels take whole ones, so that a step jumps where another begins."""
    times, tile = serving.steps_of(one), int(rng.choice([1, 8, 64, 128]))
    decodes = np.unique(np.rint(np.geomspace(1, 2 * MOST, 30)))
    tokens = np.unique([1.0, *np.rint(np.geomspace(1, one["budget"], 14)), one["budget"]])
    carried = np.ceil((decodes[:, None] + np.array([0.0, *tokens])) / tile) * tile
    linear = times.fixed_s + np.maximum(times.weights_s, times.token_s * carried)
    reading = np.full(len(decodes) + 1, times.read_s)
    return TabulatedSteps(
        [0.0, *decodes.tolist()], [0.0, *tokens.tolist()], np.vstack([linear[:1], linear]), reading, times.pair_s
    )


def open_loops(count: int, seed: int, requests: int = 1500) -> pd.DataFrame:
    """One row a condition: bounds over the simulation's, of the time of a token and of the rate."""
    rng = np.random.default_rng(seed)
    drawn = [serving.drawn(rng) for _ in range(count)]
    return pd.DataFrame([_open(one, requests) for one in shown(drawn, "open loops")])


def _open(one: dict[str, Any], count: int) -> dict[str, float]:
    rng = np.random.default_rng(one["seed"])
    prompts = lengths(rng, one["prompt"], one["cv_prompt"], count)
    answers = lengths(rng, one["answer"], one["cv_answer"], count, least=2)
    times = tabulated(one, rng)
    asked = mean_request(Requests(prompts, answers), MOST)
    load, arrival_cv = rng.choice(LOADS), rng.choice([0.5, 1.0, 2.0])
    came = arrivals(rng, load * most_rate(times, asked), arrival_cv, count)
    engine = Engine(times, one["budget"] + MOST, chunk=one["budget"], sequences=MOST)
    served = simulate_open(engine, Requests(prompts, answers, came), timeline=True)
    spent = {name: np.array(column) for name, column in zip(TIMELINE, zip(*served.timeline, strict=True), strict=True)}
    token = (spent["decodes"] * spent["seconds"]).sum() / (spent["decodes"] * spent["steps"]).sum()
    rate = count / float(spent["start_s"][-1] + spent["seconds"][-1])
    return {
        "tpot_s": least_token_s(times, asked, rate) / token, "rate": rate / most_rate(times, asked),
        "rate_at_tpot": rate / most_rate(times, asked, float(token)), "load": load,
    }  # fmt: skip


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
    result = compared(count, seed)
    shares = result[["step_s", "tpot_s", "ttft_s", "rate"]]
    print(shares.describe(percentiles=[0.1, 0.5, 0.9, 0.99]).round(4).to_string())
    print(f"{count} closed loops, exceeded: {(shares > 1).sum().to_dict()}")
    shares = open_loops(count, seed + 1)[["tpot_s", "rate", "rate_at_tpot"]]
    print(shares.describe(percentiles=[0.1, 0.5, 0.9, 0.99]).round(4).to_string())
    print(f"{count} open loops, steps in tiles, exceeded: {(shares > 1).sum().to_dict()}")


if __name__ == "__main__":
    main()
