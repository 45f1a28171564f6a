"""An engine that batches continuously, request by request: what closed forms of serving are held against."""

from .engine import Engine as Engine
from .engine import RooflineSteps as RooflineSteps
from .engine import StepTimes as StepTimes
from .engine import TabulatedSteps as TabulatedSteps
from .no_scheduler import least_token_s as least_token_s
from .no_scheduler import mean_request as mean_request
from .no_scheduler import most_rate as most_rate
from .replica import Replica as Replica
from .replica import SpeculatingReplica as SpeculatingReplica
from .requests import LEAST_REQUESTS as LEAST_REQUESTS
from .requests import Requests as Requests
from .requests import arrivals as arrivals
from .requests import lengths as lengths
from .requests import read_trace as read_trace
from .serve import TIMELINE as TIMELINE
from .serve import HandoverTimes as HandoverTimes
from .serve import ServedTimes as ServedTimes
from .serve import simulate_apart as simulate_apart
from .serve import simulate_closed as simulate_closed
from .serve import simulate_open as simulate_open
from .serve import simulate_run as simulate_run

__all__ = [
    "LEAST_REQUESTS", "TIMELINE", "Engine", "HandoverTimes", "Replica", "Requests", "RooflineSteps", "ServedTimes",
    "SpeculatingReplica", "StepTimes", "TabulatedSteps", "arrivals", "least_token_s", "lengths", "mean_request",
    "most_rate", "read_trace", "simulate_apart", "simulate_closed", "simulate_open", "simulate_run",
]  # fmt: skip
