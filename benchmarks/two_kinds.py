"""Closed forms of requests of two kinds against the simulation: `python benchmarks/two_kinds.py [CONDITIONS] [SEED]`.

Short prompts and long ones, with answers of their own: what chats and documents, or code and agents, ask for together.
Engines and loads as in `serving.py`. Prints |closed form / simulated - 1| with moments of lengths alone, and with the
lengths themselves as `workload.trace` reads them.
"""

import dataclasses
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from serving import LOADS, MOST, REQUESTS, STEP, drawn, errors, steps_of

from codesign.commands.simulate_forms import demand_of, with_contexts
from codesign.model.workloads.goodput import SLO, goodput
from codesign.model.workloads.kinds import COUNT
from codesign.model.workloads.open_loop import Demand, RooflineTimes, Times, open_loop
from codesign.simulation.serving import Engine, Requests, arrivals, lengths, simulate_open

jax.config.update("jax_enable_x64", True)
NAMES = ("ttft_s", "tpot_s")


def two_kinds(rng: np.random.Generator) -> dict[str, Any]:
    """An engine, and requests of which `share` are of the second kind."""
    short, long = 2 ** rng.uniform(6, 9), 2 ** rng.uniform(10.5, 13.3)
    return drawn(rng) | {
        "short": short, "long": long, "share": rng.uniform(0.03, 0.4), "cv": rng.uniform(0.1, 0.6),
        "answers": 2 ** rng.uniform(5, 9.5, 2), "at": rng.choice(LOADS),
    }  # fmt: skip


def requests_of(one: dict[str, Any], seed: int, rate: float) -> Requests:
    """Drawn, in any order."""
    rng = np.random.default_rng(seed)
    second = rng.random(REQUESTS) < one["share"]
    prompts, answers = (
        np.where(second, *(lengths(rng, mean, cv, REQUESTS, least=least) for mean in means))
        for means, cv, least in (
            ((one["long"], one["short"]), one["cv"], 1), (tuple(one["answers"]), one["cv_answer"], 2)
        )
    )  # fmt: skip
    return Requests(prompts, answers, arrivals(rng, rate, 1.0, REQUESTS))


FOREVER = SLO(1e15, 1e15)
answer = jax.jit(open_loop)
most = jax.jit(lambda times, demand: goodput(times, demand, FOREVER).rate)


def asked_of(one: dict[str, Any], engine: Engine, asked: Requests, rate: float, *, alike: bool) -> tuple[Times, Demand]:
    """An engine's steps and who asks it, at a rate; tables of lengths are filled up, so that all are one program."""
    demand = demand_of(engine, float(one["budget"]), asked)
    tables = {name: None if alike else filled(getattr(demand, name)) for name in ("prompts", "answers")}
    demand = dataclasses.replace(demand, rate=jnp.asarray(rate), most=jnp.asarray(float(MOST)), **tables)
    demand = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), demand)
    return with_contexts(RooflineTimes(*(jnp.asarray(one[name]) for name in STEP)), asked, demand), demand


def filled(table: Any) -> Any:
    """With rows that nobody asks for."""
    return jnp.concatenate([table, jnp.tile(jnp.array([[1.0, 0.0, 0.0]]), (COUNT - len(table), 1))])


def rows_of(count: int, seed: int) -> pd.DataFrame:
    """Conditions with what both closed forms and two seeds of the simulation say."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(count):
        one = two_kinds(rng)
        engine = Engine(steps_of(one), 10**9, chunk=one["budget"], sequences=MOST)
        trial = requests_of(one, one["seed"], 1.0)
        rate = one["at"] * float(most(*asked_of(one, engine, trial, 1.0, alike=True)))
        asked = requests_of(one, one["seed"], rate)
        came = 1 / float(np.diff(np.asarray(asked.arrivals)).mean())
        row = {"at": one["at"]}
        for kind, alike in (("closed", False), ("moments", True)):
            result = answer(*asked_of(one, engine, asked, came, alike=alike))
            for name in NAMES:
                values = getattr(result, name)
                row |= {f"{kind}.{name}": float(values.mean)} | {
                    f"{kind}.{name}.{share}": float(getattr(values, share)) for share in ("p50", "p90", "p99")
                }
        for kind, request in (("simulated", asked), ("other", requests_of(one, one["seed"] + 1, rate))):
            row |= {f"{kind}.{name}": value for name, value in simulate_open(engine, request).summary().items()}
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Print the tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    start = time.process_time()
    frame = rows_of(count, seed)
    for title, of in (("lengths as they are", "closed"), ("moments alone", "moments"), ("another seed", "other")):
        print(f"{title}, {len(frame)} conditions, per cent\n{(100 * errors(frame, of)).round(2).to_string()}\n")
    print(f"{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
