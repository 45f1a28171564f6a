"""The bound of a mix derived anew: rounds of duals, each bounding every plan that the rounds before have not ruled out.

With prices m_k on hardware that add to zero over the workloads k, and a tangent c + sum_k w_k x_k below the blend,

    blend(goals) >= c + sum_k min over k's plans of min over u in the cube of (w_k goal_k(u) + m_k . u)

wherever all limits hold. With one workload's plan fixed, its own least value stands in its place: what then reaches the
claim is in no tuple below the claim, and is not asked for in the next round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .derivation import Refuted
from .goals_blended import CheckedBlend
from .inequality import MODEL, SINGLE, UNIT, off, rows_in, summed
from .mix_derivation import Duals, MixDerivation, Part
from .model_answers import CheckedModel

Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Floors:
    """Floors of every plan of each workload: no tuple with it, and without plans ruled out before, lies below `floor`.

    left: plans whose floor does not reach the target. tangents: weighted, of all rounds.
    """

    floor: list[np.ndarray]
    left: list[np.ndarray]
    tangents: int

    @property
    def proven(self) -> bool:
        """No tuple lies below the target: of some workload nothing is left."""
        return any(not left.any() for left in self.left)

    @property
    def bound(self) -> float:
        """Value that no tuple lies below."""
        ruled_out = min(
            float(np.min(floor, where=~left, initial=np.inf)) for floor, left in zip(self.floor, self.left, strict=True)
        )
        return min(ruled_out, max(float(floor.min()) for floor in self.floor))


def replayed(
    certificate: MixDerivation, models: Sequence[CheckedModel], blend: CheckedBlend, target: float, told: Told
) -> Floors:
    """Floors by all rounds in order, rounded outward.

    Raises:
        Refuted: a plan that is asked for has no weights, or weights that bound nothing.
    """
    parts = certificate.parts
    left = [np.ones(len(part.plans.low), dtype=bool) for part in parts]
    floors = [np.full(len(mine), -np.inf) for mine in left]
    used = 0
    for number, duals in enumerate(certificate.rounds):
        constant, weights = constants(duals, blend)
        lower: list[np.ndarray] = []
        for k, (part, model) in enumerate(zip(parts, models, strict=True)):
            told(number * len(parts) + k, len(certificate.rounds) * len(parts))
            cuts = np.flatnonzero((part.round == number) & left[k][part.plans.node])
            used += len(cuts)
            try:
                lower.append(_leaned(part, model, cuts, left[k], weights[k], duals.slopes[k]))
            except Refuted as why:
                raise Refuted(f"{part.name}, round {number}: {why}") from why
        least = [float(each.min(initial=np.inf)) for each in lower]
        for k, mine in enumerate(left):
            others = [constant, *(least[j] for j in range(len(parts)) if j != k)]
            floors[k][mine] = np.maximum(floors[k][mine], sum_below(others, lower[k]))
        for mine, floor in zip(left, floors, strict=True):
            mine &= ~(floor >= target)
        if any(not mine.any() for mine in left):
            break
    return Floors(floors, left, used)


def constants(duals: Duals, blend: CheckedBlend) -> tuple[float, np.ndarray]:
    """(constant, weights) of the blend's tangents, less what prices on hardware that do not cancel may gain."""
    constant, weights = blend.mean(list(duals.points), duals.shares)
    size = 1.0 + float(np.abs(duals.points).max(initial=0.0)) + float(np.abs(blend.offset).max(initial=0.0))
    stray = float(np.abs(duals.slopes.sum(axis=0)).sum()) + 4 * len(weights) * UNIT * float(np.abs(duals.slopes).sum())
    return constant - stray - MODEL * size, weights


def sum_below(terms: Sequence[float], last: np.ndarray) -> np.ndarray:
    """The sum of all terms, rounded down; inf where one is."""
    size = sum(abs(t) for t in terms if np.isfinite(t)) + np.where(np.isfinite(last), np.abs(last), 0.0)
    total = sum(terms) + last
    return np.where(np.isfinite(total), total - 4 * (len(terms) + 2) * UNIT * size, total)


def _leaned(
    part: Part, model: CheckedModel, cuts: np.ndarray, asked: np.ndarray, weight: float, slope: np.ndarray
) -> Float[np.ndarray, " asked"]:
    """Below w goal + m . u of each plan asked for, wherever its limits hold; inf where they never do.

    Weights of the goal add to 1 before they are scaled by w; those of limits are what they are.
    """
    plans = part.plans
    place = np.cumsum(asked) - 1
    node, row, count = place[plans.node[cuts]], plans.row[cuts], int(asked.sum())
    goal = np.bincount(node, weights=np.where(row == 0, plans.weight[cuts], 0.0), minlength=count)
    none = np.flatnonzero(np.bincount(node, minlength=count) == 0)
    numbers = np.flatnonzero(asked)
    if len(none):
        first = plans.named(int(numbers[none[0]]))
        raise Refuted(f"{len(none):,} plans that reach less than is claimed have no weights; the first: {first}")
    wrong = np.flatnonzero((goal > 0) & (np.abs(goal - 1.0) > SINGLE))
    if len(wrong):
        at = int(wrong[0])
        raise Refuted(f"{plans.named(int(numbers[at]))}: the goal's weights add to {goal[at]:.9g}, not to 1")
    value, slopes = _tangents(part, model, cuts)
    doubts = off(model, rows_in(plans, model)[row], value)
    scaled = plans.weight[cuts] * np.where(row == 0, weight, 1.0)
    constant, slopes, doubt = summed(node, scaled, value, slopes, plans.u[plans.point[cuts]], count, doubts)
    scale = np.where(goal > 0, goal, 1.0)[:, None]
    leaning = np.where(goal > 0, 1.0, 0.0)[:, None] * slope
    total = slopes / scale + leaning
    least = (constant - doubt) / scale[:, 0] + np.minimum(total, 0.0).sum(axis=1)
    size = np.abs(constant) + (np.abs(slopes) + np.abs(leaning)).sum(axis=1)
    least -= 8 * (len(slope) + 2) * UNIT * size
    idle = np.flatnonzero((goal == 0) & ~(least > 0))
    if len(idle):
        at = int(idle[0])
        raise Refuted(
            f"{plans.named(int(numbers[at]))}: its constraints, so weighted, are {least[at]:.3g} somewhere in the box:"
            " they do not rule it out"
        )
    return np.where(goal > 0, least, np.inf)


def _tangents(part: Part, model: CheckedModel, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and slopes of the row of each of these cuts where it was linearised."""
    plans = part.plans
    row = rows_in(plans, model)[plans.row[cuts]]
    calls, call = np.unique(np.stack([plans.node[cuts], plans.point[cuts]], axis=-1), axis=0, return_inverse=True)
    call = call.reshape(-1)
    if len(calls) == 0:
        return np.zeros(0), np.zeros((0, len(model.variables)))
    at = calls[:, 1]
    value, slope = model.tangents(plans.values(plans.low[calls[:, 0]]), plans.u[at], plans.sharpness[at])
    value, slope = value[call, row], slope[call, row]
    wrong = np.flatnonzero(~(np.isfinite(value) & np.isfinite(slope).all(axis=1)))
    if len(wrong):
        cut = cuts[wrong[0]]
        raise Refuted(f"{plans.named(int(plans.node[cut]))}: row {plans.rows[plans.row[cut]]} is no number there")
    return value, slope
