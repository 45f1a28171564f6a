"""Every operation that a traced program is made of: by NumPy, as a loop of others, or by JAX what neither does."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import numpy_primitives as by_numpy
from . import trailing_axes as points_behind
from .loops import LOOPS, loop

__all__ = ["behind", "doer", "knows"]


def knows(primitive: Any) -> bool:
    """True if NumPy does it, or it is a loop; others are run by JAX too, a hundred times slower, without need."""
    return primitive.name in LOOPS or by_numpy.knows(primitive)


def doer(
    primitive: Any, params: dict[str, Any], kinds: Sequence[Any], lead: int = 0, *, alike: bool = False
) -> Callable[..., Any]:
    """`numpy_primitives.doer`, of loops too."""
    if primitive.name in LOOPS:
        return functools.partial(loop(primitive, params).at, lead)
    return by_numpy.doer(primitive, params, kinds, lead, alike=alike)


def behind(primitive: Any, params: dict[str, Any], kinds: Sequence[Any], lead: int) -> Callable[..., Any]:
    """`trailing_axes.behind`, of loops too."""
    if primitive.name in LOOPS:
        return functools.partial(loop(primitive, params).at_behind, lead)
    return points_behind.behind(primitive, params, kinds, lead)
