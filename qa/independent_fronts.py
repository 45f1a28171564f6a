"""Fronts and robust designs of random studies, against designs drawn at random and priced by plain evaluation.

Structures, boxes and plans are those of `attack.py`; some boxes are made next to nothing wide, or as wide as their leaf
allows, and limits stand at, next to or below what was seen to be least. A front (`search=pareto`) says of each design
that no other keeps its levels with less of the first metric than a bound; a robust design (`search=robust`) that none
has a better blend of its cases, with every limit kept in each; either may say that nothing is feasible. Designs are
drawn, then the best for each statement are changed, plan and numbers, in ever smaller steps.

    python qa/independent_fronts.py --count 12 --seed 0
"""

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from attack_studies import GROWING, Family, family

from codesign import (
    Certified,
    ConfigError,
    Continuous,
    DesignSpace,
    Objective,
    Problem,
    evaluate,
    get_path,
    prepare_jax,
)
from codesign.core import walk
from codesign.jaxprs import interpreted
from codesign.search import Cases, Pareto, Robust, Uncertain
from codesign.study import feasible

PROOF = Certified(gap=1e-3, seconds=60.0, batch_size=128, top_k=4, convexity_samples=128, explain=False)
BLOCK = 1024
DRAWN, NEXT, WIDTHS = 4096, 2048, (0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6)
SAME = 1e-8  # relative, that a design may be below a bound


class Stated(NamedTuple):
    """What a claim denies: less than `bound` of the first metric with the others within `levels`."""

    bound: float
    levels: Mapping[str, float]


class Priced:
    """Designs of a study by plain evaluation, in all of its cases."""

    def __init__(self, problem: Problem, scenarios: Sequence[Any], names: Sequence[str]):
        self.problem, self.scenarios, self.names, self.count = problem, list(scenarios), list(names), 0
        self.plans = problem.space.plans(problem.scenario)
        space, objective = problem.space, problem.objective

        def told(scenario: Any, point: Any) -> Any:
            metrics = evaluate(space.place(scenario, point))
            return [jnp.asarray(objective.value(metrics, name)) for name in self.names], objective.excess(metrics)

        self._told = interpreted(jax.vmap(told, in_axes=(None, 0)), always=True)

    def __call__(self, plan: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Metrics [designs, cases, metrics] and the most by which a limit is broken in a case."""
        self.count += len(plan)
        parts, kept = [], []
        names = self.problem.space.names
        for first in range(0, len(plan), BLOCK):
            at = np.minimum(np.arange(first, first + BLOCK), len(plan) - 1)
            values = self.problem.space.values({n: u[at, i] for i, n in enumerate(names)})
            point = {n: c[plan[at]] for n, c in self.plans.items()} | {n: np.asarray(v) for n, v in values.items()}
            goals, over = [], np.full(len(at), -math.inf)
            for scenario in self.scenarios:
                metrics, excess = self._told(scenario, point)
                goals.append(np.stack([np.broadcast_to(np.asarray(m, float), len(at)) for m in metrics], axis=-1))
                over = np.maximum(over, np.asarray(excess))
            parts.append(np.stack(goals, axis=1)[: len(plan) - first])
            kept.append(over[: len(plan) - first])
        return np.concatenate(parts), np.concatenate(kept)


def blended(how: str, tail: float, goals: np.ndarray) -> np.ndarray:
    """A goal over equally likely cases, [designs, cases] -> [designs], written out anew."""
    if how == "worst":
        return goals.max(axis=1)
    if how == "sum":
        return goals.mean(axis=1)
    if how == "log_sum":
        return np.exp(np.log(goals).mean(axis=1))
    order, share = np.sort(goals, axis=1)[:, ::-1], 1 / goals.shape[1]
    weights = np.clip(tail - share * np.arange(goals.shape[1]), 0, share) / tail
    return order @ weights


def boxes(given: Family, rng: np.random.Generator) -> DesignSpace:
    """The family's space, some of its boxes next to nothing wide or as wide as the leaf allows."""
    ranges = {path: meta for path, meta, _ in walk(given.scenario)}
    hardware = {}
    for name, box in given.space.hardware.items():
        assert isinstance(box, Continuous)
        turn, low, high = rng.uniform(), box.low, box.high
        if turn < 0.2:
            low = low * (high / low) ** rng.uniform()
            high = low * (1 + 10 ** rng.uniform(-9, -2))
        elif turn < 0.35:
            low, high = max(low / 100, float(ranges[box.path]["low"])), min(high * 100, float(ranges[box.path]["high"]))
        kept = dataclasses.replace(box, low=low, high=high) if 0 < low < high else box
        hardware[name] = kept
    return DesignSpace(given.space.plan, hardware)


def asked(given: Family, rng: np.random.Generator, kind: str) -> tuple[Problem, Any, list[Any], list[str]]:
    """A problem and its search; the scenarios of its cases and the metrics that it is about."""
    least = given.survey.least
    names = [str(name) for name in rng.permutation([name for name in GROWING if name in least])]
    if len(names) < 2:
        names += [name for name in ("time_s", "energy_j") if name not in names]
    limits = {}
    for name in names[2:] if kind == "pareto" else names[1:]:
        if name not in least:
            continue
        if rng.uniform() < 0.5:
            tight = [1 - 1e-3, 1 + 1e-7, 1 + 1e-3, 1.05, 1.5, 3.0]
            factor = rng.choice(tight if kind == "pareto" else [1.05, 1.5, 2.0, 4.0])
            limits[name] = least[name][0] * float(factor)
    space = boxes(given, rng)
    problem = Problem(given.scenario, space, Objective(names[0], limits=limits))
    if kind == "pareto":
        return problem, Pareto(
            minimise=tuple(names[:2]), maximise=(), levels=4, between=8, gap=1e-3, seconds=60.0, batch_size=128,
            convexity_samples=128,
        ), [given.scenario], names[:2]  # fmt: skip
    moved = {path for box in space.hardware.values() for path in (box.path, *box.tied)}
    paths = [path for path in PATHS if path not in moved and _there(given.scenario, path)]
    uncertain = {
        f"leaf_{i}": Uncertain(path, tuple(np.sort(np.exp(0.15 * rng.normal(size=2))).tolist()))
        for i, path in enumerate(rng.permutation(paths)[: int(rng.integers(1, 3))].tolist())
    }
    cases = Cases(uncertain)
    how, tail = str(rng.choice(["worst", "sum", "cvar", "log_sum"])), float(rng.choice([0.1, 0.3, 0.6, 1.0]))
    search = Robust(cases, how, tail, proof=PROOF)
    return problem, search, cases.scenarios(cases.with_room(given.scenario), 0), names[:1]


PATHS = (
    "cluster.accelerator.price_usd", "cluster.accelerator.hbm.bandwidth_bytes_per_s", 
    "cluster.network.scale_up.fabric.bandwidth_bytes_per_s", "cluster.network.scale_out.fabric.bandwidth_bytes_per_s",
    "cluster.accelerator.peak_flops_per_s.bf16", "cluster.facility.usd_per_kwh", "cluster.accelerator.tdp_w",
)  # fmt: skip


def _there(scenario: Any, path: str) -> bool:
    try:
        return float(get_path(scenario, path)) > 0
    except (ConfigError, AttributeError, KeyError, TypeError):
        return False


def below(
    priced: Priced, search: Any, stated: Sequence[Stated], places: Sequence[tuple[int, np.ndarray]], rng: Any
) -> list[str]:
    """Lines on designs that a statement denies: drawn, then changed in ever smaller steps."""
    size, width = len(next(iter(priced.plans.values()))), len(priced.problem.space.names)
    plan, u = rng.integers(0, size, DRAWN), rng.uniform(size=(DRAWN, width))
    u[::3] = np.round(u[::3])
    for turn in range(len(WIDTHS) + 1):
        metrics, over = priced(plan, u)
        holds = np.asarray(feasible(over))
        if isinstance(search, Robust):
            goal = blended(search.aggregate, search.tail, metrics[:, :, 0])
            rest: dict[str, np.ndarray] = {}
        else:
            goal, rest = metrics[:, 0, 0], {name: metrics[:, 0, i] for i, name in enumerate(priced.names) if i}
        holds &= np.isfinite(goal)
        lines, parents = list[str](), [*places]
        for one in stated:
            within = holds.copy()
            for name, level in one.levels.items():
                within &= rest[name] <= level
            value = np.where(within, goal, np.inf)
            at = int(np.argmin(value))
            if value[at] < one.bound * (1 - SAME):
                point = {n: float(c[plan[at]]) for n, c in priced.plans.items()}
                lines.append(f"{value[at]:.9g} below {one.bound:.9g} at {dict(one.levels)}: {point} {u[at].tolist()}")
            value = over if one.bound == math.inf else value  # where nothing is said to be feasible, what nearly is
            parents += [(int(plan[i]), u[i]) for i in np.argsort(value)[:8] if np.isfinite(value[i])]
        if lines:
            return lines
        if turn == len(WIDTHS) or not parents:
            break
        chosen = rng.integers(0, len(parents), NEXT)
        base = np.array([parents[i][1] for i in chosen]).reshape(NEXT, width)
        plan = np.where(rng.uniform(size=NEXT) < 0.2, rng.integers(0, size, NEXT), [parents[i][0] for i in chosen])
        steps = WIDTHS[turn] * rng.normal(size=base.shape) * (rng.uniform(size=base.shape) < 0.7)
        u = np.clip(base + steps, 0, 1)
    return []


def study(seed: int, number: int, kind: str) -> tuple[str, int, bool]:
    """Solve and attack one study: (line, designs priced, whether a claim is false)."""
    rng = np.random.default_rng([seed, number, 23])
    given = family(seed, number)
    began = time.perf_counter()
    try:
        problem, search, scenarios, names = asked(given, rng, kind)
        trace = search.run(problem, seed)
    except ConfigError as refusal:
        return f"refused {kind} {given.kind}: {str(refusal)[:120]}", 0, False
    told = trace.certificate
    assert told is not None
    first, stated = f"{kind} {given.kind}, {len(problem.space.names)} variables: {trace.claim[:100]}", list[Stated]()
    if told.front is not None:
        if told.convex:
            stated = [Stated(p.bound, p.levels) for p in told.front.points if p.bound is not None]
    elif told.convex and trace.claim.startswith("certified: no design"):
        stated = [Stated(math.inf, {})]
    elif told.bound is not None and told.convex:
        stated = [Stated(told.bound, {})]
    if not stated:
        return f"no proof {first}", 0, False
    priced = Priced(problem, scenarios, names)
    places = list[tuple[int, np.ndarray]]()
    count = len(next(iter(trace.points.values()))) if trace.points else 0
    for i in range(min(count, 24)):
        same = np.all([c == trace.points[n][i] for n, c in priced.plans.items() if n in trace.points], axis=0)
        at = problem.space.coordinates({n: jnp.asarray(trace.points[n][i]) for n in problem.space.names})
        places.append((int(np.argmax(same)), np.clip([float(at[n]) for n in problem.space.names], 0, 1)))
    lines = below(priced, search, stated, places, rng)
    verdict = "FALSE" if lines else "holds"
    took = time.perf_counter() - began
    line = f"{verdict} {first}; {len(stated)} statements, {priced.count:,} designs, {took:.0f} s"
    return "\n  ".join([line, *lines[:3]]), priced.count, bool(lines)


def main() -> int:
    """Attack random studies; 1 where a claim is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12, help="studies, fronts and robust designs by turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=["pareto", "robust"], help="these alone")
    given = parser.parse_args()
    prepare_jax()
    wrong, designs = 0, 0
    for number in range(given.count):
        kind = given.kind or ("pareto", "robust")[number % 2]
        line, priced, false = study(given.seed, number, kind)
        wrong, designs = wrong + false, designs + priced
        print(line, flush=True)
    print(f"{wrong} of {given.count} studies have a false claim; {designs:,} designs priced")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
