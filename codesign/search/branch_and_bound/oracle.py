"""Interface of the model to a certified search: logarithms and their slopes for many plans at many points.

A row is the log of one quantity: the goal, and the used share of each constraint (at most 0 where it holds). For a
fixed plan every row is a convex function of the unit-cube coordinates u of the hardware variables, where the walk over
its program proves it (`unproven`), so its tangent at any point lies below it everywhere: one evaluation with its slopes
is a bound for the whole box.

Source: tangents as cuts of convex programmes, [kelley1960], [duran1986]; see docs/optimisation.md, section 2.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core.smooth import at_least
from ...model.metrics import Metrics
from ...staging import Rows
from ..base import Problem

LEAST_SHARE = 1e-9  # a constraint that uses nothing has no logarithm: this share of its bound stands in
GOAL = "goal"


@dataclass(frozen=True)
class Tangents:
    """Exact rows at the points asked for, and affine functions of u that lie below the rows everywhere.

    exact: the hard model. affine: intercept at u = 0, then slopes; of the weighted reading, whose tangent at a kink
    lies between the slopes on its sides (coefficients: 1 + variables). broken: largest violation of a rule of the
    plan.
    """

    exact: Float[np.ndarray, "points rows"]
    affine: Float[np.ndarray, "points rows coefficients"]
    broken: Float[np.ndarray, " points"]


def rows_of(problem: Problem) -> Rows:
    """The rows of a problem: log of the goal, then log of the used share of every constraint."""

    def rows(metrics: Metrics, _: dict[str, Array]) -> dict[str, Array]:
        shares = problem.objective.usages(metrics)
        logs = {name: jnp.log(at_least(share, LEAST_SHARE)) for name, share in shares.items()}
        return {GOAL: problem.objective.log_goal(metrics)} | logs

    return rows


class AbstractOracle(abc.ABC):
    """Oracle whose rows are convex in u for a fixed plan: all that bounding and closing know of a model.

    names: of the rows; count: plans; variables: names of the coordinates; evaluated: points asked for so far;
    doubt: why the plans listed do not stand for all of them, or groups not for their plans.
    """

    names: tuple[str, ...]
    evaluated: int
    doubt: str = ""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of plans."""

    @property
    @abc.abstractmethod
    def variables(self) -> tuple[str, ...]:
        """Hardware variables, in the order of the coordinates."""

    @abc.abstractmethod
    def near(self, plan: int, changes: int) -> np.ndarray:
        """Numbers of the plans that differ from `plan` in at most so many fields."""

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """Row -> why nothing proves it convex in u; empty where all are. An oracle that cannot tell says so.

        Args:
            held: variable -> coordinates that it has, where it is not free.
        """
        return dict.fromkeys(self.names, "nothing is known of how it was made")

    @property
    def plan_count(self) -> int:
        """Plans in all; `count` numbers are given out so far, to plans and to groups of them."""
        return self.count

    @property
    def roots(self) -> np.ndarray:
        """Numbers that stand for all plans together."""
        return np.arange(self.count)

    def sample(self, rng: np.random.Generator, most: int) -> np.ndarray:
        """Numbers of so many random plans, or of all."""
        if self.count <= most:
            return np.arange(self.count)
        return np.sort(rng.choice(self.count, most, replace=False))

    def single(self, plan: np.ndarray) -> np.ndarray:
        """Mask of the numbers that stand for one plan, not for a group."""
        return np.ones(len(plan), dtype=bool)

    def weight(self, plan: np.ndarray) -> np.ndarray:
        """Plans that each number stands for."""
        return np.ones(len(plan), dtype=np.int64)

    def split(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the parts of these groups, position in `plan` of the group of each)."""
        return plan[:0], np.zeros(0, dtype=int)

    @property
    def parents(self) -> np.ndarray:
        """For every number that of a group with all its plans and more; itself where there is none."""
        return np.arange(self.count)

    @property
    def divided(self) -> np.ndarray:
        """Numbers of groups that were split: `split` lists all their parts."""
        return np.zeros(0, dtype=int)

    @abc.abstractmethod
    def tangents(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
    ) -> Tangents:
        """Rows and tangents of plan numbers `plan` at `u`.

        A larger `sharpness` puts the tangent of a kink closer to one of its sides.
        """

    def screening(self, plan: Int[np.ndarray, " points"], u: Float[np.ndarray, "points variables"]) -> Tangents | None:
        """Tangents of constraints that cost little beside the others, which are as low as any; None: there are none."""
        return None

    def values(
        self, plan: Int[np.ndarray, " points"], u: Float[np.ndarray, "points variables"]
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, " points"]]:
        """(exact rows, broken) of `tangents` alone, for less where an oracle can do without tangents."""
        result = self.tangents(plan, u, 1.0)
        return result.exact, result.broken


def relayed(home: str, name: str) -> Any:
    """A method or property of an oracle that is `name` of its attribute `home`."""
    return property(lambda self: getattr(getattr(self, home), name))


class AbstractRelay(AbstractOracle):
    """The plans, groups and variables of another oracle; what is done with its tangents is left to each relay.

    That keeps convexity.
    """

    def __init__(self, inner: AbstractOracle):
        self.inner, self.names, self.doubt, self.evaluated = inner, inner.names, inner.doubt, 0

    count: Any = relayed("inner", "count")
    plan_count: Any = relayed("inner", "plan_count")
    variables: Any = relayed("inner", "variables")
    roots: Any = relayed("inner", "roots")
    parents: Any = relayed("inner", "parents")
    divided: Any = relayed("inner", "divided")
    near, sample, single = (relayed("inner", name) for name in ("near", "sample", "single"))
    weight, split, unproven = (relayed("inner", name) for name in ("weight", "split", "unproven"))


# The programme that a branch and bound solves: one row of an oracle minimised under others.
#
# Source: see docs/optimisation.md, section 3.


@dataclass
class Programme:
    """Minimise one row of the oracle under others: for every plan a convex programme over the cube.

    Args:
        goal: name of the row to minimise.
        constraints: rows that must be at most `allowed` (0 where not named); all others if None.
        allowed: row -> log of what it may exceed its bound by.
    """

    oracle: AbstractOracle
    goal: str = GOAL
    constraints: tuple[str, ...] | None = None
    allowed: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        """Order the rows: goal first."""
        if self.constraints is None:
            self.constraints = tuple(n for n in self.oracle.names if n not in (GOAL, self.goal))
        self.rows = (self.goal, *self.constraints)
        self.width = len(self.oracle.variables)
        self.shift = np.array([0.0, *(self.allowed.get(name, 0.0) for name in self.constraints)])
        self._index = np.array([self.oracle.names.index(name) for name in self.rows])

    def tangents(
        self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(exact rows, affine rows) of this programme, goal first, constraints relative to what is allowed."""
        result = self.oracle.tangents(plan, u, sharpness)
        return self._shifted(result.exact, result.broken), self._allowing(result.affine)

    def screening(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"]) -> np.ndarray | None:
        """Affine rows of which only those that cost little are known; None where there are none."""
        result = self.oracle.screening(plan, u)
        return None if result is None else self._allowing(result.affine)

    def _allowing(self, affine: np.ndarray) -> np.ndarray:
        shifted = affine[:, self._index].copy()
        shifted[..., 0] -= self.shift
        return shifted

    def values(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"]) -> np.ndarray:
        """The exact rows of `tangents` alone."""
        return self._shifted(*self.oracle.values(plan, u))

    def _shifted(self, exact: np.ndarray, broken: np.ndarray) -> np.ndarray:
        return np.where((broken > 0)[:, None], np.inf, exact[:, self._index] - self.shift)
