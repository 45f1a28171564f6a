"""Autoscaling policies: how many replicas a fleet should have, from what is seen of it now and then.

TargetUtilisation   so many that the rate just seen fills each to a share of what it is good for
KeepSLO             more where requests miss their SLO, one fewer where a while nobody did
Scheduled           by a profile of rates that is known, as far ahead as a replica takes to start

A replica that is started is paid from then on and takes requests after `start_s`.

Source: target tracking as in Kubernetes' horizontal autoscaler [k8s_hpa].
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.errors import ConfigError

__all__ = ["FleetState", "KeepSLO", "Scaling", "Scheduled", "TargetUtilisation"]


class FleetState(NamedTuple):
    """A fleet at one time.

    now: seconds; rate: requests/s since the time before; ready, starting: replicas; outstanding: requests that are not
    answered; late_share: of those answered since the time before, who missed the SLO; start_s: of a replica.
    """

    now: float
    rate: float
    ready: int
    starting: int
    outstanding: int
    late_share: float
    start_s: float


@dataclass(frozen=True)
class Scaling:
    """A policy, asked every `every_s`, between `least` and `most` replicas, each of which takes `start_s` to start.

    slo: TTFT and TPOT in seconds that `late_share` counts by.
    """

    policy: Callable[[FleetState], float]
    every_s: float = 15.0
    start_s: float = 60.0
    least: int = 1
    most: int = 1024
    slo: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """An interval above 0 and an order of the bounds.

        Raises:
            ConfigError: naming what is not.
        """
        if not (self.every_s > 0 and self.start_s >= 0):
            raise ConfigError(
                f"scaling: every_s = {self.every_s:g} must be above 0 and start_s = {self.start_s:g} not below"
            )
        if not 1 <= self.least <= self.most:
            raise ConfigError(f"scaling: least = {self.least} and most = {self.most}: 1 <= least <= most")


@dataclass
class TargetUtilisation:
    """Policy of a target utilisation: rate / (share good_for) replicas, scaled down only after `hold_s`."""

    good_for: float  # requests/s of a replica
    share: float = 0.7
    hold_s: float = 300.0
    _wanted: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]], repr=False)

    def __call__(self, seen: FleetState) -> float:
        """Number of replicas for the present rate, or the largest one asked for within `hold_s`."""
        self._wanted = [one for one in self._wanted if one[0] > seen.now - self.hold_s]
        self._wanted.append((seen.now, seen.rate / (self.share * self.good_for)))
        return max(want for _, want in self._wanted)


@dataclass
class KeepSLO:
    """Policy of an SLO: a share `step` more replicas where more than `allowed` were late; one fewer after `calm_s`."""

    allowed: float = 0.01
    step: float = 0.25
    calm_s: float = 300.0
    _since: float = 0.0

    def __call__(self, seen: FleetState) -> float:
        """Number of replicas after the requests that were late."""
        here = seen.ready + seen.starting
        if seen.late_share > self.allowed:
            self._since = seen.now
            return here if seen.starting else here + math.ceil(self.step * here)
        if seen.now - self._since < self.calm_s:
            return here
        self._since = seen.now
        return here - 1


@dataclass(frozen=True)
class Scheduled:
    """Predictive policy: replicas for the largest known rate until a replica that starts now has served an interval.

    rates: requests/s of each interval of `interval_s`, from 0 on; after the last the first again.
    """

    rates: Sequence[float]
    interval_s: float
    good_for: float
    share: float = 0.7
    every_s: float = 15.0

    def __call__(self, seen: FleetState) -> float:
        """Number of replicas for the rates that are known to come."""
        first = int(seen.now // self.interval_s)
        last = int((seen.now + seen.start_s + self.every_s) // self.interval_s)
        known = [self.rates[one % len(self.rates)] for one in range(first, last + 1)]
        return max(known) / (self.share * self.good_for)
