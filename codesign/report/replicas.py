"""A day of load: requests, replicas that run, watts with and without following."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .drawing import canvas, constrained

__all__ = ["day_figure"]

COLOURS = ("#2f6fb0", "#d55e00", "#009e73")


def day_figure(table: pd.DataFrame) -> Figure:
    """Three rows over the hours of `run.day.hours`."""
    figure, first = canvas(5.4, layout=constrained())
    first[0].remove()
    load, replicas, power = figure.subplots(3, 1, sharex=True)
    table = table.assign(following=table["power_w"] / 1e3, on=table["power_all_on_w"] / 1e3)
    edges = [*table["hour"], len(table)]

    def steps(axes: Axes, name: str, colour: str, label: str | None = None, style: str = "-") -> None:
        values = [*table[name], table[name].iloc[-1]]
        axes.step(edges, values, where="post", color=colour, lw=1.4, label=label, linestyle=style)

    steps(load, "requests_per_s", COLOURS[0])
    steps(replicas, "replicas", COLOURS[1])
    steps(power, "on", "0.45", "all replicas on", "--")
    steps(power, "following", COLOURS[2], "replicas follow the load")
    titles = {load: "Requests a second", replicas: "Replicas that run", power: "Power of the cluster, kW"}
    for axes, label in titles.items():
        axes.set_title(label, fontsize=8, loc="left")
        axes.set_ylim(bottom=0)
    replicas.yaxis.get_major_locator().set_params(integer=True)
    power.set_xlim(0, len(table))
    power.set_xlabel("hour")
    power.legend(fontsize=7, loc="lower right")
    return figure
