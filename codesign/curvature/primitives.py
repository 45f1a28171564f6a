"""Curvature rule of each primitive. A primitive that is not listed here is unknown, whatever it does."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.smooth import OPERATION
from ..staging import Equation
from . import arithmetic, choices, structure
from .arithmetic import add, divide, exponential, logarithm, multiply, power
from .choices import decided_number
from .operations import READ
from .operations import RULES as OPERATIONS
from .values import Value, joined, unknown

HALF, TWO = (decided_number(x) for x in (0.5, 2.0))

_BY_ONE: dict[str, Callable[[Value], Value]] = {
    "exp2": lambda x: power(TWO, x),
    "log1p": arithmetic.logarithm_beside_one,
    "expm1": arithmetic.exponential_less_one,
    "sqrt": lambda x: power(x, HALF),
    "rsqrt": lambda x: power(x, decided_number(-0.5)),
    "cbrt": lambda x: power(x, decided_number(1 / 3)),
    "square": lambda x: power(x, TWO),
    "floor": lambda x: choices.rounded(x, "floor"),
    "ceil": lambda x: choices.rounded(x, "ceil"),
    "round": lambda x: choices.rounded(x, "round"),
}
_BY_TWO: dict[str, Callable[[Value, Value], Value]] = {
    "gt": lambda a, b: choices.less(b, a),
    "ge": lambda a, b: choices.less_equal(b, a),
    "ne": lambda a, b: choices.inverted(choices.equal(a, b)),
}
ELEMENTWISE: dict[str, Callable[..., Value]] = {
    **_BY_ONE,
    **_BY_TWO,
    "add": add,
    "add_any": add,
    "sub": arithmetic.subtract,
    "mul": multiply,
    "div": divide,
    "neg": arithmetic.negate,
    "abs": arithmetic.absolute,
    "max": choices.maximum,
    "min": choices.minimum,
    "clamp": choices.clamp,
    "exp": exponential,
    "log": logarithm,
    "pow": power,
    "tanh": arithmetic.squashed,
    "sign": choices.sign,
    "lt": choices.less,
    "le": choices.less_equal,
    "eq": choices.equal,
    "and": choices.both,
    "or": choices.either,
    "not": choices.inverted,
    "select_n": choices.select,
}
REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "cumsum")
LOGARITHMS = ("log", "log1p")  # whose results have no logarithm to speak of
LOGIC = ("and", "or", "not")


def apply(
    equation: Equation, inputs: Sequence[Value], shapes: Sequence[tuple[int, ...]], read: bool = False
) -> list[Value]:
    """Values of the outputs of an equation, by the rules.

    Args:
        equation: what is done.
        inputs: what is known of its arguments.
        shapes: theirs.
        read: bounds put something else in its place, so that of constants, too, it is no constant.
    """
    outputs = len(equation.outputs)
    result = _applied(equation, inputs, shapes)
    found = result if isinstance(result, list) else [result] * outputs
    if all(value.constant for value in inputs) and not read:
        return [arithmetic.constant_like(value) for value in found]
    return [_explained(value, equation, inputs) for value in found]


def is_read(equation: Equation) -> bool:
    """True if bounds may put something else in the place of this operation."""
    return equation.name.startswith(OPERATION) and equation.name.removeprefix(OPERATION) in READ


def _applied(equation: Equation, inputs: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> Value | list[Value]:
    name, params = equation.name, equation.params
    if name.startswith(OPERATION):
        rule = OPERATIONS.get(name.removeprefix(OPERATION))
        return rule(*inputs) if rule else _no_rule(inputs)
    if name == "select_n" and len(set(equation.inputs[1:])) == 1:
        return inputs[1]
    if name in ELEMENTWISE and not (name in LOGIC and not _are_truths(inputs)):
        return ELEMENTWISE[name](*inputs)
    if name == "integer_pow":
        return power(inputs[0], decided_number(float(params["y"])))
    if name in structure.MOVES:
        return inputs[0]
    if name in structure.JOINS:
        return joined(inputs)
    if name in structure.PICKS and params.get("fill_value") is not None:
        return _no_rule(inputs)
    if name in structure.PICKS:
        return structure.pick(*inputs)
    if name == "split":
        return structure.split(inputs[0], len(equation.outputs))
    if name == "is_finite":
        return _finite(inputs[0])
    if name == "convert_element_type":
        return inputs[0] if _keeps(params["new_dtype"], inputs[0]) else _rounded_to(params["new_dtype"], inputs)
    if name in REDUCTIONS:
        return structure.reduced(name, inputs[0], shapes[0], params)
    if name == "dot_general":
        return structure.contracted(inputs[0], inputs[1], shapes[0], params)
    return _no_rule(inputs)


def _are_truths(inputs: Sequence[Value]) -> bool:
    return all(value.low >= 0 and value.high <= 1 for value in inputs)


def _keeps(dtype: Any, value: Value) -> bool:
    """True if a conversion changes nothing: to double precision (less rounds to steps), or of a yes or no."""
    return dtype == np.float64 or (value.low == value.high and value.low in (0.0, 1.0))


def _rounded_to(kind: Any, inputs: Sequence[Value]) -> Value:
    why = next((value.why for value in inputs if value.why), "")
    return unknown(-np.inf, np.inf, why or f"it rounds to {np.dtype(kind).name}, which has steps")


def _finite(value: Value) -> Value:
    if np.isfinite(value.low) and np.isfinite(value.high):
        return choices.decided(True)
    return unknown(0.0, 1.0, value.why or "whether a number is finite may change with the hardware")


def _no_rule(inputs: Sequence[Value]) -> Value:
    why = next((value.why for value in inputs if value.why), "")
    return unknown(-np.inf, np.inf, why or "there is no rule for it")


def _explained(value: Value, equation: Equation, inputs: Sequence[Value]) -> Value:
    """With the reason, if this is where the curvature was lost: of the value, or of its logarithm only."""
    if value.constant or value.log:
        return value
    why = next((v.why for v in inputs if v.why), "")
    lost = not value.plain or (equation.name not in LOGARITHMS and all(v.log or v.constant for v in inputs))
    if lost and not why:
        of = ", ".join(f"{v.kind} [{v.low:.3g}, {v.high:.3g}]" for v in inputs)
        what = equation.name.removeprefix(OPERATION)
        why = f"{what} of {of} at {equation.where}" + (f": {value.why}" if value.why else "")
    return replace(value, why=why)
