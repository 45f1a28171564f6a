"""Curvature report of a study: rows that are convex for every plan over the box, and which way plans move them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from ..core.smooth import OPERATION
from ..model.scenario import Scenario
from ..staging import PlanTable, RowProgram, Table, literal
from .rounding import Rounding
from .values import CONVEX, Value
from .walk import Walk

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
            known = error.absolute <= TOLERATED and not (index == 0 and error.steep)  # a goal may be larger than 1
            if (name not in result or error.lost) and not (known or self.rows[name].constant):
                result[name] = told(error)
        if not self.rules.constant:
            result["rules of the plan"] = self.rules.why or "they change with the hardware"
        return result

    def direction(self, row: str, field: str) -> int | None:
        """1 where a row never falls along the listed values of a field, -1 where it never rises, 0 where both hold."""
        value, bit = self.rows[row], self.bits.get(field, 0)
        rises, falls = bool(value.up & bit), bool(value.down & bit)
        return (0 if falls else 1) if rises else (-1 if falls else None)


def told(error: Rounding) -> str:
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
    place = {name: number for number, name in enumerate(plans.fields)}

    def column(name: str) -> Table:
        return Table(frozenset([place[name]]), plans.column(place[name]))

    inputs = program.program.inputs
    fields = inputs[program.leaves : program.leaves + len(program.fields)]
    given = {slot: column(name) for slot, name in zip(fields, program.fields, strict=True)}
    given |= _leaves(inputs[: program.leaves], scenarios, place.get(CASE))
    last = dict(zip(program.variables, inputs[program.leaves + len(program.fields) :], strict=True))
    given |= {slot: column(name) for name, slot in last.items() if name in held}
    walk = Walk(
        program.program,
        plans,
        given,
        [slot for name, slot in last.items() if name not in held],
        program.varied,
        [place[name] for name in ordered],
        program.asked,
    )
    *rows, rules = walk.outputs
    bits = {name: walk.direction_bit(place[name]) for name in ordered}
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
