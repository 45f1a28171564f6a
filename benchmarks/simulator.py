"""CPU seconds in which requests are simulated one by one: `python benchmarks/simulator.py [REQUESTS] [SEED]`.

Twelve engines, lengths and loads drawn as in `serving.py`; closed loops, open loops with Poisson arrivals at 0.1 to 0.8
of what is sustained, and prompts apart from decodes on two engines each. Median and worst of each.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import serving

from codesign.simulation.serving import (
    Engine,
    Requests,
    arrivals,
    lengths,
    simulate_apart,
    simulate_closed,
    simulate_open,
)

BAR_S = 1.0  # of 10,000 requests
CONDITIONS = 12


def spent(run: Callable[[], object]) -> float:
    """CPU seconds."""
    begun = time.process_time()
    run()
    return time.process_time() - begun


def main() -> None:
    """Print one line a kind of loop."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 17)
    rows = pd.DataFrame([
        serving.drawn(rng) | {"arrival_cv": 1.0, "at": rng.choice(serving.LOADS)} for _ in range(CONDITIONS)
    ])  # fmt: skip
    rates = rows["at"].to_numpy() * serving.sustained(rows)
    seconds: dict[str, list[float]] = {}
    for one, rate in zip(rows.to_dict("records"), rates, strict=True):
        prompts = lengths(rng, one["prompt"], one["cv_prompt"], count)
        answers = lengths(rng, one["answer"], one["cv_answer"], count, least=2)
        asked = Requests(prompts, answers, arrivals(rng, rate, 1.0, count))
        steps, budget = serving.steps_of(one), one["budget"]
        closed = Engine(steps, budget + one["concurrency"], chunk=budget)
        opened = Engine(steps, 10**9, chunk=budget, sequences=serving.MOST)
        apart = Engine(steps, budget, sequences=10 * serving.MOST)
        runs = {
            "closed loop": partial(simulate_closed, closed, Requests(prompts, answers), one["concurrency"]),
            "open loop": partial(simulate_open, opened, asked),
            "two pools": partial(simulate_apart, apart, apart, (2, 2), asked, lambda tokens: 1e-6 * tokens),
        }
        for kind, run in runs.items():
            seconds.setdefault(kind, []).append(spent(run))
    for kind, each in seconds.items():
        told = f"median {np.median(each):.2f} CPU s, worst {max(each):.2f}"
        print(f"{count:,} requests, {kind}: {told} (bar {BAR_S:g} for 10,000)")


if __name__ == "__main__":
    main()
