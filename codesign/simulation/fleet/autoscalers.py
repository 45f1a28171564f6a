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
from typing import Any, NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ...core.errors import ConfigError
from ..serving.engine import Engine, TabulatedSteps
from ..serving.requests import Requests
from .fleet_outcome import LatencyLimits
from .fleet_traffic import reuse_of

__all__ = [
    "FleetState", "KeepSLO", "LeastReplicas", "Scaling", "ScheduledScaling", "TargetUtilisation", "least_replicas",
    "least_work",
]  # fmt: skip


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
class ScheduledScaling:
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
        rates_ahead = [self.rates[one % len(self.rates)] for one in range(first, last + 1)]
        return max(rates_ahead) / (self.share * self.good_for)


# Bound that no autoscaling policy beats, however much it knows of what will come: a linear programme in time.
#
# A step of t seconds that decodes n sequences and computes q prompt tokens has
#
#     a n + b q - mu n t <= t        for every step of a table
#
# beside what it reads of contexts, and for any part of its sequences and tokens, since fewer take no longer. Summed
# over the steps of those who keep the limit p between tokens, each needs w = (a - mu p) steps + b tokens + its own
# attention seconds of some engine, whatever the schedule; a, b, mu are those that make this most. With n_k replicas
# up in interval k of d seconds (the mean over it), u_k started, S_k seconds of such work done by its end and A_k come
# by its end,
#
#     min  d sum n_k + start sum u_k        u_k >= n_k - n_(k-1)
#          S_k - S_(k-1) <= d n_k           no engine does more than a second a second
#          S_k <= A_k                       nor work that has not come
#          S_k >= A_(k-m) - G               who keeps the limits is done m intervals after coming
#
# once for prompts, which end before the limit on the first token, and once for decodes; G is the most work that the
# share of requests has that may miss its limits. A policy's replica-seconds are those of a feasible point, so the
# optimum is at most as many as those of any policy that keeps the limits for that share, with any router.
#
# Assumes: steps of a table, which are no shorter for more; linear between its numbers of prompt tokens.


INTERVALS = 720  # that a time is cut into, at most
ROUNDING = 1e-7  # of the optimum, which it is lowered by: a solver's feasibility


class LeastReplicas(NamedTuple):
    """Replica-seconds of any policy at least, and replicas along the time that reach them in the programme."""

    replica_s: float
    interval_s: float
    replicas: np.ndarray


def least_work(engine: Engine, requests: Requests, tpot_s: float = math.inf) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of an engine that each request's prompt needs at least, and its decodes; prefixes used before are free.

    Args:
        engine: whose steps are tabulated.
        requests: what comes.
        tpot_s: limit between tokens that they keep.

    Raises:
        ConfigError: an engine whose steps are no table.
    """
    times = engine.times
    if not isinstance(times, TabulatedSteps):
        raise ConfigError("a bound on replicas needs an engine whose steps are tabulated")
    tokens, steps = requests.prompts * 1.0, (requests.outputs - 1.0) / engine.verified
    cached_tokens = np.zeros(len(requests))
    if engine.store_blocks and requests.hashed:
        reuse = reuse_of(requests)
        starts = requests.hash_starts[:-1]
        sizes = np.diff(requests.hash_starts)
        sums = np.add.reduceat(np.append(reuse.before >= 0, False), np.minimum(starts, len(reuse.before)))
        cached_tokens = np.where(sizes > 0, sums, 0) * float(requests.hash_tokens)
    if engine.prefix_cache and len(requests.prefixes):
        cached_tokens = np.maximum(cached_tokens, requests.prefix_tokens * (requests.prefixes >= 0))
    computed = np.maximum(tokens - cached_tokens, 1.0)
    rows, chunk = np.arange(engine.sequences + 1.0), float(min(engine.chunk, engine.budget))
    columns = np.unique(np.minimum([*times.prompt_tokens, chunk], chunk))
    n, q = (each.ravel() for each in np.meshgrid(rows, columns, indexing="ij"))
    seconds = np.array([times.linear_s(float(b), float(c)) for b, c in zip(n, q, strict=True)])
    limit = tpot_s * engine.verified
    bound = math.isfinite(limit)
    result = scipy.optimize.linprog(
        [-float(steps.sum()), -float(computed.sum()), limit * float(steps.sum()) if bound else 0.0],
        A_ub=np.stack([n, q, -n * seconds], 1), b_ub=seconds,
        bounds=[(0, None), (0, None), (0, None if bound else 0.0)],
    )  # fmt: skip
    price, prompt, slower = result.x
    decode = max(price - slower * limit if bound else price, 0.0) * (1 - ROUNDING)
    prompt *= 1 - ROUNDING
    reading = max(min(times.context_s(float(b)) for b in rows), 0.0)
    context = steps * tokens + 0.5 * steps * np.maximum(steps - 1, 0.0)
    keys = computed * (tokens - computed) + 0.5 * computed**2
    return prompt * computed + times.pair_s * keys, decode * steps + reading * context


def least_replicas(
    engine: Engine,
    requests: Requests,
    agreed: LatencyLimits,
    scaling: Scaling,
    *,
    initial: int = 1,
    intervals: int = INTERVALS,
) -> LeastReplicas:
    """The bound for requests with arrivals that keep the limits for the agreed share.

    Args:
        engine: of each replica.
        requests: with arrivals that nothing moves.
        agreed: limits; infinite ones bind nothing.
        scaling: seconds that a start takes, fewest and most replicas; its policy is not used.
        initial: replicas that are there at the beginning.
        intervals: of the programme.

    Raises:
        ConfigError: requests without arrivals, or whose turns wait for answers.
    """
    if requests.arrivals is None or (len(requests.after) and (requests.after >= 0).any()):
        raise ConfigError("a bound on replicas needs requests that come at times which are known")
    prompt, decode = least_work(engine, requests, agreed.tpot_s)
    came = requests.arrivals
    span = float(came[-1])
    step = span / intervals
    late = math.floor((1 - agreed.share) * len(requests) + 1e-9)
    longest = agreed.ttft_s + agreed.tpot_s * float(requests.outputs.max() - 1)
    interval = np.minimum((came / step).astype(int), intervals - 1)
    parts: list[tuple[np.ndarray, float, float]] = []
    for work, limit in ((prompt, agreed.ttft_s), (decode, longest)):
        arrived = np.cumsum(np.bincount(interval, work, intervals))
        parts.append((arrived, float(np.sort(work)[len(work) - late :].sum()), limit))
    return _solved(parts, step, intervals, scaling, initial)


def _solved(
    parts: list[tuple[np.ndarray, float, float]], step: float, count: int, scaling: Scaling, initial: int
) -> LeastReplicas:
    """The programme over n, u and one S of each kind of work, [4 count] in all."""
    sparse: Any = scipy.sparse
    eye, zero = sparse.identity(count, format="csr"), sparse.csr_array((count, count))
    change = eye - sparse.diags_array(np.ones(count - 1), offsets=-1, shape=(count, count))
    first = np.zeros(count)
    first[0] = initial
    rows = [
        (sparse.hstack([change, -eye, zero, zero]), first),  # n_k - n_(k-1) - u_k <= 0, of the first: the initial ones
        (sparse.hstack([-step * eye, zero, change, change]), np.zeros(count)),
    ]
    least = np.full(count, float(max(scaling.least, 1)))
    low = np.concatenate([least, np.zeros(count), np.full(2 * count, -np.inf)])
    most = np.full(count, float(max(scaling.most, initial)))
    high = np.concatenate([most, np.full(count, np.inf), *(arrived for arrived, _, _ in parts)])
    for index, (arrived, spared, limit) in enumerate(parts):
        if not math.isfinite(limit):
            continue
        after = math.ceil(limit / step)
        due = np.concatenate([np.zeros(min(after, count)), arrived[: max(count - after, 0)]])
        block = slice((2 + index) * count, (3 + index) * count)
        low[block] = np.clip(due - spared, 0.0, high[block])
    cost = np.concatenate([np.full(count, step), np.full(count, scaling.start_s), np.zeros(2 * count)])
    result = scipy.optimize.linprog(
        cost, A_ub=sparse.vstack([row for row, _ in rows]), b_ub=np.concatenate([side for _, side in rows]),
        bounds=np.stack([low, high], 1), method="highs",
    )  # fmt: skip
    if result.status != 0:
        raise ConfigError(
            f"no number of replicas up to {scaling.most} keeps the limits, whatever the policy:"
            " allow more or later answers"
        )
    return LeastReplicas(float(result.fun) * (1 - ROUNDING), step, result.x[:count])
