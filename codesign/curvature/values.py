"""Abstract value of a number of the model for every legal plan and the whole box: range, curvature, direction.

All curvature is in the coordinates u of the box, which are affine in the logarithms of the varied hardware numbers, for
a fixed plan. A value has two curvatures: that of itself, and, where it is non-negative, that of its logarithm.

    constant       both affine; the same anywhere in the box
    monomial       its logarithm is affine
    log-convex     its logarithm is convex: posynomials, maxima of them (so is the value itself)
    log-concave    its logarithm is concave: reciprocals of these; monomial minus posynomial where positive

A non-negative value whose logarithm has a curvature is positive, or zero in the whole box for some plans.
Source: the rules are those of disciplined convex [grant2006] and geometric programming [agrawal2019].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

CONVEX, CONCAVE = 1, 2
UNKNOWN, AFFINE = 0, CONVEX | CONCAVE
NAMES = {UNKNOWN: "unknown", CONVEX: "convex", CONCAVE: "concave", AFFINE: "affine"}


@dataclass(frozen=True, slots=True)
class Value:
    """One number, or all entries of an array together.

    Args:
        low, high: range over the box and all legal plans.
        plain: curvature of the value: CONVEX, CONCAVE, both (AFFINE) or neither (UNKNOWN).
        log: curvature of its logarithm.
        partial: `log` holds only where the value is positive, which is a convex part of the box.
        up, down: bits of what it never falls, never rises with (hardware variables first, then plan fields).
        constant: nothing that varies continuously reaches it.
        why: the first operation that lost the curvature of something it depends on.
    """

    low: float
    high: float
    plain: int = UNKNOWN
    log: int = UNKNOWN
    partial: bool = False
    up: int = 0
    down: int = 0
    constant: bool = False
    why: str = ""

    @property
    def positive(self) -> bool:
        """Above zero everywhere."""
        return self.low > 0

    @property
    def log_everywhere(self) -> int:
        """Curvature of the logarithm where the value is never negative; UNKNOWN where that is not known."""
        return UNKNOWN if self.partial or not self.low >= 0 else self.log

    @property
    def kind(self) -> str:
        """Curvature in words, such as `log-convex`."""
        if self.constant:
            return "constant"
        logs = {AFFINE: "monomial", CONVEX: "log-convex", CONCAVE: "log-concave"}
        if self.log and not self.partial:
            return logs[self.log]
        if self.log and not self.plain:
            return f"{logs[self.log]} where positive"
        return NAMES[self.plain]


def made(
    low: float,
    high: float,
    *,
    plain: int = UNKNOWN,
    log: int = UNKNOWN,
    partial: bool = False,
    up: int = 0,
    down: int = 0,
    why: str = "",
) -> Value:
    """A value with what follows from its parts: log-convex is convex, concave and positive is log-concave."""
    if math.isnan(low) or math.isnan(high):
        low, high = -math.inf, math.inf
    if low > 0:
        partial = False
    if not (low >= 0 or partial):
        log = UNKNOWN
    if log & CONVEX and not partial:
        plain |= CONVEX
    if plain & CONCAVE and not log:
        log, partial = CONCAVE, not low > 0
    return Value(low, high, plain, log, partial, up, down, why="" if plain or log else why)


def unknown(low: float, high: float, why: str, up: int = 0, down: int = 0) -> Value:
    """A value of which only range and directions are known."""
    return Value(low, high, up=up, down=down, why=why)


def flipped(curvature: int) -> int:
    """Curvature of the negative, or of the logarithm of the reciprocal."""
    return (CONCAVE if curvature & CONVEX else 0) | (CONVEX if curvature & CONCAVE else 0)


def joined(values: Sequence[Value]) -> Value:
    """Join of values: holds for a number that is one of these, plan by plan or entry by entry."""
    first = values[0]
    if all(value is first for value in values):
        return first
    plain = log = AFFINE
    up = down = -1
    partial = any(value.partial for value in values)
    for value in values:
        plain &= value.plain
        log &= value.log
        up, down = up & value.up, down & value.down
    low, high = min(value.low for value in values), max(value.high for value in values)
    why = next((value.why for value in values if value.why), "")
    if not (plain or log):
        return unknown(low, high, why, up, down)
    return replace(
        made(low, high, plain=plain, log=log, partial=partial, up=up, down=down),
        constant=all(value.constant for value in values),
        why=why,
    )
