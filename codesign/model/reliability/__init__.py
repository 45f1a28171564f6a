"""Failures, and the share of a job's time that is productive."""

from .failures import Failure as Failure
from .failures import Reliability as Reliability
from .renewal import best_interval_s as best_interval_s
from .renewal import growth as growth
from .renewal import least_growth as least_growth
from .renewal import young_interval_s as young_interval_s

__all__ = ["Failure", "Reliability", "best_interval_s", "growth", "least_growth", "young_interval_s"]
