"""Llama 3.1 405B on one DGX-H100 against the photonic memory appliance: throughput, latency, MFU."""

import functools
import itertools

import pandas as pd

from _lib.celestisim_inference import (
    DGX,
    H100_BYTES_PER_S,
    appliance_pool,
    at,
    compare,
    outside,
    price,
    reference,
    untuned,
)
from codesign.evidence.reproduction import Claim
from codesign.model.networks.fabrics import Group

NAME = "pfa_inference_405b"
KINDS = {  # of claims whose standing alone does not say it
    "transcription": r"PFA-0(13|27|42)\b",
}
BAR, FITTED = 0.05, "fitted 7 on 6 (with 1T)"
SCALES = (1.0, 0.5, 0.25, 0.125)
LLAMA_70B = {"hidden": 8192.0, "layers": 80.0, "heads": 64.0, "width": 28672.0}


@functools.cache
def measured(constants: str = "reference", compute: float = 1.0) -> pd.DataFrame:
    """The comparison with one set of constants and a share of the compute."""
    scenario = reference() if constants == "reference" else untuned()
    return compare(scenario, "405B", compute=compute)


def claims() -> list[Claim]:
    """Headlines, orderings, what untuned constants say, inputs of table 5, the validation grid."""
    return [*headlines(), *orderings(), *untuned_ranges(), *inputs(), *validation()]


def headlines() -> list[Claim]:
    """The four printed figures with the fitted constants."""
    ours = measured()
    rows = {
        "PFA-003: largest throughput gain": (3.66, ours["throughput_gain"].max()),
        "PFA-004: largest latency gain at batch 1": (1.40, ours["latency_gain"].max()),
        "PFA-057: MFU of the DGX, 128 in 4096 out, per cent": (13.6, 100 * at(ours, 128, 4096, "dgx_mfu")),
        "PFA-058: MFU of the appliance, 128 in 4096 out, per cent": (49.7, 100 * at(ours, 128, 4096, "appliance_mfu")),
    }
    return [Claim(NAME, text, paper, float(model), BAR, FITTED) for text, (paper, model) in rows.items()]


def orderings() -> list[Claim]:
    """Statements of the text that must hold; the error is by how much they fail."""
    ours, quarter = measured(), measured(compute=0.25)
    gain = ours.set_index(["input", "output"])["throughput_gain"]
    long, short = gain.xs(4096, level="output").min(), gain.xs(128, level="output").max()
    worst = quarter[quarter["output"] == 4096]["throughput_gain"].min()
    eighth = measured(compute=0.125).set_index(["input", "output"])["latency_gain"]
    others = eighth.drop((4096, 128)).min()
    return [
        Claim(NAME, "smallest gain with 4096 outputs over largest with 128 (above 1)", None, float(long / short), 0.0,
              "derived", error=max(0.0, 1 - float(long / short))),
        Claim(NAME, "PFA-059: smallest throughput gain with a quarter of the compute, 4096 outputs (above 1)", None,
              float(worst), 0.0, "derived", error=max(0.0, 1 - float(worst))),
        Claim(NAME, "an eighth of the compute: latency gain at 4096 in 128 out over the smallest other (below 1)", None,
              float(eighth[(4096, 128)] / others), 0.0, "derived",
              error=max(0.0, float(eighth[(4096, 128)] / others) - 1)),
    ]  # fmt: skip


def untuned_ranges() -> list[Claim]:
    """Constants measured on an H100, nothing fitted to the document."""
    ours = measured("untuned")
    ranges = {
        "throughput gain (3 to 4.5)": (3.66, ours["throughput_gain"].max(), 3.0, 4.5),
        "latency gain (1.15 to 1.5)": (1.40, ours["latency_gain"].max(), 1.15, 1.5),
        "MFU of the DGX, per cent (10 to 17)": (13.6, 100 * at(ours, 128, 4096, "dgx_mfu"), 10.0, 17.0),
        "MFU of the appliance, per cent (42 to 55)": (49.7, 100 * at(ours, 128, 4096, "appliance_mfu"), 42.0, 55.0),
    }
    return [
        Claim(NAME, f"measured kernels and collectives: {text}", paper, float(model), 0.0, "derived",
              error=outside(float(model), low, high))
        for text, (paper, model, low, high) in ranges.items()
    ]  # fmt: skip


def inputs() -> list[Claim]:
    """What the document prints as input, against what the model takes."""
    device, pool = reference().cluster.accelerator, appliance_pool(bound=False)
    h100 = untuned().cluster.accelerator
    bf16, fp8 = float(h100.peak("bf16")), float(device.peak("fp8"))
    rows = {
        "PFA-011: dense 16-bit peak of an H100, TFLOP/s": (989.0, bf16 / 1e12),
        "PFA-012: memory bandwidth of an H100, GB/s": (3350.0, H100_BYTES_PER_S / 1e9),
        "PFA-013: machine balance of an H100, FLOP/byte": (295.0, bf16 / H100_BYTES_PER_S),
        "PFA-028: memory of an H100, GB": (80.0, float(device.hbm.usable_bytes()) / 1e9),
        "PFA-050 and table 5: dense fp8 peak, TFLOP/s": (1979.0, fp8 / 1e12),
        "PFA-051 and table 5: bandwidth of the appliance as read by the document, GB/s": (
            26800.0, float(pool.bandwidth()) / 1e9),
        "PFA-052 and table 5: capacity of the appliance, TB": (32.0, float(pool.usable_bytes()) / 1e12),
        "PFA-053 and table 5: NVLink, both directions, GB/s": (
            900.0, 2 / float(untuned().cluster.network["scale_up"].fabric.link(Group(2.0)).beta_s_per_byte) / 1e9),
        "PFA-055 and table 5: tensor ranks on the DGX": (8.0, DGX["tp"]),
    }  # fmt: skip
    result = [Claim(NAME, text, paper, model, 0.002, "published: an input") for text, (paper, model) in rows.items()]
    sparse = Claim(NAME, "PFA-027: fp8 peak of an H100, TFLOP/s, as printed; dense beside", 3958.0, fp8 / 1e12, None,
                   "published: the sparse figure, contradicts table 5")  # fmt: skip
    return [*result, sparse]


def grid() -> list[dict[str, float]]:
    """The listed configurations of section 4.3 on H100 (3350 GB/s) and H200 (4800 GB/s)."""
    lengths = [(i, 32.0) for i in (1.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)]
    lengths += [(512.0, o) for o in (32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)]
    devices = [("H100", 4.0), ("H100", 8.0), ("H200", 2.0), ("H200", 4.0), ("H200", 8.0)]
    rows = []
    for (name, tp), batch, (given, wanted) in itertools.product(devices, (1.0, 16.0, 32.0, 64.0), lengths):
        rate = 4800e9 if name == "H200" else H100_BYTES_PER_S
        rows.append(DGX | {"devices": tp, "tp": tp, "batch": batch, "input": given, "output": wanted,
                           "bandwidth": rate, "layers": LLAMA_70B["layers"]})  # fmt: skip
    return rows


@functools.cache
def grid_seconds() -> pd.DataFrame:
    """Every configuration of the grid priced in one call, Llama 3.1 70B."""
    from codesign import replace

    shape = {"hidden": "hidden", "heads": "attention.heads", "width": "feed_forward.width"}
    model = {f"workload.model.{path}": LLAMA_70B[name] for name, path in shape.items()}
    rows = grid()
    return pd.DataFrame(rows).assign(time_s=price(replace(reference(), model), rows)["time_s"])


def validation() -> list[Claim]:
    """Section 4.3: the size of the grid contradicts its own list; the measured times are only in a figure."""
    reason = "not determined: the measured times are in a figure without numbers"
    return [
        Claim(NAME, "PFA-042: configurations of the validation grid; its own list multiplies to", 180.0,
              float(len(grid_seconds())), None, "published: contradicts itself"),
        Claim(NAME, "PFA-043: mean absolute error of the simulator on the grid, per cent", 7.57, None, None, reason),
        Claim(NAME, "PFA-044: R2 of the simulator on the grid", 0.99, None, None, reason),
        Claim(NAME, "PFA-029: memory of an H200, GB", 141.0, None, None, "not determined: used in no figure"),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Gains at every pair of lengths and share of the compute; the grid of section 4.3."""
    parts = [measured(compute=scale).assign(constants="reference", compute=scale) for scale in SCALES]
    parts += [measured("untuned").assign(constants="untuned", compute=1.0)]
    return {"Gains": pd.concat(parts), "Validation grid": grid_seconds()}


def figures() -> dict:
    """Throughput against batch, and gains against the share of the compute (figures 8 and 9)."""
    from _lib.celestisim_figures import gains_by_compute, throughput_by_batch

    return {
        "Throughput by batch": throughput_by_batch(reference(), "405B"),
        "Gains by compute": gains_by_compute({scale: measured(compute=scale) for scale in SCALES}, "405B"),
    }
