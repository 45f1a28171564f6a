"""Bounding: what the nodes of one programme are worth at least, from cuts, and the best design seen on the way.

Every part has one owner: bounds and leaves are a `BoundsTable`, cuts a `CutPool`, designs an `AbstractIncumbent`, what
programmes said `DualSolutions`. `Bounding` evaluates the model, hands what it learns to each, and tells a listener what
every bound rests on.

Source: cuts and weak duality, [kelley1960], [geoffrion1974]; Farkas, [boyd2004]; see docs/optimisation.md, section 3.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..settings import BRANCH_AND_BOUND
from . import interior_point as interior
from .bounding_state import (
    AbstractIncumbent,
    BoundsTable,
    CutPool,
    DualSolutions,
    Incumbent,
    InsidePoints,
    PrunedProofs,
    settled,
)
from .evidence import AbstractListener
from .interior_point import dual_ascent, dual_ascent_of_two, dual_value, least_of_rows
from .oracle import Programme

FORGIVEN = 1e-6  # log by which a plan must break its constraints everywhere before it is called infeasible
REFERENCE_SHARPNESS = BRANCH_AND_BOUND.reference_sharpness  # of cuts at a point shared by several plans


class Bounding:
    """Bounds, cuts and designs of one programme; every method leaves the bounds valid. Values are logs of the goal.

    Args:
        programme: what is minimised.
        gap: log within which the best design counts as found; may be changed between rounds.
        recorder: told what each bound rests on.
        incumbent: takes note of designs; by default the one best.
        pruned: keep how plans were closed without a programme, in the attribute of this name.
    """

    def __init__(
        self,
        programme: Programme,
        gap: float,
        recorder: AbstractListener | None = None,
        incumbent: AbstractIncumbent | None = None,
        pruned: bool = False,
    ):
        self.programme, self.gap, self.recorder, self.width = programme, gap, recorder, programme.width
        self.table = BoundsTable(programme.oracle.count, programme.oracle.roots)
        self.cuts, self.duals = CutPool(len(programme.rows), self.width + 1), DualSolutions()
        self.incumbent = incumbent or Incumbent(self.width)
        self.pruned: list[PrunedProofs] | None = [] if pruned else None
        self.history: list[tuple[float, float, float]] = []
        self.solved = 0
        self._inside = InsidePoints()
        self._price: dict[int, float] = {}  # node -> price of its violation, once the first was too low
        self._began, self._evaluated = time.perf_counter(), programme.oracle.evaluated
        self.grow()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    @property
    def evaluated(self) -> int:
        """Points that the model was asked for since the start."""
        return self.programme.oracle.evaluated - self._evaluated

    @property
    def lower(self) -> Float[np.ndarray, " nodes"]:
        """Lower bound of every node."""
        return self.table.lower

    @property
    def upper(self) -> float:
        """Value of the best design; inf where there is none."""
        return self.incumbent.upper

    @property
    def plan(self) -> int:
        """Plan of the one best design; -1 where there is none."""
        return self._best.plan

    @property
    def u(self) -> Float[np.ndarray, " variables"]:
        """Its coordinates."""
        return self._best.u

    @property
    def feasible(self) -> dict[int, tuple[float, np.ndarray]]:
        """Plan -> value and coordinates of the designs that come near the best."""
        return self.incumbent.feasible

    @property
    def _best(self) -> Incumbent:
        assert isinstance(self.incumbent, Incumbent)  # where many compete apart there is no one best
        return self.incumbent

    @property
    def bound(self) -> float:
        """Lower bound on the goal of every design."""
        return min(self.table.least, self.upper)

    @property
    def cut(self) -> float:
        """Pruning threshold: nodes whose bound reaches this need no more work."""
        return self.upper - self.gap

    def note(self) -> None:
        """A line of history."""
        self.history.append((self.elapsed, self.upper, self.bound))

    def open(self) -> np.ndarray:
        """Nodes that may still win, least bound first."""
        return self.table.ordered(self.incumbent.open(self.lower, self.gap))

    def grow(self) -> None:
        """Make room for the nodes that the oracle has listed since."""
        self.table.grow(self.programme.oracle.count)
        if self.recorder is not None:
            self.recorder.grow(len(self.lower))

    def hush(self) -> None:
        """Tell nobody any more: what is learnt from here on adds nothing to what is claimed."""
        self.recorder = None

    def split(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put the parts of these groups in their place, bounded as these were: (parts, the group of each)."""
        parts, parent_index = self.programme.oracle.split(group)
        parent = group[parent_index]
        self.grow()
        self.table.split(group, parts)
        higher = self.table.raise_(parts, self.lower[parent])
        if self.recorder is not None:
            self.recorder.inherit(parts[higher], parent[higher])
        return parts, parent

    def advance(self, some: np.ndarray) -> np.ndarray:
        """One round: split groups that were refined often enough or are not worth it, refine the rest.

        Returns parts that nothing is known of, since their groups were never solved: to be bounded by the caller.
        """
        group = ~self.programme.oracle.single(some)
        ripe = group & (
            (self.table.rounds[some] >= BRANCH_AND_BOUND.group_tries) | (self.cuts.soft_of(some) < self.cut)
        )
        self.refine(some[~ripe])
        if not ripe.any():
            return some[:0]
        parts, parent = self.split(some[ripe])
        new = ~self.cuts.has_cuts(parts)
        return self.inherit(parts[new], parent[new])

    def inherit(self, plan: np.ndarray, parent: np.ndarray) -> np.ndarray:
        """Bound parts of groups by a cut where their group has its optimum; returns those whose group has none."""
        solved = self.duals.has_solution(parent)
        unknown, plan, parent = plan[~solved], plan[solved], parent[solved]
        if len(plan):
            u, multipliers = self.duals.of(parent)
            exact, affine = self.evaluate(plan, u, REFERENCE_SHARPNESS)
            at = self.point_index(u, REFERENCE_SHARPNESS)
            self.bound_by(plan, affine, multipliers, at)
            self.cuts.keep(plan, exact, affine, multipliers, at)
        return unknown

    def point_index(self, u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float) -> Int[np.ndarray, " k"]:
        """Numbers of points; of no meaning where no recorder listens."""
        return (
            np.zeros(len(u), dtype=np.int64) if self.recorder is None else self.recorder.places.index_of(u, sharpness)
        )

    def raise_(
        self,
        plan: np.ndarray,
        bound: np.ndarray,
        at: np.ndarray | None,
        weights: Float[np.ndarray, "plans cuts rows"],
        value: np.ndarray | None = None,
    ) -> None:
        """Raise bounds to those that the cuts at these points [plans, cuts] give with these weights.

        `value` is the least of the weighted cuts where a bound is infinite: constraints that cannot hold together.
        """
        higher = self.table.raise_(plan, bound)
        if self.recorder is not None and at is not None:
            self.recorder.note(plan, at, weights, bound if value is None else value, higher)

    def evaluate(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float, source: Programme | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact and affine rows; designs are taken note of. `source` answers instead of the programme if given."""
        exact, affine = (source or self.programme).tangents(plan, u, sharpness)
        self.incumbent.notice(plan, u, exact, self.programme.oracle.single(plan))
        return exact, affine

    def look(self, plan: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Exact rows alone, designs taken note of."""
        exact = self.programme.values(plan, u)
        self.incumbent.notice(plan, u, exact, self.programme.oracle.single(plan))
        return exact

    def learn(
        self,
        plan: np.ndarray,
        u: np.ndarray,
        sharpness: np.ndarray | float,
        prices: np.ndarray | float = BRANCH_AND_BOUND.dear_enough,
    ) -> np.ndarray:
        """Evaluate and keep the cuts; exact rows."""
        exact, affine = self.evaluate(plan, u, sharpness)
        self.cuts.keep(plan, exact, affine, prices, self.point_index(u, sharpness))
        return exact

    def bound_by(
        self, plan: np.ndarray, affine: np.ndarray, multipliers: np.ndarray, at: np.ndarray | None = None
    ) -> None:
        """Raise the bounds of plans by one cut each, starting from given multipliers [rows] or [plans, rows]."""
        weights = np.broadcast_to(multipliers, affine.shape[:2]).copy()
        weights[:, 0] = 1.0
        least = least_of_rows(affine)
        bound = np.where(least.max(axis=1) > 0, np.inf, dual_value(affine, weights))
        left = np.flatnonzero(bound < self.cut)
        if len(left) and affine.shape[1] > 1:
            raised, better = dual_ascent(affine[left], weights[left])
            left, raised, better = (part[raised > bound[left]] for part in (left, raised, better))
            bound[left], weights[left] = raised, better
        broken = np.flatnonzero(least.max(axis=1) > 0)
        weights[broken] = 0.0
        weights[broken, least[broken].argmax(axis=1)] = 1.0
        value = bound.copy()
        value[broken] = least[broken].max(axis=1)
        self.raise_(plan, bound, None if at is None else at[:, None], weights[:, None], value)
        self._prune(plan, value, weights, self.lower[plan] >= self.cut)

    def bound_by_two(
        self, plan: np.ndarray, first: np.ndarray, second: np.ndarray, multipliers: np.ndarray, at: np.ndarray
    ) -> None:
        """Raise the bounds of plans by two cuts of every row together; the multipliers are those of the second.

        `at` [plans, 2] numbers their points.
        """
        bound, weights = dual_ascent_of_two(first, second, multipliers)
        self.raise_(plan, bound, at, weights)
        self._prune(plan, bound, weights.sum(axis=1), bound >= self.cut)

    def _prune(self, plan: np.ndarray, bound: np.ndarray, weights: np.ndarray, closed: np.ndarray) -> None:
        if self.pruned is not None:
            self.pruned.append(PrunedProofs(plan[closed], bound[closed], weights[closed]))

    def refine(self, plan: np.ndarray, enough: float | None = None) -> None:
        """One round for these nodes: solve their programmes, evaluate where those say, learn.

        Work on a node stops where its bound reaches `enough`, by default the incumbent less the gap.
        """
        for batch in self.cuts.batches(plan):
            self._refine(batch, self.cut if enough is None else enough)

    def _refine(self, plan: np.ndarray, enough: float) -> None:
        affine, at = self.cuts.gathered(plan)
        soft = self.cuts.soft_of(plan)
        gap = np.clip(np.where(np.isfinite(soft), soft, 1.0) - np.maximum(self.lower[plan], -10.0), 1e-6, 4.0)
        price = np.array([self._price.get(p, interior.ELASTIC) for p in plan.tolist()])
        share = BRANCH_AND_BOUND.share
        tolerance = np.clip(share * gap, max(1e-8, share * self.gap), 0.02)
        solved = interior.solve(affine, BRANCH_AND_BOUND.spread * gap, tolerance, enough, price)
        is_settled = settled(solved.weights[:, :, 0].sum(axis=1))
        self.raise_(plan, np.where(is_settled, solved.lower, -np.inf), at, solved.weights)
        self._rule_out(plan, affine, at, solved, enough)
        self.duals.learn(plan, solved, affine)
        leant_on = solved.weights[:, :, 1:].sum(axis=(1, 2))
        for lane in np.flatnonzero(leant_on > BRANCH_AND_BOUND.dear * price):  # dear, and still a constraint gives way
            self._price[int(plan[lane])] = min(BRANCH_AND_BOUND.raised * price[lane], BRANCH_AND_BOUND.dearest)
        for lane, p in enumerate(plan.tolist()):
            self.cuts.trim(p, solved.weights[lane])
        self.table.refined(plan)
        self.solved += len(plan)
        still = self.lower[plan] < enough
        if still.any():
            self._follow(plan[still], gap[still], solved.central[still], solved.edge[still])

    def _follow(self, plan: np.ndarray, gap: np.ndarray, central: np.ndarray, edge: np.ndarray) -> None:
        """Evaluate plans at two points each, that inside and where their cuts are lowest, and learn."""
        settings, rounds = BRANCH_AND_BOUND, np.minimum(self.table.rounds[plan], 20)
        sharpness = np.clip(settings.kink / gap, settings.softest * settings.sharpening**rounds, settings.sharpest)
        both, points = np.concatenate([plan, plan]), np.concatenate([central, edge])
        exact = self.learn(both, points, np.concatenate([sharpness, sharpness]), self.duals.of(both)[1])
        lane, pulled = self._inside.pulled(plan, points, exact, self.upper)
        if len(lane):
            self.learn(plan[lane], pulled, sharpness[lane])

    def _rule_out(
        self, plan: np.ndarray, affine: np.ndarray, at: np.ndarray, solved: interior.SolutionBatch, enough: float
    ) -> None:
        """Plans whose cuts cannot all hold anywhere (Farkas).

        First by the constraints' multipliers of their programmes; those that still break a constraint after some
        rounds by the programme of the least violation alone.
        """
        alone = affine.copy()
        alone[:, :, 0] = 0.0
        missing = self._amiss(plan, alone, at, solved.weights)
        violates = (solved.violation > FORGIVEN) & (self.lower[plan] < enough) & ~missing
        rounds = self.table.rounds[plan]
        suspect = np.flatnonzero(violates & (rounds >= 2) & (rounds % 3 == 2))
        if len(suspect):
            result = interior.solve(alone[suspect], np.ones(len(suspect)), np.full(len(suspect), 1e-7))
            self._amiss(plan[suspect], alone[suspect], at[suspect], result.weights)

    def _amiss(self, plan: np.ndarray, alone: np.ndarray, at: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Rule out plans whose constraints, so weighted, are positive everywhere; says which these are."""
        of_rows = weights.sum(axis=1)
        of_rows[:, 0] = 0.0
        total = np.maximum(of_rows.sum(axis=1), 1e-12)
        least = interior.lower_bound(alone, weights) / total
        missing = least > FORGIVEN
        lanes = np.flatnonzero(missing)
        shares = weights[lanes] / total[lanes, None, None]
        shares[:, :, 0] = 0.0
        self.raise_(plan[lanes], np.full(len(lanes), np.inf), at[lanes], shares, least[lanes])
        self._prune(plan, least, of_rows / total[:, None], missing)
        return missing


# Warm start of a branch and bound: bounds, splits and designs known before it begins.
#
# Source: see docs/optimisation.md, section 4.


@dataclass(frozen=True)
class WarmStart:
    """Bounds, leaves and designs to begin with; nothing of it need be given.

    lower: valid bounds of the first nodes, in order; inf of those that are asked for no more. leaf: nodes that stand
    for all plans, split as elsewhere, where there may have been fewer. incumbent: has the best design of before. plan,
    u: designs to evaluate first.
    """

    lower: Float[np.ndarray, " nodes"] | None = None
    leaf: Bool[np.ndarray, " elsewhere"] | None = None
    incumbent: Incumbent | None = None
    plan: Int[np.ndarray, " designs"] | None = None
    u: Float[np.ndarray, "designs variables"] | None = None

    def begin(self, bounding: Bounding) -> None:
        """Hand it over."""
        if self.lower is not None:
            bounding.table.raise_all(self.lower)
        if self.leaf is not None:
            bounding.table.follow(self.leaf)
        if self.plan is not None and self.u is not None:
            bounding.evaluate(self.plan, self.u, REFERENCE_SHARPNESS)


COLD = WarmStart()


# Solved plans that others are bounded from.
#
# Source: see docs/optimisation.md, section 4.


class References:
    """Solved plans, to start others from: the nearest by what the model does at one shared point.

    Two plans whose rows and slopes agree at `base` trade their resources alike, so the solution and multipliers of one
    are a good guess for the other.
    """

    def __init__(self, bounding: Bounding, plans: np.ndarray, base: np.ndarray):
        self.base = base
        plans = plans[bounding.duals.has_solution(plans)]
        points = np.broadcast_to(base, (len(plans), len(base)))
        _, affine = bounding.programme.tangents(plans, points, REFERENCE_SHARPNESS)
        self.features = self._features(affine)
        self.u, self.multipliers = bounding.duals.of(plans)

    def _features(self, affine: np.ndarray) -> np.ndarray:
        value = affine[..., 0] + affine[..., 1:] @ self.base
        flat = [affine[:, 0, 1:], 0.3 * affine[:, 1:, 1:].reshape(len(affine), -1), np.clip(value[:, 1:], -2, 2)]
        return np.concatenate(flat, axis=1).astype(np.float32)

    def nearest(self, affine: np.ndarray) -> np.ndarray:
        """Index of the reference of each plan, from its tangents at `base`."""
        queries = self._features(affine)
        squares = (self.features**2).sum(axis=1)
        return np.argmin(squares[None] - 2 * queries @ self.features.T, axis=1)


# Limits of a search over plans, and its result.


INTERRUPTED = "interrupted"  # how a closing that was ended early says so


@dataclass(frozen=True)
class SearchEffort:
    """Stopping criteria and batch sizes of a search.

    Args:
        gap: log-gap at which it stops: 1e-3 proves the optimum to 0.1 %.
        seconds: limit of its time; what is left open by then is the gap of the result.
        batch: plans closed side by side.
        sample: plans of which the first incumbent is the best.
        chunk: plans bounded in one go.
        references: plans solved to start others from.
    """

    gap: float = 1e-3
    seconds: float = 600.0
    batch: int = 512
    sample: int = 4096
    chunk: int = 16384
    references: int = 256


@dataclass
class Outcome:
    """State of a search when it ends, or later: its bounding may have been worked on since."""

    bounding: Bounding
    counts: dict[str, int]
    seconds: float
    stopped: str = ""

    def unless_interrupted(self) -> "Outcome":
        """Outcome, where nobody ended the search.

        Raises:
            KeyboardInterrupt: somebody ended it early, and wants no other search to begin.
        """
        if self.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        return self

    @property
    def upper(self) -> float:
        """Log of the best design's goal; inf where no design was found."""
        return self.bounding.upper

    @property
    def lower(self) -> float:
        """Log of a lower bound on the goal of every design; inf where none can be feasible."""
        return self.bounding.bound

    @property
    def gap(self) -> float:
        """Gap of the best design to the optimum, at most, in the log of the goal."""
        return self.upper - self.lower


# The outcome of one search over listed plans, as another process sends it: everything but the programme.
#
# Plans are numbered as they are listed, so that whoever has a programme over the same plans takes bounds, cuts,
# designs and notes over as if the search had been run here.


HERE = ("programme", "_began", "_evaluated")
"""Attributes of a `Bounding` that are not sent: the programme, and counters that start when it is made."""


class SentOutcome:
    """Outcome without its programme.

    Args:
        outcome: of a search that nobody works on any more.
    """

    def __init__(self, outcome: Outcome):
        self.state: dict[str, Any] = {k: v for k, v in vars(outcome.bounding).items() if k not in HERE}
        self.counts, self.seconds, self.stopped = outcome.counts, outcome.seconds, outcome.stopped

    def over(self, programme: Programme) -> Outcome:
        """The outcome as if it had been found here.

        Args:
            programme: over the same plans and variables, numbered alike.
        """
        bounding = Bounding(programme, 0.0)
        assert len(bounding.lower) == len(self.state["table"].lower), "plans are numbered alike everywhere"
        vars(bounding).update(self.state)
        return Outcome(bounding, self.counts, self.seconds, self.stopped)
