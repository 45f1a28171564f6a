"""The relaxed mix as one linear programme: convex hulls of plans side by side, joined by their hardware.

A plan p of workload k has a share x, a share-weighted hardware z in [0, x] and a share-weighted goal t. Its tangents
a + b u <= goal become a x + b z <= t (perspective), those of its constraints a x + b z <= 0. Shares of a workload add
to 1, its goals to r, its hardware to that of every other workload; the blend's tangents lie below the objective R.

    continuous x   the convex hull of all designs: its duals lean every workload's goal towards common hardware
    whole x        one plan each: the least R is a bound on all tuples of these plans

Source: [balas1979], [ceria1999]; see docs/optimisation.md, section 6 (mixes).
"""

from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float

from ..blend import Blend
from ..settings import MIX
from .alternating import Member, PlanEvaluation


@dataclass(frozen=True)
class LagrangianDuals:
    """Duals: workload k minimises weights[k] * goal + slopes[k] . u; constant + the least of all these is a bound.

    weights and constant are the mean, by `shares`, of the blend's tangents at the logs `points`.
    """

    weights: Float[np.ndarray, " members"]
    slopes: Float[np.ndarray, "members variables"]
    constant: float
    points: Float[np.ndarray, "points members"]
    shares: Float[np.ndarray, " points"]


@dataclass(frozen=True)
class MasterSolution:
    """Solution of the programme.

    shares, places, goals: share, hardware and log of the goal of each plan, one array per workload; u: the common
    hardware as each workload has it, [members, variables]; logs: their goals.
    """

    value: float
    bound: float
    shares: list[np.ndarray]
    places: list[np.ndarray]
    goals: list[np.ndarray]
    u: np.ndarray
    logs: np.ndarray
    lean: LagrangianDuals | None = None


def chosen_cuts(cuts: list[PlanEvaluation]) -> list[PlanEvaluation]:
    """The first and the latest."""
    return cuts if len(cuts) <= MIX.cuts else [cuts[0], *cuts[-MIX.cuts + 1 :]]


class MasterProgramme:
    """The programme over given plans of each workload.

    Args:
        members: the workloads.
        blend: their common goal.
        plans: plan numbers of each workload.
        points: logs of goals at which the blend is linearised, [points, members].
    """

    def __init__(self, members: list[Member], blend: Blend, plans: list[np.ndarray], points: np.ndarray):
        self.members, self.blend, self.plans, self.points = members, blend, plans, points
        self.n = len(members[0].programme.oracle.variables)
        self.values, self.slopes = blend.tangent(points)
        self.constants = self.values - (self.slopes * points).sum(axis=1)
        sizes = [len(p) for p in plans]
        self.first = np.concatenate([[0], np.cumsum(sizes)])
        self.total = int(self.first[-1])
        self._build()

    # Columns: of plan j: x at j, z at total + n j + i, t at total (n + 1) + j; then r of each workload, then R.

    def _build(self) -> None:
        total, n, K = self.total, self.n, len(self.members)
        width = total * (n + 2) + K + 1
        goals: list[np.ndarray] = []
        limits: list[np.ndarray] = []
        owner_g: list[int] = []
        owner_l: list[int] = []
        for k, member in enumerate(self.members):
            for j, plan in enumerate(self.plans[k].tolist(), start=self.first[k]):
                for seen in chosen_cuts(member.seen[plan]):
                    goals.append(seen.affine[0])
                    owner_g.append(j)
                    most = seen.affine[1:, 0] + np.maximum(seen.affine[1:, 1:], 0.0).sum(axis=1)
                    for row in np.flatnonzero(most > 0):
                        limits.append(seen.affine[1 + row])
                        owner_l.append(j)
        blocks = [self._cuts(np.array(goals), np.array(owner_g), width, goal=True)]
        if limits:
            blocks.append(self._cuts(np.array(limits), np.array(owner_l), width, goal=False))
        j = np.repeat(np.arange(total), n)
        z = total + np.arange(total * n)
        rows = np.arange(total * n)
        blocks.append(
            scipy.sparse.csr_array(
                (np.concatenate([np.ones(total * n), -np.ones(total * n)]), (np.tile(rows, 2), np.concatenate([z, j]))),
                shape=(total * n, width),
            )
        )
        cuts = len(self.constants)
        lower = np.zeros((cuts, width))
        lower[:, total * (n + 2) : width - 1], lower[:, width - 1] = self.slopes, -1.0
        blocks.append(scipy.sparse.csr_array(lower))
        self.upper_matrix = scipy.sparse.vstack(blocks, format="csr")
        self.upper_right = np.zeros(len(goals) + len(limits) + total * n + cuts)
        self.upper_right[-cuts:] = -self.constants
        self.cuts = cuts
        self._equalities(width)

    def _cuts(self, affine: np.ndarray, owner: np.ndarray, width: int, *, goal: bool) -> "scipy.sparse.csr_array":
        total, n = self.total, self.n
        rows = np.arange(len(affine))
        z = total + n * owner[:, None] + np.arange(n)
        parts = [(affine[:, 0], rows, owner), (affine[:, 1:].ravel(), np.repeat(rows, n), z.ravel())]
        if goal:
            parts.append((-np.ones(len(affine)), rows, total * (n + 1) + owner))
        data, row, column = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return scipy.sparse.csr_array((data, (row, column)), shape=(len(affine), width))

    def _equalities(self, width: int) -> None:
        total, n, K = self.total, self.n, len(self.members)
        matrix = scipy.sparse.lil_array((2 * K + n * (K - 1), width))
        for k in range(K):
            mine = np.arange(int(self.first[k]), int(self.first[k + 1]))
            matrix[k, mine] = 1.0
            matrix[K + k, total * (n + 1) + mine] = 1.0
            matrix[K + k, total * (n + 2) + k] = -1.0
            for i in range(n):
                z = total + n * mine + i
                if k == 0:
                    for other in range(1, K):
                        matrix[2 * K + n * (other - 1) + i, z] = -1.0
                else:
                    matrix[2 * K + n * (k - 1) + i, z] = 1.0
        self.equal_matrix = scipy.sparse.csr_array(matrix)
        self.equal_right = np.concatenate([np.ones(K), np.zeros(K + n * (K - 1))])
        self.low = np.full(width, -np.inf)
        self.low[: total * (n + 1)] = 0.0
        self.high = np.full(width, np.inf)
        self.high[: total * (n + 1)] = 1.0
        self.cost = np.zeros(width)
        self.cost[-1] = 1.0

    def _solution(
        self, x: np.ndarray, value: float, bound: float, lean: LagrangianDuals | None = None
    ) -> MasterSolution:
        total, n, K = self.total, self.n, len(self.members)
        shares = [x[self.first[k] : self.first[k + 1]] for k in range(K)]
        z = x[total : total * (n + 1)].reshape(total, n)
        u = np.array([z[self.first[k] : self.first[k + 1]].sum(axis=0) for k in range(K)])
        positions = np.clip(z / np.maximum(x[:total], 1e-9)[:, None], 0.0, 1.0)
        goal = x[total * (n + 1) : total * (n + 2)] / np.maximum(x[:total], 1e-9)
        places, goals = ([part[self.first[k] : self.first[k + 1]] for k in range(K)] for part in (positions, goal))
        return MasterSolution(value, bound, shares, places, goals, np.clip(u, 0.0, 1.0), x[total * (n + 2) : -1], lean)

    def relaxed(self) -> MasterSolution | None:
        """Over continuous shares, with duals; None where it has no solution."""
        result = scipy.optimize.linprog(
            self.cost, self.upper_matrix, self.upper_right, self.equal_matrix, self.equal_right,
            np.stack([self.low, self.high], axis=-1), method="highs",
        )  # fmt: skip
        if result.x is None or result.status != 0:
            return None
        K, n = len(self.members), self.n
        each = np.maximum(-result.ineqlin.marginals[-self.cuts :], 0.0)
        each = each / max(each.sum(), 1e-12)
        other = -result.eqlin.marginals[2 * K :].reshape(K - 1, n) if K > 1 else np.zeros((0, n))
        slopes = np.concatenate([-other.sum(axis=0)[None], other])
        used = each > 0
        lean = LagrangianDuals(each @ self.slopes, slopes, float(each @ self.constants), self.points[used], each[used])
        return self._solution(result.x, float(result.fun), float(result.fun), lean)

    def integer_solution(self, seconds: float, gap: float, centre: float) -> MasterSolution | None:
        """Over whole shares; `bound` holds for every tuple of these plans. None where nothing was found in time.

        `centre` is a value of about the objective's size: the gap is relative to the distance from it plus one.
        """
        right = self.upper_right.copy()
        right[-self.cuts :] += centre - 1.0
        integrality = np.zeros(len(self.cost))
        integrality[: self.total] = 1
        result = scipy.optimize.milp(
            self.cost, integrality=integrality, bounds=scipy.optimize.Bounds(self.low, self.high),
            constraints=[
                scipy.optimize.LinearConstraint(self.upper_matrix, -np.inf, right),
                scipy.optimize.LinearConstraint(self.equal_matrix, self.equal_right, self.equal_right),
            ],
            options={"time_limit": seconds, "mip_rel_gap": gap},
        )  # fmt: skip
        if result.status == 2:  # no tuple of these plans is feasible
            return MasterSolution(np.inf, np.inf, [], [], [], np.zeros((0, self.n)), np.zeros(0))
        bound = result.mip_dual_bound
        if bound is None or not np.isfinite(bound):
            return None
        bound += centre - 1.0
        if result.x is None:
            return MasterSolution(np.inf, bound, [], [], [], np.zeros((0, self.n)), np.zeros(0))
        return self._solution(result.x, float(result.fun) + centre - 1.0, bound)
