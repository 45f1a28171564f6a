"""`search=robust`: the best design when constants are uncertain, chosen before their values are known.

Efficiencies, prices, latencies are guesses or change with the years. A robust design, plan and hardware, is judged in
several cases at once, each with its own values of the uncertain leaves: by its worst case, its mean, or the mean of
its worst share (CVaR); its limits hold in every case. The blend of log-convex goals is log-convex, so the answer has
the same certificate as any other search. What may be off of the model itself, its errors in cross-validation, are
cases as well: `draws` of them, those that intervals are made of. Each is a positive factor on costs.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..curvature import Judgement
from ..distributing import AbstractRunner
from ..errors import ConfigError
from ..fields import get_path, replace
from ..scenario import Scenario
from ..uncertainty import spreads
from ..uncertainty.draws import draw_doubts, no_doubts, one_by_one, under
from .base import AbstractSearch, Problem, Report, Trace, silent
from .blend import Blend
from .branch_and_bound.certified import Certified
from .branch_and_bound.model_oracle import AbstractModelOracle, Oracle
from .branch_and_bound.oracle import Tangents, relayed, rows_of
from .certificate import Robustness, Wanted


@dataclass(frozen=True)
class Uncertain:
    """A leaf whose value is not known: factors of its nominal value.

    Args:
        path: dotted path of the leaf.
        factors: values to reckon with, as multiples of the scenario's.
        along: further leaves that move by the same factor.
    """

    path: str
    factors: Sequence[float]
    along: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Some positive factors."""
        known = isinstance(self.factors, Sequence) and not isinstance(self.factors, str) and len(self.factors) > 0
        if not known or any(not isinstance(f, int | float) or f <= 0 for f in self.factors):
            raise ConfigError(f"factors of {self.path} = {self.factors!r} must be a non-empty list of positive numbers")

    def leaves(self, scenario: Scenario, factor: float) -> dict[str, Any]:
        """Dotted path -> value in a case."""
        return {path: get_path(scenario, path) * factor for path in (self.path, *self.along)}


@dataclass(frozen=True)
class Cases:
    """The cases that a robust design is judged in.

    Every combination of the listed factors, or `samples` random ones: each factor log-uniform between its least and
    its largest. Where a row is log-convex in the leaves as well, its worst value over their box lies at a corner, so
    the two ends of each range cover the whole box. With `draws` each of these in every one of so many joint draws of
    the model's errors (`uncertainty.draws`).
    """

    uncertain: dict[str, Uncertain] = field(default_factory=dict[str, Uncertain])
    samples: int = 0
    draws: int = 0

    def __post_init__(self) -> None:
        """No negative number of samples or draws, and no draws of errors that nobody knows."""
        for name in ("samples", "draws"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)} must not be negative")
        if self.draws and not spreads():
            raise ConfigError(
                f"draws = {self.draws}: no errors of the model are known (`codesign calibrate --intervals`)"
            )

    def check(self, problem: Problem) -> None:
        """Refuse leaves that do not exist, or that the space sets itself.

        Raises:
            ConfigError: naming the entry.
        """
        chosen = {variable.path: name for name, variable in problem.space.hardware.items()}
        for name, entry in self.uncertain.items():
            for path in (entry.path, *entry.along):
                try:
                    get_path(problem.scenario, path)
                except ConfigError as error:
                    raise ConfigError(f"search.cases.uncertain.{name}: {error}") from error
                if path in chosen:
                    raise ConfigError(
                        f"search.cases.uncertain.{name}: {path} is chosen by space.hardware.{chosen[path]},"
                        " so it cannot be uncertain as well"
                    )

    def factors(self, seed: int) -> Float[np.ndarray, "cases entries"]:
        """Factors of each case, along the entries."""
        lists = [np.asarray(entry.factors, dtype=float) for entry in self.uncertain.values()]
        if not self.samples:
            every = list(itertools.product(*lists))
            return np.array(every, dtype=float).reshape(len(every), len(lists))
        rng = np.random.default_rng(seed)
        ends = np.log([[factors.min(), factors.max()] for factors in lists]).reshape(-1, 2)
        return np.exp(ends[:, 0] + (ends[:, 1] - ends[:, 0]) * rng.uniform(size=(self.samples, len(lists))))

    def leaves(self, scenario: Scenario, seed: int) -> list[dict[str, Any]]:
        """Dotted path -> value, in each case."""
        found: list[dict[str, Any]] = []
        for row in self.factors(seed):
            leaves: dict[str, Any] = {}
            for entry, factor in zip(self.uncertain.values(), row, strict=True):
                leaves |= entry.leaves(scenario, float(factor))
            found += [leaves] * max(self.draws, 1)
        return found

    def named(self, seed: int) -> list[dict[str, float]]:
        """Entry -> factor, and the number of the draw, in each case."""
        rows = [dict(zip(self.uncertain, map(float, row), strict=True)) for row in self.factors(seed)]
        if not self.draws:
            return rows
        return [row | {"draw": float(number)} for row in rows for number in range(self.draws)]

    def scenarios(self, scenario: Scenario, seed: int) -> list[Scenario]:
        """The scenario in each case."""
        moved = [replace(scenario, leaves) for leaves in self.leaves(scenario, seed)]
        if not self.draws:
            return moved
        drawn = one_by_one(draw_doubts(scenario, self.draws), self.draws)
        return [under(one, drawn[place % self.draws]) for place, one in enumerate(moved)]

    def with_room(self, scenario: Scenario) -> Scenario:
        """The scenario with the structure that its cases have."""
        return under(scenario, no_doubts()) if self.draws else scenario


class RobustOracle(AbstractModelOracle):
    """The plans of an oracle judged in several cases: the blended goal, and each constraint where it is worst."""

    def __init__(self, inner: Oracle, scenarios: list[Scenario], blend: Blend):
        self.inner, self.scenarios, self.blend, self.evaluated = inner, scenarios, blend, 0
        self.problem, self.names, self.plans = inner.problem, inner.names, inner.plans

    count, columns, near = (relayed("inner", name) for name in ("count", "columns", "near"))

    def judged(
        self, held: Mapping[str, Sequence[float]] | None = None, scenarios: Sequence[Scenario] = ()
    ) -> Judgement:
        """The rows in all cases: a blend of convex goals is convex, and so is the worst of convex rows."""
        return self.inner.judged(held, scenarios or self.scenarios)

    def goals(self, plan: int, u: np.ndarray) -> Float[np.ndarray, " cases"]:
        """Log of the goal of one design in every case."""
        asked = np.array([plan]), u[None], 1e6
        return np.array([self.inner.tangents(*asked, scenario=case).exact[0, 0] for case in self.scenarios])

    def tangents(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
        scenario: Scenario | None = None,
    ) -> Tangents:
        """Rows over all cases; at a tie of cases, a tangent between theirs. `scenario` is asked for alone if given."""
        if scenario is not None:
            return self.inner.tangents(plan, u, sharpness, scenario)
        self.evaluated += len(plan)
        found = [self.inner.tangents(plan, u, sharpness, scenario=case) for case in self.scenarios]
        exact, affine = np.stack([f.exact for f in found]), np.stack([f.affine for f in found])  # cases first
        at = affine[..., 0] + np.einsum("cprv,pv->cpr", affine[..., 1:], u)

        value, slopes = self.blend.tangent(at[:, :, 0].T)
        goal = np.einsum("pc,cpv->pv", slopes, affine[:, :, 0])
        goal[:, 0] += value - (slopes * at[:, :, 0].T).sum(axis=1)

        heat = np.broadcast_to(np.asarray(sharpness, dtype=float), (len(plan),))[None, :, None] * (at - at.max(axis=0))
        shares = np.exp(heat) / np.exp(heat).sum(axis=0)
        worst = np.einsum("cpr,cprv->prv", shares, affine)
        rows = np.concatenate([goal[:, None], worst[:, 1:]], axis=1)
        return Tangents(self._over_cases(exact), rows, np.max([f.broken for f in found], axis=0))

    def values(
        self, plan: np.ndarray, u: np.ndarray, scenario: Scenario | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows over all cases, as of `tangents`."""
        if scenario is not None:
            return self.inner.values(plan, u, scenario)
        self.evaluated += len(plan)
        exact, broken = zip(*(self.inner.values(plan, u, case) for case in self.scenarios), strict=True)
        return self._over_cases(np.stack(exact)), np.max(broken, axis=0)

    def _over_cases(self, exact: Float[np.ndarray, "cases points rows"]) -> Float[np.ndarray, "points rows"]:
        return np.concatenate([self.blend.value(exact[:, :, 0].T)[:, None], exact[:, :, 1:].max(axis=0)], axis=1)


@dataclass(frozen=True)
class Robust(AbstractSearch):
    """The design with the best blend of its cases; every limit holds in each of them.

    The frame shows the design at nominal constants; the certificate has its goal in every case.

    Args:
        cases: uncertain leaves and their values.
        how: `worst`, `cvar`, `sum` (mean; of 1 / goal where more is better) or `log_sum` over the cases.
        tail: share of the cases that cvar takes the mean of.
        proof: how the search is run.
    """

    cases: Cases
    how: str = "worst"
    tail: float = 0.1
    proof: Certified = field(default_factory=Certified)

    def __post_init__(self) -> None:
        """Refuse an unknown blend at once, and nothing uncertain."""
        Blend(self.how, np.ones(1), self.tail)
        if not self.cases.uncertain and not self.cases.draws:
            raise ConfigError(
                "search=robust needs search.cases.uncertain, the leaves that are not known, or search.cases.draws"
            )

    def refuse(self, problem: Problem) -> None:
        """Uncertain leaves that do not exist, or that the space sets."""
        super().refuse(problem)
        if self.proof.runner is not None:
            self.proof.runner.refuse()
        self.cases.check(problem)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Search over plans and hardware.

        Raises:
            ConfigError: an uncertain leaf that does not exist, or that the space sets.
        """
        maker = InAllCases(self.cases, self.how, self.tail, self.proof.block, seed)
        oracle = maker(problem)
        trace = self.proof.search(oracle, problem.wanted, seed, report, maker=maker)
        trace.method = ["robust"] * len(trace.method)
        trace.counts["cases"] = len(oracle.scenarios)
        assert trace.certificate is not None  # of any certified search
        judged = self._told(oracle, trace, problem.wanted, seed)
        trace.certificate = dataclasses.replace(trace.certificate, robust=judged)
        return trace

    def over(self, runner: AbstractRunner) -> "Robust":
        """Parts of the plans, each in all cases."""
        return dataclasses.replace(self, proof=self.proof.over(runner))

    def _told(self, oracle: RobustOracle, trace: Trace, wanted: Wanted, seed: int) -> Robustness:
        """The goal of the best design in every case."""
        plan, u = located(oracle, trace)
        logs = oracle.goals(plan, u)
        named = [
            case | {"goal": wanted.value(float(log))} for case, log in zip(self.cases.named(seed), logs, strict=True)
        ]
        return Robustness(self.how, self.tail, tuple(named))

    @classmethod
    def example(cls, problem: Problem) -> "Robust":
        """The price of the accelerator a tenth less."""
        cases = Cases({"price": Uncertain("cluster.accelerator.price_usd", (0.9, 1.0))})
        return cls(cases, proof=Certified(gap=5e-3, pairs=64, block=64, explain=False))


@dataclass(frozen=True)
class InAllCases:
    """Makes the oracle of a problem in all cases, in whatever process it is asked for."""

    cases: Cases
    how: str
    tail: float
    block: int
    seed: int

    def __call__(self, problem: Problem) -> RobustOracle:
        """Over all legal plans."""
        roomy = dataclasses.replace(problem, scenario=self.cases.with_room(problem.scenario))
        inner = Oracle(roomy, rows_of(roomy), self.block)
        return robust_oracle(inner, self.cases, self.how, self.tail, self.seed)


def robust_oracle(inner: Oracle, cases: Cases, how: str, tail: float, seed: int) -> RobustOracle:
    """An oracle of all cases, equally likely."""
    cases.check(inner.problem)
    if cases.draws and inner.problem.scenario.cluster.doubts is None:
        raise ConfigError(f"draws = {cases.draws}: only search=robust draws errors of the model; allowed here: 0")
    scenarios = cases.scenarios(inner.problem.scenario, seed)
    return RobustOracle(inner, scenarios, Blend(how, np.ones(len(scenarios)), tail))


def located(oracle: RobustOracle, trace: Trace) -> tuple[int, np.ndarray]:
    """Plan number and coordinates of a trace's best design."""
    same = np.ones(oracle.count, dtype=bool)
    for name, column in oracle.plans.items():
        if name in trace.points:
            same &= column == trace.points[name][0]
    values = {name: jnp.asarray(trace.points[name][:1]) for name in oracle.variables}
    coordinates = oracle.problem.space.coordinates(values)
    return int(np.argmax(same)), np.array([float(np.asarray(coordinates[name])[0]) for name in oracle.variables])
