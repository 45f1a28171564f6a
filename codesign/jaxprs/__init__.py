"""Traced programs: a flat form of a jaxpr, its primitives in NumPy, evaluation, code generation."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import evaluate as evaluate
    from .evaluate import interpreted as interpreted
    from .jit import quick_jit as quick_jit
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "evaluate": ("interpreted",),
            "jit": ("quick_jit",),
        },
        modules=("evaluate",),
    )

__all__ = ["evaluate", "interpreted", "quick_jit"]
