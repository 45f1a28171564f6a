"""`search=robust`: the best design when constants are uncertain, chosen before their values are known.

A robust design, plan and hardware, is judged in several cases at once (`uncertainty.Cases`): by its worst case, its
mean, or the mean of its worst share (CVaR); its limits hold in every case. The blend of log-convex goals is log-convex,
so the answer has the same certificate as any other search.

Source: see docs/optimisation.md, section 6.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..core.errors import ConfigError
from ..core.jax_typed import asarray
from ..curvature import Judgement
from ..executors import AbstractRunner
from ..model.scenario import Scenario
from ..uncertainty import Cases, Uncertain
from .base import AbstractSearch, Problem, Report, Trace, silent
from .blend import Blend
from .branch_and_bound.bounding import FORGIVEN
from .branch_and_bound.certified import Certified
from .branch_and_bound.model_oracle import LOWEST, AbstractModelOracle, Oracle
from .branch_and_bound.oracle import Tangents, relayed, rows_of
from .certificate import GoalQuantity, Robustness


class RobustOracle(AbstractModelOracle):
    """The plans of an oracle judged in several cases: the blended goal, and each constraint where it is worst."""

    def __init__(self, inner: Oracle, scenarios: list[Scenario], blend: Blend):
        self.inner, self.scenarios, self.blend, self.evaluated = inner, scenarios, blend, 0
        self.problem, self.names, self.plans = inner.problem, inner.names, inner.plans
        self._order, self._ruled_out = list(range(len(scenarios))), np.zeros(len(scenarios), dtype=np.int64)

    count: Any = relayed("inner", "count")
    columns, near = (relayed("inner", name) for name in ("columns", "near"))

    def judged(
        self, held: Mapping[str, Sequence[float]] | None = None, scenarios: Sequence[Scenario] = ()
    ) -> Judgement:
        """The rows in all cases: a blend of convex goals is convex, and so is the worst of convex rows."""
        return self.inner.judged(held, scenarios or self.scenarios)

    def goals(self, plan: int, u: np.ndarray) -> Float[np.ndarray, " cases"]:
        """Log of the goal of one design in every case."""
        query = np.array([plan]), u[None], 1e6
        return np.array([self.inner.tangents(*query, scenario=case).exact[0, 0] for case in self.scenarios])

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
        sharpness = np.broadcast_to(np.asarray(sharpness, dtype=float), (len(plan),))
        exact, affine, broken = self._in_cases(
            plan, lambda left, case: self.inner.tangents(plan[left], u[left], sharpness[left], scenario=case)
        )
        at = affine[..., 0] + np.einsum("cprv,pv->cpr", affine[..., 1:], u)

        value, slopes = self.blend.tangent(at[:, :, 0].T)
        goal = np.einsum("pc,cpv->pv", slopes, affine[:, :, 0])
        goal[:, 0] += value - (slopes * at[:, :, 0].T).sum(axis=1)

        heat = sharpness[None, :, None] * (at - at.max(axis=0))
        shares = np.exp(heat) / np.exp(heat).sum(axis=0)
        worst = np.einsum("cpr,cprv->prv", shares, affine)
        rows = np.concatenate([goal[:, None], worst[:, 1:]], axis=1)
        return Tangents(self._over_cases(exact), rows, broken)

    def screening(self, plan: np.ndarray, u: np.ndarray, scenario: Scenario | None = None) -> Tangents | None:
        """Rows that cost little, in the case that is worst for each."""
        if scenario is not None:
            return self.inner.screening(plan, u, scenario)
        parts = [self.inner.screening(plan, u, case) for case in self.scenarios]
        screened = [part for part in parts if part is not None]
        if len(screened) < len(self.scenarios):
            return None
        worst = np.argmax([part.affine[..., 0] for part in screened], axis=0)  # at u = 0
        affine = np.take_along_axis(np.stack([part.affine for part in screened]), worst[None, ..., None], axis=0)[0]
        exact = np.max([part.exact for part in screened], axis=0)
        return Tangents(exact, affine, np.max([part.broken for part in screened], axis=0))

    def values(
        self, plan: np.ndarray, u: np.ndarray, scenario: Scenario | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows over all cases, as of `tangents`."""
        if scenario is not None:
            return self.inner.values(plan, u, scenario)

        def ask(left: np.ndarray, case: Scenario) -> Tangents:
            exact, broken = self.inner.values(plan[left], u[left], case)
            return Tangents(exact, exact[..., None], broken)

        exact, _, broken = self._in_cases(plan, ask)
        return self._over_cases(exact), broken

    def _in_cases(
        self, plan: np.ndarray, ask: Callable[[np.ndarray, Scenario], Tangents]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(exact rows, affine rows, both by case, broken).

        Without variables a plan that breaks a limit in one case is not priced in the others: what stands for them is
        lower than any row can be, and of the exact goal what the case before says. The case that rules out the most
        is asked for first.
        """
        self.evaluated += len(plan)
        left, broken = np.arange(len(plan)), np.zeros(len(plan))
        exact, affine = np.empty(0), np.empty(0)
        for number, index in enumerate(self._order):
            result = ask(left, self.scenarios[index])
            if number == 0:
                shape = (len(self.scenarios), *result.affine.shape)
                exact, affine = np.full(shape[:-1], LOWEST), np.zeros(shape)
                affine[..., 0], exact[..., 0] = LOWEST, result.exact[:, 0]
            exact[index, left], affine[index, left] = result.exact, result.affine
            broken[left] = np.maximum(broken[left], result.broken)
            amiss = (result.exact[:, 1:] > FORGIVEN).any(axis=1) | (result.broken > 0)
            self._ruled_out[index] += amiss.sum()
            if not self.variables:
                left = left[~amiss]
        self._order = sorted(self._order, key=lambda index: -self._ruled_out[index])
        return exact, affine, broken

    def _over_cases(self, exact: Float[np.ndarray, "cases points rows"]) -> Float[np.ndarray, "points rows"]:
        return np.concatenate([self.blend.value(exact[:, :, 0].T)[:, None], exact[:, :, 1:].max(axis=0)], axis=1)


@dataclass(frozen=True)
class Robust(AbstractSearch):
    """The design with the best blend of its cases; every limit holds in each of them.

    The frame shows the design at nominal constants; the certificate has its goal in every case.

    Args:
        cases: uncertain leaves and their values.
        aggregate: `worst`, `cvar`, `sum` (mean; of 1 / goal where more is better) or `log_sum` over the cases.
        tail: share of the cases that cvar takes the mean of.
        proof: how the search is run.
    """

    cases: Cases
    aggregate: str = "worst"
    tail: float = 0.1
    proof: Certified = field(default_factory=Certified)

    def __post_init__(self) -> None:
        """Refuse an unknown blend at once, and nothing uncertain."""
        Blend(self.aggregate, np.ones(1), self.tail)
        if not self.cases.uncertain and not self.cases.draws:
            raise ConfigError(
                "search=robust needs search.cases.uncertain, the leaves that are not known, or search.cases.draws"
            )

    def refuse(self, problem: Problem) -> None:
        """Uncertain leaves that do not exist, or that the space sets."""
        super().refuse(problem)
        self.proof.refuse_runner()
        self.cases.check(problem.scenario, problem.space)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Search over plans and hardware.

        Raises:
            ConfigError: an uncertain leaf that does not exist, or that the space sets.
        """
        maker = RobustOracleMaker(self.cases, self.aggregate, self.tail, self.proof.batch_size, seed)
        oracle = maker(problem)
        trace = self.proof.search(oracle, problem.wanted, seed, report, maker=maker)
        trace.method = ["robust"] * len(trace.method)
        trace.counts["cases"] = len(oracle.scenarios)
        assert trace.certificate is not None  # of any certified search
        judged = self._robustness(oracle, trace, problem.wanted, seed)
        trace.certificate = dataclasses.replace(trace.certificate, robust=judged)
        return trace

    def over(self, runner: AbstractRunner) -> "Robust":
        """Parts of the plans, each in all cases."""
        return dataclasses.replace(self, proof=self.proof.over(runner))

    def _robustness(self, oracle: RobustOracle, trace: Trace, wanted: GoalQuantity, seed: int) -> Robustness:
        """The goal of the best design in every case."""
        plan, u = located(oracle, trace)
        logs = oracle.goals(plan, u)
        named = [
            case | {"goal": wanted.value(float(log))} for case, log in zip(self.cases.named(seed), logs, strict=True)
        ]
        return Robustness(self.aggregate, self.tail, tuple(named))

    @classmethod
    def example(cls, problem: Problem) -> "Robust":
        """The price of the accelerator a tenth less."""
        cases = Cases({"price": Uncertain("cluster.accelerator.price_usd", (0.9, 1.0))})
        return cls(cases, proof=Certified(gap=5e-3, convexity_samples=64, batch_size=64, explain=False))


@dataclass(frozen=True)
class RobustOracleMaker:
    """Makes the oracle of a problem in all cases, in whatever process it is asked for."""

    cases: Cases
    aggregate: str
    tail: float
    batch_size: int
    seed: int

    def __call__(self, problem: Problem) -> RobustOracle:
        """Over all legal plans."""
        roomy = dataclasses.replace(problem, scenario=self.cases.with_room(problem.scenario))
        scenarios = self.cases.scenarios(roomy.scenario, self.seed)
        inner = Oracle(roomy, rows_of(roomy), self.batch_size, scenarios=scenarios)
        return robust_oracle(inner, self.cases, self.aggregate, self.tail, self.seed)


def robust_oracle(inner: Oracle, cases: Cases, how: str, tail: float, seed: int) -> RobustOracle:
    """An oracle of all cases, equally likely."""
    cases.check(inner.problem.scenario, inner.problem.space)
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
    values = {name: asarray(trace.points[name][:1]) for name in oracle.variables}
    coordinates = oracle.problem.space.coordinates(values)
    return int(np.argmax(same)), np.array([float(np.asarray(coordinates[name])[0]) for name in oracle.variables])
