"""Fitted constants as YAML: written by a calibration, read by configurations and by validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import codesign.model.hardware
import codesign.model.networks.collectives

from ...core.atomic_files import write_files
from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping, read_yaml
from .gpus import FORMATS, accelerators
from .kernels import ROOFLINES, TABLES, KernelTable, TableGroup

# Results on disk: all of them once everything is fitted.


def publish(texts: Mapping[Path, str | bytes]) -> list[Path]:
    """Write files so that an interruption leaves each of them as it was or as it should be.

    Args:
        texts: path -> content; folders are made.

    Raises:
        WriteError: one cannot be written; none is then.
    """
    write_files(texts)
    return list(texts)


REFERENCE = "trtllm"  # the framework whose constants are the accelerator's own
SOURCE = "aiconfigurator"
HEADER = "# @package cluster.accelerator.kernels\n"
MENUS = {
    "codesign.model.hardware": codesign.model.hardware,
    "codesign.model.networks.collectives": codesign.model.networks.collectives,
}
TINY = 1e-12  # stands in for a constant that was fitted as nothing
Node = dict[str, Any]
Kernels = dict[str, dict[str, Node]]  # class -> number format -> node


def significant(value: float) -> float:
    """Four significant digits: more than the fit knows."""
    return float(f"{value:.4g}")


def node(table: KernelTable, constants: dict[str, float], group: TableGroup) -> Node:
    """A kernel as `_target_` and numbers."""
    result: Node = {"_target_": f"codesign.model.hardware.{table.model.__name__}"}
    who = group.device
    if table.chip:
        result["chip"] = {
            "_target_": "codesign.model.hardware.Chip", "processors": float(who.processors),
            "cache_bytes": float(who.cache_bytes), "peak_flops_per_s": significant(group.peak_flops_per_s),
            "bandwidth_bytes_per_s": significant(who.peaks.memory),
            "label": f"{group.table.name} {who.accelerator} {group.framework} {group.number_format}",
        }  # fmt: skip
    if table.operand:
        result["operand_bytes"] = group.operand_bytes
    return result | table.fixed | {key: significant(value) for key, value in constants.items()}


def build(value: Any) -> Any:
    """Objects from the `_target_` nodes of fitted constants.

    Raises:
        ConfigError: a target outside kernels and collectives.
    """
    if not is_mapping(value):
        return value
    inner = {key: build(item) for key, item in value.items() if key not in ("_target_", "provenance")}
    if "_target_" not in value:
        return inner
    menu, _, name = str(value["_target_"]).rpartition(".")
    if menu not in MENUS or not hasattr(MENUS[menu], name):
        raise ConfigError(f"_target_ = {value['_target_']} is no class of {' or '.join(MENUS)}")
    return getattr(MENUS[menu], name)(**inner)


def constants_file(out: Path, accelerator: str, framework: str = REFERENCE, variant: str = "") -> Path:
    """File of an accelerator's constants: its own for the reference framework, else below `frameworks`."""
    if framework == REFERENCE:
        return out / f"{accelerator}{variant}.yaml"
    return out / "frameworks" / f"{framework}_{accelerator}{variant}.yaml"


def text(title: str, kernels: Kernels, provenance: dict[str, Node]) -> str:
    """One file of the `calibration` group."""
    lines = [HEADER, f"# {title}\n"]
    for kind, formats in kernels.items():
        lines.append(f"{kind}:\n")
        for number_format, entry in formats.items():
            lines.append(f"  {number_format}:\n")
            for key, value in entry.items():
                lines.append(f"    {key}: {inline(value)}\n")
    return "".join([*lines, *provenance_lines(provenance)])


def provenance_lines(provenance: dict[str, Node]) -> list[str]:
    """A `provenance` block, an entry a line."""
    return ["provenance:\n", *(f"  {key}: {inline(entry)}\n" for key, entry in provenance.items())]


def inline(value: Any) -> str:
    """YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def load(path: Path) -> dict[str, Any]:
    """A file as plain containers; empty where it does not exist."""
    return read_yaml(path.read_text(encoding="utf-8")) if path.exists() else {}


def is_fitted(data: dict[str, Any], kind: str, number_format: str) -> bool:
    """True if the constants were fitted on this device, not inherited."""
    return data.get("provenance", {}).get(f"{kind}.{number_format}", {}).get("kind") == "fitted"


def _table(kind: str, entry: Node) -> KernelTable:
    """The table whose model an entry is."""
    tables = TABLES if "chip" in entry else ROOFLINES
    return next(table for table in tables if table.name.removesuffix("_roofline") == kind)


def inherited(kind: str, entries: list[Node], accelerator: str, number_format: str) -> Node:
    """Constants of relatives for another device: each carried to its chip, then the logarithmic mean.

    Ratios whose two rates grow with different parts of a chip are scaled by those parts (`KernelTable.scaling`).
    Learned factors are those of a relative of its generation, as devices left out bear out; of another generation they
    are no device's.
    Empty where the device has no such number format.
    """
    if not entries:
        return {}
    table = _table(kind, entries[0])
    carried = [_carried(table, entry, accelerator, number_format) for entry in entries]
    if not all(carried):
        return {}
    result = dict(carried[0])
    for name, (_, low, high) in table.ranges.items():
        logs = [np.log(max(entry[name], TINY)) for entry in carried]
        result[name] = significant(float(np.clip(np.exp(np.mean(logs)), low, high)))
    return result


def _carried(table: KernelTable, entry: Node, accelerator: str, number_format: str) -> Node:
    if "compute_ratio" in entry:
        entry = entry | {"compute_ratio": entry["compute_ratio"] * accelerators()[accelerator].sustained_ratio}
    if "chip" not in entry:
        return entry
    columns = {ours: column for ours, column, _ in FORMATS.values()}
    column = columns.get(number_format.split("_kv_")[0], 0)
    there = accelerators()[accelerator]
    peak = there.peaks[column]
    if peak != peak:
        return {}
    old = entry["chip"]
    chip = old | {
        "processors": there.processors, "cache_bytes": there.cache_bytes, "peak_flops_per_s": significant(peak),
        "bandwidth_bytes_per_s": significant(there.peaks.memory),
    }  # fmt: skip
    if "label" in old:
        kind, lender, framework, measured = old["label"].split()
        family = accelerators()[lender].generation if lender in accelerators() else ""
        source = lender if family and family == there.generation else accelerator  # one that no network was told of
        chip |= {"label": f"{kind} {source} {framework} {measured}"}
    share = old["processors"] / chip["processors"]
    arithmetic = chip["peak_flops_per_s"] / old["peak_flops_per_s"] * share
    traffic = chip["bandwidth_bytes_per_s"] / old["bandwidth_bytes_per_s"] * share
    lender = str(old.get("label", "")).split()[1:2]
    kin = bool(lender) and lender[0] in accelerators() and accelerators()[lender[0]].generation == there.generation
    kin = kin and old["processors"] != there.processors
    scaling = table.scaling | (table.scaling_of_kin if kin else {})
    scaled = {name: entry[name] * arithmetic**a * traffic**b for name, (a, b) in scaling.items()}
    return entry | scaled | {"chip": chip}


def chip_provenance(accelerator: str) -> Node:
    """Provenance of an accelerator's processors and cache."""
    origin = accelerators()[accelerator].origin
    return origin | {"note": f"{origin['note']}; peak and bandwidth as in the accelerator file"}
