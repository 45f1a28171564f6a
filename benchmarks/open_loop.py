"""Points a CPU second of the open loop's closed form: `python benchmarks/open_loop.py [POINTS] [SEED]`.

Engines, lengths, loads and gaps are drawn as in `serving.py`, loads to 0.95; each point is means and percentiles of
TTFT, TPOT and whole requests. CPU seconds of the process, after one run that compiles; the median and the best of
seven.
"""

import sys
import time

import jax
import numpy as np
import pandas as pd
import serving

BAR = 50_000  # points a second of one core
DRAWN = 1_000  # conditions of which points are copies
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.95)
REPEATS = 7


def conditions(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Conditions and their rates."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame([
        serving.drawn(rng) | {"arrival_cv": rng.choice([0.5, 1.0, 2.0]), "at": rng.choice(LOADS)} for _ in range(DRAWN)
    ])  # fmt: skip
    rows["most"] = serving.MOST
    return rows, rows["at"].to_numpy() * serving.sustained(rows)


def rates(rows: pd.DataFrame, rate: np.ndarray) -> list[float]:
    """Points a CPU second, run after run."""
    jax.block_until_ready(serving.answers_of(rows, rate))
    result = []
    for _ in range(REPEATS):
        begun = time.process_time()
        jax.block_until_ready(serving.answers_of(rows, rate))
        result.append(len(rows) / (time.process_time() - begun))
    return result


def main() -> None:
    """Print the rate and its bar."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rows, rate = conditions(int(sys.argv[2]) if len(sys.argv) > 2 else 17)
    copies = -(-count // DRAWN)
    result = rates(pd.concat([rows] * copies), np.tile(rate, copies))
    print(f"open loop: {np.median(result):,.0f} points a CPU second, at best {max(result):,.0f} (bar {BAR:,})")


if __name__ == "__main__":
    main()
