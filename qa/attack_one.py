"""One study of `attack.py`: solved by the search it asks for, then attacked with designs that its proof denies."""

import json
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attack_goals import Asked, member
from attack_studies import MEMBERS, Family

from codesign import Certificate, Certified, ConfigError, Integer, Inverse, Problem, Trace, evaluate, prepare_jax
from codesign.jaxprs import evaluator as interpreting
from codesign.search import GoalQuantity
from codesign.search.branch_and_bound import GroupOracle, Oracle, oracle_for, rows_of, wanted_rows
from codesign.verification import ROUNDING, Attack, CheckedModel, ExactRows, aims_of, sample

PATIENCE = 150  # runs of a program before it is compiled: here each runs few times
DESIGNS, CLOUD = 8192, 256  # tried at random and around the best; in each cloud around known places
POLISHED, POLISHING = 12, 15  # designs that SciPy improves, and in how many rounds
WIDTHS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the clouds around places where cliffs stand
BLOCK, STEP = 256, 1e-7  # designs in one run; of a coordinate, over which slopes are taken
OWN = "reserve."  # begins the names of rows that a search adds for its own sake: no design has to keep them
COLUMNS = (
    *("study", "kind", "truth", "form", "search", "variables", "plans", "verdict", "claim", "reason", "best", "bound"),
    *("tried", "margin", "false", "found", "design", "cpu_s"),
)


def prepared() -> None:
    """JAX in float64; programs run by NumPy until they have run often."""
    prepare_jax()
    interpreting.PATIENCE, interpreting.MANY = PATIENCE, 1 << 20


class Rows(CheckedModel):
    """What the attack asks of a study: the search's own rows run exactly, by NumPy; slopes from their differences."""

    def __init__(self, problem: Problem, oracle: Oracle, listed: dict[str, list[float]]):
        self.fields, self.variables, self.names = tuple(oracle.plans), oracle.variables, oracle.names
        self.constraints, self.evaluated, self.program = oracle.names[1:], 0, oracle.program
        self.levelled, self.bounded = (), len(self.names)
        self._tree, space = problem.scenario, problem.space
        self._listed = {
            self.variables.index(name): np.asarray(space.coordinates({name: jnp.asarray(values)})[name])
            for name, values in listed.items()
        }
        self._runs = interpreting.interpreted(jax.vmap(self.program.exact, in_axes=(None, 0, 0)))

    @property
    def cases(self) -> None:
        """Constants are as they stand."""

    def snapped(self, u: np.ndarray) -> np.ndarray:
        """Coordinates with those of listed numbers moved to the nearest one on the list."""
        u = u.copy()
        for at, known in self._listed.items():
            u[:, at] = known[np.abs(u[:, at, None] - known).argmin(axis=1)]
        return u

    def exact(self, plan: np.ndarray, u: np.ndarray, *, sharing: bool = False) -> ExactRows:
        """Designs by the hard model; nothing is gained where they share values."""
        u, count, parts = self.snapped(u), len(plan), []
        self.evaluated += count
        for first in range(0, count, BLOCK):
            index = np.minimum(np.arange(first, first + BLOCK), count - 1)
            rows, broken = self._runs(self._tree, jnp.asarray(plan[index]), jnp.asarray(u[index]))
            parts.append((np.asarray(rows)[: count - first], np.asarray(broken)[: count - first]))
        rows, broken = (np.concatenate(part) for part in zip(*parts, strict=True))
        asked = [k for k, name in enumerate(self.names) if k > 0 and not name.startswith(OWN)]
        holds = (rows[:, asked] <= 0).all(axis=1) & (broken <= 0) & np.isfinite(rows[:, 0])
        return ExactRows(rows, holds)

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray, *_: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of all rows, and their differences to a step inwards along each coordinate that is free."""
        u, free = self.snapped(u), [i for i in range(u.shape[1]) if i not in self._listed]
        points = np.repeat(u[:, None], 1 + len(free), axis=1)
        step = np.where(u[:, free] > 0.5, -STEP, STEP)
        points[:, 1 + np.arange(len(free)), free] += step
        rows = self.exact(np.repeat(plan, 1 + len(free), axis=0), points.reshape(-1, u.shape[1])).rows
        rows = rows.reshape(len(u), 1 + len(free), -1)
        slope = np.zeros((len(u), rows.shape[-1], u.shape[1]))
        slope[..., free] = np.swapaxes((rows[:, 1:] - rows[:, :1]) / step[..., None], 1, 2)
        return rows[:, 0], slope


def solved(problem: Problem, asked: Asked, seed: int) -> tuple[Trace, Oracle]:
    """The study's trace, and the rows that it was searched with."""
    search = asked.search
    if isinstance(search, Integer):
        search.refuse(problem)
        oracle = Oracle(problem, rows_of(problem), search.proof.batch_size)
        return search.search(problem, oracle, seed), oracle
    wanted = GoalQuantity(problem.objective.goal, 1.0)
    rows, proof = rows_of(problem), search
    if isinstance(search, Inverse):
        search.refuse(problem)
        wanted, proof = GoalQuantity(search.variable, -1.0 if search.maximise else 1.0), search.proof
        rows = wanted_rows(problem, wanted)
    assert isinstance(proof, Certified)
    oracle = oracle_for(problem, rows, proof.batch_size, seed)
    return proof.search(oracle, wanted, seed), oracle


def attacked(problem: Problem, asked: Asked, trace: Trace, oracle: Oracle, limit: float, seed: int) -> Attack:
    """Random designs, more around the best, around the trace's and around known places, the best polished by SciPy."""
    lists = [np.unique(values) for values in problem.space.lists.values()]
    fields = list(problem.space.lists)
    model = Rows(problem, oracle, asked.listed)
    rng = np.random.default_rng(seed)
    if not isinstance(oracle, GroupOracle):
        low = high = sample(np.stack([oracle.plans[name] for name in fields], axis=-1), lists)
    else:
        low, high = np.zeros((1, len(lists)), dtype=int), np.array([[len(values) - 1 for values in lists]])

    legal = sample(problem.space.legal_sample(problem.scenario, 1 << 16, seed), lists)
    result = Attack(model, lists, legal, low, high, lambda rows: limit - rows[:, 0], aims_of(model))
    places = asked.places + _designs(problem, trace, fields)
    plans = sample(np.array([plan for plan, _ in places]), lists)
    for width in (0.0, *WIDTHS):
        many = CLOUD // 8 if width == 0.0 else CLOUD
        chosen = np.tile(np.arange(len(places)), -(-many // len(places)) * (1 if width == 0.0 else 2))
        u = np.array([places[i][1] for i in chosen])
        moved = u + width * rng.normal(size=u.shape) * (rng.uniform(size=u.shape) < 0.7)
        result.take(plans[chosen], np.clip(moved, 0.0, 1.0))
    result.run(DESIGNS + result.tried, rng, lambda done, total: None)
    result.pools = [(ranks[:POLISHED], place[:POLISHED], u[:POLISHED]) for ranks, place, u in result.pools]
    result.polish(POLISHING)
    return result


def _designs(problem: Problem, trace: Trace, fields: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Plans and coordinates of the designs that a search kept."""
    named = {name: jnp.asarray(trace.points[name]) for name in problem.space.names}
    u = np.stack([np.asarray(problem.space.coordinates(named)[name]) for name in problem.space.names], axis=-1)
    plans = np.stack([np.asarray(trace.points[name]) for name in fields], axis=-1)
    return [(plans[i], np.clip(u[i], 0.0, 1.0)) for i in range(min(len(u), 4))]


def confirmed(problem: Problem, asked: Asked, found: Attack, fields: list[str]) -> tuple[float, dict[str, float], bool]:
    """(goal, design, whether it is feasible) of the best of an attack, by `evaluate` alone."""
    assert found.design is not None
    place, u = found.design
    at = found.model.snapped(u[None])[0]  # type: ignore[attr-defined]
    values = problem.space.values(dict(zip(problem.space.names, map(jnp.asarray, at), strict=True)))
    point = {name: float(found.lists[j][place[j]]) for j, name in enumerate(fields)}
    metrics = evaluate(problem.space.place(problem.scenario, point | values))
    wanted = asked.search.variable if isinstance(asked.search, Inverse) else ""
    goal = values[wanted] if wanted else problem.objective.value(metrics, problem.objective.goal)
    holds = max((float(share) for share in problem.objective.usages(metrics).values()), default=0.0) <= 1
    holds &= all(float(broken) <= 0 for broken in metrics.violations.values())
    return float(goal), point | {name: float(value) for name, value in values.items()}, bool(holds)


def study(given: Family, seed: int, number: int) -> dict[str, Any]:
    """Solve and attack one study: a row of the record."""
    began, asked = time.process_time(), member(given, seed, number % MEMBERS)
    problem = Problem(given.scenario, given.space, asked.objective)
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {
        "study": number, "kind": given.kind, "truth": asked.truth, "form": asked.form, "false": 0, "tried": 0,
        "search": type(asked.search).__name__.lower(), "variables": len(given.space.names), "verdict": "refused",
    }  # fmt: skip
    try:
        trace, oracle = solved(problem, asked, seed)
    except ConfigError as refusal:
        return row | {"reason": str(refusal), "cpu_s": round(time.process_time() - began, 2)}
    told = trace.certificate or Certificate()
    infeasible, bound = told.convex and trace.claim.startswith("certified: no design"), told.bound
    tested = "tested on" in told.reason
    row |= {
        "plans": oracle.plan_count, "claim": trace.claim, "reason": told.reason,
        "best": told.best, "bound": bound,
        "verdict": "proven" if told.convex else "tested" if tested else "refused",
    }  # fmt: skip
    sign = -1.0 if told.sense == "maximise" else 1.0
    limit = math.inf if infeasible else sign * math.log(bound) if bound else -math.inf
    if limit > -math.inf:
        result = attacked(problem, asked, trace, oracle, limit, seed + number)
        row |= {"tried": result.tried, "margin": "" if infeasible else result.best - limit}
        if result.design is not None and result.best < limit - ROUNDING:
            goal, design, holds = confirmed(problem, asked, result, list(problem.space.lists))
            row |= {"found": goal, "design": json.dumps(design), "false": 1 if holds else 0}
            row["claim"] += "" if holds else " [rows and evaluate differ]"
    return row | {"cpu_s": round(time.process_time() - began, 2)}
