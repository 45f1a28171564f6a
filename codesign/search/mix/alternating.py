"""The search for a good tuple of plans, one of each workload, and their common hardware.

    start       plans at random hardware: the best of each workload, solved together
    exchange    at the best hardware, plans that promise most there at the prices of the multipliers replace one of the
                tuple's; the programmes of all such tuples are solved side by side
    kick        places around the best hardware; at each, every workload's best plan that keeps its limits there (the
                lower envelope of all plans); the tuples of the best places are solved

With the hardware fixed every workload's best plan is its own affair, so one place prices all tuples at once. An
exchange follows multipliers and moves the hardware far; a kick changes several plans together, which is what a step
across a limit asks for: less memory, say, must suit all workloads. One tangent of a plan serves all places, since what
a plan needs hardly depends on them; the plans of the envelope lead on to their neighbours.

Source: perturbation and exchange, [lourenco2003]; see docs/optimisation.md, section 6 (mixes).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ..blend import Blend
from ..branch_and_bound import interior_point as interior
from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding
from ..branch_and_bound.bounding_state import Incumbent, keeps
from ..branch_and_bound.oracle import GOAL, AbstractOracle, Programme, Tangents
from ..settings import MIX

# Tuples of plans of several workloads on one hardware, as one oracle: with the plans fixed, one convex programme.
#
# Source: see docs/optimisation.md, section 6.


@dataclass(frozen=True)
class PlanEvaluation:
    """One evaluation of a plan: exact and affine rows at u."""

    u: np.ndarray
    exact: np.ndarray
    affine: np.ndarray
    sharpness: float

    @property
    def holds(self) -> bool:
        """Every constraint is kept."""
        return bool(np.isfinite(self.exact).all() and keeps(self.exact[None])[0])


@dataclass
class Member:
    """A workload of a mix: its programme, and what was seen of its plans near good hardware."""

    name: str
    programme: Programme
    seen: dict[int, list[PlanEvaluation]] = field(default_factory=dict[int, list[PlanEvaluation]])

    @property
    def count(self) -> int:
        """Number of plans."""
        return self.programme.oracle.count

    def tangents(
        self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float, keep: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact and affine rows, kept for the bounds to come."""
        exact, affine = self.programme.tangents(plan, u, sharpness)
        if keep:
            sharp = np.broadcast_to(np.asarray(sharpness, dtype=float), len(plan)).tolist()
            for i, p in enumerate(plan.tolist()):
                cuts = self.seen.setdefault(p, [])
                cuts.append(PlanEvaluation(u[i].copy(), exact[i], affine[i], sharp[i]))
                if len(cuts) > MIX.most_kept:
                    del cuts[1]
        return exact, affine


class JointOracle(AbstractOracle):
    """Tuples of plans, one of each workload: the blended goal, and every workload's constraints."""

    def __init__(self, members: list[Member], blend: Blend, tuples: Int[np.ndarray, "tuples members"]):
        self.members, self.blend, self.tuples, self.evaluated = members, blend, tuples, 0
        rows = [f"{m.name}.{row}" for m in members for row in m.programme.rows[1:]]
        self.names = (GOAL, *rows)

    @property
    def count(self) -> int:
        """Number of tuples of plans."""
        return len(self.tuples)

    @property
    def variables(self) -> tuple[str, ...]:
        """The shared hardware."""
        return self.members[0].programme.oracle.variables

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Tuples that differ in at most so many workloads' plans."""
        return np.flatnonzero((self.tuples != self.tuples[plan]).sum(axis=1) <= changes)

    def tangents(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
    ) -> Tangents:
        """Rows of every workload side by side, below a blended goal."""
        self.evaluated += len(plan)
        result = [self._of(k, self.tuples[plan, k], u, sharpness) for k in range(len(self.members))]
        goals = np.stack([exact[:, 0] for exact, _ in result], axis=-1)
        lean = np.stack([affine[:, 0] for _, affine in result], axis=1)  # points, members, coefficients
        at = lean[..., 0] + np.einsum("pmv,pv->pm", lean[..., 1:], u)
        value, slopes = self.blend.tangent(at)
        goal = np.einsum("pm,pmv->pv", slopes, lean)
        goal[:, 0] += value - (slopes * at).sum(axis=1)
        exact = np.concatenate([self.blend.value(goals)[:, None], *(e[:, 1:] for e, _ in result)], axis=1)
        affine = np.concatenate([goal[:, None], *(a[:, 1:] for _, a in result)], axis=1)
        return Tangents(exact, affine, np.zeros(len(plan)))

    def _of(
        self, k: int, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a workload; many tuples share its plan and place, which are evaluated once."""
        queries = np.column_stack([plan, np.broadcast_to(sharpness, len(plan)), u])
        _, first, back = np.unique(queries, axis=0, return_index=True, return_inverse=True)
        exact, affine = self.members[k].tangents(plan[first], u[first], queries[first, 1])
        return exact[back], affine[back]


def solve_tuples(
    members: list[Member], blend: Blend, tuples: np.ndarray, u: np.ndarray, gap: float, upper: float, rounds: int = 14
) -> Bounding:
    """The best hardware of those of these tuples that are better than `upper`, starting at u [tuples, variables].

    From the third round on only the half that looks best goes on.
    """
    programme = Programme(JointOracle(members, blend, tuples))
    bounding = Bounding(programme, gap, incumbent=Incumbent(programme.width, upper))
    bounding.learn(np.arange(len(tuples)), u, REFERENCE_SHARPNESS)
    for done in range(rounds):
        left = bounding.open()
        if len(left) == 0:
            break
        looks = bounding.cuts.looks(left)
        bounding.refine(left[np.argsort(looks, kind="stable")[: max(MIX.tuples, len(tuples) >> max(done - 1, 0))]])
    return bounding


class Alternating:
    """The search for a good tuple: `run` until neither exchanges nor kicks help.

    `beam` holds the best tuples with their hardware, first the best; the rounds begin with several, since workloads
    that would all gain by moving together do not move one by one. `samples` are plans known to be good somewhere.
    """

    def __init__(self, members: list[Member], blend: Blend, gap: float, seed: int):
        self.members, self.blend, self.gap = members, blend, gap
        self.rng = np.random.default_rng(seed)
        self.upper, self.plans = np.inf, np.zeros(len(members), dtype=int)
        self.u = np.full(len(members[0].programme.oracle.variables), 0.5)
        self.samples = [m.programme.oracle.sample(self.rng, MIX.sample) for m in members]
        self.beam: list[tuple[float, np.ndarray, np.ndarray]] = []
        self.prices: list[np.ndarray] = [np.ones(len(m.programme.rows) - 1) for m in members]

    def run(self) -> None:
        """All steps."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[str]:
        """Start if there is no tuple, exchange, kick: what was done, after every step."""
        if not np.isfinite(self.upper):
            self.start()
            yield "start"
            self.exchange(MIX.beam)
            yield "exchange"
        yield from self.follow(enough=MIX.rather)
        vain = 0
        for _ in range(MIX.most_kicks):
            vain = 0 if self.kick() else vain + 1
            yield "kick"
            if vain == MIX.in_vain:
                return

    def follow(self, most: int = 16, enough: float = 0.0) -> Iterator[str]:
        """Exchanges from the best tuple until one brings no more than `enough`."""
        for _ in range(most):
            before = self.upper
            going = self.exchange()
            yield "exchange"
            if np.isfinite(before) and not (going and self.upper < before - enough):
                return

    def start(self) -> None:
        """The best of tuples that are good at some hardware; what was good anywhere is looked at again later."""
        places = self.rng.choice([0.1, 0.35, 0.65, 0.9], size=(MIX.starts, len(self.u)))
        places[0] = 0.5
        tuples = np.zeros((MIX.starts, len(self.members)), dtype=int)
        for k, sample in enumerate(self.samples):
            order = np.argsort(_priced(self._at(k, np.tile(sample, (MIX.starts, 1)), places)), axis=1, kind="stable")
            tuples[:, k] = sample[order[:, 0]]
            self.samples[k] = np.unique(sample[order[:, : MIX.shortlist]])
        self.take(tuples, places)

    def take(self, tuples: np.ndarray, u: np.ndarray) -> bool:
        """Solve tuples; True where the best became better."""
        distinct, first = np.unique(tuples, axis=0, return_index=True)
        tuples, u = distinct, u[first]
        bounding = solve_tuples(self.members, self.blend, tuples, u, self.gap, self.upper, MIX.rounds)
        result = [(value, tuples[p], at) for p, (value, at) in bounding.feasible.items()]
        by_plans = {tuple(entry[1].tolist()): entry for entry in sorted([*result, *self.beam], key=lambda e: -e[0])}
        self.beam = sorted(by_plans.values(), key=lambda e: e[0])[: MIX.beam]
        if bounding.plan < 0:
            if not np.isfinite(self.upper):  # nothing feasible yet: go on from the least violation
                best = min(bounding.cuts.soft, key=lambda p: bounding.cuts.soft[p])
                self.plans = tuples[best].copy()
                self.u = np.asarray(bounding.duals.point.get(best, u[best]))
            return False
        better = bounding.upper < self.upper - MIX.enough * self.gap
        self._learn_prices(bounding, tuples[bounding.plan])
        self.upper, self.plans, self.u = bounding.upper, tuples[bounding.plan].copy(), bounding.u.copy()
        return better

    def _learn_prices(self, bounding: Bounding, plans: np.ndarray) -> None:
        """Learn the price of each workload's violation in its own goal from the best tuple's multipliers."""
        weights = bounding.duals.weights.get(bounding.plan)
        if weights is None:
            return
        at = bounding.u[None]
        goals = [m.tangents(plans[k : k + 1], at, 1e6, keep=False)[0][:, 0] for k, m in enumerate(self.members)]
        _, slopes = self.blend.tangent(np.stack(goals, axis=-1))
        ends = np.cumsum([1, *(len(m.programme.rows) - 1 for m in self.members)])
        self.prices = [
            weights[first:last] / max(slope, 1e-3) + MIX.least_price
            for first, last, slope in zip(ends[:-1], ends[1:], slopes[0], strict=True)
        ]

    def exchange(self, width: int = 1) -> bool:
        """One round from the best `width` tuples: single plans, and all at once, exchanged for better ones there."""
        tuples: list[np.ndarray] = []
        places: list[np.ndarray] = []
        first_of = np.cumsum([0, *MIX.shares[:-1]])
        for plans, u in [(plans, u) for _, plans, u in self.beam[:width]] or [(self.plans, self.u)]:
            promising = [self._promising(k, plans, u) for k in range(len(self.members))]
            some = [plans, *(np.array([p[min(i, len(p) - 1)] for p in promising]) for i in first_of)]
            for k, mine in enumerate(promising):
                for plan in mine:
                    some.append(plans.copy())
                    some[-1][k] = plan
            tuples += some
            places += [u] * len(some)
        return self.take(np.array(tuples), np.array(places))

    def _promising(self, k: int, plans: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Plans of a workload with the least goal plus price of what they break, at this hardware."""
        candidates = np.union1d(self.samples[k], self.members[k].programme.oracle.near(int(plans[k]), MIX.near))
        rows = self._at(k, candidates[None], u[None])[0]
        prices = (self.prices[k], 1.0, 8.0, interior.ELASTIC)
        best = [
            np.argsort(_priced(rows, price), kind="stable")[:share]
            for price, share in zip(prices, MIX.shares, strict=True)
        ]
        return candidates[np.concatenate(best)]

    def _at(self, k: int, plans: Int[np.ndarray, "places plans"], u: Float[np.ndarray, "places n"]) -> np.ndarray:
        """Rows of a workload's plans at places, some plans at each: [places, plans, rows]."""
        points = np.repeat(u, plans.shape[1], axis=0)
        exact, _ = self.members[k].tangents(plans.ravel(), points, REFERENCE_SHARPNESS, keep=False)
        return exact.reshape(*plans.shape, -1)

    def kick(self) -> bool:
        """Solve the tuples of the best places around the best hardware."""
        places = self._around()
        plans, goals = zip(*(self._envelope(k, places) for k in range(len(self.members))), strict=True)
        best = np.argsort(self.blend.value(np.stack(goals, axis=-1)), kind="stable")[: MIX.solved]
        return self.take(np.stack(plans, axis=-1)[best], places[best])

    def _around(self) -> Float[np.ndarray, "places variables"]:
        """Places that differ from the best hardware in some variables, by little or much; the first is the best."""
        shape = MIX.places, len(self.u)
        spread = np.exp(self.rng.uniform(*np.log(MIX.spreads), size=(MIX.places, 1)))
        moved = self.rng.uniform(size=shape) < MIX.moved
        others = np.clip(self.u + spread * moved * self.rng.normal(size=shape), 0.0, 1.0)
        return np.concatenate([self.u[None], others])

    def _envelope(self, k: int, places: np.ndarray) -> tuple[Int[np.ndarray, " places"], Float[np.ndarray, " places"]]:
        """(a workload's best plan, its goal with the price of violations) at each place."""
        oracle = self.members[k].programme.oracle
        plans = np.unique(np.concatenate([self.samples[k], oracle.sample(self.rng, MIX.fresh), self.plans[k : k + 1]]))
        looks, led = self._looks(k, plans, places), plans[:0]
        for _ in range(MIX.depth):
            best, often = np.unique(plans[np.argmin(looks, axis=1)], return_counts=True)
            new = ~np.isin(best, led)
            following = best[new][np.argsort(-often[new], kind="stable")[: MIX.led]]
            led = np.concatenate([led, following])
            near = np.unique(np.concatenate([plans[:0], *(oracle.near(int(p), MIX.near) for p in following)]))
            near = np.setdiff1d(near, plans)
            if len(near) == 0:
                break
            looks = np.concatenate([looks, self._looks(k, near, places)], axis=1)
            plans = np.concatenate([plans, near])
        tried = plans[np.argsort(looks, axis=1, kind="stable")[:, : MIX.tried]]
        self.samples[k] = np.union1d(self.samples[k], tried[:, :2])
        values = _priced(self._at(k, tried, places))
        at = np.arange(len(places)), np.argmin(values, axis=1)
        return tried[at], values[at]

    def _looks(self, k: int, plans: np.ndarray, places: np.ndarray) -> Float[np.ndarray, "places plans"]:
        """Goals with the price of violations, by one tangent of each plan at the best hardware."""
        at = np.broadcast_to(self.u, (len(plans), len(self.u)))
        exact, affine = self.members[k].tangents(plans, at, REFERENCE_SHARPNESS, keep=False)
        rows = affine[..., 0] + np.tensordot(places, affine[..., 1:], axes=(1, 2))
        return np.where(np.isfinite(exact).all(axis=1), _priced(rows), np.inf)


def _priced(rows: np.ndarray, price: np.ndarray | float = interior.ELASTIC) -> np.ndarray:
    """Goal plus the price of all violations; inf where the plan is no plan."""
    over = (price * np.maximum(rows[..., 1:], 0.0)).sum(axis=-1)
    return np.where(np.isfinite(rows).all(axis=-1), rows[..., 0], np.inf) + over
