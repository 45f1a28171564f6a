"""The best model for a device that is designed with it: by what a token may take, in weights of 16, 8 and 4 bits."""

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import solve, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.scaling_laws import PrecisionLaw
from codesign.model.workloads import ServedRun
from codesign.report.findings import BLUE, GREEN, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks

NAME = "model_for_edge_budget"
FORMATS = {"bf16": 16, "fp8": 8, "fp4": 4}
TPOT_S = (0.002, 0.004, 0.008)
USUAL = 0.004
SHAPES = (
    "space.plan.hidden=[640, 768, 896, 1024, 1280, 1536, 1792, 2048]", "space.plan.kv_heads=[4]",
    "space.plan.layers=[9, 10, 12, 14, 16, 20, 24, 28]", "space.plan.token_budget=[256, 512]",
)  # fmt: skip
DEVICE = ("tpot_s", "ttft_s", "capex_usd", "provisioned_power_w")


class Best(NamedTuple):
    """The best model and device under one set of limits, with the gap; no loss where none is feasible."""

    loss: float
    gap: float
    row: pd.Series


@functools.cache
def best(number_format: str, tpot_s: float | None) -> Best:
    """Of all shapes, tokens and devices; None: whatever the device."""
    limits = (
        [f"~objective.limits.{name}" for name in DEVICE] if tpot_s is None else [f"objective.limits.tpot_s={tpot_s}"]
    )
    study = study_from_config(
        f"experiment={NAME}", *SHAPES, f"workload.precision.weights={number_format}",
        "search.gap=1e-3", *limits,
    )  # fmt: skip
    solution = solve(study)
    gap = solution.gap if solution.certified and solution.gap is not None else math.nan
    return Best(float(solution.best["loss"]) if solution.feasible else math.nan, gap, solution.best)


@functools.cache
def law() -> PrecisionLaw:
    """The law of the study."""
    job = study_from_config(f"experiment={NAME}").problem.scenario.workload
    assert isinstance(job, ServedRun)
    assert isinstance(job.scaling_law, PrecisionLaw)
    return job.scaling_law


def lost_to_shape(hidden: float, layers: float) -> float:
    """Over the least of all shapes of as many weights in the layers, found by trying them."""
    one = law().shape
    assert one is not None
    wide, deep = float(one.width_scale), float(one.depth_scale)
    across, along = float(one.width_power), float(one.depth_power)
    ratios = np.geomspace(5, 500, 20001)
    depths = (hidden**2 * layers / ratios**2) ** (1 / 3)
    least = float((wide * (ratios * depths) ** -across + deep * depths**-along).min())
    return (wide * hidden**-across + deep * layers**-along) / least


def by_hand(row: pd.Series, bits: float) -> float:
    """Equations 2 to 4 of [kumar2024] for a model trained in 16 bits, equation 3 of [liu2026depth] for its shape."""
    tokens, inner = float(row["run_tokens"]), weights_of_layers(row)
    one, kept = law(), 1.0
    for scale in (one.weights_bits, one.activations_bits, one.kv_cache_bits):
        kept *= 1 - math.exp(-16 / float(scale))
    power, grown = float(one.parameters_power), float(one.rounding_tokens_power)
    rounded = float(one.rounding_scale) * tokens**grown * inner ** -float(one.rounding_parameters_power)
    of_size = float(one.parameters_scale) * (inner * kept) ** -power
    of_size *= lost_to_shape(float(row["var.hidden"]), float(row["var.layers"]))
    of_data = float(one.tokens_scale) * tokens ** -float(one.tokens_power)
    return float(one.entropy) + of_size + of_data + rounded * math.exp(-bits / float(one.rounding_bits))


def weights_of_layers(row: pd.Series) -> float:
    """Weights of the layers: grouped-query attention with heads of 64, SwiGLU of 3.5 times the hidden size in tiles."""
    hidden, layers, kv_heads = (float(row[f"var.{name}"]) for name in ("hidden", "layers", "kv_heads"))
    width = 128 * math.ceil(3.5 * hidden / 128)
    return layers * (2 * hidden * hidden + 2 * hidden * 64 * kv_heads + 3 * hidden * width)


def claims() -> list[Claim]:
    """Losses are the law's; no token is faster than its weights are read; fewer bits buy a better model on a device."""
    result = []
    for name, bits in FORMATS.items():
        at = best(name, USUAL)
        told = f"loss of the best model in {name} at {1e3 * USUAL:g} ms a token"
        hand = by_hand(at.row, 1000 if bits == 16 else bits)
        result.append(Claim(NAME, f"{told}, against the law by hand", hand, at.loss, 1e-6, "certified"))
        read = weights_of_layers(at.row) * bits / 8 / float(at.row["var.memory"])
        slower = float(at.row["tpot_s"]) / read
        below = max(1 - slower, 0.0)
        result.append(Claim(NAME, f"time a token over that of reading its weights, {name}", None, slower, 0.0,
                           "predicted: never below 1", error=below))  # fmt: skip
    losses = [best(name, USUAL).loss for name in FORMATS]
    worse = max(later - earlier for earlier, later in itertools.pairwise(losses))
    result.append(Claim(NAME, f"fewer bits, better model on the device at {1e3 * USUAL:g} ms", None, worse, 0.0,
                       "predicted", error=max(worse, 0.0)))  # fmt: skip
    anywhere = [best(name, None).loss for name in FORMATS]
    worse = max(earlier - later for earlier, later in itertools.pairwise(anywhere))
    result.append(Claim(NAME, "and never a better one where the device is no limit", None, worse, 2e-3,
                       "predicted, within the gaps", error=max(worse, 0.0)))  # fmt: skip
    for name in FORMATS:
        ordered = [best(name, tpot_s).loss for tpot_s in TPOT_S]
        grown = max(later - earlier for earlier, later in itertools.pairwise(ordered))
        result.append(Claim(NAME, f"more time a token, no worse model, {name}", None, grown, 0.0,
                           "predicted", error=max(grown, 0.0)))  # fmt: skip
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The best model and device by format and limit."""
    rows = []
    for name in FORMATS:
        for tpot_s in (*TPOT_S, None):
            at = best(name, tpot_s)
            told = {"weights": name, "ms a token": "no limit" if tpot_s is None else f"{1e3 * tpot_s:g}"}
            rows.append(told | {
                "loss, nats a token": at.loss, "proven within, %": 100 * at.gap,
                "parameters, 1e6": float(at.row["parameters"]) / 1e6, "hidden": float(at.row["var.hidden"]),
                "layers": float(at.row["var.layers"]), "tokens, 1e9": float(at.row["run_tokens"]) / 1e9,
                "memory, GB/s": float(at.row["var.memory"]) / 1e9,
                "compute, TFLOP/s": float(at.row["var.compute"]) / 1e12,
            })  # fmt: skip
    return {"best model and device": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Loss over what a token may take, by format."""
    figure, ((axes,),) = panels(3.4)
    milliseconds, ends, last = [1e3 * tpot_s for tpot_s in TPOT_S], [], {}
    axes.set(xscale="log", xlabel="time a token may take, ms", ylabel="loss, nats a token")
    axes.set_xlim(milliseconds[0] / 1.1, 1.05 * milliseconds[-1])
    for (name, bits), colour in zip(FORMATS.items(), (BLUE, ORANGE, GREEN), strict=True):
        result = [best(name, tpot_s) for tpot_s in TPOT_S]
        sizes = [float(one.row["parameters"]) / 1e6 for one in result]
        axes.plot(milliseconds, [one.loss for one in result], "o-", color=colour, linewidth=1.4, markersize=4.5)
        for x, one, size in list(zip(milliseconds, result, sizes, strict=True))[:-1]:
            beside(axes, f"{size:,.0f} M", x, one.loss, colour, (6, 5))
        ends.append(Label(milliseconds[-1], result[-1].loss, f"{bits} bits, {sizes[-1]:,.0f} M", colour))
        last[bits] = (sizes[0], result[0].loss)
    axes.margins(y=0.12)
    plain_ticks(axes, "x", milliseconds)
    name_ends(axes, ends)
    most, least = max(last), min(last)
    headline(figure, f"On a device of 40 W, weights of fewer bits buy a better model while time is short: {least} bits "
             f"hold {last[least][0]:.0f} M parameters at {milliseconds[0]:g} ms where {most} hold "
             f"{last[most][0]:.0f} M; at "
             f"{milliseconds[-1]:g} ms the formats meet")  # fmt: skip
    return {"loss over time a token": figure}
