"""Programmes over the same rows that differ in what is minimised and what is allowed: each helps the next."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from ..branch_and_bound.closing import Closing, Effort, Outcome
from ..branch_and_bound.ledger import Ledger, Programme
from ..branch_and_bound.linearisation_points import References
from .cut_pool import Memory, Remembering
from .dual_pool import Pool

START = 64  # plans that the neighbouring programme solved and this one begins with
FIRST_ROUNDS = 4
CHUNK = 32768  # plans bounded again in one go
NEXT_DOOR = 0.2  # log of what is allowed by which programmes differ that help each other's plans


@dataclass
class Step:
    """A programme that was solved: what was minimised, what was allowed, how it ended."""

    goal: str
    allowed: dict[str, float]
    outcome: Outcome

    @property
    def ledger(self) -> Ledger:
        """All that is known of it."""
        return self.outcome.ledger

    def carry(self, to: Ledger) -> None:
        """Raise another programme's bounds by what was proven here.

        What a plan's multipliers make of its tangents bounds it whatever is allowed: that only shifts the bound, by
        the multipliers. The rows of both must be the same.
        """
        mine, plans = self.ledger, np.array(list(self.ledger.lagrangian), dtype=int)
        if mine.programme.rows != to.programme.rows or len(plans) == 0:
            return
        shift = np.array(
            [to.programme.allowed.get(n, 0.0) - mine.programme.allowed.get(n, 0.0) for n in to.programme.rows]
        )
        total = np.array([mine.lagrangian[p] for p in plans.tolist()])
        weights = np.array([mine.weights[p] for p in plans.tolist()])
        bound = total[:, 0] - weights @ shift + np.minimum(total[:, 1:], 0.0).sum(axis=1)
        whole = np.abs(weights[:, 0] - 1.0) < 1e-9  # multipliers that never settled bound nothing
        to.lower[plans[whole]] = np.maximum(to.lower[plans[whole]], bound[whole])

    def raise_(self, lower: np.ndarray) -> None:
        """Raise bounds of plans and groups to those proven here, which must hold there too (`looser`)."""
        mine = self.ledger.lower
        np.maximum(lower[: len(mine)], mine, out=lower[: len(mine)])

    def looser(self, goal: str, allowed: dict[str, float]) -> bool:
        """Whether whatever `allowed` admits was admitted here too, for the same goal: bounds then carry over."""
        inside = all(name in allowed and allowed[name] <= most for name, most in self.allowed.items())
        return self.goal == goal and inside

    def apart(self, goal: str, allowed: dict[str, float]) -> float:
        """How unlike two programmes are."""
        common = [abs(self.allowed[name] - allowed[name]) for name in self.allowed if name in allowed]
        lacking = len(set(self.allowed) ^ set(allowed))
        return sum(common) + lacking + (10.0 if self.goal != goal else 0.0)


@dataclass
class Sweep:
    """Solves programmes one after the other, with one oracle and one compilation.

    Args:
        oracle: remembers the tangents of every plan.
        limits: rows that must hold in every programme.
        effort: of one programme; its seconds are those of the whole sweep.
        seed: of the first programme's sample.
    """

    oracle: Remembering
    limits: tuple[str, ...]
    effort: Effort
    seed: int
    steps: list[Step] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        """Where all that is proven is kept."""
        metrics = tuple(name for name in self.oracle.names if name not in self.limits)
        self.pool = Pool(self.oracle.names, metrics, self.oracle.places)

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return self.effort.seconds - (time.perf_counter() - self.began)

    def solve(self, goal: str, allowed: dict[str, float]) -> Outcome:
        """Minimise a row under the limits and under what further rows are allowed (logs)."""
        programme = Programme(self.oracle, goal, (*self.limits, *allowed), allowed)
        effort = replace(self.effort, seconds=max(self.left, 0.1))
        closing = Closing(programme, effort, self.seed, recorder=self.pool.listener(programme))
        closing.ledger.endings = []
        outcome = closing.run(lambda: self._follow(closing, goal, allowed)) if self.steps else closing.run()
        for kept in (outcome.ledger.own, outcome.ledger.own_at):
            kept.clear()  # many times the size of all else; the oracle remembers the latest
        self.steps.append(Step(goal, allowed, outcome))
        return outcome

    def _follow(self, closing: Closing, goal: str, allowed: dict[str, float]) -> None:
        """Begin with what earlier programmes found: their bounds, their best plans, the tangents of all."""
        ledger = closing.ledger
        for step in self.steps:
            if step.looser(goal, allowed):
                step.raise_(ledger.lower)
            step.carry(ledger)
        ledger.pass_down()
        neighbour = min(self.steps, key=lambda step: step.apart(goal, allowed))
        nearest = neighbour.ledger
        if neighbour.apart(goal, allowed) <= NEXT_DOOR:  # what had to be split there will have to be split here
            ledger.frontier[:] = False
            ledger.frontier[: len(nearest.frontier)] = nearest.frontier
        first = _promising(nearest)
        self._recall(ledger, first)
        first = first[[p in ledger.own for p in first.tolist()]]
        for _ in range(FIRST_ROUNDS):
            if len(first):
                ledger.refine(first)
            first = first[ledger.lower[first] < ledger.cut]
        if ledger.plan < 0 or len(ledger.solution) == 0 or neighbour.apart(goal, allowed) > NEXT_DOOR:
            closing.incumbent()  # its optima and multipliers are of this programme: bounds from afar are too weak
        else:
            closing.base = ledger.u.copy()
            self._borrow(ledger, nearest)
            closing.references = References(ledger, np.array(list(ledger.solution)), closing.base)
        self._bound_again(closing, nearest)

    def _borrow(self, ledger: Ledger, nearest: Ledger) -> None:
        """Optima and multipliers of plans of all kinds from next door, to bound others from."""
        if nearest.programme.rows != ledger.programme.rows:
            return
        solved = np.array([p for p in nearest.solution if p not in ledger.solution], dtype=int)
        some = np.random.default_rng(self.seed).permutation(solved)[: self.effort.references]
        ledger.solution |= {p: nearest.solution[p] for p in some.tolist()}
        ledger.weights |= {p: nearest.weights[p] for p in some.tolist()}

    def _bound_again(self, closing: Closing, nearest: Ledger) -> None:
        """Bounds of all plans from remembered tangents; those that were solved next door keep theirs."""
        ledger = closing.ledger
        known = ledger.open()
        weights = ledger.weights.get(ledger.plan, np.ones(len(ledger.programme.rows)))
        for slot in range(self.oracle.depth):
            with _remembered(ledger, self.oracle, slot):
                for start in range(0, len(known), CHUNK):
                    plan, u, at = self.oracle.recall(known[start : start + CHUNK], slot)
                    if len(plan):
                        ledger.bound_by(plan, ledger.evaluate(plan, u, 1.0)[1], weights, at)
            known = known[ledger.lower[known] < ledger.cut]
        again = known[[p in nearest.weights and p not in ledger.own for p in known.tolist()]]
        self._recall(ledger, again)
        new = np.array([p for p in known.tolist() if p not in ledger.own], dtype=int)
        for start in range(0, len(new), CHUNK):
            closing.bound(new[start : start + CHUNK])

    def _recall(self, ledger: Ledger, plan: np.ndarray) -> None:
        """Give plans the tangents that are remembered of them."""
        for slot in range(self.oracle.depth):
            seen, u, at = self.oracle.recall(plan, slot)
            if len(seen):
                with _remembered(ledger, self.oracle, slot):
                    ledger.keep(seen, *ledger.evaluate(seen, u, 1.0), at=at)


class _remembered:
    """Inside, a ledger's programme answers from memory."""

    def __init__(self, ledger: Ledger, oracle: Remembering, slot: int):
        self.ledger, self.asked = ledger, ledger.programme
        self.memory = replace(ledger.programme, oracle=Memory(oracle, slot))

    def __enter__(self) -> None:
        self.ledger.programme = self.memory

    def __exit__(self, *_: object) -> None:
        self.ledger.programme = self.asked


def _promising(ledger: Ledger) -> np.ndarray:
    """Plans that a programme solved, those with the best designs first, then those with the least bounds."""
    best = sorted(ledger.feasible, key=lambda p: ledger.feasible[p][0])[: START // 2]
    solved = np.array(list(ledger.solution), dtype=int)
    solved = solved[ledger.frontier[solved] | ledger.programme.oracle.single(solved)]  # others were split
    least = solved[np.argsort(ledger.lower[solved], kind="stable")][: START // 2] if len(solved) else solved
    return np.union1d(np.array(best, dtype=int), least)
