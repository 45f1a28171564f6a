"""Functions of few numbers that XLA's CPU backend compiles into few kernels, in a fraction of the time.

It spends about 20 ms on each kernel, an operation on three numbers or a loop, and calls each anew. A part of a program
may become one kernel: a call that is not inlined and is marked `xla_cpu_small_call`, as XLA marks small loops itself.
A kernel of thousands of operations is slow to compile again, so a long program becomes several. Where a part has an
operation that no such kernel may have, or arrays that are not small, it is compiled as ever; so is all of it on other
devices, by a version of XLA or on a processor that was not tried.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from platform import machine
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, Literal, Primitive, new_jaxpr_eqn
from jax.interpreters import batching, mlir, partial_eval
from jaxlib.mlir import ir

from .jax_typed import as_function, is_traced, make_jaxpr

Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["MOST_EQUATIONS", "MOST_NUMBERS", "has_loop", "in_few_kernels"]

MOST_EQUATIONS = 1200  # of a kernel: with more it is slow to compile again
MOST_NUMBERS = 1024  # of an array: sums of 4,096 become calls of a library, which no such kernel may have
FEWEST = 4  # equations worth a kernel
TRIED = (("0.10.2", "x86_64"),)  # versions of jaxlib and processors; tests/test_few_kernels.py holds what they must do
NAMELESS = DebugInfo("jit", "in_few_kernels", None, None)
MARK = {"inlineable": "false", "xla_cpu_small_call": "true"}

CALLS = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
    "in_few_kernels": "jaxpr",
}  # fmt: skip
"""Primitive that runs a program -> the parameter that holds it."""
BODIES = {"while": "body_jaxpr", "scan": "jaxpr"}
SUPPORTED = frozenset({
    "abs", "add", "add_any", "and", "argmax", "argmin", "broadcast_in_dim", "ceil", "clamp", "concatenate",
    "convert_element_type", "copy", "cos", "cumsum", "div", "dynamic_slice", "dynamic_update_slice", "eq", "erf", "exp",
    "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "iota", "is_finite", "le", "log", "log1p", "logistic", "lt",
    "max", "min", "mul", "ne", "neg", "not", "or", "pad", "pow", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
    "reduce_sum", "rem", "reshape", "rev", "round", "rsqrt", "scan", "select_n", "sign", "sin", "slice", "split",
    "sqrt", "square", "squeeze", "stack", "stop_gradient", "sub", "tanh", "transpose", "while", "xor",
})  # fmt: skip
"""Operations that such a kernel may have."""


def in_few_kernels(function: Function) -> Function:
    """Mark a pure function of arrays, given by place, so that it is compiled into few kernels on a CPU.

    It has no derivatives of its own: they are those of `by_matrix`.
    """

    def marked(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        if not any(map(is_traced, leaves)):
            return function(*arguments)
        shapes: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            result, structure = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
            shapes[:] = [structure]
            return result

        jaxpr, around = _with_arguments(make_jaxpr(flat)(*leaves))
        return jax.tree.unflatten(shapes[0], _program.bind(*around, *leaves, jaxpr=jaxpr))

    return cast(Function, functools.wraps(function)(marked))


def _with_arguments(closed: Any) -> tuple[Any, list[Any]]:
    """A program with the numbers of traces around it, which it read as they stood, as arguments; these numbers."""
    each = list(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    around = [(variable, value) for variable, value in each if is_traced(value)]
    constants = [(variable, value) for variable, value in each if not is_traced(value)]
    inputs = [*(variable for variable, _ in around), *closed.jaxpr.invars]
    jaxpr = closed.jaxpr.replace(constvars=[v for v, _ in constants], invars=inputs, debug_info=NAMELESS)
    return ClosedJaxpr(jaxpr, [value for _, value in constants]), [value for _, value in around]


def _primitive(name: str) -> Any:
    """A primitive that runs a program: batched by the batch of it, inlined wherever it is compiled."""
    result = Primitive(name)
    result.multiple_results = True

    def run(*values: Any, jaxpr: Any) -> list[Any]:
        return as_function(jaxpr)(*values)

    def batch(values: Sequence[Any], axes: Sequence[Any], *, jaxpr: Any) -> tuple[list[Any], list[int]]:
        several = make_jaxpr(jax.vmap(as_function(jaxpr), in_axes=tuple(axes)))(*values)
        made = result.bind(*values, jaxpr=several)
        return made, [0] * len(made)

    result.def_impl(run)
    result.def_abstract_eval(lambda *_, jaxpr: jaxpr.out_avals)
    batching.primitive_batchers[result] = batch
    partial_eval.dce_rules[result] = _without_unread
    mlir.register_lowering(result, mlir.lower_fun(run, multiple_results=True))
    return result


def _without_unread(used: list[bool], equation: Any) -> tuple[list[bool], Any]:
    """An equation that runs a program without the outputs that nobody reads, and which of its inputs it needs then."""
    if not any(used):
        return [False] * len(equation.invars), None
    closed = equation.params["jaxpr"]
    jaxpr, needed = partial_eval.dce_jaxpr(closed.jaxpr, used)
    inputs = [variable for variable, one in zip(equation.invars, needed, strict=True) if one]
    outputs = [variable for variable, one in zip(equation.outvars, used, strict=True) if one]
    params = {"jaxpr": ClosedJaxpr(jaxpr, closed.consts)}
    return needed, equation.replace(invars=inputs, outvars=outputs, params=params)


_program, _kernel = _primitive("in_few_kernels"), _primitive("one_kernel")


def _lowered_program(ctx: Any, *values: Any, jaxpr: Any) -> Any:
    """A program on a CPU: cut into kernels, once its shapes are settled."""
    tried = (version("jaxlib"), machine()) in TRIED
    run = as_function(_cut(_written_out(jaxpr)) if tried else jaxpr)
    return mlir.lower_fun(run, multiple_results=True)(ctx, *values)


def _lowered_kernel(ctx: Any, *values: Any, jaxpr: Any) -> Any:
    """A part as one call that stays one.

    It returns what it is given, too: XLA ends the process where a parameter of such a call is read by nothing, as
    happens once its own simplifications are done.
    """
    run = as_function(jaxpr)
    called = mlir.lower_fun(jax.jit(lambda *values: [*run(*values), *values]), multiple_results=True)(ctx, *values)
    call = called[0].owner
    call.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get({k: ir.StringAttr.get(v) for k, v in MARK.items()})
    return called[: len(jaxpr.out_avals)]


mlir.register_lowering(_program, _lowered_program, platform="cpu")
mlir.register_lowering(_kernel, _lowered_kernel, platform="cpu")


# A program cut into parts.


class _Piece(NamedTuple):
    """Equations that follow each other; fused: they become one kernel."""

    equations: list[Any]
    fused: bool


def _cut(flat: Any) -> Any:
    """A program without calls, with its parts in kernels."""
    jaxpr, constants = flat.jaxpr, dict(zip(flat.jaxpr.constvars, flat.consts, strict=True))
    parts, equations = list(_pieces(jaxpr.eqns)), list[Any]()
    last = {v: index for index, part in enumerate(parts) for e in part.equations for v in _variables(e.invars)}
    last |= dict.fromkeys(_variables(jaxpr.outvars), len(parts))
    for index, part in enumerate(parts):
        if not part.fused:
            equations += part.equations
            continue
        made = {v for e in part.equations for v in e.outvars}
        read = dict.fromkeys(v for e in part.equations for v in _variables(e.invars))
        read_constants, given = (
            [v for v in read if v in constants],
            [v for v in read if v not in made and v not in constants],
        )
        wanted = [v for e in part.equations for v in e.outvars if last.get(v, -1) > index]
        if wanted:
            inner = Jaxpr(read_constants, given, wanted, part.equations, debug_info=NAMELESS)
            closed = ClosedJaxpr(inner, [constants[v] for v in read_constants])
            equations.append(new_jaxpr_eqn(given, wanted, _kernel, {"jaxpr": closed}, frozenset()))
    return ClosedJaxpr(jaxpr.replace(eqns=equations), flat.consts)


def _pieces(equations: Sequence[Any]) -> Iterator[_Piece]:
    """Runs of equations for a kernel, and what none may have."""
    fits = [_fits(equation) for equation in equations]
    for fit, some in itertools.groupby(range(len(equations)), key=fits.__getitem__):
        part, size = list[Any](), 0
        for equation in map(equations.__getitem__, some):
            if fit and part and size + _size(equation) > MOST_EQUATIONS:
                yield _Piece(part, len(part) >= FEWEST or size >= FEWEST)
                part, size = [], 0
            part.append(equation)
            size += _size(equation)
        yield _Piece(part, fit and (len(part) >= FEWEST or size >= FEWEST))


def _fits(equation: Any) -> bool:
    """True if a kernel may have an equation: known operations on small arrays, loops that are not long."""
    arrays = [v.aval for v in (*equation.invars, *equation.outvars)]
    return (
        equation.primitive.name in SUPPORTED
        and all(array.size <= MOST_NUMBERS for array in arrays)
        and (equation.primitive.name not in BODIES or _size(equation) <= MOST_EQUATIONS)
        and all(_fits(inner) for body in _bodies(equation) for inner in body.eqns)
    )


def _size(equation: Any) -> int:
    """Equations of it and its bodies."""
    return 1 + sum(_size(inner) for body in _bodies(equation) for inner in body.eqns)


def has_loop(equation: Any) -> bool:
    """True if an equation is a loop, or runs a program with one."""
    return equation.primitive.name in BODIES or any(has_loop(one) for body in _bodies(equation) for one in body.eqns)


def _bodies(equation: Any) -> Iterator[Any]:
    """Programs that an equation runs."""
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(one, "jaxpr", one)
            if hasattr(inner, "eqns"):
                yield inner


def _written_out(closed: Any) -> Any:
    """The program without calls, its products of arrays as sums, the bodies of its long loops cut."""

    def evaluate_call(equation: Any, values: list[Any]) -> list[Any]:
        name = equation.primitive.name
        if name == "dot_general" and _products(equation) <= MOST_NUMBERS:
            return [_product(*values, **equation.params)]
        if name not in BODIES:
            return _bind(equation, values, equation.params)
        body = BODIES[name]
        flat = _written_out(equation.params[body])
        if sum(map(_size, flat.jaxpr.eqns)) > MOST_EQUATIONS or not all(map(_fits, flat.jaxpr.eqns)):
            flat = _cut(flat)
        return _bind(equation, values, equation.params | {body: flat})

    def through(closed: Any, *values: Any) -> list[Any]:
        jaxpr = closed.jaxpr
        slots = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *values), strict=True))
        for equation in jaxpr.eqns:
            read = [_read(v, slots) for v in equation.invars]
            name = equation.primitive.name
            made = through(equation.params[CALLS[name]], *read) if name in CALLS else evaluate_call(equation, read)
            slots |= dict(zip(equation.outvars, made, strict=True))
        return [_read(v, slots) for v in jaxpr.outvars]

    return make_jaxpr(functools.partial(through, closed))(*closed.in_avals)


def _bind(equation: Any, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    primitive = equation.primitive
    result = primitive.bind(*values, **primitive.get_bind_params(params))
    return list(result) if primitive.multiple_results else [result]


def _read(variable: Any, slots: dict[Any, Any]) -> Any:
    return variable.val if isinstance(variable, Literal) else slots[variable]


def _variables(all_: Sequence[Any]) -> Iterator[Any]:
    return (each for each in all_ if not isinstance(each, Literal))


def _products(equation: Any) -> int:
    """Numbers that a product of arrays adds up, of all its results together."""
    (summed, _), _ = equation.params["dimension_numbers"]
    return equation.outvars[0].aval.size * math.prod(equation.invars[0].aval.shape[axis] for axis in summed)


def _product(a: Any, b: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    """`dot_general` as a sum of products: a product of matrices may become a call of a library."""
    (summed_a, summed_b), (alike_a, alike_b) = dimension_numbers
    free_a = [axis for axis in range(a.ndim) if axis not in (*summed_a, *alike_a)]
    free_b = [axis for axis in range(b.ndim) if axis not in (*summed_b, *alike_b)]
    first = jnp.transpose(a, (*alike_a, *free_a, *summed_a))
    second = jnp.transpose(b, (*alike_b, *free_b, *summed_b))
    head, ends = len(alike_a), len(alike_a) + len(free_a)
    first = jnp.expand_dims(first, tuple(range(ends, ends + len(free_b))))
    second = jnp.expand_dims(second, tuple(range(head, ends)))
    result = first * second
    return result.sum(tuple(range(ends + len(free_b), result.ndim)))
