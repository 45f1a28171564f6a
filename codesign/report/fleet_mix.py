"""Picture of a mixed fleet: devices of each kind by the class that they serve."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .drawing import style
from .findings import BLUE, GREEN, GREY, ORANGE, headline, panels

__all__ = ["fleet_mix_figure"]

COLOURS = (BLUE, ORANGE, GREEN, "#8c6bb1", "#b15928", "#1b7f79", "#c51b7d", "#666633")


def fleet_mix_figure(told: Mapping[str, Any]) -> Figure:
    """A bar for each kind of device: what each class takes, and what stands spare in boxes."""
    with style():
        return _bars(told)


def _bars(told: Mapping[str, Any]) -> Figure:
    kinds, classes = [kind["name"] for kind in told["kinds"]], [one["name"] for one in told["classes"]]
    figure, ((axes,),) = panels(0.9 + 0.55 * len(kinds))
    left = np.zeros(len(kinds))
    for index, name in enumerate(classes):
        own = np.array([
            sum(pool["devices"] for pool in told["pools"] if pool["class"] == name and pool["kind"] == kind)
            for kind in kinds
        ], float)  # fmt: skip
        axes.barh(kinds, own, left=left, color=COLOURS[index % len(COLOURS)], height=0.6, label=name)
        left = left + own
    spare = np.array([kind["spare"] for kind in told["kinds"]], float)
    axes.barh(kinds, spare, left=left, color="white", edgecolor=GREY, hatch="///", height=0.6, lw=0.6, label="spare")
    axes.invert_yaxis()
    axes.set_xlabel("devices")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=min(len(classes) + 1, 5), frameon=False)
    headline(figure, f"Devices by class: {1e-3 * told['usd_per_month']:,.3g} thousand USD a month")
    return figure
