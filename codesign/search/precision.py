"""What single precision cannot decide in an exhaustive search: found by controls, priced again in double precision.

Single precision leaves every number wrong by some 1e-7. Where the model asks whether anything is left at all, or
rounds up, that can take another branch, and then a goal is wrong by per cents. Both are looked for in every block: each
plan is priced once more in double precision, at one level of the hardware. From these controls follow

    slips       errors beyond SLIP: another branch. One is enough, and the search begins again in double precision
    rounding    the largest error so far
    margin      FACTOR rounding, the error that single precision is trusted with

and priced in double precision, before anything is learnt from the block, are points whose largest violation lies within
the margin of what is feasible, and points within twice the margin of the best. So the best point and the feasibility of
every point are those of a search in double precision.

Assumes: what no control of any plan shows does not happen. (Measured on 12 shipped studies, 112 to 670,000 points each:
one, `serve_dlrm`, slips, at 3 % of its points. Rounding is at most 1.2e-6, and at most 2.5 times what 1 % exceed.)
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from ..objective import TOLERANCE
from .stream import Block, Kept

LEAST = 4 * float(np.finfo(np.float32).eps)  # rounding of a few operations, whatever the controls show
SLIP = 1e-5  # an error beyond is another branch: eight times the largest rounding that was measured
FACTOR = 16.0

Exact = Callable[[Int[np.ndarray, "points 2"]], tuple[np.ndarray, ...]]
"""(plan, level) pairs -> log goal, excess and the two quantities of the front, in double precision."""


class Slipped(Exception):
    """Single precision takes another branch than double precision somewhere in this study."""


def settle(block: Block, exact: Exact, kept: Kept) -> None:
    """Put exact numbers into a screened block wherever single precision might decide wrongly.

    Args:
        block: screened in single precision; changed in place.
        exact: prices points in double precision.
        kept: what is known so far; its `rounding` is brought up to date.

    Raises:
        Slipped: a control is wrong by more than rounding.
    """
    rng = np.random.default_rng([int(block.plan[0]), int(block.level[0])])
    controls = np.zeros(block.goal.shape, dtype=bool)
    controls[np.arange(len(block.plan)), rng.integers(len(block.level), size=len(block.plan))] = True
    seen = block.goal[controls], block.excess[controls]
    replace(block, controls, exact)
    errors = errors_of(seen, (block.goal[controls], block.excess[controls]))
    if not (errors <= SLIP).all():
        raise Slipped
    kept.rounding = np.maximum(kept.rounding, errors.max(initial=LEAST))
    replace(block, undecided(block, FACTOR * float(kept.rounding), kept.least), exact)


def errors_of(seen: tuple[np.ndarray, ...], truth: tuple[np.ndarray, ...]) -> Float[np.ndarray, " points"]:
    """Error in the log of the goal or, relatively, in the most used share, the larger; inf where one is no number."""
    (goal, excess), (right, allowed) = seen, truth
    with np.errstate(invalid="ignore"):
        both = np.abs(goal - right), np.abs(excess - allowed) / np.maximum(1 + allowed, 1.0)
    same = (goal == right), (excess == allowed)
    parts = [np.where(equal, 0.0, np.nan_to_num(part, nan=np.inf)) for equal, part in zip(same, both, strict=True)]
    return np.maximum(*parts)


def undecided(block: Block, margin: float, best: float) -> Bool[np.ndarray, "plans levels"]:
    """Which points an error of `margin` could move over a limit, or ahead of the best point known or in the block."""
    distance = (block.excess - TOLERANCE) / np.maximum(1 + block.excess, 1.0)
    sure = block.goal[(distance < -margin) & np.isfinite(block.goal)]
    ahead = block.goal <= min(best, sure.min(initial=np.inf)) + 2 * margin
    return (np.abs(distance) <= margin) | (ahead & (distance <= margin)) | np.isnan(block.excess)


def replace(block: Block, chosen: Bool[np.ndarray, "plans levels"], exact: Exact) -> None:
    """Put exact numbers at these points of a block."""
    rows, columns = np.nonzero(chosen)
    if len(rows) == 0:
        return
    found = exact(np.stack([block.plan[rows], block.level[columns]], axis=-1))
    for column, values in zip((block.goal, block.excess, *block.front), found, strict=True):
        column[rows, columns] = values
