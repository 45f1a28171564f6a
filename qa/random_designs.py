"""Random legal designs of every experiment: finite values and gradients; compiled = side by side = one at a time.

    python qa/random_designs.py --designs 1000000     of all experiments (`--only NAME,NAME`, `--seed 3`)
    python qa/random_designs.py --compiled 0          without XLA, whose compiling takes most of the time

A design is a random legal plan at random hardware, anywhere in the box. Of each: log of the goal, seconds, joules,
money, and the slopes of the goal along all numbers. All designs are run by NumPy, side by side; `--compiled` of them by
XLA (`jit` of `vmap`), two one at a time, without `jit`. Differences are relative.
"""

import argparse
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codesign import Problem, evaluate, prepare_jax, study_from_config
from codesign.config import available
from codesign.core import CodesignError
from codesign.jaxprs import quick_jit
from codesign.search import Mix
from codesign.staging import at_many

PART = 4096  # designs at once
SAME = 1e-9  # relative difference that rounding may make
ROWS = ("time_s", "energy_j", "capex_usd")


def problems(name: str) -> dict[str, Problem]:
    """Of an experiment: one, or one for each workload of a mix."""
    study = study_from_config(f"experiment={name}")
    if isinstance(study.search, Mix):
        return {f"{name}/{key}": problem for key, problem in study.search.problems.items()}
    return {name: study.problem}


def drawn(problem: Problem, count: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(plan fields, coordinates) of random designs."""
    rng, space = np.random.default_rng(seed), problem.space
    plans = space.legal_sample(problem.scenario, count, seed)
    plans = plans[rng.integers(0, len(plans), count)]
    u = rng.uniform(size=(count, len(space.names)))
    return dict(zip(space.plan, plans.T, strict=True)), dict(zip(space.names, u.T, strict=True))


def asked(problem: Problem) -> Any:
    """(plan, coordinates) -> (values, slopes of the goal)."""

    def goal(u: dict[str, Any], plan: dict[str, Any]) -> tuple[Any, Any]:
        point = plan | problem.space.values(u)
        metrics = evaluate(problem.space.place(problem.scenario, point))
        value = problem.objective.rank(metrics)
        return value, jnp.stack([value, *(metrics.get(row) for row in ROWS)])

    def one(plan: dict[str, Any], u: dict[str, Any]) -> tuple[Any, Any]:
        if not u:
            return goal(u, plan)[1], u
        slopes, values = jax.grad(goal, has_aux=True)(u, plan)
        return values, slopes

    return one


def table(found: tuple[Any, dict[str, Any]]) -> np.ndarray:
    """[designs, values and slopes]."""
    values, slopes = found
    return np.concatenate([np.asarray(values), *(np.asarray(s)[:, None] for s in slopes.values())], axis=1)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference, relative to the larger of a number and a thousandth of the largest of its kind."""
    size = np.maximum(np.abs(a), 1e-3 * np.abs(a).max(axis=0, initial=1e-300))
    return float((np.abs(a - b) / np.maximum(size, 1e-300)).max(initial=0.0))


def trial(problem: Problem, count: int, seed: int, compiled: int) -> tuple[int, int, float, float]:
    """(designs, those with a value or slope that is no number, XLA against NumPy, plain against NumPy)."""
    count = count if problem.space.names or problem.space.plan else 1  # where nothing varies there is one design
    plan, u = drawn(problem, count, seed)
    one, strange = asked(problem), 0
    many, first = at_many(one, (0, 0)), np.zeros((0, 0))
    for start in range(0, count, PART):
        part = [{name: column[start : start + PART] for name, column in each.items()} for each in (plan, u)]
        result = table(many(*part))
        strange += int((~np.isfinite(result)).any(axis=1).sum())
        first = result if start == 0 else first
    few = [{name: jnp.asarray(column[:compiled]) for name, column in each.items()} for each in (plan, u)]
    side_by_side = jax.vmap(one, axis_size=min(compiled, count))
    by_xla = apart(first[:compiled], table(quick_jit(side_by_side, once=True)(*few))) if compiled else float("nan")
    plain = 0.0
    for at in range(min(2, count)):
        point = [{name: jnp.asarray(column[at]) for name, column in each.items()} for each in (plan, u)]
        values, slopes = one(*point)
        single = np.concatenate([np.asarray(values), np.array([float(s) for s in slopes.values()])])
        plain = max(plain, apart(first[:2], np.where(np.arange(len(first[:2]))[:, None] == at, single, first[:2])))
    return count, strange, by_xla, plain


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--designs", type=int, default=1_000_000)
    options.add_argument("--compiled", type=int, default=64)
    options.add_argument("--only", default="")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    prepare_jax()
    names = given.only.split(",") if given.only else list(available("experiment"))
    each, total, bad = -(-given.designs // len(names)), 0, 0
    for name in names:
        try:
            result = problems(name)
        except CodesignError as error:
            print(f"{name}: {error}", flush=True)
            continue
        for label, problem in result.items():
            began = time.process_time()
            count, strange, by_xla, plain = trial(problem, -(-each // len(result)), given.seed, given.compiled)
            jax.clear_caches()  # thirty structures, none of which is asked for again
            wrong = strange > 0 or by_xla > SAME or plain > SAME
            total, bad = total + count, bad + wrong
            spent = time.process_time() - began
            told = f"{count:,} designs, {strange} not finite, XLA {by_xla:.1e}, plain {plain:.1e}, {spent:.0f} CPU s"
            print(f"{'WRONG ' if wrong else ''}{label}: {told}", flush=True)
    print(f"{total:,} designs of {len(names)} experiments; {bad} with something wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
