"""Llama 3.1 405B served on 8 and on 16 accelerators: a fixed time, and bytes over the fabric's bus bandwidth."""

from types import ModuleType

import numpy as np
from scipy.optimize import linprog

from codesign.fabrics import Group
from codesign.reproduce import Claim, experiments_folder, load

NAME = "fabrex_405b"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"GIG-1[3456]\b",
    "note": r"^(constant:|gigabytes over)",
}
INPUT_TOKENS, OUTPUT_TOKENS = 1024, 128
TOKENS_PER_S = {  # of 8 and of 16 accelerators
    "1s-2rp-std-cascade": (24.58, 15.86),
    "1s-2rp-split-cascade": (24.62, 25.38),
    "2s-2rp-split-flat": (24.60, 28.66),
}
ALL_REDUCE = {"1s-2rp-std-cascade": 25.0, "1s-2rp-split-cascade": 54.0, "2s-2rp-split-flat": 100.0}  # GB/s, measured
LAYERS, HIDDEN = 126, 16384


def topologies() -> ModuleType:
    """The experiment that builds the graphs."""
    return load(experiments_folder() / "fabrex_topologies")


def fit(bandwidth: dict[str, float]) -> tuple[float, float, dict[str, float]]:
    """Seconds of an answer = fixed + gigabytes / B with the least largest error: (fixed, gigabytes, tokens/s)."""
    seconds = np.array([OUTPUT_TOKENS / TOKENS_PER_S[name][1] for name in bandwidth])
    basis = np.column_stack([np.ones(3), [1 / value for value in bandwidth.values()]]) / seconds[:, None]
    bound = np.vstack([np.hstack([sign * basis, -np.ones((3, 1))]) for sign in (1, -1)])
    found = linprog([0, 0, 1], A_ub=bound, b_ub=[1, 1, 1, -1, -1, -1]).x
    tokens = {name: OUTPUT_TOKENS / (found[0] + found[1] / value) for name, value in bandwidth.items()}
    return float(found[0]), float(found[1]), tokens


def box_rates() -> dict[str, float]:
    """GB/s of a group of 8, which stays inside a box, on each graph."""
    shared = topologies()
    return {name: 1e-9 / float(shared.fabric(name).link(Group(8.0)).beta_s_per_byte) for name in TOKENS_PER_S}


def claims() -> list[Claim]:
    """Two constants for three throughputs; the same throughput wherever traffic stays in the box."""
    fixed, gigabytes, tokens = fit(ALL_REDUCE)
    rows = [
        Claim(NAME, f"{name}, 16 accelerators: tokens/s", values[1], tokens[name], 0.06, "fitted 2 on 3")
        for name, values in TOKENS_PER_S.items()
    ]
    inside = float(np.mean([values[0] for values in TOKENS_PER_S.values()]))
    rows += [
        Claim(NAME, f"{name}, 8 accelerators: tokens/s", values[0], inside, 0.002, "fitted 1 on 3")
        for name, values in TOKENS_PER_S.items()
    ]
    return rows + derived(tokens) + identified(fixed, gigabytes)


def derived(tokens: dict[str, float]) -> list[Claim]:
    """What the graphs say by themselves: order, equality inside a box, and the fit with their own rates."""
    shared, boxes = topologies(), box_rates()
    rates = {name: shared.bus_bandwidth(shared.fabric(name)) for name in TOKENS_PER_S}
    order = sorted(rates, key=lambda name: rates[name]) == sorted(rates, key=lambda name: TOKENS_PER_S[name][1])
    spread = max(boxes.values()) / min(boxes.values()) - 1
    measured = [values[0] for values in TOKENS_PER_S.values()]
    scatter = max(measured) / min(measured) - 1
    _, _, own = fit(rates)
    worst = max(abs(own[name] / TOKENS_PER_S[name][1] - 1) for name in own)
    speedup = tokens["2s-2rp-split-flat"] / tokens["1s-2rp-std-cascade"]
    return [
        Claim(NAME, "order of the three topologies, 16 accelerators (1: exact)", 1.0, float(order), 0.0, "derived"),
        Claim(NAME, "8 accelerators: spread over the topologies (the graph: traffic stays in the box)",
              scatter, spread, 0.002, "derived", error=abs(scatter - spread)),
        Claim(NAME, "16 accelerators with the graphs' own rates: largest error", None, worst, 0.06,
              "fitted 2 on 3, rates from the graphs", error=worst),
        Claim(NAME, "GIG-19 best speedup of 16 accelerators", 1.8, speedup, 0.06, "fitted 2 on 3"),
        Claim(NAME, "GIG-13 tensor-parallel size inside a box (input)", 8, 8, 0.0, "published"),
        Claim(NAME, "GIG-14 tensor-parallel size over both boxes (input)", 16, 16, 0.0, "published"),
        Claim(NAME, "GIG-15 input tokens (input)", 1024, INPUT_TOKENS, 0.0, "published"),
        Claim(NAME, "GIG-16 output tokens (input)", 128, OUTPUT_TOKENS, 0.0, "published"),
    ]  # fmt: skip


def identified(fixed: float, gigabytes: float) -> list[Claim]:
    """The two constants, and what one request would send."""
    tokens = INPUT_TOKENS + OUTPUT_TOKENS
    one = 2 * 15 / 16 * 2 * LAYERS * tokens * HIDDEN * 2 / 1e9  # two all-reduces a layer, 16 bits, bus bytes
    reason = "not determined: number of requests at once and number format are not printed"
    return [
        Claim(NAME, "constant: fixed seconds of an answer", None, fixed, None, "fitted 2 on 3"),
        Claim(NAME, "constant: gigabytes on the bus of an answer", None, gigabytes, None, "fitted 2 on 3"),
        Claim(NAME, "gigabytes over those of one request in 16 bits", None, gigabytes / one, None, reason),
    ]
