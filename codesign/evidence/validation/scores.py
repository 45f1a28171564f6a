"""Rows of a validation: the errors of one quantity in one group."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ...uncertainty.spreads import LEARNED, MEASURED, NEW, Spread, find
from ..calibration.fit import score
from ..measurements import tables

Row = dict[str, Any]
GENERATIONS = "kernels"  # the suite whose members are generations of chips, not groups of rows
HELD = 0.85  # of rows left out that an interval of a part must have covered: else that of the whole stratum is wider
SMALL = 3  # a group of fewer rows has no rank correlation worth printing


class Errors(NamedTuple):
    """Predicted and measured values of one group.

    regime: whether the device was measured. detail: a part of the stratum whose errors have a spread of their own.
    """

    stratum: str
    group: str
    predicted: np.ndarray
    measured: np.ndarray
    regime: str = MEASURED
    detail: str = ""

    def spreads(self, suite: str, quantity: str) -> tuple[str, ...]:
        """Names that its interval may have, the nearest first."""
        names = (f"{self.stratum}; {self.detail}", self.stratum) if self.detail else (self.stratum,)
        return tuple(stratum_name(suite, name, quantity) for name in names)


Observed = list[tuple[str, str, Errors]]
_observers: list[Observed] = []


@contextlib.contextmanager
def observed() -> Iterator[Observed]:
    """Record every comparison made inside this context: (suite, quantity, errors)."""
    result: Observed = []
    _observers.append(result)
    try:
        yield result
    finally:
        _observers.remove(result)


def stratum_name(suite: str, stratum: str, quantity: str) -> str:
    """Name of the intervals of a stratum."""
    return f"{suite}: {stratum}: {quantity}"


def rows(suite: str, quantity: str, groups: Iterable[Errors]) -> list[Row]:
    """A row for every group and one, `all`, for every stratum: all its values, and the mean rank inside its groups."""
    strata: dict[str, dict[str, list[Errors]]] = {}
    for errors in groups:
        if len(errors.measured):
            strata.setdefault(errors.stratum, {}).setdefault(errors.group, []).append(errors)
            for observer in _observers:
                observer.append((suite, quantity, errors))
    result = []
    for stratum, members in strata.items():
        inside, predicted, measured = [], [], []
        for group, parts in members.items():
            ours = np.concatenate([part.predicted for part in parts])
            theirs = np.concatenate([part.measured for part in parts])
            inside.append(_row(suite, stratum, quantity, group, ours, theirs) | _covered(suite, quantity, parts))
            predicted.append(ours)
            measured.append(theirs)
        total = _row(suite, stratum, quantity, "all", np.concatenate(predicted), np.concatenate(measured))
        total |= _covered(suite, quantity, [part for parts in members.values() for part in parts])
        ranks = [row["rank"] for row in inside if row["rank"] is not None]
        total["rank"] = float(np.mean(ranks)) if ranks else None
        result += [total, *inside]
    return result


def _row(suite: str, stratum: str, quantity: str, group: str, predicted: np.ndarray, measured: np.ndarray) -> Row:
    result = score(predicted, measured)
    rank = None if result.n < SMALL or math.isnan(result.rank) else result.rank
    return {"suite": suite, "stratum": stratum, "quantity": quantity, "group": group, **result._asdict(), "rank": rank}


def word(group: str) -> str:
    """A group as it stands among the members of a spread."""
    return "_".join(group.split())


def spread_of(suite: str, quantity: str, part: Errors) -> Spread | None:
    """Errors to expect of a group: of its own kind, and as of one that was left out where none of it was measured.

    Parts whose groups have nothing in common did not cover those left out: what the whole stratum says counts there.
    """
    names = part.spreads(suite, quantity)
    spread = find("stratum", names, LEARNED, part.regime, HELD) or find("stratum", names, LEARNED, MEASURED, HELD)
    if spread is None or suite == GENERATIONS or not spread.members or word(part.group) in spread.members:
        return spread
    return find("stratum", names, LEARNED, NEW, HELD) or spread


def _covered(suite: str, quantity: str, parts: Sequence[Errors]) -> Row:
    """Share of rows inside the 90 % interval, that of rows left out in cross-validation, and its typical factor up and
    down; None where none is known."""
    inside, factors, held = [], [], []
    for part in parts:
        spread = spread_of(suite, quantity, part)
        if spread is not None:
            low, high = spread.interval()
            ratio = np.log(part.measured / part.predicted)
            inside.append((ratio >= low) & (ratio <= high))
            factors.append(np.full(len(part.measured), math.exp(spread.half_width())))
            held.append(np.full(len(part.measured), spread.coverage))
    if not inside:
        return dict.fromkeys(("coverage", "width", "left_out"))
    shares = {"coverage": float(np.concatenate(inside).mean()), "left_out": float(np.concatenate(held).mean())}
    return shares | {"width": float(np.median(np.concatenate(factors)))}


def note(message: str) -> Row:
    """Row that says what was set aside, so that no output can lose it."""
    nothing = dict.fromkeys(("median", "mean", "p90", "bias", "rank", "coverage", "left_out", "width"))
    return {"suite": "note", "stratum": "", "quantity": message, "group": "", "n": 0, **nothing}


# Suites of a validation: which kinds of tables each scores.


class Suite(NamedTuple):
    """A kind of measurement.

    kinds: names of the schemas of `measurements` that it scores; run: its rows, messages added to the list given.
    """

    name: str
    kinds: tuple[str, ...]
    run: Callable[[Path, list[str]], list[Row]]


# Tables of suites: their rows as a reader understands them, and errors of two columns by group.


Reader = Callable[[Any], Any]


def readable(table: pd.DataFrame, reader: Reader) -> tuple[dict[Any, Any], dict[str, int]]:
    """Row -> what a reader makes of it, and how often it refused for which reason."""
    understood: dict[Any, Any] = {}
    refused: dict[str, int] = {}
    for row in table.itertuples():
        try:
            understood[row.Index] = reader(row)
        except ConfigError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    return understood, refused


def set_aside(shown: str, refused: dict[str, int]) -> list[str]:
    """A line for each reason for which rows of a table were refused."""
    return [f"{shown}: {count} rows set aside, {why}" for why, count in refused.items()]


def read_rows(
    directory: Path,
    kind: str,
    reader: Reader,
    messages: list[str],
    *,
    prepare: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table,
    remarks: Callable[[str, pd.DataFrame], list[str]] = lambda shown, table: [],
) -> tuple[pd.DataFrame, list[Any]]:
    """Rows of all tables of a kind that a reader understands, and what it makes of each.

    Args:
        directory: of tables.
        kind: name of a schema.
        reader: of one row; a `ConfigError` sets it aside.
        messages: what is set aside, and remarks.
        prepare: columns added to a table.
        remarks: lines on the rows of a table that are used.
    """
    frames, results = list[pd.DataFrame](), list[Any]()
    for table in tables(directory, kind):
        rows = prepare(table.rows(messages))
        understood, refused = readable(rows, reader)
        messages += set_aside(table.shown, refused)
        if understood:
            frames.append(rows.loc[list(understood)])
            messages += remarks(table.shown, frames[-1])
            results += understood.values()
    return (pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()), results


def errors_by(
    stratum: str,
    table: pd.DataFrame,
    by: Sequence[str],
    predicted: str,
    measured: str,
    *,
    within: Sequence[str] = (),
    scale: float = 1.0,
) -> Iterator[Errors]:
    """Errors of a column against another by groups, where there is a prediction.

    Args:
        stratum: of all.
        table: rows.
        by: columns whose words name a group.
        predicted: column in SI units.
        measured: column.
        within: columns whose words name a part of a group with a spread of its own.
        scale: of the measured column to SI units.
    """
    answered = table[table[predicted].notna()]
    for keys, part in answered.groupby([*by, *within], sort=True):
        words = [str(key) for key in (keys if isinstance(keys, tuple) else (keys,))]
        ours, theirs = (part[name].to_numpy(dtype=float) for name in (predicted, measured))
        detail = ", ".join(words[len(by) :])
        yield Errors(stratum, " ".join(words[: len(by)]), ours, theirs * scale, detail=detail)
