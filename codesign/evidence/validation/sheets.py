"""Scenarios that differ in a few numbers: built once, then copied with other numbers in their places.

Building a scenario checks and converts every field of every part; a table asks thousands that differ in a handful. A
`Sheet` is what `jax.tree.flatten` would have made of one: its structure, and its numbers by place.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ...model.scenario import Scenario

__all__ = ["Number", "Same", "Sheet", "number_of", "sheet_of"]

FIRST, STEP = 8191.0, 64.0
"""Marks that stand for the numbers while a scenario is built: multiples and sums of them are none of them."""


Number = float | np.ndarray
"""A leaf of a scenario: a number, or several where a part has one for each of its dimensions, as a torus."""


class Sheet(NamedTuple):
    """A scenario as its structure and its numbers."""

    leaves: list[Any]
    structure: Any


class Same:
    """An object as a key of a cache: equal to itself alone, and kept alive by the cache."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


def number_of(leaf: Any) -> Number:
    """A leaf as a plain number, or as an array of them."""
    return float(leaf) if np.ndim(leaf) == 0 else np.asarray(leaf, dtype=float)


class _Form(NamedTuple):
    leaves: list[Number]
    structure: Any
    places: dict[str, list[int]]


_forms: dict[Hashable, _Form] = {}


def sheet_of(key: Hashable, build: Callable[[Mapping[str, float]], Scenario], numbers: Mapping[str, float]) -> Sheet:
    """The scenario that `build` makes of these numbers.

    Args:
        key: of all else that `build` sees.
        build: puts every number, as it is, into leaves.
        numbers: by name.

    Raises:
        ConfigError: as `build` does.
        ValueError: a number that stands in no leaf.
    """
    whole = (key, tuple(numbers))
    if whole not in _forms:
        _forms[whole] = _form(build, tuple(numbers))
    form = _forms[whole]
    leaves: list[Any] = list(form.leaves)
    for name, places in form.places.items():
        for place in places:
            leaves[place] = numbers[name]
    return Sheet(leaves, form.structure)


def _form(build: Callable[[Mapping[str, float]], Scenario], names: tuple[str, ...]) -> _Form:
    marks = {name: FIRST + STEP * index for index, name in enumerate(names)}
    leaves, structure = jax.tree.flatten(build(marks))
    values = [number_of(leaf) for leaf in leaves]
    single = [(at, value) for at, value in enumerate(values) if isinstance(value, float)]
    places = {name: [at for at, value in single if value == mark] for name, mark in marks.items()}
    lost = [name for name, result in places.items() if not result]
    if lost:
        raise ValueError(f"{', '.join(lost)} stands in no leaf")
    return _Form(values, structure, places)
