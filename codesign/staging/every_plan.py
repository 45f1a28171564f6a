"""A program over every plan at one point of the hardware, which is given anew at each call.

What the plan alone decides is tabulated once. What the hardware decides too is computed once for each distinct
combination of the plan fields that reach it, not once a plan: most of a model sees few fields, so that a new point of
the hardware costs a tenth of pricing all plans at it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..core.free_memory import keep_memory
from ..jaxprs.dispatch import behind
from ..jaxprs.program import Program
from ..model.scenario import Scenario
from .distinct import Fields, PlanTable
from .model import Model
from .staged import leaves_as_tables, stage
from .tables import NOTHING, Table

MOST_ROWS = 1 << 18  # of a table (memory: 2 MB)
NEARLY_ALL = 0.5  # share of all plans above which distinct combinations are not worth a look-up
Step = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], bool, tuple[int, ...]]


class EveryPlan:
    """Outputs of a program at every plan.

    Args:
        model: whose inputs the program has.
        program: numbers that are asked for, of the model's inputs.
        scenario: what is varied.
        plans: field -> its value in each plan; at least one field.
    """

    def __init__(self, model: Model, program: Program, scenario: Scenario, plans: Mapping[str, np.ndarray]):
        keep_memory()
        self.table, self.count = PlanTable(plans), len(next(iter(plans.values())))
        self._fields = model.fields
        given = leaves_as_tables(program.inputs[: model.leaves], jax.tree.leaves(scenario))
        of_plans = program.inputs[model.leaves : model.leaves + len(model.fields)]
        given |= {slot: Table(frozenset([at]), self.table.column(at)) for at, slot in enumerate(of_plans)}
        staged = stage(program, self.table, given, MOST_ROWS)
        self._kinds, self._inputs = staged.kinds, program.inputs[model.leaves + len(model.fields) :]
        self._reach: dict[int, Fields | None] = {slot: table.fields for slot, table in staged.tables.items()}
        self._reach |= dict.fromkeys(self._inputs, NOTHING)
        self._known = {slot: np.ascontiguousarray(np.moveaxis(t.values, 0, -1)) for slot, t in staged.tables.items()}
        self._spreads: dict[tuple[int, Fields | None], int] = {}
        self._next = max((*self._reach, *(s for e in staged.rest for s in e.outputs)), default=0) + 1
        self._steps: list[Step] = []
        for equation in staged.rest:
            reached = self._together(equation.inputs)
            inputs = tuple(self._spread(slot, reached) for slot in equation.inputs)
            call = behind(equation.primitive, equation.params, [self._kinds[slot] for slot in equation.inputs], 1)
            self._reach |= dict.fromkeys(equation.outputs, reached)
            self._steps.append((call, inputs, equation.outputs, equation.primitive.multiple_results, ()))
        self._outputs = tuple(self._spread(slot, None) for slot in staged.outputs)
        self._steps = _letting_go(self._steps, {*self._outputs, *self._known})

    @property
    def operations(self) -> int:
        """At each call, look-ups among them."""
        return len(self._steps)

    def __call__(self, values: Sequence[float]) -> list[Float[np.ndarray, " plans"]]:
        """Outputs at these values of the hardware variables, in the model's order."""
        slots: dict[int, Any] = dict(self._known)
        slots |= {
            slot: np.asarray([value], self._kinds[slot]) for slot, value in zip(self._inputs, values, strict=True)
        }
        with np.errstate(all="ignore"):
            for call, inputs, outputs, several, gone in self._steps:
                result = call(*[slots[slot] for slot in inputs])
                slots |= zip(outputs, result, strict=True) if several else ((outputs[0], result),)
                for slot in gone:
                    del slots[slot]
        return [np.broadcast_to(slots[slot], (self.count,)) for slot in self._outputs]

    def _together(self, slots: Sequence[int]) -> Fields | None:
        """Plan fields that reach any of these; None where they tell nearly all plans apart."""
        reached: Fields = NOTHING
        for slot in slots:
            own = self._reach[slot]
            if own is None:
                return None
            reached |= own
        return None if reached and self.table.count(reached) > NEARLY_ALL * self.count else reached

    def _spread(self, slot: int, onto: Fields | None) -> int:
        """A slot with the rows of more fields; numbers that are the same for all plans go with any."""
        own = self._reach[slot]
        if own is None or own in (onto, NOTHING):
            return slot
        if (slot, onto) in self._spreads:
            return self._spreads[slot, onto]
        places = self.table.rows_of(own) if onto is None else self.table.project(onto, own)
        made = self._next
        self._next += 1
        self._spreads[slot, onto], self._reach[made] = made, onto
        if slot in self._known:
            self._known[made] = self._known[slot][..., places]
        else:
            self._steps.append((_looked_up(places), (slot,), (made,), False, ()))
        return made


def _looked_up(places: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def look_up(values: np.ndarray) -> np.ndarray:
        return values if values.shape[-1] == 1 else values[..., places]

    return look_up


def _letting_go(steps: Sequence[Step], kept: set[int]) -> list[Step]:
    """Steps that each know which numbers nobody reads after them: their memory is used again."""
    last = {slot: at for at, step in enumerate(steps) for slot in (*step[1], *step[2])}
    gone: dict[int, list[int]] = {}
    for slot, at in last.items():
        if slot not in kept:
            gone.setdefault(at, []).append(slot)
    return [(*step[:4], tuple(gone.get(at, ()))) for at, step in enumerate(steps)]
