"""Numbers and slopes of a large function at many points by NumPy, from one trace of its numbers at one point.

JAX differentiates the operations, each kind once for the whole session; the chain rule over them is here. Tracing
forwards alone, without slopes and without a batch, takes a fifth of the time. `test_program_slopes.py` holds it
against JAX.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax import lax

from codesign.core.smooth import OPERATION
from codesign.jaxprs.evaluator import doer
from codesign.jaxprs.program import Equation, Program, flatten, reduced, written_out


class Listing:
    """A program in the making: equations and what is known, over slots that are numbered as they come."""

    def __init__(self, start: Program) -> None:
        self.equations: list[Equation] = []
        self.known = dict(start.constants)
        self.shapes, self.kinds = list(start.shapes), list(start.kinds)

    def constant(self, value: Any) -> int:
        array = np.asarray(value)
        self.known[len(self.shapes)] = array
        self.shapes.append(array.shape)
        self.kinds.append(array.dtype)
        return len(self.shapes) - 1

    def inserted(self, part: Program, inputs: Sequence[int]) -> list[int]:
        """Slots of the outputs of a program that is given these slots."""
        place, shift = dict(zip(part.inputs, inputs, strict=True)), len(self.shapes)
        at = place.get

        def moved(slots: Sequence[int]) -> tuple[int, ...]:
            return tuple([at(slot, slot + shift) for slot in slots])

        self.equations += [  # a copy by `_replace` takes three times as long
            Equation(e.name, e.primitive, e.params, moved(e.inputs), moved(e.outputs), e.inner, e.traceback)
            for e in part.equations
        ]
        self.known |= {slot + shift: value for slot, value in part.constants.items()}
        self.shapes += part.shapes
        self.kinds += part.kinds
        return list(moved(part.outputs))


KEPT: dict[Any, Program] = {}
"""What one kind of operation comes to, for all programs of the session."""
ADD = flatten(jax.make_jaxpr(lax.add)(1.0, 1.0)).equations[0]


@lru_cache(maxsize=4096)
def _text(inner: Any) -> str:
    """What an operation does, in words; a model has the same one a hundred times."""
    return str(inner.jaxpr)


def _kind(equation: Equation, program: Program) -> Any:
    """Equal for operations that do the same to arguments of the same shapes; None: like no other."""
    if equation.inner is None:
        does = tuple(sorted(equation.params.items()))
    elif equation.name.startswith(OPERATION):
        does = _text(equation.inner)
    else:
        return None  # slopes of somebody's own, which its text does not tell
    return equation.name, does, *((program.shapes[slot], program.kinds[slot]) for slot in equation.inputs)


def _kept(kind: Any, asked: Any, make: Callable[[], Program]) -> Program:
    try:
        hash(kind)
    except TypeError:
        kind = None
    if kind is None:
        return make()
    if (kind, asked) not in KEPT:
        KEPT[kind, asked] = make()
    return KEPT[kind, asked]


def _forwards(equation: Equation, program: Program) -> Program:
    """An operation by primitives alone."""
    return _kept(_kind(equation, program), "forwards", lambda: written_out(flatten(equation.inner)))


def _backwards(equation: Equation, program: Program, sought: tuple[int, ...], given: tuple[int, ...]) -> Program:
    """(inputs, slopes by the outputs `given`) -> slopes by the inputs `sought`, of one operation."""
    bind = partial(equation.primitive.bind, **equation.primitive.get_bind_params(equation.params))

    def back(inputs: list[Any], told: list[Any]) -> list[Any]:
        def some(*values: Any) -> list[Any]:
            whole = list(inputs)
            for place, value in zip(sought, values, strict=True):
                whole[place] = value
            result = bind(*whole) if equation.primitive.multiple_results else [bind(*whole)]
            return [result[place] for place in given]

        return list(jax.vjp(some, *(inputs[place] for place in sought))[1](told))

    def make() -> Program:
        slots = equation.inputs, [equation.outputs[place] for place in given]
        like = [[jax.ShapeDtypeStruct(program.shapes[i], program.kinds[i]) for i in some] for some in slots]
        return written_out(flatten(jax.make_jaxpr(back)(*like)))

    return _kept(_kind(equation, program), (sought, given), make)


def with_slopes(program: Program, leaves: Sequence[int]) -> Program:
    """A program whose first output is one number, with the slopes of that number by these inputs behind its outputs."""
    listing, same = Listing(program), {}
    for equation in program.equations:
        inputs = tuple(same.get(slot, slot) for slot in equation.inputs)
        if equation.inner is None:
            listing.equations.append(equation._replace(inputs=inputs))
        else:
            result = listing.inserted(_forwards(equation, program), inputs)
            same |= dict(zip(equation.outputs, result, strict=True))
    moving, told = program.reached(leaves), {program.outputs[0]: listing.constant(1.0)}
    for equation in reversed(program.equations):
        given = tuple(index for index, slot in enumerate(equation.outputs) if slot in told)
        sought = tuple(index for index, slot in enumerate(equation.inputs) if slot in moving and _real(program, slot))
        if not given or not sought:
            continue
        part, count = _backwards(equation, program, sought, given), len(equation.inputs)
        inputs = [same.get(slot, slot) for slot in equation.inputs]
        result = listing.inserted(part, [*inputs, *(told[equation.outputs[place]] for place in given)])
        flowing = part.reached(part.inputs[count:])
        for place, slot, own in zip(sought, result, part.outputs, strict=True):
            if own in flowing:  # a step has no slope, whatever comes from above
                _gather(listing, told, equation.inputs[place], slot)
    for leaf in leaves:
        if leaf not in told:
            told[leaf] = listing.constant(np.zeros(program.shapes[leaf]))
    outputs = (*(same.get(slot, slot) for slot in program.outputs), *(told[leaf] for leaf in leaves))
    return reduced(Program(listing.equations, listing.known, program.inputs, outputs, listing.shapes, listing.kinds))


def _real(program: Program, slot: int) -> bool:
    return np.issubdtype(program.kinds[slot], np.floating)


def _gather(listing: Listing, told: dict[int, int], slot: int, more: int) -> None:
    """One slope more by a number that several operations use."""
    if slot not in told:
        told[slot] = more
        return
    listing.shapes.append(listing.shapes[more])
    listing.kinds.append(listing.kinds[more])
    total = len(listing.shapes) - 1
    listing.equations.append(ADD._replace(inputs=(told[slot], more), outputs=(total,)))
    told[slot] = total


def _unstacked(lead: int, x: Any, axis: int) -> list[Any]:
    return list(np.moveaxis(x, axis + lead, 0))


def _padded(lead: int, x: Any, value: Any, padding_config: Any) -> Any:
    """Zeros (or another number, the same at all points) around and between."""
    shape, inside = list(x.shape), [slice(None)] * lead
    for axis, (low, high, between) in enumerate(padding_config, start=lead):
        shape[axis] += low + high + max(shape[axis] - 1, 0) * between
        inside.append(slice(low, shape[axis] - high, between + 1))
    whole = np.full(shape, value.reshape(-1)[0])
    whole[tuple(inside)] = x
    return whole


OFTEN = {"unstack": _unstacked, "pad": _padded}
"""Of slopes: operations that JAX is slow at when they are small."""


def prepared(program: Program, lead: int = 1) -> Callable[[Mapping[int, Any]], dict[int, Any]]:
    """Runs a program of primitives for many points: inputs by slot, with `lead` axes in front -> outputs by slot."""
    last = {slot: index for index, equation in enumerate(program.equations) for slot in equation.inputs}
    steps, ready, asked = [], {}, {*program.outputs}
    for index, e in enumerate(program.equations):
        kinds = tuple(program.kinds[slot] for slot in e.inputs)
        done_with = [slot for slot in {*e.inputs} if last[slot] == index and slot not in asked]
        alike = e.name, id(e.params), kinds  # what was inserted twice has the same settings
        if alike not in ready:
            often = partial(OFTEN[e.name], lead, **e.params) if e.name in OFTEN else None
            ready[alike] = often or doer(e.primitive, e.params, kinds, lead)
        steps.append((ready[alike], e.primitive.multiple_results, e.inputs, e.outputs, done_with))
    known = {slot: value[(None,) * lead] for slot, value in program.constants.items()}

    def run(given: Mapping[int, Any]) -> dict[int, Any]:
        slots = known | dict(given)
        with np.errstate(all="ignore"):
            for does, several, inputs, outputs, done_with in steps:
                result = does(*[slots[slot] for slot in inputs])
                slots.update(zip(outputs, result if several else [result], strict=True))
                for slot in done_with:
                    del slots[slot]
        return slots

    return run
