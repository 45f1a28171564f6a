"""Rounding-error rule of each operation. Nothing is known of an operation that is not listed here."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.smooth import OPERATION, TINY
from ..model.reliability.failures import HOPELESS, LEAST
from ..staging import Equation
from . import rounding, rules
from .rounding import LOST, ZERO, Rounding, Unit, unit_of
from .rules import decided_number
from .values import Value

LOSS = 1e-10  # relative: the operation that first exceeds it is named
STEEPEST = 19.0 * rounding.SECOND  # condition number of `slowdown`: 0.95 / (1 - 0.95)
Many = Sequence[Value]
Errors = Sequence[Rounding]
Rule = Callable[[Many, Errors, Value, Unit], Rounding]

COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne", "and", "or", "not", "is_finite")
STEPS = ("floor", "ceil", "round", "sign")
DECIDES = (*COMPARISONS, *STEPS)
"""Operations whose result is one number where ranges say so."""
NUMBERS = {name: decided_number(x) for name, x in (("sqrt", 0.5), ("rsqrt", -0.5), ("cbrt", 1 / 3))}
TWO = decided_number(2.0)
_TWO = rounding.of_constant(TWO)


def _add(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    if e[0].most == 0.0:
        return e[1]
    return e[0] if e[1].most == 0.0 else rounding.added(v[0], v[1], e[0], e[1], value, unit)


def _sub(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    turned = Value(-v[1].high, -v[1].low)
    return e[0] if e[1].most == 0.0 else rounding.added(v[0], turned, e[0], e[1], value, unit)


def _mul(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    for one, other in ((0, 1), (1, 0)):
        if v[one].low == v[one].high and abs(v[one].low) == 1.0 and e[one].exact:
            return e[other]
    return rounding.multiplied(e[0], e[1], value, unit)


def _div(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    if v[1].low == v[1].high == 1.0 and e[1].exact:
        return e[0]
    return rounding.divided(e[0], e[1], value, unit)


def _same(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return e[0]


def _any(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.larger(v, e, value, unit)


def _exp(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.exponential(e[0], value, unit)


def _log(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.logarithm(e[0], value, unit)


def _log1p(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    """log(1 + x): of positive x no worse than x itself; its slope is 1 / (1 + x)."""
    slack = rounding.ELEMENTARY * unit.rounding
    size = max(abs(value.low), abs(value.high), 0.0)
    if v[0].low >= 0:
        least = e[0].least / (1 + e[0].least) if e[0].least < math.inf else math.inf
        relative = e[0].relative * rounding.SECOND + slack
        absolute = e[0].absolute + rounding.times(slack, size + e[0].absolute)
        return rounding.bounded(value, relative, absolute, least, size + absolute, unit)
    if not rounding.over(e[0].absolute, 1 + v[0].low) <= rounding.MOST or v[0].low <= -1:
        return LOST
    absolute = e[0].absolute / (1 + v[0].low) * rounding.SECOND + rounding.times(slack, size)
    return rounding.bounded(value, math.inf, absolute, 0.0, size + absolute, unit)


def _expm1(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    """exp(x) - 1, whose condition number is at most 1 + x above zero and at most 1 below."""
    steep = 1 + max(0.0, v[0].high)
    relative = rounding.grown(rounding.times(e[0].relative, steep)) * rounding.SECOND
    relative += rounding.ELEMENTARY * unit.rounding
    absolute = rounding.times(rounding.grown(e[0].absolute), 1 + max(0.0, value.high)) * rounding.SECOND
    size = max(abs(value.low), abs(value.high))
    absolute += rounding.times(rounding.ELEMENTARY * unit.rounding, size)
    size += absolute
    least = e[0].least * math.exp(-e[0].least) if e[0].least < 700 else 1.0  # below x above zero, above 1 - exp(x)
    return rounding.bounded(value, relative, absolute, min(least, 0.5), size, unit)


def _pow(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.power(v[0], e[0], v[1], e[1], value, unit)


def _exp2(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.power(TWO, _TWO, v[0], e[0], value, unit)


def _square(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.integer_power(e[0], 2.0, value, unit)


def _root(name: str) -> Rule:
    def rule(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
        return rounding.power(v[0], e[0], NUMBERS[name], rounding.of_constant(NUMBERS[name]), value, unit)

    return rule


def _tanh(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.bounded(value, math.inf, e[0].absolute + rounding.ELEMENTARY * unit.rounding, 0.0, 1.0, unit)


def _clamp(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return rounding.larger(v, e, value, unit)


def _step(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    """A whole number or a truth that what is off may change: by one step and what is off."""
    return rounding.bounded(value, math.inf, e[0].absolute + 2.0, 0.0, math.inf, unit)


def _truth(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    return Rounding(math.inf, 1.0, 0.0, 1.0)


def _select(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    which, number = v[0], v[0].low
    if e[0].exact and which.low == which.high and number == int(number) < len(v) - 1:
        return e[1 + int(number)]
    if e[0].exact and which.constant:
        return rounding.larger(v[1:], e[1:], value, unit)
    absolute = value.high - value.low + max(error.absolute for error in e[1:])
    return rounding.bounded(value, math.inf, absolute, 0.0, max(error.most for error in e[1:]), unit)


def _kink(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    """The maximum, or a mean of its arguments whose weights add to 1 within a rounding: the same bound."""
    if not all(x.low >= 0 for x in v):
        absolute, most = max(x.absolute for x in e), max(x.most for x in e)
        absolute += rounding.times(8 * unit.rounding, most)
        return rounding.bounded(value, math.inf, absolute, 0.0, most, unit)
    return rounding.larger(v, [x._replace(least=0.5 * x.least) for x in e], value, unit, 8.0)


def _p_norm(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    """Rounding of a p-norm of positive terms, each over the largest: relative errors of terms pass as they are."""
    if not (e[0].exact and v[0].low >= 1 and all(x.low >= 0 for x in v[1:])):
        return LOST
    terms, slack = e[1:], (len(v) + 24) * unit.rounding
    relative = max(x.relative for x in terms) * rounding.SECOND + slack
    return rounding.bounded(
        value, relative, math.inf, min(x.least for x in terms), sum(x.most for x in terms), unit, scaled=True
    )


def _used_share(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
    """used / usable. What is left of a capacity may be any small number: there the share is large and not allowed.

    Where the share s is at most 1, usable is at least used; beyond, the relative error grows like s.
    """
    used, usable = e
    if v[1].low > TINY:
        return _div(v, e, value, unit)
    if not (v[0].low >= 0 and used.relative <= rounding.MOST and used.least > 0):
        return LOST
    off = usable.relative if usable.relative <= rounding.MOST else rounding.over(usable.absolute, used.least)
    if not off <= rounding.MOST:
        return LOST
    relative = (used.relative + off) * rounding.SECOND + unit.rounding
    return Rounding(relative, relative, rounding.over(used.least, usable.most), math.inf, steep=True)


def _condition(number: float, slope: float, slack: float) -> Rule:
    """A rising function, at least 1, of this condition number, whose logarithm has at most this slope."""

    def rule(v: Many, e: Errors, value: Value, unit: Unit) -> Rounding:
        if not v[0].low >= 0:
            return LOST
        off = min(rounding.times(number, e[0].relative), rounding.times(slope, e[0].absolute))
        relative = rounding.grown(off * rounding.SECOND) + slack * unit.rounding
        return rounding.bounded(value, relative, math.inf, 1.0, value.high, unit)

    return rule


RULES: dict[str, Rule] = {
    **dict.fromkeys(COMPARISONS, _truth), **dict.fromkeys(STEPS, _step),
    **{name: _root(name) for name in NUMBERS},
    "add": _add, "add_any": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _same, "abs": _same,
    "max": _any, "min": _any, "clamp": _clamp, "exp": _exp, "exp2": _exp2, "log": _log, "log1p": _log1p,
    "expm1": _expm1, "pow": _pow, "square": _square, "tanh": _tanh, "select_n": _select,
}  # fmt: skip
OPERATIONS: dict[str, Rule] = {
    "kink": _kink, "kinks": _kink, "at_least": _any, "at_most": _any, "p_norm": _p_norm, "used_share": _used_share,
    "slowdown": _condition(STEEPEST, 20.0, 64.0), "growth": _condition(HOPELESS + 1, 1.0, 16.0),
    "least_growth": _condition(HOPELESS + 1, 1.0 / LEAST**0.5, 512.0), "ceil": _step, "floor": _step,
}  # fmt: skip
KEEP_STEEP = ("log", "max", OPERATION + "at_least", OPERATION + "kink", *rules.MOVES, *rules.JOINS, "split")
"""Operations allowed on a share that is only known well where it is feasible."""


def follow(
    equation: Equation,
    inputs: Many,
    errors: Errors,
    values: Many,
    shape: tuple[int, ...],
    kinds: Sequence[Any],
) -> list[Rounding]:
    """Bounds of the outputs of an equation.

    Args:
        equation: what is done.
        inputs, errors: what is known of its arguments, and by how much they are off.
        values: what is known of its outputs.
        shape: of its first argument.
        kinds: types of its outputs.
    """
    if all(error.exact for error in errors) and all(value.constant for value in inputs):
        return [
            _constant(value, equation, inputs, errors, shape, kind) for value, kind in zip(values, kinds, strict=True)
        ]
    return [
        _traced(_bound(equation, inputs, errors, value, shape, unit_of(kind)), equation, errors)
        for value, kind in zip(values, kinds, strict=True)
    ]


def _constant(
    value: Value, equation: Equation, inputs: Many, errors: Errors, shape: tuple[int, ...], kind: Any
) -> Rounding:
    """Rounding of a constant of the plan that is not listed: its magnitudes by the rules, no error."""
    plain = rounding.of_constant(value)
    if plain.least > 0 and plain.most < math.inf:
        return plain
    result = _bound(equation, inputs, errors, value, shape, unit_of(kind))
    return plain._replace(least=max(plain.least, result.least), most=min(plain.most, result.most))


def _traced(error: Rounding, equation: Equation, errors: Errors) -> Rounding:
    """With what lost the digits: this operation, or the worst of those before it."""
    if error.relative <= LOSS:
        return error
    worst = max(errors, key=lambda each: each.relative if each.at is not None else -1.0)
    if worst.at is not None:
        return error._replace(at=worst.at, lost=worst.lost)
    return error._replace(at=equation)


def _bound(
    equation: Equation, inputs: Many, errors: Errors, value: Value, shape: tuple[int, ...], unit: Unit
) -> Rounding:
    name, params = equation.name, equation.params
    steep = any(error.steep for error in errors)
    if steep:
        if name not in KEEP_STEEP:
            return LOST
        factor = 2.0 if name == OPERATION + "kink" else 1.0
        result = _plain(name, params, inputs, errors, value, shape, unit)
        if name == "log":
            return result._replace(relative=math.inf, steep=True)
        relative, is_relative = result.relative * factor, result.relative < math.inf
        return result._replace(
            relative=relative, absolute=relative if is_relative else result.absolute * factor, steep=True
        )
    if value.low == value.high == 0.0 and name in ("mul", "div") and any(e.exact and e.most == 0.0 for e in errors):
        return ZERO
    if name == "select_n" and len(set(equation.inputs[1:])) == 1:
        return errors[1]
    return _plain(name, params, inputs, errors, value, shape, unit)


def _plain(
    name: str, params: dict[str, Any], inputs: Many, errors: Errors, value: Value, shape: tuple[int, ...], unit: Unit
) -> Rounding:
    if name.startswith(OPERATION):
        rule = OPERATIONS.get(name.removeprefix(OPERATION))
        return rule(inputs, errors, value, unit) if rule and unit == rounding.DOUBLE else LOST
    if name in RULES:
        return RULES[name](inputs, errors, value, unit)
    if name == "integer_pow":
        return rounding.integer_power(errors[0], float(params["y"]), value, unit)
    if name in rules.MOVES or name == "split" or name in ("reduce_max", "reduce_min"):
        return errors[0]
    if name in rules.JOINS:
        return rounding.larger(inputs, errors, value, unit)
    if name in rules.PICKS and all(error.exact for error in errors[1:]):
        return errors[0]
    if name == "convert_element_type":
        return _converted(errors[0], value, params["new_dtype"], unit)
    if name in ("reduce_sum", "cumsum"):
        count = shape[int(params["axis"])] if name == "cumsum" else _count(shape, tuple(map(int, params["axes"])))
        return rounding.summed(inputs[0], errors[0], count, value, unit)
    if name == "reduce_prod":
        return rounding.integer_power(
            errors[0], float(max(_count(shape, tuple(map(int, params["axes"]))), 1)), value, unit
        )
    if name == "dot_general":
        axes: Sequence[int] = params["dimension_numbers"][0][0]
        return _contracted(inputs, errors, value, _count(shape, axes), unit)
    return LOST


def _count(shape: tuple[int, ...], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)


def _contracted(inputs: Many, errors: Errors, value: Value, count: int, unit: Unit) -> Rounding:
    a, b = inputs
    one_sign = all(x.low >= 0 or x.high <= 0 for x in inputs)
    ends = [rounding.times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    product = Value(min(ends), max(ends)) if one_sign else Value(-math.inf, math.inf)
    return rounding.summed(product, rounding.multiplied(errors[0], errors[1], product, unit), count, value, unit)


def _converted(error: Rounding, value: Value, kind: Any, unit: Unit) -> Rounding:
    """To another type: rounded once where it holds fewer digits."""
    if kind == np.float64:
        return error
    if unit.rounding == 0.0:
        return LOST if not error.exact or value.low != value.high else error
    relative = error.relative * rounding.SECOND + unit.rounding * rounding.SECOND
    absolute = error.absolute + rounding.times(unit.rounding, error.most + error.absolute)
    return rounding.bounded(value, relative, absolute, error.least, error.most, unit, scaled=True)
