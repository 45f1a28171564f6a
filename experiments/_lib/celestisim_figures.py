"""Figures of the appliance's comparisons: throughput by batch, gains by share of the compute."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign.model import Scenario
from codesign.report.findings import BLUE, GREEN, ORANGE, PURPLE, Label, headline, name_ends, panels, plain_ticks

from .celestisim_inference import APPLIANCE, APPLIANCE_BYTES, DGX, H100_BYTES, LAYERS, LENGTHS, largest_batch, price

__all__ = ["gains_by_compute", "throughput_by_batch"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def gains_by_compute(frames: Mapping[float, pd.DataFrame], model: str) -> Figure:
    """Throughput and latency gain of every pair of lengths; `frames` is share of the compute -> comparison."""
    figure, (row,) = panels(3.2, 1, 2)
    best = {}
    for axes, column in zip(row, ("throughput_gain", "latency_gain"), strict=True):
        ends = []
        for index, (given, wanted) in enumerate(LENGTHS):
            values = [float(frame[column].iloc[index]) for frame in frames.values()]
            axes.plot(list(frames), values, "o-", color=COLOURS[index], linewidth=1.4, markersize=4)
            ends.append(Label(max(frames), values[int(np.argmax(list(frames)))], f"{given:g} in, {wanted:g} out",
                              COLOURS[index]))  # fmt: skip
        axes.axhline(1.0, color="0.4", linewidth=1)
        axes.set(xscale="log", xlabel="appliance's compute, in eight H100", title=column.replace("_", " "))
        plain_ticks(axes, "x", sorted(frames), [f"{share:g}" for share in sorted(frames)])
        name_ends(axes, ends)
        best[column] = {share: float(frame[column].max()) for share, frame in frames.items()}
    most, least = max(frames), min(frames)
    gain, few = best["throughput_gain"][most], best["throughput_gain"][least]
    one = best["latency_gain"][most]
    headline(
        figure,
        f"{model}: the appliance's memory gives up to {gain:.1f} times the throughput where answers are long,"
        f" {few:.1f} with {least:g} of the compute; one request gains at most {one:.2f}",
    )
    return figure


def throughput_by_batch(scenario: Scenario, model: str) -> Figure:
    """Sequences' output tokens per second against the batch, up to the largest that fits, on both systems."""
    figure, (row,) = panels(3.2, 1, 2, sharey=True)
    systems = (("DGX-H100", DGX, H100_BYTES), ("appliance", APPLIANCE, APPLIANCE_BYTES))
    largest: list[list[float]] = []
    for axes, (name, system, capacity) in zip(row, systems, strict=True):
        rows = [system | {"input": i, "output": o, "layers": LAYERS[model]} for i, o in LENGTHS]
        most, ends = largest_batch(scenario, rows, [capacity] * len(rows)), []
        for index, (one, end) in enumerate(zip(rows, most, strict=True)):
            batch = np.unique(np.round(np.geomspace(1, end, 17)))
            seconds = price(scenario, [one | {"batch": b} for b in np.resize(batch, 17)])["time_s"][: len(batch)]
            rate = np.asarray(batch * one["output"] / seconds)
            axes.plot(batch, rate, "o-", color=COLOURS[index], markersize=3, linewidth=1.3)
            ends.append(
                Label(batch[-1], float(rate[-1]), f"{one['input']:g} in, {one['output']:g} out", COLOURS[index])
            )
        largest.append([float(end) for end in most])
        axes.set(xscale="log", yscale="log", title=f"{name}, output tokens/s", xlabel="sequences in a batch")
        plain_ticks(axes, "x", (1, 10, 100, 1e3, 1e4, 1e5), ("1", "10", "100", "1 k", "10 k", "100 k"))
        plain_ticks(axes, "y", (100, 1e3, 1e4), ("100", "1 k", "10 k"))
        name_ends(axes, ends)
    more = largest[1][-1] / largest[0][-1]
    headline(
        figure,
        f"{model}: memory ends the DGX's lines while they still rise; the appliance holds {more:,.0f} times the long"
        " sequences and ends where arithmetic does",
    )
    return figure
