"""Conversion of values with units in a configuration: keys that may have one, and the unit of each."""

from typing import Any

from ..core.units import unit_of
from ..core.yaml_io import is_list, is_mapping
from ..report.labels import metric
from .written import in_unit

LEFT = ("provenance", "_target_", "name")
SECONDS = ("seconds",)
"""Settings of a search that are a time and do not say so by their ending."""


def in_si(node: Any, path: str = "", units: dict[str, str] | None = None) -> Any:
    """Convert a configuration to plain numbers: each that was written with a unit, in its leaf's.

    Args:
        node: of the configuration.
        path: where it stands.
        units: hardware variable -> unit, once they are known.

    Raises:
        ConfigError: a unit that its place does not have.
    """
    units = _units(node) if units is None else units
    if is_mapping(node):
        return {
            key: value if key in LEFT else in_si(value, f"{path}.{key}" if path else str(key), units)
            for key, value in node.items()
        }
    if is_list(node):
        return [in_si(value, path, units) for value in node]
    if not isinstance(node, str):
        return node
    unit = _unit(path, units)
    if not unit and not node.rstrip().endswith("%"):
        return node
    if unit == "count" and "/" in node:  # tokens/s, which pages show as a count
        unit = unit_of(path.rpartition(".")[2])
    result = in_unit(node, unit, path)
    return node if result is None else result


def _units(resolved: Any) -> dict[str, str]:
    """Hardware variable -> unit of the leaf that it moves; none of a ratio."""
    space: Any = resolved.get("space") if is_mapping(resolved) else None
    variables = space.get("hardware") if is_mapping(space) else None
    entries = variables.items() if is_mapping(variables) else ()
    return {name: unit_of(str(one["path"])) for name, one in entries if is_mapping(one) and "path" in one}


def _unit(path: str, units: dict[str, str]) -> str:
    first, *rest = path.split(".")
    if first == "objective" and len(rest) > 1 and rest[0] in ("limits", "floors"):
        return metric(".".join(rest[1:])).unit
    if first == "space":
        return units.get(rest[1], "") if len(rest) == 3 and rest[0] == "hardware" and rest[2] in ("low", "high") else ""
    if first == "search":
        if rest[-1] in SECONDS:
            return "s"
        return units.get(rest[1], "") if len(rest) == 2 and rest[0] in ("allowed_values", "step") else ""
    return unit_of(path) if first in ("cluster", "workload", "plan") else ""
