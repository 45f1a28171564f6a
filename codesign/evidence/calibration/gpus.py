"""The devices that measurements name: data-sheet peaks, chips, and whose constants stand in for whose.

All of it stands in `conf/accelerator`: `aliases` and `prefixes` are names in tables, `silicon` is what kernel models
ask of a chip, a `/calibration` of its own name says that a device has constants of its own. `relatives` lists whose
constants stand in for what was not measured, sides apart: a device between two generations takes the logarithmic mean
of the first on each side that was measured. Collectives follow the fabric: who has the same one comes first.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...config.groups import aliases, conf_dir, plain_name
from ...core.errors import DataError, suggestion
from ...core.json_yaml import read_yaml

UNCONFIGURED = {  # only in tables: data-sheet bf16, fp8, fp4 FLOP/s, memory and link bytes/s; processors, cache
    "a100pcie80gb": ((312e12, 624e12, float("nan"), 1.935e12, 32e9), (108, 40e6)),
    "a100pcie": ((312e12, 624e12, float("nan"), 1.935e12, 32e9), (108, 40e6)),
    "a30": ((165e12, 330e12, float("nan"), 0.933e12, 100e9), (56, 24e6)),
    "l4": ((121e12, 242.5e12, float("nan"), 0.3e12, 32e9), (58, 48e6)),
    "l40": ((181e12, 362e12, float("nan"), 0.864e12, 32e9), (142, 96e6)),
}
FORMATS = {  # number formats as tables write them -> (ours, column of `Peaks`, bytes an element with its scales)
    "bfloat16": ("bf16", 0, 2.0),
    "float16": ("fp16", 0, 2.0),
    "half": ("fp16", 0, 2.0),
    "fp8": ("fp8", 1, 1.0),
    "fp8_block": ("fp8_block", 1, 1.0),
    "nvfp4": ("fp4", 2, 0.5625),
    "w4a16_mxfp4": ("mxfp4_w4a16", 0, 0.53125),
    "w4a8_mxfp4_mxfp8": ("mxfp4_w4a8", 1, 0.53125),
}


class Peaks(NamedTuple):
    """Dense data-sheet rates of one device."""

    bf16: float
    fp8: float
    fp4: float
    memory: float
    scale_up: float

    def flops(self, column: int) -> float:
        """Peak of a column of FORMATS; the next wider format where the device has none."""
        for value in (self[column], *reversed(self[:column])):
            if value == value:
                return value
        raise DataError("a device without a bf16 peak cannot be predicted")


class GpuEntry(NamedTuple):
    """Entry of an accelerator's file; `calibration` names the accelerator whose constants it uses."""

    peaks: Peaks
    fabric: str
    calibration: str
    processors: float
    cache_bytes: float
    origin: dict[str, Any]  # of processors and cache
    prefixes: tuple[str, ...]
    relatives: tuple[tuple[str, ...], ...]
    generation: str = ""
    sustained_ratio: float = 1.0  # of the share of its peak that a library sustains to that of its relatives


class Device(NamedTuple):
    """A device of a table: its own name, whose constants it takes, its peaks and chip.

    `exact` where the constants are meant for this very device; else they are a relative's.
    """

    name: str
    accelerator: str
    exact: bool
    peaks: Peaks
    processors: float
    cache_bytes: float


@lru_cache
def accelerators() -> dict[str, GpuEntry]:
    """Accelerators of the configuration whose silicon is described, by name."""
    result = {}
    for path in sorted((conf_dir() / "accelerator").glob("*.yaml")):
        data = read_yaml(path.read_text(encoding="utf-8"))
        node = data.get("cluster", {}).get("accelerator", {})
        if "silicon" in node:
            result[path.stem] = _entry(path.stem, node, data.get("defaults", []))
    return result


def _entry(name: str, node: dict[str, Any], defaults: list[Any]) -> GpuEntry:
    groups = {key: value for item in defaults if isinstance(item, dict) for key, value in item.items()}
    wires = conf_dir() / "fabric" / f"{groups.get('/fabric', '')}.yaml"
    link = read_yaml(wires.read_text(encoding="utf-8")) if wires.exists() else {}
    peaks, missing = node["peak_flops_per_s"], float("nan")
    bf16, fp4 = (float(peaks.get(key, missing)) for key in ("bf16", "fp4"))
    fp8 = float(peaks.get("fp8", peaks.get("int8", missing)))
    rates = Peaks(
        bf16, fp8, fp4, float(node["hbm"]["bandwidth_bytes_per_s"]), float(link.get("bandwidth_bytes_per_s", missing))
    )
    return GpuEntry(
        rates, str(groups.get("/fabric", "")), str(groups.get("/calibration", name)),
        float(node["silicon"]["processors"]), float(node["silicon"]["cache_bytes"]), node["provenance"]["silicon"],
        tuple(node.get("prefixes", ())), tuple(tuple(side) for side in node.get("relatives", ())),
        str(node.get("generation", "")), float(node["silicon"].get("sustained_ratio", 1.0)),
    )  # fmt: skip


@lru_cache
def calibrated() -> tuple[str, ...]:
    """Accelerators with constants of their own, measured or not."""
    return tuple(name for name, entry in accelerators().items() if entry.calibration == name)


def stand_ins(accelerator: str, measured: Callable[[str], bool]) -> list[str]:
    """Whose constants stand in for an accelerator's: of each side the first that was measured.

    Args:
        measured: whether an accelerator has constants of its own for what is asked.
    """
    sides = accelerators()[accelerator].relatives or (_by_ratio(accelerator),)
    result = (next((other for other in side if measured(other)), None) for side in sides)
    return [other for other in result if other is not None]


def wired_alike(accelerator: str, measured: Callable[[str], bool]) -> list[str]:
    """Whose collectives stand in: those of a device on the same fabric, else as `stand_ins`."""
    mine = accelerators()[accelerator].fabric
    for other in calibrated():
        if other != accelerator and accelerators()[other].fabric == mine and measured(other):
            return [other]
    return stand_ins(accelerator, measured)


def _by_ratio(accelerator: str) -> tuple[str, ...]:
    """All others, the most similar ratio of arithmetic to memory bandwidth first."""
    peaks = accelerators()[accelerator].peaks
    return tuple(sorted((name for name in calibrated() if name != accelerator), key=lambda k: _distance(peaks, k)))


def _distance(peaks: Peaks, accelerator: str) -> float:
    other = accelerators()[accelerator].peaks
    return abs(float(np.log(other.flops(0) / other.memory * peaks.memory / peaks.flops(0))))


def option_of(name: str) -> str | None:
    """The accelerator of the configuration that a table means by this name, or None."""
    options = {plain_name(alias): option for alias, option in aliases().items()}
    return options.get(plain_name(name))


def accelerator_of(name: str) -> str | None:
    """The accelerator whose constants a device's name suggests, or None."""
    described = accelerators().get(option_of(name) or "")
    if described is not None:
        return described.calibration
    wanted = plain_name(name)
    prefixes = {plain_name(prefix): owner for owner, entry in accelerators().items() for prefix in entry.prefixes}
    for prefix in sorted(prefixes, key=len, reverse=True):
        if wanted.startswith(prefix):
            return prefixes[prefix]
    return None


def nearest(peaks: Peaks) -> str:
    """The accelerator with the most similar ratio of arithmetic to memory bandwidth."""
    return min(calibrated(), key=lambda name: _distance(peaks, name))


def device(name: str, folder: dict[str, Peaks]) -> Device:
    """Resolve a device's name in a table.

    Args:
        folder: peaks that came with the table; they go before our own.

    Raises:
        DataError: neither its name nor the folder says what it is.
    """
    option, accelerator = option_of(name), accelerator_of(name)
    if accelerator is None and name not in folder:
        if option is not None:
            raise DataError(
                f"gpu {name!r} is accelerator={option}, of which nothing was measured: add it to a table of peaks"
            )
        raise DataError(
            f"gpu {name!r} is not known{suggestion(name, aliases())}; add it to a table of peaks (see --schema)"
        )
    rates, chip = UNCONFIGURED.get(plain_name(name), (None, None))
    entry, relative = accelerators().get(option or ""), accelerators().get(accelerator or "")
    ours = entry.peaks if entry else Peaks(*rates) if rates else None
    peaks = folder.get(name) or ours
    if peaks is None:
        raise DataError(f"gpu {name!r} has no peaks of its own: add it to a table of peaks (see --schema)")
    for fallback in (ours, relative.peaks if relative else None):
        if fallback is not None:
            peaks = Peaks(*(a if a == a else b for a, b in zip(peaks or fallback, fallback, strict=True)))
    accelerator = accelerator or nearest(peaks)
    owner = entry or accelerators()[accelerator]
    return Device(name, accelerator, option == accelerator, peaks, *(chip or (owner.processors, owner.cache_bytes)))
