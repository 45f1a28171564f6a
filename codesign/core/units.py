"""Unit constants, and the unit that a name carries.

Inside the package every number is SI; these are for the edges (YAML comments, tables, plots). Names are read word by
word: `static_w_per_bytes_per_s` is W/(B/s), `transfers_per_s` is T/s.
"""

GIB = 2.0**30
KIB = 2.0**10
GB = 1e9
PJ_PER_BIT = 8e-12  # J per byte
KWH = 3.6e6  # J
HOUR_S = 3600.0
DAY_S = 86400.0
YEAR_S = 365.25 * 86400.0

BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes per element of a number format (block scales are not counted)."""

UNIT_WORDS = {
    "bytes": "B", "byte": "B", "bits": "b", "bit": "b", "flops": "FLOP", "flop": "FLOP", "transfers": "T",
    "s": "s", "j": "J", "joules": "J", "w": "W", "hz": "Hz", "usd": "$", "db": "dB", "a": "A",
    "m": "m", "mm": "mm", "mm2": "mm²", "tokens": "tokens",
}  # fmt: skip
"""Last word of what stands before, between or after `_per_` -> its unit."""

UNIT_RATES = {"bytes", "bits", "flops", "transfers"}
"""Quantities divided by a time before anything is divided by them: dollars per byte-per-second."""

UNPREFIXED_UNITS = {"dB", "mm", "mm²", "/mm²", "dB/m", "B/s/mm", "tokens"}
"""Units that take no prefix of their own."""

PREFIXES = (
    *((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")),
    *((1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p")),
)
"""SI prefixes that numbers are written with, largest first."""


def engineering(value: float, unit: str = "", digits: int = 3) -> str:
    """Format with an SI prefix, chosen after rounding: 4.5e11 B/s -> '450 GB/s', 9.997e11 B/s -> '1 TB/s'."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value} {unit}".strip()
    rounded = float(f"{value:.{digits}g}")  # 999.7 GB/s in three digits is 1 TB/s
    for factor, prefix in PREFIXES:
        if abs(rounded) >= factor:
            return f"{rounded / factor:.{max(digits, 3)}g} {prefix}{unit}".rstrip()
    return f"{rounded:.{digits}g} {unit}".rstrip()


def percent(share: float, least: float = 0.0) -> str:
    """A share in two digits without exponents: `0.0001 %`, `0.056 %`, `11 %`, `277 %`; at least `least`."""
    value = 100 * max(share, least)
    return f"{value:.2g} %" if value < 99.5 else f"{value:,.0f} %"


def unit_of(path: str) -> str:
    """The unit that the name of a leaf carries; the parent's for an entry of a mapping (`peak_flops_per_s.bf16`)."""
    for key in reversed(path.split(".")[-2:]):
        unit = _named_unit(key)
        if unit:
            return unit
    return ""


def _named_unit(key: str) -> str:
    """Unit of one name; empty for a plain number, and for so many things of one kind per thing of another."""
    above, *below = key.split("_per_")
    if not below and "_" not in key:
        return ""
    unit = UNIT_WORDS.get(above.rpartition("_")[2], "")
    divisors = [_divisor(part) for part in below]
    if len(below) == 2 and below[0].rpartition("_")[2] in UNIT_RATES:
        return f"{unit}/({'/'.join(divisors)})"
    return unit + "".join(f"/{divisor}" for divisor in divisors if divisor)


def _divisor(part: str) -> str:
    """`port_bytes` is B, `sqrt_hz` is √Hz; a thing (a wavelength, a token) has no unit."""
    if part.startswith("sqrt_"):
        return f"√{UNIT_WORDS.get(part.removeprefix('sqrt_'), '')}"
    word = part.rpartition("_")[2]
    return "" if word == "tokens" else UNIT_WORDS.get(word, "")
