"""Regret of the instant answers of `amortised`, against the certified optimum of studies held out."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.errors import ConfigError
from ...base import Problem
from ...branch_and_bound.branch_and_bound import BranchAndBound
from ...branch_and_bound.effort import Effort
from ...branch_and_bound.model_oracle import Oracle
from ...branch_and_bound.oracle import rows_of
from ...branch_and_bound.programme import Programme
from ...mix.oracles import moved_limits
from ..answer import Instant, InstantAnswer, with_plans
from ..guesser import Guesser
from .families import StudyFamily

HELD_OUT = 1_000_003  # added to a seed: of studies that no training draws


def regrets(
    guesser: Guesser, family: StudyFamily, base: Problem, studies: int, seed: int = 0, gap: float = 1e-3,
    note: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per random study that has a feasible design: regret of the answer over the certified bound, seconds.

    The reference is proven to `gap`; regret is measured against its best design, or against its bound where that is
    worse for the answer than `gap`.
    """
    rng = np.random.default_rng(seed + HELD_OUT)
    whole, instant = Oracle(base, rows_of(base)), Instant(base, guesser.shape)
    whole.tangents(np.zeros(1, dtype=int), np.full((1, len(base.space.names)), 0.5), 50.0)
    rows: list[dict[str, Any]] = []
    names = (*family.inputs, *sorted(family.budgets))
    InstantAnswer(guesser, instant, base).run()  # warm
    while len(rows) < studies:
        drawn = family.draw(base, rng, 1)[0]
        problem = family.problem(base, drawn)
        allowed = moved_limits(base, problem)
        began, cpu = time.perf_counter(), time.process_time()
        answer = InstantAnswer(guesser, instant, problem, allowed).run()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        try:
            plans = problem.space.plans(problem.scenario)
        except ConfigError:
            continue
        table = np.stack([plans[name] for name in whole.plans], axis=-1)
        outcome = BranchAndBound(
            Programme(with_plans(whole, problem, table), allowed=allowed), Effort(gap=gap), 0
        ).run()
        if not math.isfinite(outcome.upper):
            continue
        rows.append({
            "regret": math.expm1(answer.upper - outcome.upper) if math.isfinite(answer.upper) else math.inf,
            "proven": math.expm1(outcome.gap), "seconds": seconds, "cpu_s": cpu, "plans": len(table),
            "points": answer.evaluated, "study": dict(zip(names, map(float, drawn), strict=True)),
        })  # fmt: skip
        note(rows[-1])
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise a measurement of regret, as kept in `facts`."""
    regret = np.array([row["regret"] for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    finite = regret[np.isfinite(regret)]
    return {
        "studies": len(rows), "within_1_percent": float((regret <= 0.01).mean()), "median": float(np.median(regret)),
        "worst": float(finite.max(initial=0.0)), "without_answer": int((~np.isfinite(regret)).sum()),
        "seconds_median": float(np.median(seconds)), "seconds_worst": float(seconds.max()),
        "proven_to": float(max(row["proven"] for row in rows)),
    }  # fmt: skip
