"""State of a branch and bound: the best designs so far, cuts and lower bounds of nodes, dual solutions of plans."""

import abc
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ...study.objective import feasible_logs
from ..settings import BRANCH_AND_BOUND
from . import interior_point as interior
from .interior_point import SolutionBatch

# Latest solution of each plan's programme: where its cuts are lowest, its multipliers, its Lagrangian cut.
#
# Source: see docs/optimisation.md, section 3.


SETTLED = 1e-9  # by which the weights of the goal may miss 1: multipliers that never settled bound nothing


def settled(goal: np.ndarray) -> np.ndarray:
    """Mask of the sums of the goal's weights that are 1."""
    return np.abs(goal - 1.0) < SETTLED


class PrunedProofs(NamedTuple):
    """Proofs of pruned plans: `bound` is the least, over the cube, of their cuts with `weights` [plans, rows].

    Without the goal among them it is positive, and the constraints cannot hold together.
    """

    plan: Int[np.ndarray, " plans"]
    bound: Float[np.ndarray, " plans"]
    weights: Float[np.ndarray, "plans rows"]


class DualSolutions:
    """Dual solutions of all solved nodes.

    Attributes:
        point: where its cuts are lowest.
        weights: its multipliers [rows], those of the goal adding to 1.
        lagrangian: its weighted cut [coefficients], below its goal wherever the limits hold.
    """

    def __init__(self) -> None:
        self.point: dict[int, np.ndarray] = {}
        self.weights: dict[int, np.ndarray] = {}
        self.lagrangian: dict[int, np.ndarray] = {}

    def learn(self, node: np.ndarray, solved: SolutionBatch, affine: np.ndarray) -> None:
        """Record the solutions of programmes over the cuts `affine`."""
        total = np.einsum("ltr,ltrv->lv", solved.weights, affine)
        for lane, n in enumerate(node.tolist()):
            self.weights[n], self.point[n] = solved.weights[lane].sum(axis=0), solved.edge[lane]
            self.lagrangian[n] = total[lane]

    def has_solution(self, node: np.ndarray) -> np.ndarray:
        """Mask of the nodes that were solved."""
        return np.array([n in self.point for n in node.tolist()], dtype=bool)

    def of(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(points, multipliers) of these."""
        names = node.tolist()
        return np.array([self.point[n] for n in names]), np.array([self.weights[n] for n in names])

    def borrow(self, other: "DualSolutions", node: np.ndarray) -> None:
        """Points and multipliers of another programme over the same rows, to bound others from."""
        self.point |= {n: other.point[n] for n in node.tolist()}
        self.weights |= {n: other.weights[n] for n in node.tolist()}

    def bounds(
        self, shift: Float[np.ndarray, " rows"] | float = 0.0
    ) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, "k rows"]]:
        """(nodes, what their Lagrangian cuts bound, multipliers) where rows are allowed `shift` more.

        More room only shifts such a bound, by the multipliers.
        """
        nodes = np.array(list(self.lagrangian), dtype=int)
        if len(nodes) == 0:
            return nodes, np.zeros(0), np.zeros((0, 0))
        total = np.array([self.lagrangian[n] for n in nodes.tolist()])
        weights = np.array([self.weights[n] for n in nodes.tolist()])
        taken = weights @ np.broadcast_to(shift, weights.shape[1:])
        return nodes, total[:, 0] - taken + np.minimum(total[:, 1:], 0.0).sum(axis=1), weights


# The lower bound of every node of a branch and bound: an array that only rises, changed by nobody else.
#
# Source: see docs/optimisation.md, section 4.


class BoundsTable:
    """Proven bound of every node, which nodes are leaves, and how often each was refined.

    Every bound holds from the moment it is there: `lower` and `leaf` may be read by anybody and written by none.

    Args:
        count: nodes listed so far.
        leaves: those that together stand for all plans.

    Attributes:
        lower: bound of each node (log of the goal); -inf where nothing is known, inf where none of it is feasible.
        leaf: nodes that were not split; they stand for every plan once.
        rounds: how often the programme of each was solved.
    """

    def __init__(self, count: int, leaves: Int[np.ndarray, " leaves"]):
        self._lower, self._leaf, self._rounds = np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int32)
        self.grow(count)
        self._leaf[leaves] = True

    def grow(self, count: int) -> None:
        """Make room for so many nodes."""
        new = count - len(self._lower)
        if new > 0 or len(self._lower) == 0:
            self._lower = np.concatenate([self._lower, np.full(new, -np.inf)])
            self._leaf = np.concatenate([self._leaf, np.zeros(new, dtype=bool)])
            self._rounds = np.concatenate([self._rounds, np.zeros(new, dtype=np.int32)])
            self._show()

    def _show(self) -> None:
        self.lower, self.leaf, self.rounds = map(_read_only, (self._lower, self._leaf, self._rounds))

    def __getstate__(self) -> dict[str, np.ndarray]:
        """The arrays; what others read of them are views."""
        return {"_lower": self._lower, "_leaf": self._leaf, "_rounds": self._rounds}

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        """Restore the arrays and the views of them."""
        vars(self).update(state)
        self._show()

    def raise_(self, node: Int[np.ndarray, " k"], bound: Float[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
        """Take these bounds where they are higher than what is known; says where. No number raises nothing."""
        current = self._lower[node]
        self._lower[node] = np.fmax(current, bound)
        return bound > current

    def raise_all(self, lower: Float[np.ndarray, " some"]) -> None:
        """Raise the bounds of the first nodes, in order."""
        np.fmax(self._lower[: len(lower)], lower, out=self._lower[: len(lower)])

    def split(self, group: Int[np.ndarray, " groups"], part: Int[np.ndarray, " parts"]) -> None:
        """Parts stand in the place of their groups from now on."""
        self._leaf[group], self._leaf[part] = False, True

    def follow(self, leaf: Bool[np.ndarray, " nodes"]) -> None:
        """The leaves of another tree over the same nodes, which stand for all plans as well."""
        self._leaf[:] = False
        self._leaf[: len(leaf)] = leaf

    def refined(self, node: Int[np.ndarray, " k"]) -> None:
        """The programmes of these nodes were solved once more."""
        self._rounds[node] += 1

    @property
    def least(self) -> float:
        """The least bound of the leaves: what no design is below."""
        return float(np.min(self._lower, where=self._leaf, initial=np.inf))

    def ordered(self, some: Bool[np.ndarray, " nodes"]) -> Int[np.ndarray, " some"]:
        """The leaves among these, least bound first."""
        left = np.flatnonzero(self._leaf & some)
        return left[np.argsort(self._lower[left], kind="stable")]


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def passed_down(lower: Float[np.ndarray, " nodes"], parents: Int[np.ndarray, " nodes"]) -> np.ndarray:
    """Bounds of parts raised to those of their groups."""
    while True:
        raised = np.maximum(lower, lower[parents])
        if (raised == lower).all():
            return raised
        lower = raised


# The best designs that a search has evaluated, and which bounds they leave open.
#
# Source: see docs/optimisation.md, section 4.


NEAR = 0.1  # log above the best up to which designs are kept: next-best plans for the frame, and to start others from


def keeps(exact: Float[np.ndarray, "k rows"]) -> Bool[np.ndarray, " k"]:
    """Mask of the points that keep all constraints (rows after the goal's)."""
    return feasible_logs(exact[:, 1:].max(axis=1, initial=-np.inf))


class AbstractIncumbent(abc.ABC):
    """The best designs known, by the exact model; values are logs of the goal.

    upper: what a bound must reach, less the gap, for its plan to need no more work; feasible: plan -> its best value
    and where, of plans that come near.
    """

    upper: float
    feasible: dict[int, tuple[float, np.ndarray]]

    @abc.abstractmethod
    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """Take note of points [k, variables] with their rows; those of groups (not `single`) are no designs."""

    @abc.abstractmethod
    def open(self, lower: Float[np.ndarray, " nodes"], gap: float) -> Bool[np.ndarray, " nodes"]:
        """Mask of the nodes with these bounds that may hold a design that is better by more than the gap."""

    def near(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> np.ndarray:
        """Values of the designs among these points, inf of others; what comes near the best is kept."""
        holds = single & np.isfinite(exact).all(axis=1) & keeps(exact)
        values = np.where(holds, exact[:, 0], np.inf)
        for i in np.flatnonzero(values < self.upper + NEAR):
            if values[i] < self.value_of(int(plan[i])):
                self.feasible[int(plan[i])] = (float(values[i]), u[i].copy())
        return values

    def value_of(self, plan: int) -> float:
        """The best value of a plan; inf where none is known."""
        return self.feasible.get(plan, (np.inf,))[0]

    def ranked(self, count: int | None = None) -> list[int]:
        """Plans of the best designs, the best first."""
        return sorted(self.feasible, key=lambda plan: self.feasible[plan][0])[:count]


class Incumbent(AbstractIncumbent):
    """One best design: `upper` its value, `plan` its plan (-1 where there is none), `u` its coordinates.

    Args:
        width: hardware variables.
        upper: value that a design must beat.
    """

    def __init__(self, width: int, upper: float = np.inf):
        self.upper, self.plan, self.u = upper, -1, np.full(width, 0.5)
        self.feasible = {}

    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """Keep what is better."""
        values = self.near(plan, u, exact, single)
        if len(values):
            best = int(np.argmin(values))
            self.offer(float(values[best]), int(plan[best]), u[best])

    def offer(self, value: float, plan: int, u: np.ndarray) -> None:
        """A design evaluated elsewhere, with its value."""
        if value < self.upper:
            self.upper, self.plan, self.u = value, plan, u.copy()

    def open(self, lower: Float[np.ndarray, " nodes"], gap: float) -> Bool[np.ndarray, " nodes"]:
        """Bounds below the best value less the gap."""
        return lower < self.upper - gap


# Points that keep every constraint of a plan: edges that break one are pulled back towards them.
#
# Source: see docs/optimisation.md, section 3.


INSIDE = 1e-5  # log by which a point keeps every constraint that others are pulled towards


class InsidePoints:
    """Plan -> the latest point that keeps all its constraints, and its rows."""

    def __init__(self) -> None:
        self._inside: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def pulled(
        self, plan: np.ndarray, points: np.ndarray, exact: np.ndarray, upper: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(lanes, points): edges that break a constraint pulled along the line to a point inside, as far as need be.

        By convexity every constraint holds there. Of each plan there is a central point, then an edge [2 plans, ...].
        """
        count = len(plan)
        worst = exact[:count, 1:].max(axis=1, initial=-np.inf)
        for lane in np.flatnonzero(worst < -INSIDE):
            self._inside[int(plan[lane])] = (points[lane], exact[lane])
        edge, result = points[count:], exact[count:]
        candidates = np.flatnonzero(~keeps(result) & (result[:, 0] < upper) & np.isfinite(result).all(axis=1))
        candidates = candidates[[p in self._inside for p in plan[candidates].tolist()]]
        if len(candidates) == 0:
            return candidates, edge[:0]
        inside = [self._inside[p] for p in plan[candidates].tolist()]
        u, rows = np.array([each[0] for each in inside]), np.array([each[1] for each in inside])
        over = np.maximum(result[candidates, 1:], 0.0)
        share = (over / np.where(over > 0, over - np.minimum(rows[:, 1:], -1e-12), 1.0)).max(axis=1)[:, None]
        return candidates, edge[candidates] + share * (u - edge[candidates])


# The cuts of the nodes that a branch and bound still works on, and what the points they were taken at have shown.
#
# Source: see docs/optimisation.md, section 2.


class CutPool(Mapping[int, list[np.ndarray]]):
    """Node -> its cuts, affine rows [rows, coefficients] in the order they came.

    Args:
        rows, coefficients: of a cut.

    Attributes:
        soft: node -> least goal plus penalties that a point of it has shown.
        estimate: node -> its goal when last seen, with what it broke at the price of its multipliers.
    """

    def __init__(self, rows: int, coefficients: int):
        self._shape = rows, coefficients
        self._cuts: dict[int, list[np.ndarray]] = {}
        self._at: dict[int, list[int]] = {}  # the numbers of their points
        self.soft: dict[int, float] = {}
        self.estimate: dict[int, float] = {}

    def __getitem__(self, node: int) -> list[np.ndarray]:
        """The cuts of a node."""
        return self._cuts[node]

    def __iter__(self) -> Iterator[int]:
        """Nodes that have cuts."""
        return iter(self._cuts)

    def __len__(self) -> int:
        """Nodes that have cuts."""
        return len(self._cuts)

    def __contains__(self, node: object) -> bool:
        """True if a node has cuts."""
        return node in self._cuts

    def keep(
        self,
        node: Int[np.ndarray, " k"],
        exact: Float[np.ndarray, "k rows"],
        affine: Float[np.ndarray, "k rows coefficients"],
        prices: np.ndarray | float = BRANCH_AND_BOUND.dear_enough,
        at: Int[np.ndarray, " k"] | None = None,
    ) -> None:
        """Add cuts, with the exact rows where they were taken.

        `prices` of violations [k, rows] are for the estimates; `at` numbers the points.
        """
        over = np.maximum(exact[:, 1:], 0.0)
        finite = np.isfinite(exact).all(axis=1)
        soft = np.where(finite, exact[:, 0] + interior.ELASTIC * over.max(axis=1, initial=0.0), np.inf).tolist()
        prices = np.broadcast_to(prices, exact.shape)[:, 1:] + BRANCH_AND_BOUND.least_price
        looks = np.where(finite, exact[:, 0] + (prices * over).sum(axis=1), np.inf).tolist()
        numbers = [-1] * len(node) if at is None else at.tolist()
        latest: dict[int, float] = {}
        for i, n in enumerate(node.tolist()):
            self._cuts.setdefault(n, []).append(affine[i])
            self._at.setdefault(n, []).append(numbers[i])
            self.soft[n] = min(self.soft.get(n, np.inf), soft[i])
            latest[n] = min(latest.get(n, np.inf), looks[i])
        self.estimate |= latest

    def has_cuts(self, node: Int[np.ndarray, " k"]) -> np.ndarray:
        """Mask of the nodes that have cuts."""
        return np.array([n in self._cuts for n in node.tolist()], dtype=bool)

    def soft_of(self, node: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Least goal plus penalties of each; inf where nothing was seen."""
        return np.array([self.soft.get(n, np.inf) for n in node.tolist()])

    def looks(self, node: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Merit estimate of each one's optimum, from where it was seen last; inf where it was not."""
        return np.array([self.estimate.get(n, np.inf) for n in node.tolist()])

    def batches(self, node: Int[np.ndarray, " k"]) -> list[np.ndarray]:
        """Nodes with about as many cuts together: the longest programme of a batch sets the length of all."""
        if len(node) == 0:
            return []
        count = np.array([len(self._cuts[n]) for n in node.tolist()])
        order = np.argsort(count, kind="stable")
        size = np.searchsorted(BRANCH_AND_BOUND.lengths, count[order])
        return np.split(node[order], np.flatnonzero(np.diff(size)) + 1)

    def gathered(self, node: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
        """(cuts of each node side by side, padded by some that say nothing; numbers of their points, -1 of padding)."""
        names = node.tolist()
        most = max(len(self._cuts[n]) for n in names)
        affine, at = np.zeros((len(names), most, *self._shape)), np.full((len(names), most), -1)
        affine[..., 0] = interior.EMPTY
        for lane, n in enumerate(names):
            affine[lane, : len(self._cuts[n])] = self._cuts[n]
            at[lane, : len(self._at[n])] = self._at[n]
        return affine, at

    def trim(self, node: int, weights: Float[np.ndarray, "cuts rows"]) -> None:
        """Drop cuts of a node with too many: keep those that its last programme leant on most."""
        count = len(self._cuts[node])
        if count > BRANCH_AND_BOUND.most_cuts:
            leant = np.argsort(-weights[:count].sum(axis=1), kind="stable")
            left = np.sort(leant[: BRANCH_AND_BOUND.most_cuts // 2]).tolist()
            for lists in (self._cuts, self._at):
                lists[node] = [lists[node][i] for i in left]

    def forget(self) -> None:
        """Drop all cuts: many times the size of all else that is known."""
        self._cuts.clear()
        self._at.clear()
