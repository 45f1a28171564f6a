"""Plans of several workloads on one hardware: tuples of plans as one oracle, and the search for a good tuple.

With the hardware fixed every workload's best plan is its own affair; with the plans fixed the hardware is one convex
programme. The search alternates: price plans at the best hardware found, exchange one workload's plan at a time for
those that promise most there, solve the programmes of all such tuples side by side.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from . import interior
from .ledger import HOLDS, REFERENCE_SHARPNESS, Ledger, Programme
from .mix_goal import Blend
from .oracle import GOAL, AbstractOracle, Tangents

MOST_KEPT = 24  # tangents kept of a plan
SAMPLE, STARTS, SHORTLIST = 512, 16, 16  # plans looked at first, at so many places; of them kept for later
BEAM = 4  # tuples followed at first
SHARES = (8, 2, 2, 2)  # plans exchanged for each workload: best at the multipliers' prices of violations, at 1, 8, 64
LEAST_PRICE = 0.05


@dataclass(frozen=True)
class Seen:
    """One evaluation of a plan: exact and affine rows at u."""

    u: np.ndarray
    exact: np.ndarray
    affine: np.ndarray

    @property
    def holds(self) -> bool:
        """Every constraint is kept."""
        return bool(np.isfinite(self.exact).all() and self.exact[1:].max(initial=-np.inf) <= HOLDS)


@dataclass
class Member:
    """A workload of a mix: its programme, and what was seen of its plans near good hardware."""

    name: str
    programme: Programme
    seen: dict[int, list[Seen]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Plans."""
        return self.programme.oracle.count

    def tangents(
        self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float, keep: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact and affine rows, kept for the bounds to come."""
        exact, affine = self.programme.tangents(plan, u, sharpness)
        if keep:
            for i, p in enumerate(plan.tolist()):
                known = self.seen.setdefault(p, [])
                known.append(Seen(u[i].copy(), exact[i], affine[i]))
                if len(known) > MOST_KEPT:
                    del known[1]
        return exact, affine


class JointOracle(AbstractOracle):
    """Tuples of plans, one of each workload: the blended goal, and every workload's constraints."""

    def __init__(self, members: list[Member], blend: Blend, tuples: Int[np.ndarray, "tuples members"]):
        self.members, self.blend, self.tuples, self.evaluated = members, blend, tuples, 0
        rows = [f"{m.name}.{row}" for m in members for row in m.programme.rows[1:]]
        self.names = (GOAL, *rows)

    @property
    def count(self) -> int:
        """Tuples."""
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
        found = [m.tangents(self.tuples[plan, k], u, sharpness) for k, m in enumerate(self.members)]
        goals = np.stack([exact[:, 0] for exact, _ in found], axis=-1)
        lean = np.stack([affine[:, 0] for _, affine in found], axis=1)  # points, members, coefficients
        at = lean[..., 0] + np.einsum("pmv,pv->pm", lean[..., 1:], u)
        value, slopes = self.blend.tangent(at)
        goal = np.einsum("pm,pmv->pv", slopes, lean)
        goal[:, 0] += value - (slopes * at).sum(axis=1)
        exact = np.concatenate([self.blend.value(goals)[:, None], *(e[:, 1:] for e, _ in found)], axis=1)
        affine = np.concatenate([goal[:, None], *(a[:, 1:] for _, a in found)], axis=1)
        return Tangents(exact, affine, np.zeros(len(plan)))


def solve_tuples(
    members: list[Member], blend: Blend, tuples: np.ndarray, u: np.ndarray, gap: float, upper: float, rounds: int = 14
) -> Ledger:
    """The best hardware of each of these tuples that can be better than `upper`, starting at u [tuples, variables]."""
    ledger = Ledger(Programme(JointOracle(members, blend, tuples)), gap)
    ledger.upper = upper
    plan = np.arange(len(tuples))
    ledger.keep(plan, *ledger.evaluate(plan, u, REFERENCE_SHARPNESS))
    for _ in range(rounds):
        left = ledger.open()
        if len(left) == 0:
            break
        ledger.refine(left)
    return ledger


class Alternating:
    """The search for a good tuple: `run` until no exchange of single plans helps.

    `beam` holds the best tuples with their hardware, first the best; the rounds begin with several, since workloads
    that would all gain by moving together do not move one by one.
    """

    def __init__(self, members: list[Member], blend: Blend, gap: float, seed: int):
        self.members, self.blend, self.gap = members, blend, gap
        self.rng = np.random.default_rng(seed)
        self.upper, self.plans = np.inf, np.zeros(len(members), dtype=int)
        self.u = np.full(len(members[0].programme.oracle.variables), 0.5)
        self.samples = [self._sample(m) for m in members]
        self.beam: list[tuple[float, np.ndarray, np.ndarray]] = []
        self.prices: list[np.ndarray] = [np.ones(len(m.programme.rows) - 1) for m in members]

    def _sample(self, member: Member) -> np.ndarray:
        if member.count <= SAMPLE:
            return np.arange(member.count)
        return np.sort(self.rng.choice(member.count, SAMPLE, replace=False))

    def start(self) -> None:
        """The best of tuples that are good at some hardware; what was good anywhere is looked at again later."""
        places = self.rng.choice([0.1, 0.35, 0.65, 0.9], size=(STARTS, len(self.u)))
        places[0] = 0.5
        tuples = np.zeros((STARTS, len(self.members)), dtype=int)
        for k, member in enumerate(self.members):
            sample = self.samples[k]
            asked = np.tile(sample, STARTS)
            exact, _ = member.tangents(asked, np.repeat(places, len(sample), axis=0), REFERENCE_SHARPNESS, keep=False)
            order = np.argsort(_soft(exact).reshape(STARTS, -1), axis=1, kind="stable")
            tuples[:, k] = sample[order[:, 0]]
            self.samples[k] = np.unique(sample[order[:, :SHORTLIST]])
        self.take(tuples, places)

    def take(self, tuples: np.ndarray, u: np.ndarray) -> bool:
        """Solve tuples; True where the best became better."""
        ledger = solve_tuples(self.members, self.blend, tuples, u, self.gap, self.upper)
        found = [(value, tuples[p], at) for p, (value, at) in ledger.feasible.items()]
        known = {tuple(entry[1].tolist()): entry for entry in sorted([*found, *self.beam], key=lambda e: -e[0])}
        self.beam = sorted(known.values(), key=lambda e: e[0])[:BEAM]
        if ledger.plan < 0:
            if not np.isfinite(self.upper):  # nothing feasible yet: go on from the least violation
                best = min(ledger.soft, key=lambda p: ledger.soft[p])
                self.plans = tuples[best].copy()
                self.u = np.asarray(ledger.solution.get(best, u[best]))
            return False
        better = ledger.upper < self.upper - 0.1 * self.gap
        self._learn_prices(ledger, tuples[ledger.plan])
        self.upper, self.plans, self.u = ledger.upper, tuples[ledger.plan].copy(), ledger.u.copy()
        return better

    def _learn_prices(self, ledger: Ledger, plans: np.ndarray) -> None:
        """What a unit of each workload's violation costs in its own goal, from the best tuple's multipliers."""
        weights = ledger.weights.get(ledger.plan)
        if weights is None:
            return
        at = ledger.u[None]
        goals = [m.tangents(plans[k : k + 1], at, 1e6, keep=False)[0][:, 0] for k, m in enumerate(self.members)]
        _, slopes = self.blend.tangent(np.stack(goals, axis=-1))
        ends = np.cumsum([1, *(len(m.programme.rows) - 1 for m in self.members)])
        self.prices = [
            weights[first:last] / max(slope, 1e-3) + LEAST_PRICE
            for first, last, slope in zip(ends[:-1], ends[1:], slopes[0], strict=True)
        ]

    def exchange(self, width: int = 1) -> bool:
        """One round from the best `width` tuples: single plans, and all at once, exchanged for better ones there."""
        tuples, places = [], []
        for plans, u in [(plans, u) for _, plans, u in self.beam[:width]] or [(self.plans, self.u)]:
            promising = [self._promising(k, plans, u) for k in range(len(self.members))]
            first_of = np.cumsum([0, *SHARES[:-1]])
            some = [plans, *(np.array([p[min(i, len(p) - 1)] for p in promising]) for i in first_of)]
            for k, mine in enumerate(promising):
                for plan in mine:
                    some.append(plans.copy())
                    some[-1][k] = plan
            tuples += some
            places += [u] * len(some)
        distinct, first = np.unique(np.array(tuples), axis=0, return_index=True)
        return self.take(distinct, np.array(places)[first])

    def _promising(self, k: int, plans: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Plans of a workload with the least goal plus price of what they break, at this hardware."""
        member = self.members[k]
        near = member.programme.oracle.near(int(plans[k]), 2)
        asked = np.union1d(self.samples[k], near)
        exact, _ = member.tangents(asked, np.broadcast_to(u, (len(asked), len(u))), REFERENCE_SHARPNESS, keep=False)
        prices = (self.prices[k], 1.0, 8.0, interior.ELASTIC)
        best = [
            np.argsort(_soft(exact, price), kind="stable")[:share] for price, share in zip(prices, SHARES, strict=True)
        ]
        return asked[np.concatenate(best)]

    def run(self, rounds: int = 16) -> None:
        """Alternate until nothing improves, or for so many rounds."""
        if not np.isfinite(self.upper):
            self.start()
        for width in [BEAM, BEAM // 2, *[1] * rounds][:rounds]:
            if not self.exchange(width) and np.isfinite(self.upper) and width == 1:
                break


def _soft(exact: np.ndarray, price: np.ndarray | float = interior.ELASTIC) -> np.ndarray:
    """Goal plus the price of all violations; inf where the plan is no plan."""
    over = (price * np.maximum(exact[:, 1:], 0.0)).sum(axis=1)
    return np.where(np.isfinite(exact).all(axis=1), exact[:, 0], np.inf) + over
