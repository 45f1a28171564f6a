"""Points that keep every constraint of a plan: edges that break one are pulled back towards them.

Source: see docs/optimisation.md, section 3.
"""

import numpy as np

from .incumbent import keeps

INSIDE = 1e-5  # log by which a point keeps every constraint that others are pulled towards


class InsidePoints:
    """Plan -> the latest point that keeps all its constraints, and its rows."""

    def __init__(self) -> None:
        self._inside: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def pulled(
        self, plan: np.ndarray, points: np.ndarray, exact: np.ndarray, upper: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(lanes, points): edges that break a constraint pulled along the line to a point inside, as far as need be.

        By convexity every constraint holds there. Of each plan there is a central point, then an edge [2 plans, ...].
        """
        count = len(plan)
        worst = exact[:count, 1:].max(axis=1, initial=-np.inf)
        for lane in np.flatnonzero(worst < -INSIDE):
            self._inside[int(plan[lane])] = (points[lane], exact[lane])
        edge, result = points[count:], exact[count:]
        asked = np.flatnonzero(~keeps(result) & (result[:, 0] < upper) & np.isfinite(result).all(axis=1))
        asked = asked[[p in self._inside for p in plan[asked].tolist()]]
        if len(asked) == 0:
            return asked, edge[:0]
        inside = [self._inside[p] for p in plan[asked].tolist()]
        u, rows = np.array([each[0] for each in inside]), np.array([each[1] for each in inside])
        over = np.maximum(result[asked, 1:], 0.0)
        share = (over / np.where(over > 0, over - np.minimum(rows[:, 1:], -1e-12), 1.0)).max(axis=1)[:, None]
        return asked, edge[asked] + share * (u - edge[asked])
