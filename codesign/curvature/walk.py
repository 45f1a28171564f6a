"""The walk: what is known of every output of a traced program, for all legal plans and the whole box at once.

Inputs are plan fields, numbers that nothing changes, and coordinates u in [0, 1] of the varied hardware. What depends
on the plan alone is computed exactly, once for each distinct combination of the fields that reach it
(`staging.tables`), so that signs and ranges of it are those of the legal plans; where there are too many combinations,
by the rules, from the ranges of its parts. What the hardware reaches is followed by the rules of disciplined geometric
programming.

What the walk says of curvature is proven for exact arithmetic; beside it goes a bound of what float64 makes of each
number (`rounding`), and what rounding may decide is not decided. What the walk does not say, it does not know.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from ..core.smooth import OPERATION
from ..model.scenario import Scenario
from ..staging import (
    Equation,
    PlanTable,
    Program,
    RowProgram,
    Table,
    apart,
    cached,
    fingerprint,
    literal,
    program_key,
    tabulate,
    tabulate_all,
)
from . import rounding, rules
from .operations import READ
from .operations import RULES as OPERATIONS
from .rounding import ZERO, Rounding
from .rounding_rules import DECIDES, follow
from .rules import MOVES, add, decided_number, divide, exponential, logarithm, multiply, power
from .values import AFFINE, CONVEX, UNKNOWN, Value, joined, unknown

# Curvature rule of each primitive. A primitive that is not listed here is unknown, whatever it does.


HALF, TWO = (decided_number(x) for x in (0.5, 2.0))

_BY_ONE: dict[str, Callable[[Value], Value]] = {
    "exp2": lambda x: power(TWO, x),
    "log1p": rules.logarithm_beside_one,
    "expm1": rules.exponential_less_one,
    "sqrt": lambda x: power(x, HALF),
    "rsqrt": lambda x: power(x, decided_number(-0.5)),
    "cbrt": lambda x: power(x, decided_number(1 / 3)),
    "square": lambda x: power(x, TWO),
    "floor": lambda x: rules.rounded(x, "floor"),
    "ceil": lambda x: rules.rounded(x, "ceil"),
    "round": lambda x: rules.rounded(x, "round"),
}
_BY_TWO: dict[str, Callable[[Value, Value], Value]] = {
    "gt": lambda a, b: rules.less(b, a),
    "ge": lambda a, b: rules.less_equal(b, a),
    "ne": lambda a, b: rules.inverted(rules.equal(a, b)),
}
ELEMENTWISE: dict[str, Callable[..., Value]] = {
    **_BY_ONE,
    **_BY_TWO,
    "add": add,
    "add_any": add,
    "sub": rules.subtract,
    "mul": multiply,
    "div": divide,
    "neg": rules.negate,
    "abs": rules.absolute,
    "max": rules.maximum,
    "min": rules.minimum,
    "clamp": rules.clamp,
    "exp": exponential,
    "log": logarithm,
    "pow": power,
    "tanh": rules.squashed,
    "sign": rules.sign,
    "lt": rules.less,
    "le": rules.less_equal,
    "eq": rules.equal,
    "and": rules.both,
    "or": rules.either,
    "not": rules.inverted,
    "select_n": rules.select,
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
    values = result if isinstance(result, list) else [result] * outputs
    if all(value.constant for value in inputs) and not read:
        return [rules.constant_like(value) for value in values]
    return [_explained(value, equation, inputs) for value in values]


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
    if name in rules.MOVES:
        return inputs[0]
    if name in rules.JOINS:
        return joined(inputs)
    if name in rules.PICKS and params.get("fill_value") is not None:
        return _no_rule(inputs)
    if name in rules.PICKS:
        return rules.pick(*inputs)
    if name == "split":
        return rules.split(inputs[0], len(equation.outputs))
    if name == "is_finite":
        return _finite(inputs[0])
    if name == "convert_element_type":
        return inputs[0] if _keeps(params["new_dtype"], inputs[0]) else _rounded_to(params["new_dtype"], inputs)
    if name in REDUCTIONS:
        return rules.reduced(name, inputs[0], shapes[0], params)
    if name == "dot_general":
        return rules.contracted(inputs[0], inputs[1], shapes[0], params)
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
        return rules.decided(True)
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


MOST_ROWS = 1 << 17  # combinations of a table: beyond, ranges of its parts must do (time: 5,000 equations, 4 s)
MOST_EARLY = 2  # studies of which tables are kept for other limits
_early: OrderedDict[Any, tuple[Program, dict[int, Table], dict[int, Value], dict[int, Rounding]]] = OrderedDict()
FALL_TOLERANCE = 1e-12  # relative: a constant that falls by less along a field counts as not falling


class Walk:
    """One walk over a program.

    Args:
        program: what is walked.
        plans: the fields that vary from plan to plan.
        given: input -> its values; of plan fields, and of numbers that nothing changes.
        coordinates: the other inputs, each in [0, 1].
        varied: slots in which bounds read maxima differently; by default those that the coordinates reach.
        ordered: plan fields of which directions are asked.
        asked: slots of known numbers that may be others the next time, such as limits.
    """

    def __init__(
        self,
        program: Program,
        plans: PlanTable,
        given: Mapping[int, Table],
        coordinates: Sequence[int],
        varied: Collection[int] | None = None,
        ordered: Collection[int] = (),
        objective_constants: Collection[int] = (),
    ):
        self.program, self.plans, self.ordered, self.objective_constants = (
            program,
            plans,
            frozenset(ordered),
            frozenset(objective_constants),
        )
        self.variables = len(coordinates)
        self.hardware = (1 << self.variables) - 1
        self.tables: dict[int, Table] = {slot: literal(value) for slot, value in program.constants.items()} | dict(
            given
        )
        everything = (1 << (self.variables + len(plans.fields))) - 1
        self.values: dict[int, Value] = {
            slot: Value(0.0, 1.0, AFFINE, UNKNOWN, False, everything, everything & ~(1 << number))
            for number, slot in enumerate(coordinates)
        }
        self.errors: dict[int, Rounding] = dict.fromkeys(coordinates, Rounding(0.0, 0.0, 0.0, 1.0))
        self.varied = program.reached(coordinates) if varied is None else varied
        self._go()

    @property
    def outputs(self) -> list[Value]:
        """Value of each output."""
        return [self._value(slot) for slot in self.program.outputs]

    @property
    def rounding(self) -> list[Rounding]:
        """By how much each output, as float64 computes it, may be off."""
        return [self._error(slot) for slot in self.program.outputs]

    def direction_bit(self, field: int) -> int:
        """The bit of a plan field in `Value.up` and `Value.down`."""
        return 1 << (self.variables + field)

    def _go(self) -> None:
        """Walk all equations; results that the asked numbers do not reach are cached for other such numbers."""
        given, program = dict(self.tables), self.program
        late, numbers = apart(program, self.objective_constants)
        after = [equation for equation in program.equations if equation.outputs[0] in late]
        if self.objective_constants:
            sets = (tuple(self.values), frozenset(self.varied), self.ordered)
            without = {slot: table for slot, table in given.items() if slot not in late}
            key = (program_key(program), numbers, sets, self.plans.fingerprint, fingerprint(without))
            _, tables, values, errors = cached(_early, key, lambda: (program, *self._before(late, after)), MOST_EARLY)
            self.values, self.errors = dict(values), dict(errors)
            self.tables = tables | {slot: given[slot] for slot in program.constants if slot in late}
        else:
            self._before(late, after)
        self._follow_all(after)

    def _before(
        self, late: Collection[int], after: Sequence[Equation]
    ) -> tuple[dict[int, Table], dict[int, Value], dict[int, Rounding]]:
        """(tables, values, bounds of rounding) of what no number reaches that is asked, as far as it is read later."""
        read = set(self.program.outputs).union(*(equation.inputs for equation in after))
        before = [equation for equation in self.program.equations if equation.outputs[0] not in late]
        self._follow_all(before, read)
        tables = {slot: table for slot, table in self.tables.items() if slot in read}
        errors = {slot: error for slot, error in self.errors.items() if slot in read}
        return tables, {slot: value for slot, value in self.values.items() if slot in read}, errors

    def _follow_all(self, equations: Sequence[Equation], wanted: Collection[int] = ()) -> None:
        """Follow these equations in order; tables that are no longer read are dropped, except those of `wanted`."""
        part = self.program._replace(equations=list(equations), outputs=(*self.program.outputs, *wanted))
        last = {slot: index for index, equation in enumerate(equations) for slot in equation.inputs}
        last |= dict.fromkeys(part.outputs, len(equations))
        self.tables, done = tabulate_all(part, self.tables, self.plans, MOST_ROWS, self._is_read)
        for index, equation in enumerate(equations):
            if equation.outputs[0] not in done:
                self._look(equation)
            for slot in equation.inputs:
                if last[slot] == index:
                    self.tables.pop(slot, None)

    def _look(self, equation: Equation) -> None:
        """An equation that not the plan alone decides, unless what it reads turned out to be a constant of the plan."""
        tables = [self.tables[slot] for slot in equation.inputs if slot in self.tables]
        result = None
        if len(tables) == len(equation.inputs) and not self._is_read(equation):
            result = tabulate(equation, tables, self.plans, MOST_ROWS)
        if result is not None:
            self.tables |= dict(zip(equation.outputs, result, strict=True))
        else:
            self._follow(equation)

    def _is_read(self, equation: Equation) -> bool:
        """True if bounds put something else in the place of this operation: maxima that the hardware reaches."""
        return equation.outputs[0] in self.varied and is_read(equation)

    def _follow(self, equation: Equation) -> None:
        """Apply the rule of an equation; what turns out to be a constant of the plan after all gets its table back."""
        inputs = [self._value(slot) for slot in equation.inputs]
        errors = [self._error(slot) for slot in equation.inputs]
        shapes = [self.program.shapes[slot] for slot in equation.inputs]
        result, off = self._applied(equation, inputs, errors, shapes)
        for slot, value, error in zip(equation.outputs, result, off, strict=True):
            self.values[slot], self.errors[slot] = value, error
            if not error.exact or self._is_read(equation):
                continue
            if _single(value):
                self.tables[slot] = literal(np.full(self.program.shapes[slot], value.low, self.program.kinds[slot]))
            if equation.name not in MOVES:
                shape = self.program.shapes[slot]
                for given, operand in zip(equation.inputs, inputs, strict=True):
                    if value is operand and given in self.tables and self.program.shapes[given] == shape:
                        self.tables[slot] = self.tables[given]

    def _applied(
        self,
        equation: Equation,
        inputs: Sequence[Value],
        errors: Sequence[Rounding],
        shapes: Sequence[tuple[int, ...]],
    ) -> tuple[list[Value], list[Rounding]]:
        """Values of the outputs, and their rounding.

        Where ranges decide (a comparison, a step, the larger of two) they must do so for the numbers that are computed.
        """
        read, shape = self._is_read(equation), shapes[0] if shapes else ()
        result = apply(equation, inputs, shapes, read)
        settled = [
            (_single(value) and (equation.name in DECIDES or any(error == ZERO for error in errors)))
            or any(value is one and one.constant for one in inputs)
            for value in result
        ]
        if any(settled) and not all(error.exact for error in errors):
            wide = [rounding.widened(value, error) for value, error in zip(inputs, errors, strict=True)]
            again = apply(equation, wide, shapes, read)
            same = [
                here is there or (_single(here) and here.low == there.low == there.high)
                for here, there in zip(result, again, strict=True)
            ]
            if all(same):
                return result, [self._settled(value, inputs, errors) for value in result]
            result = again
        kinds = [self.program.kinds[slot] for slot in equation.outputs]
        off = follow(equation, inputs, errors, result, shape, kinds)
        if all(np.issubdtype(kind, np.bool_) for kind in kinds):
            return result, off
        return [rounding.outward(value, error, equation.name) for value, error in zip(result, off, strict=True)], off

    def _settled(self, value: Value, inputs: Sequence[Value], errors: Sequence[Rounding]) -> Rounding:
        """Rounding of a value that is one number whatever is computed, or one of the arguments."""
        for one, error in zip(inputs, errors, strict=True):
            if value is one:
                return error
        return rounding.of_constant(value)

    def _value(self, slot: int) -> Value:
        if slot not in self.values:
            self.values[slot] = self._of_table(self.tables[slot])
        return self.values[slot]

    def _error(self, slot: int) -> Rounding:
        if slot not in self.errors:
            table = self.tables.get(slot)
            self.errors[slot] = rounding.of_constant(
                self._value(slot), None if table is None else np.asarray(table.values, dtype=float)
            )
        return self.errors[slot]

    def _of_table(self, table: Table) -> Value:
        """Range and directions of a constant of the plan."""
        numbers = np.asarray(table.values, dtype=float)
        if numbers.size == 0:
            return Value(0.0, 0.0, AFFINE, AFFINE, False, -1, -1, constant=True)
        low, high = float(numbers.min()), float(numbers.max())
        if np.isnan(low) or np.isnan(high):
            low, high = -np.inf, np.inf
        up = down = self.hardware
        for number in range(len(self.plans.fields)):
            rises, falls = self._directions(table, numbers, number)
            up |= rises * self.direction_bit(number)
            down |= falls * self.direction_bit(number)
        return Value(low, high, AFFINE, AFFINE if low >= 0 else UNKNOWN, False, up, down, constant=True)

    def _directions(self, table: Table, numbers: np.ndarray, field: int) -> tuple[bool, bool]:
        """(never falls, never rises): the direction of a constant along a field."""
        if field not in table.fields:
            return True, True
        if field not in self.ordered:
            return False, False
        lower, higher = self.plans.steps(table.fields, field)
        before, after = numbers[lower], numbers[higher]
        slack = FALL_TOLERANCE * np.maximum(np.abs(before), np.abs(after))
        with np.errstate(invalid="ignore"):
            return bool((after >= before - slack).all()), bool((after <= before + slack).all())


def _single(value: Value) -> bool:
    """One number that is known."""
    return value.low == value.high and math.isfinite(value.low)


# Curvature report of a study: rows that are convex for every plan over the box, and which way plans move them.


TOLERATED = 1e-10
"""By how much rounding may move the log of a row that is called proven: bounds are claimed to 1e-8."""
ROUNDING = "rounding: "  # begins what is said of a row whose curvature is proven and whose digits are not
CASE = "case"  # name of the field that numbers scenarios


@dataclass(frozen=True)
class Judgement:
    """The rows of a study as the walk sees them.

    Args:
        rows: name -> what is known of it.
        rules: what is known of the largest violation of a rule of the plan.
        bits: plan field -> its bit in the directions of a value.
        errors: name -> by how much it may be off as float64 computes it.
    """

    rows: dict[str, Value]
    rules: Value
    bits: dict[str, int]
    errors: dict[str, Rounding] = field(default_factory=dict[str, Rounding])

    @property
    def unproven(self) -> dict[str, str]:
        """Row -> why the walk does not prove it convex as it is computed; empty where it proves all of them."""
        result = {
            name: value.why or f"it is {value.kind}, where convex is needed"
            for name, value in self.rows.items()
            if not (value.plain & CONVEX or value.constant)
        }
        for index, (name, error) in enumerate(self.errors.items()):
            tolerated = error.absolute <= TOLERATED and not (index == 0 and error.steep)  # a goal may be larger than 1
            if (name not in result or error.lost) and not (tolerated or self.rows[name].constant):
                result[name] = reason(error)
        if not self.rules.constant:
            result["rules of the plan"] = self.rules.why or "they change with the hardware"
        return result

    def direction(self, row: str, field: str) -> int | None:
        """1 where a row never falls along the listed values of a field, -1 where it never rises, 0 where both hold."""
        value, bit = self.rows[row], self.bits.get(field, 0)
        rises, falls = bool(value.up & bit), bool(value.down & bit)
        return (0 if falls else 1) if rises else (-1 if falls else None)


def reason(error: Rounding) -> str:
    """Reason why a row with such a rounding error is not proven, as text."""
    where = "" if error.at is None else f"{error.at.name.removeprefix(OPERATION)} at {error.at.where}"
    if error.lost:
        return f"{ROUNDING}{error.lost} in {where}"
    size = f"off by up to {error.absolute:.1g}" if error.absolute < np.inf else "off by any amount"
    return f"{ROUNDING}its log is {size}" + (f", digits are lost in {where}" if where else "")


def judge(
    program: RowProgram,
    scenarios: Sequence[Scenario],
    listed: Mapping[str, np.ndarray],
    free: Mapping[str, np.ndarray] | None = None,
    held: Mapping[str, Sequence[float]] | None = None,
    ordered: Collection[str] = (),
) -> Judgement:
    """Walk over the rows of a study.

    Args:
        program: its rows.
        scenarios: what stands in for the scenario, one after the other; usually one.
        listed: plan field -> its value in each legal combination.
        free: plan field -> all its values, where each is legal with every combination.
        held: variable -> coordinates that it has, instead of any in [0, 1].
        ordered: fields of which directions are asked.
    """
    held = held or {}
    numbers = {name: np.asarray(values, dtype=float) for name, values in held.items()}
    cases = {CASE: np.arange(len(scenarios), dtype=float)} if len(scenarios) > 1 else {}
    plans = PlanTable(listed, dict(free or {}) | numbers | cases)
    column_of = {name: number for number, name in enumerate(plans.fields)}

    def column(name: str) -> Table:
        return Table(frozenset([column_of[name]]), plans.column(column_of[name]))

    inputs = program.program.inputs
    fields = inputs[program.leaves : program.leaves + len(program.fields)]
    given = {slot: column(name) for slot, name in zip(fields, program.fields, strict=True)}
    given |= _leaves(inputs[: program.leaves], scenarios, column_of.get(CASE))
    last = dict(zip(program.variables, inputs[program.leaves + len(program.fields) :], strict=True))
    given |= {slot: column(name) for name, slot in last.items() if name in held}
    walk = Walk(
        program.program,
        plans,
        given,
        [slot for name, slot in last.items() if name not in held],
        program.varied,
        [column_of[name] for name in ordered],
        program.objective_constants,
    )
    *rows, rules = walk.outputs
    bits = {name: walk.direction_bit(column_of[name]) for name in ordered}
    errors = dict(zip(program.names, walk.rounding[:-1], strict=True))
    return Judgement(dict(zip(program.names, rows, strict=True)), rules, bits, errors)


def _leaves(slots: Sequence[int], scenarios: Sequence[Scenario], case: int | None) -> dict[int, Table]:
    """The scenario's numbers: the same in all cases, or one for each case."""
    columns = zip(*(jax.tree.leaves(scenario) for scenario in scenarios), strict=True)
    result: dict[int, Table] = {}
    for slot, column in zip(slots, columns, strict=True):
        values = np.stack([np.asarray(value, dtype=float) for value in column])
        alike = case is None or (values == values[:1]).all()
        result[slot] = literal(values[0]) if alike or case is None else Table(frozenset([case]), values)
    return result
