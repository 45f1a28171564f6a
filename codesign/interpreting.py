"""How large functions run that run only a few times: by NumPy, because compiling takes a hundred times as long.

JAX traces the function, with derivatives and batches as asked; each elementary operation that it wrote down is then one
call of NumPy on whole arrays. The program, and so the result, is that of the compiled function up to rounding.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from .compiling import quick_jit

PATIENCE = 32  # runs of one program that cost about what compiling it does
MANY = 16_384  # numbers in one argument: of so many points the arithmetic costs, not the operations

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "max": np.maximum, "min": np.minimum, "pow": np.power, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "is_finite": np.isfinite,
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.bitwise_not,
    "stop_gradient": lambda x: x, "copy": lambda x: x,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip
SHAPED: dict[str, Callable[..., Any]] = {
    "convert_element_type": lambda x, new_dtype, **_: np.asarray(x).astype(new_dtype)[()],
    "squeeze": lambda x, dimensions: np.squeeze(x, dimensions)[()],
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "stack": lambda *parts, axis: np.stack(parts, axis),
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "split": lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "reduce_sum": lambda x, axes, **_: np.sum(x, axes),
    "reduce_max": lambda x, axes, **_: np.max(x, axes),
    "reduce_min": lambda x, axes, **_: np.min(x, axes),
    "slice": lambda x, start_indices, limit_indices, strides: x[
        tuple(map(slice, start_indices, limit_indices, strides or [None] * x.ndim))
    ],
}
"""Primitive -> the same by NumPy. All others (gathers, integer division ...) are done by JAX itself."""

FLOATING: dict[str, Callable[..., Any]] = {
    "div": lambda x, y, **_: np.divide(x, y),
    "integer_pow": lambda x, y, **_: np.power(x, float(y)),
}
"""Those that mean something else between whole numbers."""

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Primitive that runs a program -> the parameter that holds it."""


class Step(NamedTuple):
    """One operation: what does it, slots of inputs and outputs, slots that nobody reads afterwards."""

    does: Callable[..., Any]
    several: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    done_with: tuple[int, ...]


class Program(NamedTuple):
    """A traced program over numbered slots; `slots` holds its constants."""

    slots: list[Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: list[Step]


def _broadcast(x: Any, shape: Sequence[Any], broadcast_dimensions: Sequence[Any], **_: Any) -> Any:
    """Axis i of x becomes axis `broadcast_dimensions[i]` of the result."""
    spread = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, np.shape(x), strict=True):
        spread[axis] = size
    return np.broadcast_to(np.reshape(x, spread), shape)


def _by_jax(bind: Callable[..., Any], several: bool, *inputs: Any) -> Any:
    result = bind(*inputs)
    return [np.asarray(x)[()] for x in result] if several else np.asarray(result)[()]


def _doer(equation: Any) -> Callable[..., Any]:
    """What does one operation, its settings filled in."""
    name, settings = equation.primitive.name, equation.params
    kinds = [variable.aval.dtype for variable in equation.invars]
    if name in CALLS:
        return functools.partial(_run, _program(settings[CALLS[name]]))
    if name in ELEMENTWISE:
        return ELEMENTWISE[name]
    if name in SHAPED:
        return functools.partial(SHAPED[name], **settings)
    if name in FLOATING and all(np.issubdtype(kind, np.floating) for kind in kinds):
        return functools.partial(FLOATING[name], **settings)
    if name == "broadcast_in_dim" and len(kinds) == 1:
        return functools.partial(_broadcast, **settings)
    if name == "select_n" and np.issubdtype(kinds[0], np.bool_):
        return lambda which, no, yes: np.where(which, yes, no)
    several = equation.primitive.multiple_results
    return functools.partial(_by_jax, functools.partial(equation.primitive.bind, **settings), several)


@functools.cache
def _program(traced: Any) -> Program:
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
        steps.append(Step(does, several, read, written, last))
    return Program(slots, inputs, outputs, steps[::-1])


def _run(program: Program, *arguments: Any) -> list[Any]:
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


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` for a large function that runs a few times: traced once a structure, compiled if it runs often.

    Memory: about that of every intermediate number still needed, over all points of a batch.
    """
    traced, compiled, runs = jax.jit(function), quick_jit(function, once=True), Counter()

    def run(*arguments: Any) -> Any:
        trace = traced.trace(*arguments)
        program = _program(trace.jaxpr)
        runs[id(program)] += 1
        leaves = [np.asarray(leaf)[()] for leaf in jax.tree.leaves(arguments)]
        if runs[id(program)] > PATIENCE or any(np.size(leaf) > MANY for leaf in leaves):
            return compiled(*arguments)
        with np.errstate(all="ignore"):
            found = _run(program, *leaves)
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), map(jnp.array, found))

    return run
