"""Rows of a validation: the errors of one quantity in one group."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..calibration.scores import score

Row = dict[str, Any]
SMALL = 3  # a group of fewer rows has no rank correlation worth printing


class Errors(NamedTuple):
    """Predicted and measured values of one group."""

    stratum: str
    group: str
    predicted: np.ndarray
    measured: np.ndarray


def rows(suite: str, quantity: str, groups: Iterable[Errors]) -> list[Row]:
    """A row for every group and one, `all`, for every stratum: all its values, and the mean rank inside its groups."""
    strata: dict[str, dict[str, list[Errors]]] = {}
    for errors in groups:
        if len(errors.measured):
            strata.setdefault(errors.stratum, {}).setdefault(errors.group, []).append(errors)
    result = []
    for stratum, members in strata.items():
        inside, predicted, measured = [], [], []
        for group, parts in members.items():
            ours = np.concatenate([part.predicted for part in parts])
            theirs = np.concatenate([part.measured for part in parts])
            inside.append(_row(suite, stratum, quantity, group, ours, theirs))
            predicted.append(ours)
            measured.append(theirs)
        whole = _row(suite, stratum, quantity, "all", np.concatenate(predicted), np.concatenate(measured))
        ranks = [row["rank"] for row in inside if row["rank"] is not None]
        whole["rank"] = float(np.mean(ranks)) if ranks else None
        result += [whole, *inside]
    return result


def _row(suite: str, stratum: str, quantity: str, group: str, predicted: np.ndarray, measured: np.ndarray) -> Row:
    found = score(predicted, measured)
    rank = None if found.n < SMALL or math.isnan(found.rank) else found.rank
    return {"suite": suite, "stratum": stratum, "quantity": quantity, "group": group, **found._asdict(), "rank": rank}


def note(message: str) -> Row:
    """What was set aside, as a row, so that no output can lose it."""
    nothing = dict.fromkeys(("median", "mean", "p90", "bias", "rank"))
    return {"suite": "note", "stratum": "", "quantity": message, "group": "", "n": 0, **nothing}
