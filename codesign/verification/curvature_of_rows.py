"""Curvature of a certificate's rows: those it weighs are convex, its groups least where it says."""

import numpy as np

from ..curvature import ROUNDING
from .derivation import GOAL, Derivation, Refuted
from .model_answers import CheckedModel

RULES = "rules of the plan"


def check_structure(certificate: Derivation, model: CheckedModel) -> tuple[set[tuple[str, str]], str]:
    """Walk over the program of the rows anew.

    Returns:
        (row, field) whose direction is proven and as the certificate says, and what was proven in words.

    Raises:
        Refuted: a row of the bounds that no rule proves convex, with the operation that is to blame; a group taken at
            a value that the rules contradict.
    """
    names, opened = list(certificate.plan), certificate.low < certificate.high
    open_fields = [j for j in range(len(names)) if opened[:, j].any()]
    values = certificate.values(certificate.low)
    kept = [j for j in range(len(names)) if j not in open_fields]
    listed = {names[j]: column for j, column in zip(kept, _distinct(values[:, kept]).T, strict=True)}
    free = {names[j]: certificate.plan[names[j]] for j in open_fields}
    unproven, ways = model.judged(listed, free)
    used = {certificate.rows[int(row)] for row in np.unique(certificate.row)} | {GOAL}
    for row, why in unproven.items():
        if row in used and why.startswith(ROUNDING):
            raise Refuted(f"row {row} is not proven: {why}")
        if row in used or row == RULES:
            raise Refuted(f"row {row} is not proven convex: {why}")
    proven = {
        (row, names[j])
        for row in used
        for j in open_fields
        if (row, names[j]) in ways and _agrees(certificate, row, j, ways[row, names[j]])
    }
    off = max(model.off[model.names.index(row)] for row in used)
    text = f"{len(used)} rows convex by the rules of curvature, for every plan and the whole box"
    return proven, f"{text}; rounding moves none by more than {off:.0e}"


def _distinct(rows: np.ndarray) -> np.ndarray:
    return np.unique(rows, axis=0) if rows.shape[1] else rows[:1]


def _agrees(certificate: Derivation, row: str, field: int, way: int) -> bool:
    """True if a row that only rises (1) or falls (-1) along a field is taken at the right end of each range.

    Raises:
        Refuted: it is taken elsewhere.
    """
    view = certificate.view[certificate.rows.index(row)]
    low, high, best = certificate.low[:, field], certificate.high[:, field], certificate.best[view, :, field]
    wrong = best != (low if way > 0 else high) if way else np.zeros(len(best), dtype=bool)
    if wrong.any():
        node = int(np.argmax(wrong))
        side = "rises" if way > 0 else "falls"
        name = list(certificate.plan)[field]
        raise Refuted(f"{certificate.named(node)}: row {row} {side} along {name}, but is not taken where it is least")
    return True
