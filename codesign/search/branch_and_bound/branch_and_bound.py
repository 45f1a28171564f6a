"""Proof by plans: bound every plan from below, drop those that cannot win, close the gap of the rest.

An incumbent is found, every plan or group of plans bounded, what is left closed. The upper bound is always an
evaluation of the hard model that keeps every constraint, the lower one the least of the leaves' bounds: both hold at
any moment.

Source: branch and bound, [landdoig1960]; successive halving, [jamieson2016]; see docs/optimisation.md, section 4.
"""

from collections.abc import Callable

import numpy as np

from ..base import Progress, Report, silent
from ..settings import BRANCH_AND_BOUND
from .bounding import COLD, INTERRUPTED, REFERENCE_SHARPNESS, Bounding, Outcome, References, SearchEffort, WarmStart
from .evidence import AbstractListener
from .interior_point import least_of_rows
from .oracle import AbstractOracle, Programme


class BranchAndBound:
    """One run over the plans of a programme.

    Args:
        programme: what is minimised.
        effort: how hard is tried.
        seed: of the samples.
        report: told how far it is.
        recorder: told what each bound rests on.
        warm: what is known before.
        pruned: keep how plans were closed without a programme (see `Bounding`).
    """

    def __init__(
        self,
        programme: Programme,
        effort: SearchEffort,
        seed: int,
        report: Report = silent,
        recorder: AbstractListener | None = None,
        warm: WarmStart = COLD,
        pruned: bool = False,
    ):
        self.effort, self.report = effort, report
        self.rng = np.random.default_rng(seed)
        self.bounding = Bounding(programme, effort.gap, recorder, warm.incumbent, pruned)
        self.base = np.full(self.bounding.width, 0.5)
        warm.begin(self.bounding)

    @property
    def _oracle(self) -> AbstractOracle:
        return self.bounding.programme.oracle

    def _left(self) -> int:
        """Plans that may still win."""
        return int(self._oracle.weight(self.bounding.open()).sum())

    def _closed(self) -> int:
        return self._oracle.plan_count - self._left()

    def _note(self, stage: str, done: int, total: int) -> None:
        bounding = self.bounding
        bounding.note()
        self.report(Progress(stage, done, total, bounding.upper, bounding.upper - bounding.bound))

    def _late(self) -> bool:
        return self.bounding.elapsed > self.effort.seconds

    def _at(self, plan: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = np.broadcast_to(u, (len(plan), self.bounding.width))
        return self.bounding.evaluate(plan, points, REFERENCE_SHARPNESS)

    def _look(self, plan: np.ndarray, u: np.ndarray) -> np.ndarray:
        return self.bounding.look(plan, np.broadcast_to(u, (len(plan), self.bounding.width)))

    def _point_indices(self, count: int, u: np.ndarray) -> np.ndarray:
        """Numbers of one point for so many plans."""
        return np.repeat(self.bounding.point_index(u[None], REFERENCE_SHARPNESS), count)

    def incumbent(self) -> None:
        """The best of a sample of plans, solved, and of their neighbours; leaves solved plans as references."""
        bounding, effort = self.bounding, self.effort
        sample = self._oracle.sample(self.rng, effort.sample)
        bounding.grow()
        exact = self._look(sample, self.base)
        soft = exact[:, 0] + np.maximum(exact[:, 1:], 0.0).sum(axis=1)
        first = sample[np.argsort(soft, kind="stable")[: effort.references // 4]]
        bounding.cuts.keep(first, *self._at(first, self.base), at=self._point_indices(len(first), self.base))
        self._halved(first)
        self._note("incumbent", bounding.solved, bounding.solved)
        self.climb()
        self._refer(sample)

    def climb(self) -> None:
        """Better plans at the hardware of the best one, solved, until that brings none.

        There, the Lagrangian with the best plan's multipliers tells which plans would use that hardware better: groups
        that look best are followed down to plans, and the best of those and of the neighbours are solved.
        """
        bounding, oracle, effort = self.bounding, self._oracle, self.effort
        some = oracle.roots
        some = some[bounding.lower[some] < np.inf]
        if len(some) > effort.chunk:
            some = np.sort(self.rng.choice(some, effort.chunk, replace=False))
        for _ in range(BRANCH_AND_BOUND.climbs):
            if bounding.plan < 0 or self._late():
                return
            before = bounding.upper
            some = some[np.argsort(self._looks_there(some), kind="stable")[: effort.chunk // 16]]
            plans = np.union1d(self._followed(some[: BRANCH_AND_BOUND.followed]), self._around())
            plans = plans[bounding.table.rounds[plans] == 0]
            plans = plans[np.argsort(self._looks_there(plans), kind="stable")[: effort.references // 4]]
            if len(plans):
                multipliers = self._multipliers()
                at = self._point_indices(len(plans), bounding.u)
                exact, affine = self._at(plans, bounding.u)
                bounding.bound_by(plans, affine, multipliers, at)
                bounding.cuts.keep(plans, exact, affine, multipliers, at)
                self._halved(plans)
            self._note("incumbent", bounding.solved, bounding.solved)
            if bounding.upper > before - bounding.gap:
                return

    def _multipliers(self) -> np.ndarray:
        """Multipliers of the best plan; a guess if it was seen but not solved."""
        rows = len(self.bounding.programme.rows)
        return self.bounding.duals.weights.get(self.bounding.plan, np.where(np.arange(rows) == 0, 1.0, 0.1))

    def _looks_there(self, plan: np.ndarray) -> np.ndarray:
        """Goal of plans or groups at the best hardware, and what they break at the price of the best's multipliers."""
        if len(plan) == 0:
            return np.zeros(0)
        exact = self._look(plan, self.bounding.u)
        over = np.maximum(exact[:, 1:], 0.0) * (self._multipliers()[1:] + BRANCH_AND_BOUND.cheap)
        return np.where(np.isfinite(exact).all(axis=1), exact[:, 0] + over.sum(axis=1), np.inf)

    def _followed(self, group: np.ndarray) -> np.ndarray:
        """The plans that these groups lead to, following the parts that look best."""
        oracle, result = self._oracle, [group[self._oracle.single(group)]]
        parts = group[~oracle.single(group)]
        while len(parts):
            parts, _ = oracle.split(parts)
            self.bounding.grow()
            parts = parts[np.argsort(self._looks_there(parts), kind="stable")[: 4 * BRANCH_AND_BOUND.followed]]
            result.append(parts[oracle.single(parts)])
            parts = parts[~oracle.single(parts)]
        return np.concatenate(result)

    def dive(self) -> None:
        """Solve the plans and groups that look best, each at its own best hardware, and climb from there."""
        bounding, effort, oracle = self.bounding, self.effort, self._oracle
        left, before = bounding.open(), bounding.upper
        self._promising(left[oracle.single(left)], effort.references)
        groups = left[~oracle.single(left)]
        if bounding.plan >= 0 and len(groups) > effort.references:
            groups = groups[np.argsort(self._looks_there(groups), kind="stable")[: effort.references]]
        self._halved(groups)
        self._promising(self._best_of(groups[bounding.lower[groups] < bounding.cut]), BRANCH_AND_BOUND.followed)
        if bounding.upper < before - bounding.gap:
            self.climb()
        self._note("incumbent", bounding.solved, bounding.solved)

    def _best_of(self, groups: np.ndarray) -> np.ndarray:
        """The plans of the groups that look best, each bounded where its group has its optimum."""
        bounding, oracle, result = self.bounding, self._oracle, [groups[:0]]
        parts = parent = groups[np.argsort(self._looks(groups), kind="stable")[: BRANCH_AND_BOUND.followed // 4]]
        while len(parts):
            parts, parent_index = oracle.split(parts)
            parent = parent[parent_index]
            bounding.grow()
            new = bounding.table.rounds[parts] == 0
            self.bound(bounding.inherit(parts[new], parent[new]))
            best = np.argsort(self._looks(parts), kind="stable")[: 4 * BRANCH_AND_BOUND.followed]
            parts, parent = parts[best], parent[best]
            single = oracle.single(parts)
            result.append(parts[single])
            parts, parent = parts[~single], parent[~single]
        return np.concatenate(result)

    def _looks(self, plan: np.ndarray) -> np.ndarray:
        """An estimate of each one's optimum, from where it was seen last."""
        return self.bounding.cuts.looks(plan)

    def _around(self) -> np.ndarray:
        """Neighbours of the best plan in three fields and of the next-best in two."""
        near, bounding = self._oracle.near, self.bounding
        best = bounding.incumbent.ranked(1 + BRANCH_AND_BOUND.rivals)
        around = np.unique(np.concatenate([near(best[0], 3), *(near(plan, 2) for plan in best[1:])]))
        bounding.grow()
        return around

    def _refer(self, sample: np.ndarray) -> None:
        """Solve some plans of all kinds, good or not: others are bounded from where those have their optimum."""
        bounding = self.bounding
        some = sample[np.sort(self.rng.permutation(len(sample))[: self.effort.references])]
        some = some[bounding.table.rounds[some] == 0]
        if len(some):
            bounding.cuts.keep(some, *self._at(some, self.base), at=self._point_indices(len(some), self.base))
        for _ in range(BRANCH_AND_BOUND.reference_rounds):
            enough = bounding.upper + BRANCH_AND_BOUND.worst_reference
            some = some[bounding.lower[some] < enough]
            for first in range(0, len(some), self.effort.batch):
                bounding.refine(some[first : first + self.effort.batch], enough)
        self.base = bounding.u.copy() if bounding.plan >= 0 else self.base
        self.references = References(bounding, sample, self.base)

    def _promising(self, plan: np.ndarray, most: int) -> None:
        """Solve the plans that look best among those never solved."""
        bounding = self.bounding
        new = plan[(bounding.lower[plan] < bounding.cut) & (bounding.table.rounds[plan] == 0)]
        new = new[bounding.cuts.has_cuts(new)]
        self._halved(new[np.argsort(self._looks(new), kind="stable")[:most]])

    def _halved(self, plan: np.ndarray) -> None:
        """Rounds over ever fewer of these plans: each leaves the least bounds and the best designs.

        The bound of a plan rises, and its best design comes down, towards its optimum with every round.
        """
        bounding = self.bounding
        while len(plan) and not self._late():
            for first in range(0, len(plan), self.effort.batch):
                bounding.refine(plan[first : first + self.effort.batch])
            plan = plan[bounding.lower[plan] < bounding.cut]
            plan = plan[bounding.table.rounds[plan] < BRANCH_AND_BOUND.halvings]
            few = max(len(plan) // 4, BRANCH_AND_BOUND.fewest)
            best = [np.argsort(key, kind="stable")[:few] for key in (bounding.lower[plan], self._looks(plan))]
            plan = plan[np.unique(np.concatenate(best))]

    def bound(self, plan: np.ndarray) -> None:
        """One tangent at the base; for what is left one where the nearest reference has its optimum, then both."""
        bounding = self.bounding
        if len(plan) == 0:
            return
        exact, affine = self._at(plan, self.base)
        at = self._point_indices(len(plan), self.base)
        nearest = self.references.nearest(affine)
        bounding.bound_by(plan, affine, self.references.multipliers[nearest], at)
        left = np.flatnonzero(bounding.lower[plan] < bounding.cut)
        if bounding.width == 0:  # one point: nothing is learnt at another
            bounding.cuts.keep(plan[left], exact[left], affine[left], at=at[left])
            return
        if len(left) == 0:
            return
        plan, exact, affine, nearest = plan[left], exact[left], affine[left], nearest[left]
        multipliers, u = self.references.multipliers[nearest], self.references.u[nearest]
        at, second = at[left], bounding.point_index(u, REFERENCE_SHARPNESS)
        there, learnt = bounding.evaluate(plan, u, REFERENCE_SHARPNESS)
        bounding.bound_by(plan, learnt, multipliers, second)
        left = np.flatnonzero(bounding.lower[plan] < bounding.cut)
        both = np.stack([at[left], second[left]], axis=1)
        bounding.bound_by_two(plan[left], affine[left], learnt[left], multipliers[left], both)
        left = left[bounding.lower[plan[left]] < bounding.cut]
        bounding.cuts.keep(plan[left], exact[left], affine[left], at=at[left])
        bounding.cuts.keep(plan[left], there[left], learnt[left], multipliers[left], second[left])

    def screen(self) -> None:
        """Rule out single plans that break a constraint everywhere which costs little beside the others: memory."""
        bounding, oracle = self.bounding, self._oracle
        bounding.grow()
        some = oracle.roots
        some = some[oracle.single(some)]
        for first in range(0, len(some), self.effort.chunk):
            plan = some[first : first + self.effort.chunk]
            u = np.tile(self.base, (len(plan), 1))
            affine = bounding.programme.screening(plan, u)
            if affine is None or self._late():
                return
            broken = least_of_rows(affine).max(axis=1) > 0
            plan, affine = plan[broken], affine[broken]
            weights = np.zeros(len(bounding.programme.rows))
            bounding.bound_by(plan, affine, weights, self._point_indices(len(plan), self.base))

    def bound_all(self) -> None:
        """Bound every plan or group that is not closed yet."""
        bounding, effort = self.bounding, self.effort
        left = bounding.open()
        left = np.sort(left[~bounding.cuts.has_cuts(left)])
        for first in range(0, len(left), effort.chunk):
            if self._late():
                return
            self.bound(left[first : first + effort.chunk])
            self._note("bound", self._closed(), self._oracle.plan_count)

    def close(self) -> None:
        """Refine open plans and groups until none is left, the least bounds first; split groups that do not close."""
        bounding, batch, before = self.bounding, self.effort.batch, np.inf
        while not self._late():
            left = bounding.open()
            left = left[bounding.table.rounds[left] < BRANCH_AND_BOUND.most_tries]
            if len(left) == 0:
                return
            batch = self.effort.batch if bounding.upper < before else min(2 * batch, 8 * self.effort.batch)
            before = bounding.upper
            self.bound(bounding.advance(left[:batch]))
            self._note("close", self._closed(), self._oracle.plan_count)

    def run(self, start: Callable[[], None] | None = None) -> Outcome:
        """All stages, beginning with `start` instead of `incumbent` if given; an interrupt ends with what is known."""
        stopped, bounding = "", self.bounding
        try:
            if start is None:
                self.screen()
            (start or self.incumbent)()
            self.bound_all()
            self.dive()
            self.close()
            self._note("close", self._closed(), self._oracle.plan_count)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        left = self._left()
        if left and not stopped:
            late = f"stopped at its time limit of {self.effort.seconds:g} s"
            stopped = late if self._late() else f"{left} plans did not close in {BRANCH_AND_BOUND.most_tries} rounds"
        counts = {
            "plans": self._oracle.plan_count,
            "points": bounding.evaluated,
            "solved": bounding.solved,
            "open": left,
        }
        bounding.note()
        return Outcome(bounding, counts, bounding.elapsed, stopped)
