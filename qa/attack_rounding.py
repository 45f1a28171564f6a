"""Attack on certificates through rounding: random goals that lose digits, each proven if it can be, then held against
designs that are simply evaluated.

    python qa/attack_rounding.py --count 100 --seed 0
    python qa/attack_rounding.py --count 20 --seed 3 --designs 512

Half of the goals are harmless (log-convex and free of cancellation by construction), half are traps: large offsets,
casts to single precision, differences of large numbers, scalings to the ends of float64, high powers and their roots.
A certificate is false where a design that keeps every limit lies more than 1e-8 below its bound, or where it says that
none can. Designs are evaluated in float64 at random hardware, corners among it, and around what the search found.
Exits with 1 if a certificate is false or fewer than 95 % of the harmless goals keep their proof.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

from codesign import (  # fmt: skip
    Certified,
    Continuous,
    DesignSpace,
    Metrics,
    Objective,
    Problem,
    Scenario,
    Trace,
    evaluate,
    prepare_jax,
    scenario_from_config,
)
from codesign.jaxprs import interpreted

BELOW = 1e-8  # relative: bounds are claimed to this
BAR = 0.95
HARMLESS, TRAP = "harmless", "trap"
UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
OUT = "cluster.network.scale_out.fabric.bandwidth_bytes_per_s"
HBM = "cluster.accelerator.hbm.capacity_bytes"
DDR = "cluster.host.memory.capacity_bytes"
NAMES = ("time_s", "energy_j", "capex_usd", "provisioned_power_w")
PROOF = Certified(
    gap=1e-3, seconds=20.0, batch_size=64, plans_per_round=64, top_k=4, convexity_samples=64, explain=False
)
Goal = Callable[[Metrics], Any]
SPACES = (
    DesignSpace(
        {"pp": [4, 8], "zero": [0, 1], "recompute": ["none", "full"]},
        {"hbm": Continuous(HBM, 40e9, 300e9), "up": Continuous(UP, 1e11, 9e11)},
    ),
    DesignSpace(
        {"tp": [4, 8], "pp": [8, 16]},
        {"hbm": Continuous(HBM, 80e9, 200e9), "ddr": Continuous(DDR, 1e11, 6e11), "out": Continuous(OUT, 12.5e9, 1e11)},
    ),
)


@dataclass
class Study:
    """A space, its legal plans, and designs of it: their metrics, used shares left to the objective."""

    scenario: Scenario
    space: DesignSpace
    designs: int
    compiled: bool = True

    def __post_init__(self) -> None:
        """Evaluate random designs, corners of the box among them."""
        self.plans = self.space.plans(self.scenario)
        self.table = np.stack(list(self.plans.values()), axis=-1)
        every = jax.vmap(lambda point: evaluate(self.space.place(self.scenario, point)))
        self.priced = jax.jit(every) if self.compiled else interpreted(every)
        rng = np.random.default_rng(0)
        u = rng.uniform(size=(self.designs, len(self.space.hardware)))
        u[::4] = np.round(u[::4])
        self.seen = self.at(self.table[rng.integers(0, len(self.table), self.designs)], u)

    def at(self, plan: np.ndarray, u: np.ndarray) -> Metrics:
        """Metrics of designs, as many at once as this study has."""
        values = self.space.values(dict(zip(self.space.names, u.T, strict=True)))
        return self.priced(dict(zip(self.plans, plan.T, strict=True)) | values)

    def around(self, trace: Trace, rng: np.random.Generator) -> Metrics:
        """Designs near those of a trace, at any distance, with any plan."""
        column = trace.points
        u = self.space.coordinates({name: jnp.asarray(column[name][:1], dtype=float) for name in self.space.names})
        best = np.array([float(u[name][0]) for name in self.space.names])
        width = 10 ** rng.uniform(-9, -0.5, (self.designs, 1))
        near = np.clip(best + width * rng.normal(size=(self.designs, len(best))), 0, 1)
        plan = self.table[rng.integers(0, len(self.table), self.designs)]
        own = np.array([float(column[name][0]) for name in self.plans if name in column])
        if len(own) == plan.shape[1]:
            plan[::2] = own
        return self.at(plan, near)


def harmless(rng: np.random.Generator, least: dict[str, float]) -> tuple[str, Goal]:
    """Log-convex by construction, without a digit lost."""
    a, b = (str(name) for name in rng.choice(NAMES, 2, replace=False))
    p, q = (float(x) for x in np.round(rng.uniform(0.2, 2.5, 2), 3))
    w, big = float(10 ** rng.uniform(-2, 2)), float(10 ** rng.uniform(100, 250))

    def two(m: Metrics) -> tuple[Any, Any]:
        return m.get(a) / least[a], m.get(b) / least[b]

    kinds: dict[str, Goal] = {
        "product of powers": lambda m: two(m)[0] ** p * two(m)[1] ** q,
        "metric plus one": lambda m: m.get(a) + 1.0,
        "weighted sum": lambda m: two(m)[0] + w * two(m)[1] ** q,
        "maximum": lambda m: jnp.maximum(two(m)[0], w * two(m)[1]) + two(m)[1],
        "root of a power": lambda m: (two(m)[0] ** 40 + two(m)[1] ** 40) ** (1 / 40),
        "scaling and back": lambda m: (two(m)[0] * big) / big + two(m)[1],
        "mean of logs": lambda m: jnp.exp((p * jnp.log(two(m)[0]) + q * jnp.log(two(m)[1])) / (p + q)),
        "norm": lambda m: jnp.linalg.norm(jnp.stack(two(m))),
        "exponential": lambda m: jnp.exp(p * two(m)[0]) + two(m)[1],
        "checkpointed": jax.checkpoint(lambda m: two(m)[0] * two(m)[1] + w),
    }
    name = str(rng.choice(list(kinds)))
    return name, kinds[name]


def trap(rng: np.random.Generator, least: dict[str, float]) -> tuple[str, Goal]:
    """Made to lose digits, some more than a proof can stand and some less."""
    a, b = (str(name) for name in rng.choice(NAMES, 2, replace=False))
    offset, high = float(10 ** rng.uniform(0, 18)), float(10 ** rng.uniform(285, 308))
    power, small = float(np.round(10 ** rng.uniform(1, 4))), float(10 ** rng.uniform(-18, -3))

    def one(m: Metrics) -> Any:
        return m.get(a) / least[a]

    def other(m: Metrics) -> Any:
        return m.get(b) / least[b]

    kinds: dict[str, Goal] = {
        "offset under exp": lambda m: jnp.exp((one(m) + offset) - offset),
        "offset of a sum": lambda m: jnp.exp(0.1 * ((one(m) + offset + other(m)) - offset)),
        "offset and room": lambda m: 1e3 + jnp.exp((one(m) * other(m) + offset) - offset),
        "offset of a root": lambda m: jnp.exp((one(m) ** 0.5 + offset) ** 1.0 - offset) + other(m),
        "offset of a log": lambda m: jnp.exp((jnp.log(one(m)) + offset) - offset) * other(m),
        "single precision": lambda m: one(m).astype(jnp.float32).astype(float) * other(m),
        "single precision inside": lambda m: (one(m).astype(jnp.float32) * other(m).astype(jnp.float32)) + 0.0,
        "large exponents": lambda m: jnp.exp((offset * jnp.log(one(m)) - offset * jnp.log(other(m))) / offset),
        "difference": lambda m: offset * one(m) - (offset - 1) * one(m) + other(m),
        "close to overflow": lambda m: (one(m) * high * other(m)) / high,
        "close to underflow": lambda m: (one(m) / high / other(m)) * high * other(m),
        "infinite and back": lambda m: other(m) + 1 / (1 / (one(m) * high)),
        "power and root": lambda m: (one(m) ** power) ** (1 / power),
        "exp and log": lambda m: jnp.exp(jnp.log(jnp.exp(one(m) * 100.0)) / 100.0),
        "log of one and little": lambda m: other(m) + jnp.exp(jnp.log(1 + small * one(m)) / small),
        "log1p of little": lambda m: jnp.exp(jnp.log1p(small * one(m)) / small),
        "choice by lost digits": lambda m: jnp.where((one(m) + offset) - offset < 2.0, one(m), 3 * one(m)),
        "maximum with lost digits": lambda m: jnp.exp(jnp.maximum(one(m), (other(m) + offset) - offset)),
        "reciprocal of a difference": lambda m: one(m) / ((offset + 2) - (offset + 1 / other(m))),
        "step of a large number": lambda m: one(m) + jnp.floor(offset * one(m)) / offset,
        "sum in little bits": lambda m: jnp.exp(
            0.1 * jnp.sum(jnp.stack([one(m), offset + 0 * one(m), other(m), -offset + 0 * one(m)]))
        ),
    }  # fmt: skip
    name = str(rng.choice(list(kinds)))
    return name, kinds[name]


def asked(study: Study, rng: np.random.Generator, kind: str) -> tuple[str, Objective]:
    """A goal of a kind, and a limit on money in half of all."""
    least = {name: float(np.min(np.asarray(study.seen.get(name)))) for name in NAMES}
    name, goal = (harmless if kind == HARMLESS else trap)(rng, least)
    capex = np.asarray(study.seen.capex_usd)
    limits = {"capex_usd": float(np.quantile(capex, rng.uniform(0.2, 0.9)))} if rng.uniform() < 0.5 else {}
    return name, Objective("own", limits=limits, custom={"own": goal})


def below(objective: Objective, bound: float | None, every: Sequence[Metrics]) -> tuple[float, bool]:
    """(the least goal of designs that keep everything without tolerance, whether it refutes the bound)."""
    least = np.inf
    for metrics in every:
        goals = np.asarray(jax.vmap(lambda one: objective.value(one, "own"))(metrics), dtype=float)
        holds = np.asarray(jax.vmap(objective.excess)(metrics)) <= 0
        least = min(least, float(np.min(goals[holds & np.isfinite(goals)], initial=np.inf)))
    return least, least < np.inf and (bound is None or least < bound * (1 - BELOW))


def attack(study: Study, seed: int, number: int) -> dict[str, Any]:
    """One goal: searched for a proof, then attacked."""
    rng = np.random.default_rng([seed, number])
    kind = HARMLESS if number % 2 == 0 else TRAP
    name, objective = asked(study, rng, kind)
    trace = PROOF.run(Problem(study.scenario, study.space, objective), seed)
    certificate = trace.certificate
    assert certificate is not None
    row = {"number": number, "kind": kind, "name": name, "proven": certificate.convex, "false": False}
    if not certificate.convex:
        return row | {"said": trace.claim}
    known = certificate.best is not None
    every = [study.seen, study.around(trace, rng)] if known else [study.seen]
    nothing = certificate.certified and not known
    bound = certificate.bound if certificate.bound is not None else -np.inf
    least, refuted = below(objective, None if nothing else bound, every)
    return row | {"false": refuted, "said": f"bound {bound:.12g}, best {certificate.best}, least seen {least:.12g}"}


def main(arguments: Sequence[str]) -> int:
    """Attack, one line a goal and the sums at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--designs", type=int, default=2048, help="evaluated for each goal, twice")
    parser.add_argument("--by-numpy", action="store_true", help="compile nothing: sooner for few goals and designs")
    parser.add_argument("--quiet", action="store_true", help="only what is false, and the sums")
    given = parser.parse_args(arguments)
    prepare_jax()
    scenario, begun = scenario_from_config(), time.monotonic()
    studies = [Study(scenario, space, given.designs, not given.by_numpy) for space in SPACES]
    rows = []
    for number in range(given.count):
        row = attack(studies[number // 2 % len(studies)], given.seed, number)
        rows.append(row)
        if row["false"] or not given.quiet:
            told = "FALSE" if row["false"] else "proven" if row["proven"] else "not proven"
            seconds = f"{time.monotonic() - begun:5.0f} s"
            print(f"{number:4} {seconds}  {row['kind']:8} {row['name']:26} {told:10} {row['said']}", flush=True)
    false = sum(row["false"] for row in rows)
    plain = [row["proven"] for row in rows if row["kind"] == HARMLESS]
    share = sum(plain) / max(len(plain), 1)
    traps = sum(row["proven"] for row in rows if row["kind"] == TRAP)
    print(
        f"{len(rows)} goals: {sum(row['proven'] for row in rows)} certified, {false} of them false;"
        f" {share:.1%} of {len(plain)} harmless goals keep their proof,"
        f" {traps} of {len(rows) - len(plain)} traps have one"
    )
    return 1 if false or share < BAR else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
