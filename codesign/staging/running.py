"""Equations run by NumPy on whole arrays of points.

They are written out as one Python function with a line for each (`jaxprs.program`).
"""

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.free_memory import keep_memory
from ..core.jax_typed import flatten as tree_flatten
from ..core.jax_typed import jit, unflatten
from ..jaxprs.evaluator import behind
from ..jaxprs.numpy_primitives import ELEMENTWISE
from ..jaxprs.program import Equation, Program, cached, flatten, written_calls
from .again import program_key, written_once

MAX_PROGRAMS = 16  # programs that are kept ready to run
_running: OrderedDict[Any, tuple[Program, "Running"]] = OrderedDict()


class Running:
    """Equations made ready to run.

    Args:
        equations: primitives alone (see `written_out`).
        inputs: slots whose arrays are given at each call.
        outputs: slots that are asked for.
        known: slot -> what it always is, without axes of points.
        kinds: slot -> type of its numbers.
        lead: axes of points behind each array's own.
        alike: slot -> what its shape follows from; memory of arrays that nobody reads any more is then used again.
    """

    def __init__(
        self,
        equations: Sequence[Equation],
        inputs: Sequence[int],
        outputs: Sequence[int],
        constant_values: Mapping[int, np.ndarray],
        kinds: Sequence[Any],
        lead: int,
        alike: Mapping[int, Any] | None = None,
    ):
        keep_memory()
        self.operations = len(equations)
        points = (1,) * lead
        constants = {slot: np.reshape(value, (*np.shape(value), *points)) for slot, value in constant_values.items()}
        used = {slot for equation in equations for slot in equation.inputs} | set(outputs)
        constants = {slot: value for slot, value in constants.items() if slot in used and slot not in inputs}
        calls = [
            behind(equation.primitive, equation.params, [kinds[slot] for slot in equation.inputs], lead)
            for equation in equations
        ]
        again = _again(equations, outputs, kinds, alike) if alike else {}
        self._run = written_calls(equations, calls, inputs, outputs, list(constants), again)
        self._constants, self._points = constants, points

    def __call__(self, *arrays: Any) -> list[Any]:
        """Arrays of the outputs; each axis of points is as long as that of the inputs, or 1 where all are alike."""
        with np.errstate(all="ignore"):
            return self._run(arrays, self._constants.values())

    def knowing(self, constants: Mapping[int, np.ndarray]) -> "Running":
        """Copy of the equations with other numbers in place of the known ones."""
        other = copy.copy(self)
        other._constants = {
            slot: constants[slot].reshape(*constants[slot].shape, *self._points) for slot in self._constants
        }
        return other


def _again(
    equations: Sequence[Equation], outputs: Sequence[int], kinds: Sequence[Any], alike: Mapping[int, Any]
) -> dict[int, int]:
    """Place of an equation -> an argument of its shape that nobody reads later, and that shares memory with nothing."""
    last = {slot: index for index, equation in enumerate(equations) for slot in equation.inputs}
    makes_new = [_is_ufunc(equation) or equation.name == "select_n" for equation in equations]
    shared = {slot for equation, new in zip(equations, makes_new, strict=True) if not new for slot in equation.inputs}
    temporaries = {slot for equation, new in zip(equations, makes_new, strict=True) if new for slot in equation.outputs}
    free, result = temporaries - shared - set(outputs), dict[int, int]()
    for index, equation in enumerate(equations):
        chooses = equation.name == "select_n" and np.issubdtype(kinds[equation.inputs[0]], np.bool_)
        if _is_ufunc(equation) or chooses:
            like = (alike[equation.outputs[0]], kinds[equation.outputs[0]])
            done = [slot for slot in equation.inputs if slot in free and last[slot] == index]
            fitting = [slot for slot in done if (alike[slot], kinds[slot]) == like]
            result |= {index: fitting[0]} if fitting else {}
    return result


def _is_ufunc(equation: Equation) -> bool:
    return isinstance(ELEMENTWISE.get(equation.name), np.ufunc)


def running(program: Program) -> Running:
    """A program made ready to run at many points: each argument has one axis of points behind its own.

    Made once for programs of the same equations, which may differ in what is known.
    """
    full = written_once(program)

    def made() -> tuple[Program, Running]:
        return full, Running(full.equations, full.inputs, full.outputs, full.constants, full.kinds, lead=1)

    before, result = cached(_running, program_key(full), made, MAX_PROGRAMS)
    return result if before.constants is full.constants else result.knowing(full.constants)


def at_points(
    program: Program, leaves: Sequence[Any], columns: Sequence[np.ndarray] = (), made: Running | None = None
) -> list[np.ndarray]:
    """Outputs of a program for many points that share the numbers of a scenario.

    Args:
        program: of the scenario's numbers, then of one number for each column.
        leaves: the scenario's.
        columns: [points] each; one point where there are none.
        made: the program made ready to run, where it is at hand.

    Returns:
        [points or 1, own axes] of each output.
    """
    kinds = [program.kinds[slot] for slot in program.inputs]
    given = [np.asarray(leaf, dtype=kind)[..., None] for leaf, kind in zip(leaves, kinds, strict=False)]
    result = (made or running(program))(*given, *(np.asarray(column, dtype=float) for column in columns))
    return [np.moveaxis(each, -1, 0) for each in result]


# A large function at many points by NumPy: traced once a structure, at one point, and never compiled.
#
# Compiling a scenario costs ten to forty seconds, tracing it one; a validation asks each structure a few thousand
# times.


MAX_TRACES = 64  # that are kept
_traces: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()


def at_many(function: Callable[..., Any], in_axes: Sequence[int | None] = (0,)) -> Callable[..., Any]:
    """`jax.vmap` of a function of trees of numbers; what comes out are arrays of NumPy.

    Args:
        function: pure.
        in_axes: of each argument 0 where every number has an axis of points in front, None where all points share it.
    """
    traced: Any = jit(function)

    def run(*arguments: Any) -> Any:
        structures, arrays, points = list[Any](), list[np.ndarray](), 1
        for argument, axis in zip(arguments, in_axes, strict=True):
            leaves, structure = tree_flatten(argument)
            numbers = [np.asarray(leaf)[None] if axis is None else np.asarray(leaf) for leaf in leaves]
            structures.append(structure)
            arrays += numbers
            points = max([points, *map(len, numbers)])
        shapes = tuple((array.dtype, array.shape[1:]) for array in arrays)
        key = (traced, tuple(structures), shapes)
        trace, out = cached(_traces, key, lambda: _trace(traced, structures, arrays), MAX_TRACES)
        result = [np.moveaxis(array, -1, 0) for array in _ready(trace)(*map(_behind, arrays))]
        return unflatten(out, [np.broadcast_to(array, (points, *array.shape[1:])) for array in result])

    return run


def _trace(traced: Any, structures: Sequence[Any], arrays: Sequence[np.ndarray]) -> tuple[Any, Any]:
    """(trace at the first point, structure of what comes out)."""
    leaves = iter(arrays)
    one = [unflatten(each, [next(leaves)[0] for _ in range(each.num_leaves)]) for each in structures]
    trace = traced.trace(*one)
    return trace.jaxpr, tree_flatten(trace.out_info)[1]


def _behind(array: np.ndarray) -> np.ndarray:
    """Points behind; one for all of them where they are alike, so that what sees no other number is computed once."""
    same = len(array) and (array == array[:1]).all()
    return np.moveaxis(array[:1] if same else array, 0, -1)


@functools.cache
def _ready(trace: Any) -> Running:
    return running(flatten(trace))
