"""Rings, trees and exchanges over a group: who sends to whom, as constant flows.

A box whose c devices are joined all to all holds c (c - 1) directed links. Zigzag paths (k, k+1, k-1, k+2, ...) modulo
c use every one of them equally often when k runs through all c rotations (with the reverses, where c is odd), and so do
the cycles that a hub closes over the zigzags of the other c - 1 devices. Over several boxes the paths are joined end
to end, every second box backwards, so that a ring enters and leaves each box on one rail. Where the boxes' own links
do not carry that (no mesh, no switch inside: what turns inside a box goes out by its cables too), one ring that always
goes on to the nearest device takes each link of a tree at most once.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .graph import Topology
from .routing import Routes, hops_between, route

PATTERNS = ("ring", "tree", "all_to_all")


@dataclass(frozen=True, eq=False)
class Flows:
    """Messages from device to device; `weight` is what each carries per byte that a member of the group sends."""

    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray


def zigzag_paths(count: int) -> np.ndarray:
    """[rings, count] Hamiltonian paths that use every directed pair of `count` devices equally often.

    Source: Walecki's zigzag [alspach2008].
    """
    step = np.zeros(count, int)
    step[1::2] = np.arange(1, count // 2 + 1)
    step[2::2] = -np.arange(1, (count - 1) // 2 + 1)
    paths = (np.arange(count)[:, None] + step[None, :]) % count
    return np.vstack([paths, paths[:, ::-1]]) if count % 2 and count > 1 else paths


def hub_cycles(count: int) -> np.ndarray:
    """[rings, count] Hamiltonian cycles that use every directed pair of `count` devices equally often."""
    if count <= 2:
        return np.arange(count)[None, :]
    paths = zigzag_paths(count - 1)
    return np.hstack([np.full((len(paths), 1), count - 1), paths])


def ring_orders(topology: Topology, members: np.ndarray, rails: int = 0) -> np.ndarray:
    """[rings, n] orders of a group's devices, one a ring, all of which run at once with equal shares.

    Args:
        topology: where they sit.
        members: device numbers in the order of their ranks.
        rails: use only the first so many ways out of a box, where the group has any of them; 0 for all.
    """
    boxes, counts = np.unique(topology.box[members], return_counts=True)
    if topology.orders:
        kept = np.isin(topology.orders, members)
        orders = [np.array(order)[keep] for order, keep in zip(topology.orders, kept, strict=True)]
        return np.array([*orders, *(order[::-1] for order in orders)])
    if len(boxes) == 1:
        inside = hub_cycles(len(members)) if _meshed(topology, members) else np.arange(len(members))[None, :]
        return members[inside]
    if len(set(counts)) > 1 or counts[0] == 1:
        return members[None, :]
    inside = np.array([_by_rail(topology, members[topology.box[members] == box]) for box in boxes])
    paths = zigzag_paths(int(counts[0]))
    if rails:
        rail = topology.rail[inside[0]]
        kept = (rail[paths[:, 0]] < rails) & (rail[paths[:, -1]] < rails)
        paths = paths[kept] if kept.any() else paths
    legs = [box[paths if number % 2 == 0 else paths[:, ::-1]] for number, box in enumerate(inside)]
    zigzags = np.hstack(legs)
    if all(_meshed(topology, box) for box in inside):
        return zigzags
    plain = _nearest_first(topology, members)[None, :]
    return plain if _fullest(topology, plain) < _fullest(topology, zigzags) * (1 - 1e-9) else zigzags


_routes = functools.lru_cache(maxsize=4)(route)  # of a topology by its identity
_hops = functools.lru_cache(maxsize=4)(hops_between)


def _nearest_first(topology: Topology, members: np.ndarray) -> np.ndarray:
    """The members, each followed by the nearest that is left: round a tree, branch after branch."""
    hops, left = _hops(topology)[np.ix_(members, members)], np.ones(len(members), bool)
    order = [0]
    for _ in range(len(members) - 1):
        left[order[-1]] = False
        order.append(int(np.where(left, hops[order[-1]], np.inf).argmin()))
    return members[order]


def _fullest(topology: Topology, orders: np.ndarray) -> float:
    """Largest load that such rings put on a link, per byte that a member sends and parallel cable."""
    return float((load(_routes(topology), ring_flows(orders)) / topology.width).max())


def _by_rail(topology: Topology, members: np.ndarray) -> np.ndarray:
    """Devices of a box so that those of one rail lie half a box apart: a zigzag then begins and ends on one rail."""
    rail, rank = topology.rail[members], np.zeros(len(members), int)
    for value in np.unique(rail):
        rank[rail == value] = np.arange((rail == value).sum())
    return members[np.lexsort((rail, rank))]


def _meshed(topology: Topology, members: np.ndarray) -> bool:
    """True if every two members have a link of their own."""
    nodes = topology.endpoints[members]
    inside = np.isin(topology.source, nodes) & np.isin(topology.target, nodes)
    return bool(inside.sum() >= len(members) * (len(members) - 1) > 0)


def ring_flows(orders: np.ndarray) -> Flows:
    """Every device to its successor on each of the rings, which share the traffic equally."""
    following = np.roll(orders, -1, axis=1)
    return Flows(orders.ravel(), following.ravel(), np.full(orders.size, 1 / len(orders)))


def tree_flows(members: np.ndarray) -> Flows:
    """Two mirrored binary trees, half of the message up and down each."""
    parent = (np.arange(1, len(members)) - 1) // 2
    up = [(order[1:], order[parent]) for order in (members, members[::-1])]
    child, top = (np.concatenate([pair[i] for pair in up]) for i in (0, 1))
    return Flows(np.concatenate([child, top]), np.concatenate([top, child]), np.full(2 * len(child), 0.5))


def exchange_flows(members: np.ndarray) -> Flows:
    """Every ordered pair; a member's bytes are divided equally among the others."""
    count = len(members)
    a, b = (index.ravel() for index in np.meshgrid(members, members, indexing="ij"))
    keep = a != b
    return Flows(a[keep], b[keep], np.full(int(keep.sum()), 1 / (count - 1)))


def group_flows(topology: Topology, members: np.ndarray, pattern: str = "ring", rails: int = 0) -> Flows:
    """The flows of one group."""
    if pattern == "tree":
        return tree_flows(members)
    if pattern == "all_to_all":
        return exchange_flows(members)
    return ring_flows(ring_orders(topology, members, rails))


def groups(size: int, members: int, stride: int) -> Iterator[np.ndarray]:
    """All groups of `members` devices, `stride` apart, that fit side by side into `size` devices."""
    block = members * stride
    for start in range(0, size - block + 1, block):
        for offset in range(stride):
            yield start + offset + stride * np.arange(members)


def all_flows(topology: Topology, members: int, stride: int, pattern: str = "ring", rails: int = 0) -> Flows:
    """The flows of all groups of one kind, which talk at the same time."""
    parts = [group_flows(topology, group, pattern, rails) for group in groups(topology.size, members, stride)]
    return Flows(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.target for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def load(routes: Routes, flows: Flows) -> np.ndarray:
    """[E] bytes over each link per byte that a member sends."""
    return routes.load(flows.source, flows.target, flows.weight)


def load_by_ring(routes: Routes, orders: np.ndarray) -> np.ndarray:
    """[E, rings] times each ring crosses each link: the load matrix of a group."""
    return np.stack([routes.load(order, np.roll(order, -1)) for order in orders], axis=1)
