"""An attempt to find a design that the certificate says cannot be: random ones, then around the best, then polished."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Protocol, runtime_checkable

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float, Int

from ..core.free_memory import give_back
from .coverage import PlanCover
from .derivation import Derivation, Refuted
from .inequality import WeightedSums
from .model_answers import CheckedModel, ExactRows

# SciPy's SLSQP from many designs at once: the searches run side by side and share each call of the model.


SHARPNESS = 1e4  # of the weighted maxima: their value lies at most 4e-5 below the hard one
MARGIN = 1e-4  # log by which constraints are kept, so that designs hold by the hard model too

POLISH_ROUNDS, CALLS = 40, 100  # iterations and designs of one search; it is a line search without end that takes more

PRECISION = 1e-9


@runtime_checkable
class FreedRows(Protocol):
    """Rows to polish (the goal, constraints, further targets) and their slopes at points of plans."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        ...

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the rows behind the first that are at most 0."""
        ...

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and slopes of all rows."""
        ...


class _DesignBudgetSpent(Exception):
    """A search has had its designs."""


class _BatchedCalls:
    """Calls of the model by several threads, answered when all that still run have asked."""

    def __init__(self, model: FreedRows, plans: Float[np.ndarray, "lanes fields"]):
        self.model, self.plans = model, plans
        self.requests: dict[int, np.ndarray] = {}
        self.answers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.running = len(plans)
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []  # (lanes, coordinates) of every call
        self.change = threading.Condition()
        self.failed = False

    def tangents(self, lane: int, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and slopes of one lane's plan."""
        with self.change:
            self.requests[lane] = np.clip(u, 0.0, 1.0)
            self._answer()
            self.change.wait_for(lambda: lane in self.answers or self.failed)
            if self.failed:
                raise RuntimeError("another search failed")
            return self.answers.pop(lane)

    def leave(self) -> None:
        """One lane is done."""
        with self.change:
            self.running -= 1
            self._answer()

    def _answer(self) -> None:
        if not self.requests or len(self.requests) < self.running:
            return
        lanes = np.array(sorted(self.requests))
        u = np.array([self.requests[lane] for lane in lanes.tolist()])
        self.requests.clear()
        try:
            value, slope = self.model.tangents(self.plans[lanes], u, np.full(len(lanes), SHARPNESS))
        except BaseException:
            self.failed = True
            self.change.notify_all()
            raise
        self.seen.append((lanes, u))
        for k, lane in enumerate(lanes.tolist()):
            self.answers[lane] = value[k], slope[k]
        self.change.notify_all()


class _Lane:
    """One search: the row `target` of one plan, the rows behind the goal's at most `upper` where that is finite."""

    def __init__(self, together: _BatchedCalls, lane: int, target: int, upper: np.ndarray):
        self.together, self.lane, self.target = together, lane, target
        self.rows, self.upper = 1 + np.flatnonzero(np.isfinite(upper)), upper[np.isfinite(upper)]
        self.at, self.answer, self.calls = np.zeros(0), (np.zeros(0), np.zeros((0, 0))), 0

    def _rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not np.array_equal(u, self.at):
            if self.calls == CALLS:
                raise _DesignBudgetSpent
            self.calls += 1
            value, slope = self.together.tangents(self.lane, u)
            self.answer = np.nan_to_num(value, posinf=1e3, neginf=-1e3), np.nan_to_num(slope)
            self.at = u.copy()
        return self.answer

    def run(self, start: np.ndarray, rounds: int) -> None:
        """Minimise; where it went is known to `together`."""

        def goal(u: np.ndarray) -> float:
            return self._rows(u)[0][self.target]

        def slope(u: np.ndarray) -> np.ndarray:
            return self._rows(u)[1][self.target]

        def room(u: np.ndarray) -> np.ndarray:
            return self.upper - MARGIN - self._rows(u)[0][self.rows]

        def slopes(u: np.ndarray) -> np.ndarray:
            return -self._rows(u)[1][self.rows]

        limits = {"type": "ineq", "fun": room, "jac": slopes}
        try:
            scipy.optimize.minimize(
                goal, start, jac=slope, method="SLSQP", bounds=scipy.optimize.Bounds(0.0, 1.0),
                constraints=[limits] if len(self.rows) else [],
                options={"maxiter": rounds, "ftol": PRECISION},
            )  # fmt: skip
        except _DesignBudgetSpent:
            pass
        finally:
            self.together.leave()


def polish(
    model: FreedRows,
    plan: Float[np.ndarray, "lanes fields"],
    u: Float[np.ndarray, "lanes variables"],
    target: Int[np.ndarray, " lanes"],
    upper: Float[np.ndarray, "lanes rows"],
    rounds: int = POLISH_ROUNDS,
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, "k variables"]]:
    """(lane, coordinates) of every design that searches for the least `target` row met, each from its own start.

    `upper` is what rows behind the goal's may be at most, inf where anything; `rounds` the iterations of a search.
    """
    if len(plan) == 0 or not model.variables:
        return np.arange(len(plan)), u
    together = _BatchedCalls(model, plan)
    lanes = [_Lane(together, lane, int(row), upper[lane]) for lane, row in enumerate(target)]
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(_Lane.run, lanes, u, repeat(rounds)))
    result, places = zip(*together.seen, strict=True)
    return np.concatenate(result), np.concatenate(places)


PART = 1 << 16  # designs at once
VALUES = 64  # of each variable among them: what one or two variables decide is computed once for these, not for each
AT_RANDOM = 0.5  # share of the designs that are drawn from the whole space; the rest lie around the best so far
ROUNDS = 8  # in which the latter are drawn, ever nearer
WIDEST, NEAREST = 0.3, 0.01  # of a coordinate, in the first of these rounds and in the last
BEST, EXTREME = 50, 8  # designs polished: the best, and those with the least of each target
ROUNDING = 1e-9  # log below the bound that rounding may explain
SHARING = 1 << 13  # designs at least, for tables of the values that they share to be worth while
COMPARED = 256  # of so many, priced without tables too
ONE_IN = 7  # of so many designs that fail in the hardest case one is priced in all: the inequality is tested there, too
FEW_CASES = 16  # with more, fewer designs are priced at once: rows of all cases are kept together
CONVEX = 1e-9  # log by which weighted tangents may exceed weighted rows, for rounding
PENALTY = 8.0  # of a unit of log-violation, where designs are ranked
CORNERS, POINTS = 0.25, 0.25  # shares of random designs at corners of the box, and where the certificate linearised

Pool = tuple[np.ndarray, np.ndarray, np.ndarray]  # ranks, plan places and coordinates of the best for an aim


@dataclass(frozen=True)
class AttackTarget:
    """Target of an attack: a row to minimise, for which some of the best designs are kept and polished.

    upper: what each row but the goal's may be at most, in the order of the model's rows.
    """

    row: int
    most: int
    upper: Float[np.ndarray, " rows"]

    def rank(self, rows: Float[np.ndarray, "designs rows"]) -> Float[np.ndarray, " designs"]:
        """The row, and what is broken at a price; inf where it is no number."""
        broken = np.maximum(rows[:, 1 : 1 + len(self.upper)] - self.upper, 0.0).sum(axis=1)
        result = rows[:, self.row] + PENALTY * broken
        return np.where(np.isfinite(result), result, np.inf)


def aims_of(model: CheckedModel) -> list[AttackTarget]:
    """The goal, then the least of each target: a goal may have its cliff there."""
    levels = np.full(len(model.levelled), np.inf)
    upper = np.concatenate([np.zeros(len(model.constraints)), levels])
    return [
        AttackTarget(0, BEST, upper),
        *(AttackTarget(row, EXTREME, upper) for row in range(model.bounded, len(model.names))),
    ]


@dataclass
class Attack:
    """Designs that were tried, and the best of them.

    Args:
        model: evaluates.
        lists: values of each plan field.
        listed: places of legal plans of the study, each with any of the values of listed variables.
        low, high: places of the plans that nodes of a certificate stand for, as ranges; none without one.
        below: rows of feasible designs -> log by which each is better than is claimed to be possible.
        aims: what the best designs are kept for, the goal first.
        start: plan places and coordinates of designs to begin with, if there are any.
        certificate, sums, covered: tested at each design too, where given.
        listed_fully: whether each design has a bound of its own, derived anew, so that few are tried.
        hardest: the case in which fewest random designs hold; one that fails there says nothing against the claim.
    """

    model: CheckedModel
    lists: list[np.ndarray]
    listed: Int[np.ndarray, "plans fields"]
    low: Int[np.ndarray, "nodes fields"]
    high: Int[np.ndarray, "nodes fields"]
    below: Callable[[np.ndarray], np.ndarray]
    aims: list[AttackTarget]
    start: tuple[np.ndarray, np.ndarray] | None = None
    certificate: Derivation | None = None
    sums: WeightedSums | None = None
    covered: PlanCover | None = None
    listed_fully: bool = False
    hardest: int = 0
    tried: int = 0
    feasible: int = 0
    held: int = 0
    best: float = np.inf
    design: tuple[np.ndarray, np.ndarray] | None = None
    beaten: tuple[float, np.ndarray, np.ndarray] = (ROUNDING, np.zeros(0), np.zeros(0))  # the claim, by a design
    worst: tuple[float, int, np.ndarray, np.ndarray] = (0.0, -1, np.zeros(0), np.zeros(0))
    pools: list[Pool] = field(default_factory=list[Pool])

    def run(self, count: int, rng: np.random.Generator, report: Callable[[int, int], None]) -> None:
        """Try so many designs; `best` and `design` are the least goal of a feasible one."""
        if self.start is not None:
            self.take(*self.start)
        first = int(AT_RANDOM * count)
        cases = self.model.cases
        count_of = 1 if cases is None else len(cases.scenarios)
        part = max(PART // max(count_of // FEW_CASES, 1), 2 * SHARING)
        if cases is not None:
            index, u, _ = self._anywhere(COMPARED, rng)
            self.hardest = int(self.model.holds(self._values(index), u).sum(axis=1).argmin())
        while self.tried < first:
            report(self.tried, count)
            self.take(*self._anywhere(min(part, first - self.tried), rng), sharing=True)
        for k, width in enumerate(np.geomspace(WIDEST, NEAREST, ROUNDS)):
            until = first + (count - first) * (k + 1) // ROUNDS
            while self.tried < until:
                report(self.tried, count)
                self.take(*self._around(min(part, until - self.tried), float(width), rng), sharing=True)
        report(count, count)

    def compare(self, count: int, rng: np.random.Generator) -> float:
        """Largest distance between random designs priced with tables, as they all are, and the same priced without.

        Few designs are priced without tables, which would hold the numbers of every plan.
        """
        if self.listed_fully and count < SHARING:
            self.model.tabled = False
            return 0.0
        index, u, _ = self._anywhere(SHARING, rng)
        return self.model.disagreement(self._values(index), u, COMPARED)

    def polish(self, share: float = 1.0, rounds: int = POLISH_ROUNDS) -> int:
        """Let SciPy improve a share of the best designs, and of those that are extreme otherwise; says how many."""
        if not self.pools:
            return 0
        indices, u, target, upper = (list[np.ndarray]() for _ in range(4))
        for aim, (_, places, coordinates) in zip(self.aims, self.pools, strict=True):
            some = math.ceil(share * len(places))
            places, coordinates = places[:some], coordinates[:some]
            indices.append(places)
            u.append(coordinates)
            target.append(np.full(len(places), aim.row))
            upper.append(np.broadcast_to(aim.upper, (len(places), len(aim.upper))))
        places, start = np.concatenate(indices), np.concatenate(u)
        aims, limits = np.concatenate(target), np.concatenate(upper)
        lane, there = polish(self.model, self._values(places), start, aims, limits, rounds)
        self.take(places[lane], there)
        return len(places)

    def _values(self, index: np.ndarray) -> np.ndarray:
        columns = [values[index[:, j]] for j, values in enumerate(self.lists)]
        return np.stack(columns, axis=-1) if columns else np.zeros((len(index), 0))

    def _anywhere(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Random plans, half of them as they are listed, half from random nodes; hardware anywhere and at the edges."""
        index, node = self.listed[rng.integers(0, len(self.listed), count)], np.full(count, -1)
        if self.covered is not None and self.certificate is not None:
            node = self.covered.nodes(self.certificate, index)
        if len(self.low):
            size = (self.high - self.low + 1).prod(axis=1).astype(float)
            some = rng.choice(len(self.low), count, p=size / size.sum())
            some[::2] = rng.integers(0, len(self.low), len(some[::2]))
            inside = rng.integers(self.low[some], self.high[some] + 1)
            inside_node = rng.uniform(size=count) < 0.5
            index, node = np.where(inside_node[:, None], inside, index), np.where(inside_node, some, node)
        width = len(self.model.variables)
        u = rng.uniform(size=(VALUES, width))[rng.integers(0, VALUES, (count, width)), np.arange(width)]
        kind = rng.uniform(size=count)
        u[kind < CORNERS] = np.round(u[kind < CORNERS])
        if self.certificate is not None and len(self.certificate.u):
            there = np.flatnonzero(kind > 1 - POINTS)
            few = rng.choice(self.certificate.u, VALUES)
            u[there] = few[rng.integers(0, VALUES, len(there))]
        return index, u, node

    def _around(self, count: int, width: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Designs near the best: some fields changed, coordinates moved, some of them to an edge."""
        share = [self.pools[int(i)] for i in rng.permutation(len(self.pools))]
        per = -(-count // (len(share) + 1))
        places, coordinates = list[np.ndarray](), list[np.ndarray]()
        for pool in (self.pools[0], *share):  # the goal's pool twice
            chosen = rng.integers(0, len(pool[1]), per)
            places.append(pool[1][chosen])
            coordinates.append(pool[2][chosen])
        index, u = np.concatenate(places)[:count], np.concatenate(coordinates)[:count]
        sizes = np.array([len(values) for values in self.lists], dtype=int)
        if len(sizes):
            anew, step = rng.integers(0, sizes, index.shape), index + rng.integers(-1, 2, index.shape)
            change = rng.uniform(size=index.shape) < rng.choice([0.0, 0.1, 0.3], (count, 1))
            far = rng.uniform(size=index.shape) < 0.5
            index = np.where(change, np.where(far, anew, np.clip(step, 0, sizes - 1)), index)
        moved = np.clip(u + width * rng.normal(size=u.shape), 0.0, 1.0)
        stays = rng.uniform(size=u.shape) < rng.choice([0.0, 0.5], (count, 1))
        return index, _of_few_values(np.where(stays, u, moved), rng)

    def take(self, index: np.ndarray, u: np.ndarray, node: np.ndarray | None = None, *, sharing: bool = False) -> None:
        """Evaluate, compare with the limit, test the inequality of each design's node, keep what is good."""
        self.tried += len(index)
        give_back()
        if sharing and self.model.cases is not None:
            some = self._worth(index, u)
            index, u, node = index[some], u[some], None if node is None else node[some]
        result = self.model.exact(self._values(index), u, sharing=sharing and len(index) >= SHARING)
        if node is None and self.certificate is not None and self.covered is not None:
            node = self.covered.nodes(self.certificate, index)
        goal = np.where(result.feasible, result.rows[:, 0], np.inf)
        excess = np.full(len(index), -np.inf)
        excess[result.feasible] = self.below(result.rows[result.feasible])
        self.feasible += int(np.isfinite(goal).sum())
        least = int(np.argmin(goal))
        if goal[least] < self.best:
            self.best, self.design = float(goal[least]), (index[least].copy(), u[least].copy())
        most = int(np.argmax(excess))
        if excess[most] > self.beaten[0]:
            self.beaten = float(excess[most]), index[most].copy(), u[most].copy()
        if node is not None:
            self._compare(node, index, u, result)
        self._pool(index, u, result)

    def _worth(self, index: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Numbers of the designs that are priced in all cases: those that hold in the hardest, and one in a few."""
        holds = self.model.holds(self._values(index), u, self.hardest, sharing=len(index) >= SHARING)[0]
        return np.flatnonzero(holds | (np.arange(len(index)) % ONE_IN == 0))

    def _compare(self, node: np.ndarray, index: np.ndarray, u: np.ndarray, exact: ExactRows) -> None:
        """The weighted tangents of a design's node may not lie above its weighted rows."""
        covered = np.flatnonzero(node >= 0)
        if self.sums is None or len(covered) == 0:
            return
        self.held += len(covered)
        excess = self.sums.excess(node[covered], u[covered], exact.rows[covered])
        excess = np.nan_to_num(excess, nan=np.inf, posinf=np.inf, neginf=-np.inf)
        at = int(np.argmax(excess))
        if excess[at] > max(self.worst[0], CONVEX):
            lane = covered[at]
            self.worst = float(excess[at]), int(node[lane]), index[lane].copy(), u[lane].copy()

    def _pool(self, index: np.ndarray, u: np.ndarray, exact: ExactRows) -> None:
        """Keep the best for each aim."""
        for k, aim in enumerate(self.aims):
            ranks, most = aim.rank(exact.rows), aim.most
            first = np.argpartition(ranks, min(most, len(ranks)) - 1)[:most]
            rank, places, coordinates = ranks[first], index[first], u[first]
            if k < len(self.pools):
                before = self.pools[k]
                rank = np.concatenate([before[0], rank])
                places, coordinates = np.concatenate([before[1], places]), np.concatenate([before[2], coordinates])
            order = np.argsort(rank, kind="stable")[:most]
            pool = rank[order], places[order], coordinates[order]
            self.pools[k : k + 1] = [pool]

    def refuse(self, described: Callable[[np.ndarray, np.ndarray], str], claimed: str) -> None:
        """Raise what was found against the claim.

        Raises:
            Refuted: a design below the bound; or one where the inequality does not hold that a bound rests on.
        """
        if self.beaten[0] > ROUNDING:
            raise Refuted(f"{claimed}, but a feasible design has {described(*self.beaten[1:])}")
        excess, node, index, u = self.worst
        if node >= 0 and self.certificate is not None:
            raise Refuted(
                f"{self.certificate.named(node)}: the weighted tangents that bound it lie {excess:.2g} above the model"
                f" at a design, so the model is not log-convex there or its values have no order: {described(index, u)}"
            )


def _of_few_values(u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Coordinates moved to the nearest of a few of their own variable, drawn among them; few designs keep their own."""
    if len(u) <= VALUES:
        return u
    near = np.empty_like(u)
    for j, column in enumerate(u.T):
        few = np.unique([0.0, 1.0, *rng.choice(column, VALUES)])
        near[:, j] = few[np.searchsorted((few[1:] + few[:-1]) / 2, column)]
    return near


def sample(table: Float[np.ndarray, "plans fields"], lists: list[np.ndarray]) -> np.ndarray:
    """Places of plans given by their values."""
    places = [np.searchsorted(values, table[:, j]) for j, values in enumerate(lists)]
    return np.stack(places, axis=-1) if places else np.zeros((len(table), 0), dtype=int)
