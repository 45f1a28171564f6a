"""Simulations that closed forms are held against, of packets and (`serving`) of requests; no model is known here."""

from . import failing_jobs as failing_jobs
from .events import Links as Links
from .events import simulate_events as simulate_events
from .node_network import NetworkOutcome as NetworkOutcome
from .node_network import NodeNetwork as NodeNetwork
from .queues import simulate_queues as simulate_queues

__all__ = ["Links", "NetworkOutcome", "NodeNetwork", "failing_jobs", "simulate_events", "simulate_queues"]
