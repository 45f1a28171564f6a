"""`search=whole`: stacks, lanes, fibers, ports are whole numbers: solve for real ones, then for those around them.

The real optimum bounds every whole design from below, so the gap that is reported is to all of them, not only to those
that were tried.
"""

import itertools
import math
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, suggestion
from .base import AbstractSearch, Problem, Report, Trace, silent
from .certified import Certified, Wanted, _translated
from .closing import Closing, Outcome
from .convexity import check
from .ledger import Programme
from .oracle import AbstractOracle, Oracle, Tangents, designs_of, rows_of

MOST = 10  # variables: each doubles the number of solutions


class Held(AbstractOracle):
    """An oracle with some of its coordinates held: their slopes go into the intercepts."""

    def __init__(self, inner: AbstractOracle, held: dict[int, float]):
        self.inner, self.names, self.doubt = inner, inner.names, inner.doubt
        self.free = np.array([i for i in range(len(inner.variables)) if i not in held], dtype=int)
        self.fixed = np.array(sorted(held), dtype=int)
        self.at = np.array([held[int(i)] for i in self.fixed])

    @property
    def evaluated(self) -> int:
        """Of the oracle within."""
        return self.inner.evaluated

    @property
    def count(self) -> int:
        """Plans."""
        return self.inner.count

    @property
    def variables(self) -> tuple[str, ...]:
        """Those that are free."""
        return tuple(self.inner.variables[i] for i in self.free)

    def near(self, plan: int, changes: int) -> np.ndarray:
        """As of the oracle within."""
        return self.inner.near(plan, changes)

    def whole(self, u: np.ndarray) -> np.ndarray:
        """All coordinates from the free ones."""
        full = np.zeros((len(u), len(self.inner.variables)))
        full[:, self.free], full[:, self.fixed] = u, self.at
        return full

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Rows at the whole point; tangents over the free coordinates."""
        found = self.inner.tangents(plan, self.whole(u), sharpness)
        intercept = found.affine[..., 0] + found.affine[..., 1 + self.fixed] @ self.at
        affine = np.concatenate([intercept[..., None], found.affine[..., 1 + self.free]], axis=-1)
        return Tangents(found.exact, affine, found.broken)


@dataclass(frozen=True)
class Whole(AbstractSearch):
    """The best design whose named variables are whole multiples of a unit.

    Args:
        units: hardware variable -> its unit (1 for a count; the bytes of one stack).
        proof: how each of the searches is run.
    """

    units: dict[str, float]
    proof: Certified = field(default_factory=Certified)

    def __post_init__(self) -> None:
        """Some units, positive, and not too many."""
        for name, unit in self.units.items():
            if not unit > 0:
                raise ConfigError(f"search.units.{name} = {unit} must be positive")
        if not 0 < len(self.units) <= MOST:
            raise ConfigError(f"search.units must name 1 to {MOST} variables, not {len(self.units)}")

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Solve for real numbers, then with each variable held at the whole number below or above.

        Raises:
            ConfigError: a variable that is not in the space, or has no whole number in its range.
        """
        for name in self.units:
            if name not in problem.space.hardware:
                hint = suggestion(name, problem.space.hardware)
                raise ConfigError(f"search.units.{name} is not in space.hardware{hint}")
        oracle = Oracle(problem, rows_of(problem), self.proof.block)
        verdict = check(oracle, seed, self.proof.pairs)
        sign = 1.0 if problem.objective.minimise else -1.0
        told = _translated(report, Wanted(problem.objective.goal, sign))
        relaxed = Closing(Programme(oracle), self.proof.effort, seed, told).run()
        if relaxed.ledger.plan < 0:
            return self.proof.run(problem, seed, report)  # says why nothing is feasible
        tried = [(held, self._closed(oracle, held, seed)) for held in self._held(problem, oracle, relaxed.ledger.u)]
        held, best = min(tried, key=lambda pair: pair[1].upper)
        stopped = relaxed.stopped or best.stopped
        counts = relaxed.counts | {"whole": len(tried), "points": oracle.evaluated}
        seconds = {"whole": relaxed.seconds + sum(outcome.seconds for _, outcome in tried)}
        certificate = {
            "certified": verdict.convex and not stopped, "convex": verdict.convex, "reason": verdict.reason or stopped,
            "goal": problem.objective.goal, "sense": "minimise" if sign > 0 else "maximise",
            "bound": math.exp(sign * relaxed.lower) if verdict.convex else None, "best": None, "gap": None,
        }  # fmt: skip
        if best.ledger.plan < 0:
            points = designs_of(oracle, np.array([relaxed.ledger.plan]), relaxed.ledger.u[None])
            claim = (
                "no whole numbers next to the real optimum keep all constraints; the real optimum is shown, no proof"
            )
            return Trace(points, ["real"], counts, seconds, claim, certificate | {"certified": False, "reason": claim})
        gap = math.expm1(best.upper - relaxed.lower)
        certificate |= {"best": math.exp(sign * best.upper), "gap": gap if verdict.convex else None}
        full = Held(oracle, held).whole(best.ledger.u[None])
        points = designs_of(oracle, np.array([best.ledger.plan]), full)
        points |= {name: np.round(points[name] / unit) * unit for name, unit in self.units.items()}
        claim = f"certified: within {gap:.2g} of the bound on all designs, whole or not"
        if not certificate["certified"]:
            claim = f"best found, no proof: {certificate['reason']}"
        return Trace(points, ["whole"], counts, seconds, claim, certificate)

    def _held(self, problem: Problem, oracle: Oracle, u: np.ndarray) -> list[dict[int, float]]:
        """Coordinates of the whole numbers around a point, all combinations."""
        options = []
        for name, unit in self.units.items():
            index, variable = oracle.variables.index(name), problem.space.hardware[name]
            real = variable.low * (variable.high / variable.low) ** u[index] / unit
            around = {math.floor(real + 1e-9), math.ceil(real - 1e-9)}
            inside = [n for n in sorted(around) if variable.low * (1 - 1e-9) <= n * unit <= variable.high * (1 + 1e-9)]
            if not inside:
                raise ConfigError(f"search.units.{name} = {unit:g}: no whole number of it next to {real:.3g} in range")
            at = problem.space.coordinates({name: jnp.asarray([n * unit for n in inside])})[name]
            options.append([(index, float(value)) for value in np.clip(np.asarray(at), 0.0, 1.0)])
        return [dict(choice) for choice in itertools.product(*options)]

    def _closed(self, oracle: AbstractOracle, held: dict[int, float], seed: int) -> Outcome:
        return Closing(Programme(Held(oracle, held)), self.proof.effort, seed).run()
