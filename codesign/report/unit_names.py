"""The unit that a name carries, read word by word: `static_w_per_bytes_per_s` is W/(B/s), `transfers_per_s` is T/s."""

WORDS = {
    "bytes": "B", "byte": "B", "bits": "b", "bit": "b", "flops": "FLOP", "flop": "FLOP", "transfers": "T",
    "s": "s", "j": "J", "w": "W", "hz": "Hz", "usd": "$", "db": "dB", "a": "A",
    "m": "m", "mm": "mm", "mm2": "mm²", "tokens": "tokens",
}  # fmt: skip
"""Last word of what stands before, between or after `_per_` -> its unit."""

RATES = {"bytes", "bits", "flops", "transfers"}
"""What is divided by a time before anything is divided by it: dollars per byte-per-second."""

WHOLE = {"dB", "mm", "mm²", "/mm²", "dB/m", "B/s/mm", "tokens"}
"""Units that take no prefix of their own."""


def unit_of(path: str) -> str:
    """The unit that the name of a leaf carries; the parent's for an entry of a mapping (`peak_flops_per_s.bf16`)."""
    for key in reversed(path.split(".")[-2:]):
        unit = _unit(key)
        if unit:
            return unit
    return ""


def _unit(key: str) -> str:
    """Of one name; empty for a plain number, and for so many things of one kind per thing of another."""
    above, *below = key.split("_per_")
    if not below and "_" not in key:
        return ""
    unit = WORDS.get(above.rpartition("_")[2], "")
    divisors = [_divisor(part) for part in below]
    if len(below) == 2 and below[0].rpartition("_")[2] in RATES:
        return f"{unit}/({'/'.join(divisors)})"
    return unit + "".join(f"/{divisor}" for divisor in divisors if divisor)


def _divisor(part: str) -> str:
    """`port_bytes` is B, `sqrt_hz` is √Hz; a thing (a wavelength, a token) has no unit."""
    if part.startswith("sqrt_"):
        return f"√{WORDS.get(part.removeprefix('sqrt_'), '')}"
    word = part.rpartition("_")[2]
    return "" if word == "tokens" else WORDS.get(word, "")
