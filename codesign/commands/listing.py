"""`codesign list metrics|variables|limits [FILTER] [KEY=VALUE ...]`: what can be asked of a study, and varied in it."""

import dataclasses
import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from rich.table import Table
from rich.text import Text

from ..config import Study, study_from_config
from ..config.groups import describe, files
from ..config.plausibility import readable
from ..core.errors import ConfigError
from ..core.fields import get_path, walk, with_numpy
from ..core.json_yaml import is_mapping
from ..core.untrusted_io import read_yaml_file
from ..model.metrics import evaluate
from ..model.scenario import Scenario
from ..model.workloads.plan_fields import plan_field
from ..report.labels import metric, unit_of
from ..study.design_space import Ratio
from .remarks import metric_meaning, metric_unit, say_default
from .setup import prepare_jax
from .terminal import console, goal_text

# `codesign list accelerator --table`: the numbers of every accelerator side by side, and how well each is known.


FORMATS = ("bf16", "fp8", "fp4", "int8")
COLUMNS = ("accelerator", "memory", "bandwidth", *FORMATS, "board", "price", "network", "standing")
MEASURED, SHEET, ANNOUNCED = "measured", "data sheet", "announced"
"""Kernels fitted to measurements of the device; numbers of a product; numbers of a product to come."""


def show_accelerators(words: Sequence[str]) -> None:
    """Print a row for each accelerator whose line has all the words.

    Raises:
        ConfigError: no line has them.
    """
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("accelerator", "network", "standing") else "right")
    result = [
        row
        for path in sorted(files("accelerator"))
        for row in [_row(path.stem, describe(path), read_yaml_file(path, f"accelerator {path.stem}"))]
        if row is not None and all(word.lower() in " ".join((describe(path), *row)).lower() for word in words)
    ]
    if not result:
        raise ConfigError(f"list accelerator --table: nothing has {' and '.join(words)}")
    for row in result:
        table.add_row(*map(Text, row))
    console().print(table)
    console().print("rates of matrix products in TFLOP/s, dense; bandwidth in TB/s; board power and price with memory")


def _row(name: str, line: str, content: Any) -> tuple[str, ...] | None:
    """One line of the table: the numbers of a file; None of a file that takes its numbers from another."""
    cluster = content.get("cluster") if is_mapping(content) else None
    accelerator = cluster.get("accelerator") if is_mapping(cluster) else None
    if (
        not is_mapping(accelerator)
        or not is_mapping(accelerator.get("peak_flops_per_s"))
        or not is_mapping(accelerator.get("hbm"))
    ):
        return None
    peaks, memory = accelerator["peak_flops_per_s"], accelerator["hbm"]
    size, rate = (_number(memory.get(key)) for key in ("capacity_bytes", "bandwidth_bytes_per_s"))
    board = _number(accelerator.get("tdp_w")) + rate * _number(memory.get("energy_j_per_byte"))
    price = _number(accelerator.get("price_usd")) + size * _number(memory.get("usd_per_byte"))
    return (
        name,
        _memory(size),
        f"{rate / 1e12:.3g}",
        *(f"{_number(peaks[one]) / 1e12:,.0f}" if one in peaks else "" for one in FORMATS),
        f"{board:,.0f} W" if board else "",
        f"${price:,.0f}" if price else "",
        _named(content, "fabric"),
        _standing(name, line, content),
    )


def _memory(size: float) -> str:
    """Memory size in GiB or MB, as text; a reproduction may have no limit."""
    if size > 1e15:
        return "no limit"
    return f"{size / 2**30:.0f} GiB" if size >= 2**30 else f"{size / 1e6:.0f} MB"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _named(content: dict[str, Any], group: str) -> str:
    """The option of a group in the defaults of a file."""
    entries: list[Any] = content.get("defaults") or []
    for entry in entries:
        if is_mapping(entry) and f"/{group}" in entry:
            return str(entry[f"/{group}"])
    return ""


def _standing(name: str, line: str, content: dict[str, Any]) -> str:
    """True if kernels of the device were measured, or its numbers are those of a data sheet or an announcement."""
    if re.search(r"(?i)announced|previewed", line):
        return ANNOUNCED
    return MEASURED if _named(content, "calibration") == name else SHEET


TOPICS = ("metrics", "variables", "limits")
"""Names that can be listed beside the groups of `conf/`."""

FITTED = (".kernels.", ".collectives.")
"""Constants that are shown where somebody asks for them."""

Row = tuple[str, ...]


def list_of(what: str, words: Sequence[str]) -> None:
    """Print one of the lists, of the study that the overrides among `words` name, filtered by the others.

    Raises:
        ConfigError: bad configuration, or nothing that the filters leave.
    """
    prepare_jax()
    overrides = [word for word in words if "=" in word or word.startswith("~")]
    filters = [word.lower() for word in words if word not in overrides]
    study = study_from_config(*overrides)
    say_default(overrides)
    heads, rows = {"metrics": _metrics, "limits": _limits, "variables": _variables}[what](study)
    begun = [
        re.compile(("(?<![a-z])" if word[:1].isalpha() else "") + re.escape(word)) for word in filters
    ]  # `die` is no part of `gradients`
    selected = [row for row in rows if all(any(word.search(cell.lower()) for cell in row) for word in begun)]
    if not selected:
        raise ConfigError(
            f"list {what}: nothing has {' and '.join(filters)}; `codesign list {what}` shows all there is"
        )
    fitted = [row for row in selected if any(part in row[0] for part in FITTED)]
    general = [row for row in selected if row not in fitted]
    show_fitted = not general or any(
        word in part for word in filters for part in FITTED
    )  # for these constants themselves
    selected = selected if show_fitted else general
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), title=study_line(study), title_justify="left")
    for head in heads:
        table.add_column(head, overflow="fold", justify="right" if head in ("now", "limit") else "left")
    for row in selected:
        table.add_row(*map(Text, row))
    console().print(table)
    if fitted and not show_fitted:
        more = " ".join(["codesign list", what, "kernels", *filters])
        console().print(f"and {len(fitted)} constants of kernels and collectives: {more}")


def study_line(study: Study) -> str:
    """The study that is listed."""
    scenario = study.scenario
    job = f"{scenario.workload.model.name} {scenario.workload.words.job}"
    return f"{job} on {float(scenario.layout.devices):g} x {scenario.cluster.accelerator.name}"


def _numbers(scenario: Scenario) -> dict[str, float]:
    return {name: float(value) for name, value in evaluate(scenario).flat().items()}


def _shown(name: str, value: float, scenario: Scenario) -> str:
    unit = metric(name, scenario.workload.words).unit
    return goal_text(name, value, {name: unit}) if math.isfinite(value) else "no capacity"


def _unit(name: str, scenario: Scenario) -> str:
    return metric_unit(name, scenario.workload.words)


def _meaning(name: str, scenario: Scenario) -> str:
    return metric_meaning(name, scenario.workload.words)


def _metrics(study: Study) -> tuple[Row, list[Row]]:
    """Name, unit, value of the design as it stands, meaning."""
    scenario, numbers = study.scenario, _numbers(study.scenario)
    rows = [
        (name, _unit(name, scenario), _shown(name, numbers[name], scenario), _meaning(name, scenario))
        for name in _headlines_first(numbers)
    ]
    return ("metric", "unit", "now", "meaning"), rows


def _headlines_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: ("." in name, name))


def _limits(study: Study) -> tuple[Row, list[Row]]:
    """Key, unit, what it is limited to, value of the design as it stands, meaning."""
    scenario, numbers = study.scenario, _numbers(study.scenario)
    objective, rows = study.objective, list[Row]()
    for group, bounds in (("limits", objective.limits), ("floors", objective.floors)):
        for name, bound in bounds.items():
            now = _shown(name, numbers[name], scenario) if name in numbers else ""
            shown = _shown(name, bound, scenario)
            rows.append((f"objective.{group}.{name}", _unit(name, scenario), shown, now, _meaning(name, scenario)))
    taken = {*objective.limits, *objective.floors}
    for name in _headlines_first(numbers):
        if name in taken or name.startswith(("violations.", "usage.")):
            continue
        key = f"objective.limits.{name}"
        rows.append((key, _unit(name, scenario), "", _shown(name, numbers[name], scenario), _meaning(name, scenario)))
    for name in _headlines_first(name for name in numbers if name.startswith("usage.")):
        now = _shown(name, numbers[name], scenario)
        rows.append((f"{name} (always kept)", "share", "1", now, _meaning(name, scenario)))
    return ("key (objective.floors.* for at least)", "unit", "limit", "now", "meaning"), rows


def _variables(study: Study) -> tuple[Row, list[Row]]:
    """Path, unit, value now, what is legal or usual, meaning; those that the study varies first."""
    varied = {f"plan.{name}": f"one of {_listed(values)}" for name, values in study.space.plan.items()}
    for variable in study.space.hardware.values():
        unit = "" if isinstance(variable, Ratio) else unit_of(variable.path)
        ends = f"{readable(variable.low, unit)} to {readable(variable.high, unit)}"
        over = f" per {variable.denominator}" if isinstance(variable, Ratio) else ""
        varied[variable.path] = f"varied: {ends}{over}"
    rows: list[Row] = []
    for path, metadata, value in walk(with_numpy(study.scenario)):
        if np.ndim(value) or path.startswith("cluster.doubts"):
            continue
        unit = unit_of(path)
        span = varied.get(path) or _range(metadata, unit)
        text = metadata.get("doc") or _owner(study.scenario, path)
        rows.append((path, unit, readable(float(value), unit), span, text))
    first_cells = {row[0] for row in rows}
    rows += [
        (path, "", "", span, str((plan_field(path[5:]) or {}).get("doc", "")))
        for path, span in varied.items()
        if path not in first_cells
    ]
    rows.sort(key=lambda row: (row[0] not in varied, not row[0].startswith("plan."), row[0]))
    return ("variable", "unit", "now", "varied, usual or legal", "meaning"), rows


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in values)


def _range(metadata: Mapping[str, Any], unit: str) -> str:
    """Range that products have, or else the legal one."""
    if metadata.get("usual"):
        low, high = metadata["usual"][:2]
        return f"usual: {readable(low, unit)} to {readable(high, unit)}"
    low, high = metadata["low"], metadata["high"]
    return f"{low:g} to {high:g}" if high < math.inf else f"from {low:g}"


def _owner(scenario: Scenario, path: str) -> str:
    """The first line about what a leaf is a number of."""
    node: Any = scenario
    parent = path.rpartition(".")[0]
    while parent:
        node = get_path(scenario, parent)
        if dataclasses.is_dataclass(node):
            break
        parent = parent.rpartition(".")[0]
    doc = inspect.getdoc(cast(type, type(node))) or ""
    return f"{type(node).__name__}: {doc.splitlines()[0].rstrip('.')}" if doc else type(node).__name__
