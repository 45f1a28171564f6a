"""Warm start of a branch and bound: bounds, splits and designs known before it begins.

Source: see docs/optimisation.md, section 4.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .bounding import REFERENCE_SHARPNESS, Bounding
from .incumbent import Incumbent


@dataclass(frozen=True)
class WarmStart:
    """Bounds, leaves and designs to begin with; nothing of it need be given.

    lower: valid bounds of the first nodes, in order; inf of those that are asked for no more. leaf: nodes that stand
    for all plans, split as elsewhere, where there may have been fewer. incumbent: has the best design of before. plan,
    u: designs to evaluate first.
    """

    lower: Float[np.ndarray, " nodes"] | None = None
    leaf: Bool[np.ndarray, " elsewhere"] | None = None
    incumbent: Incumbent | None = None
    plan: Int[np.ndarray, " designs"] | None = None
    u: Float[np.ndarray, "designs variables"] | None = None

    def begin(self, bounding: Bounding) -> None:
        """Hand it over."""
        if self.lower is not None:
            bounding.table.raise_all(self.lower)
        if self.leaf is not None:
            bounding.table.follow(self.leaf)
        if self.plan is not None and self.u is not None:
            bounding.evaluate(self.plan, self.u, REFERENCE_SHARPNESS)


COLD = WarmStart()
