"""Ranges of a program's outputs over many plans at once: fields that are set have one value, others any.

What few fields reach is tabulated, and its range over the fields left open is that of its table, exactly. The rest
follows by interval arithmetic, rounded outward, so that a range holds what any order of float64 operations computes of
it.

Source: interval extensions, [moore1966].
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..core.smooth import OPERATION
from ..jaxprs.partial_evaluation import run_rows
from ..jaxprs.program import DERIVED, Equation, Program, inside
from ..model.scenario import Scenario
from .rows import RowProgram
from .tables import Fields, PlanTable, Table, literal, tabulate_all

__all__ = ["MOST_TABLED", "PlanRanges", "Range", "range_of_equation"]

MOST_TABLED = 1 << 16  # combinations of a table (memory: half a megabyte for each number)


class Range(NamedTuple):
    """Least and most of an array in each of many groups of plans, with an axis of groups first (1 long: all alike)."""

    low: np.ndarray
    high: np.ndarray

    @property
    def exact(self) -> bool:
        """True if every number is known."""
        return self.low is self.high or bool(np.array_equal(self.low, self.high))


MOVES = (
    "broadcast_in_dim", "slice", "squeeze", "reshape", "concatenate", "stack", "transpose", "expand_dims", "rev",
    "copy", "stop_gradient", "pad", "split",
)  # fmt: skip
RISING = (
    *MOVES, "add", "add_any", "max", "min", "exp", "exp2", "log", "log1p", "expm1", "sqrt", "cbrt", "floor", "ceil",
    "round", "sign", "tanh", "logistic", "reduce_sum", "reduce_max", "reduce_min", "cumsum", "clamp",
    *(OPERATION + name for name in ("kink", "kinks", "at_least", "at_most", "ceil", "floor")),
)  # fmt: skip
"""Operations that never fall in any of their numbers."""
KEEPS = (
    *MOVES, "max", "min", "floor", "ceil", "round", "sign", "reduce_max", "reduce_min", "clamp", "gather",
    "dynamic_slice", "neg", "abs", "select_n", "convert_element_type",
    *(OPERATION + name for name in ("kink", "kinks", "at_least", "at_most")),
)  # fmt: skip
"""Operations whose results are not rounded."""
OUTWARD = 2.0**-50  # relative: four times the last digit, which logarithms and powers may miss by
TRUTHS = ("and", "or", "reduce_and", "reduce_or")  # rise where they are of truths
PICKS = ("gather", "dynamic_slice")  # rise in what they pick from, where their places are known
At = Callable[..., list[np.ndarray]]


def range_of_equation(equation: Equation, inputs: Sequence[Range]) -> list[Range]:
    """Ranges of the outputs of an equation, of each group by its own numbers alone.

    Where no rule says more they may be any numbers.
    """
    name = equation.name

    def at(*given: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return run_rows(equation, given)

    if all(each.exact for each in inputs):
        return [Range(each, each) for each in at(*(each.low for each in inputs))]
    if name in DERIVED or (equation.inner is not None and not name.startswith(OPERATION)):
        return _inside(inside(equation.inner), inputs)
    result = _ranges(equation, inputs, at)
    return result if name in KEEPS else [_outward(each) for each in result]


def _ranges(equation: Equation, inputs: Sequence[Range], at: At) -> list[Range]:
    name = equation.name
    if name in RISING or (name in TRUTHS and all(each.low.dtype == bool for each in inputs)):
        return _between([at(*(each.low for each in inputs))], [at(*(each.high for each in inputs))])
    if name in PICKS:
        return _picked(equation, inputs, at)
    rule = RULES.get(name)
    result = rule(at, equation, inputs) if rule else None
    return _anything(equation, inputs, at) if result is None else result


def _inside(program: Program, inputs: Sequence[Range]) -> list[Range]:
    slots = {slot: Range(value[None], value[None]) for slot, value in program.constants.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        result = range_of_equation(equation, [slots[slot] for slot in equation.inputs])
        slots |= dict(zip(equation.outputs, result, strict=True))
    return [slots[slot] for slot in program.outputs]


def _outward(each: Range) -> Range:
    if each.low.dtype.kind != "f":
        return each
    with np.errstate(invalid="ignore"):
        low, high = each.low - OUTWARD * np.abs(each.low), each.high + OUTWARD * np.abs(each.high)
    return Range(np.where(np.isnan(low), each.low, low), np.where(np.isnan(high), each.high, high))


def _ends(kind: np.dtype) -> tuple[Any, Any]:
    """Least and most of what an array of this kind may hold."""
    if kind.kind == "f":
        return -np.inf, np.inf
    if kind.kind == "b":
        return False, True
    return np.iinfo(kind).min, np.iinfo(kind).max


def _between(lows: Sequence[Sequence[np.ndarray]], highs: Sequence[Sequence[np.ndarray]]) -> list[Range]:
    """Ranges from the least of some outputs to the most of others; an end that is no number is infinite."""
    result = list[Range]()
    for low_each, high_each in zip(zip(*lows, strict=True), zip(*highs, strict=True), strict=True):
        low, high = functools.reduce(np.minimum, low_each), functools.reduce(np.maximum, high_each)
        low, high = np.broadcast_arrays(low, high)
        if low.dtype.kind == "f":
            low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
        result.append(Range(low, high))
    return result


def _determined(inputs: Sequence[Range]) -> Bool[np.ndarray, " groups"]:
    """Groups of which all that goes in is known."""
    determined = np.ones(max(len(each.low) for each in inputs), dtype=bool)
    for low, high in inputs:
        determined &= np.broadcast_to((low == high).reshape(len(low), -1).all(axis=1), determined.shape)
    return determined


def _only(determined: np.ndarray, ranges: Sequence[Range]) -> list[Range]:
    """Ranges of the groups where something is known, any number elsewhere."""
    result = list[Range]()
    for low, high in ranges:
        shape = np.broadcast_shapes(low.shape, (len(determined), *[1] * (low.ndim - 1)))
        here, (least, most) = determined.reshape(-1, *[1] * (low.ndim - 1)), _ends(low.dtype)
        low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
        result.append(Range(np.where(here, low, least), np.where(here, high, most)))
    return result


def _anything(equation: Equation, inputs: Sequence[Range], at: At) -> list[Range]:
    """Any number, but where all that goes in is known."""
    del equation
    return _only(_determined(inputs), [Range(each, each) for each in at(*(each.low for each in inputs))])


def _picked(equation: Equation, inputs: Sequence[Range], at: At) -> list[Range]:
    del equation
    places = [each.low for each in inputs[1:]]
    ranges = _between([at(inputs[0].low, *places)], [at(inputs[0].high, *places)])
    return _only(_determined(inputs[1:]), ranges) if places else ranges


def _where(at: At, *truths: np.ndarray) -> np.ndarray:
    """True where all of these are, each of one argument of an elementwise operation, in the shape of its result."""
    return ~np.isnan(at(*(np.where(each, 1.0, np.nan) for each in truths))[0])


def _subtract(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    return _between([at(a.low, b.high)], [at(a.high, b.low)])


def _multiply(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    """Corners; nothing times what has no end is nothing."""
    a, b = inputs
    if a.low.dtype.kind == "f":
        numbers = _where(at, *(~(np.isnan(each.low) | np.isnan(each.high)) for each in inputs))
        corners = [[np.where(np.isnan(x) & numbers, 0.0, x) for x in at(*pair)] for pair in itertools.product(a, b)]
    else:
        corners = [at(*pair) for pair in itertools.product(a, b)]
    return _between(corners, corners)


def _divide(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    a, b = inputs
    if a.low.dtype.kind != "f":
        return None
    corners = [at(*pair) for pair in itertools.product(a, b)]
    ((low, high),) = _between(corners, corners)
    rising = _where(at, a.low >= 0, b.low > 0)
    ((least, most),) = _between([at(a.low, b.high)], [at(a.high, b.low)])
    ends = _where(at, np.ones_like(a.low, dtype=bool), (b.low > 0) | (b.high < 0))
    low, high = np.where(ends, low, -np.inf), np.where(ends, high, np.inf)
    return [Range(np.where(rising, least, low), np.where(rising, most, high))]


def _fall(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    return _between([at(inputs[0].high)], [at(inputs[0].low)])


def _valley(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    """Least at zero, and rises to both sides."""
    low, high = inputs[0]
    ends = [at(low), at(high)]
    ((least, most),) = _between(ends, ends)
    return [Range(np.where((low <= 0) & (high >= 0), at(np.zeros_like(low))[0], least), most)]


def _power(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    base, exponent = inputs
    positive = np.where(base.low > 0, base.low, np.nan), np.where(base.low > 0, base.high, np.nan)
    corners = [at(*pair) for pair in itertools.product(positive, exponent)]
    return _between(corners, corners)


def _integer_power(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range]:
    low, high = inputs[0]
    exponent = equation.params.get("y", 2)
    if exponent > 0:
        return _valley(at, equation, inputs) if exponent % 2 == 0 else _between([at(low)], [at(high)])
    return _falls_above_zero(at, equation, inputs)


def _falls_above_zero(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    low, high = inputs[0]
    return _between([at(np.where(low > 0, high, np.nan))], [at(np.where(low > 0, low, np.nan))])


def _larger(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    return _between([at(a.low, b.high)], [at(a.high, b.low)])


def _smaller(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    return _between([at(a.high, b.low)], [at(a.low, b.high)])


def _equal(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    a, b = inputs
    if a.low.ndim != b.low.ndim:
        return None
    same = np.logical_and.reduce([x == y for x, y in itertools.product(a, b)])
    apart = (a.high < b.low) | (b.high < a.low)
    del at
    return [Range(same, ~apart) if equation.name == "eq" else Range(apart, ~same)]


def _select(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    which, cases = inputs[0], inputs[1:]
    kind = which.low.dtype
    choices = [np.clip(np.asarray(each, dtype=kind), which.low, which.high) for each in range(len(cases))]
    return _between(
        [at(choice, *(each.low for each in cases)) for choice in choices],
        [at(choice, *(each.high for each in cases)) for choice in choices],
    )


def _converted(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    """To floats, or whole numbers from what is finite; a truth of a number does not rise with it."""
    low, high = inputs[0]
    kind = np.dtype(equation.params["new_dtype"])
    if kind.kind == "f":
        return _between([at(low)], [at(high)])
    if kind.kind not in "iu" or low.dtype.kind != "f":
        return None
    finite, (least, most) = np.isfinite(low) & np.isfinite(high), _ends(kind)
    ((below, above),) = _between([at(np.where(finite, low, 0.0))], [at(np.where(finite, high, 0.0))])
    return [Range(np.where(finite, below, least), np.where(finite, above, most))]


def _rises_above_zero(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    lows, highs = zip(*((np.where(low >= 0, low, np.nan), np.where(low >= 0, high, np.nan)) for low, high in inputs),
                      strict=True)  # fmt: skip
    return _between([at(*lows)], [at(*highs)])


def _used_share(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    used, usable = inputs
    if used.low.ndim != usable.low.ndim:
        return None
    ((low, high),) = _between([at(used.low, usable.high)], [at(used.high, usable.low)])
    return [Range(np.where(used.low >= 0, low, -np.inf), np.where(used.low >= 0, high, np.inf))]


def _p_norm(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    """Rises in terms that are not negative, of which some is above zero, for a known power."""
    power, *terms = inputs
    if not (power.exact and (power.low > 0).all()):
        return None
    return _rises_above_zero(lambda *each: at(power.low, *each), _, terms)


RULES: Mapping[str, Callable[[At, Equation, Sequence[Range]], list[Range] | None]] = {
    "sub": _subtract, "mul": _multiply, "div": _divide, "neg": _fall, "not": _fall, "abs": _valley, "pow": _power,
    "integer_pow": _integer_power, "square": _valley, "rsqrt": _falls_above_zero, "gt": _larger, "ge": _larger,
    "lt": _smaller, "le": _smaller, "eq": _equal, "ne": _equal, "select_n": _select,
    "convert_element_type": _converted,
    **dict.fromkeys(("reduce_prod", "dot_general", OPERATION + "growth", OPERATION + "slowdown"), _rises_above_zero),
    OPERATION + "used_share": _used_share, OPERATION + "p_norm": _p_norm,
}  # fmt: skip
"""Operation -> the ranges of its outputs, None where nothing is known."""


LegalRule = tuple[Sequence[int], Bool[np.ndarray, "..."]]
"""Places of fields, and whether their values keep a rule of the plan together."""
TOGETHER = 2048  # groups of which all numbers are kept at once


class PlanRanges:
    """Least values of a program's rows over groups of plans.

    Args:
        rows: the program; no hardware varies.
        scenario: whose numbers it has.
        values: plan field -> its values, rising.
        rules: of legal plans; what breaks one counts for no table of the fields of that rule.
    """

    def __init__(
        self,
        rows: RowProgram,
        scenario: Scenario,
        values: Mapping[str, np.ndarray],
        rules: Sequence[LegalRule],
    ):
        assert not rows.variables
        self.program, self._rules = rows.program, rules
        plans = PlanTable({}, {name: values[name] for name in rows.fields})
        self._sizes = [len(each) for each in plans.values]
        program = rows.program
        given = {slot: literal(value) for slot, value in program.constants.items()}
        for slot, leaf in zip(program.inputs[: rows.leaves], jax.tree.leaves(scenario), strict=True):
            given[slot] = literal(np.asarray(leaf, dtype=program.kinds[slot]))
        for number, slot in enumerate(program.inputs[rows.leaves : rows.leaves + len(rows.fields)]):
            given[slot] = Table(frozenset([number]), plans.column(number))
        tables, made = tabulate_all(program, given, plans, MOST_TABLED, lambda _: False)
        self._rest = [equation for equation in program.equations if equation.outputs[0] not in made]
        read = {slot for equation in self._rest for slot in equation.inputs} | set(program.outputs)
        self._tables = {slot: tables[slot] for slot in sorted(read) if slot in tables}
        last = {slot: at for at, equation in enumerate(self._rest) for slot in (*equation.inputs, *equation.outputs)}
        self._gone: dict[int, list[int]] = {}
        for slot, at in last.items():
            if slot not in program.outputs:
                self._gone.setdefault(at, []).append(slot)
        self._reduced: dict[Fields, dict[int, tuple[tuple[int, ...], Range]]] = {}

    def least(self, codes: Int[np.ndarray, "groups fields"], opened: Fields) -> Float[np.ndarray, "groups rows"]:
        """Least value of each row over the plans of these groups.

        Args:
            codes: places of the values of all fields; of those that are open, nothing is read.
            opened: places of the fields that may have any value.
        """
        parts = [self._least(codes[first : first + TOGETHER], opened) for first in range(0, len(codes), TOGETHER)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.program.outputs) - 1))

    def _least(self, codes: np.ndarray, opened: Fields) -> np.ndarray:
        slots = dict[int, Range]()
        keys: dict[tuple[int, ...], np.ndarray] = {}
        for slot, (fields, table) in self._left(opened).items():
            if not fields:
                slots[slot] = table
                continue
            if fields not in keys:
                at = tuple(codes[:, list(fields)].T)
                keys[fields] = np.asarray(np.ravel_multi_index(at, [self._sizes[f] for f in fields]))
            low = table.low[keys[fields]]
            slots[slot] = Range(low, low if table.low is table.high else table.high[keys[fields]])
        for position, equation in enumerate(self._rest):
            result = range_of_equation(equation, [slots[slot] for slot in equation.inputs])
            slots |= zip(equation.outputs, result, strict=True)
            for slot in self._gone.get(position, ()):
                slots.pop(slot, None)
        lows = [np.broadcast_to(slots[slot].low, (len(codes),)) for slot in self.program.outputs[:-1]]
        return np.stack(lows, axis=-1)

    def _left(self, opened: Fields) -> dict[int, tuple[tuple[int, ...], Range]]:
        """Tables over the fields that are set: slot -> (these fields, ranges over the others)."""
        if opened not in self._reduced:
            self._reduced[opened] = {slot: self._over(table, opened) for slot, table in self._tables.items()}
        return self._reduced[opened]

    def _over(self, table: Table, opened: Fields) -> tuple[tuple[int, ...], Range]:
        fields = sorted(table.fields)
        left, axes = tuple(f for f in fields if f not in opened), tuple(i for i, f in enumerate(fields) if f in opened)
        if not axes:
            return left, Range(table.values, table.values)
        values = table.values.reshape(*[self._sizes[f] for f in fields], *table.values.shape[1:])
        counts = np.ones([self._sizes[f] for f in fields], dtype=bool)
        for of_rule, legal in self._rules:
            if set(of_rule) <= table.fields:
                counts &= legal.transpose(np.argsort(of_rule)).reshape(
                    [self._sizes[f] if f in of_rule else 1 for f in fields]
                )
        counts = counts.reshape(*counts.shape, *[1] * (values.ndim - len(fields)))
        least, most = _ends(values.dtype)
        lost = np.isnan(values) if values.dtype.kind == "f" else np.zeros(1, dtype=bool)
        low = np.where(counts, np.where(lost, least, values), most).min(axis=axes)
        high = np.where(counts, np.where(lost, most, values), least).max(axis=axes)
        shape = (math.prod(self._sizes[f] for f in left), *table.values.shape[1:])
        return left, Range(low.reshape(shape), high.reshape(shape))
