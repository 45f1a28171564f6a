"""Shortest-path routing, and the load that flows put on every link."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ....core.errors import ConfigError
from .graph import Topology

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
