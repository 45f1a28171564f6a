"""A fleet of one's own against an API's price: dollars of a month by load."""

import math

import pandas as pd
from matplotlib.figure import Figure

from .drawing import style
from .findings import BLUE, GREY, ORANGE, beside, headline, panels

__all__ = ["api_figure"]


def api_figure(table: pd.DataFrame, cheaper: float, always: float, what: str) -> Figure:
    """Stairs of replicas and the line of the API.

    Args:
        table: of `commands.api_prices.load_table`.
        cheaper: requests/s from which on owning may be cheaper.
        always: requests/s from which on it is at every load.
        what: the fleet, in words.
    """
    with style():
        figure, ((axes,),) = panels(3.0)
        load = table["requests_per_s"]
        axes.plot(load, table["own_usd"] / 1e3, color=BLUE, lw=1.4)
        axes.plot(load, table["api_usd"] / 1e3, color=ORANGE, lw=1.4)
        last = table.iloc[-1]
        beside(axes, "API", last["requests_per_s"], last["api_usd"] / 1e3, ORANGE, (-4, 4))
        beside(axes, what, last["requests_per_s"], last["own_usd"] / 1e3, BLUE, (-4, -5))
        for place, text in {cheaper: "one replica pays", always: "always"}.items():
            if math.isfinite(place) and place <= last["requests_per_s"]:
                axes.axvline(place, color=GREY, lw=0.8, ls=":")
                beside(axes, text, place, axes.get_ylim()[1], GREY, (3, -4))
        axes.set_xlim(0, last["requests_per_s"])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("requests a second, always")
        axes.set_ylabel("thousand dollars a month")
        told = "An API at this price is cheaper at every load"
        if math.isfinite(always):
            told = f"Owning is cheaper at every load from {always:.3g} requests a second on"
        headline(figure, told)
    return figure
