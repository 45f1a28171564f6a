"""Interpretation of large, rarely run functions by NumPy, because compiling takes a hundred times as long.

JAX traces the function, with derivatives and batches as asked; each elementary operation that it wrote down is then one
call of NumPy on whole arrays. The program, and so the result, is that of the compiled function up to rounding.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from ..core.few_kernels import CALLS
from ..core.free_memory import without_collection
from ..core.jax_typed import is_traced
from . import numpy_primitives as by_numpy
from . import numpy_primitives as points_behind
from .control_flow import LOOPS, ROWWISE, loop, rows_at

__all__ = [
    "MANY", "PATIENCE", "GridFunction", "behind", "crossed", "doer", "forget_programs", "interpreted", "knows",
    "quick_jit", "traced_alone",
]  # fmt: skip


# Every operation that a traced program is made of: by NumPy, as a loop of others, or by JAX what neither does.


def knows(primitive: Any) -> bool:
    """True if NumPy does it, or it is a loop; others are run by JAX too, a hundred times slower, without need."""
    return primitive.name in LOOPS or primitive.name in ROWWISE or by_numpy.knows(primitive)


def doer(
    primitive: Any, params: dict[str, Any], kinds: Sequence[Any], lead: int = 0, *, alike: bool = False
) -> Callable[..., Any]:
    """`numpy_primitives.doer`, of loops and row-wise functions too."""
    if primitive.name in LOOPS:
        return functools.partial(loop(primitive, params).at, lead)
    if primitive.name in ROWWISE:
        return functools.partial(rows_at, primitive.name, lead)
    return by_numpy.doer(primitive, params, kinds, lead, alike=alike)


def behind(primitive: Any, params: dict[str, Any], kinds: Sequence[Any], lead: int) -> Callable[..., Any]:
    """`numpy_primitives.behind`, of loops and row-wise functions too."""
    if primitive.name in LOOPS:
        return functools.partial(loop(primitive, params).at_behind, lead)
    if primitive.name in ROWWISE:
        return by_numpy.turned(functools.partial(rows_at, primitive.name, lead), lead)
    return points_behind.behind(primitive, params, kinds, lead)


# Compilation of large functions by `jax.jit` with faster compile options.


OPTIONS = {"xla_cpu_use_fusion_emitters": False}  # halves the compile time of large programs on the CPU

UNOPTIMISED = OPTIONS | {"xla_backend_optimization_level": 0}  # not its fast preset: writing that to a cache may crash


@functools.cache
def _supported_options(once: bool) -> dict[str, Any]:
    """Compile options that this version of the compiler knows."""
    return {name: value for name, value in (UNOPTIMISED if once else OPTIONS).items() if _is_supported(name, value)}


def _is_supported(name: str, value: Any) -> bool:
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
    return jax.jit(function, compiler_options=_supported_options(once))


def traced_alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Shapes of what a function returns: JAX traces it, and whatever it refuses is raised; nothing is computed."""
    return jax.eval_shape(function, *arguments)


PATIENCE = 200  # runs of one program that cost about what compiling it does: 25 ms each beside 5 to 7 s
MANY = 16_384  # numbers in one argument: of so many points the arithmetic costs, not the operations


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


def _doer(equation: Any, axes: int) -> Callable[..., Any]:
    """Function that runs one operation, its parameters filled in."""
    name, settings = equation.primitive.name, equation.params
    kinds = [variable.aval.dtype for variable in equation.invars]
    if name in CALLS:
        return functools.partial(_run, _program(settings[CALLS[name]], axes))
    return doer(equation.primitive, settings, kinds, axes)


@functools.cache
def _program(traced: Any, axes: int = 0) -> InterpretedProgram:
    """A traced program with its variables numbered; its numbers have so many axes of points in front."""
    jaxpr, number, slots = traced.jaxpr, {}, []

    def constant(value: Any) -> Any:
        return np.asarray(value).reshape((1,) * axes + np.shape(value))[()]

    def slot(variable: Any) -> int:
        if isinstance(variable, Literal):
            slots.append(constant(variable.val))
            return len(slots) - 1
        if variable not in number:
            number[variable] = len(slots)
            slots.append(None)
        return number[variable]

    for variable, value in zip(jaxpr.constvars, traced.consts, strict=True):
        slots[slot(variable)] = constant(value)
    inputs = tuple(map(slot, jaxpr.invars))
    plain = [
        (_doer(e, axes), e.primitive.multiple_results, tuple(map(slot, e.invars)), tuple(map(slot, e.outvars)))
        for e in jaxpr.eqns
    ]
    outputs, steps = tuple(map(slot, jaxpr.outvars)), []
    needed = {*outputs}
    for does, several, read, written in reversed(plain):
        last = tuple({*read, *written} - needed)
        needed |= {*read}
        steps.append(InterpretedStep(does, several, read, written, last))
    return InterpretedProgram(slots, inputs, outputs, steps[::-1])


@functools.cache
def _part(traced: Any, axes: int, output_indices: tuple[int, ...]) -> InterpretedProgram:
    """Part of a traced program that the outputs at these places need."""
    full_program = _program(traced, axes)
    outputs, steps = tuple(full_program.outputs[index] for index in output_indices), list[InterpretedStep]()
    needed = {*outputs}
    for step in reversed(full_program.steps):
        if needed.isdisjoint(step.outputs):
            continue
        last = tuple({*step.inputs, *step.outputs} - needed)
        needed |= {*step.inputs}
        steps.append(step._replace(done_with=last))
    return InterpretedProgram(full_program.slots, full_program.inputs, outputs, steps[::-1])


def forget_programs() -> None:
    """Drop the programs that are kept for their next run, and with them their memory."""
    _part.cache_clear()
    _program.cache_clear()


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


def interpreted(function: Callable[..., Any], *, always: bool = False, once: bool = True) -> Callable[..., Any]:
    """`jax.jit` for a large function that runs a few times: traced once a structure, compiled if it runs often.

    Args:
        function: pure, of arrays; of numbers that JAX traces it is compiled with what is around it.
        always: never compiled.
        once: compiled, it runs once or twice on many numbers (see `quick_jit`).

    Memory: about that of every intermediate number still needed, over all points of a batch.
    """
    traced, compiled, runs = jax.jit(function), functools.cache(lambda: quick_jit(function, once=once)), Counter()

    def run(*arguments: Any) -> Any:
        if any(map(is_traced, jax.tree.leaves(arguments))):
            return traced(*arguments)  # compile options are for what is compiled by itself
        with without_collection():
            trace = traced.trace(*arguments)
            program = _program(trace.jaxpr)
        runs[id(program)] += 1
        leaves = [np.asarray(leaf)[()] for leaf in jax.tree.leaves(arguments)]
        if not always and (runs[id(program)] > PATIENCE or any(np.size(leaf) > MANY for leaf in leaves)):
            return compiled()(*arguments)
        with np.errstate(all="ignore"):
            result = _run(program, *leaves)
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), jax.device_put(result))  # compiles nothing

    return run


def crossed(function: Callable[..., Any]) -> "GridFunction":
    """A function of (anything, name -> number) for every combination of some values, traced once a structure."""
    return GridFunction(function)


class GridFunction:
    """A function of (anything, name -> [values]) that gives arrays with one axis for each name, in their order.

    An axis is of length 1 where a number does not depend on its name: what few names reach is done for few values.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._traced = jax.jit(function)

    def __call__(self, given: Any, values: dict[str, np.ndarray], output_indices: Collection[int] | None = None) -> Any:
        """Evaluate all combinations.

        Args:
            given: what all of them share.
            values: by name.
            output_indices: of the results that are computed, in the order of `jax.tree.leaves`; others are None;
                none: all.
        """
        trace, axes = self._trace(given, values), len(values)
        fixed = [np.asarray(leaf).reshape((1,) * axes + np.shape(leaf)) for leaf in jax.tree.leaves(given)]
        shapes = {name: [-1 if axis == index else 1 for axis in range(axes)] for index, name in enumerate(values)}
        spread = [np.reshape(values[name], shapes[name]) for name in sorted(values)]  # as JAX orders them
        program = (
            _program(trace.jaxpr, axes) if output_indices is None else _part(trace.jaxpr, axes, tuple(output_indices))
        )
        with np.errstate(all="ignore"):
            result = _run(program, *fixed, *spread)
        if output_indices is not None:
            computed = dict(zip(output_indices, result, strict=True))
            result = [computed.get(position) for position in range(len(trace.jaxpr.jaxpr.outvars))]
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), result)

    def read(self, given: Any, names: Iterable[str]) -> list[np.ndarray]:
        """Numbers of what is given that the results depend on; others may be anything."""
        leaves, traced = jax.tree.leaves(given), self._trace(given, names).jaxpr.jaxpr
        read = {each for each in traced.outvars if not isinstance(each, Literal)}
        for equation in reversed(traced.eqns):
            if not read.isdisjoint(equation.outvars):
                read.update(each for each in equation.invars if not isinstance(each, Literal))
        given_first = traced.invars[: len(leaves)]
        return [np.asarray(leaf) for leaf, each in zip(leaves, given_first, strict=True) if each in read]

    def _trace(self, given: Any, names: Iterable[str]) -> Any:
        return self._traced.trace(given, dict.fromkeys(names, np.float64(1.0)))
