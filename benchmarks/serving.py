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

from codesign.simulation.serving import Engine, Requests, RooflineSteps, lengths, simulate_closed
from codesign.workloads.steady_state import steady_state

jax.config.update("jax_enable_x64", True)
REQUESTS = 10_000
COMPARED = ("ttft_s", "tpot_s", "rate", "mixed_ratio")
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
    return RooflineSteps(*(one[name] for name in ("fixed_s", "weights_s", "token_s", "read_s", "pair_s")))


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
        "tpot_s": tpot, "ttft_s": ttft, "rate": decodes / (steps * step), "mixed_ratio": share,
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
        row = {f"{kind}.{name}": found[name] for kind, found in kinds.items() for name in COMPARED}
        rows.append(one | row | {"load": form["load"], "decodes": first["decodes"], "own": form["own"]})
    return pd.DataFrame(rows)


def errors(frame: pd.DataFrame, of: str, beside: str = "simulated") -> pd.DataFrame:
    """Median, 90th percentile and signed median of what is `of` over what is `beside`."""
    rows = {}
    for name in COMPARED:
        error = frame[f"{of}.{name}"] / frame[f"{beside}.{name}"] - 1
        rows[name] = (error.abs().median(), error.abs().quantile(0.9), error.median())
    return pd.DataFrame(rows, index=["median", "p90", "bias"]).T


def main() -> None:
    """Print the tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 17
    start = time.process_time()
    frame = closed_loop(count, seed)
    for title, of in (("closed loop, closed form at the simulated batch", "closed"), ("another seed", "other")):
        print(f"{title}, {len(frame)} conditions\n{(100 * errors(frame, of)).round(2).to_string()}\n")
    print(f"{time.process_time() - start:.0f} CPU s")
    if len(sys.argv) > 3:
        frame.to_csv(sys.argv[3], index=False)


if __name__ == "__main__":
    main()
