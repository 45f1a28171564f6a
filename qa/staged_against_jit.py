"""Evaluation by NumPy, traced once a structure, against `jax.jit` of the same model, on random scenarios.

    python qa/staged_against_jit.py --count 20 --seed 0       (`--jobs 3` designs of each structure)

A scenario is a random accelerator, fabric, model, workload and plan of `conf/`, with random values of the plan and
random factors on the numbers of the hardware. What the configuration refuses is drawn again. Every metric must agree
to 1e-9, relative. Compiling one structure takes ten seconds to a minute.
"""

import argparse
import random
import sys
import time
from typing import Any

import jax
import numpy as np

from codesign import evaluate, prepare_jax
from codesign.config import available, scenario_from_config
from codesign.core import CodesignError, flattened
from codesign.jaxprs import quick_jit
from codesign.model import Scenario

SAME = 1e-9
PARTS = {"accelerator": 1.0, "fabric": 0.5, "workload": 0.7, "model": 0.7, "plan": 0.3, "collective": 0.2}
"""Groups, and how often one of their options is chosen."""

FIELDS = {"tp": (1, 2, 4, 8), "pp": (1, 2, 4), "micro_batch": (1, 2, 4), "zero": (0, 1, 2, 3)}
NEAR = (0.8, 1.25)  # factors on numbers of the hardware
TRIES = 400  # draws for one scenario


def chosen(rng: random.Random) -> list[str]:
    """Overrides of a random scenario, which may be none."""
    words = [
        f"{group}={rng.choice(sorted(available(group)))}" for group, share in PARTS.items() if rng.random() < share
    ]
    words += [f"plan.{name}={rng.choice(values)}" for name, values in FIELDS.items() if rng.random() < 0.4]
    return words


def drawn(rng: random.Random) -> tuple[list[str], Scenario, int]:
    """(overrides, scenario, how many were refused before it).

    Raises:
        RuntimeError: all of many draws were refused.
    """
    for refused in range(TRIES):
        words = chosen(rng)
        try:
            return words, scenario_from_config(*words), refused
        except CodesignError:
            continue
    raise RuntimeError(f"{TRIES} draws were refused")


def moved(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario with other numbers of its accelerator and network."""
    leaves, structure = flattened(scenario.cluster)
    changed = [leaf * rng.uniform(*NEAR) if np.ndim(leaf) == 0 and float(leaf) > 1e3 else leaf for leaf in leaves]
    cluster = jax.tree.unflatten(structure, changed)
    return Scenario(cluster=cluster, workload=scenario.workload, plan=scenario.plan)


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Metric -> relative difference, of those that differ; parts of a time are differences: relative to the whole."""
    wrong = dict.fromkeys(one.keys() ^ other.keys(), np.inf)
    whole = abs(float(one["time_s"]))
    for name in one.keys() & other.keys():
        a, b = float(one[name]), float(other[name])
        if a == b or (np.isnan(a) and np.isnan(b)):
            continue
        away = abs(a - b) / (whole if name.startswith("breakdown_s.") else max(abs(a), abs(b)))
        if not away <= SAME:
            wrong[name] = away
    return wrong


def trial(scenario: Scenario, jobs: int, rng: random.Random) -> dict[str, float]:
    """What differs between both ways on a scenario and its neighbours."""
    compiled = quick_jit(lambda one: evaluate(one).flat())
    wrong: dict[str, float] = {}
    for number in range(jobs):
        one = moved(scenario, rng) if number else scenario
        wrong |= differences(evaluate(one).flat(), compiled(one))
    return wrong


def main() -> int:
    """As many scenarios as asked for, a line for each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=10, help="scenarios")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=3, help="designs of each")
    given = options.parse_args()
    prepare_jax()
    rng, bad = random.Random(given.seed), 0
    for number in range(given.count):
        started = time.perf_counter()
        words, scenario, refused = drawn(rng)
        wrong = trial(scenario, given.jobs, rng)
        bad += bool(wrong)
        told = ", ".join(f"{name} {away:.1e}" for name, away in sorted(wrong.items())) or "equal"
        print(
            f"{number}: {' '.join(words)} ({refused} refused, {time.perf_counter() - started:.0f} s): {told}",
            flush=True,
        )
    print(f"{given.count - bad} of {given.count} scenarios agree to {SAME:g}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
