"""Packet-level simulations that closed forms are held against; plain NumPy, no knowledge of the models."""

from .events import simulate_events as simulate_events
from .node_network import NetworkOutcome as NetworkOutcome
from .node_network import NodeNetwork as NodeNetwork
from .queues import simulate_queues as simulate_queues
