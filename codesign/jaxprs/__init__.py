"""Traced programs: a flat form of a jaxpr, its primitives in NumPy, evaluation, code generation."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import evaluator as evaluator
    from .evaluator import interpreted as interpreted
    from .evaluator import quick_jit as quick_jit
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "evaluator": (
                "interpreted",
                "quick_jit",
            ),
        },
        modules=("evaluator",),
    )

__all__ = ["evaluator", "interpreted", "quick_jit"]
