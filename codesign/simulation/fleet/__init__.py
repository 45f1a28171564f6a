"""Many replicas under one stream of requests: routing, prefix caches, failures, scaling; traffic and its measures."""

from .autoscalers import FleetState as FleetState
from .autoscalers import KeepSLO as KeepSLO
from .autoscalers import LeastReplicas as LeastReplicas
from .autoscalers import Scaling as Scaling
from .autoscalers import ScheduledScaling as ScheduledScaling
from .autoscalers import TargetUtilisation as TargetUtilisation
from .autoscalers import least_replicas as least_replicas
from .autoscalers import least_work as least_work
from .fleet import Failures as Failures
from .fleet import keeps_slo as keeps_slo
from .fleet import simulate_fleet as simulate_fleet
from .fleet_outcome import FleetServed as FleetServed
from .fleet_outcome import LatencyLimits as LatencyLimits
from .fleet_traffic import Modulation as Modulation
from .fleet_traffic import RequestClass as RequestClass
from .fleet_traffic import Reuse as Reuse
from .fleet_traffic import by_profile as by_profile
from .fleet_traffic import conversations as conversations
from .fleet_traffic import dispersion as dispersion
from .fleet_traffic import markov_modulated as markov_modulated
from .fleet_traffic import reuse_of as reuse_of
from .fleet_traffic import traffic_measures as traffic_measures
from .prefill_decode import ONE_QUEUE as ONE_QUEUE
from .prefill_decode import TwoPoolsServed as TwoPoolsServed
from .prefill_decode import simulate_two_pools as simulate_two_pools
from .routers import ROUTERS as ROUTERS
from .routers import AbstractRouter as AbstractRouter
from .routers import router_of as router_of

__all__ = [
    "ONE_QUEUE", "ROUTERS", "AbstractRouter", "Failures", "FleetServed", "FleetState", "KeepSLO", "LatencyLimits",
    "LeastReplicas", "Modulation", "RequestClass", "Reuse", "Scaling", "ScheduledScaling", "TargetUtilisation",
    "TwoPoolsServed", "by_profile", "conversations", "dispersion", "keeps_slo", "least_replicas", "least_work",
    "markov_modulated", "reuse_of", "router_of", "simulate_fleet", "simulate_two_pools", "traffic_measures",
]  # fmt: skip
