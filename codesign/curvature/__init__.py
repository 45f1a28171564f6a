"""Curvature as a type: what the traced model is, by rules, for every legal plan and the whole box of hardware."""

from .rounding import Rounding as Rounding
from .values import AFFINE as AFFINE
from .values import CONCAVE as CONCAVE
from .values import CONVEX as CONVEX
from .values import Value as Value
from .walk import ROUNDING as ROUNDING
from .walk import TOLERATED as TOLERATED
from .walk import Judgement as Judgement
from .walk import Walk as Walk
from .walk import judge as judge

__all__ = [
    "AFFINE", "CONCAVE", "CONVEX", "ROUNDING", "TOLERATED", "Judgement", "Rounding", "Value", "Walk", "judge",
]  # fmt: skip
