"""Objects as a reader at a prompt wants them: numbers with the unit of their name, tables by their keys."""

import dataclasses
from typing import Any

from .units import engineering, unit_of

WIDTH = 110
MOST = 8  # entries of a list that are shown one by one


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
    return repr(node) if isinstance(node, str) else _number(node, name)


def as_text(self: Any) -> str:
    """For `__repr__`: all of an object."""
    return shown(self)


def _joined(title: str, ends: str, entries: list[tuple[str, Any]], indent: int, sign: str, name: str = "") -> str:
    """`Title(a=1, b=2)`, on several lines where one does not hold it."""
    inner = indent + 2
    texts = [f"{key}{sign}{shown(value, name or key, inner)}" for key, value in entries]
    line = f"{title}{ends[0]}{', '.join(texts)}{ends[1]}"
    if "\n" not in line and len(line) + indent <= WIDTH:
        return line
    lines, row = [], ""
    for text in texts:
        if row and ("\n" in text or "\n" in row or len(row) + len(text) + inner > WIDTH):
            lines, row = [*lines, row], ""
        row += f"{', ' if row else ''}{text}"
    pad = "\n" + " " * inner
    return f"{title}{ends[0]}{pad}{f',{pad}'.join([*lines, row])}{ends[1]}"


def _number(node: Any, name: str) -> str:
    """A number with its unit; an array by its shape; what is traced by its type."""
    if getattr(node, "ndim", 0) != 0:
        return f"array of {' x '.join(map(str, node.shape))}"
    try:
        value = float(node)
    except (TypeError, ValueError):  # traced, or no number at all
        return str(node)
    unit = unit_of(f"x.{name}")
    if not unit or value == 0:
        return f"{value:g}"
    if unit.startswith("$"):
        return f"{value:.4g} {unit}"
    return engineering(value, unit, 4)
