"""Tuples of plans of several workloads on one hardware, as one oracle: with the plans fixed, one convex programme.

Source: see docs/optimisation.md, section 6.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ..blend import Blend
from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding
from ..branch_and_bound.incumbent import Incumbent, keeps
from ..branch_and_bound.oracle import GOAL, AbstractOracle, Tangents
from ..branch_and_bound.programme import Programme
from ..settings import MIX


@dataclass(frozen=True)
class Seen:
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
    seen: dict[int, list[Seen]] = field(default_factory=dict[int, list[Seen]])

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
            sharp = np.broadcast_to(np.asarray(sharpness, dtype=float), len(plan)).tolist()
            for i, p in enumerate(plan.tolist()):
                known = self.seen.setdefault(p, [])
                known.append(Seen(u[i].copy(), exact[i], affine[i], sharp[i]))
                if len(known) > MIX.most_kept:
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
        asked = np.column_stack([plan, np.broadcast_to(sharpness, len(plan)), u])
        _, first, back = np.unique(asked, axis=0, return_index=True, return_inverse=True)
        exact, affine = self.members[k].tangents(plan[first], u[first], asked[first, 1])
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
        looks = bounding.own.looks(left)
        bounding.refine(left[np.argsort(looks, kind="stable")[: max(MIX.tuples, len(tuples) >> max(done - 1, 0))]])
    return bounding
