"""Numbers written with a unit, read as the plain number in SI units that they stand for.

`50ms` is 0.05, `450GB/s` is 4.5e11, `80GiB` 8.58993e10, `400Gb/s` 5e10 bytes per second, `$55M` 5.5e7, `0.08 $/kWh`
2.2222e-8 dollars per joule, `2.4 pJ/bit` 1.92e-11 joules per byte, `90%` 0.9. The name of a leaf says what it is
measured in (`units.unit_of`); a unit of another kind is refused.
"""

import re
from collections import Counter
from typing import NamedTuple

from ..core.errors import ConfigError
from ..core.units import HOUR_S, KIB, YEAR_S

PREFIXES = {
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "c": 1e-2, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15,
}  # fmt: skip
SYMBOLS = {
    "s": (1.0, "s"), "sec": (1.0, "s"), "min": (60.0, "s"), "h": (HOUR_S, "s"), "hr": (HOUR_S, "s"),
    "hour": (HOUR_S, "s"), "d": (86400.0, "s"), "day": (86400.0, "s"), "year": (YEAR_S, "s"), "yr": (YEAR_S, "s"),
    "y": (YEAR_S, "s"), "second": (1.0, "s"), "millisecond": (1e-3, "s"), "minute": (60.0, "s"),
    "week": (7 * 86400.0, "s"),
    "B": (1.0, "B"), "byte": (1.0, "B"), "b": (1 / 8, "B"), "bit": (1 / 8, "B"), "J": (1.0, "J"),
    "Wh": (HOUR_S, "J"), "W": (1.0, "J/s"), "Hz": (1.0, "/s"), "FLOP": (1.0, "F"), "flop": (1.0, "F"),
    "FLOPs": (1.0, "F"), "FLOPS": (1.0, "F/s"), "flops": (1.0, "F/s"), "T": (1.0, "T"), "$": (1.0, "$"),
    "USD": (1.0, "$"), "usd": (1.0, "$"), "%": (0.01, ""), "token": (1.0, ""), "m": (1.0, "m"), "m²": (1.0, "mm"),
    "m2": (1.0, "mm"), "dB": (1.0, "D"), "A": (1.0, "A"),
}  # fmt: skip
"""Unit -> (SI units of it, what it is: letters over letters). A bit is an eighth of a byte."""

AMOUNTS = {
    "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "B": 1e9, "bn": 1e9, "G": 1e9, "T": 1e12, "P": 1e15,
    "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
}  # fmt: skip
"""Suffixes of a number that has no unit, or of a price, and their factors."""

SHOWN = {
    "s": "50ms, 3us, 4 years", "B/s": "900GB/s, 400Gb/s", "s/B": "900GB/s", "B": "80GB, 80GiB", "$": "$55M, 30000",
    "$/J": "0.08 $/kWh", "J/B": "5 pJ/bit", "W": "700W, 1.4MW", "J": "3kWh, 5MJ", "FLOP/s": "989TFLOP/s",
    "J/FLOP": "0.5 pJ/FLOP", "$/B": "4 $/GB", "$/W": "2.7 $/W", "W/(B/s)": "5 pJ/bit", "Hz": "1.8GHz", "b/s": "112Gb/s",
    "tokens/s": "20000, 2B tokens/day",
}  # fmt: skip
"""Unit of a leaf -> how it may be written."""

_NUMBER = re.compile(r"\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_PARTS = re.compile(r"\(([^()]*)\)|([^/()]+)")


class ParsedQuantity(NamedTuple):
    """A number in SI units, and what it is: its dimension, letters with their powers."""

    value: float
    kind: Counter[str]


def meant(text: str, unit: str = "") -> ParsedQuantity | None:
    """Parse a number with a unit; None where it is none. Prices may be short: `$55M`, `55M` if `unit` is $."""
    price = text.strip().startswith("$")
    match = _NUMBER.fullmatch(text.strip().lstrip("$"))
    if not match:
        return None
    number = float(match[1].replace("_", "").replace(",", ""))
    words = match[2].replace(" per ", "/").replace(" ", "")
    amount, slash, below = words.partition("/")
    if price or (unit == "$" and amount in AMOUNTS and not slash):
        if amount and amount not in AMOUNTS:
            return None
        number, words = number * AMOUNTS.get(amount, 1.0), f"${slash}{below}"
    result = _unit(words) if words else None
    if result is None and unit in ("", "count") and words in AMOUNTS:
        return ParsedQuantity(number * AMOUNTS[words], Counter())
    return None if result is None else ParsedQuantity(number * result.value, result.kind)


def plain_number(text: str, unit: str = "") -> float | None:
    """The number in the units of a leaf (`B/s`, `b/s`, `mm²`) that a text stands for; None where it is no such text."""
    result = meant(text, unit)
    return None if result is None else result.value / _scale(unit)


def in_unit(text: str, unit: str, key: str) -> float | None:
    """Number in a leaf's unit, None if the text has none; a rate is inverted where the leaf is a time per byte.

    Raises:
        ConfigError: it is measured in something else.
    """
    result, wanted = meant(text, unit), _unit(unit) or ParsedQuantity(1.0, Counter())
    if result is None:
        return None
    if result.kind == wanted.kind:
        return result.value / _scale(unit)
    if result.kind == Counter({power: -count for power, count in wanted.kind.items()}) and result.value and wanted.kind:
        return 1 / result.value / _scale(unit)
    allowed = f"{unit}, such as {SHOWN[unit]}" if unit in SHOWN else unit or "a plain number"
    raise ConfigError(f"{key} = {text!r} is measured in something else: it takes {allowed}")


def _scale(unit: str) -> float:
    """SI units of one of a leaf's; shares are kept as fractions."""
    result = _unit(unit) if unit not in ("", "%", "count") else None
    return result.value if result is not None else 1.0


def _unit(words: str) -> ParsedQuantity | None:
    """A unit with its prefix, or a quotient of such: `GB/s`, `$/(GB/s)`, `/mm²`."""
    value, kind = 1.0, Counter[str]()
    if words.endswith("ps") and words[:-2] and "/" not in words:  # Gbps, GBps
        words = f"{words[:-2]}/s"
    above = not words.startswith("/")
    for inner, word in _PARTS.findall(words):
        result = _unit(inner) if inner else _factor(word)
        if result is None:
            return None
        value = value * result.value if above else value / result.value
        kind.update(result.kind) if above else kind.subtract(result.kind)
        above = False
    return ParsedQuantity(value, Counter({letter: power for letter, power in kind.items() if power}))


def _factor(word: str) -> ParsedQuantity | None:
    """Value in SI units of one unit with its prefix."""
    for symbol in (word, word.removesuffix("s")):
        if symbol.endswith("token") and symbol[:-5] in AMOUNTS:  # 2B tokens/day
            return _with_prefix(AMOUNTS[symbol[:-5]], "token")
        if symbol in SYMBOLS:
            return _with_prefix(1.0, symbol)
        first, rest = symbol[:1], symbol[1:]
        if rest[:1] == "i" and rest[1:] in SYMBOLS and first in "kKMGTPE":
            return _with_prefix(KIB ** ("KMGTPE".index(first.upper()) + 1), rest[1:])
        if first in PREFIXES and rest in SYMBOLS:
            return _with_prefix(PREFIXES[first] ** (2 if rest in ("m²", "m2") else 1), rest)
    return None


def _with_prefix(prefix: float, symbol: str) -> ParsedQuantity:
    factor, letters = SYMBOLS[symbol]
    above, _, below = letters.partition("/")
    kind = Counter(above)
    kind.subtract(Counter(below))
    return ParsedQuantity(prefix * factor, kind)
