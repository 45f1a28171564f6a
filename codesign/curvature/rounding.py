"""By how much a number that float64 computes may lie beside the one that real arithmetic defines: bounds, by rules.

A bound holds for every legal plan and the whole box, of each operation done once in the order of the program, by NumPy
or by XLA. Constants of the plan carry no error: the model is defined on the float64 numbers that they are. Errors begin
where the hardware reaches an operation and grow by the rules of forward error analysis:

    sums of one sign, maxima, minima    the largest relative error of the parts, plus one rounding
    products, quotients                 relative errors add up
    powers, exp, log                    relative error times condition number, plus four units in the last place
    differences                         absolute errors add up; relative is that over the least magnitude

Relative and absolute bound are carried side by side, each with the magnitudes that non-zero values have: a product of
wide ranges keeps its relative bound, a sum in which a large constant cancels keeps the absolute one. Where a magnitude
may leave the range of normal numbers neither bound holds.

Source: [higham2002] chapters 2 and 3.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .values import UNKNOWN, Value, made

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Rounding of one operation, relative."""
ENDS = {
    "float64": (2.0**-1022, 1.7976931348623157e308), "float32": (2.0**-126, 3.4e38),
    "float16": (2.0**-14, 65504.0), "bfloat16": (2.0**-126, 3.3e38),
}  # fmt: skip
"""Least normal and largest finite number."""
ELEMENTARY = 8.0  # roundings of exp, log and powers: four units in the last place
TINIEST = 5e-324  # above zero
ROOM = 1e-13  # relative: comparisons of ranges leave ten times as much
NEVER_NEGATIVE = ("exp", "exp2", "sqrt", "square", "abs")  # whatever is computed before them
MOST = 0.01  # relative: beyond it a number is taken for lost, and what follows is simpler
SECOND = 1.02  # covers terms of second order of relative errors up to MOST


class Rounding(NamedTuple):
    """Bounds of one number, or of all entries of an array, where it is finite.

    Args:
        relative: of the difference between computed and real number, over the real one; zeros are computed as zeros.
        absolute: of the difference itself.
        least, most: magnitudes of non-zero values lie between these.
        steep: both bounds hold where the number is at most 1; where it is larger they are so many times as large.
        lost: why neither holds, where magnitudes say it; at: the operation that lost the digits.
    """

    relative: float
    absolute: float
    least: float
    most: float
    steep: bool = False
    lost: str = ""
    at: Any = None

    @property
    def exact(self) -> bool:
        """Computed as it is defined."""
        return self.absolute == 0.0 == self.relative


LOST = Rounding(math.inf, math.inf, 0.0, math.inf)
OVERFLOW = LOST._replace(lost="overflow")
ZERO = Rounding(0.0, 0.0, math.inf, 0.0)


class Unit(NamedTuple):
    """Limits of a number format: rounding of one operation, least normal and largest finite magnitude."""

    rounding: float
    least: float
    most: float


DOUBLE = Unit(UNITS["float64"], *ENDS["float64"])
_INTEGER = Unit(0.0, 0.0, math.inf)  # whole numbers and truths


def unit_of(kind: Any) -> Unit:
    """Limits of a number format, by its type."""
    if kind == np.float64:
        return DOUBLE
    name = str(kind)
    return Unit(UNITS[name], *ENDS[name]) if name in UNITS else _INTEGER


def times(a: float, b: float) -> float:
    """Product of bounds; zero times infinity is zero."""
    return 0.0 if a == 0.0 or b == 0.0 else a * b


def over(a: float, b: float) -> float:
    """Quotient of bounds; by zero it is infinite."""
    return 0.0 if a == 0.0 or b == math.inf else a / b if b else math.inf


def raised(base: float, exponent: float) -> float:
    """A magnitude to a power, infinite beyond float64."""
    if exponent == 0.0:
        return 1.0
    if base == 0.0 or base == math.inf:
        return base if (exponent > 0) else over(1.0, base)
    log = exponent * math.log(base)
    return math.exp(log) if log < 709.78 else math.inf


def grown(x: float) -> float:
    """exp(x) - 1 of a first-order bound."""
    return math.expm1(x) if x < 1.0 else math.inf


def of_constant(value: Value, numbers: np.ndarray | None = None) -> Rounding:
    """Rounding of a constant of the plan: no error, and the magnitudes that it has."""
    size, near = max(abs(value.low), abs(value.high)), _nearest(value)
    if numbers is not None and numbers.size and not (near > 0 and size < math.inf):
        sizes = np.abs(numbers)
        positive_sizes = sizes[(sizes > 0) & (sizes < math.inf)]
        near, size = (
            (float(positive_sizes.min()), float(positive_sizes.max())) if positive_sizes.size else (math.inf, 0.0)
        )
    return Rounding(0.0, 0.0, near if size else math.inf, size)


def _nearest(value: Value) -> float:
    """Least magnitude that the range allows."""
    return value.low if value.low > 0 else -value.high if value.high < 0 else 0.0


def bounded(
    value: Value,
    relative: float,
    absolute: float,
    least: float,
    most: float,
    unit: Unit = _INTEGER,
    *,
    scaled: bool = False,
) -> Rounding:
    """The better of both bounds, by the range of the value; neither where it may leave what its type holds.

    Args:
        value: what is known of the number.
        relative, absolute, least, most: as of `Rounding`.
        unit: of its type.
        scaled: whether it may be less than what it is made of, so that it can underflow.
    """
    size, near = max(abs(value.low), abs(value.high)), _nearest(value)
    if not relative <= ROOM:  # ends of ranges are computed as numbers are
        slack = times(relative, size) if relative <= MOST else absolute
        size, near = size + slack, max(near - slack, 0.0)
    most, least = (size if size < most else most), (near if near > least else least)
    lost = ""
    if most > unit.most or most != most or near == math.inf:
        return LOST if value.high == -math.inf else OVERFLOW
    if scaled and least < unit.least:
        relative, absolute, lost = math.inf, absolute + unit.least, "underflow" if least > 0 else ""
        most = max(most, unit.least)
    if not relative <= MOST:
        relative = math.inf
    total = times(relative, most)
    if relative < math.inf and total < absolute:
        absolute = total
    share = over(absolute, least)
    if share < relative:
        relative = share
    return Rounding(relative, absolute, least, most, False, lost)


def added(a: Value, b: Value, of_a: Rounding, of_b: Rounding, value: Value, unit: Unit) -> Rounding:
    """a + b: without cancellation the larger relative error, with it the sum of absolute ones."""
    most = of_a.most + of_b.most
    absolute = of_a.absolute + of_b.absolute
    size = min(most, max(abs(value.low), abs(value.high)))
    absolute += times(unit.rounding, size + absolute)
    if (a.low >= 0 and b.low >= 0) or (a.high <= 0 and b.high <= 0):
        relative = max(of_a.relative, of_b.relative) * (1 + unit.rounding) + unit.rounding
        return bounded(value, relative, absolute, min(of_a.least, of_b.least), most, unit)
    return bounded(value, math.inf, absolute, 0.0, most, unit)


def multiplied(of_a: Rounding, of_b: Rounding, value: Value, unit: Unit) -> Rounding:
    """a b: relative errors add up."""
    least, most = times(of_a.least, of_b.least), times(of_a.most, of_b.most)
    both = of_a.relative + of_b.relative
    relative = both * SECOND + unit.rounding * SECOND if both else unit.rounding
    absolute = (
        times(of_a.most, of_b.absolute) + times(of_b.most, of_a.absolute) + times(of_a.absolute, of_b.absolute)
    )  # fmt: skip
    absolute += times(unit.rounding, most + absolute)
    return bounded(value, relative, absolute, least, most, unit, scaled=True)


def divided(of_a: Rounding, of_b: Rounding, value: Value, unit: Unit) -> Rounding:
    """a / b: relative errors add up."""
    if not of_b.relative <= MOST:
        return LOST
    other = of_b.relative / (1 - of_b.relative)
    both = of_a.relative + other
    least, most = over(of_a.least, of_b.most), over(of_a.most, of_b.least)
    relative = both * SECOND + unit.rounding * SECOND if both else unit.rounding
    absolute = over(of_a.absolute, of_b.least) * (1 + other) + times(other + unit.rounding * SECOND, most)
    return bounded(value, relative, absolute, least, most, unit, scaled=True)


def larger(
    values: Sequence[Value], errors: Sequence[Rounding], value: Value, unit: Unit, slack: float = 0.0
) -> Rounding:
    """The largest, the least or any of several, rounded so often besides."""
    relative = max(error.relative for error in errors) + slack * unit.rounding
    most = max(error.most for error in errors)
    absolute = max(error.absolute for error in errors) + times(slack * unit.rounding, most)
    if value.low > 0 and relative > MOST:  # what is lost of a part that may be zero is known beside what is not
        parts = [
            error.relative if part.low > 0 else over(error.absolute, value.low)
            for part, error in zip(values, errors, strict=True)
        ]
        relative = max(parts) + slack * unit.rounding
    return bounded(value, relative, absolute, min(error.least for error in errors), most)


def exponential(error: Rounding, value: Value, unit: Unit) -> Rounding:
    """exp(a): the absolute error becomes a relative one."""
    relative = grown(error.absolute) * SECOND + ELEMENTARY * unit.rounding
    least = max(math.exp(-error.most), TINIEST) if error.most < math.inf else 0.0
    most = math.exp(error.most) if error.most < 709.78 else math.inf
    return bounded(value, relative, math.inf, least, most, unit, scaled=True)


def logarithm(error: Rounding, value: Value, unit: Unit) -> Rounding:
    """log(a): the relative error becomes an absolute one."""
    if not error.relative <= MOST:
        return LOST
    size = max(abs(_log(error.least)), abs(_log(error.most)))
    off = error.relative * SECOND
    size = min(size, max(abs(value.low), abs(value.high)) + off)
    absolute = off + times(ELEMENTARY * unit.rounding, size)
    return bounded(value, math.inf, absolute, 0.0, size + absolute)


def _log(x: float) -> float:
    return math.log(x) if 0 < x < math.inf else 745.0


def power(a: Value, of_a: Rounding, exponent: Value, of_exponent: Rounding, value: Value, unit: Unit) -> Rounding:
    """a to a power: relative error times exponent, and what is wrong with the exponent times the log."""
    if not (of_a.relative <= MOST and of_exponent.absolute <= MOST) or a.low < 0:
        return LOST
    size = max(abs(exponent.low), abs(exponent.high))
    logs = max(abs(_log(of_a.least)), abs(_log(of_a.most)))
    wrong = times(size, SECOND * of_a.relative) + times(of_exponent.absolute * SECOND, logs)
    relative = grown(wrong) + ELEMENTARY * unit.rounding
    ends = [raised(x, y) for x in (of_a.least, of_a.most) for y in (exponent.low, exponent.high)]
    if exponent.low <= 0 <= exponent.high:
        ends.append(1.0)
    return bounded(value, relative, math.inf, min(ends), max(ends), unit, scaled=True)


def integer_power(of_a: Rounding, exponent: float, value: Value, unit: Unit) -> Rounding:
    """a to a whole power, of any sign: by products, or as any power."""
    size = abs(exponent)
    if not of_a.relative <= MOST:
        if exponent != 2:
            return LOST
        absolute = times(2 * of_a.most, of_a.absolute) + of_a.absolute * of_a.absolute
        absolute += times(unit.rounding, of_a.most * of_a.most + absolute)
        return bounded(value, math.inf, absolute, 0.0, times(of_a.most, of_a.most), unit, scaled=True)
    relative = grown(size * SECOND * of_a.relative) + (size + ELEMENTARY) * unit.rounding * SECOND
    ends = sorted(raised(x, exponent) for x in (of_a.least, of_a.most))
    turned = [raised(x, size) for x in (of_a.least, of_a.most)]
    if exponent < 0 and max(turned) > unit.most:
        return OVERFLOW
    return bounded(value, relative, math.inf, ends[0], ends[1], unit, scaled=True)


def summed(a: Value, error: Rounding, count: int, value: Value, unit: Unit) -> Rounding:
    """A sum of so many entries, in any order."""
    if count <= 1:
        return error
    slack = (count - 1) * unit.rounding * SECOND
    most = times(error.most, float(count))
    absolute = times(error.absolute, float(count)) + times(slack, most + times(error.absolute, float(count)))
    if a.low >= 0 or a.high <= 0:
        return bounded(value, error.relative * (1 + slack) + slack, absolute, error.least, most, unit)
    return bounded(value, math.inf, absolute, 0.0, most, unit)


def widened(value: Value, error: Rounding) -> Value:
    """With the range that computed numbers have; ends of ranges are computed too, so it is that of real ones as well.

    Where no digit of its sign is known, nothing is said that rests on the sign.
    """
    if error.exact or error.steep:
        return value
    if error.relative <= MOST and (value.low >= 0 or value.high <= 0):
        near, far = 1 - error.relative, 1 + error.relative
        low, high = (near, far) if value.low >= 0 else (far, near)
        return replace(value, low=value.low * low, high=value.high * high, constant=False)
    low, high, partial = value.low - error.absolute, value.high + error.absolute, value.partial
    log = value.log if partial else UNKNOWN
    return made(low, high, plain=value.plain, log=log, partial=partial, up=value.up, down=value.down, why=value.why)


def outward(value: Value, error: Rounding, name: str) -> Value:
    """With a range that is sound: what is off by more than comparisons leave room for is widened by that."""
    if error.relative <= ROOM:
        return value
    wide = widened(value, error)
    if name in NEVER_NEGATIVE and value.low >= 0:
        return replace(value, low=max(wide.low, 0.0), high=wide.high)
    return wide
