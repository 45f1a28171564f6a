"""A fabric that answers from a routed topology: every link of every path counted."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....core.errors import ConfigError, suggestion
from ....core.fields import part, quantity, static
from ....core.jax_typed import arrays, asarray
from ....core.smooth import largest, maximum
from ...hardware import AbstractProtocol, Channel, Link, Pcie
from ..topology import PATTERNS, AbstractShape, Cable, PcieBoxes, Routes, Topology, TopologyFile, all_flows, load, route
from .base import AbstractFabric, Group

BLOCK = 16  # a topology up to this size lists every size of group, a larger one powers of two and divisors


def seconds_per_byte(load: Float[Array, " links"], bandwidth_bytes_per_s: Float[Array, " links"]) -> Array:
    """Inverse rate of a group whose flows put `load` on the links: max load / bandwidth, link by link.

    Load as `topology.load` counts it, bytes per byte that a member sends. Differentiable in every link's bandwidth,
    smooth where a search reads maxima smoothly; the hard slope is minus the dual price over the rate's square.
    """
    return largest(load / bandwidth_bytes_per_s)


class RoutedTopology(AbstractFabric):
    """Devices at the endpoints of a graph; each group's traffic is routed once, its rate follows every link's rate.

        beta  = max over kinds of link ( load of the fullest such link x seconds per byte )
        alpha = sum of the hops' latencies, the mean over the messages of the pattern

    Load counts the bytes that cross a link per byte that a member sends, with all groups of the same size and stride
    talking at once and their rings (one on each way out of a box) sharing the traffic equally. Loads and hop counts are
    constants of the shape; rates and latencies belong to `links`, one protocol for each kind of link, and stay
    continuous. Sizes and strides between the listed ones are read as the next larger. The tables are leaves, so that
    topologies with the same kinds of link and about as many endpoints are data to one compiled program.

    Assumes: fewest-hop routes that do not adapt; the pattern (`ring`, `tree` or `all_to_all`) stands for all
    operations; each ring keeps its constant share. Log-convex in every number of every link. A smooth maximum over m
    kinds that are full together exceeds the hard one by up to a factor m^(1/p).
    Source: the multi-ring schedule of [fabrex] (experiments/fabrex_topologies).
    """

    shape: AbstractShape = static()
    links: dict[str, AbstractProtocol] = part()
    pattern: str = static()
    rails: int = static()
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(
        default=0.0, doc="of every cable, by its raw rate", usual=(3.3e-9, 1.2e-7)
    )
    static_w: Float[Array, "*b"] = quantity(default=0.0, usual=(25.0, 90.0))
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(
        default=0.0, doc="of every cable, by its raw rate", usual=(8.8e-11, 2.6e-9)
    )
    sizes: Float[Array, " s"] = part()
    loads: Float[Array, "s s kinds"] = part()
    hops: Float[Array, "s s kinds"] = part()
    cables: Float[Array, " kinds"] = part()

    def __init__(
        self,
        shape: AbstractShape,
        links: dict[str, AbstractProtocol],
        pattern: str = "ring",
        rails: int = 0,
        fixed_usd: Any = 0.0,
        usd_per_bytes_per_s: Any = 0.0,
        static_w: Any = 0.0,
        static_w_per_bytes_per_s: Any = 0.0,
    ):
        """Route the shape for every group it can hold.

        Raises:
            ConfigError: an unknown pattern, a kind of link without a protocol or one that the shape does not have.
        """
        if pattern not in PATTERNS:
            raise ConfigError(f"pattern = {pattern!r} is not known{suggestion(pattern, PATTERNS)}")
        topology = shape.build()
        kinds = {*topology.kinds, *shape.kinds}
        for kind in topology.kinds:
            if kind not in links:
                raise ConfigError(f"links.{kind} is missing: {topology.name} has links of that kind, without bandwidth")
        for kind in links:
            if kind not in kinds:
                raise ConfigError(f"links.{kind}: {topology.name} has no such links{suggestion(kind, kinds)}")
        self.shape, self.pattern, self.rails = shape, pattern, rails
        self.links = {kind: links[kind] for kind in sorted(links)}
        self.fixed_usd, self.usd_per_bytes_per_s = fixed_usd, usd_per_bytes_per_s
        self.static_w, self.static_w_per_bytes_per_s = static_w, static_w_per_bytes_per_s
        tables = tabulate(shape, pattern, rails)
        self.sizes = asarray(tables.sizes)
        self.loads, self.hops = (_columns(table, topology.kinds, self.links) for table in (tables.loads, tables.hops))
        widths = np.bincount(topology.kind, topology.width, len(topology.kinds))
        self.cables = _columns(widths / 2 / topology.size, topology.kinds, self.links)

    def link(self, group: Group) -> Link:
        """Link that a member sees while all groups of its kind talk."""
        row, column = (self._listed(value) for value in (group.size, group.stride))
        loads, hops = self.loads[row, column], self.hops[row, column]
        protocols = list(self.links.values())
        busy = [loads[i] * protocol.seconds_per_byte() for i, protocol in enumerate(protocols)]
        slowest = maximum(*busy) if len(busy) > 1 else busy[0]
        latency = sum(hops[i] * protocol.hop_latency_s() for i, protocol in enumerate(protocols))
        energy = sum(hops[i] * protocol.joules_per_byte() for i, protocol in enumerate(protocols))
        return Link(asarray(latency), slowest, asarray(energy))

    def _listed(self, value: Array) -> Array:
        """Index of the smallest listed number that is no smaller."""
        return jnp.minimum(jnp.sum(self.sizes < value - 1e-6), len(self.sizes) - 1)

    def reach(self) -> Array:
        """All endpoints of the topology."""
        return self.sizes[-1]

    def capex_usd(self) -> Array:
        """Every cable by its raw rate, and what an endpoint costs besides."""
        return self.fixed_usd + self.usd_per_bytes_per_s * self._wires()

    def static_power_w(self) -> Array:
        """Every cable by its raw rate, and what an endpoint draws besides."""
        return self.static_w + self.static_w_per_bytes_per_s * self._wires()

    def _wires(self) -> Array:
        """Raw bytes per second of all cables, a direction, an endpoint."""
        return asarray(sum(self.cables[i] * link.wire_bytes_per_s() for i, link in enumerate(self.links.values())))

    def topology(self) -> Topology:
        """The graph with the numbers that its links have now, for reports."""
        cables = {
            kind: Cable(1 / float(link.seconds_per_byte()), float(link.hop_latency_s()), float(link.joules_per_byte()))
            for kind, link in self.links.items()
        }
        return self.shape.build(cables)

    def group_load(self, size: float, stride: float) -> tuple[Topology, np.ndarray]:
        """(topology, load of each link) while all groups of this kind talk, for reports."""
        topology = self.topology()
        members, step = (float(self.sizes[self._listed(asarray(value))]) for value in (size, stride))
        members = min(members, topology.size // step)
        return topology, load(route(topology), all_flows(topology, int(members), int(step), self.pattern, self.rails))

    @classmethod
    def example(cls) -> "RoutedTopology":
        """Two boxes."""
        links: dict[str, AbstractProtocol] = {kind: Pcie(asarray(16e9)) for kind in ("port", "root", "uplink")}
        links["xgmi"] = Channel(*arrays(64e9, 1e-6))
        return cls(PcieBoxes(domains=2, split=True), links, usd_per_bytes_per_s=4e-9, static_w=20.0)


def _columns(table: np.ndarray, kinds: tuple[str, ...], links: dict[str, AbstractProtocol]) -> Array:
    """The table's last axis in the order of `links`; a kind of which this shape has no link carries nothing."""
    padded = np.concatenate([table, np.zeros_like(table[..., :1])], axis=-1)
    return asarray(padded[..., [kinds.index(kind) if kind in kinds else len(kinds) for kind in links]])


class Tables(NamedTuple):
    """sizes: [S] listed sizes and strides, the last repeated; loads, hops: [S, S, kinds] by size and stride."""

    sizes: np.ndarray
    loads: np.ndarray
    hops: np.ndarray


@functools.cache
def tabulate(shape: AbstractShape, pattern: str, rails: int) -> Tables:
    """The fullest link of each kind, and the mean number of links of each kind on a path, for every listed group.

    A group of one reads as a pair, and one that does not fit as the largest that does. Tables are filled up to whole
    blocks of rows, so that topologies of many sizes have tables of one shape.
    """
    topology = shape.build()
    routes, count = route(topology), topology.size
    listed = {2**i for i in range(count.bit_length())} | {n for n in range(1, count + 1) if count % n == 0}
    group_sizes = sorted(range(1, count + 1) if count <= BLOCK else listed)
    sizes = np.array(group_sizes + [count] * (-len(group_sizes) % BLOCK), dtype=float)
    kinds, result = len(topology.kinds), dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]()
    loads, hops = (np.zeros((len(sizes), len(sizes), kinds)) for _ in range(2))
    for row, size in enumerate(sizes):
        for column, stride in enumerate(sizes):
            step = int(min(stride, count // 2))
            members = int(max(2, min(size, count // step)))
            if (members, step) not in result:
                result[members, step] = _figures(routes, members, step, pattern, rails)
            loads[row, column], hops[row, column] = result[members, step]
    return Tables(sizes, loads, hops)


def _figures(routes: Routes, members: int, stride: int, pattern: str, rails: int) -> tuple[np.ndarray, np.ndarray]:
    """(fullest link of each kind per parallel link, mean links of each kind on a path)."""
    topology = routes.topology
    flows = all_flows(topology, members, stride, pattern, rails)
    on_link = load(routes, flows) / topology.width
    fullest = np.array([on_link[topology.kind == kind].max() for kind in range(len(topology.kinds))])
    crossed = routes.by_kind(flows.source, flows.target)
    return fullest, np.average(crossed, axis=0, weights=flows.weight)


def topology_from_file(
    path: str,
    pattern: str = "ring",
    rails: int = 0,
    fixed_usd: float = 0.0,
    usd_per_bytes_per_s: float = 0.0,
    static_w: float = 0.0,
    static_w_per_bytes_per_s: float = 0.0,
) -> RoutedTopology:
    """The fabric of a topology file; every kind of link keeps the file's numbers as leaves of its own.

    Args:
        path: a YAML edge list or node-link JSON.
        pattern, rails: as `RoutedTopology` has them, and so the prices.

    Raises:
        ConfigError: whatever is wrong with the file.
    """
    shape = TopologyFile(path)
    topology = shape.build()
    links: dict[str, AbstractProtocol] = {}
    for number, kind in enumerate(topology.kinds):
        edge = int(np.flatnonzero(topology.kind == number)[0])
        rate = topology.bandwidth_bytes_per_s[edge] / topology.width[edge]
        links[kind] = Channel(*arrays(rate, topology.latency_s[edge], topology.energy_j_per_byte[edge]))
    return RoutedTopology(
        shape, links, pattern, rails, fixed_usd, usd_per_bytes_per_s, static_w, static_w_per_bytes_per_s
    )
