"""Traced programs: a flat form of a jaxpr, its primitives in NumPy, evaluation, code generation."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import evaluator
    from .evaluator import interpreted, quick_jit
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["evaluator", "interpreted", "quick_jit"]
