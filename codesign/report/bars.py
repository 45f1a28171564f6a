"""Bars as text of a page: readable at any width, in light and dark, by a screen reader; a word on each part's hover.

Everything that is filled in is escaped.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd
from markupsafe import Markup, escape

from . import series
from .labels import KINDS, MEMORY_CLASSES, OTHER_COLOUR, PARTS, TIERS, component, number, signed
from .run_folder import RunFolder

DARK = 140  # brightness below which words on a colour are white
TOLD = 0.07  # share of the width from which a part carries its share in words
MONEY, POWER = ("capex.", "$", "Purchase price"), ("power.", "W", "Provisioned power")


class Piece(NamedTuple):
    """One piece of a bar: its name, colour and share of the longest bar; a sentence for who points at it."""

    name: str
    colour: str
    share: float
    told: str
    words: str = ""


class BarLine(NamedTuple):
    """A line: what it is of, its pieces, what they come to; `end` is where its room ends, as a share."""

    what: str
    parts: tuple[Piece, ...]
    total: str
    end: float | None = None


def bars(lines: Sequence[BarLine], key: Sequence[tuple[str, str]] = ()) -> Markup:
    """Lines of bars, and what their colours mean."""
    rows = Markup("").join(_line(line) for line in lines)
    return Markup('<ul class="bars">{}</ul>{}').format(rows, _key(key) if key else "")


def _line(line: BarLine) -> Markup:
    parts = Markup("").join(
        Markup('<i style="width:{:.2f}%;background:{};color:{}" title="{}">{}</i>').format(
            100 * max(part.share, 0.0), part.colour, _on(part.colour), part.told, part.words
        )
        for part in line.parts
    )
    end = Markup('<b style="left:{:.2f}%"></b>').format(100 * line.end) if line.end is not None else Markup("")
    return _listed(line.what, Markup('<span class="track">{}{}</span>').format(parts, end), line.total)


def _broken_at_words(path: str) -> Markup:
    """A path that a narrow page breaks behind a dot or an underscore."""
    return Markup("").join(part + Markup("<wbr>") * (part in "._") for part in map(escape, re.split(r"([._])", path)))


def _listed(what: str, track: Markup, total: str) -> Markup:
    return Markup('<li><span class="what">{}</span>{}<span class="sum">{}</span></li>').format(what, track, total)


def _key(known: Iterable[tuple[str, str]]) -> Markup:
    """Key of the colours."""
    lines = (Markup('<li><i style="background:{}"></i>{}</li>').format(colour, name) for name, colour in known)
    return Markup('<ul class="key">{}</ul>').format(Markup("").join(lines))


def _on(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < DARK else "#1c2733"


def _stacked(
    table: pd.DataFrame, labels: Sequence[str], known: dict[str, tuple[str, str]], unit: str, longest: float,
    ends: Sequence[float] | None = None,
) -> Markup:  # fmt: skip
    """A line for each row of a table, a piece for each column."""
    lines, shown = [], {str(name): known.get(str(name), (str(name).replace("_", " "), OTHER_COLOUR)) for name in table}
    for at, (label, (_, row)) in enumerate(zip(labels, table.iterrows(), strict=True)):
        whole = float(row.sum())
        parts = []
        for name, (words, colour) in shown.items():
            value = float(row[name])
            share = value / whole if whole else 0.0
            told = f"{words}: {number(value, unit)} ({share:.1%})"
            parts.append(Piece(words, colour, value / longest, told, f"{share:.0%}" if value / longest > TOLD else ""))
        end = ends[at] / longest if ends is not None and ends[at] == ends[at] else None
        lines.append(BarLine(label, tuple(parts), number(whole, unit, zeros=True), end))
    return bars(lines, list(shown.values()))


def time_bars(run: RunFolder, count: int = series.SHOWN_DESIGNS) -> Markup:
    """Time breakdown of the best designs as bars."""
    table = series.time_breakdown(run, count)
    known = run.labels(PARTS, run.words.parts)
    longest = float(table.sum(axis="columns").max())
    return _stacked(table, series.design_labels(run, len(table)), known, "s", longest)


def memory_bars(run: RunFolder, count: int = series.SHOWN_DESIGNS) -> Markup:
    """Bytes of each tier by class; the mark is what is usable."""
    told, known = Markup(""), run.labels(MEMORY_CLASSES, run.words.memory)
    for tier, (table, capacity) in series.memory_by_tier(run, count).items():
        room = capacity[capacity < float("inf")]
        longest = max(float(table.sum(axis="columns").max()), float(room.max()) if room.notna().any() else 0.0)
        labels = series.design_labels(run, len(table))
        own = _stacked(table, labels, known, "B", 1.02 * longest, list(capacity))
        told += Markup("<h3>{} per accelerator</h3>{}").format(TIERS.get(tier, tier), own)
    return told


def money_bars(run: RunFolder) -> Markup:
    """Bars of what the best design costs to buy and to power, by part."""
    told = Markup("")
    for prefix, unit, title in (MONEY, POWER):
        values = series.parts(run, prefix)
        whole, longest = float(values.sum()), float(values.max())
        lines = [
            BarLine(component(str(name)), (Piece("", "#2f6fb0", value / longest, f"{value / whole:.1%}"),),
                f"{number(value, unit)} · {value / whole:.0%}")
            for name, value in values.items()
        ]  # fmt: skip
        told += Markup("<h3>{}: {}</h3>{}").format(title, number(whole, unit), bars(lines))
    return told


def elasticity_bars(run: RunFolder, count: int = series.SHOWN_ELASTICITIES) -> Markup:
    """By how many per cent the goal moves when a constant grows by one; colours say how sure the constant is."""
    table = series.elasticities(run, count)
    reach, rows, used = float(table["elasticity"].abs().max()), Markup(""), dict[str, str]()
    for row in table.to_dict(orient="records"):
        label, colour = KINDS.get(row["kind"], (row["kind"], OTHER_COLOUR))
        used[label] = colour
        value = float(row["elasticity"])
        share, start = 50 * abs(value) / reach, 50 - 50 * max(-value, 0.0) / reach
        piece = Markup('<i style="margin-left:{:.2f}%;width:{:.2f}%;background:{}" title="{}"></i>')
        track = Markup('<span class="track both">{}</span>').format(piece.format(start, share, colour, label))
        rows += _listed(_broken_at_words(row["path"].removeprefix("cluster.")), track, signed(value))
    return Markup('<ul class="bars long">{}</ul>{}').format(rows, _key(used.items()))


def text_lines(lines: Sequence[str]) -> Markup:
    """Lines of a cell."""
    return Markup("<br>").join(escape(line) for line in lines)
