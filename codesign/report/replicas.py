"""A day of load: requests, replicas that run, watts with and without following."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .drawing import style
from .findings import BLUE, GREEN, GREY, ORANGE, beside, headline, panels

__all__ = ["day_figure"]


def day_figure(table: pd.DataFrame) -> Figure:
    """Three rows over the hours of `commands.day.hours`, what following the load saves above them."""
    with style():
        return _drawn(table.assign(following=table["power_w"] / 1e3, on=table["power_all_on_w"] / 1e3))


def _drawn(table: pd.DataFrame) -> Figure:
    figure, rows = panels(4.6, 3, 1, sharex=True)
    load, replicas, power = (row[0] for row in rows)
    edges = [*table["hour"], len(table)]

    def steps(axes: Axes, name: str, colour: str, line: str = "-") -> None:
        values = [*table[name], table[name].iloc[-1]]
        axes.step(edges, values, where="post", color=colour, lw=1.4, linestyle=line)

    steps(load, "requests_per_s", BLUE)
    steps(replicas, "replicas", ORANGE)
    steps(power, "on", GREY, "--")
    steps(power, "following", GREEN)
    titles = {load: "requests a second", replicas: "replicas that run", power: "power of the cluster, kW"}
    for axes, label in titles.items():
        axes.set_title(label)
        axes.set_ylim(bottom=0)
    replicas.yaxis.get_major_locator().set_params(integer=True)
    power.set_xlim(0, len(table))
    power.set_xlabel("hour")
    low = int(table["following"].argmin())
    beside(power, "all on", float(table["hour"].iloc[low]), float(table["on"].iloc[low]), GREY, (0.1, -3))
    beside(
        power, "follow the load", float(table["hour"].iloc[low]), float(table["following"].iloc[low]), GREEN, (0.1, 3)
    )
    saved = 1 - float(table["following"].sum() / table["on"].sum())
    fewest, most = int(table["replicas"].min()), int(table["replicas"].max())
    headline(figure, f"Following the load with {fewest} to {most} replicas takes {saved:.0%} less energy over the "
             f"day than "
             f"all {most} on")  # fmt: skip
    return figure
