"""Unit constants. Inside the package every number is SI; these are for the edges (YAML comments, tables, plots)."""

GIB = 2.0**30
MIB = 2.0**20
KIB = 2.0**10
GB = 1e9
PJ_PER_BIT = 8e-12  # J per byte
KWH = 3.6e6  # J
HOUR_S = 3600.0
YEAR_S = 365.25 * 86400.0

BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes per element of a number format (block scales are not counted)."""


def engineering(value: float, unit: str = "", digits: int = 3) -> str:
    """Format with an SI prefix: 4.5e11 B/s -> '450 GB/s'."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value} {unit}".strip()
    magnitude = abs(value)
    for factor, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")):
        if magnitude >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}".rstrip()
    for factor, prefix in ((1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p")):
        if magnitude >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}".rstrip()
    return f"{value:.{digits}g} {unit}".rstrip()
