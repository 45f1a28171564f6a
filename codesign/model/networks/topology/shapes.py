"""Interface of topology generators."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import ConfigError
from .graph import Cable, Topology, from_networkx

if TYPE_CHECKING:
    import networkx as nx


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
