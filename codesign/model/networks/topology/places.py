"""A topology as columns: its links, how full they are, and where to draw them."""

from typing import Any

import numpy as np

from .graph import Topology
from .link_programme import best_rates, equal_rate


def link_columns(topology: Topology, load: np.ndarray) -> dict[str, Any]:
    """One entry per directed link: its ends, where they are drawn, its rate, load and dual price.

    `used` is the share of its rate that carries payload when the group runs as fast as the topology lets it, `price`
    the elasticity of the group's rate to this link's rate.

    Args:
        topology: the graph with its rates.
        load: [E] bytes over each link per byte that a member sends.
    """
    x, y = positions(topology)
    capacity, used, price = topology.bandwidth_bytes_per_s, np.zeros(len(load)), np.zeros(len(load))
    if load.any():
        rate = equal_rate(load, capacity)
        used, price = load * rate / capacity, best_rates(load[:, None], capacity).price * capacity / rate
    nodes = np.array(topology.nodes)
    return {
        "source": nodes[topology.source],
        "target": nodes[topology.target],
        "kind": np.array(topology.kinds)[topology.kind],
        "bandwidth_bytes_per_s": capacity,
        "load": load,
        "used": used,
        "price": price,
        "x0": x[topology.source],
        "y0": y[topology.source],
        "x1": x[topology.target],
        "y1": y[topology.target],
    }


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
