"""PCIe fabrics: boxes of accelerators, switches at the top of the rack, root ports of one host."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import ConfigError
from .shapes import AbstractShape, both, new_graph

if TYPE_CHECKING:
    import networkx as nx


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
