"""Topology generators: tori, switched networks, PCIe fabrics."""

import abc
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import ConfigError
from .graph import Cable, Topology, from_networkx

if TYPE_CHECKING:
    import networkx as nx


# Interface of topology generators.


@dataclass(frozen=True)
class AbstractShape(abc.ABC):
    """A family of topologies with whole numbers for its dimensions: structure without rates, equal where equal.

    `kinds` names the links that a builder must be given numbers for.
    """

    kinds: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Counts are at least one, ratios positive."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ConfigError(f"{type(self).__name__}: {field.name} = {value} must be a whole number of at least 1")
            if isinstance(value, float) and not 0 < value < float("inf"):
                raise ConfigError(f"{type(self).__name__}: {field.name} = {value:g} must be positive")

    @abc.abstractmethod
    def graph(self) -> "nx.DiGraph[Any]":
        """Nodes with `endpoint`, `box`, `rail`, `layer`; edges with `kind` and `width`."""

    def label(self) -> str:
        """Name of the shape in figures and messages."""
        return type(self).__name__

    def extra(self) -> dict[str, Any]:
        """Routing hints beyond the graph: `forwards`, `orders`."""
        return {}

    def build(self, links: Mapping[str, Cable] | None = None) -> Topology:
        """The topology with these links; without, at unit rate (enough for routing, which counts hops).

        Raises:
            ConfigError: a kind of link without numbers, or numbers that cannot be.
        """
        graph = self.graph()
        unit = {str(values.get("kind")): Cable(1.0) for _, _, values in graph.edges(data=True)}
        return from_networkx(graph, self.label(), unit if links is None else links, **self.extra())


def both(graph: "nx.DiGraph[Any]", a: str, b: str, kind: str, width: float = 1.0) -> None:
    """A full-duplex cable."""
    graph.add_edge(a, b, kind=kind, width=width)
    graph.add_edge(b, a, kind=kind, width=width)


def new_graph() -> "nx.DiGraph[Any]":
    """A graph without nodes; only who draws one waits for networkx to load."""
    import networkx as nx

    graph: nx.DiGraph[Any] = nx.DiGraph()
    return graph


# Tori of any number of dimensions.


@dataclass(frozen=True)
class Torus(AbstractShape):
    """Endpoints that pass on each other's traffic, two neighbours in each dimension, numbered like a snake.

    Along the snake every step is one hop, so a group of neighbouring devices is a piece of it. Candidates for rings
    are the snakes with each of the dimensions running fastest.
    """

    extents: tuple[int, ...] = (4, 4)

    kinds: ClassVar[tuple[str, ...]] = ("link",)

    def label(self) -> str:
        """Its extents."""
        return "torus " + " x ".join(map(str, self.extents))

    def extra(self) -> dict[str, Any]:
        """Endpoints forward; one snake for each dimension."""
        number = {position: i for i, position in enumerate(_snake(self.extents))}
        orders: list[tuple[int, ...]] = []
        for axis in range(len(self.extents)):
            axes = [a for a in range(len(self.extents)) if a != axis] + [axis]
            places = _snake(tuple(self.extents[a] for a in axes))
            orders.append(
                tuple(number[tuple(position[axes.index(a)] for a in range(len(axes)))] for position in places)
            )
        return {"forwards": True, "orders": tuple(dict.fromkeys(orders))}

    def graph(self) -> "nx.DiGraph[Any]":
        """Every endpoint linked to its two neighbours in each dimension (one where an extent is 2).

        Raises:
            ConfigError: an extent below 1.
        """
        if not self.extents or min(self.extents) < 1:
            raise ConfigError(f"Torus: extents = {list(self.extents)} must be whole numbers of at least 1")
        graph, name = new_graph(), {index: f"gpu {i}" for i, index in enumerate(_snake(self.extents))}
        for number, position in enumerate(name):
            row = sum(i * 10**axis for axis, i in enumerate(reversed(position[:-1])))
            graph.add_node(name[position], endpoint=number, box=number, rail=0, layer=row)
        for position, axis in itertools.product(name, range(len(self.extents))):
            after = (*position[:axis], (position[axis] + 1) % self.extents[axis], *position[axis + 1 :])
            if after != position:
                both(graph, name[position], name[after], "link")
        return graph


def _snake(extents: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All places of a grid, each a step from the last; the last dimension runs fastest."""
    if not extents:
        return [()]
    inner, places = _snake(extents[1:]), list[tuple[int, ...]]()
    for i in range(extents[0]):
        places += [(i, *rest) for rest in (inner if i % 2 == 0 else inner[::-1])]
    return places


# PCIe fabrics: boxes of accelerators, switches at the top of the rack, root ports of one host.


@dataclass(frozen=True)
class PcieBoxes(AbstractShape):
    """Boxes under PCIe domains that meet, if at all, in the root complex of one host.

    A box holds `leaves` PCIe switches of `per_leaf` accelerators and a mesh among its accelerators. Of its leaves
    `uplinks` have a cable out; further leaves hang below these (cascade). A domain is a top switch, or one part of a
    partitioned switch, with a root port of its own. `split` 0 puts each box into one domain (standard); 1 puts the
    i-th share of every box's cables into domain i (rail-optimised).

    Source: [fabrex]; its drawings are lost, the graph is read from the names, the counts of cards and ports, and the
    measured rates.
    """

    boxes: int = 2
    leaves: int = 4
    per_leaf: int = 2
    uplinks: int = 4
    domains: int = 1
    switches: int = 1
    split: bool = False
    mesh: bool = True
    name: str = "PCIe boxes"

    kinds: ClassVar[tuple[str, ...]] = ("xgmi", "port", "cascade", "uplink", "root")

    def label(self) -> str:
        """The given name."""
        return self.name

    def graph(self) -> "nx.DiGraph[Any]":
        """Accelerators below leaves, leaves below domains, domains below the root complex.

        Raises:
            ConfigError: counts that do not divide.
        """
        self._check()
        graph = new_graph()
        for box in range(self.boxes):
            self._box(graph, box)
        graph.add_node("root complex", layer=3)
        for domain in range(self.domains):
            both(graph, f"domain {domain}", "root complex", "root")
            graph.nodes[f"domain {domain}"]["layer"] = 2
        return graph

    def _check(self) -> None:
        if self.leaves % self.uplinks:
            raise ConfigError(f"PcieBoxes: uplinks = {self.uplinks} does not divide leaves = {self.leaves}")
        if self.split and self.uplinks % self.domains:
            raise ConfigError(
                f"PcieBoxes: domains = {self.domains} does not divide uplinks = {self.uplinks} of a split"
            )
        if self.switches > self.domains or self.domains % self.switches:
            raise ConfigError(f"PcieBoxes: switches = {self.switches} does not divide domains = {self.domains}")

    def _box(self, graph: "nx.DiGraph[Any]", box: int) -> None:
        """One box: rails share a leaf, a cascade passes through the leaf that has the cable."""
        deep, names = self.leaves // self.uplinks, list[str]()
        for leaf in range(self.leaves):
            switch = f"box {box} leaf {leaf}"
            graph.add_node(switch, layer=1)
            for slot in range(self.per_leaf):
                names.append(f"gpu {box * self.leaves * self.per_leaf + leaf * self.per_leaf + slot}")
                number = box * self.leaves * self.per_leaf + leaf * self.per_leaf + slot
                graph.add_node(names[-1], endpoint=number, box=box, rail=leaf, layer=0)
                both(graph, names[-1], switch, "port")
            if leaf % deep:
                both(graph, switch, f"box {box} leaf {leaf - 1}", "cascade")
            else:
                both(graph, switch, f"domain {self._domain(box, leaf // deep)}", "uplink")
        if self.mesh:
            for i, one in enumerate(names):
                for other in names[i + 1 :]:
                    both(graph, one, other, "xgmi")

    def _domain(self, box: int, uplink: int) -> int:
        if self.split:
            return uplink * self.domains // self.uplinks
        return box * self.domains // self.boxes

    def connections(self) -> int:
        """Cables on the fullest top switch: uplinks and root ports."""
        cables = [self._domain(box, uplink) for box in range(self.boxes) for uplink in range(self.uplinks)]
        per_domain = [cables.count(domain) + 1 for domain in range(self.domains)]
        each = self.domains // self.switches
        return max(sum(per_domain[i * each : (i + 1) * each]) for i in range(self.switches))


# Switched topologies: one crossbar, a photonic circuit switch, fat trees, dragonfly.


@dataclass(frozen=True)
class Crossbar(AbstractShape):
    """Every endpoint has `planes` parallel ways to every other, one switch each (NVLink and NVSwitch).

    One plane with a wide link and many planes with narrow ones carry the same; routing takes one plane a destination,
    so `planes` above one shows what a striped fabric loses to single-path routing.
    """

    endpoints: int = 8
    planes: int = 1

    kinds: ClassVar[tuple[str, ...]] = ("port",)

    def label(self) -> str:
        """Size and planes."""
        return f"crossbar of {self.endpoints}"

    def graph(self) -> "nx.DiGraph[Any]":
        """Endpoints round a switch."""
        graph = new_graph()
        for i in range(self.endpoints):
            graph.add_node(f"gpu {i}", endpoint=i, box=0, rail=i, layer=0)
            for plane in range(self.planes):
                both(graph, f"gpu {i}", f"switch {plane}", "port")
        for plane in range(self.planes):
            graph.nodes[f"switch {plane}"]["layer"] = 1
        return graph


@dataclass(frozen=True)
class CircuitSwitch(AbstractShape):
    """Endpoints on a photonic switch that points whole wavelengths anywhere, `fibers` ports of them an endpoint.

    A standing circuit is a link of its own; an endpoint has as many partners at once as it has ports. The graph is
    that of the circuits a ring needs (`ring`), or of all pairs, each with an equal part of the wavelengths (`all`).
    Pointing a circuit elsewhere costs time, which belongs to the protocol of the link, not to the graph.

    Source: [lumorph].
    """

    endpoints: int = 8
    fibers: int = 2
    wavelengths: int = 16
    circuits: str = "ring"

    kinds: ClassVar[tuple[str, ...]] = ("wavelength",)

    def label(self) -> str:
        """Size and circuits."""
        return f"photonic circuits of {self.endpoints} ({self.circuits})"

    def extra(self) -> dict[str, bool]:
        """Endpoints pass on what their circuits do not reach."""
        return {"forwards": True}

    def graph(self) -> "nx.DiGraph[Any]":
        """A link of whole wavelengths for each standing circuit.

        Raises:
            ConfigError: circuits of no known name, or more partners than wavelengths.
        """
        partners = {"ring": 1, "all": self.endpoints - 1}
        if self.circuits not in partners:
            raise ConfigError(f"CircuitSwitch: circuits = {self.circuits!r} is neither 'ring' nor 'all'")
        width = self.fibers * self.wavelengths // partners[self.circuits]
        if not width:
            raise ConfigError(
                f"CircuitSwitch: {partners[self.circuits]} partners need as many wavelengths, an endpoint has"
                f" {self.fibers * self.wavelengths} (fibers x wavelengths)"
            )
        graph = new_graph()
        for i in range(self.endpoints):
            graph.add_node(f"gpu {i}", endpoint=i, box=0, rail=i, layer=0)
        for i in range(self.endpoints):
            for step in range(1, partners[self.circuits] + 1):
                graph.add_edge(f"gpu {i}", f"gpu {(i + step) % self.endpoints}", kind="wavelength", width=width)
        return graph


@dataclass(frozen=True)
class SwitchedTree(AbstractShape):
    """Nodes with one card under two levels of switches, routed D-mod-K (the real-life fat tree).

    `leaves` of `per_leaf` nodes below `spines`; full bisection where spines * width = per_leaf, else blocking.

    Source: [pcie_interference] section 4.2.1: 32 nodes are 8 leaves of 4 below 4 spines, 128 are 16 of 8 below 8.
    """

    leaves: int = 8
    per_leaf: int = 4
    spines: int = 4
    width: float = 1.0

    kinds: ClassVar[tuple[str, ...]] = ("port", "spine")

    def label(self) -> str:
        """Counts and blocking factor."""
        return f"fat tree {self.leaves} x {self.per_leaf} below {self.spines} (blocking {self.blocking:g})"

    @property
    def blocking(self) -> float:
        """Bandwidth into a leaf from below over that out of it."""
        return self.per_leaf / (self.spines * self.width)

    def graph(self) -> "nx.DiGraph[Any]":
        """Every leaf linked to every spine."""
        graph = new_graph()
        for leaf in range(self.leaves):
            graph.add_node(f"leaf {leaf}", layer=1)
            for slot in range(self.per_leaf):
                number = leaf * self.per_leaf + slot
                graph.add_node(f"node {number}", endpoint=number, box=number, rail=0, layer=0)
                both(graph, f"node {number}", f"leaf {leaf}", "port")
            for spine in range(self.spines):
                both(graph, f"leaf {leaf}", f"spine {spine}", "spine", self.width)
        for spine in range(self.spines):
            graph.nodes[f"spine {spine}"]["layer"] = 2
        return graph


@dataclass(frozen=True)
class RailCluster(AbstractShape):
    """A rail-optimised cluster: accelerators on a switch inside each node, one card each, card i on leaf i.

    `pod_nodes` nodes share a set of leaves, one leaf a rail; `spines` join all leaves with `1 / blocking` of the
    bandwidth that the leaves offer below. Traffic on one rail inside a pod crosses one leaf and never sees the spines.

    Source: [nvidia_superpod], compute fabric.
    """

    nodes: int = 16
    per_node: int = 8
    pod_nodes: int = 8
    spines: int = 8
    blocking: float = 1.0

    kinds: ClassVar[tuple[str, ...]] = ("nvlink", "rail", "spine")

    def label(self) -> str:
        """Counts and blocking factor."""
        return f"rail-optimised, {self.nodes} nodes of {self.per_node} (blocking {self.blocking:g})"

    def graph(self) -> "nx.DiGraph[Any]":
        """Accelerators with two ways out: the node's switch and the rail's leaf.

        Raises:
            ConfigError: nodes that do not fill pods.
        """
        if self.nodes % self.pod_nodes:
            raise ConfigError(f"RailCluster: pod_nodes = {self.pod_nodes} does not divide nodes = {self.nodes}")
        graph = new_graph()
        pods = self.nodes // self.pod_nodes
        for node in range(self.nodes):
            graph.add_node(f"node {node} switch", layer=-1)
            for rail in range(self.per_node):
                number = node * self.per_node + rail
                graph.add_node(f"gpu {number}", endpoint=number, box=node, rail=rail, layer=0)
                both(graph, f"gpu {number}", f"node {node} switch", "nvlink")
                both(graph, f"gpu {number}", f"leaf {node // self.pod_nodes}.{rail}", "rail")
        for pod in range(pods):
            for rail in range(self.per_node):
                graph.nodes[f"leaf {pod}.{rail}"]["layer"] = 1
                for spine in range(self.spines):
                    width = self.pod_nodes / (self.spines * self.blocking)
                    both(graph, f"leaf {pod}.{rail}", f"spine {spine}", "spine", width)
                    graph.nodes[f"spine {spine}"]["layer"] = 2
        return graph


@dataclass(frozen=True)
class Dragonfly(AbstractShape):
    """Groups of routers, all to all inside a group, one global cable between every two groups at least.

    `routers` a group with `per_router` endpoints and `global_ports` cables out of each; the usual balance is
    routers = 2 per_router = 2 global_ports. Routing is minimal.
    """

    groups: int = 3
    routers: int = 4
    per_router: int = 2
    global_ports: int = 2

    kinds: ClassVar[tuple[str, ...]] = ("port", "local", "global")

    def label(self) -> str:
        """Numbers of groups, routers and devices, in words."""
        return f"dragonfly {self.groups} x {self.routers} x {self.per_router}"

    def graph(self) -> "nx.DiGraph[Any]":
        """Global ports are dealt to the other groups in turn.

        Raises:
            ConfigError: too few global ports for a cable to every other group.
        """
        ports, others = self.routers * self.global_ports, self.groups - 1
        if ports < others:
            raise ConfigError(f"Dragonfly: {ports} global ports a group cannot reach {others} other groups")
        graph = new_graph()
        for group in range(self.groups):
            for router in range(self.routers):
                self._router(graph, group, router)
        each = ports // others if others else 0
        for one in range(self.groups):
            for other in range(one + 1, self.groups):
                for cable in range(each):
                    here, there = (other - 1) * each + cable, one * each + cable
                    ends = [f"router {g}.{p // self.global_ports}" for g, p in ((one, here), (other, there))]
                    _widen(graph, *ends)
        return graph

    def _router(self, graph: "nx.DiGraph[Any]", group: int, router: int) -> None:
        name = f"router {group}.{router}"
        graph.add_node(name, layer=1)
        for slot in range(self.per_router):
            number = (group * self.routers + router) * self.per_router + slot
            graph.add_node(f"gpu {number}", endpoint=number, box=group * self.routers + router, rail=slot, layer=0)
            both(graph, f"gpu {number}", name, "port")
        for other in range(router):
            both(graph, name, f"router {group}.{other}", "local")


def _widen(graph: "nx.DiGraph[Any]", a: str, b: str) -> None:
    """One more global cable between two routers."""
    width = graph.edges[a, b]["width"] + 1 if graph.has_edge(a, b) else 1.0
    both(graph, a, b, "global", width)
