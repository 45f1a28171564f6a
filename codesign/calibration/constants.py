"""Fitted constants as YAML: written by a calibration, read by configurations and by validation."""

from pathlib import Path
from typing import Any

import yaml

import codesign.collectives
import codesign.hardware

from ..errors import ConfigError
from .gpus import CHIP_SOURCES, CHIPS, FORMATS, accelerators
from .kernels import KernelTable
from .tables import Group

REFERENCE = "trtllm"  # the framework whose constants are the accelerator's own
SOURCE = "aiconfigurator"
HEADER = "# @package cluster.accelerator.kernels\n"
MENUS = {"codesign.hardware": codesign.hardware, "codesign.collectives": codesign.collectives}
Node = dict[str, Any]
Kernels = dict[str, dict[str, Node]]  # class -> number format -> node


def significant(value: float) -> float:
    """Four significant digits: more than the fit knows."""
    return float(f"{value:.4g}")


def node(table: KernelTable, constants: dict[str, float], group: Group) -> Node:
    """A kernel as `_target_` and numbers."""
    result: Node = {"_target_": f"codesign.hardware.{table.model.__name__}"}
    who = group.device
    if table.chip:
        result["chip"] = {
            "_target_": "codesign.hardware.Chip", "processors": float(who.processors),
            "cache_bytes": float(who.cache_bytes), "peak_flops_per_s": significant(group.peak_flops_per_s),
            "bandwidth_bytes_per_s": significant(who.peaks.memory),
        }  # fmt: skip
    if table.operand:
        result["operand_bytes"] = group.operand_bytes
    return result | table.fixed | {key: significant(value) for key, value in constants.items()}


def build(value: Any) -> Any:
    """Objects from the `_target_` nodes of fitted constants.

    Raises:
        ConfigError: a target outside kernels and collectives.
    """
    if not isinstance(value, dict):
        return value
    inner = {key: build(item) for key, item in value.items() if key not in ("_target_", "provenance")}
    if "_target_" not in value:
        return inner
    menu, _, name = str(value["_target_"]).rpartition(".")
    if menu not in MENUS or not hasattr(MENUS[menu], name):
        raise ConfigError(f"_target_ = {value['_target_']} is no class of {' or '.join(MENUS)}")
    return getattr(MENUS[menu], name)(**inner)


def place(out: Path, accelerator: str, framework: str = REFERENCE, variant: str = "") -> Path:
    """File of an accelerator's constants: its own for the reference framework, else below `frameworks`."""
    if framework == REFERENCE:
        return out / f"{accelerator}{variant}.yaml"
    return out / "frameworks" / f"{framework}_{accelerator}{variant}.yaml"


def write(path: Path, title: str, kernels: Kernels, provenance: dict[str, Node]) -> None:
    """One file of the `calibration` group."""
    lines = [HEADER, f"# {title}\n"]
    for kind, formats in kernels.items():
        lines.append(f"{kind}:\n")
        for number_format, entry in formats.items():
            lines.append(f"  {number_format}:\n")
            for key, value in entry.items():
                lines.append(f"    {key}: {_inline(value)}\n")
    lines.append("provenance:\n")
    for key, entry in provenance.items():
        lines.append(f"  {key}: {_inline(entry)}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def load(path: Path) -> dict[str, Any]:
    """A file as plain containers; empty where it does not exist."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def is_fitted(data: dict[str, Any], kind: str, number_format: str) -> bool:
    """Whether the constants were fitted on this device, not inherited."""
    return data.get("provenance", {}).get(f"{kind}.{number_format}", {}).get("kind") == "fitted"


def rehoused(entry: Node, accelerator: str, number_format: str) -> Node:
    """Constants of a relative on another device's chip."""
    if "chip" not in entry:
        return entry
    columns = {ours: column for ours, column, _ in FORMATS.values()}
    column = columns.get(number_format.split("_kv_")[0], 0)
    peaks = accelerators()[accelerator]
    peak = peaks[column]
    if peak != peak:
        return {}
    processors, cache = CHIPS[accelerator]
    chip = entry["chip"] | {
        "processors": float(processors), "cache_bytes": float(cache), "peak_flops_per_s": significant(peak),
        "bandwidth_bytes_per_s": significant(peaks.memory),
    }  # fmt: skip
    return entry | {"chip": chip}


def chip_provenance(accelerator: str) -> Node:
    """Where processors and cache come from."""
    source, at, kind, note = CHIP_SOURCES[accelerator]
    return {"source": source, "at": at, "kind": kind, "note": f"{note}; peak and bandwidth as in the accelerator file"}
