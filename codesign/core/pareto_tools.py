"""Sets of points of which none is better in everything: which they are, what they dominate, where they bend."""

import numpy as np
from jaxtyping import Float, Int


def non_dominated_rows(values: Float[np.ndarray, "points goals"]) -> Int[np.ndarray, " front"]:
    """Indices of the rows that no other row equals or beats in every column, in order of the first column.

    Of equal rows the first is kept. Less is better. A row with a NaN compares with nothing and is left out.
    """
    order = np.lexsort(values.T[::-1])
    order = order[~np.isnan(values[order]).any(axis=1)]
    if values.shape[1] == 2:  # what comes before is no worse in the first column: the second alone decides
        best = np.minimum.accumulate(values[order, 1])
        return order[np.append(np.ones(len(order[:1]), dtype=bool), values[order[1:], 1] < best[:-1])]
    selected: list[int] = []
    front = np.zeros((0, values.shape[1]))
    for i in order.tolist():  # whatever dominates a row comes before it
        if not (front <= values[i]).all(axis=1).any():
            selected.append(i)
            front = np.concatenate([front, values[i][None]])
    return np.array(selected, dtype=int)


def hypervolume(values: Float[np.ndarray, "points goals"], reference: Float[np.ndarray, " goals"]) -> float:
    """Volume between the points and a reference that is worse than all of them; less is better in every column.

    Exact: by slices along the last column, down to stairs.
    """
    inside = values[(values < reference).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    if inside.shape[1] == 1:
        return float(reference[0] - inside.min())
    if inside.shape[1] == 2:
        first, second = inside[np.argsort(inside[:, 0], kind="stable")].T
        steps = np.diff(np.append(first, reference[0]))
        return float((steps * (reference[1] - np.minimum.accumulate(second))).sum())
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    edges = np.append(inside[1:, -1], reference[-1])
    total = 0.0
    for count, (low, high) in enumerate(zip(inside[:, -1], edges, strict=True), start=1):
        if high > low:
            total += (high - low) * hypervolume(inside[:count, :-1], reference[:-1])
    return float(total)


def knee(values: Float[np.ndarray, "points goals"]) -> int:
    """Index of the point farthest from the plane through the ends of the front, towards the ideal.

    Columns are scaled to the front's range first; the ends are the rows best in one column each.
    """
    span = np.ptp(values, axis=0)
    scaled = (values - values.min(axis=0)) / np.where(span > 0, span, 1.0)
    return int(np.argmin(scaled.sum(axis=1)))


def spread_rows(values: Float[np.ndarray, "points goals"], count: int) -> Int[np.ndarray, " chosen"]:
    """Indices of so many rows far apart, the best of every column among them, in order of the first column.

    Columns are scaled to their range; each further row is the one farthest from those chosen, while any differs.
    """
    span = np.ptp(values, axis=0)
    scaled = values / np.where(span > 0, span, 1.0)
    chosen = list(dict.fromkeys(values.argmin(axis=0).tolist()))[:count]
    while len(chosen) < min(count, len(values)):
        distance = np.abs(scaled[:, None] - scaled[None, chosen]).max(axis=2).min(axis=1)
        if distance.max() <= 0:
            break
        chosen.append(int(distance.argmax()))
    chosen = np.array(chosen, dtype=int)
    return chosen[np.argsort(values[chosen, 0], kind="stable")]
