"""Tori of any number of dimensions."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import ConfigError
from .shapes import AbstractShape, both, new_graph

if TYPE_CHECKING:
    import networkx as nx


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
        number = {place: i for i, place in enumerate(_snake(self.extents))}
        orders: list[tuple[int, ...]] = []
        for axis in range(len(self.extents)):
            axes = [a for a in range(len(self.extents)) if a != axis] + [axis]
            places = _snake(tuple(self.extents[a] for a in axes))
            orders.append(tuple(number[tuple(place[axes.index(a)] for a in range(len(axes)))] for place in places))
        return {"forwards": True, "orders": tuple(dict.fromkeys(orders))}

    def graph(self) -> "nx.DiGraph[Any]":
        """Every endpoint linked to its two neighbours in each dimension (one where an extent is 2).

        Raises:
            ConfigError: an extent below 1.
        """
        if not self.extents or min(self.extents) < 1:
            raise ConfigError(f"Torus: extents = {list(self.extents)} must be whole numbers of at least 1")
        graph, name = new_graph(), {index: f"gpu {i}" for i, index in enumerate(_snake(self.extents))}
        for number, place in enumerate(name):
            row = sum(i * 10**axis for axis, i in enumerate(reversed(place[:-1])))
            graph.add_node(name[place], endpoint=number, box=number, rail=0, layer=row)
        for place, axis in itertools.product(name, range(len(self.extents))):
            after = (*place[:axis], (place[axis] + 1) % self.extents[axis], *place[axis + 1 :])
            if after != place:
                both(graph, name[place], name[after], "link")
        return graph


def _snake(extents: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All places of a grid, each a step from the last; the last dimension runs fastest."""
    if not extents:
        return [()]
    inner, places = _snake(extents[1:]), list[tuple[int, ...]]()
    for i in range(extents[0]):
        places += [(i, *rest) for rest in (inner if i % 2 == 0 else inner[::-1])]
    return places
