"""Partial evaluation of traced programs: what settled inputs alone decide is computed by NumPy, the rest left to JAX.

Along a few of its numbers a model of 4,000 equations keeps some hundred that these reach: what is multiplied by zero or
one, added to zero or chosen by a truth that is known goes with the rest.
"""

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.few_kernels import has_loop, in_few_kernels
from ..core.free_memory import without_collection
from ..core.jax_typed import as_function, asarray, is_traced, traced_for_all
from ..core.matrix_slopes import by_matrix
from ..core.smooth import OPERATION, larger, smaller
from .evaluator import doer
from .identities import without_identities
from .numpy_primitives import several
from .program import DERIVED, Equation, Program, cached, flatten, inside, written_out

Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["bound", "folded", "partially_evaluated", "run_folded", "run_rows"]

ORDERED = {"max": larger, "min": smaller}  # operations of JAX whose slopes a compiler may lose
FEW = 8  # numbers that move: along more of them slopes in reverse cost less
MOST_FOLDED = 8  # programs that are kept for the next trace at the same numbers
_folded: OrderedDict[Any, Program] = OrderedDict()


# One equation by NumPy, and by JAX.


def run_rows(equation: Equation, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One equation over inputs with a leading axis of combinations (of length 1 where all are alike)."""
    if equation.inner is not None:
        return _run_inner(equation.inner, inputs)
    result = doer(equation.primitive, equation.params, [x.dtype for x in inputs], lead=1)(*inputs)
    return [np.asarray(each) for each in several(result)]


def _run_inner(closed: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    program = inside(closed)
    slots: dict[int, np.ndarray] = {slot: value[None] for slot, value in program.constants.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        result = run_rows(equation, [slots[i] for i in equation.inputs])
        slots |= dict(zip(equation.outputs, result, strict=True))
    return [slots[i] for i in program.outputs]


def bound(equation: Equation, given: Sequence[Any]) -> list[Any]:
    """Outputs of an equation by JAX."""
    if equation.inner is not None and equation.name.startswith(OPERATION):
        return list(as_function(equation.inner)(*given))
    primitive = equation.primitive
    result = primitive.bind(*given, **primitive.get_bind_params(equation.params))
    return list(result) if primitive.multiple_results else [result]


# A program of which most inputs are settled.


def folded(program: Program, given: Mapping[int, np.ndarray], sizes: Mapping[int, float]) -> Program:
    """Rewrite a program for inputs of which some are settled; equal results and slopes.

    Args:
        program: any.
        given: input -> its numbers.
        sizes: other input -> what its numbers never exceed, in either direction; infinite where it is not said.

    Returns:
        The program of the other inputs.
    """
    full = written_out(program, DERIVED)
    left = tuple(slot for slot in full.inputs if slot not in given)
    full = _computed(full._replace(constants={**full.constants, **given}, inputs=left))
    count = len(full.equations) + 1
    while len(full.equations) < count:
        count = len(full.equations)
        full = _computed(without_identities(full, sizes, slopes=True))
    return full


def _computed(program: Program) -> Program:
    """The program without the equations that follow from its known numbers."""
    constants, late = dict(program.constants), list[Equation]()
    for equation in program.equations:
        if not all(slot in constants for slot in equation.inputs):
            late.append(equation)
            continue
        with np.errstate(all="ignore"):
            result = run_rows(equation, [constants[slot][None] for slot in equation.inputs])
        constants |= {slot: value[0] for slot, value in zip(equation.outputs, result, strict=True)}
    read = {*program.outputs, *(slot for equation in late for slot in equation.inputs)}
    return program._replace(
        equations=late, constants={slot: value for slot, value in constants.items() if slot in read}
    )


def _name_of(equation: Equation) -> str:
    """Name of an operation; of `larger` and `smaller`, traced for one precision alone, that of what they compute."""
    if equation.primitive.name not in DERIVED:
        return equation.name
    inner = inside(equation.inner)
    parts = [one.name for one in inner.equations if one.name != "convert_element_type"]
    return parts[0] if len(parts) == 1 and len(inner.inputs) == 2 else equation.name


def run_folded(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """Outputs of a program by JAX, in the precision of its inputs: to be differentiated, batched and compiled.

    What seeks a solution in a loop was traced for doubles and needs them to find it: it gets doubles.
    """
    given = [asarray(value) for value in inputs]
    kind = given[0].dtype if given else np.dtype(float)

    def as_given(value: Any) -> Array:
        array = asarray(value)
        return array.astype(kind) if array.dtype == np.float64 else array

    slots: dict[int, Any] = {slot: as_given(value) for slot, value in program.constants.items()}
    slots |= dict(zip(program.inputs, given, strict=True))
    for equation in program.equations:
        arguments = [slots[slot] for slot in equation.inputs]
        if kind == np.float32 and has_loop(equation):
            arguments = [value.astype(float) if value.dtype == kind else value for value in arguments]
        one = ORDERED.get(_name_of(equation) if kind == np.float32 else equation.name)
        result = [one(*arguments)] if one else bound(equation, arguments)
        slots |= {slot: as_given(value) for slot, value in zip(equation.outputs, result, strict=True)}
    return [slots[slot] for slot in program.outputs]


# A function of a tree of which JAX traces few numbers.


@functools.lru_cache(maxsize=MOST_FOLDED)
def _flat(closed: Any) -> Program | None:
    """The flat program of a trace; None where it holds what is not known here."""
    try:
        return written_out(flatten(closed), DERIVED)
    except ConfigError:
        return None


def partially_evaluated(function: Function) -> Function:
    """Mark a pure function of one tree, of which JAX may trace few numbers and know the others.

    What the known numbers decide is then computed when the function is called, and only the rest is traced; slopes
    along a few numbers are taken forward, once for all results, and compiled into few kernels. Of a tree that is traced
    altogether, and in single precision, it is the plain function.
    """
    traced = traced_for_all(function)

    def marked(tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        places = [index for index, leaf in enumerate(leaves) if is_traced(leaf)]
        if len(places) == len(leaves) or any(leaves[index].dtype != np.float64 for index in places):
            return function(tree)
        with without_collection():
            return along([asarray(leaves[i], dtype=leaves[i].dtype) for i in places], places, leaves, structure)

    def along(moving: list[Array], places: list[int], leaves: list[Any], structure: Any) -> Any:
        """Results along the numbers at these places, none of a weak type."""
        shapes = list(leaves)
        for index, leaf in zip(places, moving, strict=True):
            shapes[index] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        trace = cast(Any, traced).trace(jax.tree.unflatten(structure, shapes))
        full = _flat(trace.jaxpr)
        if full is None:
            return function(jax.tree.unflatten(structure, leaves))
        settled = {full.inputs[i]: np.asarray(leaf) for i, leaf in enumerate(leaves) if i not in places}
        key = (trace.jaxpr, tuple((slot, value.tobytes()) for slot, value in settled.items()))
        with jax.ensure_compile_time_eval():  # what JAX computes for want of NumPy
            program = cached(_folded, key, lambda: folded(full, settled, {}), MOST_FOLDED)
        unknown = [index for index, slot in enumerate(program.outputs) if slot not in program.constants]
        rest = program._replace(outputs=tuple(program.outputs[index] for index in unknown))

        def remaining(*moving: Array) -> list[Array]:
            return run_folded(rest, moving)

        few = sum(math.prod(leaf.shape) for leaf in moving) <= FEW
        computed = (by_matrix(remaining, in_few_kernels) if few else remaining)(*moving) if unknown else []
        result: list[Any] = [program.constants.get(slot) for slot in program.outputs]
        for index, value in zip(unknown, computed, strict=True):
            result[index] = value
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), [asarray(value) for value in result])

    return cast(Function, functools.wraps(function)(marked))
