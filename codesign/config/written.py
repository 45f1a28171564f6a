"""Numbers written with a unit: refused, with the plain number in SI units that they stand for.

`50ms` is 0.05, `450GB/s` is 4.5e11, `80GiB` 8.58993e10, `400Gb/s` 5e10 bytes per second, `$55M` 5.5e7, `$0.08/kWh`
2.2222e-8 dollars per joule, `2.4pJ/bit` 1.92e-11 joules per byte.
"""

import re

from ..units import HOUR_S, KIB, YEAR_S

PREFIXES = {
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15,
}  # fmt: skip
SYMBOLS = {
    "s": 1.0, "sec": 1.0, "min": 60.0, "h": HOUR_S, "hour": HOUR_S, "d": 86400.0, "day": 86400.0, "year": YEAR_S,
    "B": 1.0, "byte": 1.0, "b": 1 / 8, "bit": 1 / 8, "J": 1.0, "Wh": HOUR_S, "W": 1.0, "Hz": 1.0, "m": 1.0,
    "FLOP": 1.0, "flop": 1.0, "FLOPS": 1.0, "FLOPs": 1.0, "flops": 1.0, "T": 1.0, "$": 1.0, "USD": 1.0, "usd": 1.0,
    "%": 0.01, "token": 1.0,
}  # fmt: skip
"""Unit -> SI units, a bit as an eighth of a byte."""

AMOUNTS = {"k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "B": 1e9, "bn": 1e9, "G": 1e9, "T": 1e12, "P": 1e15}
"""What may follow a number that has no unit, or a price."""

_NUMBER = re.compile(r"\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


def plain_number(text: str, unit: str = "") -> float | None:
    """The number in SI units that a text with a unit stands for; None where it is none.

    Args:
        text: as it was written.
        unit: of the key it was written for, such as `B/s`; bits are counted as bits where it is one of bits.
    """
    price = text.strip().startswith("$")
    match = _NUMBER.fullmatch(text.strip().lstrip("$"))
    if not match:
        return None
    number, words = float(match[1].replace("_", "").replace(",", "")), match[2].replace(" per ", "/").replace(" ", "")
    above, *below = words.split("/")
    if above.endswith("ps") and above[:-2] and not below:  # Gbps, GBps
        above, below = above[:-2], ["s"]
    scale = AMOUNTS.get(above, 1.0 if not above else None) if price or (unit == "$" and not below) else None
    scale = _factor(above) if scale is None else scale
    if scale is None and not below:
        scale = AMOUNTS.get(above)
    for part in below:
        divisor = _factor(part)
        scale = scale / divisor if scale is not None and divisor else None
    if scale is None or (not words and not price):
        return None
    return number * scale * (8.0 if unit.startswith("b") else 1.0)


def _factor(word: str) -> float | None:
    """What a unit with its prefix is in SI units."""
    for symbol in (word, word.removesuffix("s")):
        if symbol in SYMBOLS:
            return SYMBOLS[symbol]
        first, rest = symbol[:1], symbol[1:]
        if rest[:1] == "i" and rest[1:] in SYMBOLS and first in "kKMGTPE":
            return KIB ** ("KMGTPE".index(first.upper()) + 1) * SYMBOLS[rest[1:]]
        if first in PREFIXES and rest in SYMBOLS:
            return PREFIXES[first] * SYMBOLS[rest]
    return None
