"""A trillion parameters on two DGX-H100 against one photonic memory appliance."""

import functools

import pandas as pd

from _lib.celestisim_inference import (
    HOP_BYTES_PER_S,
    TWO_DGX,
    compare,
    outside,
    reference,
    untuned,
)
from codesign.evidence.reproduction import Claim

NAME = "pfa_inference_1t"
KINDS = {  # of claims whose standing alone does not say it
    "note": r"^sensitivity",
}
BAR, FITTED = 0.05, "fitted 7 on 6 (with 405B)"
SCALES = (1.0, 0.5, 0.25, 0.125)
RESERVES = (0.0, 0.05, 0.075, 0.10, 0.15)


@functools.cache
def measured(constants: str = "reference", reserved: float = 0.075, compute: float = 1.0) -> pd.DataFrame:
    """The comparison with one set of constants, reserve and share of the compute."""
    scenario = reference() if constants == "reference" else untuned()
    return compare(scenario, "1T", reserved=reserved, compute=compute)


def claims() -> list[Claim]:
    """Headlines, the ordering against 405B, untuned constants, sensitivity, inputs."""
    ours, smaller, raw = measured(), compare(reference(), "405B"), measured("untuned")
    gain, before = float(ours["throughput_gain"].max()), float(smaller["throughput_gain"].max())
    result = [
        Claim(NAME, "PFA-005: largest throughput gain", 7.04, gain, BAR, FITTED),
        Claim(NAME, "PFA-006: largest latency gain at batch 1", 1.41, float(ours["latency_gain"].max()), BAR, FITTED),
        Claim(NAME, "throughput gain over that of 405B (above 1)", 7.04 / 3.66, gain / before, 0.0, "derived",
              error=max(0.0, 1 - gain / before)),
    ]  # fmt: skip
    free = float(raw["throughput_gain"].max())
    text = "measured kernels and collectives: throughput gain (5 to 9)"
    result.append(Claim(NAME, text, 7.04, free, 0.0, "derived", error=outside(free, 5.0, 9.0)))
    for reserve in RESERVES:
        words = f"sensitivity: throughput gain with {100 * reserve:g} % of every memory reserved"
        most = float(measured(reserved=reserve)["throughput_gain"].max())
        result.append(Claim(NAME, words, 7.04, most, None, FITTED))
    text = "PFA-054: InfiniBand, both directions, GB/s"
    result.append(Claim(NAME, text, 100.0, 2 * HOP_BYTES_PER_S / 1e9, 0.0, "published: an input"))
    text = "PFA-056: pipeline stages on two DGX"
    return [*result, Claim(NAME, text, 2.0, TWO_DGX["pp"], 0.0, "published: an input")]


def tables() -> dict[str, pd.DataFrame]:
    """Gains by pair of lengths, reserve and share of the compute."""
    parts = [measured(reserved=reserve).assign(reserved=reserve, compute=1.0) for reserve in RESERVES]
    parts += [measured(compute=scale).assign(reserved=0.075, compute=scale) for scale in SCALES[1:]]
    return {"Gains": pd.concat(parts)}


def figures() -> dict:
    """Gains against the share of the compute (figure 10)."""
    from _lib.celestisim_figures import gains_by_compute

    return {"Gains by compute": gains_by_compute({scale: measured(compute=scale) for scale in SCALES}, "1T")}
