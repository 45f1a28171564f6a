"""Autoscaling policies of all kinds, simulated on random engines, against the bound that none is to beat.

A case draws a table of step times, lengths, a profile of rates, limits, how long a start takes and the fewest
replicas, of which there are no fewer at the beginning. Policies are those of the package with random settings,
some that know the rates, some that start and stop at random, and any number of replicas kept throughout. Each is
held against the bound for the share of requests that it keeps.

    python qa/independent_scaling.py --count 40 --seed 1
"""

import argparse
import dataclasses
import math
import sys
from typing import Any

import numpy as np

from codesign import ConfigError
from codesign.simulation.fleet import (
    KeepSLO,
    LatencyLimits,
    Scaling,
    ScheduledScaling,
    TargetUtilisation,
    by_profile,
    least_replicas,
    simulate_fleet,
)
from codesign.simulation.serving import Engine, Requests, TabulatedSteps, lengths

ROUTERS = ("least_outstanding", "round_robin")
MOST = 4000  # requests of a case


def engine_of(rng: np.random.Generator) -> Engine:
    """An engine of which a step is no shorter for more sequences or tokens."""
    rows, columns = (
        np.array([0.0, *sorted(rng.integers(2, 128, 2))]),
        np.array([0.0, 256.0, float(rng.integers(300, 4096))]),
    )
    rows = np.unique(rows)
    base, one, token = 10 ** rng.uniform(-3, -1.7), 10 ** rng.uniform(-6, -3.5), 10 ** rng.uniform(-6, -4.5)
    seconds = base + one * rows[:, None] ** rng.uniform(0.5, 1.0) + token * columns[None, :]
    seconds = np.maximum.accumulate(np.maximum.accumulate(seconds * rng.uniform(1, 1.3, seconds.shape), 0), 1)
    table = TabulatedSteps(
        rows.tolist(), columns.tolist(), seconds, np.full(len(rows), 10 ** rng.uniform(-10, -8)), 1e-10
    )
    return Engine(table, budget=10**9, chunk=int(rng.integers(64, 4096)), sequences=int(rows[-1]))


def policies(rng: np.random.Generator, rates: list[float], interval: float, good_for: float, most: int) -> list[Any]:
    """Policies of many kinds."""
    known = [float(np.ceil(rate / good_for)) for rate in rates]
    result: list[Any] = [
        TargetUtilisation(good_for, share, hold) for share, hold in rng.uniform([0.3, 0], [2, 200], (3, 2))
    ]
    result += [
        ScheduledScaling(rates, interval, good_for, share, every)
        for share, every in rng.uniform([0.4, 1], [2, 20], (3, 2))
    ]
    result += [KeepSLO(float(rng.uniform(0, 0.3)), float(rng.uniform(0.1, 1)), float(rng.uniform(5, 100)))]
    result += [lambda _, count=count: count for count in {1, most // 2 + 1, *map(int, rng.integers(1, most + 1, 3))}]
    result += [
        lambda seen, ahead=ahead: known[min(int((seen.now + ahead) // interval), len(known) - 1)] for ahead in (0, 60)
    ]
    result += [lambda seen: most if seen.outstanding > 4 * (seen.ready + seen.starting) else 1]
    own = np.random.default_rng(int(rng.integers(1 << 30)))
    result += [lambda _: own.integers(1, most + 1)]
    return result


def main() -> int:
    """Attack random cases; 1 where a policy beats a bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    beaten = tried = none = 0
    nearest = math.inf
    for number in range(given.count):
        rng = np.random.default_rng([given.seed, number])
        engine, cv = engine_of(rng), float(rng.uniform(0.5, 3))
        prompts, outputs = int(rng.integers(16, 3000)), int(rng.integers(2, 200))
        few = Requests(lengths(rng, prompts, 0.5, 64), lengths(rng, outputs, 0.5, 64, 2), np.zeros(64))
        alone = simulate_fleet(engine, few, "round_robin", replicas=1)
        good_for = 64 / max(alone.replica_s, 1e-9)
        interval = float(rng.uniform(10, 200))
        rates = (good_for * rng.uniform(0.05, 5, int(rng.integers(1, 5)))).tolist()
        rates = [rate * min(1.0, MOST / (sum(rates) * interval)) for rate in rates]
        came = by_profile(rng, tuple(rates), interval, cv=cv)
        if len(came) < 20:
            continue
        requests = Requests(lengths(rng, prompts, 0.5, len(came)), lengths(rng, outputs, 0.5, len(came), 2), came)
        quick = float(np.median(alone.served.tpot_s)) * rng.uniform(0.3, 3)
        agreed = LatencyLimits(float(interval * 10 ** rng.uniform(-3, 1)), max(quick, 1e-6), 0.99)
        start, most = float(rng.choice([0.0, 5.0, 60.0])), int(rng.integers(4, 16))
        for policy in policies(rng, rates, interval, good_for, most):
            least, first = int(rng.integers(1, 3)), int(rng.integers(2, most + 1))
            scaling = Scaling(policy, float(rng.uniform(1, 20)), start, least, most, (agreed.ttft_s, agreed.tpot_s))
            served = simulate_fleet(engine, requests, str(rng.choice(ROUTERS)), replicas=first, scaling=scaling)
            kept = served.attainment(agreed, 0.0)
            if not kept:
                continue
            try:
                own = dataclasses.replace(agreed, share=min(kept, 1.0))
                bound = least_replicas(engine, requests, own, scaling, initial=first).replica_s
            except ConfigError:
                bound = math.inf  # it says that no policy keeps the limits for this share
            tried, none = tried + 1, none + (bound == math.inf)
            nearest = min(nearest, served.replica_s / bound)
            if bound > served.replica_s:
                beaten += 1
                paid = f"{served.replica_s:.6g} replica-s keep {kept:.2%}"
                print(f"BEATEN case {number}: {policy}: {paid}, bound {bound:.6g}")
    impossible = f"{none} said to be impossible"
    print(f"{beaten} of {tried} policies beat the bound ({impossible}); the nearest has {nearest:.3f} of it")
    return 1 if beaten else 0


if __name__ == "__main__":
    sys.exit(main())
