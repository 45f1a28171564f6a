"""Plans that are in no node: each must be equal, in every row and at any hardware, to one that is."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from .derivation import Refuted
from .model_answers import CheckedModel

MOST_COMPARED = 1 << 19  # plans of which it is looked up which are equal in every row


def columns_of(number: Int[np.ndarray, " k"], lists: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fields of numbered combinations of lists; the last field changes fastest."""
    places = np.unravel_index(number, [len(values) for values in lists.values()])
    return {name: values[place] for (name, values), place in zip(lists.items(), places, strict=True)}


def twins_of(
    missing: Int[np.ndarray, " k"], known: Int[np.ndarray, " n"], lists: Mapping[str, np.ndarray], model: CheckedModel
) -> Int[np.ndarray, " k"]:
    """Number of a known plan that is equal to each missing one in every row; -1 where none is.

    Args:
        missing, known: numbers of combinations of the lists.
        lists: plan field -> its values.
        model: tells plans apart, by tables of what the plan decides; pairs are priced without tables as well.

    Raises:
        Refuted: a pair whose prices differ.
    """
    if len(known) == 0 or len(missing) + len(known) > MOST_COMPARED:
        return np.full(len(missing), -1)
    classes = model.classes(columns_of(np.concatenate([missing, known]), lists))
    numbers, first = np.unique(classes[len(missing) :], return_index=True)
    at = np.minimum(np.searchsorted(numbers, classes[: len(missing)]), len(numbers) - 1)
    twin = np.where(numbers[at] == classes[: len(missing)], known[first[at]], -1)
    pair = np.flatnonzero(twin >= 0)
    if len(pair):
        apart = model.apart(columns_of(missing[pair], lists), columns_of(twin[pair], lists))
        if apart > 0:
            raise Refuted(f"plans that stand for each other differ by {apart:.3g} in a logarithm")
    return twin


def equal_groups(
    missing: Mapping[str, np.ndarray],
    known: Mapping[str, np.ndarray],
    opened: Mapping[str, np.ndarray],
    model: CheckedModel,
) -> np.ndarray:
    """True for each missing group of plans that is equal, value by value of the open fields, to a known one.

    Args:
        missing, known: field that no node leaves open -> its value in each group.
        opened: field that nodes leave open -> its values.
        model: tells them apart.
    """
    count, more = (len(next(iter(each.values()))) for each in (missing, known))
    if count + more > MOST_COMPARED:
        return np.zeros(count, dtype=bool)
    classes = model.classes({name: np.concatenate([missing[name], known[name]]) for name in missing}, opened)
    return np.isin(classes[:count], classes[count:])
