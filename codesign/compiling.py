"""How functions are compiled: for many runs, or quickly for a few."""

from collections.abc import Callable
from typing import Any

import jax

FEW_RUNS = {"xla_cpu_use_fusion_emitters": False}  # halves the compile time of large gradients on the CPU


def quick_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` for a large function that runs a few times: compiles about twice as fast, runs somewhat slower."""
    return jax.jit(function, compiler_options=FEW_RUNS)
