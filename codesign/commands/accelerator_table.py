"""`codesign list accelerator --table`: the numbers of every accelerator side by side, and how well each is known."""

import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..config.groups import describe, files
from ..core.errors import ConfigError
from ..core.untrusted_io import read_yaml_file
from ..core.yaml_io import is_mapping
from .terminal import console

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
    own = cluster.get("accelerator") if is_mapping(cluster) else None
    if not is_mapping(own) or not is_mapping(own.get("peak_flops_per_s")) or not is_mapping(own.get("hbm")):
        return None
    peaks, memory = own["peak_flops_per_s"], own["hbm"]
    size, rate = (_number(memory.get(key)) for key in ("capacity_bytes", "bandwidth_bytes_per_s"))
    board = _number(own.get("tdp_w")) + rate * _number(memory.get("energy_j_per_byte"))
    price = _number(own.get("price_usd")) + size * _number(memory.get("usd_per_byte"))
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
    for entry in content.get("defaults") or []:
        if is_mapping(entry) and f"/{group}" in entry:
            return str(entry[f"/{group}"])
    return ""


def _standing(name: str, line: str, content: dict[str, Any]) -> str:
    """True if kernels of the device were measured, or its numbers are those of a data sheet or an announcement."""
    if re.search(r"(?i)announced|previewed", line):
        return ANNOUNCED
    return MEASURED if _named(content, "calibration") == name else SHEET
