"""Shortest-path routing, and the load that flows put on every link."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ....core.errors import ConfigError
from .graph import Topology

# Linear programmes over a topology: the best division of traffic, and what each link is worth.
#
#     rings      max sum r_k   subject to   sum_k A[e, k] r_k <= capacity_e,  r >= 0
#     crossings  max flow from one part to another, a variable per link
#
# The dual price y_e >= 0 is the rate gained per unit of capacity of link e, and sum_e y_e capacity_e is the rate: the
# shares y_e capacity_e / rate say which cable limits the job. Cables in series that are full together share one price
# in any proportion; the programme reports one such division, and `gains` asks for whole kinds.


FULL = 1 - 1e-9


@dataclass(frozen=True, eq=False)
class FlowSolution:
    """rate: payload bytes per second; flow: of each variable; price: [E] d rate / d capacity of each link."""

    rate: float
    flow: np.ndarray
    price: np.ndarray


def best_rates(load: np.ndarray, capacity: np.ndarray) -> FlowSolution:
    """The best rates of rings (or other flows) on one topology.

    Args:
        load: [E, rings] times each ring crosses each link.
        capacity: [E] bytes per second.
    """
    used = load.any(axis=1)
    matrix, scale = scipy.sparse.csr_matrix(load[used]), float(capacity[used].max())
    result = scipy.optimize.linprog(-np.ones(load.shape[1]), A_ub=matrix, b_ub=capacity[used] / scale, method="highs")
    price = np.zeros(len(capacity))
    price[used] = -np.asarray(result.ineqlin.marginals)
    return FlowSolution(-result.fun * scale, result.x * scale, price)


def crossings(topology: Topology, sources: np.ndarray, sinks: np.ndarray) -> FlowSolution:
    """Most bytes per second that can leave one set of devices for another, all ways used.

    Divided by the rate of one cable this counts the independent crossings. Endpoints may pass traffic on: a ring does.

    Raises:
        ConfigError: a device on both sides, or an empty side.
    """
    if not len(sources) or not len(sinks) or set(sources) & set(sinks):
        raise ConfigError("crossings: the two parts must be different devices, at least one on each side")
    edges, nodes = len(topology.source), len(topology.nodes)
    scale = float(topology.bandwidth_bytes_per_s.max())
    rows = np.concatenate([topology.source, topology.target])
    columns = np.tile(np.arange(edges), 2)
    values = np.concatenate([np.ones(edges), -np.ones(edges)])
    balance = scipy.sparse.coo_matrix((values, (rows, columns)), (nodes, edges)).tocsr()
    inner = np.ones(nodes, bool)
    inner[topology.endpoints[np.concatenate([sources, sinks])]] = False
    leaving = np.asarray(balance[topology.endpoints[sources]].sum(axis=0)).ravel()
    bounds = np.column_stack([np.zeros(edges), topology.bandwidth_bytes_per_s / scale])
    inner_balance = balance[inner]
    result = scipy.optimize.linprog(
        -leaving, A_eq=inner_balance, b_eq=np.zeros(inner_balance.shape[0]), bounds=bounds, method="highs"
    )
    return FlowSolution(-result.fun * scale, result.x * scale, -np.asarray(result.upper.marginals))


def equal_rate(load: np.ndarray, capacity: np.ndarray) -> float:
    """Payload rate of a group whose flows share the traffic as `load` [E] says: min capacity / load."""
    used = load > 0
    return float((capacity[used] / load[used]).min()) if used.any() else float("inf")


def gains(topology: Topology, load: np.ndarray, factor: float = 2.0) -> dict[str, float]:
    """Kind of link -> how much faster a group would be if every link of that kind were `factor` times as fast."""
    now, result = equal_rate(load, topology.bandwidth_bytes_per_s), dict[str, float]()
    for number, kind in enumerate(topology.kinds):
        faster = np.where(topology.kind == number, factor, 1.0) * topology.bandwidth_bytes_per_s
        result[kind] = equal_rate(load, faster) / now
    return result


def full_links(topology: Topology, load: np.ndarray) -> np.ndarray:
    """Links that are used to the full when the group runs at its best rate."""
    used = load * equal_rate(load, topology.bandwidth_bytes_per_s) / topology.bandwidth_bytes_per_s
    return np.flatnonzero(used >= FULL)


def limit(topology: Topology, load: np.ndarray) -> str:
    """Sentence on the cables that limit this job, their dual prices and the most useful upgrade."""
    rate, full = equal_rate(load, topology.bandwidth_bytes_per_s), full_links(topology, load)
    if not len(full):
        return "no link of the topology carries this traffic"
    price = best_rates(load[:, None], topology.bandwidth_bytes_per_s).price
    worth = dict.fromkeys(topology.kinds, 0.0)
    for edge in np.flatnonzero(price):
        worth[topology.kinds[topology.kind[edge]]] += price[edge] * topology.bandwidth_bytes_per_s[edge] / rate
    shown = ", ".join(_full_of_kind(topology, full[topology.kind[full] == k]) for k in np.unique(topology.kind[full]))
    best = max(gains(topology, load).items(), key=lambda item: item[1])
    advice = (
        f"twice the {best[0]} gives {best[1]:.2f} x" if best[1] > 1 + 1e-9 else "no kind alone would help: in series"
    )
    dual = ", ".join(f"{kind} {share:.0%}" for kind, share in worth.items() if share > 1e-9)
    return f"{rate / 1e9:.4g} GB/s, held by {shown}; dual price on {dual}; {advice}"


def _full_of_kind(topology: Topology, full: np.ndarray) -> str:
    """Links of one kind in words, those of both directions counted once."""
    ends = {frozenset((int(topology.source[edge]), int(topology.target[edge]))) for edge in full}
    kind = topology.kinds[topology.kind[full[0]]]
    return f"{len(ends)} full {kind} {'links' if len(ends) > 1 else 'link'} (such as {topology.edge(int(full[0]))})"


# A topology as columns: its links, how full they are, and where to draw them.


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


UNREACHED = np.int32(2**30)


@dataclass(frozen=True, eq=False)
class Routes:
    """A forwarding table: `next_link[v, d]` is the link that node v takes towards device d (-1 at the device)."""

    topology: Topology
    next_link: np.ndarray

    def path(self, source: int, target: int) -> list[int]:
        """Links from device to device."""
        node, links = int(self.topology.endpoints[source]), list[int]()
        while node != self.topology.endpoints[target]:
            links.append(int(self.next_link[node, target]))
            node = int(self.topology.target[links[-1]])
        return links

    def load(self, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | float = 1.0) -> np.ndarray:
        """[E] sum of the weights of the flows that cross each link."""
        topology, total = self.topology, np.zeros(len(self.topology.source))
        for active, link in self._walk(sources, targets):
            share = weights if np.isscalar(weights) else np.asarray(weights)[active]
            total += np.bincount(link, np.broadcast_to(share, link.shape), minlength=len(topology.source))
        return total

    def by_kind(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """[flows, kinds] links of each kind on each flow's path."""
        counts = np.zeros((len(sources), len(self.topology.kinds)))
        for active, link in self._walk(sources, targets):
            np.add.at(counts, (active, self.topology.kind[link]), 1.0)
        return counts

    def _walk(self, sources: np.ndarray, targets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (flows still under way, the link each takes) hop by hop."""
        topology = self.topology
        node, active = topology.endpoints[sources], np.arange(len(sources))
        goal = topology.endpoints[targets]
        while True:
            active = active[node[active] != goal[active]]
            if not len(active):
                return
            link = self.next_link[node[active], np.asarray(targets)[active]]
            yield active, link
            node[active] = topology.target[link]


def route(topology: Topology) -> Routes:
    """Fewest hops; among k equal next hops destination d takes number d mod k (D-mod-K).

    d is box plus rail, which counts the nodes of a fat tree and the nodes under each leaf of a rail-optimised one:
    every destination has its own way down, and destinations spread over the spines. Only topologies that say so let
    endpoints pass on foreign traffic.

    Source: [zahavi2010] for the fat tree.

    Raises:
        ConfigError: a pair of endpoints that cannot reach each other without going through a third.
    """
    order = np.argsort(topology.source, kind="stable")
    source, target = topology.source[order], topology.target[order]
    distance = _distances(topology, source, target)
    ahead = _passable(topology, distance)[target]
    at = distance[source]
    shortest = (ahead + 1 == at) & (at < UNREACHED)
    count, size = len(topology.nodes), topology.size
    first = np.searchsorted(source, np.arange(count))
    seen = np.cumsum(shortest, axis=0, dtype=np.int32)
    before = np.vstack([np.zeros((1, size), np.int32), seen])[first]
    total = np.vstack([before[1:], seen[-1:]]) - before
    number = (topology.box + topology.rail)[None, :]
    wanted = number % np.maximum(total, 1) + 1
    chosen = shortest & (seen - before[source] == wanted[source])
    table = np.full((count, size), -1, np.int32)
    rows, columns = np.nonzero(chosen)
    table[source[rows], columns] = order[rows]
    _check_reached(topology, distance)
    return Routes(topology, table)


def hops_between(topology: Topology) -> np.ndarray:
    """[N, N] fewest hops from device to device."""
    return _distances(topology, topology.source, topology.target)[topology.endpoints]


def _distances(topology: Topology, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[V, N] hops from each node to each device, breadth first for all devices at once."""
    count, size = len(topology.nodes), topology.size
    distance = np.full((count, size), UNREACHED, np.int32)
    distance[topology.endpoints, np.arange(size)] = 0
    backwards = scipy.sparse.csr_matrix((np.ones(len(source), np.float32), (source, target)), (count, count))
    front = distance == 0
    ends = np.zeros(count, bool)
    ends[topology.endpoints] = not topology.forwards
    for hops in range(1, count):
        result = (backwards @ front.astype(np.float32) > 0) & (distance == UNREACHED)
        if not result.any():
            break
        distance[result] = hops
        front = result & ~ends[:, None]
    return distance


def _passable(topology: Topology, distance: np.ndarray) -> np.ndarray:
    """Distances as seen by the previous hop: a foreign endpoint that does not forward is no way through."""
    if topology.forwards:
        return distance
    seen = distance.copy()
    block = seen[topology.endpoints]
    seen[topology.endpoints] = np.where(block == 0, 0, UNREACHED)
    return seen


def _check_reached(topology: Topology, distance: np.ndarray) -> None:
    between = distance[topology.endpoints] == UNREACHED
    if between.any():
        a, b = np.argwhere(between)[0]
        names = [topology.nodes[topology.endpoints[i]] for i in (a, b)]
        raise ConfigError(f"topology {topology.name} is disconnected: no way from {names[0]} to {names[1]}")


# Rings, trees and exchanges over a group: who sends to whom, as constant flows.
#
# A box whose c devices are joined all to all holds c (c - 1) directed links. Zigzag paths (k, k+1, k-1, k+2, ...)
# modulo c use every one of them equally often when k runs through all c rotations (with the reverses, where c is
# odd), and so do the cycles that a hub closes over the zigzags of the other c - 1 devices. Over several boxes the
# paths are joined end to end, every second box backwards, so that a ring enters and leaves each box on one rail.
# Where the boxes' own links do not carry that (no mesh, no switch inside: what turns inside a box goes out by its
# cables too), one ring that always goes on to the nearest device takes each link of a tree at most once.


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
        among = np.isin(topology.orders, members)
        orders = [np.array(order)[keep] for order, keep in zip(topology.orders, among, strict=True)]
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
        among = (rail[paths[:, 0]] < rails) & (rail[paths[:, -1]] < rails)
        paths = paths[among] if among.any() else paths
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
