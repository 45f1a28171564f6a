"""How large functions run that run only a few times: by NumPy, because compiling takes a hundred times as long.

JAX traces the function, with derivatives and batches as asked; each elementary operation that it wrote down is then one
call of NumPy on whole arrays. The program, and so the result, is that of the compiled function up to rounding.
"""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from .by_numpy import doer
from .compiling import quick_jit

__all__ = ["interpreted"]

PATIENCE = 32  # runs of one program that cost about what compiling it does
MANY = 16_384  # numbers in one argument: of so many points the arithmetic costs, not the operations

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Primitive that runs a program -> the parameter that holds it."""


class InterpretedStep(NamedTuple):
    """One operation: what does it, slots of inputs and outputs, slots that nobody reads afterwards."""

    does: Callable[..., Any]
    several: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    done_with: tuple[int, ...]


class InterpretedProgram(NamedTuple):
    """A traced program over numbered slots; `slots` holds its constants."""

    slots: list[Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: list[InterpretedStep]


def _doer(equation: Any) -> Callable[..., Any]:
    """What does one operation, its settings filled in."""
    name, settings = equation.primitive.name, equation.params
    kinds = [variable.aval.dtype for variable in equation.invars]
    if name in CALLS:
        return functools.partial(_run, _program(settings[CALLS[name]]))
    return doer(equation.primitive, settings, kinds)


@functools.cache
def _program(traced: Any) -> InterpretedProgram:
    """A traced program with its variables numbered."""
    jaxpr, number, slots = traced.jaxpr, {}, []

    def slot(variable: Any) -> int:
        if isinstance(variable, Literal):
            slots.append(np.asarray(variable.val)[()])
            return len(slots) - 1
        if variable not in number:
            number[variable] = len(slots)
            slots.append(None)
        return number[variable]

    for variable, value in zip(jaxpr.constvars, traced.consts, strict=True):
        slots[slot(variable)] = np.asarray(value)[()]
    inputs = tuple(map(slot, jaxpr.invars))
    plain = [
        (_doer(e), e.primitive.multiple_results, tuple(map(slot, e.invars)), tuple(map(slot, e.outvars)))
        for e in jaxpr.eqns
    ]
    outputs, steps = tuple(map(slot, jaxpr.outvars)), []
    needed = {*outputs}
    for does, several, read, written in reversed(plain):
        last = tuple({*read, *written} - needed)
        needed |= {*read}
        steps.append(InterpretedStep(does, several, read, written, last))
    return InterpretedProgram(slots, inputs, outputs, steps[::-1])


def _run(program: InterpretedProgram, *arguments: Any) -> list[Any]:
    """Outputs of a program."""
    slots = program.slots.copy()
    for slot, value in zip(program.inputs, arguments, strict=True):
        slots[slot] = value
    for does, several, inputs, outputs, done_with in program.steps:
        result = does(*[slots[i] for i in inputs])
        for slot, value in zip(outputs, result if several else [result], strict=True):
            slots[slot] = value
        for slot in done_with:
            slots[slot] = None
    return [slots[i] for i in program.outputs]


def interpreted(function: Callable[..., Any], *, always: bool = False) -> Callable[..., Any]:
    """`jax.jit` for a large function that runs a few times: traced once a structure, compiled if it runs often.

    Args:
        function: pure, of arrays.
        always: never compiled.

    Memory: about that of every intermediate number still needed, over all points of a batch.
    """
    traced, compiled, runs = jax.jit(function), functools.cache(lambda: quick_jit(function, once=True)), Counter()

    def run(*arguments: Any) -> Any:
        trace = traced.trace(*arguments)
        program = _program(trace.jaxpr)
        runs[id(program)] += 1
        leaves = [np.asarray(leaf)[()] for leaf in jax.tree.leaves(arguments)]
        if not always and (runs[id(program)] > PATIENCE or any(np.size(leaf) > MANY for leaf in leaves)):
            return compiled()(*arguments)
        with np.errstate(all="ignore"):
            found = _run(program, *leaves)
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), jax.device_put(found))  # compiles nothing

    return run
