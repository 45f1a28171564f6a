"""Slopes of a few numbers by every number of a scenario: one forward pass along all of them at once."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..core.fields import get_path
from ..core.jax_typed import flatten_with_path, structure, unflatten
from ..jaxprs.program import Program, kept, written_out
from ..model.metrics import Account
from ..model.scenario import Scenario
from .again import asked_of, told_apart
from .derivatives import Slopes
from .made_once import made_once
from .model import base_of
from .programs_on_disk import as_text, equations_as_plain, program_as_plain, program_from_plain
from .running import running

MOST_KEPT = 256  # texts (disk: 0.2 MB each), more than all experiments have
MOST_MADE = 8  # programs that are kept with their slopes
_made: OrderedDict[Any, Any] = OrderedDict()


def slopes_of(scenario: Scenario, function: Callable[[Account], list[Array]], part: str = "") -> list[Scenario]:
    """For each number of `function`, its slope by every single number of the scenario, as a tree like the scenario.

    Tables have no slopes: zeros stand in their place. Hard maxima have, at a tie, the mean of both sides' slopes.

    Args:
        scenario: where slopes are taken.
        function: of its account.
        part: of the scenario, such as `cluster`: numbers elsewhere are held fixed, zeros stand in their place.
    """
    leaves, asked = jax.tree.leaves(scenario), base_of(scenario).asked(function)
    places = [path[0] for path, _ in flatten_with_path(scenario)[0]]
    varied = [not part or getattr(place, "name", "") == part for place in places]
    numbers = [asked.shapes[slot] == () and _is_real(asked.kinds[slot]) for slot in asked.inputs]
    real = [i for i, both in enumerate(zip(numbers, varied, strict=True)) if all(both)]
    key = (asked_of(asked), id(asked.known), part)
    made = kept(_made, key, lambda: (asked, running(_kept_along(asked, real))), MOST_MADE)
    kinds = [asked.kinds[slot] for slot in asked.inputs]
    given = [np.asarray(leaf, dtype=kind)[..., None] for leaf, kind in zip(leaves, kinds, strict=True)]
    result: list[np.ndarray] = made[1](*given, *np.eye(len(real)))
    whole, zeros, trees = structure(scenario), [np.zeros(np.shape(leaf)) for leaf in leaves], list[Scenario]()
    for slopes in result:
        of_each = dict(zip(real, np.broadcast_to(slopes, (len(real),)), strict=True))
        trees.append(unflatten(whole, [of_each.get(i, zero) for i, zero in enumerate(zeros)]))
    return trees


def slopes_along(
    scenario: Scenario,
    function: Callable[[Account], list[Array]],
    values: Mapping[str, Float[np.ndarray, " points"]],
    direction: Mapping[str, Float[np.ndarray, " points"]],
) -> tuple[list[Float[np.ndarray, " points"]], list[Float[np.ndarray, " points"]]]:
    """Numbers at many points that differ in a few leaves of a scenario, and their slopes along a direction.

    Args:
        scenario: all other leaves.
        function: of its account; gives scalars.
        values: path of a leaf -> what it is at each point.
        direction: path of a leaf among these -> how far it moves at each point.

    Returns:
        (numbers, slopes) of what `function` gives. Hard maxima have, at a tie, the mean of both sides' slopes.
    """
    leaves, asked = jax.tree.leaves(scenario), base_of(scenario).asked(function)
    numbered = unflatten(structure(scenario), list(range(len(leaves))))
    placed = {get_path(numbered, path): np.asarray(column, dtype=float) for path, column in values.items()}
    moved = {get_path(numbered, path): np.asarray(column, dtype=float) for path, column in direction.items()}
    key = (asked_of(asked), id(asked.known), tuple(moved))
    made = kept(_made, key, lambda: (asked, running(written_out(_along(asked, list(moved), values=True)))), MOST_MADE)
    kinds = [asked.kinds[slot] for slot in asked.inputs]
    fixed = [np.asarray(leaf, dtype=kind)[..., None] for leaf, kind in zip(leaves, kinds, strict=True)]
    given = [placed.get(index, leaf) for index, leaf in enumerate(fixed)]
    points = max((len(column) for column in placed.values()), default=1)
    result = [np.broadcast_to(each, (points,)) for each in made[1](*given, *moved.values())]
    return result[: len(asked.outputs)], result[len(asked.outputs) :]


def _is_real(kind: Any) -> bool:
    return np.issubdtype(kind, np.floating)


def _kept_along(asked: Program, real: Sequence[int]) -> Program:
    """`_along` by primitives alone, read from disk where an earlier process derived it."""

    def told() -> list[Any]:
        known = [[slot, told_apart(value)[:2], as_text(value)] for slot, value in asked.known.items()]
        return [equations_as_plain(asked), known, real]

    return made_once(
        "slopes", told, lambda: written_out(_along(asked, real)), program_as_plain, program_from_plain, MOST_KEPT
    )


def _along(asked: Program, real: Sequence[int], *, values: bool = False) -> Program:
    """(leaves, direction: one number for each of the real ones) -> slopes of the outputs along the direction.

    Args:
        values: whether the outputs themselves come before their slopes.
    """

    draft = Slopes(asked, asked.inputs)
    seeds = {asked.inputs[place]: draft.given() for place in real}
    draft.equations += asked.equations
    moved, zero = draft.slopes(asked.equations, seeds), draft.constant(0.0)
    slopes = [moved.get(slot, zero) for slot in asked.outputs]
    return draft.done([*asked.outputs, *slopes] if values else slopes)
