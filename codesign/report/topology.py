"""A topology drawn with every link coloured by its load."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ..model.networks.topology import Topology, link_columns
from .drawing import INK, SOFT, canvas, constrained
from .findings import CLEAR, headline
from .run_folder import RunFolder

NAMED = 40  # nodes up to which a drawing says their names
NAMED_IN_LAYER = 4
COLOURS = "plasma_r"


def links_frame(topology: Topology, load: np.ndarray) -> pd.DataFrame:
    """One row per directed link; see `topology.link_columns`."""
    return pd.DataFrame(link_columns(topology, load))


def draw_links(axes: Axes, links: pd.DataFrame, title: str) -> LineCollection:
    """Links on axes, the busiest last and thickest; links inside a layer hang below it as arcs."""
    shown = links.sort_values("used", kind="stable")
    few = len(shown) < 2000
    segments = [_curve(*row) for row in shown[["x0", "y0", "x1", "y1"]].itertuples(index=False)]
    widths = (0.5 if few else 0.15) + (2.2 if few else 0.8) * shown["used"].to_numpy()
    lines = LineCollection(segments, cmap=COLOURS, linewidths=widths, array=shown["used"].to_numpy(), clim=(0.0, 1.0))
    axes.add_collection(lines)
    nodes = links.drop_duplicates("source")
    if len(nodes) <= NAMED:
        axes.plot(nodes["x0"], nodes["y0"], "o", color="white", markeredgecolor=INK, markersize=4, zorder=3)
        crowded = nodes.groupby("y0")["source"].transform("size") > NAMED_IN_LAYER
        for _, node in nodes[~crowded].iterrows():
            axes.annotate(
                node["source"], (node["x0"], node["y0"]), (0, 5), textcoords="offset points", ha="center",
                fontsize=5.5, color=SOFT, zorder=4, path_effects=CLEAR,
            )  # fmt: skip
    axes.set_title(title, fontsize=8)
    axes.autoscale_view()
    axes.set_axis_off()
    return lines


def _curve(x0: float, y0: float, x1: float, y1: float) -> np.ndarray:
    """A straight line between layers, an arc inside one."""
    if y0 != y1 or y0 != 0:
        return np.array([(x0, y0), (x1, y1)])
    along = np.linspace(0.0, 1.0, 12)
    dip = -min(0.75, 0.12 * abs(x1 - x0)) * 4 * along * (1 - along)
    return np.column_stack([x0 + along * (x1 - x0), y0 + dip])


def topology_figure(parts: dict[str, pd.DataFrame], height_in: float = 2.6, found: str = "") -> Figure:
    """Topologies side by side (title -> links), three to a row, with one scale of load; above them what was found."""
    rows = -(-len(parts) // 3)
    columns = min(3, len(parts))
    figure, first = canvas(height_in * rows, layout=constrained())
    first[0].remove()
    if found:
        headline(figure, found)
    lines = None
    for number, (title, links) in enumerate(parts.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        lines = draw_links(axes, links, title)
    if lines is not None:
        bar = figure.colorbar(lines, ax=figure.axes, shrink=0.6, aspect=30, pad=0.01)
        bar.set_label("share of the link's rate in use", fontsize=7)
        bar.ax.tick_params(labelsize=7)
    return figure


def topology_load(run: RunFolder) -> Figure:
    """The routed topologies of the best design, at most three of its groups.

    Raises:
        MissingPart: the design has none.
    """
    links = run.require("links", "level", "axis", "used")
    groups = list(links.groupby(["level", "axis"], sort=False))[:3]
    return topology_figure({f"{level}, {axis}": part for (level, axis), part in groups})
