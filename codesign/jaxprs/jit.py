"""Compilation of large functions by `jax.jit` with faster compile options."""

import functools
from collections.abc import Callable
from typing import Any

import jax

__all__ = ["quick_jit", "traced_alone"]

OPTIONS = {"xla_cpu_use_fusion_emitters": False}  # halves the compile time of large programs on the CPU

UNOPTIMISED = OPTIONS | {"xla_backend_optimization_level": 0}  # not its fast preset: writing that to a cache may crash


@functools.cache
def _known_options(once: bool) -> dict[str, Any]:
    """Compile options that this version of the compiler knows."""
    return {name: value for name, value in (UNOPTIMISED if once else OPTIONS).items() if _is_known(name, value)}


def _is_known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options={name: value})(0.0)
    except Exception:  # the compiler names unknown options by an error of its own, not of Python's
        return False
    return True


def quick_jit(function: Callable[..., Any], *, once: bool = False) -> Callable[..., Any]:
    """`jax.jit` for a large function: compiles about twice as fast on the CPU, runs about as fast.

    Args:
        once: it runs once or twice on little data; compiled in half the time again, it runs several times slower.
    """
    return jax.jit(function, compiler_options=_known_options(once))


def traced_alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Shapes of what a function returns: JAX traces it, and whatever it refuses is raised; nothing is computed."""
    return jax.eval_shape(function, *arguments)
