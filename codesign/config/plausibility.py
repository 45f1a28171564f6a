"""Legal numbers that no product or paper has: accepted, with one line each that says what is usual.

What is usual stands with the declaration of a leaf (`quantity(..., usual=...)`) and of what follows from several leaves
(a method `derived` of their class). Two numbers are about what parts and search ranges of `conf/` have, and a value is
told when it lies `SLACK` beyond them; a third entry names another origin, whose numbers are taken as they are. Zero is
never told: it says that something is not counted. Nor is a number whose provenance says `outlier: true`: a file that
means what nobody builds says so.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from ..core.fields import Usual, replace, walk, with_numpy
from ..core.units import KWH, YEAR_S, unit_of
from ..model.scenario import Scenario
from ..report.labels import THIN, money, number
from ..study.design_space import Continuous, DesignSpace, Variable

SLACK = 10.0
ORIGIN = "parts in conf/"
PJ = 8e-12  # joules per byte of a picojoule per bit
PREFIXED = (1e3, 1e6, 1e9, 1e12, 1e15, 1e-3, 1e-6, 1e-9, 1e-12)
"""Factors that a number is off by that was given in a prefixed unit, or per one."""

ALSO = {"$/J": (1 / KWH,), "J/B": (PJ,), "W/(B/s)": (PJ,), "$/(B/s)": (8e-9,), "s": (YEAR_S,)}
"""Unit -> what else a number is off by: given per kWh, in pJ/bit, per Gb/s, in years."""


class UnusualValue(NamedTuple):
    """One number outside of what is usual. `key` is where it stands, `meant` what it may have been meant to be."""

    key: str
    value: float
    low: float
    high: float
    text: str

    @property
    def plain(self) -> dict[str, Any]:
        """Unusual value in the plain form that a run folder stores."""
        return {"key": self.key, "value": self.value, "usual": [self.low, self.high], "text": self.text}


def unusual(
    scenario: Scenario, space: DesignSpace | None = None, provenance: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[UnusualValue, ...]:
    """Find what is unusual: numbers of a scenario, what follows from them, and the ranges of a space.

    A range is told where no number that it moves is told already.
    """
    origins, scenario = provenance or {}, with_numpy(scenario)
    leaves = [leaf for leaf in _leaves(scenario) if not _meant_so(leaf[0], origins)]
    usuals = {path: usual for path, usual, _ in leaves}
    result = [_judged(path, float(value), usual, path) for path, usual, value in leaves]
    result += [_judged(key, value, usual, key, leaf=False) for key, value, usual in _derived(scenario)]
    warned = {one.key for one in result if one}
    for name, variable in space.hardware.items() if space else ():
        if not warned & {variable.path, getattr(variable, "denominator", ""), *variable.tied}:
            result.append(_range(name, variable, scenario, usuals, warned))
    return tuple(one for one in result if one)


def _meant_so(path: str, provenance: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if the origin of a number, or of what it is a part of, says that it is meant."""
    while path and path not in provenance:
        path = path.rpartition(".")[0]
    return bool(path and provenance[path].get("outlier", provenance[path].get("unusual")))


def _leaves(scenario: Scenario) -> Iterator[tuple[str, Usual, Any]]:
    """(path, what is usual, value) of every number that says what is."""
    for path, metadata, value in walk(scenario):
        if metadata.get("usual"):
            yield path, metadata["usual"], value


def _deriving(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, object) of all that know what follows from their numbers."""
    parts = node
    if dataclasses.is_dataclass(node):
        if hasattr(node, "derived"):
            yield path, node
        parts = {field.name: getattr(node, field.name, None) for field in dataclasses.fields(node)}
    for name, part in cast(dict[Any, Any], parts).items() if isinstance(parts, dict) else ():
        yield from _deriving(part, f"{path}.{name}" if path else str(name))


def _derived(scenario: Scenario) -> Iterator[tuple[str, float, Usual]]:
    """(key, value, what is usual) of what follows from several numbers."""
    for path, node in _deriving(scenario):
        for name, (value, usual) in node.derived().items():
            yield f"{path}.{name}", float(value), usual


def _range(
    name: str, variable: Variable, scenario: Scenario, usuals: dict[str, Usual], warned: set[str]
) -> UnusualValue | None:
    """The first thing that an end of a variable's range makes unusual."""
    for end in ("low", "high"):
        key, bound = f"space.hardware.{name}.{end}", float(getattr(variable, end))
        leaves = {path: float(value) for path, value in variable.leaves(scenario, bound).items()}
        for path, value in leaves.items():
            itself = isinstance(variable, Continuous) and path == variable.path
            where = key if itself else f"{key} = {bound:g}: {path}"
            result = _judged(where, value, usuals.get(path), path, leaf=itself)
            if result:
                return result
        for path, value, usual in _derived(replace(scenario, leaves)):
            result = _judged(f"{key} = {bound:g}: {path}", value, usual, path, leaf=False)
            if result and path not in warned:
                return result
    return None


def _judged(key: str, value: float, usual: Usual | None, path: str, *, leaf: bool = True) -> UnusualValue | None:
    """A value against what is usual; the last word of `path` carries the unit, only a leaf can be written otherwise."""
    if usual is None or value == 0 or not math.isfinite(value):
        return None
    low, high = usual[:2]
    slack, origin = (1.0, usual[2]) if len(usual) > 2 else (SLACK, ORIGIN)
    if low / slack * (1 - 1e-9) <= value <= high * slack * (1 + 1e-9):
        return None
    unit = unit_of(path)
    ends = [readable(end, unit, 2) for end in ((high, low) if unit == "s/B" else (low, high))]
    shown, usually = readable(value, unit), ends[0] if high <= 1.1 * low else " to ".join(ends)
    said = shown if shown == f"{value:g}" else f"{value:g} ({shown})"
    text = f"{key} = {said} is unusual: usual is about {usually} ({origin})"
    return UnusualValue(key, value, low, high, text + (_meant(value, low, high, unit) if leaf else ""))


def _meant(value: float, low: float, high: float, unit: str) -> str:
    """Guess what was meant, where another unit brings the value to what is usual."""
    others = [1 / value, 1e-9 / value] if unit == "s/B" else [value * factor for factor in ALSO.get(unit, ())]
    others += [value * factor for factor in PREFIXED]
    for slack in (1 + 1e-9, 3.0):
        inside = [meant for meant in others if low / slack <= meant <= high * slack]
        if inside:
            meant = min(inside, key=lambda one: abs(math.log(one / math.sqrt(low * high))))
            return f"; for {readable(meant, unit)} write {meant:.6g}"
    return ""


def readable(value: float, unit: str, digits: int = 3) -> str:
    """A number with the unit that people quote it in."""
    if unit in ("J/B", "W/(B/s)"):
        shown = f"{value / PJ:.{digits}g} pJ/bit"
    elif unit == "s/B":
        shown = number(1 / value, "B/s", digits)
    elif unit in ("$/B", "$/(B/s)"):
        shown = f"{money(value * 1e9, digits, zeros=False)} per G{unit[2:].strip('()')}"
    else:
        shown = number(value, unit, digits)
    return shown.replace(THIN, " ")
