"""Figures of the appliance's comparisons: throughput by batch, gains by share of the compute."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..scenario import Scenario
from .celestisim_inference import APPLIANCE, APPLIANCE_BYTES, DGX, H100_BYTES, LAYERS, LENGTHS, largest_batch, price

__all__ = ["gains_by_compute", "throughput_by_batch"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def gains_by_compute(frames: Mapping[float, pd.DataFrame]) -> Figure:
    """Throughput and latency gain of every pair of lengths; `frames` is share of the compute -> comparison."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    for axes, column in zip(figure.subplots(1, 2), ("throughput_gain", "latency_gain"), strict=True):
        for place, (given, wanted) in enumerate(LENGTHS):
            values = [float(frame[column].iloc[place]) for frame in frames.values()]
            axes.plot(list(frames), values, "o-", color=COLOURS[place], label=f"{given:g} in, {wanted:g} out")
        axes.axhline(1.0, color="0.4", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("appliance's compute, in eight H100")
        axes.set_ylabel(column.replace("_", " "))
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=7)
    return figure


def throughput_by_batch(scenario: Scenario, model: str) -> Figure:
    """Sequences' output tokens per second against the batch, up to the largest that fits, on both systems."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    systems = (("DGX-H100", DGX, H100_BYTES), ("appliance", APPLIANCE, APPLIANCE_BYTES))
    for axis, (name, system, capacity) in zip(axes, systems, strict=True):
        rows = [system | {"input": i, "output": o, "layers": LAYERS[model]} for i, o in LENGTHS]
        most = largest_batch(scenario, rows, [capacity] * len(rows))
        for place, (row, end) in enumerate(zip(rows, most, strict=True)):
            batch = np.unique(np.round(np.geomspace(1, end, 17)))
            seconds = price(scenario, [row | {"batch": b} for b in np.resize(batch, 17)])["time_s"][: len(batch)]
            label = f"{row['input']:g} in, {row['output']:g} out"
            axis.loglog(batch, batch * row["output"] / seconds, "o-", color=COLOURS[place], label=label, markersize=3)
        axis.set_title(name)
        axis.set_xlabel("sequences in a batch")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("output tokens/s")
    axes[0].legend(fontsize=7)
    return figure
