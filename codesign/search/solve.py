"""`codesign.solve`: a study or a problem, a search, and what came of it, from Python."""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from ..core.errors import ConfigError
from ..core.pretty import html_table, lines_text, number_text
from ..model.scenario import Scenario
from ..model.workloads.plan_fields import words_of
from ..study.design_space import Continuous
from .base import AbstractSearch, Problem, Report, Trace, refuse_without_logarithm, silent, under_assumption
from .branch_and_bound.certified import Certified
from .certificate import Certificate
from .results import check_float64, designs, placed


@runtime_checkable
class AnyStudy(Protocol):
    """Study as configurations make it: a problem, how to search it, from which seed."""

    @property
    def problem(self) -> Problem:
        """Scenario, space and objective."""
        ...

    @property
    def search(self) -> AbstractSearch:
        """Search algorithm of the study."""
        ...

    @property
    def seed(self) -> int:
        """Seed of every random number."""
        ...


@dataclass(frozen=True)
class Solution:
    """Result of a search.

    designs: a row each, best first: `var.*` (plan fields and hardware), every metric, `limit.*` (used share of each
    constraint), `feasible`. trace: as the search left it.
    """

    problem: Problem
    designs: pd.DataFrame
    trace: Trace

    @property
    def claim(self) -> str:
        """Sentence on how much the result proves."""
        return self.trace.claim

    @property
    def certificate(self) -> Certificate | None:
        """Certificate, the claim in numbers; None where a search can prove nothing."""
        return self.trace.certificate

    @property
    def certified(self) -> bool:
        """True if the gap asked for and every row that the proof rests on are proven, assuming nothing."""
        return self.certificate is not None and self.certificate.certified and not self.certificate.assuming

    @property
    def feasible(self) -> bool:
        """True if any design keeps all constraints."""
        return bool(self.designs["feasible"].iloc[0])

    @property
    def best(self) -> pd.Series:
        """The best design, or the one that breaks its constraints least where none keeps them."""
        return self.designs.iloc[0]

    @property
    def bound(self) -> float | None:
        """Value that no design's goal can be better than; None where nothing is proven."""
        return self.certificate.bound if self.certificate else None

    @property
    def gap(self) -> float | None:
        """Relative gap between the best design and the bound; None if nothing is proven."""
        return self.certificate.gap if self.certificate else None

    def scenario(self, rank: int = 1) -> Scenario:
        """The scenario of a design, 1 being the best.

        Raises:
            ConfigError: there are not so many.
        """
        if not 1 <= rank <= len(self.designs):
            raise ConfigError(f"rank = {rank} must be from 1 to {len(self.designs)}, the designs kept")
        return placed(self.problem, self.designs.iloc[rank - 1])

    def __repr__(self) -> str:
        """Best value, how much is proven, and the best design."""
        design = ", ".join(" ".join(one) for one in self._design())
        return lines_text(f"Solution({self._goal()})", [("claim", self._claim()), ("best", design)])

    def _repr_html_(self) -> str:
        """Return the display as an HTML table."""
        return html_table(f"Solution: {self._goal()}", self._design(), note=self._claim())

    def _goal(self) -> str:
        value, goal = float(self.best["objective"]), self.problem.objective.goal
        return f"{goal} {number_text(value, goal)}" if self.feasible and math.isfinite(value) else "no feasible design"

    def _claim(self) -> str:
        return f"{len(self.designs)} designs; {self.claim or 'no proof'}"

    def _design(self) -> list[tuple[str, str]]:
        """(variable, value with its unit) of the best design; its hardware in the units of the leaves moved."""
        moved = {name: one for name, one in self.problem.space.hardware.items() if isinstance(one, Continuous)}
        names = [str(name).removeprefix("var.") for name in self.best.index if str(name).startswith("var.")]
        return [
            (name, _value_text(name, self.best[f"var.{name}"], moved[name].path if name in moved else ""))
            for name in names
        ]


def _value_text(name: str, value: Any, path: str) -> str:
    """A value of a design: the word of a choice, or a number with the unit of its leaf."""
    words = words_of(name)
    return words[round(float(value))] if words else number_text(value, path)


def solve(
    study: Problem | AnyStudy, search: AbstractSearch | None = None, *, seed: int | None = None, report: Report = silent
) -> Solution:
    """Search for the best designs.

    Args:
        study: a problem, or a study from `study_from_config`.
        search: how; by default the study's own, and `Certified()` for a problem.
        seed: of every random number; by default the study's, or 0.
        report: told how far the search is.

    Raises:
        ConfigError: a study that this search cannot take, saying why.
        CodesignError: JAX is not set to float64.
    """
    check_float64()
    given: Any = study
    if not isinstance(given, Problem | AnyStudy):
        raise ConfigError(f"solve takes a Study or a Problem(scenario, space, objective), not a {type(study).__name__}")
    if isinstance(study, Problem):
        problem, chosen, start = study, search or Certified(), seed or 0
    else:
        problem, chosen = study.problem, search or study.search
        start = study.seed if seed is None else seed
    chosen.refuse(problem)
    refuse_without_logarithm(chosen, problem)
    trace = under_assumption(problem, chosen.run(problem, start, report))
    return Solution(problem, designs(problem, trace, start), trace)
