"""Requests that a fleet's simulation serves in a minute of one core: `python benchmarks/fleet_speed.py`.

A light table of steps, 30 requests/s a replica of 100 output tokens each, and conversations with prefix stores.
"""

import dataclasses
import time

import numpy as np

from codesign.simulation.fleet import ROUTERS, RequestClass, conversations, simulate_fleet
from codesign.simulation.serving import Engine, Requests, TabulatedSteps, arrivals, lengths

TABLE = TabulatedSteps(
    [0.0, 32.0, 64.0], [0.0, 2048.0], np.array([[7e-3, 4.3e-2], [7.6e-3, 4.4e-2], [8.3e-3, 4.4e-2]]),
    np.full(3, 1e-8), 1e-9,
)  # fmt: skip
ENGINE = Engine(TABLE, budget=2048, chunk=2048, sequences=64)
COUNT = 50_000
CLASSES = (
    RequestClass("agent", 800, 150, prefix_tokens=4096, prefixes=50, turns=10, think_s=6),
    RequestClass("chat", 300, 200, share=2, prefix_tokens=1024, prefixes=20, turns=4, think_s=30),
)

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    for replicas in (1, 16, 128):
        came = arrivals(rng, 30.0 * replicas, 1.0, COUNT)
        plain = Requests(lengths(rng, 500, 0.5, COUNT), lengths(rng, 100, 0.5, COUNT, 2), came)
        talks = conversations(rng, arrivals(rng, 0.5 * replicas, 1.0, COUNT // 6), CLASSES, most_tokens=16_000)
        for router in ROUTERS:
            hashed = router in ("prefix_aware", "session_sticky")
            engine, asked = (dataclasses.replace(ENGINE, store_blocks=2000), talks) if hashed else (ENGINE, plain)
            begun = time.process_time()
            simulate_fleet(engine, asked, router, replicas=replicas)
            spent = time.process_time() - begun
            print(f"{replicas:4d} replicas, {router:18s} {60e-6 * len(asked) / spent:5.2f} million requests a minute")
