"""Curvature as a type: what the traced model is, by rules, for every legal plan and the whole box of hardware."""

from .judgement import ROUNDING as ROUNDING
from .judgement import TOLERATED as TOLERATED
from .judgement import Judgement as Judgement
from .judgement import judge as judge
from .rounding import Rounding as Rounding
from .values import AFFINE as AFFINE
from .values import CONCAVE as CONCAVE
from .values import CONVEX as CONVEX
from .values import Value as Value
from .walk import Walk as Walk

__all__ = [
    "AFFINE", "CONCAVE", "CONVEX", "ROUNDING", "TOLERATED", "Judgement", "Rounding", "Value", "Walk", "judge",
]  # fmt: skip
