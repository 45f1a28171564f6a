"""What single precision cannot decide in an exhaustive search: found by controls, priced again in double precision.

Single precision leaves every number wrong by some 1e-7. Where the model asks whether anything is left at all, or
rounds up, that can take another branch, and then a goal is wrong by per cents. Both are looked for in every block: each
plan is priced once more in double precision, at one level of the hardware. From these controls follow

    rounding    the largest error so far of a plan that took the same branch (an error of at most SLIP)
    margin      FACTOR rounding, the error that single precision is trusted with

and priced in double precision, before anything is learnt from the block, are all levels of a plan that slipped, points
whose largest violation lies within the margin of what is feasible, and points within twice the margin of the best. So
the best point and the feasibility of every point are those of a search in double precision.

Assumes: a branch is taken by a plan at all of its levels or at none; no rounding is FACTOR times that of the controls
(on the shipped studies the largest of 10^6 points is 1.7 times that of the first 341).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from ..objective import TOLERANCE
from .stream import Block, Kept

LEAST = 4 * float(np.finfo(np.float32).eps)  # rounding of a few operations, whatever the controls show
SLIP = 1e-5  # an error beyond is another branch: rounding of whole models stays below 1e-6
FACTOR = 16.0

Exact = Callable[[Int[np.ndarray, "points 2"]], tuple[np.ndarray, ...]]
"""(plan, level) pairs -> log goal, excess and the two quantities of the front, in double precision."""


def settle(block: Block, exact: Exact, kept: Kept) -> None:
    """Put exact numbers into a screened block wherever single precision might decide wrongly.

    Args:
        block: screened in single precision; changed in place.
        exact: prices points in double precision.
        kept: what is known so far; its `rounding` is brought up to date.
    """
    columns = np.random.default_rng([int(block.plan[0]), int(block.level[0])]).integers(
        len(block.level), size=len(block.plan)
    )
    controls = np.zeros(block.goal.shape, dtype=bool)
    controls[np.arange(len(columns)), columns] = True
    seen = block.goal[controls], block.excess[controls]  # in the order of the plans: one a row
    replace(block, controls, exact)
    errors = errors_of(seen, (block.goal[controls], block.excess[controls]))
    slipped = ~(errors <= SLIP)
    kept.rounding = np.maximum(kept.rounding, errors[~slipped].max(initial=LEAST))
    replace(block, undecided(block, FACTOR * float(kept.rounding), kept.least) | slipped[:, None], exact)


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
