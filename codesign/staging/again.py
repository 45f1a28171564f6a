"""Derived programs shared between programs that differ in known numbers alone.

Another limit is another number, not another program: jobs of a multirun, and whoever asks the same of one model twice,
share what is derived. What is made may merge numbers that are equal; only numbers that are equal to no other, before
and after, are put in the place of each other, so that making it anew would give the same.
"""

import functools
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..jaxprs.program import Program, cached, likeness, written_out

MAX_PROGRAMS = 16  # programs
_written: "OrderedDict[Any, Made]" = OrderedDict()
_alike: OrderedDict[Any, Any] = OrderedDict()


def fingerprint(value: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """Equal for numbers that are the same to the last bit, of one type and shape."""
    return value.dtype.str, value.shape, value.tobytes()


def other_numbers(before: Mapping[int, np.ndarray], now: Mapping[int, np.ndarray]) -> dict[int, np.ndarray] | None:
    """Slot -> number of those that changed; None where they are not of the same slots, types and shapes."""
    if before.keys() != now.keys():
        return None
    changed: dict[int, np.ndarray] = {}
    for slot, value in now.items():
        if value is before[slot]:
            continue
        old, new = fingerprint(before[slot]), fingerprint(value)
        if old[:2] != new[:2]:
            return None
        if old != new:
            changed[slot] = value
    return changed


def with_numbers(made: Program, changed: Mapping[int, np.ndarray]) -> Program | None:
    """Copy of a derived program with these numbers in place of others; None where one is, or was, equal to another.

    Args:
        made: of a program, whose known numbers have their slots in it; it knows all that it was made of, merged or not.
        changed: slot -> number that it has now.
    """
    if not changed:
        return made
    if not changed.keys() <= made.constants.keys():
        return None
    constants = made.constants | dict(changed)
    for numbers in (made.constants, constants):
        counts = Counter(fingerprint(value) for value in numbers.values())
        if any(counts[fingerprint(numbers[slot])] > 1 for slot in changed):
            return None
    return made._replace(constants=constants)


class Made(NamedTuple):
    """holds: what keys are made of that are numbers of objects, which lives as long; constants: of what it was made."""

    holds: Any
    constants: Mapping[int, np.ndarray]
    made: Program


def made_again(
    store: OrderedDict[Any, Made],
    key: Any,
    holds: Any,
    constants: Mapping[int, np.ndarray],
    make: Callable[[], Program],
    most: int,
) -> Program:
    """Look up the program kept under a key with these numbers; make it where there is none or it cannot have them.

    Args:
        store: where it is kept.
        key: equal where what is made differs by `constants` at most.
        holds: what the key needs to live.
        constants: numbers that it is made of, by the slots that they have in what is made.
        make: makes it.
        most: that are kept.
    """
    if key in store:
        changed = other_numbers(store[key].constants, constants)
        result = None if changed is None else with_numbers(store[key].made, changed)
        if result is not None:
            store.move_to_end(key)
            return result
    store[key] = Made(holds, constants, make())
    if len(store) > most:
        store.popitem(last=False)
    return store[key].made


def program_key(program: Program) -> tuple[Any, ...]:
    """Equal where equations, inputs and outputs are the same objects, as long as one of the programs lives."""
    return id(program.equations), program.inputs, program.outputs


def written_once(program: Program) -> Program:
    """`written_out`, made once for programs of the same equations."""
    make = functools.partial(written_out, program)
    return made_again(_written, program_key(program), program, program.constants, make, MAX_PROGRAMS)


def likeness_of_equations(program: Program) -> Any:
    """`likeness` without the numbers that are known, looked at once for programs of the same equations."""
    shapes = tuple((slot, value.shape, value.dtype.str) for slot, value in program.constants.items())
    result = cached(
        _alike, (program_key(program), shapes), lambda: (program, likeness(program, values=False)), MAX_PROGRAMS
    )
    return result[1]


def apart(program: Program, others: Collection[int]) -> tuple[frozenset[int], tuple[int, ...]]:
    """Slots that follow from numbers that may be others the next time, and identities of the numbers that may not.

    Args:
        program: has them.
        others: slots of known numbers that may be others.
    """
    return program.reached(others), tuple(id(value) for slot, value in program.constants.items() if slot not in others)
