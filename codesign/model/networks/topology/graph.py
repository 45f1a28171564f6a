"""A topology: endpoints, switches and the directed links between them, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ....core.errors import ConfigError, suggestion

if TYPE_CHECKING:
    import networkx as nx

MOST = 2**31  # endpoints, boxes, rails
NUMBERS = ("bandwidth_bytes_per_s", "latency_s", "energy_j_per_byte")


@dataclass(frozen=True)
class Cable:
    """One kind of link: payload bandwidth per direction, time of the first byte over it, energy of a byte."""

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    energy_j_per_byte: float = 0.0


@dataclass(frozen=True, eq=False)
class Topology:
    """A directed graph of E links between V nodes, N of which are endpoints in the order of the devices.

    Attributes:
        name: what messages and figures call it.
        nodes: V names.
        endpoints: [N] node of each device.
        box: [N] number of the chassis or node that the device sits in.
        rail: [N] number of the device's way out of its box; devices of one rail are near each other.
        source, target: [E] nodes.
        kind: [E] index into `kinds`.
        kinds: names of the kinds of link.
        width: [E] parallel links of the kind; the bandwidth is that of all.
        bandwidth_bytes_per_s, latency_s, energy_j_per_byte: [E].
        layer: [V] height in drawings, endpoints at 0.
        forwards: whether endpoints pass on what is not theirs (torus).
        orders: further orders of the endpoints in which neighbours are near, as candidates for rings.
    """

    name: str
    nodes: tuple[str, ...]
    endpoints: np.ndarray
    box: np.ndarray
    rail: np.ndarray
    source: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    kinds: tuple[str, ...]
    width: np.ndarray
    bandwidth_bytes_per_s: np.ndarray
    latency_s: np.ndarray
    energy_j_per_byte: np.ndarray
    layer: np.ndarray
    forwards: bool = False
    orders: tuple[tuple[int, ...], ...] = field(default=())

    @property
    def size(self) -> int:
        """Endpoints."""
        return len(self.endpoints)

    def edge(self, index: int) -> str:
        """A link in words."""
        return f"{self.nodes[self.source[index]]} -> {self.nodes[self.target[index]]}"

    def members(self, names: list[str]) -> np.ndarray:
        """Device numbers of a group given by the names of its endpoints.

        Raises:
            ConfigError: an unknown node, a switch, or a group that spans nothing.
        """
        device = {self.nodes[int(node)]: index for index, node in enumerate(self.endpoints)}
        for name in names:
            if name not in device:
                what = "a switch, no endpoint" if name in self.nodes else "no node"
                raise ConfigError(f"group: {name!r} is {what} of topology {self.name}{suggestion(name, device)}")
        result = list(dict.fromkeys(device[name] for name in names))
        if len(result) < 2:
            raise ConfigError(f"group {', '.join(names) or '()'} spans nothing: name at least two different endpoints")
        return np.array(result)


def from_networkx(
    graph: "nx.Graph[Any]", name: str, links: Mapping[str, Cable] | None = None, **extra: Any
) -> Topology:
    """Check a networkx graph and turn it into arrays.

    Nodes may carry `endpoint` (device numbers 0, 1, ..., each once), `box`, `rail`, `layer`; without any `endpoint`
    the nodes of degree one are the devices. Edges carry `kind`, `width` and either a kind that `links` prices or their
    own numbers.

    Args:
        graph: directed, or undirected for links that run both ways.
        name: for messages.
        links: kind -> numbers, for edges that have none of their own.
        extra: `forwards`, `orders`.

    Raises:
        ConfigError: no endpoint, device numbers that repeat or leave one out, a link without bandwidth, a negative
            number, a part that cannot be reached.
    """
    directed: Any = graph if graph.is_directed() else graph.to_directed()
    nodes = list(directed.nodes)
    index = {node: i for i, node in enumerate(nodes)}
    endpoints = _endpoints(directed, name)
    data = [directed.nodes[node] for node in endpoints]
    edges = list(directed.edges(data=True))
    if not edges:
        raise ConfigError(f"topology {name} has no links")
    kinds = tuple(dict.fromkeys(str(values.get("kind", "link")) for _, _, values in edges))
    numbers = np.array([_numbers(u, v, values, links, name) for u, v, values in edges])
    topology = Topology(
        name=name,
        nodes=tuple(str(node) for node in nodes),
        endpoints=np.array([index[node] for node in endpoints]),
        box=np.array([_whole(values.get("box", 0), "box", name) for values in data]),
        rail=np.array([_whole(values.get("rail", i), "rail", name) for i, values in enumerate(data)]),
        source=np.array([index[u] for u, _, _ in edges]),
        target=np.array([index[v] for _, v, _ in edges]),
        kind=np.array([kinds.index(str(values.get("kind", "link"))) for _, _, values in edges]),
        kinds=kinds,
        width=numbers[:, 0],
        bandwidth_bytes_per_s=numbers[:, 1],
        latency_s=numbers[:, 2],
        energy_j_per_byte=numbers[:, 3],
        layer=_layers(directed, nodes, endpoints),
        **extra,
    )
    _check_connected(topology)
    return topology


def _layers(graph: "nx.DiGraph[Any]", nodes: list[Any], endpoints: list[Any]) -> np.ndarray:
    ends = set(endpoints)
    heights = [graph.nodes[node].get("layer", float(node not in ends)) for node in nodes]
    for node, height in zip(nodes, heights, strict=True):
        if not _of(height, int, float, np.number) or not abs(height) < MOST:
            raise ConfigError(f"topology: node {node}: layer = {height!r} is not a plain number")
    return np.array(heights, dtype=float)


def _endpoints(graph: "nx.DiGraph[Any]", name: str) -> list[Any]:
    """Nodes that are devices, in the order of their numbers."""
    given = [(node, values.get("endpoint")) for node, values in graph.nodes(data=True)]
    numbered = {node: _whole(number, "endpoint", f"{name}: {node}") for node, number in given if number is not None}
    if not numbered:
        leaves = [node for node in graph.nodes if len({*graph.successors(node), *graph.predecessors(node)}) == 1]
        numbered = {node: i for i, node in enumerate(leaves)}
    if len(numbered) < 2:
        raise ConfigError(f"topology {name} has {len(numbered)} endpoints: give nodes an `endpoint` number, 0, 1, ...")
    ordered = sorted(numbered, key=lambda node: numbered[node])
    for index, node in enumerate(ordered):
        if numbered[node] == index:
            continue
        twice = index > 0 and numbered[ordered[index - 1]] == numbered[node]
        why = f"is that of {ordered[index - 1]} too" if twice else f"comes where {index} should"
        raise ConfigError(
            f"topology {name}: {node}: endpoint = {numbered[node]} {why}; allowed: the numbers 0 to {len(ordered) - 1},"
            " each once"
        )
    return ordered


def _numbers(u: Any, v: Any, values: dict[str, Any], links: Mapping[str, Cable] | None, name: str) -> list[float]:
    """(width, bandwidth, latency, energy) of an edge; the unit rate where no numbers are asked for."""
    where = f"topology {name}: link {u} -> {v}"
    kind, width = str(values.get("kind", "link")), _number(values.get("width", 1.0), "width", where)
    if "bandwidth_bytes_per_s" in values:
        result = [_number(values.get(key, 0.0), key, where) for key in NUMBERS]
    elif links is None:
        raise ConfigError(f"{where} has no bandwidth_bytes_per_s")
    elif kind not in links:
        raise ConfigError(f"{where} has no bandwidth_bytes_per_s: no link of kind {kind!r}{suggestion(kind, links)}")
    else:
        cable = links[kind]
        given = (width * cable.bandwidth_bytes_per_s, cable.latency_s, cable.energy_j_per_byte)
        result = [_number(value, key, where) for value, key in zip(given, NUMBERS, strict=True)]
    if not result[0] > 0:
        raise ConfigError(f"{where}: bandwidth_bytes_per_s = {result[0]:g} must be positive")
    return [width, *result]


def _of(value: Any, *kinds: type) -> bool:
    """True if a value is of one of these kinds of numbers, and no yes or no."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def _number(value: Any, key: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{where}: {key} = {value!r} is not a plain number") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ConfigError(f"{where}: {key} = {value!r} is outside [0, inf)")
    return number


def _whole(value: Any, key: str, where: str) -> int:
    if not _of(value, int, np.integer):
        raise ConfigError(f"topology {where}: {key} = {value!r} is not a whole number")
    if not 0 <= value < MOST:
        raise ConfigError(f"topology {where}: {key} = {value!r} is outside [0, {MOST})")
    return int(value)


def _check_connected(topology: Topology) -> None:
    """Every node must reach every other."""
    count = len(topology.nodes)
    matrix = scipy.sparse.coo_matrix(
        (np.ones(len(topology.source)), (topology.source, topology.target)), (count, count)
    )
    parts, label = scipy.sparse.csgraph.connected_components(matrix.tocsr(), directed=True, connection="strong")
    if parts > 1:
        first = topology.endpoints[0]
        other = int(np.flatnonzero(label != label[first])[0])
        raise ConfigError(
            f"topology {topology.name} is disconnected: {topology.nodes[other]} cannot be reached from"
            f" {topology.nodes[first]} and back ({parts} parts)"
        )
