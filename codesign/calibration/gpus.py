"""The devices that measurements name: data-sheet peaks, caches, and which is nearest to which."""

import csv
from pathlib import Path
from typing import NamedTuple

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
PREFIXES = {  # beginning of a device's name as tables write it, longest match first
    "a100": "a100_80gb",
    "a30": "a100_80gb",
    "a800": "a100_80gb",
    "h100": "h100_sxm",
    "h800": "h100_sxm",
    "h20": "h100_sxm",
    "gh200": "h200",
    "h200": "h200",
    "b200": "b200",
    "gb200": "gb200",
    "b300": "b300",
    "gb300": "gb300",
    "mi": "mi300x",
    "l40": "l40s",
    "l4": "l40s",
    "rtx": "rtx_pro_6000",
}
EXACT = {"a100-sxm-80gb", "h100-sxm", "h100-sxm5", "h200", "h200-sxm", "b200", "gb200", "b300", "gb300", "mi300x",
         "l40s", "rtx-pro-6000-server"}  # fmt: skip
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
PEAKS = {  # dense bf16, fp8, fp4 FLOP/s; memory bytes/s; scale-up bytes/s one way; nan where there is none
    "a100_80gb": (312e12, 624e12, float("nan"), 2.039e12, 300e9),
    "h100_sxm": (989e12, 1979e12, float("nan"), 3.35e12, 450e9),
    "h200": (989e12, 1979e12, float("nan"), 4.8e12, 450e9),
    "b200": (2250e12, 4500e12, 9000e12, 8.0e12, 900e9),
    "gb200": (2500e12, 5000e12, 10000e12, 8.0e12, 900e9),
    "b300": (2250e12, 4500e12, 13500e12, 8.0e12, 900e9),
    "gb300": (2500e12, 5000e12, 15000e12, 8.0e12, 900e9),
    "mi300x": (1307e12, 2615e12, float("nan"), 5.3e12, 448e9),
    "l40s": (362e12, 733e12, float("nan"), 0.864e12, 32e9),
    "rtx_pro_6000": (504e12, 1007e12, 2015e12, 1.597e12, 64e9),
}
FORMATS = {  # number formats as tables write them -> (ours, column of PEAKS, bytes an element with its scales)
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
    """A device of a table: its own name, whose constants it takes, its peaks and chip."""

    name: str
    accelerator: str
    exact: bool
    peaks: Peaks
    processors: float
    cache_bytes: float


def accelerator_of(name: str) -> str | None:
    """The accelerator whose constants a device's name suggests, or None."""
    wanted = name.lower().replace(" ", "-").replace("_", "-").removeprefix("nvidia-").removeprefix("amd-")
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
                rates = [float(row[column] or "nan") * 1e12 for column in columns]
                link = float(row.get("scaleup_link_gbytes_per_s_one_way") or "nan") * 1e9
                result[row["gpu"]] = Peaks(*rates, link)
            except (KeyError, ValueError) as error:
                raise DataError(f"{path.name}: {error} (a number in each of gpu, {', '.join(columns)})") from error
    return result


def nearest(peaks: Peaks) -> str:
    """The accelerator with the most similar ratio of arithmetic to memory bandwidth."""
    own = peaks.flops(0) / peaks.memory
    return min(PEAKS, key=lambda key: abs(PEAKS[key][0] / PEAKS[key][3] / own - 1))


def device(name: str, folder: dict[str, Peaks]) -> Device:
    """What a device's name in a table stands for.

    Args:
        folder: peaks that came with the table; they go before our own.

    Raises:
        DataError: neither its name nor the folder says what it is.
    """
    accelerator = accelerator_of(name)
    if accelerator is None and name not in folder:
        raise DataError(f"gpu {name!r} is not known{suggestion(name, CHIPS)}; add its row to hardware_peaks.csv")
    exact = name.lower() in EXACT or name in CHIPS
    ours = Peaks(*PEAKS[accelerator]) if accelerator else None
    peaks = folder.get(name) or ours
    if ours:
        peaks = Peaks(*(a if a == a else b for a, b in zip(peaks, ours, strict=True)))
    accelerator = accelerator or nearest(peaks)
    return Device(name, accelerator, exact, peaks, *CHIPS[accelerator])
