"""Curvature of a certificate's rows: those it weighs are convex, its groups least where it says."""

from collections.abc import Callable, Set
from dataclasses import dataclass

import numpy as np

from ..curvature import ROUNDING
from .derivation import GOAL, Derivation, Refuted
from .model_answers import CheckedModel

# Directions of open fields of groups, checked: each row least at one value, whatever else is chosen.


DESIGNS = 2048  # random designs that each direction is tested on
SAME = 1e-9  # log by which a row may contradict a direction, for rounding


@dataclass(frozen=True)
class Directions:
    """Counts of (row, field) pairs that the bounds of groups rest on, by the way they were checked."""

    proven: int = 0
    tested: int = 0
    designs: int = 0

    @property
    def text(self) -> str:
        """Counts in words; empty where no group is open."""
        parts = [f"{self.proven} directions proven"] * bool(self.proven)
        parts += [f"{self.tested} directions tested on {self.designs:,} designs, not proven"] * bool(self.tested)
        return "; ".join(parts)


def check_directions(
    certificate: Derivation,
    model: CheckedModel,
    rng: np.random.Generator,
    proven: Set[tuple[str, str]],
    report: Callable[[int, int], None],
) -> Directions:
    """Take random plans of random groups and move one open field to the value that each row is said to be least at.

    Args:
        certificate: has the groups.
        model: evaluates.
        rng: chooses.
        proven: (row, field) whose direction is known from the structure of the model: not tested.
        report: hears how many fields are done.

    Raises:
        Refuted: a row that is lower elsewhere, with plan and values.
    """
    opened = certificate.low < certificate.high
    groups = np.flatnonzero(opened.any(axis=1))
    used = {certificate.rows[int(row)] for row in np.unique(certificate.row)}
    fields = [j for j in range(opened.shape[1]) if opened[:, j].any()]
    names = list(certificate.plan)
    required = {(row, names[j]) for row in used for j in fields}
    tested = required - proven
    if not tested:
        return Directions(len(required))
    node = rng.choice(groups, DESIGNS)
    low, high = certificate.low[node], certificate.high[node]
    index = rng.integers(low, high + 1)
    u = rng.uniform(size=(DESIGNS, len(certificate.variables)))
    u[::2] = np.round(u[::2])
    before = model.exact(certificate.values(index), u).rows
    for done, j in enumerate(fields):
        report(done, len(fields))
        for view in np.unique(certificate.view):
            seen = {certificate.rows[row] for row in np.flatnonzero(certificate.view == view)}
            rows = sorted(row for row in used & seen if (row, names[j]) in tested)
            if not rows:
                continue
            moved = index.copy()
            moved[:, j] = certificate.best[view, node, j]
            columns = [model.names.index(row) for row in rows]
            after = model.exact(certificate.values(moved), u).rows[:, columns]
            excess = np.nan_to_num(after - before[:, columns], nan=0.0, posinf=np.inf, neginf=-np.inf)
            if excess.max() > SAME:
                lane, k = np.unravel_index(int(excess.argmax()), excess.shape)
                value = certificate.plan[names[j]][moved[lane, j]]
                raise Refuted(
                    f"{certificate.named(int(node[lane]))}: row {rows[k]} is not least at {names[j]} {value:g}: it is"
                    f" {excess[lane, k]:.2g} lower at {certificate.plan[names[j]][index[lane, j]]:g}"
                )
    return Directions(len(required) - len(tested), len(tested), DESIGNS)


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
    closed_fields = [j for j in range(len(names)) if j not in open_fields]
    listed = {names[j]: column for j, column in zip(closed_fields, _distinct(values[:, closed_fields]).T, strict=True)}
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
