"""Rules of maxima and minima, comparisons, choices between branches, and rounding."""

import math
from itertools import pairwise

from .values import AFFINE, CONCAVE, CONVEX, UNKNOWN, Value, joined, made, unknown

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
    return bool(value.whole & CONVEX)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of concave values is concave, of log-concave ones log-concave."""
    if a.high <= b.low or b.high <= a.low:
        return a if a.high <= b.low else b
    return made(
        min(a.low, b.low),
        min(a.high, b.high),
        plain=a.plain & b.plain & CONCAVE,
        log=a.whole & b.whole & CONCAVE,
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


def _known(*values: Value) -> bool:
    """True if ranges may decide a comparison: what may be infinite may be no number, and compares as false."""
    return all(math.isfinite(value.low) and math.isfinite(value.high) for value in values)


def _single(a: Value, b: Value) -> bool:
    """Two numbers that nothing changes."""
    return a.low == a.high and b.low == b.high


def less(a: Value, b: Value) -> Value:
    """a < b."""
    if _known(a, b) and (_clearly_below(a.high, b.low) or _clearly_below(b.high, a.low) or _single(a, b)):
        return decided(a.high < b.low)
    return _undecided(a, b, "<")


def less_equal(a: Value, b: Value) -> Value:
    """a <= b."""
    if _known(a, b) and (_clearly_below(a.high, b.low) or _clearly_below(b.high, a.low) or _single(a, b)):
        return decided(a.high <= b.low)
    return _undecided(a, b, "<=")


def equal(a: Value, b: Value) -> Value:
    """a == b."""
    if _known(a, b) and (_clearly_below(a.high, b.low) or _clearly_below(b.high, a.low) or _single(a, b)):
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
    return known_directions(result, unmoved | rises, unmoved | falls)


def known_directions(value: Value, up: int, down: int) -> Value:
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
