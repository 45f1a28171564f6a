"""Rules of operations that carry a name of this package, because their parts hide what they are.

One rule a name. `tests/contracts/test_operation_rules.py` attacks each: wherever a rule promises a curvature, random
arguments of that kind must keep it, and slopes must be those of the function.
"""

import math
from collections.abc import Callable

from ..core.smooth import TINY
from ..model.networks.fabrics.contended import CALM_RATIO
from ..model.reliability.failures import HOPELESS, LEAST, best_growth
from .rules import divide, is_zero, maximum, minimum
from .values import CONCAVE, CONVEX, UNKNOWN, Value, made, unknown

ROUNDING = 1e-12  # of a power of 19: what an interpreter and a compiler may differ by
SURELY = 1e-20  # beside zero the weight of what is larger is exactly 1, at any sharpness of 2 or more


def kink(a: Value, b: Value) -> Value:
    """`smooth.maximum` of two: only what grows with it may use it.

    Bounds read it as w a + (1 - w) b, which lies below it, so what falls where it rises would be bounded from the
    wrong side. Taken for convex and never for affine, it loses its curvature in such a place.
    """
    for one, other in ((a, b), (b, a)):
        if is_zero(one) and other.low > SURELY:
            return other
    low, high = max(a.low, b.low), max(a.high, b.high)
    low = min(low, 0.0) if a is b else 0.5 * low if low > 0 else low  # the larger has half of the weight or more
    plain, log = a.plain & b.plain & CONVEX, a.log_everywhere & b.log_everywhere & CONVEX
    return made(low, high, plain=plain, log=log, up=a.up & b.up, down=a.down & b.down)


def kinks(values: Value) -> Value:
    """`smooth.largest`: the same of the entries of an array."""
    return kink(values, values)


def at_least(a: Value, b: Value) -> Value:
    """`smooth.at_least`: exact in every reading; slopes at ties are between those of the sides."""
    return maximum(a, b)


def at_most(a: Value, b: Value) -> Value:
    """`smooth.at_most`, likewise."""
    return minimum(a, b)


def p_norm(p: Value, *terms: Value) -> Value:
    """(sum x^p)^(1/p), p >= 1, of log-convex terms: log-convex, and convex terms that are not negative: convex.

    Source: [boyd2004] section 3.2.4; the logarithm is a log-sum-exp of p log x, over p.
    """
    up = down = -1
    for term in (p, *terms):
        up, down = up & term.up, down & term.down
    low, high = max(term.low for term in terms), sum(term.high for term in terms)
    if not (p.constant and p.low >= 1 and all(term.low >= 0 for term in terms)):
        return unknown(low, high, "a p-norm whose power is below 1 or varied, or with terms that may be negative")
    fixed = p.up & p.down
    log = CONVEX if all(term.log_everywhere & CONVEX for term in terms) else UNKNOWN
    plain = CONVEX if all(term.plain & CONVEX for term in terms) else UNKNOWN
    return made(low, high, plain=plain, log=log, up=up & fixed, down=down & fixed)


def used_share(used: Value, usable: Value) -> Value:
    """used / usable, infinite where nothing is usable: log-convex where used is and usable is log-concave.

    What is usable may turn negative (a capacity less a reserve): the share is then infinite, and the part of the box
    where it is finite is convex.
    """
    if usable.low > TINY:
        return divide(used, usable)
    if not used.low >= 0:
        return unknown(-math.inf, math.inf, "a share of something that may be negative")
    log = UNKNOWN
    if used.log_everywhere & CONVEX and (
        usable.log & CONCAVE if usable.partial or usable.low >= 0 else usable.constant
    ):
        log = CONVEX
    return made(0.0, math.inf, log=log, up=used.up & usable.down, down=used.down & usable.up)


def slowdown(a: Value) -> Value:
    """`contended.slowdown`: rising, and its logarithm convex in the logarithm of its argument."""
    if not a.low >= 0:
        return unknown(-math.inf, math.inf, "a share of a rate that may be negative")
    log = CONVEX if a.log_everywhere & CONVEX else UNKNOWN
    low, high = _slowed(a.low) * (1 - ROUNDING), _slowed(a.high) * (1 + ROUNDING)
    return made(low, high, log=log, up=a.up, down=a.down)


def _slowed(share: float) -> float:
    """1 / (1 - u) below 0.95, beyond it the power that touches it there."""
    if share < CALM_RATIO:
        return 1 / (1 - share)
    return (share / CALM_RATIO) ** (CALM_RATIO / (1 - CALM_RATIO)) / (1 - CALM_RATIO) if share < 1e15 else math.inf


def growth(a: Value) -> Value:
    """`renewal.growth`: a series of powers with positive factors, rising."""
    return _rising(a, 0.0, lambda x: math.expm1(min(x, HOPELESS)) / min(x, HOPELESS) if x > 0 else 1.0)


def least_growth(a: Value) -> Value:
    """`renewal.least_growth`: the least, over an interval, of what is log-convex in it and in a together; rising."""
    return _rising(a, LEAST, best_growth)


def _rising(a: Value, least: float, function: Callable[[float], float]) -> Value:
    """A function that rises, whose logarithm is convex in that of its argument, constant below and beyond."""
    if not a.low >= 0:
        return unknown(-math.inf, math.inf, "failures in a time that may be negative")
    log = CONVEX if a.log_everywhere & CONVEX and least <= a.low and a.high <= HOPELESS else UNKNOWN
    return made(function(a.low) * (1 - ROUNDING), function(a.high) * (1 + ROUNDING), log=log, up=a.up, down=a.down)


def rounded(a: Value) -> Value:
    """`smooth.ceil` and `smooth.floor`: of a varied number a step whose slope is another's, wherever it lies."""
    return unknown(a.low - 1, a.high + 1, a.why or "rounding of a number that changes with the hardware", a.up, a.down)


RULES: dict[str, Callable[..., Value]] = {
    "kink": kink,
    "kinks": kinks,
    "at_least": at_least,
    "at_most": at_most,
    "p_norm": p_norm,
    "used_share": used_share,
    "slowdown": slowdown,
    "growth": growth,
    "least_growth": least_growth,
    "ceil": rounded,
    "floor": rounded,
}
READ = ("kink", "kinks")
"""Operations that bounds read differently where the hardware reaches them."""
