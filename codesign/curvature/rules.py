"""Curvature rules of arithmetic, of choices, and of operations that move entries of arrays."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .values import AFFINE, CONCAVE, CONVEX, UNKNOWN, Value, flipped, joined, made, unknown

# Rules of maxima and minima, comparisons, choices between branches, and rounding.


MARGIN = 1e-12  # relative: ranges are computed in float64, a comparison that hangs on less is not decided


def maximum(a: Value, b: Value) -> Value:
    """The larger of convex values is convex; beside a log-convex one a constant may have any sign."""
    if a.low >= b.high or b.low >= a.high:
        return a if a.low >= b.high else b
    log = UNKNOWN
    if (_grows(a) or a.constant) and (_grows(b) or b.constant):
        log = CONVEX
    return made(
        max(a.low, b.low),
        max(a.high, b.high),
        plain=a.plain & b.plain & CONVEX,
        log=log,
        up=a.up & b.up,
        down=a.down & b.down,
    )


def _grows(value: Value) -> bool:
    return bool(value.log_everywhere & CONVEX)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of concave values is concave, of log-concave ones log-concave."""
    if a.high <= b.low or b.high <= a.low:
        return a if a.high <= b.low else b
    return made(
        min(a.low, b.low),
        min(a.high, b.high),
        plain=a.plain & b.plain & CONCAVE,
        log=a.log_everywhere & b.log_everywhere & CONCAVE,
        up=a.up & b.up,
        down=a.down & b.down,
    )


def clamp(low: Value, x: Value, high: Value) -> Value:
    """Between two numbers."""
    return minimum(maximum(x, low), high)


def decided(truth: bool) -> Value:
    """A yes or no that no plan and no hardware changes."""
    return decided_number(float(truth))


def decided_number(number: float) -> Value:
    """A number that no plan and no hardware changes."""
    log = AFFINE if number >= 0 else UNKNOWN
    return Value(number, number, AFFINE, log, False, -1, -1, constant=True)


def _undecided(a: Value, b: Value, what: str) -> Value:
    if a.constant and b.constant:
        return Value(0.0, 1.0, AFFINE, AFFINE, constant=True)
    return unknown(0.0, 1.0, a.why or b.why or f"the outcome of {what} changes with the hardware")


def _clearly_below(a: float, b: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a < b
    return a < b - MARGIN * max(abs(a), abs(b))


def _bounded(*values: Value) -> bool:
    """True if ranges may decide a comparison: what may be infinite may be no number, and compares as false."""
    return all(math.isfinite(value.low) and math.isfinite(value.high) for value in values)


def _single(a: Value, b: Value) -> bool:
    """Two numbers that nothing changes."""
    return a.low == a.high and b.low == b.high


def less(a: Value, b: Value) -> Value:
    """a < b."""
    if _bounded(a, b) and (_clearly_below(a.high, b.low) or _clearly_below(b.high, a.low) or _single(a, b)):
        return decided(a.high < b.low)
    return _undecided(a, b, "<")


def less_equal(a: Value, b: Value) -> Value:
    """a <= b."""
    if _bounded(a, b) and (_clearly_below(a.high, b.low) or _clearly_below(b.high, a.low) or _single(a, b)):
        return decided(a.high <= b.low)
    return _undecided(a, b, "<=")


def equal(a: Value, b: Value) -> Value:
    """a == b."""
    if _bounded(a, b) and (_clearly_below(a.high, b.low) or _clearly_below(b.high, a.low) or _single(a, b)):
        return decided(_single(a, b) and a.low == b.low)
    return _undecided(a, b, "==")


def inverted(a: Value) -> Value:
    """Not a."""
    if a.low == a.high:
        return decided(a.low == 0)
    return a


def both(a: Value, b: Value) -> Value:
    """a and b."""
    for one in (a, b):
        if one.high == 0:
            return decided(False)
    if a.low == 1:
        return b
    return a if b.low == 1 else _undecided(a, b, "and")


def either(a: Value, b: Value) -> Value:
    """a or b."""
    for one in (a, b):
        if one.low == 1:
            return decided(True)
    if a.high == 0:
        return b
    return a if b.high == 0 else _undecided(a, b, "or")


def select(which: Value, *cases: Value) -> Value:
    """One of the cases: for each plan the same one, unless what chooses is varied.

    Cases of which the same is known are not the same: only a caller that sees one value in all places can tell. Where
    no case is above the next one, the result rises along whatever chooses later cases and lets all of them rise.
    """
    if which.low == which.high and which.low == int(which.low) < len(cases):
        return cases[int(which.low)]
    result = joined(cases)
    if not which.constant:
        return unknown(result.low, result.high, which.why or "a choice that changes with the hardware")
    pairs = list(pairwise(cases))
    ascend = -1 if all(one.high <= other.low for one, other in pairs) else 0
    descend = -1 if all(one.low >= other.high for one, other in pairs) else 0
    unmoved = which.up & which.down  # fields that do not reach the choice, and all hardware
    rises, falls = (which.up & ascend) | (which.down & descend), (which.down & ascend) | (which.up & descend)
    return with_directions(result, unmoved | rises, unmoved | falls)


def with_directions(value: Value, up: int, down: int) -> Value:
    """Copy of a value that keeps only these directions."""
    return Value(
        value.low, value.high, value.plain, value.log, value.partial,
        value.up & up, value.down & down, value.constant, value.why,
    )  # fmt: skip


def rounded(a: Value, how: str) -> Value:
    """Rounding is a constant where the whole range rounds to one number."""
    does = {"floor": math.floor, "ceil": math.ceil, "round": round}[how]
    if math.isfinite(a.low) and math.isfinite(a.high):
        least, most = does(a.low - MARGIN * abs(a.low)), does(a.high + MARGIN * abs(a.high))
        if least == most:
            return decided_number(float(least))
    low = float(does(a.low - MARGIN * abs(a.low))) if math.isfinite(a.low) else a.low
    high = float(does(a.high + MARGIN * abs(a.high))) if math.isfinite(a.high) else a.high
    return unknown(low, high, a.why or f"{how} of a number that changes with the hardware", a.up, a.down)


def sign(a: Value) -> Value:
    """-1, 0 or 1."""
    if a.low > 0 or a.high < 0 or a.low == a.high == 0:
        return decided_number(float((a.low > 0) - (a.high < 0)))
    return unknown(-1.0, 1.0, a.why or "the sign of a number that changes with the hardware", a.up, a.down)


# Rules of sums, products, quotients, powers, exponentials and logarithms.


def _times(a: float, b: float) -> float:
    """Product of ends of ranges; zero times infinity is zero there."""
    return 0.0 if a == 0 or b == 0 else a * b


def _powered(base: float, exponent: float) -> float:
    if exponent == 0:
        return 1.0
    if base == 0:
        return 0.0 if exponent > 0 else math.inf
    return _exponential(exponent * math.log(base)) if math.isfinite(base) else (math.inf if exponent > 0 else 0.0)


def _exponential(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _logarithm(x: float) -> float:
    return math.log(x) if 0 < x < math.inf else (math.inf if x > 0 else -math.inf)


def independent(value: Value) -> int:
    """Bits of what the value does not change with."""
    return value.up & value.down


def is_zero(value: Value) -> bool:
    """Zero for every plan."""
    return value.low == value.high == 0.0


def add(a: Value, b: Value) -> Value:
    """Sums of log-convex values are log-convex."""
    if is_zero(a) or is_zero(b):
        return b if is_zero(a) else a
    log = CONVEX if a.log_everywhere & b.log_everywhere & CONVEX else UNKNOWN
    return made(a.low + b.low, a.high + b.high, plain=a.plain & b.plain, log=log, up=a.up & b.up, down=a.down & b.down)


def subtract(a: Value, b: Value) -> Value:
    """Log-concave minus log-convex is log-concave where it is positive: log(1 - exp(g)) is concave for convex g."""
    if is_zero(b):
        return a
    log = CONCAVE if (a.low >= 0 or a.partial) and a.log & CONCAVE and b.log_everywhere & CONVEX else UNKNOWN
    return made(
        a.low - b.high,
        a.high - b.low,
        plain=a.plain & flipped(b.plain),
        log=log,
        partial=bool(log),
        up=a.up & b.down,
        down=a.down & b.up,
    )


def negate(a: Value) -> Value:
    """The negative."""
    return made(-a.high, -a.low, plain=flipped(a.plain), up=a.down, down=a.up)


def multiply(a: Value, b: Value) -> Value:
    """Logarithms of factors add up; a constant factor keeps or turns the curvature by its sign."""
    ends = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    up, down = _directions_of_product(a, b)
    log, partial = UNKNOWN, a.partial or b.partial
    if (a.log_everywhere or a.partial) and (b.log_everywhere or b.partial) and not (a.partial and b.partial):
        log = a.log & b.log
    plain = _scaled(a.plain, b) if b.constant else _scaled(b.plain, a) if a.constant else UNKNOWN
    if any(x.low <= 0 <= x.high and math.inf in (-y.low, y.high) for x, y in ((a, b), (b, a))):
        ends += [math.inf] if a.low >= 0 and b.low >= 0 else [math.inf, -math.inf]  # zero times infinity is no number
    return made(min(ends), max(ends), plain=plain, log=log, partial=partial and bool(log), up=up, down=down)


def _scaled(plain: int, factor: Value) -> int:
    if factor.low >= 0:
        return plain
    if factor.high <= 0:
        return flipped(plain)
    return AFFINE if plain == AFFINE else UNKNOWN


def _directions_of_product(a: Value, b: Value) -> tuple[int, int]:
    up = down = independent(a) & independent(b)
    for one, other in ((a, b), (b, a)):
        if other.low >= 0:
            up, down = up | one.up & independent(other), down | one.down & independent(other)
        if other.high <= 0:
            up, down = up | one.down & independent(other), down | one.up & independent(other)
    for turned_a in (False, True):
        for turned_b in (False, True):
            x, y = (_turned(a) if turned_a else a), (_turned(b) if turned_b else b)
            if x.low >= 0 and y.low >= 0:
                rises, falls = x.up & y.up, x.down & y.down
                if turned_a != turned_b:
                    rises, falls = falls, rises
                up, down = up | rises, down | falls
    return up, down


def _turned(value: Value) -> Value:
    return Value(-value.high, -value.low, up=value.down, down=value.up)


def reciprocal(b: Value) -> Value:
    """1 / b of a value that does not change sign; a zero for all hardware leaves what no search can use."""
    if b.low < 0 < b.high:
        return made(-math.inf, math.inf, up=independent(b), down=independent(b))
    if b.low >= 0:
        low, high = _inverted(b.high), _inverted(b.low)
        return made(low, high, log=flipped(b.log_everywhere), up=b.down, down=b.up)
    plain = CONCAVE if b.plain & CONVEX and b.high < 0 else UNKNOWN
    return made(-_inverted(-b.high), -_inverted(-b.low), plain=plain, up=b.down, down=b.up)


def _inverted(x: float) -> float:
    return math.inf if x == 0 else 1 / x


def divide(a: Value, b: Value) -> Value:
    """a times the reciprocal of b."""
    inverse = reciprocal(b)
    if b.constant:
        inverse = constant_like(inverse)
    return multiply(a, inverse)


def constant_like(value: Value) -> Value:
    """A constant of the plan with the range of a value."""
    log = AFFINE if value.low >= 0 else UNKNOWN
    return Value(value.low, value.high, AFFINE, log, False, value.up, value.down, constant=True)


def power(a: Value, exponent: Value) -> Value:
    """Monomials to any power, log-convex values to powers of one sign; a constant to an affine or convex power."""
    if exponent.constant:
        return _constant_power(a, exponent)
    if a.constant and a.low > 0:
        ends = [_powered(x, y) for x in (a.low, a.high) for y in (exponent.low, exponent.high)]
        rate = constant_like(made(_logarithm(a.low), _logarithm(a.high), up=a.up, down=a.down))
        product = multiply(exponent, rate)
        return made(min(ends), max(ends), log=product.plain, up=product.up, down=product.down)
    if not a.low >= 0:
        return made(-math.inf, math.inf)
    return exponential(multiply(exponent, logarithm(a)))


def _constant_power(a: Value, exponent: Value) -> Value:
    if exponent.low == exponent.high == 1:
        return a
    if not a.low >= 0:
        return _power_of_signed(a, exponent)
    ends = [_powered(x, y) for x in (a.low, a.high) for y in (exponent.low, exponent.high)]
    if a.low <= 1 <= a.high:
        ends.append(1.0)
    log = plain = up = down = UNKNOWN
    if exponent.low >= 0:
        log, up, down = a.log_everywhere, a.up, a.down
        plain |= a.plain & CONVEX if exponent.low >= 1 else UNKNOWN
        plain |= a.plain & CONCAVE if exponent.high <= 1 else UNKNOWN
    elif exponent.high <= 0:
        log, up, down = flipped(a.log_everywhere), a.down, a.up
    elif a.log_everywhere == AFFINE:
        log = AFFINE
    fixed = independent(exponent)
    return made(min(ends), max(ends), plain=plain, log=log, up=up & fixed, down=down & fixed)


def _power_of_signed(a: Value, exponent: Value) -> Value:
    """Even whole powers of affine values are convex."""
    number = exponent.low
    if exponent.high == number and number > 0 and number % 2 == 0 and math.isfinite(a.low) and math.isfinite(a.high):
        most = _powered(max(abs(a.low), abs(a.high)), number)
        least = 0.0 if a.low < 0 < a.high else _powered(min(abs(a.low), abs(a.high)), number)
        return made(least, most, plain=CONVEX if a.plain == AFFINE else UNKNOWN)
    return made(-math.inf, math.inf, up=independent(a), down=independent(a))


def exponential(a: Value) -> Value:
    """Its logarithm is the argument."""
    return made(_exponential(a.low), _exponential(a.high), log=a.plain, up=a.up, down=a.down)


def logarithm(a: Value) -> Value:
    """The curvature is that of the argument's logarithm."""
    return made(_logarithm(a.low), _logarithm(a.high), plain=a.log_everywhere, up=a.up, down=a.down)


def logarithm_beside_one(a: Value) -> Value:
    """log(1 + a), whose range keeps the digits of a small a."""
    low, high = (math.log1p(x) if -1 < x < math.inf else _logarithm(1 + x) for x in (a.low, a.high))
    return replace(logarithm(add(Value(1.0, 1.0, AFFINE, AFFINE, up=-1, down=-1), a)), low=low, high=high)


def exponential_less_one(a: Value) -> Value:
    """exp(a) - 1, likewise."""
    low, high = (math.expm1(x) if x < 709 else math.inf for x in (a.low, a.high))
    return replace(subtract(exponential(a), Value(1.0, 1.0, AFFINE, AFFINE, up=-1, down=-1)), low=low, high=high)


def squashed(a: Value) -> Value:
    """Hyperbolic tangent: it rises, and nothing is said of its curvature."""
    return made(math.tanh(a.low), math.tanh(a.high), up=a.up, down=a.down)


def absolute(a: Value) -> Value:
    """Absolute value: values of one sign keep their curvature; of affine ones it is convex."""
    if a.low >= 0:
        return a
    if a.high <= 0:
        return negate(a)
    plain = CONVEX if a.plain == AFFINE else UNKNOWN
    return made(0.0, max(-a.low, a.high), plain=plain, up=independent(a), down=independent(a))


def summed(a: Value, count: int) -> Value:
    """A sum of so many entries, each of which is known by `a`."""
    if count == 1:
        return a
    low, high = _times(a.low, float(count)), _times(a.high, float(count))
    return made(low, high, plain=a.plain, log=a.log_everywhere & CONVEX, up=a.up, down=a.down)


def multiplied(values: Sequence[Value]) -> Value:
    """A product of several."""
    result = values[0]
    for value in values[1:]:
        result = multiply(result, value)
    return result


# Rules of operations that move, join or reduce entries of arrays.


MOVES = (*("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "copy", "copy_p"),)
"""Operations that only move the entries of their first argument."""
JOINS = ("concatenate", "stack", "pad")
"""Operations that put the entries of their arguments beside each other."""
PICKS = ("gather", "dynamic_slice", "take")
"""Operations that pick entries of their first argument at places that the others say."""


def split(a: Value, outputs: int) -> list[Value]:
    """Parts of an array."""
    return [a] * outputs


def pick(a: Value, *places: Value) -> Value:
    """Entries at places; varied places choose, and a place beyond the end may stand for zero."""
    if not all(candidate.constant for candidate in places):
        return unknown(min(a.low, 0.0), max(a.high, 0.0), "entries picked at places that change with the hardware")
    bits = -1
    for candidate in places:
        bits &= candidate.up & candidate.down  # what moves a place may move the value any way
    return with_directions(joined([a, decided_number(0.0)]), bits, bits)


def reduced(name: str, a: Value, shape: Sequence[int], params: dict[str, Any]) -> Value:
    """Sums, products, maxima and minima along axes."""
    if name == "cumsum":
        total = summed(a, shape[int(params["axis"])])
        return joined([a, total])
    axes: Sequence[int] = params["axes"]
    count = math.prod(shape[axis] for axis in axes)
    if name == "reduce_sum":
        return summed(a, count)
    if name == "reduce_max":
        return made(a.low, a.high, plain=a.plain & CONVEX, log=a.log_everywhere & CONVEX, up=a.up, down=a.down)
    if name == "reduce_min":
        return made(a.low, a.high, plain=a.plain & CONCAVE, log=a.log_everywhere & CONCAVE, up=a.up, down=a.down)
    result = a
    for _ in range(count - 1):
        result = multiply(result, a)
    return result


def contracted(a: Value, b: Value, shape: Sequence[int], params: dict[str, Any]) -> Value:
    """`dot_general`: sums of products."""
    axes: Sequence[int] = params["dimension_numbers"][0][0]
    return summed(multiply(a, b), math.prod(shape[axis] for axis in axes))
