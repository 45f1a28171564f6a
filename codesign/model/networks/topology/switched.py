"""Switched topologies: one crossbar, a photonic circuit switch, fat trees, dragonfly."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import ConfigError
from .shapes import AbstractShape, both, new_graph

if TYPE_CHECKING:
    import networkx as nx


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
        """Counts."""
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
