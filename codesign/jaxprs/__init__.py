"""Traced programs: a flat form of a jaxpr, its primitives in NumPy, evaluation, code generation."""
