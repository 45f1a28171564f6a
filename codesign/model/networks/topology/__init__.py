"""Topologies as graphs: generators, files, routing, load, and what limits a group."""

from .files import TopologyFile as TopologyFile
from .files import read_topology as read_topology
from .graph import Cable as Cable
from .graph import Topology as Topology
from .graph import from_networkx as from_networkx
from .routing import PATTERNS as PATTERNS
from .routing import Flows as Flows
from .routing import FlowSolution as FlowSolution
from .routing import Routes as Routes
from .routing import all_flows as all_flows
from .routing import best_rates as best_rates
from .routing import crossings as crossings
from .routing import equal_rate as equal_rate
from .routing import full_links as full_links
from .routing import gains as gains
from .routing import group_flows as group_flows
from .routing import limit as limit
from .routing import link_columns as link_columns
from .routing import load as load
from .routing import load_by_ring as load_by_ring
from .routing import ring_orders as ring_orders
from .routing import route as route
from .shapes import AbstractShape as AbstractShape
from .shapes import CircuitSwitch as CircuitSwitch
from .shapes import Crossbar as Crossbar
from .shapes import Dragonfly as Dragonfly
from .shapes import PcieBoxes as PcieBoxes
from .shapes import RailCluster as RailCluster
from .shapes import SwitchedTree as SwitchedTree
from .shapes import Torus as Torus

__all__ = [
    "PATTERNS", "AbstractShape", "Cable", "CircuitSwitch", "Crossbar", "Dragonfly", "FlowSolution", "Flows",
    "PcieBoxes", "RailCluster", "Routes", "SwitchedTree", "Topology", "TopologyFile", "Torus", "all_flows",
    "best_rates", "crossings", "equal_rate", "from_networkx", "full_links", "gains", "group_flows", "limit",
    "link_columns", "load", "load_by_ring", "read_topology", "ring_orders", "route",
]  # fmt: skip
