"""The devices that measurements name: data-sheet peaks, caches, and which is nearest to which."""

import csv
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from ..config.groups import aliases, conf_dir
from ..errors import DataError, suggestion

CHIPS = {  # processors, last-level cache bytes
    "a100_80gb": (108, 40e6),
    "h100_sxm": (132, 50e6),
    "h200": (132, 50e6),
    "b200": (148, 126e6),
    "gb200": (152, 126e6),
    "b300": (148, 126e6),
    "gb300": (152, 126e6),
    "mi300x": (304, 256e6),
    "l40s": (142, 96e6),
    "rtx_pro_6000": (188, 128e6),
}
OTHER_CHIPS = {  # devices that take a relative's constants but have a chip of their own
    "h20": (78, 60e6), "h100_pcie": (114, 50e6), "h800": (132, 50e6), "gh200": (132, 60e6), "a100_40gb": (108, 40e6),
    "mi325x": (304, 256e6), "mi355x": (256, 256e6), "a100pcie80gb": (108, 40e6), "a30": (56, 24e6), "l4": (58, 48e6),
    "l40": (142, 96e6),
}  # fmt: skip
OTHER_PEAKS = {  # data-sheet bf16, fp8, fp4 FLOP/s, memory and link bytes/s of devices without a configuration
    "a100pcie80gb": (312e12, 624e12, float("nan"), 1.935e12, 32e9),
    "a30": (165e12, 330e12, float("nan"), 0.933e12, 100e9),
    "l4": (121e12, 242.5e12, float("nan"), 0.3e12, 32e9),
    "l40": (181e12, 362e12, float("nan"), 0.864e12, 32e9),
}
CHIP_SOURCES = {  # accelerator: (references.bib key, place, kind, note)
    "a100_80gb": ("nvidia_a100_whitepaper", "GA100 table", "datasheet", "108 SMs, 40 MB L2"),
    "h100_sxm": ("nvidia_h100_whitepaper", "H100 SXM5 table", "datasheet", "132 SMs, 50 MB L2"),
    "h200": ("nvidia_h100_whitepaper", "H100 SXM5 table", "derived", "the same GH100 die as H100 SXM"),
    "b200": ("chipsandcheese_b200", "specification table", "published", "74 of 80 SMs a die; L2 126 MB"),
    "gb200": ("chipsandcheese_b200", "specification table", "assumed", "152 SMs enabled; L2 as B200"),
    "b300": ("chipsandcheese_b200", "specification table", "assumed", "SMs and L2 as B200"),
    "gb300": ("chipsandcheese_b200", "specification table", "assumed", "SMs and L2 as GB200"),
    "mi300x": ("amd_mi300x_datasheet", "compute units, Infinity Cache", "datasheet", "304 CUs, 256 MB"),
    "l40s": ("nvidia_l40s_datasheet", "AD102", "datasheet", "142 SMs, 96 MB L2"),
    "rtx_pro_6000": ("nvidia_rtx_pro_6000_datasheet", "GB202", "datasheet", "188 SMs, 128 MB L2"),
}
PREFIXES = {  # beginning of an unknown device's name -> its nearest relative, longest match first
    "a100": "a100_80gb", "a30": "a100_80gb", "a800": "a100_80gb", "a10": "a100_80gb",
    "h100": "h100_sxm", "h800": "h100_sxm", "h20": "h100_sxm", "h200": "h200", "gh200": "h200",
    "b100": "b200", "b200": "b200", "gb200": "gb200", "b300": "b300", "gb300": "gb300",
    "mi": "mi300x", "l40": "l40s", "l4": "l40s", "rtx": "rtx_pro_6000",
}  # fmt: skip
RELATIVES = {  # nearest first; used where a device has no measurements of its own, and for leave-one-out figures
    "a100_80gb": ("h100_sxm", "b200", "gb200"),
    "h100_sxm": ("h200", "a100_80gb", "b200", "gb200"),
    "h200": ("h100_sxm", "b200", "a100_80gb"),
    "b200": ("gb200", "b300", "gb300", "h100_sxm"),
    "gb200": ("b200", "gb300", "b300", "h100_sxm"),
    "b300": ("gb300", "b200", "gb200", "h100_sxm"),
    "gb300": ("b300", "gb200", "b200", "h100_sxm"),
    "mi300x": ("h100_sxm", "a100_80gb"),
    "l40s": ("rtx_pro_6000", "a100_80gb", "h100_sxm"),
    "rtx_pro_6000": ("l40s", "h100_sxm", "b200"),
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


def _plain(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum()).removeprefix("nvidia").removeprefix("amdinstinct")


@lru_cache
def accelerators() -> dict[str, Peaks]:
    """Accelerator of the configuration -> its dense peaks, memory and scale-up rates."""
    result, missing = {}, float("nan")
    for path in sorted((conf_dir() / "accelerator").glob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        node = data.get("cluster", {}).get("accelerator", {})
        peaks, memory = node.get("peak_flops_per_s", {}), node.get("hbm", {}).get("bandwidth_bytes_per_s", missing)
        fabric = next((d["/fabric"] for d in data.get("defaults", []) if isinstance(d, dict) and "/fabric" in d), "")
        wires = conf_dir() / "fabric" / f"{fabric}.yaml"
        link = yaml.safe_load(wires.read_text(encoding="utf-8")) if wires.exists() else {}
        bf16, fp4 = (float(peaks.get(key, missing)) for key in ("bf16", "fp4"))
        fp8 = float(peaks.get("fp8", peaks.get("int8", missing)))
        scale_up = float(link.get("bandwidth_bytes_per_s", missing))
        result[path.stem] = Peaks(bf16, fp8, fp4, float(memory), scale_up)
    return result


def option_of(name: str) -> str | None:
    """The accelerator of the configuration that a table means by this name, or None."""
    known = {_plain(alias): option for alias, option in aliases().items()}
    return known.get(_plain(name))


def accelerator_of(name: str) -> str | None:
    """The accelerator whose constants a device's name suggests, or None."""
    option = option_of(name)
    if option in CHIPS:
        return option
    wanted = _plain(name)
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        if wanted.startswith(prefix):
            return PREFIXES[prefix]
    return None


def read_peaks(directory: Path) -> dict[str, Peaks]:
    """Device -> peaks of a folder's `hardware_peaks.csv`; empty where it has none.

    Raises:
        DataError: a column is missing or no number.
    """
    path = directory / "hardware_peaks.csv"
    if not path.exists():
        return {}
    columns = ("dense_bf16_tflops", "dense_fp8_tflops", "dense_fp4_tflops", "hbm_tbytes_per_s")
    result = {}
    with path.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            try:
                bf16, fp8, fp4, memory = (float(row[column] or "nan") * 1e12 for column in columns)
                link = float(row.get("scaleup_link_gbytes_per_s_one_way") or "nan") * 1e9
                result[row["gpu"]] = Peaks(bf16, fp8, fp4, memory, link)
            except (KeyError, ValueError) as error:
                raise DataError(f"{path.name}: {error} (a number in each of gpu, {', '.join(columns)})") from error
    return result


def nearest(peaks: Peaks) -> str:
    """The accelerator with the most similar ratio of arithmetic to memory bandwidth."""
    own, known = peaks.flops(0) / peaks.memory, accelerators()
    return min(CHIPS, key=lambda key: abs(np.log(known[key].flops(0) / known[key].memory / own)))


def device(name: str, folder: dict[str, Peaks]) -> Device:
    """What a device's name in a table stands for.

    Args:
        folder: peaks that came with the table; they go before our own.

    Raises:
        DataError: neither its name nor the folder says what it is.
    """
    option, accelerator = option_of(name), accelerator_of(name)
    if accelerator is None and name not in folder:
        raise DataError(f"gpu {name!r} is not known{suggestion(name, aliases())}; add its row to hardware_peaks.csv")
    other = OTHER_PEAKS.get(_plain(name))
    ours = accelerators().get(option or "") or (Peaks(*other) if other else None)
    peaks = folder.get(name) or ours
    relative = accelerators().get(accelerator or "")
    for known in (ours, relative):
        if known is not None:
            peaks = Peaks(*(a if a == a else b for a, b in zip(peaks or known, known, strict=True)))
    accelerator = accelerator or nearest(peaks)
    chip = OTHER_CHIPS.get(option or _plain(name), CHIPS[accelerator])
    return Device(name, accelerator, option == accelerator, peaks, *chip)
