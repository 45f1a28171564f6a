"""Time that libraries take to dispatch tokens to experts and combine the results, and a machine's all-to-all for it.

t = start (link / LINK)^start_power + expert_s E + bytes / rate + token_s n / E
rate = rate_bytes_per_s (link / LINK)^link_power (processors / 24)^processors_power

start is one of two, by the devices of a node (8, or 4 as in racks whose nodes are small); E are the experts of the
model, n the copies of tokens that a rank sends: kernels of low latency begin by telling every expert its count, and
what arrives at one is taken in one by one. link is a rank's scale-up bandwidth; the powers lead from one generation to
the next and hold between the links that were measured: beyond, starts stay and rates are the same share of the link.
bytes are those that leave a rank, and how often a token is among them is `counted`: once for each rank it goes to, each
expert, or each node. The power of processors counts where a library says how many it takes, else 24 are. Constants are
of one library, phase, format and reach, in `conf/calibration/exchange.csv`, fitted by `codesign calibrate`
(`calibration.exchange_constants`).

Assumes: tokens spread evenly over experts. A format is a label: what a kernel sends under it is in its constants.
"""

import csv
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core.resources import conf_dir

__all__ = [
    "BYTES",
    "COUNTED",
    "FILE",
    "KEYS",
    "LINK",
    "MEMBERS",
    "Exchange",
    "Tokens",
    "all_to_all",
    "known",
    "reached",
]

FILE = "exchange.csv"
LINK, NARROWEST = 900e9, 450e9  # bytes/s that rates and starts are stated at, and the least that was measured
USUAL_PROCESSORS = 24.0
MOST_PROCESSORS = 1.5  # what more than the usual number brings at most
COUNTED = ("ranks", "copies", "nodes")
KEYS = ["library", "phase", "format", "across"]
BYTES = {"bfloat16": 2.0, "fp8": 1.0 + 4 / 128, "nvfp4": 0.5 + 1 / 16, "fp4": 0.5 + 1 / 16, "default": 2.0}
"""Bytes of an element: 8 bits have a scale of 4 bytes to 128 elements, 4 bits one of a byte to 16; the last is not
stated by its source."""
MEMBERS = (2, 4, 8, 16, 64)  # where the curves of a library's collective have their knots
MOST_RATIO = 4.0  # of a rate over the link, that such a collective may have


class Exchange(NamedTuple):
    """Constants of one library, phase, format and reach."""

    start_8_s: float
    start_4_s: float
    expert_s: float
    rate_bytes_per_s: float
    token_s: float
    processors_power: float
    start_power: float
    link_power: float
    counted: str

    def start_s(self, link: Any, node: Any) -> np.ndarray:
        """Before the first byte and without the part of the experts, over links of so many bytes/s."""
        start = np.where(np.less(node, 8), self.start_4_s, self.start_8_s)
        return np.asarray(start * _wider(link) ** self.start_power)

    def rate(self, link: Any) -> np.ndarray:
        """Bytes/s of a rank with the usual number of processors."""
        wider = _wider(link)
        return np.asarray(self.rate_bytes_per_s * wider**self.link_power * np.asarray(link) / (LINK * wider))

    def seconds(self, rows: Any) -> np.ndarray:
        """Seconds of an exchange, from columns `link` (bytes/s), `node` (devices of one), `processors`, `experts`,
        `arrivals` (copies that a rank sends to one expert) and the bytes of a rank: `ranks_bytes`, `copies_bytes` or
        `nodes_bytes`."""
        link, start = rows["link"], self.start_s(rows["link"], rows["node"])
        more = np.minimum((rows["processors"] / USUAL_PROCESSORS) ** self.processors_power, MOST_PROCESSORS)
        sent = rows[f"{self.counted}_bytes"] / (self.rate(link) * more) + self.token_s * rows["arrivals"]
        return np.asarray(start + self.expert_s * rows["experts"] + sent, dtype=float)


def _wider(link: Any) -> np.ndarray:
    return np.asarray(np.clip(link, NARROWEST, LINK) / LINK)


def reached(parts: Any, top_k: Any) -> Any:
    """Ranks or nodes that a token goes to: each is missed by every one of its experts, or it is not."""
    return parts * (1 - (1 - 1 / parts) ** top_k)


@lru_cache
def known() -> dict[tuple[str, str, str, bool], Exchange]:
    """Constants by library, phase, format and whether nodes are left, as last fitted."""
    path = conf_dir() / "calibration" / FILE
    if not path.is_file():
        return {}
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    *numbers, counted = Exchange._fields
    return {
        (row["library"], row["phase"], row["format"], row["across"] == "True"): Exchange._make(
            (*(float(row[name]) for name in numbers), row[counted])
        )
        for row in rows
    }


class Tokens(NamedTuple):
    """Tokens that a model sends to its experts; DeepSeek-V3, of which most rows are, where none is known."""

    experts: float = 256.0
    top_k: float = 8.0
    hidden: float = 7168.0


def all_to_all(library: str, link: float, tokens: Tokens) -> dict[str, float]:
    """Start and share of the link of all copies of tokens, of 2 to 64 ranks: what a `Measured` all-to-all takes.

    Means of dispatch and combine, and of formats, inside one domain of nodes of 8; empty where the library is unknown.
    """
    mine = {key: one for key, one in known().items() if key[0] == library and not key[3]}
    every = [(BYTES[form] * tokens.hidden, one) for (_, _, form, _), one in mine.items()]  # bytes of a copy, constants
    if not every:
        return {}
    start = sum(float(one.start_s(link, 8)) + one.expert_s * tokens.experts for _, one in every) / len(every)
    curves = {f"base_{n}_s": start for n in MEMBERS}
    for n in MEMBERS:
        counted = {"ranks": reached(n, tokens.top_k) / tokens.top_k, "copies": 1.0, "nodes": 1 / tokens.top_k}
        taken_in = ((counted[one.counted] / one.rate(link), one.token_s / tokens.experts / copy) for copy, one in every)
        a_byte = sum(float(sent) + one_by_one for sent, one_by_one in taken_in) / len(every)
        curves[f"ratio_{n}"] = min(1 / (a_byte * link), MOST_RATIO)
    return curves
