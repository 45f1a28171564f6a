"""Objects as a reader at a prompt or in a notebook wants them: numbers with the unit of their name, tables by keys."""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

from .units import HOUR_S, YEAR_S, engineering, unit_of

__all__ = ["as_html", "as_text", "fields_text", "html_table", "lines_text", "number_text", "shown"]

WIDTH = 110
MOST = 8  # entries of a list that are shown one by one
DAY_S = 24 * HOUR_S


def shown(node: Any, name: str = "", indent: int = 0) -> str:
    """Text of an object of the tree; `name` is the field it stands in, which carries its unit."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        entries = [(field.name, getattr(node, field.name, None)) for field in dataclasses.fields(node)]
        entries = [(key, value) for key, value in entries if value is not None]
        return _joined(type(node).__name__, "()", entries, indent, "=")
    if isinstance(node, dict):
        if node and all(isinstance(value, dict) for value in node.values()):  # kernels: class -> format -> model
            return "{" + ", ".join(f"{key}: {' '.join(map(str, value))}" for key, value in node.items()) + "}"
        return _joined("", "{}", [(str(key), value) for key, value in node.items()], indent, ": ", name)
    if isinstance(node, tuple | list):
        if len(node) > MOST:
            return f"({len(node):,} entries)"
        return "(" + ", ".join(shown(value, name, indent) for value in node) + ")"
    return repr(node) if isinstance(node, str) else number_text(node, name)


def as_text(self: Any) -> str:
    """For `__repr__`: all of an object."""
    return shown(self)


def as_html(self: Any) -> str:
    """For `_repr_html_`: all of an object, its parts folded."""
    return _folded(self, "", "open")


def lines_text(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title and below it a line for each name and its text, broken where it is too long."""
    rows = list(rows)
    indent = 4 + max((len(name) for name, _ in rows), default=0)
    lines = [
        line
        for name, text in rows
        for line in textwrap.wrap(
            f"  {name.ljust(indent - 4)}  {text}", WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False
        )
    ]
    return "\n".join([title, *lines])


def html_table(title: str, rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = (), note: str = "") -> str:
    """A table of a notebook under its title; all of it is plain text.

    Args:
        title: above the table.
        rows: cells, the first of each row a name.
        head: names of the columns.
        note: below the table.
    """
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)] if head else []
    lines += [
        f'<th style="text-align:left">{escape(name)}</th>'
        + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in cells)
        for name, *cells in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    below = f"<div>{escape(note)}</div>" if note else ""
    return f"<div><b>{escape(title)}</b><table>{body}</table>{below}</div>"


def _folded(node: Any, name: str, is_open: str = "") -> str:
    """HTML of a part: a number or list as text, an object as a table that can be folded."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        entries = [(field.name, getattr(node, field.name, None), field.name) for field in dataclasses.fields(node)]
        title = type(node).__name__
    elif isinstance(node, Mapping) and node:
        entries, title = (
            [(str(key), value, _carrier(name, str(key))) for key, value in node.items()],
            f"{len(node)} entries",
        )
    else:
        return escape(shown(node, name))
    if all(np.ndim(value) == 0 and not _has_parts(value) for _, value, _ in entries) and is_open == "":
        text = ", ".join(f"{key} {shown(value, unit)}" for key, value, unit in entries if value is not None)
        if len(text) <= WIDTH:
            return escape(text)
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(key)}</th>'
        f'<td style="text-align:left">{_folded(value, unit)}</td></tr>'
        for key, value, unit in entries
        if value is not None
    )
    return f"<details {is_open}><summary><b>{escape(title)}</b></summary><table>{rows}</table></details>"


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list) or dataclasses.is_dataclass(value)


def fields_text(title: str, entries: Mapping[str, Any]) -> str:
    """`Title(a=1 s, b=2 GB)` of these fields."""
    return _joined(title, "()", list(entries.items()), 0, "=")


def _carrier(name: str, key: str) -> str:
    """Return the name that carries the unit: a mapping's field or one of its keys."""
    return name if unit_of(f"x.{name}") else key


def _joined(title: str, ends: str, entries: list[tuple[str, Any]], indent: int, sign: str, name: str = "") -> str:
    """`Title(a=1, b=2)`, on several lines where one does not hold it."""
    inner = indent + 2
    texts = [f"{key}{sign}{shown(value, _carrier(name, key), inner)}" for key, value in entries]
    line = f"{title}{ends[0]}{', '.join(texts)}{ends[1]}"
    if "\n" not in line and len(line) + indent <= WIDTH:
        return line
    lines, row = [], ""
    for text in texts:
        if row and ("\n" in text or "\n" in row or len(row) + len(text) + inner + len(", ,") > WIDTH):
            lines, row = [*lines, row], ""
        row += f"{', ' if row else ''}{text}"
    pad = "\n" + " " * inner
    return f"{title}{ends[0]}{pad}{f',{pad}'.join([*lines, row])}{ends[1]}"


def number_text(node: Any, name: str) -> str:
    """A number with the unit of its name; an array by its shape and ends; what is traced by its type."""
    try:
        values = np.asarray(node, dtype=float)
    except (TypeError, ValueError):
        kind = getattr(node, "aval", None)  # traced: no number yet
        return str(node) if kind is None else f"traced {node.dtype}[{','.join(map(str, node.shape))}]"
    if values.ndim == 0:
        return _with_unit(float(values), unit_of(f"x.{name}"))
    size = f"[{' x '.join(map(str, values.shape))}]"
    if not values.size:
        return size
    low, high = (_with_unit(float(end), unit_of(f"x.{name}")) for end in (values.min(), values.max()))
    return f"{size} {low if low == high else f'{low} to {high}'}"


def _with_unit(value: float, unit: str) -> str:
    """A number in four digits, with an SI prefix where its unit takes one."""
    if not unit or not np.isfinite(value) or value == 0:
        return f"{value:g}" if value.is_integer() else f"{value:.4g}"
    if unit == "$":
        small = abs(value) < 1e6
        return f"${_plain(value)}" if small else f"${engineering(value, '', 4)}"
    if unit == "s" and abs(value) >= 2 * HOUR_S:
        size, word = next(
            (size, word) for size, word in ((YEAR_S, "years"), (DAY_S, "days"), (HOUR_S, "h")) if abs(value) >= 2 * size
        )
        return f"{_plain(value / size)} {word}"
    if unit.startswith(("$", "tokens")):
        return f"{_plain(value)} {unit}"
    return engineering(value, unit, 4)


def _plain(value: float) -> str:
    """Four digits, with thousands marks and without exponent where it is neither small nor large."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if 1e3 <= abs(rounded) < 1e9 else f"{rounded:.4g}"
