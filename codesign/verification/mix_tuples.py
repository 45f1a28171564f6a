"""Tuples that rounds of duals leave: bounded box by box of hardware, every bound by multipliers checked here.

A linear programme over shares of the plans left, their tangents and the blend's, gives multipliers; what they prove is
worked out anew, as of a round of duals. A part that they do not prove is cut in two where its plans want different
hardware, or, where few tuples are left, taken tuple by tuple. So the solver's word is not needed, only its proposals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from ..curvature import TOLERATED
from .goals_blended import CheckedBlend
from .inequality import UNIT, summed
from .mix_bound import constants, sum_below
from .mix_derivation import Duals
from .mix_programme import PRECISE, Cuts, Region, SolvedTuples, TupleProgramme

MOST_PARTS = 600  # boxes and tuples, after which a mixed-integer solver is asked
FEW = 24  # tuples that are taken one by one
LEAST_SIDE = 0.1  # of a box: how near to its edge it may be cut
BLENDED = 6  # rounds in which the blend is linearised once more where a programme has its solution


@dataclass(frozen=True)
class FoundTuple:
    """Bound of the tuples: none lies below `bound`; parts that were bounded; `trusted`: a solver's word is in it."""

    bound: float
    parts: int
    trusted: bool = False


def bounded(
    cuts: Sequence[Cuts],
    blend: CheckedBlend,
    points: Float[np.ndarray, "points workloads"],
    target: float,
    told: Callable[[int, int], None],
    most: int = MOST_PARTS,
) -> FoundTuple:
    """Bound all tuples by the target; where that fails, by what a mixed-integer solver says.

    Args:
        cuts: of each workload.
        blend: of their goals.
        points: logs of goals at which the blend is linearised at first.
        target: log that no tuple should lie below.
        told: hears how many parts are done.
        most: parts.
    """
    width, done = int(cuts[0].u.shape[1]), 0
    start = Region(np.zeros(width), np.ones(width), [np.arange(each.count) for each in cuts])
    waiting, programme = [start], TupleProgramme(cuts, blend, points)
    while waiting:
        region = waiting.pop()
        told(done, done + len(waiting) + 1)
        bound, region, solved = _proven(programme, region, target)
        done += 1
        if bound >= target:
            continue
        if done >= most or region.tuples == 1:
            return FoundTuple(programme.whole(start), done, trusted=True)
        waiting += _split(region, solved)
    return FoundTuple(target, done)


def _proven(programme: TupleProgramme, region: Region, target: float) -> tuple[float, Region, SolvedTuples | None]:
    """(a bound of the region's tuples, the region without plans whose tuples reach the target, the programme)."""
    bound, solved = -np.inf, None
    for _ in range(BLENDED):
        solved = programme.relaxed(region)
        if solved is None:
            break
        bound, region = _checked(programme, solved, region, target)
        off = programme.blend.tangent(solved.logs)[0] - solved.value
        if bound >= target or off < PRECISE or not programme.linearise(solved.logs):
            break
    return bound, region, solved


def _checked(programme: TupleProgramme, solved: SolvedTuples, region: Region, target: float) -> tuple[float, Region]:
    """(what these multipliers prove of the region's tuples, the region without plans whose tuples reach the target)."""
    cuts = programme.cuts
    each = solved.blend
    if each.sum() <= 0:
        return -np.inf, region
    duals = Duals(programme.points, each / each.sum(), solved.slopes)
    constant, weights = constants(duals, programme.blend)
    own, binding, place = programme.rows(region)
    lower, goals, limits = list[np.ndarray](), 0, 0
    for k, (kept, (cut, row)) in enumerate(zip(own, binding, strict=True)):
        goal, limit = solved.goal[goals : goals + len(kept)], solved.limit[limits : limits + len(cut)]
        goals, limits = goals + len(kept), limits + len(cut)
        count = len(region.plans[k])
        of_goal, of_limit = place[k][cuts[k].plan[kept]], place[k][cuts[k].plan[cut]]
        goal = _scaled(goal, of_goal, count, weights[k])
        node, weight = np.concatenate([of_goal, of_limit]), np.concatenate([goal, limit])
        at, rows = np.concatenate([kept, cut]), np.concatenate([np.zeros(len(kept), dtype=int), row])
        result = summed(node, weight, cuts[k].value[at, rows], cuts[k].slope[at, rows], cuts[k].u[at], count, TOLERATED)
        lower.append(_least(*result, solved.slopes[k], region))
    least = [float(values.min(initial=np.inf)) for values in lower]
    floors = [
        sum_below([constant, *(least[j] for j in range(len(cuts)) if j != k)], lower[k]) for k in range(len(cuts))
    ]
    bound = max(float(floor.min(initial=np.inf)) for floor in floors)
    if bound >= target:
        return bound, region
    left = [mine[~(floor >= target)] for mine, floor in zip(region.plans, floors, strict=True)]
    return bound, replace(region, plans=left)


def _scaled(goal: np.ndarray, plan: np.ndarray, count: int, weight: float) -> np.ndarray:
    """Multipliers of goal rows, scaled so that they add to `weight` for every plan; all alike where there are none."""
    total = np.bincount(plan, weights=goal, minlength=count)
    alone = 1.0 / np.maximum(np.bincount(plan, minlength=count), 1)
    known = total > 1e-9 * weight
    return weight * np.where(known[plan], goal / np.where(known, total, 1.0)[plan], alone[plan])


def _least(
    constant: np.ndarray, slopes: np.ndarray, doubt: np.ndarray, leaning: np.ndarray, region: Region
) -> np.ndarray:
    """The least over the box of each weighted sum of tangents, leaned; rounded down."""
    total = slopes + leaning
    least = constant - doubt + np.minimum(total * region.low, total * region.high).sum(axis=1)
    size = np.abs(constant) + (np.abs(slopes) + np.abs(leaning)).sum(axis=1)
    return least - 8 * (len(leaning) + 2) * UNIT * size


def _split(region: Region, solved: SolvedTuples | None) -> list[Region]:
    """Tuple by tuple where they are few; else the box cut across the variable in which its plans differ most."""
    if 1 < region.tuples <= FEW:
        k = int(np.argmax([len(mine) for mine in region.plans]))
        return [
            replace(region, plans=[mine if j != k else mine[i : i + 1] for j, mine in enumerate(region.plans)])
            for i in range(len(region.plans[k]))
        ]
    side = region.high - region.low
    middle, spread = 0.5 * (region.low + region.high), side
    if solved is not None:
        at = solved.places / np.maximum(solved.shares, 1e-9)[:, None]
        mean = solved.places[solved.owner == 0].sum(axis=0)
        spread = (solved.shares[:, None] * np.abs(at - mean)).sum(axis=0)
        spread = spread if spread.max(initial=0.0) > 1e-6 else side
        middle = np.clip(mean, region.low + LEAST_SIDE * side, region.high - LEAST_SIDE * side)
    i = int(np.argmax(spread))
    high, low = region.high.copy(), region.low.copy()
    high[i] = low[i] = middle[i]
    return [replace(region, high=high), replace(region, low=low)]
