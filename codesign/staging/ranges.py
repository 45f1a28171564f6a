"""Ranges of a program's outputs over many plans at once: fields that are set have one value, others any.

What few fields reach is tabulated, and its range over the fields left open is that of its table, exactly. The rest
follows by interval arithmetic. Elementary operations of float64 are monotone as they are rounded, so a range holds
what the program computes, not what it would in real numbers; of logarithms and powers it may miss by the last digit.

Source: inclusion functions, [moore1966].
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..core.smooth import OPERATION
from ..jaxprs.program import DERIVED, Equation, Program, inside
from ..model.scenario import Scenario
from .rows import RowProgram
from .tables import Fields, PlanTable, Table, literal, run_rows, tabulate_all

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


RISING = (
    "add", "add_any", "max", "exp", "exp2", "log", "log1p", "expm1", "sqrt", "cbrt", "floor", "ceil", "round", "sign",
    "tanh", "logistic", "reduce_sum", "reduce_max", "reduce_min", "min", "cumsum", "clamp", "broadcast_in_dim", "slice",
    "squeeze", "reshape", "concatenate", "transpose", "expand_dims", "rev", "copy", "stop_gradient", "pad", "split",
    *(OPERATION + name for name in ("kink", "kinks", "at_least", "at_most", "ceil", "floor")),
)  # fmt: skip
"""Operations that never fall in any of their numbers."""
TRUTHS = ("and", "or", "reduce_and", "reduce_or")  # rise where they are of truths
PICKS = ("gather", "dynamic_slice")  # rise in what they pick from, where their places are known


def range_of_equation(equation: Equation, inputs: Sequence[Range]) -> list[Range]:
    """Ranges of the outputs of an equation; any number where no rule says more."""
    name = equation.name

    def at(*given: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return run_rows(equation, given)

    if all(each.exact for each in inputs):
        return [Range(each, each) for each in at(*(each.low for each in inputs))]
    if name in DERIVED or (equation.inner is not None and not name.startswith(OPERATION)):
        return _inside(inside(equation.inner), inputs)
    rises = name in RISING or (name in TRUTHS and all(each.low.dtype == bool for each in inputs))
    if rises or (name in PICKS and all(each.exact for each in inputs[1:])):
        return _between(at(*(each.low for each in inputs)), at(*(each.high for each in inputs)))
    rule = RULES.get(name)
    result = rule(at, equation, inputs) if rule else None
    return _anything(equation, inputs, at) if result is None else result


At = Callable[..., list[np.ndarray]]


def _between(*ends: Sequence[np.ndarray]) -> list[Range]:
    """Ranges from the least to the most of these outputs; what is no number may be any."""
    result = list[Range]()
    for each in zip(*ends, strict=True):
        arrays = np.broadcast_arrays(*each)
        if arrays[0].dtype.kind != "f":
            low, high = arrays[0], arrays[0]
            for other in arrays[1:]:
                low, high = np.minimum(low, other), np.maximum(high, other)
            result.append(Range(low, high))
            continue
        low, high, lost = arrays[0], arrays[0], np.isnan(arrays[0])
        for other in arrays[1:]:
            low, high, lost = np.minimum(low, other), np.maximum(high, other), lost | np.isnan(other)
        result.append(Range(np.where(lost, -np.inf, low), np.where(lost, np.inf, high)))
    return result


def _anything(equation: Equation, inputs: Sequence[Range], at: At) -> list[Range]:
    """Any number, but where all that goes in is known."""
    result = list[Range]()
    known = np.ones(max(len(each.low) for each in inputs), dtype=bool)
    for low, high in inputs:
        known &= np.broadcast_to((low == high).reshape(len(low), -1).all(axis=1), known.shape)
    for each in at(*(each.low for each in inputs)):
        each = np.broadcast_to(each, (len(known), *each.shape[1:]))
        here = known.reshape(-1, *[1] * (each.ndim - 1))
        if each.dtype.kind == "f":
            result.append(Range(np.where(here, each, -np.inf), np.where(here, each, np.inf)))
        elif each.dtype == bool:
            result.append(Range(each & here, each | ~here))
        else:
            limits = np.iinfo(each.dtype)
            result.append(Range(np.where(here, each, limits.min), np.where(here, each, limits.max)))
    return result


def _inside(program: Program, inputs: Sequence[Range]) -> list[Range]:
    slots = {slot: Range(value[None], value[None]) for slot, value in program.constants.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        result = range_of_equation(equation, [slots[slot] for slot in equation.inputs])
        slots |= dict(zip(equation.outputs, result, strict=True))
    return [slots[slot] for slot in program.outputs]


def _subtract(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    return _between(at(a.low, b.high), at(a.high, b.low))


def _multiply(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    if (a.low >= 0).all() and (b.low >= 0).all():
        return _between(at(a.low, b.low), at(a.high, b.high))
    return _between(*(at(*pair) for pair in itertools.product(a, b)))


def _divide(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    a, b = inputs
    if a.low.dtype.kind != "f":
        return None
    if (a.low >= 0).all() and (b.low > 0).all():
        return _between(at(a.low, b.high), at(a.high, b.low))
    (result,) = _between(*(at(*pair) for pair in itertools.product(a, b)))
    (no_sign,) = at(np.zeros_like(a.low), np.where((b.low <= 0) & (b.high >= 0), np.nan, 1.0))
    lost = np.isnan(no_sign)
    return [Range(np.where(lost, -np.inf, result.low), np.where(lost, np.inf, result.high))]


def _negate(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    return _between(at(inputs[0].high), at(inputs[0].low))


def _absolute(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    low, high = inputs[0]
    ((least, most),) = _between(at(low), at(high))
    return [Range(np.where((low <= 0) & (high >= 0), np.zeros_like(least), least), most)]


def _power(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    base, exponent = inputs
    return _between(*(at(*pair) for pair in itertools.product(base, exponent))) if (base.low > 0).all() else None


def _whole_power(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    low, high = inputs[0]
    positive = (low > 0).all() or ((low >= 0).all() and equation.params.get("y", 2) > 0)
    return _between(at(low), at(high)) if positive else None


def _positive_root(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    low, high = inputs[0]
    return _between(at(low), at(high)) if (low > 0).all() else None


def _larger(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    return _between(at(a.low, b.high), at(a.high, b.low))


def _smaller(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range]:
    a, b = inputs
    return _between(at(a.high, b.low), at(a.low, b.high))


def _equal(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    a, b = inputs
    if a.low.ndim != b.low.ndim:
        return None
    same = np.logical_and.reduce([x == y for x, y in itertools.product(a, b)])
    apart = (a.high < b.low) | (b.high < a.low)
    del at
    return [Range(same, ~apart) if equation.name == "eq" else Range(apart, ~same)]


def _select(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range]:
    which, cases = inputs[0], inputs[1:]
    if len(cases) == 2:
        choices = [which.low, which.high]
    else:
        choices = [np.full_like(which.low, each) for each in range(len(cases))]
        if which.exact:
            choices = [which.low]
    del equation
    lows = [at(choice, *(each.low for each in cases)) for choice in choices]
    highs = [at(choice, *(each.high for each in cases)) for choice in choices]
    return _between(*lows, *highs)


def _converted(at: At, equation: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    low, high = inputs[0]
    kind = np.dtype(equation.params["new_dtype"]).kind
    if kind not in "fiu" or (kind != "f" and not (np.isfinite(low).all() and np.isfinite(high).all())):
        return None
    return _between(at(low), at(high))


def _rises_above_zero(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    if not all((each.low >= 0).all() for each in inputs):
        return None
    return _between(at(*(each.low for each in inputs)), at(*(each.high for each in inputs)))


def _used_share(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    used, usable = inputs
    if not (used.low >= 0).all():
        return None
    return _between(at(used.low, usable.high), at(used.high, usable.low))


def _p_norm(at: At, _: Equation, inputs: Sequence[Range]) -> list[Range] | None:
    power, *terms = inputs
    if not (power.exact and (power.low > 0).all() and all((each.low >= 0).all() for each in terms)):
        return None
    if not np.logical_or.reduce(np.broadcast_arrays(*(each.low > 0 for each in terms))).all():
        return None
    return _between(at(power.low, *(each.low for each in terms)), at(power.low, *(each.high for each in terms)))


RULES: Mapping[str, Callable[[At, Equation, Sequence[Range]], list[Range] | None]] = {
    "sub": _subtract, "mul": _multiply, "div": _divide, "neg": _negate, "not": _negate, "abs": _absolute, "pow": _power,
    "integer_pow": _whole_power, "square": _whole_power, "rsqrt": _positive_root, "gt": _larger, "ge": _larger,
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
                keys[fields] = np.ravel_multi_index(tuple(codes[:, list(fields)].T), [self._sizes[f] for f in fields])
            low = table.low[keys[fields]]
            slots[slot] = Range(low, low if table.low is table.high else table.high[keys[fields]])
        for at, equation in enumerate(self._rest):
            result = range_of_equation(equation, [slots[slot] for slot in equation.inputs])
            slots |= zip(equation.outputs, result, strict=True)
            for slot in self._gone.get(at, ()):
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
        if values.dtype.kind == "f":
            least, most, lost = -np.inf, np.inf, np.isnan(values)
        elif values.dtype == bool:
            least, most, lost = False, True, np.zeros(1, dtype=bool)
        else:
            limits = np.iinfo(values.dtype)
            least, most, lost = limits.min, limits.max, np.zeros(1, dtype=bool)
        low = np.where(counts, np.where(lost, least, values), most).min(axis=axes)
        high = np.where(counts, np.where(lost, most, values), least).max(axis=axes)
        shape = (math.prod(self._sizes[f] for f in left), *table.values.shape[1:])
        return left, Range(low.reshape(shape), high.reshape(shape))
