"""A topology as a frame of its links, and drawn with every link coloured by its load."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ..topology import Topology, best_rates, equal_rate
from .figures import INK, SOFT, canvas

NAMED = 40  # nodes up to which a drawing says their names
NAMED_IN_LAYER = 4
COLOURS = "plasma_r"


def links_frame(topology: Topology, load: np.ndarray) -> pd.DataFrame:
    """One row per directed link: its ends, where they are drawn, its rate, load and dual price.

    `used` is the share of its rate that carries payload when the group runs as fast as the topology lets it, `price`
    the elasticity of the group's rate to this link's rate.

    Args:
        topology: the graph with its rates.
        load: [E] bytes over each link per byte that a member sends.
    """
    x, y = positions(topology)
    rate = equal_rate(load, topology.bandwidth_bytes_per_s)
    busy = load * rate / topology.bandwidth_bytes_per_s if np.isfinite(rate) else np.zeros(len(load))
    price = np.zeros(len(load))
    if np.isfinite(rate):
        price = best_rates(load[:, None], topology.bandwidth_bytes_per_s).price * topology.bandwidth_bytes_per_s / rate
    nodes = np.array(topology.nodes)
    return pd.DataFrame(
        {
            "source": nodes[topology.source],
            "target": nodes[topology.target],
            "kind": np.array(topology.kinds)[topology.kind],
            "bandwidth_bytes_per_s": topology.bandwidth_bytes_per_s,
            "load": load,
            "used": busy,
            "price": price,
            "x0": x[topology.source],
            "y0": y[topology.source],
            "x1": x[topology.target],
            "y1": y[topology.target],
        }
    )


def positions(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of every node: endpoints in their order, each switch above the middle of what hangs below it."""
    x, y = np.zeros(len(topology.nodes)), topology.layer.astype(float)
    x[topology.endpoints] = np.arange(topology.size)
    ends = np.zeros(len(topology.nodes), bool)
    ends[topology.endpoints] = True
    if ends.all():
        return _rows(topology, x, y)
    for layer in sorted({float(value) for value in y[~ends]}, key=abs):
        for node in np.flatnonzero((y == layer) & ~ends):
            below = topology.target[(topology.source == node) & (np.abs(y[topology.target]) < abs(layer))]
            x[node] = x[below].mean() if len(below) else topology.size / 2
        here = np.flatnonzero((y == layer) & ~ends)
        order = here[np.argsort(x[here], kind="stable")]
        if len(np.unique(x[here].round(6))) < len(here):  # switches above the same things stand side by side
            x[order] = (np.arange(len(here)) + 0.5) * topology.size / len(here) - 0.5
    return x, y


def _rows(topology: Topology, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Endpoints alone: a ring where all lie in one layer, else row by row."""
    if len(np.unique(y)) == 1:
        angle = 2 * np.pi * x / topology.size
        return np.sin(angle), np.cos(angle)
    rows = {value: i for i, value in enumerate(np.unique(y))}
    x = x.copy()
    for value, row in rows.items():
        here = topology.endpoints[y[topology.endpoints] == value]
        x[here] = np.arange(len(here))[:: 1 if row % 2 == 0 else -1]
    return x, np.array([float(rows[value]) for value in y])


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
                fontsize=5.5, color=SOFT,
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


def topology_figure(parts: dict[str, pd.DataFrame], height_in: float = 2.6) -> Figure:
    """Topologies side by side (title -> links), three to a row, with one scale of load."""
    rows = -(-len(parts) // 3)
    columns = min(3, len(parts))
    figure, first = canvas(height_in * rows)
    first[0].remove()
    lines = None
    for number, (title, links) in enumerate(parts.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        lines = draw_links(axes, links, title)
    if lines is not None:
        bar = figure.colorbar(lines, ax=figure.axes, shrink=0.6, aspect=30, pad=0.01)
        bar.set_label("share of the link's rate in use", fontsize=7)
        bar.ax.tick_params(labelsize=7)
    return figure
