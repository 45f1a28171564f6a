"""Failures, and the share of a job's time that is productive."""

from .failures import Failure as Failure
from .failures import Reliability as Reliability
from .failures import best_interval_s as best_interval_s
from .failures import growth as growth
from .failures import least_growth as least_growth
from .failures import young_interval_s as young_interval_s

__all__ = ["Failure", "Reliability", "best_interval_s", "growth", "least_growth", "young_interval_s"]
