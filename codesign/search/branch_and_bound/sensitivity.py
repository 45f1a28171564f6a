"""Sensitivity of the optimum: what binds it and what more would bring, solved again under moved constraints.

Moving a bound only adds a constant to its row, so every tangent of a plan serves all moves at once. The optimum of one
plan is a convex function of the moves; its slopes on both sides of zero are the one-sided elasticities, which differ
where a kink or another constraint lies at the optimum. Over all plans the optimum may change its plan: that is why a
large move is solved over the best plans, and not extrapolated.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...study.objective import feasible_logs
from . import interior_point as interior
from .bounding import REFERENCE_SHARPNESS, Bounding

SMALL = 1e-3  # log of the move that measures a slope
MOVES = (0.003, 0.01, 0.03, 0.1)  # logs of the moves over which a slope is tested
LINEAR = 1e-4  # log of the goal by which a slope may miss


@dataclass(frozen=True)
class Resource:
    """One constraint at the optimum.

    used: share of what is allowed. fewer, more: d log goal / d log allowed when it is taken from or given to, at this
    plan. valid: logs of the moves, down and up, over which these slopes hold to 1e-4 of the goal. gained: log-change
    of the goal when a tenth more is allowed, over the best plans; `plan` is the best one then.
    """

    name: str
    used: float
    fewer: float
    more: float
    valid: tuple[float, float]
    gained: float
    plan: int


def polish(bounding: Bounding, plan: int, tolerance: float, rounds: int = 40) -> None:
    """Close the gap of one plan further."""
    if plan not in bounding.own:  # its bound came from another plan's point before it was asked for cuts of its own
        bounding.learn(np.array([plan]), bounding.feasible[plan][1][None], REFERENCE_SHARPNESS)
    keep, bounding.gap = bounding.gap, tolerance
    for _ in range(rounds):
        if plan not in bounding.own or bounding.lower[plan] >= bounding.feasible.get(plan, (np.inf,))[0] - tolerance:
            break
        bounding.refine(np.array([plan]))
    bounding.gap = keep


def optima(
    bounding: Bounding,
    plans: np.ndarray,
    moves: Float[np.ndarray, "lanes rows"],
    tolerance: float,
    rounds: int,
    rivals: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Optimum of each plan under constraints moved by these logs: (lower bound, value of the model), [lanes].

    Tangents learnt for one lane serve all lanes of its plan. A lane ends early where nothing keeps its constraints and
    more tangents do not say so more clearly.

    Args:
        bounding, plans, moves: what is solved.
        tolerance, rounds: gap at which a lane ends, and when the last does.
        rivals: lanes side by side of which only the best counts: one that cannot be it ends too.
    """
    lanes = len(plans)
    lower, upper = np.full(lanes, -np.inf), np.full(lanes, np.inf)
    pools = {p: np.array(bounding.own[p]) for p in set(plans.tolist())}
    active = np.arange(lanes)
    for _ in range(rounds):
        most = max(len(pools[p]) for p in plans[active].tolist())
        affine = np.zeros((len(active), most, moves.shape[1], bounding.width + 1))
        affine[..., 0] = interior.EMPTY
        for lane, at in enumerate(active):
            pool = pools[int(plans[at])]
            affine[lane, : len(pool)] = pool
            affine[lane, : len(pool), :, 0] -= moves[at]
        spread = np.clip(0.3 * (upper[active] - lower[active]), 1e-9, 1.0)
        solved = interior.solve(affine, np.nan_to_num(spread, nan=1.0), np.full(len(active), 0.1 * tolerance))
        before = lower[active]
        lower[active] = np.maximum(before, solved.lower)
        points = np.concatenate([solved.edge, solved.central])
        asked = np.concatenate([plans[active]] * 2)
        sharpness = np.clip(3.0 / np.concatenate([spread, spread]), 30.0, 1e7)
        exact, result = bounding.programme.tangents(asked, points, sharpness)
        at = np.concatenate([active, active])
        holds = feasible_logs((exact[:, 1:] - moves[at, 1:]).max(axis=1, initial=-np.inf))
        values = np.where(holds, exact[:, 0], np.inf)
        np.minimum.at(upper, at, values)
        for p in pools:
            pools[p] = _trimmed(pools[p], result[asked == p], solved.weights, plans[active] == p)
        hopeless = (solved.violation > tolerance) & (lower[active] - before < tolerance)
        beaten = lower > upper.reshape(-1, rivals).min(axis=1).repeat(rivals)
        active = active[(upper[active] - lower[active] > tolerance) & ~hopeless & ~beaten[active]]
        if len(active) == 0:
            break
    return lower, upper


def _trimmed(pool: np.ndarray, new: np.ndarray, weights: np.ndarray, mine: np.ndarray, most: int = 60) -> np.ndarray:
    """The tangents that some lane leant on, and the new ones."""
    if len(pool) + len(new) > most and mine.any():
        leant = weights[mine][:, : len(pool)].sum(axis=2).max(axis=0)
        pool = pool[np.sort(np.argsort(-leant, kind="stable")[: most // 2])]
    return np.concatenate([pool, new[: most // 2]])


def resources(bounding: Bounding, tolerance: float, rivals: int = 24) -> list[Resource]:
    """Every constraint of the programme at the optimum of the best plan, and what a tenth more would bring."""
    rows, best = bounding.programme.rows, bounding.plan
    exact, _ = bounding.programme.tangents(np.array([best]), bounding.u[None], 1e6)
    used = np.exp(exact[0])
    near = [i for i in range(1, len(rows)) if used[i] > 0.5]
    result = [Resource(n, float(used[i]), 0.0, 0.0, (-np.inf, np.inf), 0.0, best) for i, n in enumerate(rows)]
    if not near:
        return result[1:]
    steps = [0.0, *(sign * size for size in (SMALL, *MOVES) for sign in (-1, 1))]
    moves = np.zeros((1 + len(near) * (len(steps) - 1), len(rows)))
    lane = {(near[0], 0.0): 0}
    for i in near:
        for step in steps[1:]:
            lane[i, step] = len(lane)
            moves[lane[i, step], i] = step
    low, _ = optima(bounding, np.full(len(moves), best), moves, tolerance, rounds=40)
    gained = _tenth_more(bounding, near, tolerance, rivals)
    for i in near:
        change = {step: low[lane[i, step]] - low[0] for step in steps[1:]}
        fewer, more = -change[-SMALL] / SMALL, change[SMALL] / SMALL
        valid: list[float] = []
        for sign, slope in ((-1, fewer), (1, more)):
            holds = [s for s in MOVES if abs(change[sign * s] - slope * sign * s) <= LINEAR]
            broken = [s for s in MOVES if s not in holds]
            valid.append(sign * max([s for s in holds if not broken or s < min(broken)], default=SMALL))
        result[i] = Resource(rows[i], float(used[i]), fewer, more, (valid[0], valid[1]), *gained[i])
    return result[1:]


def _tenth_more(bounding: Bounding, near: list[int], tolerance: float, rivals: int) -> dict[int, tuple[float, int]]:
    """Row -> (log-change of the goal, plan) when a tenth more is allowed, over the plans that come closest."""
    known = np.array(sorted(bounding.own))
    known = known[bounding.programme.oracle.single(known)]
    plans = known[np.argsort(bounding.lower[known], kind="stable")[:rivals]]
    plans = plans if bounding.plan in plans else np.append(plans, bounding.plan)
    moves = np.zeros((len(near) * len(plans), len(bounding.programme.rows)))
    for k, i in enumerate(near):
        moves[k * len(plans) : (k + 1) * len(plans), i] = np.log(1.1)
    _, upper = optima(bounding, np.tile(plans, len(near)), moves, max(tolerance, 1e-4), 16, rivals=len(plans))
    upper = upper.reshape(len(near), len(plans))
    return {
        i: (float(min(upper[k].min() - bounding.upper, 0.0)), int(plans[upper[k].argmin()])) for k, i in enumerate(near)
    }
