"""What a search is given and what it leaves."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..objective import Objective
from ..scenario import Scenario
from ..space import DesignSpace


@dataclass(frozen=True)
class Problem:
    """A scenario to vary, what may vary, and what is wanted."""

    scenario: Scenario
    space: DesignSpace
    objective: Objective

    def __post_init__(self) -> None:
        """Variables must lead to numbers of the scenario and keep them legal."""
        self.space.check(self.scenario)


@dataclass(frozen=True)
class Progress:
    """Where a search stands: of `total` units in `stage`, `done` are finished.

    `best` is the goal's value so far and `gap` how far, relatively, it may be from the optimum (where that is known);
    `goal` names what it is a value of where that is not the objective's.
    """

    stage: str
    done: int
    total: int
    best: float
    gap: float = float("nan")
    goal: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report to nobody."""


@dataclass
class Trace:
    """The designs a search kept, to be priced again exactly, and what it took.

    points: name -> one value per kept design; method and plan_index run along with them. counts and seconds are for
    the report; `claim` says in words how much the result proves, `certificate` in numbers (plain values that JSON can
    hold; empty where a search proves nothing). tables: name -> columns of what else is worth keeping.
    """

    points: dict[str, np.ndarray]
    method: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    claim: str = ""
    certificate: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


class AbstractSearch(abc.ABC):
    """A way to look for good designs."""

    def refuse(self, problem: Problem) -> None:
        """What cannot be searched, known before anything is written; most searches list every plan.

        Raises:
            ConfigError: saying what is too much.
        """
        problem.space.check_listable()

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """(key, quantity) of what the search takes logarithms of although its form may let it fall to zero or below."""
        return problem.objective.logged()

    @abc.abstractmethod
    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Search; every random number comes from `seed`."""
