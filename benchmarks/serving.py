"""Closed forms of serving against the simulation: `python benchmarks/serving.py [CONDITIONS] [SEED]`.

Engines, lengths, loads and budgets are drawn at random; prints |closed form / simulated - 1|, its median, its 90th
percentile and its sign, and what two seeds of the simulation differ by.
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from codesign.model.workloads.open_loop import Demand, OpenLoop, RooflineTimes, open_loop
from codesign.model.workloads.pools_apart import pools_apart
from codesign.model.workloads.steady_state import FULLEST, steady_state
from codesign.simulation.serving import (
    Engine,
    Requests,
    RooflineSteps,
    arrivals,
    lengths,
    simulate_apart,
    simulate_closed,
    simulate_open,
)

jax.config.update("jax_enable_x64", True)
REQUESTS = 10_000
COMPARED = ("ttft_s", "tpot_s", "rate", "hybrid_step_share")
STEP = ("fixed_s", "weights_s", "token_s", "read_s", "pair_s")
FULL = 0.9  # of the room for prompts: beyond it a simulation of this length does not settle


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """A condition: an engine between a small model on one device and a large one on many, and who asks it."""
    weights = 10 ** rng.uniform(-3, -1.9)
    return {
        "fixed_s": weights * rng.uniform(0.1, 1.0), "weights_s": weights,
        "token_s": weights / 10 ** rng.uniform(1.9, 2.7), "read_s": weights / 10 ** rng.uniform(5, 6.3),
        "pair_s": weights / 10 ** rng.uniform(6.6, 8),
        "prompt": 2 ** rng.uniform(6, 13.3), "answer": 2 ** rng.uniform(5, 10.5),
        "cv_prompt": rng.choice([0.0, 0.3, 0.6, 1.0]), "cv_answer": rng.choice([0.2, 0.5, 1.0]),
        "concurrency": int(2 ** rng.uniform(1, 8)), "budget": int(rng.choice([512, 1024, 2048, 4096, 8192])),
        "seed": int(rng.integers(1 << 30)),
    }  # fmt: skip


def steps_of(one: dict[str, Any]) -> RooflineSteps:
    """Times of the steps of a condition."""
    return RooflineSteps(*(one[name] for name in STEP))


def simulated(one: dict[str, Any], seed: int) -> dict[str, float]:
    """What the simulation says, and moments of the lengths that were drawn."""
    rng = np.random.default_rng(seed)
    prompts = lengths(rng, one["prompt"], one["cv_prompt"], REQUESTS)
    answers = lengths(rng, one["answer"], one["cv_answer"], REQUESTS, least=2)
    engine = Engine(steps_of(one), one["budget"] + one["concurrency"], chunk=one["budget"])
    return simulate_closed(engine, Requests(prompts, answers), one["concurrency"]).summary()


def closed_form(one: dict[str, Any], decodes: float) -> dict[str, float]:
    """The same by `workloads.steady_state` at a number of sequences decoded together."""
    times, steps = steps_of(one), one["answer"] - 1
    state = steady_state(*map(jnp.asarray, (decodes, steps, one["prompt"], one["cv_prompt"], float(one["budget"]))))
    share, tokens = float(state.share), float(state.tokens)
    context = one["prompt"] + 0.5 * one["answer"] * (1 + one["cv_answer"] ** 2)
    reading = times.read_s * decodes * context
    plain = times.linear_s(decodes, 0) + reading
    attended = 0.5 * one["prompt"] * (1 + one["cv_prompt"] ** 2)
    mixed = times.linear_s(decodes, tokens) + reading + times.pair_s * tokens * attended
    met = float(state.met)
    counted, own = float(state.counted), float(state.own_counted)
    tpot, step = (plain + part * counted * (mixed - plain) for part in (met, share))
    ttft = float(state.own_steps) * (own * mixed + (1 - own) * plain) + float(state.waiting_steps) * mixed
    return {
        "tpot_s": tpot, "ttft_s": ttft, "rate": decodes / (steps * step), "hybrid_step_share": share,
        "load": float(state.load), "own": float(state.own_steps), "wait": float(state.waiting_steps),
    }  # fmt: skip


def closed_loop(count: int, seed: int) -> pd.DataFrame:
    """Conditions with what the closed form and two seeds of the simulation say."""
    rng, rows = np.random.default_rng(seed), []
    while len(rows) < count:
        one = drawn(rng)
        first = simulated(one, one["seed"])
        form = closed_form(one, first["decodes"])
        if form["load"] > FULL:
            continue
        second = simulated(one, one["seed"] + 1)
        kinds = {"simulated": first, "other": second, "closed": form}
        row = {f"{kind}.{name}": result[name] for kind, result in kinds.items() for name in COMPARED}
        rows.append(one | row | {"load": form["load"], "decodes": first["decodes"], "own": form["own"]})
    return pd.DataFrame(rows)


MOST = 256  # sequences of an open loop
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8)  # of the most that an engine sustains


def answers_of(rows: pd.DataFrame, rate: np.ndarray) -> OpenLoop:
    """The open loop's closed form of many conditions at once."""
    times = RooflineTimes(*(jnp.asarray(rows[name]) for name in STEP))
    named = {"input_tokens": "prompt", "input_cv": "cv_prompt", "output_tokens": "answer", "output_cv": "cv_answer"}
    given = {name: jnp.asarray(rows[column], float) for name, column in named.items()}
    demand = Demand(
        rate=jnp.asarray(rate), arrival_cv=jnp.asarray(rows["arrival_cv"], float),
        chunk=jnp.asarray(rows["budget"], float),
        most=jnp.asarray(rows["most"], float), elsewhere=jnp.zeros(len(rows)), **given,
    )  # fmt: skip
    return many(times, demand)


BLOCK = 128  # points whose intermediate numbers stay near the arithmetic


@jax.jit
def many(times: RooflineTimes, demand: Demand) -> OpenLoop:
    """The closed form of many conditions, block after block."""
    return jax.lax.map(lambda one: open_loop(*one), (times, demand), batch_size=BLOCK)


def sustained(rows: pd.DataFrame) -> np.ndarray:
    """Largest rates at which neither prompts nor decodes pile up, by bisection."""
    low, high = np.full(len(rows), 1e-6), np.full(len(rows), 1e6)
    for _ in range(40):
        middle = np.sqrt(low * high)
        result = answers_of(rows, middle)
        fits = (np.asarray(result.load) < FULLEST) & (np.asarray(result.fill) < 0.999)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def open_loops(count: int, seed: int, arrival_cv: float = 1.0, few: bool = False) -> pd.DataFrame:
    """Conditions at loads to 0.8 with what the closed form and two seeds of the simulation say; few: to 128 places."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame([drawn(rng) | {"arrival_cv": arrival_cv, "at": rng.choice(LOADS)} for _ in range(count)])
    rows["most"] = (2 ** rng.uniform(0, 7, count)).astype(int) if few else MOST
    rate = rows["at"].to_numpy() * sustained(rows)
    result = answers_of(rows, rate)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        for share, values in zip(("mean", "p50", "p90", "p99"), getattr(result, name), strict=True):
            rows[f"closed.{name}{'' if share == 'mean' else '.' + share}"] = np.asarray(values)
    conditions = rows[list(rows.columns[~rows.columns.str.startswith("closed.")])].to_dict("records")
    for label, own in (("simulated", 0), ("other", 1)):
        said = [_open(one, at, one["seed"] + own) for one, at in zip(conditions, rate, strict=True)]
        rows = pd.concat([rows, pd.DataFrame(said).add_prefix(f"{label}.")], axis=1)
    return rows


def _open(one: dict[str, Any], rate: float, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    prompts = lengths(rng, one["prompt"], one["cv_prompt"], REQUESTS)
    answers = lengths(rng, one["answer"], one["cv_answer"], REQUESTS, least=2)
    came = arrivals(rng, rate, one["arrival_cv"], REQUESTS)
    engine = Engine(steps_of(one), 10**9, chunk=one["budget"], sequences=one["most"])
    return simulate_open(engine, Requests(prompts, answers, came)).summary()


def pools(count: int, seed: int, few: bool = False) -> pd.DataFrame:
    """Prompts and decodes on engines apart, at loads to 0.8 of the pool that fills first; few: to 128 places."""
    rng, rows = np.random.default_rng(seed), []
    form = jax.jit(pools_apart)
    while len(rows) < count:
        one = drawn(rng) | {"arrival_cv": 1.0}
        engines = (int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 4])))
        link, load = float(rng.choice([0.0, 2e-6, 2e-5])), float(rng.choice(LOADS))
        times, steps = RooflineTimes(*(one[name] for name in STEP)), steps_of(one)
        counted = int(2 ** rng.uniform(0, 7)) if few else MOST
        most = counted if few else 10 * MOST
        full = steps.linear_s(counted, 0) + steps.read_s * counted * (one["prompt"] + 0.5 * one["answer"])
        decodes = engines[1] * counted / ((one["answer"] - 1) * full)
        prompts = lengths(np.random.default_rng(0), one["prompt"], one["cv_prompt"], REQUESTS)
        engine = Engine(steps, one["budget"], sequences=most)
        full_s = prompts.mean() / one["budget"] * steps.linear_s(0, one["budget"])  # of a prompt in steps that are full
        full_s += steps.pair_s * 0.5 * (prompts**2).mean()
        links = engines[0] / max(link * one["prompt"], 1e-12)
        rate = float(load * min(engines[0] / full_s, links, decodes))
        shape = {"input_cv": float(one["cv_prompt"]), "output_cv": float(one["cv_answer"]), "most": float(most)}
        demand = Demand(rate, one["prompt"], one["answer"], float(one["budget"]), **shape)
        own = [jnp.asarray(float(value)) for value in (*engines, link * one["prompt"])]
        result, row = form(times, times, demand, (own[0], own[1]), own[2]), {}
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            said = getattr(result, name)
            row |= {f"closed.{name}": float(said.mean), f"closed.{name}.p99": float(said.p99)}
        for label, after in (("simulated", 0), ("other", 1)):
            again = np.random.default_rng(one["seed"] + after)
            asked = Requests(
                lengths(again, one["prompt"], one["cv_prompt"], REQUESTS),
                lengths(again, one["answer"], one["cv_answer"], REQUESTS, least=2),
                arrivals(again, rate, 1.0, REQUESTS),
            )
            served = simulate_apart(engine, engine, engines, asked, lambda tokens, link=link: link * tokens).summary()
            row |= {f"{label}.{name}": value for name, value in served.items()}
        rows.append(one | row | {"at": load})
    return pd.DataFrame(rows)


def errors(frame: pd.DataFrame, of: str, beside: str = "simulated") -> pd.DataFrame:
    """Median, 90th percentile and signed median of what is `of` over what is `beside`."""
    rows = {}
    for name in [column.split(".", 1)[1] for column in frame if column.startswith("closed.")]:
        error = frame[f"{of}.{name}"] / frame[f"{beside}.{name}"] - 1
        rows[name] = (error.abs().median(), error.abs().quantile(0.9), error.median())
    return pd.DataFrame(rows, index=["median", "p90", "bias"]).T


def main() -> None:
    """Print the tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 17
    start = time.process_time()
    frames = {
        "closed loop, closed form at the simulated batch": closed_loop(count, seed),
        f"open loop, Poisson, load to {max(LOADS)}": open_loops(count, seed),
        f"open loop, Poisson, 1 to 128 places, load to {max(LOADS)}": open_loops(count, seed, few=True),
        f"prompts and decodes apart, load to {max(LOADS)}": pools(count, seed),
        f"prompts and decodes apart, 1 to 128 places, load to {max(LOADS)}": pools(count, seed, few=True),
        f"open loop, gaps that vary twice as much, load to {max(LOADS)}": open_loops(count, seed, 2.0),
    }
    for title, frame in frames.items():
        for whose, of in ((title, "closed"), ("another seed of the simulation", "other")):
            print(f"{whose}, {len(frame)} conditions, per cent\n{(100 * errors(frame, of)).round(2).to_string()}\n")
    print(f"{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
