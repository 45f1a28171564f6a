"""Arithmetic intensity of Llama 2 70B in half precision: prefill over input length, decode over the cached context."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from _lib.intensity import arithmetic_intensity
from codesign import Scenario, replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREEN, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks

NAME = "pfa_intensity"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"PFA-01[12]\b",
    "transcription": r"PFA-013\b",
}
PEAK_TOKENS, BAR_OCTAVES = 10_000.0, 1.0  # section 2.3, "~10,000"; 5,000 to 20,000
BLOCK_ROWS = 128.0  # assumed: queries of one block of fused attention
BATCHES = (1, 2, 4, 8, 16, 32, 64)
TOKENS = np.unique(np.round(np.geomspace(128, 131_072, 241)))
MANY_KV = 8  # a batch up to the queries that share a key has nothing to lose from a longer cache
COUNTINGS = {  # of attention: what, overrides, arguments of arithmetic_intensity
    "keys streamed by blocks, causal": ((), {"block_rows": BLOCK_ROWS}),
    "keys streamed by blocks, whole square": (("model.attention.causal=0",), {"block_rows": BLOCK_ROWS, "causal": 0.0}),
    "keys read once": ((), {}),
    "score matrix in memory": (("model.attention.fused=false",), {}),
}


def device(*overrides: str) -> Scenario:
    """One device that serves the model; its memory need not hold it, as nothing here depends on capacity."""
    return scenario_from_config(
        "accelerator=h100_sxm", "model=llama2_70b", "workload=static_batch", "plan=serving_node", "plan.tp=1",
        "workload.output_tokens=1", "cluster.device_count=1", *overrides,
    )  # fmt: skip


@functools.cache
def surface(counting: str) -> dict[str, np.ndarray]:
    """Phase -> FLOP per byte at [batch, tokens]."""
    overrides, how = COUNTINGS[counting]
    scenario = device(*overrides)

    def one(batch: Any, tokens: Any) -> dict[str, Any]:
        point = {"plan.micro_batch": batch, "workload.input_tokens": tokens}
        return arithmetic_intensity(replace(scenario, point), **how)

    rows = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))
    result = jax.jit(rows)(jnp.asarray(BATCHES, dtype=float), jnp.asarray(TOKENS))
    return {phase: np.asarray(values) for phase, values in result.items()}


def peak(counting: str, batch: int) -> float:
    """Input length of the largest prefill intensity."""
    return float(TOKENS[surface(counting)["prefill"][BATCHES.index(batch)].argmax()])


def share_against(steps: np.ndarray) -> float:
    """Share of steps that do not go up."""
    return float((steps <= 0).mean())


def claims() -> list[Claim]:
    """Figure 1 and section 2.3: where prefill turns, how decode moves with batch and cache; the device's balance."""
    accelerator = device().cluster.accelerator
    peak_flops, bandwidth = float(accelerator.peak("fp16")), float(accelerator.hbm.bandwidth())
    rows = [
        Claim(NAME, "PFA-011: dense fp16 of the H100 [TFLOP/s]", 989.0, peak_flops / 1e12, 1e-3, "published"),
        Claim(NAME, "PFA-012: HBM bandwidth of the H100 [GB/s]", 3350.0, bandwidth / 1e9, 1e-3, "published"),
        Claim(NAME, "PFA-013: machine balance of the H100 [FLOP/B]", 295.0, peak_flops / bandwidth, 5e-3, "published"),
    ]
    for counting in COUNTINGS:
        tokens, first = peak(counting, 1), counting == next(iter(COUNTINGS))
        inside = TOKENS[0] < tokens < TOKENS[-1]
        octaves = abs(float(np.log2(tokens / PEAK_TOKENS))) if inside else float("inf")
        text = f"PFA-014: input length of the largest prefill intensity, batch 1, error in octaves: {counting}"
        rows.append(
            Claim(NAME, text, PEAK_TOKENS, tokens if inside else None, BAR_OCTAVES if first else None,
                  "derived" if inside else "not determined: there is no interior maximum", octaves if inside else None)
        )  # fmt: skip
    counting = next(iter(COUNTINGS))
    peaks = np.array([peak(counting, batch) for batch in BATCHES])
    decode = surface(counting)["decode"]
    many = decode[np.array(BATCHES) > MANY_KV]
    few = decode[np.array(BATCHES) <= MANY_KV]
    rows += [
        trend("peak moves to shorter inputs with batch: steps that do not", share_against(peaks[:-1] - peaks[1:])),
        trend("decode rises with batch: steps that do not", share_against(np.diff(decode, axis=0))),
        trend("decode falls with cache, batch above 8: steps that do not", share_against(-np.diff(many, axis=1))),
    ]
    text = "decode falls with cache, batch up to 8 (the text makes no exception): steps that do not"
    rows.append(Claim(NAME, text, 0.0, share_against(-np.diff(few, axis=1)), None, "derived"))
    return rows


def trend(text: str, share: float) -> Claim:
    """A curve that must go one way everywhere."""
    return Claim(NAME, text, 0.0, share, 0.0, "derived", share)


def tables() -> dict[str, pd.DataFrame]:
    """Intensity at a few lengths and batches, and the peaks of every counting."""
    counting = next(iter(COUNTINGS))
    chosen = [int(np.abs(TOKENS - tokens).argmin()) for tokens in (128, 512, 2048, 8192, 16_384, 32_768, 131_072)]
    frames = []
    for phase, values in surface(counting).items():
        frame = pd.DataFrame(values[:, chosen].T, columns=[f"batch {b}" for b in BATCHES])
        frame.insert(0, "tokens", TOKENS[chosen])
        frame.insert(0, "phase", phase)
        frames.append(frame)
    peaks = pd.DataFrame({name: [peak(name, b) for b in BATCHES] for name in COUNTINGS})
    peaks.insert(0, "batch", BATCHES)
    return {"FLOP per byte": pd.concat(frames), "Input length of the largest prefill intensity": peaks}


def figures() -> dict[str, Any]:
    """Figure 1: prefill on the left, decode on the right; the device's balance as a line."""
    figure, ((left, right),) = panels(3.6, 1, 2)
    values, balance = surface(next(iter(COUNTINGS))), 295.0
    for axes, phase in ((left, "prefill"), (right, "decode")):
        ends = []
        axes.set(xscale="log", yscale="log", title=f"{phase}, FLOP per byte")
        axes.set_xlabel("input tokens" if phase == "prefill" else "tokens in the cache")
        for index, batch in enumerate(BATCHES):
            colour = str(0.7 - 0.6 * index / (len(BATCHES) - 1))
            axes.plot(TOKENS, values[phase][index], color=colour, linewidth=1.3)
            ends.append(Label(TOKENS[0], float(values[phase][index][0]), f"batch {batch}", colour))
        axes.axhline(balance, color=ORANGE, linewidth=1.2, linestyle="--")
        beside(axes, "balance of an H100", TOKENS[-1], balance, ORANGE, (-1, 3))
        plain_ticks(axes, "x", (100, 1e3, 1e4, 1e5), ("100", "1 k", "10 k", "100 k"))
        plain_ticks(axes, "y", (1, 10, 100, 1000))
        if axes is right:
            for one in ends:
                beside(axes, one.text, one.x, one.y, one.colour, (3, 2))
    dotted = {"whole square": ("keys streamed by blocks, whole square", BLUE), "scores in memory":
              ("score matrix in memory", GREEN)}  # fmt: skip
    for name, (counting, colour) in dotted.items():
        line = surface(counting)["prefill"][0]
        left.plot(TOKENS, line, ":", color=colour, linewidth=1.4)
        name_ends(left, [Label(TOKENS[-1], float(line[-1]), f"batch 1,\n{name}", colour)])
    top, most = peak(next(iter(COUNTINGS)), 1), float(values["decode"].max())
    headline(figure, f"Reading a prompt is limited by arithmetic, a token by memory: decode never passes {most:.0f} "
             f"FLOP "
             f"a byte, {most / balance:.0%} of the balance; a prompt alone is densest at {top:,.0f} tokens (printed: "
             f"{PEAK_TOKENS:,.0f})")  # fmt: skip
    return {"Arithmetic intensity": figure}
