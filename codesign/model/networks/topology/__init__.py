"""Topologies as graphs: generators, files, routing, load, and what limits a group."""

from .files import TopologyFile as TopologyFile
from .files import read_topology as read_topology
from .graph import Cable as Cable
from .graph import Topology as Topology
from .graph import from_networkx as from_networkx
from .link_programme import FlowSolution as FlowSolution
from .link_programme import best_rates as best_rates
from .link_programme import crossings as crossings
from .link_programme import equal_rate as equal_rate
from .link_programme import full_links as full_links
from .link_programme import gains as gains
from .link_programme import limit as limit
from .pcie import PcieBoxes as PcieBoxes
from .places import link_columns as link_columns
from .rings import PATTERNS as PATTERNS
from .rings import Flows as Flows
from .rings import all_flows as all_flows
from .rings import group_flows as group_flows
from .rings import load as load
from .rings import load_by_ring as load_by_ring
from .rings import ring_orders as ring_orders
from .routing import Routes as Routes
from .routing import route as route
from .shapes import AbstractShape as AbstractShape
from .switched import CircuitSwitch as CircuitSwitch
from .switched import Crossbar as Crossbar
from .switched import Dragonfly as Dragonfly
from .switched import RailCluster as RailCluster
from .switched import SwitchedTree as SwitchedTree
from .tori import Torus as Torus

__all__ = [
    "PATTERNS",
    "AbstractShape",
    "Cable",
    "CircuitSwitch",
    "Crossbar",
    "Dragonfly",
    "FlowSolution",
    "Flows",
    "PcieBoxes",
    "RailCluster",
    "Routes",
    "SwitchedTree",
    "Topology",
    "TopologyFile",
    "Torus",
    "all_flows",
    "best_rates",
    "crossings",
    "equal_rate",
    "from_networkx",
    "full_links",
    "gains",
    "group_flows",
    "limit",
    "link_columns",
    "load",
    "load_by_ring",
    "read_topology",
    "ring_orders",
    "route",
]  # fmt: skip
