"""Exact check of a fleet's assignment: sums of products in fractions, without a solver.

The programme is built anew from rates, options and kinds. The solution must be whole and keep every row. Leaves of the
branch and bound must cover every whole point: an inner node splits one variable at a whole number, so that its children
together hold what it holds. Each leaf's multipliers y >= 0 then prove

    cost >= y b + sum_i min(d_i low_i, d_i high_i),   d = c - A' y

in its part, or, without costs, that nothing in it keeps all rows. The least over the leaves is the bound.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from .derivation import Refuted

__all__ = ["check_assignment"]

UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
ROUNDING = Fraction(1, 10**9)  # relative, of a row that a solution keeps and of a sum that is told


def check_assignment(stated: Mapping[str, Any]) -> list[str]:
    """Check a fleet and return lines on what was checked.

    Args:
        stated: `certificate` of a fleet's file.

    Raises:
        Refuted: naming the first thing that is not so, or that cannot be read.
    """
    try:
        return _checked(stated)
    except UNREADABLE as error:
        raise Refuted(f"the certificate of the fleet cannot be read: {type(error).__name__}") from error


def _checked(stated: Mapping[str, Any]) -> list[str]:
    rows, sides, cost, high = _program(stated)
    x = [*_integers(stated["replicas"]), *_integers(stated["bought"]), *_integers(stated["owned"])]
    if len(x) != len(cost):
        raise Refuted(f"the solution has {len(x)} numbers, the programme {len(cost)} variables")
    for index, (each, most) in enumerate(zip(x, high, strict=True)):
        if not 0 <= each <= most:
            raise Refuted(f"variable {index} is {each}, outside [0, {most}]")
    for index, (row, side) in enumerate(zip(rows, sides, strict=True)):
        if _product(row, x) < side - ROUNDING * max(abs(side), 1):
            raise Refuted(f"row {index} of the programme is not kept: a class, a box or a limit is exceeded")
    value, stated_usd = _product(cost, x), Fraction(float(stated["usd_per_s"]))
    if abs(value - stated_usd) > ROUNDING * abs(value):
        raise Refuted(f"the fleet costs {float(value):.9g} dollars a second, {float(stated_usd):.9g} are stated")
    bound, leaves = _bound(stated["nodes"], rows, sides, cost, high)
    stated_bound = Fraction(float(stated["bound"]))
    bound = value if bound is None else bound
    if bound < stated_bound * (1 - ROUNDING):
        raise Refuted(f"the leaves prove {float(bound):.9g} dollars a second, {float(stated_bound):.9g} are stated")
    if stated_bound > value * (1 + ROUNDING):
        raise Refuted("the stated bound is above the cost of the fleet")
    gap = float(1 - bound / value) if value else 0.0
    return [
        f"{len(x)} numbers of replicas and boxes are whole and keep all {len(rows)} rows",
        f"{leaves} parts cover every fleet of these options; the least is at most {max(gap, 0.0):.2e} below this one",
    ]


def _integers(values: Sequence[Any]) -> list[int]:
    if any(isinstance(value, bool) or value != int(value) for value in values):
        raise Refuted("a number of replicas or boxes is not whole")
    return [int(value) for value in values]


def _fraction(value: Any, what: str) -> Fraction:
    number = float(value)
    if not math.isfinite(number):
        raise Refuted(f"{what} = {value!r} is no number")
    return Fraction(number)


Program = tuple[list[list[Fraction]], list[Fraction], list[Fraction], list[int]]


def _program(stated: Mapping[str, Any]) -> Program:
    """Rows, sides, costs and upper bounds: replicas of each option, boxes bought, boxes owned."""
    options, kinds, rates = stated["options"], stated["kinds"], stated["rates"]
    rate = [_fraction(one["rate"], "rate") for one in options]
    if any(each <= 0 for each in rate) or any(one["usd_per_s"] < 0 for one in options):
        raise Refuted("an option serves nothing, or costs less than nothing")
    load = {name: _fraction(value, name) for name, value in rates.items()}
    fewest = [math.ceil(load[one["request_class"]] / each) for one, each in zip(options, rate, strict=True)]
    zero = Fraction(0)
    rows, sides = list[list[Fraction]](), list[Fraction]()
    for name, value in load.items():
        of_class = [each if one["request_class"] == name else zero for one, each in zip(options, rate, strict=True)]
        rows.append(of_class + [zero] * (2 * len(kinds)))
        sides.append(value)
    limits = stated["limits"]
    box = [Fraction(int(kind["box"])) for kind in kinds]
    for index, kind in enumerate(kinds):
        _check_sizes(kind, [int(one["devices"]) for one in options if one["kind"] == kind["name"]])
        boxes = [each if at == index else zero for at, each in enumerate(box)]
        rows.append(
            [Fraction(-int(one["devices"])) if one["kind"] == kind["name"] else zero for one in options] + 2 * boxes
        )
        sides.append(zero)
    if "budget" in limits:
        capital = [-each * _fraction(kind["capex_usd"], "capex_usd") for each, kind in zip(box, kinds, strict=True)]
        rows.append([zero] * len(options) + capital + [zero] * len(kinds))
        sides.append(-_fraction(limits["budget"], "budget"))
    if "power" in limits:
        watts = [-each * _fraction(kind["watts"], "watts") for each, kind in zip(box, kinds, strict=True)]
        rows.append([zero] * len(options) + 2 * watts)
        sides.append(-_fraction(limits["power"], "power"))
    cost = [_fraction(one["usd_per_s"], "usd_per_s") for one in options]
    for key in ("held_usd_per_s", "owned_usd_per_s"):
        cost += [each * _fraction(kind[key], key) for each, kind in zip(box, kinds, strict=True)]
    high = [*fewest, *_boxes(options, kinds, fewest), *(int(kind["owned_boxes"]) for kind in kinds)]
    return rows, sides, cost, high


def _check_sizes(kind: Mapping[str, Any], sizes: Sequence[int]) -> None:
    """Replicas fill boxes without a gap where each size divides the next one, and the box.

    Raises:
        Refuted: they do not.
    """
    box = int(kind["box"])
    small = sorted({size for size in sizes if size < box})
    if any(b % a for a, b in zip(small, [*small[1:], box], strict=True)) if small else False:
        raise Refuted(f"replicas of {small} devices may leave gaps in boxes of {box} {kind['name']}")
    if any(size % box for size in sizes if size > box):
        raise Refuted(f"a replica on {kind['name']} is neither a part of a box nor whole boxes")


def _boxes(options: Sequence[Mapping[str, Any]], kinds: Sequence[Mapping[str, Any]], fewest: list[int]) -> list[int]:
    """Boxes of each kind at most: those of all options at their fewest, or as many as are for sale."""
    result: list[int] = []
    for kind in kinds:
        devices = sum(
            count * int(one["devices"])
            for one, count in zip(options, fewest, strict=True)
            if one["kind"] == kind["name"]
        )
        needed = math.ceil(Fraction(devices, int(kind["box"])))
        result.append(needed if kind["most_boxes"] is None else min(needed, int(kind["most_boxes"])))
    return result


def _product(row: Sequence[Fraction], x: Sequence[int]) -> Fraction:
    return sum((each * value for each, value in zip(row, x, strict=True) if each and value), Fraction(0))


def _bound(
    nodes: Sequence[Any], rows: list[list[Fraction]], sides: list[Fraction], cost: list[Fraction], high: list[int]
) -> tuple[Fraction | None, int]:
    """The least bound of a leaf, none where no leaf has a point; and how many leaves there are."""
    least: Fraction | None = None
    waiting, leaves, seen = [(0, [0] * len(cost), list(high))], 0, set[int]()
    while waiting:
        number, low, top = waiting.pop()
        if number in seen or not 0 <= number < len(nodes):
            raise Refuted(f"node {number} of the branch and bound is there twice, or not at all")
        seen.add(number)
        variable, at, children, dual, infeasible = nodes[number]
        if variable >= 0:
            if variable >= len(cost) or not low[variable] <= at < top[variable] or at != int(at):
                raise Refuted(f"node {number} splits variable {variable} at {at}, outside of what it holds")
            below, above = list(top), list(low)
            below[variable], above[variable] = int(at), int(at) + 1
            waiting += [(int(children[0]), low, below), (int(children[1]), above, top)]
            continue
        leaves += 1
        y = [_fraction(each, "multiplier") for each in dual]
        if len(y) != len(rows) or any(each < 0 for each in y):
            raise Refuted(f"leaf {number} has multipliers that are none")
        proven = _of_leaf(y, rows, sides, [Fraction(0)] * len(cost) if infeasible else cost, low, top)
        if infeasible:
            if proven <= 0:
                raise Refuted(f"leaf {number} is not shown to be empty")
            continue
        least = proven if least is None else min(least, proven)
    return least, leaves


def _of_leaf(
    y: list[Fraction], rows: list[list[Fraction]], sides: list[Fraction], cost: list[Fraction], low: list[int],
    high: list[int],
) -> Fraction:  # fmt: skip
    total = sum((each * side for each, side in zip(y, sides, strict=True)), Fraction(0))
    used = [(each, row) for each, row in zip(y, rows, strict=True) if each]
    for index, coefficient in enumerate(cost):
        reduced = coefficient - sum((each * row[index] for each, row in used if row[index]), Fraction(0))
        total += reduced * (low[index] if reduced > 0 else high[index])
    return total
