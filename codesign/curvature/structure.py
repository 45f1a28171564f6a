"""Rules of operations that move, join or reduce entries of arrays."""

import math
from collections.abc import Sequence
from typing import Any

from .arithmetic import multiply, summed
from .choices import decided_number, known_directions
from .values import CONCAVE, CONVEX, Value, joined, made, unknown

MOVES = (*("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "copy", "copy_p"),)
"""Operations that only move the entries of their first argument."""
JOINS = ("concatenate", "stack", "pad")
"""Operations that put the entries of their arguments beside each other."""
PICKS = ("gather", "dynamic_slice", "take")
"""Operations that pick entries of their first argument at places that the others say."""


def split(a: Value, outputs: int) -> list[Value]:
    """Parts of an array."""
    return [a] * outputs


def pick(a: Value, *places: Value) -> Value:
    """Entries at places; varied places choose, and a place beyond the end may stand for zero."""
    if not all(place.constant for place in places):
        return unknown(min(a.low, 0.0), max(a.high, 0.0), "entries picked at places that change with the hardware")
    bits = -1
    for place in places:
        bits &= place.up & place.down  # what moves a place may move the value any way
    return known_directions(joined([a, decided_number(0.0)]), bits, bits)


def reduced(name: str, a: Value, shape: Sequence[int], params: dict[str, Any]) -> Value:
    """Sums, products, maxima and minima along axes."""
    if name == "cumsum":
        whole = summed(a, shape[int(params["axis"])])
        return joined([a, whole])
    axes: Sequence[int] = params["axes"]
    count = math.prod(shape[axis] for axis in axes)
    if name == "reduce_sum":
        return summed(a, count)
    if name == "reduce_max":
        return made(a.low, a.high, plain=a.plain & CONVEX, log=a.whole & CONVEX, up=a.up, down=a.down)
    if name == "reduce_min":
        return made(a.low, a.high, plain=a.plain & CONCAVE, log=a.whole & CONCAVE, up=a.up, down=a.down)
    result = a
    for _ in range(count - 1):
        result = multiply(result, a)
    return result


def contracted(a: Value, b: Value, shape: Sequence[int], params: dict[str, Any]) -> Value:
    """`dot_general`: sums of products."""
    axes: Sequence[int] = params["dimension_numbers"][0][0]
    return summed(multiply(a, b), math.prod(shape[axis] for axis in axes))
