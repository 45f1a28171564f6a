"""What a second processor of this machine adds to one, whatever runs on it: the roof over `benchmarks/scaling.py`.

    python benchmarks/two_cores.py                 best of 20 rounds of 0.5 s (`--rounds 100 --seconds 0.2`)

Three kinds of work that knows nothing of each other: arithmetic in registers (Python's integers), exponentials of an
array that stays in the first cache, sums of arrays that are read from memory. Each is timed in one process and in two
side by side, in turn; the best round of each is the one that others disturbed least.
"""

import argparse
import multiprocessing
import os
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

SMALL, LARGE = 1_000, 16_000_000  # numbers: 8 kB; 128 MB


def integers(_: np.ndarray) -> int:
    """Work of one step, without memory."""
    total = 1
    for number in range(20_000):
        total = (total * 31 + number) & 0xFFFFFFFF
    return 1


def exponentials(array: np.ndarray) -> int:
    """Work of one step in the first cache."""
    for _ in range(200):
        np.exp(array)
    return 1


def sums(array: np.ndarray) -> int:
    """Work of one step that waits for memory."""
    array.sum()
    return 1


KINDS = {"integers": (integers, 1), "exponentials in cache": (exponentials, SMALL), "sums from memory": (sums, LARGE)}


def worker(kind: str, at: int, barrier: Barrier, seconds: float, rounds: int, found) -> None:
    """Steps each second, alone in even rounds (the first process only), beside the other in odd ones."""
    step, size = KINDS[kind]
    array = np.linspace(0.0, 1.0, size)
    rates = []
    for number in range(2 * rounds):
        barrier.wait()
        if number % 2 == 0 and at == 1:
            barrier.wait()
            continue
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            steps += step(array)
        rates.append((number % 2, steps / (time.perf_counter() - began)))
        barrier.wait()
    found.put(rates)


def ratio(kind: str, seconds: float, rounds: int) -> tuple[float, float, float]:
    """(best rate alone, best rate of two together, their ratio)."""
    context = multiprocessing.get_context("spawn")
    barrier, result = context.Barrier(2), context.Queue()
    processes = [context.Process(target=worker, args=(kind, at, barrier, seconds, rounds, result)) for at in range(2)]
    for process in processes:
        process.start()
    told = [result.get() for _ in processes]
    for process in processes:
        process.join()
    alone = max(rate for rates in told for beside, rate in rates if not beside)
    together = [[rate for beside, rate in rates if beside] for rates in told]
    both = max(a + b for a, b in zip(*together, strict=True))
    return alone, both, both / alone


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5)
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args()
    siblings = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    shared = siblings.read_text(encoding="utf-8").strip() if siblings.exists() else "unknown"
    print(f"load {os.getloadavg()[0]:.1f}; processors that share the first one's core: {shared}")
    for kind in KINDS:
        alone, both, more = ratio(kind, given.seconds, given.rounds)
        print(f"  {kind:<24} {alone:10.1f} steps/s alone, {both:10.1f} of two: {more:.2f}x", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
