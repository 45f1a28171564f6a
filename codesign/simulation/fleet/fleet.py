"""Fleet of replicas: requests are routed when they come, and each replica is an engine of `simulation.serving`.

Events are taken in the order of time: a request comes and goes to a replica; a replica's steps end in an answer; one
fails, is repaired, is started or stopped. A replica that decodes alone is left until somebody comes or one of its
sequences ends, so that a request costs a few events whatever the number of replicas. What a router and an autoscaler
see at a time is what has been answered by then, not what the steps under way will bring.

A replica that fails loses its cache and all that it had under way; these requests are routed anew at once and computed
from their beginning, and it comes back empty. One that is stopped takes no more requests and goes when its own are
answered. Who waits at a replica goes by `Requests.priorities`; what runs is not interrupted for it. Admission turns
requests of a class away where too many are under way: those of one slot and no queue are Erlang's loss system.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, no_type_check

import numpy as np

from ...core.errors import ConfigError
from ..serving.abstract_replica import AbstractReplica, unanswered
from ..serving.cache_blocks import PrefixStore
from ..serving.engine import Engine
from ..serving.replica import Replica, SpeculatingReplica
from ..serving.requests import Requests
from ..serving.serve import WARM_UP, Report, check_fits, counted, measured, shares
from .autoscalers import FleetState, Scaling
from .fleet_outcome import FleetServed, LatencyLimits
from .routers import Outstanding, router_of

__all__ = ["MOST_REPLICAS", "Failures", "keeps_slo", "simulate_fleet"]

MOST_REPLICAS = 4096
SAMPLES = 400  # of the timeline
ANSWERED, RUN_END, ARRIVAL, LOOK, READY, FAILS, CONTROL, SAMPLE = range(8)  # of one time in this order


@dataclass(frozen=True)
class Failures:
    """Failures of a replica as a Poisson process with this mean time between them, and the time to be back."""

    mean_s: float
    repair_s: float

    def __post_init__(self) -> None:
        """Times above 0.

        Raises:
            ConfigError: naming what is not.
        """
        if not (self.mean_s > 0 and self.repair_s >= 0):
            raise ConfigError(
                f"failures: mean_s = {self.mean_s:g} must be above 0, repair_s = {self.repair_s:g} not below"
            )


def _no_report(done: int, total: int) -> None:
    del done, total


def simulate_fleet(
    engines: Engine | Sequence[Engine],
    requests: Requests,
    router: str = "round_robin",
    *,
    replicas: int = 1,
    shared_store: bool = False,
    scaling: Scaling | None = None,
    failures: Failures | None = None,
    admitted: Mapping[str, int] | None = None,
    computed_elsewhere: bool = False,
    seed: int = 0,
    report: Report = _no_report,
) -> FleetServed:
    """Serve requests by a fleet.

    Args:
        engines: one of each replica, or one that all are alike.
        requests: with arrivals; turns of a conversation may come when the one before is answered.
        router: name of `ROUTERS`.
        replicas: number of them at the beginning, where all are alike.
        shared_store: whether prefixes lie in one store of `store_blocks` that all replicas share, not one in each.
        scaling: policy that starts and stops replicas (which are then alike).
        failures: how often replicas fail.
        admitted: class -> requests that are not answered, over the replicas that take any, from which on one of the
            class is turned away; those of a class that is not named always go in, those without classes by "".
        computed_elsewhere: whether prompts have their first token when they come, and their cache with them.
        seed: of what routers, failures and engines draw.
        report: called now and then.

    Raises:
        ConfigError: no such router or class, no arrivals, no replicas, a request that never fits.
    """
    admission = admitted or {}
    fleet = _fleet_of(engines, requests, router, replicas, shared_store, scaling, failures, seed, report, admission)
    fleet.cached = computed_elsewhere
    fleet.run()
    return fleet.measured()


def keeps_slo(
    engines: Engine | Sequence[Engine],
    requests: Requests,
    agreed: LatencyLimits,
    router: str = "round_robin",
    *,
    replicas: int = 1,
    shared_store: bool = False,
    begin: float = 0.2,
    seed: int = 0,
) -> bool:
    """True if `simulate_fleet` would attain the share agreed on; it is left where too many are late for that already.

    Args:
        engines, requests, router, replicas, shared_store, seed: see `simulate_fleet`.
        agreed: limits, and the share of the requests that must keep them.
        begin: share of the requests that are not counted, the first ones; see `FleetServed.attainment`.

    Raises:
        ConfigError: as `simulate_fleet`.
    """
    fleet = _fleet_of(engines, requests, router, replicas, shared_store, None, None, seed, _no_report, {})
    fleet.agreed, fleet.counted_from = agreed, int(len(requests) * begin)
    fleet.run()
    return not fleet.hopeless and fleet.measured().attainment(agreed, begin) >= agreed.share


def _fleet_of(
    engines: Engine | Sequence[Engine],
    requests: Requests,
    router: str,
    replicas: int,
    shared_store: bool,
    scaling: Scaling | None,
    failures: Failures | None,
    seed: int,
    report: Report,
    admitted: Mapping[str, int],
) -> "_Fleet":
    """The fleet of `simulate_fleet`, and what that refuses."""
    alike = [engines] * replicas if isinstance(engines, Engine) else list(engines)
    if not 1 <= len(alike) <= MOST_REPLICAS:
        raise ConfigError(f"a fleet of {len(alike)} replicas: allowed are 1 to {MOST_REPLICAS:,}")
    if requests.arrivals is None:
        raise ConfigError("a fleet needs requests with arrivals: draw them or read a trace")
    for engine in {id(one): one for one in alike}.values():
        check_fits(engine, requests)
    return _Fleet(alike, requests, router, shared_store, scaling, failures, seed, report, admitted)


Event = tuple[float, int, int, Any]  # seconds, kind, replica, what of it
Sample = tuple[float, int, int, int, list[int]]  # seconds, ready, paid, waiting, outstanding of each


class _Member:
    """One replica: an engine while it is up, its planned event's number, and from when to when it is paid."""

    __slots__ = ("began", "done", "drains", "ended", "engine", "replica", "seed", "under_way", "version")

    def __init__(self, engine: Engine, began: float) -> None:
        self.engine, self.began, self.ended = engine, began, math.nan
        self.replica: AbstractReplica | None = None
        self.version, self.drains = 0, False
        self.under_way: set[int] = set()
        self.done: Any = None


def _most_admitted(requests: Requests, admitted: Mapping[str, int]) -> list[float]:
    """Requests under way at a ready replica, on average, from which on each request is refused; none: never.

    Raises:
        ConfigError: a class that the requests do not have, or a number below 1.
    """
    if not admitted:
        return []
    names = requests.class_names or ("",)
    for name, most in admitted.items():
        if name not in names:
            classes = ", ".join(requests.class_names) or "none"
            raise ConfigError(f"admission: the requests have no class {name} (they have {classes})")
        if most < 1:
            raise ConfigError(f"admission: {most} requests of class {name or 'all'} at a replica must be at least 1")
    limits = np.array([float(admitted.get(name, math.inf)) for name in names])
    return limits[requests.classes if requests.class_names else np.zeros(len(requests), int)].tolist()


@no_type_check  # a checker at run time would cost more than the simulation: millions of small calls
class _Fleet:
    """State of a simulation."""

    def __init__(
        self,
        engines: list[Engine],
        requests: Requests,
        router: str,
        shared_store: bool,
        scaling: Scaling | None,
        failures: Failures | None,
        seed: int,
        report: Report,
        admitted: Mapping[str, int],
    ) -> None:
        self.requests, self.total, self.report = requests, len(requests), report
        self.scaling, self.failures, self.rng = scaling, failures, np.random.default_rng([seed, 1])
        self.engines, self.seed, self.cached = engines, seed, False
        self.answers = unanswered(self.total)
        self.most = _most_admitted(requests, admitted)
        self.open, self.refused = 0, 0
        self.heap: list[Event] = []
        self.later: list[tuple[float, int]] = []
        self.now, self.finished = 0.0, 0
        self.view = Outstanding()
        self.router = router_of(router, requests, seed)
        self.by_tokens = router == "prefix_aware"
        shared = engines[0].store_blocks if shared_store and requests.hashed else 0
        self.store = PrefixStore(shared) if shared else None
        self.members: list[_Member] = []
        self.retired: list[AbstractReplica] = []
        self.where, self.work = [-1] * self.total, dict[int, float]()
        self.came = np.array(requests.arrivals, float)
        self.turns: dict[int, int] = {}
        if len(requests.after):
            self.turns = {int(before): turn for turn, before in enumerate(requests.after.tolist()) if before >= 0}
            self.came[requests.after >= 0] = math.nan
        self.arrived = self.late = self.answered = self.moved = self.failed = 0  # of late and answered: since control
        self.routed, self.starts, self.sample_s = 0, 0, math.inf
        self.samples: list[Sample] = []
        self.agreed: LatencyLimits | None = (
            None  # of which it is asked whether it is kept by requests from this number on
        )
        self.counted_from, self.counted_late, self.hopeless = 0, 0, False
        self.begin, self.marks = int(self.total * WARM_UP), list[dict[str, int]]()

    def run(self) -> None:
        """Take all events, or those until the share agreed on is out of reach."""
        requests, total = self.requests, self.total
        assert requests.arrivals is not None
        for engine in self.engines:
            self._up(self._member(engine, 0.0), 0.0)
        fixed = np.flatnonzero(requests.after < 0) if len(requests.after) else np.arange(total)
        order: list[int] = fixed.tolist()
        times: list[float] = requests.arrivals[fixed].tolist()
        times.append(math.inf)
        marked, marks = (self.begin, total - 1), self.marks
        last = times[-2]
        self.sample_s = last / SAMPLES if last > 0 else math.inf
        if math.isfinite(self.sample_s):
            heapq.heappush(self.heap, (self.sample_s, SAMPLE, 0, 0))
        if self.scaling is not None:
            heapq.heappush(self.heap, (self.scaling.every_s, CONTROL, 0, 0))
        next_index, reported, heap, later = 0, 0, self.heap, self.later
        while self.finished < total and not self.hopeless:
            comes = times[next_index]
            turn = bool(later) and later[0][0] < comes
            if turn:
                comes = later[0][0]
            if heap and (heap[0][0] < comes or (heap[0][0] == comes and heap[0][1] < ARRIVAL)):
                self._event(heapq.heappop(heap), comes)
                if self.finished >= reported + total // 100 + 1:
                    reported = self.finished
                    self.report(reported, total)
                continue
            self.now = comes
            if turn:
                request = heapq.heappop(later)[1]
            else:
                request, next_index = order[next_index], next_index + 1
            self._arrive(request, marks if self.routed in marked else None)

    def _member(self, engine: Engine, now: float) -> int:
        member = _Member(replace(engine, seed=engine.seed + self.seed + len(self.members)), now)
        self.members.append(member)
        view = self.view
        view.requests.append(0)
        view.tokens.append(0.0)
        view.stores.append(None)
        return len(self.members) - 1

    def _up(self, index: int, now: float) -> None:
        """A replica that is empty takes requests from now on."""
        member = self.members[index]
        kind = SpeculatingReplica if member.engine.verified > 1 else Replica
        replica = member.replica = kind(member.engine, self.requests, answers=self.answers, store=self.store)
        replica.now = now
        heap, version = self.heap, member.version

        def done(request: int) -> None:
            heapq.heappush(heap, (replica.now, ANSWERED, index, (version, request)))

        member.done = (version, done)
        self.view.stores[index] = replica.store
        self.view.ready.append(index)
        if self.failures is not None:
            after = now + float(self.rng.exponential(self.failures.mean_s))
            heapq.heappush(heap, (after, FAILS, index, version))

    def _arrive(self, request: int, marks: list[dict[str, int]] | None) -> None:
        """A request comes, or comes back from a replica that failed."""
        view, now = self.view, self.now
        if math.isnan(self.came[request]):
            self.came[request] = now
        if not view.ready:  # until one is back
            heapq.heappush(self.later, (self._next_up(), request))
            return
        if self.most and self.where[request] < 0:
            if self.open >= self.most[request] * len(view.ready):
                self._turn_away(request)
                return
            self.open += 1
        index = self.router.choose(request, view)
        member = self.members[index]
        replica = member.replica
        done = member.done[1]
        assert replica is not None
        while replica.now < now:
            if not replica.step(now, done):
                replica.now = now
        if marks is not None:
            marks.append(counted(self._engines()))
        view.requests[index] += 1
        if self.by_tokens:
            self._weigh(request, index)
        self.where[request] = index
        if self.failures is not None:
            member.under_way.add(request)
        self.routed += 1
        replica.add(request, cached=self.cached)
        member.version += 1
        heapq.heappush(self.heap, (replica.now, LOOK, index, member.version))

    def _turn_away(self, request: int) -> None:
        """A request that is refused, and the turns of its conversation that would have followed."""
        turn: int | None = request
        while turn is not None:
            self.finished += 1
            self.refused += 1
            turn = self.turns.get(turn)

    def _weigh(self, request: int, index: int) -> None:
        requests, store = self.requests, self.view.stores[index]
        result = requests.hash_tokens * store.leading(requests.hashes_of(request)) if store is not None else 0
        work = max(float(requests.prompts[request]) - result, 1.0) + float(requests.outputs[request])
        self.work[request] = work
        self.view.tokens[index] += work

    def _event(self, event: Event, comes: float) -> None:
        """One event, the next request being expected at a time."""
        self.now, kind, index, what = event
        if kind == ANSWERED:
            self._answered(index, what)
        elif kind in (LOOK, RUN_END):
            member = self.members[index]
            if what == member.version:
                self._goes_on(index, member, kind, comes)
        elif kind == READY:
            if not self.members[index].drains and self.members[index].version == what:
                self._up(index, self.now)
        elif kind == FAILS:
            self._fails(index, what)
        elif kind == CONTROL:
            self._control()
        else:
            self._sample()

    def _goes_on(self, index: int, member: _Member, kind: int, comes: float) -> None:
        """The next step of a replica, or when its decodes end."""
        replica = member.replica
        assert replica is not None
        if kind == LOOK:
            end = replica.run_end()
            if end == math.inf:
                return
            if end > replica.now:
                heapq.heappush(self.heap, (end, RUN_END, index, member.version))
                return
        if replica.step(comes, member.done[1]):
            heapq.heappush(self.heap, (replica.now, LOOK, index, member.version))

    def _answered(self, index: int, what: tuple[int, int]) -> None:
        version, request = what
        member = self.members[index]
        if member.done[0] != version:  # it failed meanwhile
            return
        view = self.view
        view.requests[index] -= 1
        if self.by_tokens:
            view.tokens[index] -= self.work.pop(request)
        member.under_way.discard(request)
        self.finished += 1
        self.open -= 1
        if self.scaling is not None:
            self.answered += 1
            self.late += self.scaling.slo is not None and not self._within_slo(request, *self.scaling.slo)
        if self.agreed is not None and request >= self.counted_from:
            self.counted_late += not self._within_slo(request, self.agreed.ttft_s, self.agreed.tpot_s)
            counted_here = self.total - self.counted_from
            self.hopeless = (counted_here - self.counted_late) / counted_here < self.agreed.share
        turn = self.turns.get(request)
        if turn is not None:
            heapq.heappush(self.later, (self.now + float(self.requests.think_s[turn]), turn))
        if member.drains and not view.requests[index]:
            self._gone(member)

    def _within_slo(self, request: int, ttft: float, tpot: float) -> bool:
        first, last = self.answers
        steps = max(int(self.requests.outputs[request]) - 1, 1)
        on_time = first[request] - self.came[request] <= ttft
        return bool(on_time and (last[request] - first[request]) / steps <= tpot)

    def _fails(self, index: int, version: int) -> None:
        member = self.members[index]
        if member.replica is None or member.done[0] != version or not math.isnan(member.ended):
            return
        assert self.failures is not None
        self.failed += 1
        self.retired.append(member.replica)
        lost = sorted(member.under_way)
        member.under_way.clear()
        member.version += 1
        member.done = (-1, None)
        member.replica = None
        view, (first, last) = self.view, self.answers
        view.requests[index], view.tokens[index] = 0, 0.0
        if index in view.ready:
            view.ready.remove(index)
        if member.drains:
            self._gone(member)
        else:
            heapq.heappush(self.heap, (self.now + self.failures.repair_s, READY, index, member.version))
        for request in lost:
            self.work.pop(request, None)
            last[request] = math.nan
            if not first[request] <= self.now:
                first[request] = math.nan
            heapq.heappush(self.later, (self.now, request))
        self.routed -= len(lost)
        self.moved += len(lost)

    def _next_up(self) -> float:
        """Time at which a replica takes requests again."""
        ups = [time for time, kind, _, _ in self.heap if kind in (READY, CONTROL)]
        return math.nextafter(min(ups), math.inf)

    def _control(self) -> None:
        scaling, view = self.scaling, self.view
        assert scaling is not None
        starting = [
            index for index, member in enumerate(self.members)
            if member.replica is None and not member.drains and math.isnan(member.ended)
        ]  # fmt: skip
        came = self.routed
        seen = FleetState(
            self.now, (came - self.arrived) / scaling.every_s, len(view.ready), len(starting), sum(view.requests),
            self.late / self.answered if self.answered else 0.0, scaling.start_s,
        )  # fmt: skip
        self.arrived, self.late, self.answered = came, 0, 0
        most = min(scaling.most, MOST_REPLICAS)
        want = min(max(math.ceil(scaling.policy(seen) - 1e-9), scaling.least, 1), most)
        here = len(view.ready) + len(starting)
        for _ in range(want - here):
            self._start()
        for _ in range(here - want):
            self._stop(starting)
        heapq.heappush(self.heap, (self.now + scaling.every_s, CONTROL, 0, 0))

    def _start(self) -> None:
        assert self.scaling is not None
        index = self._member(self.engines[0], self.now)
        self.members[index].version += 1
        self.starts += 1
        heapq.heappush(self.heap, (self.now + self.scaling.start_s, READY, index, self.members[index].version))

    def _stop(self, starting: list[int]) -> None:
        """One fewer: one that is starting, or the one with the fewest requests, once they are answered."""
        view = self.view
        index = starting.pop() if starting else min(view.ready, key=view.requests.__getitem__)
        member = self.members[index]
        member.drains = True
        if index in view.ready:
            view.ready.remove(index)
        if not view.requests[index]:
            self._gone(member)

    def _gone(self, member: _Member) -> None:
        member.ended = self.now
        if member.replica is not None:
            self.retired.append(member.replica)
            member.replica = None
            member.done = (-1, None)
            member.version += 1

    def _sample(self) -> None:
        view = self.view
        waiting = sum(one.replica.waiting for one in self.members if one.replica is not None)
        up = [one for one in self.members if math.isnan(one.ended)]
        self.samples.append((self.now, len(view.ready), len(up), waiting, list(view.requests)))
        heapq.heappush(self.heap, (self.now + self.sample_s, SAMPLE, 0, 0))

    def _engines(self) -> list[AbstractReplica]:
        return [one.replica for one in self.members if one.replica is not None] + self.retired

    def measured(self) -> FleetServed:
        """Measure what was simulated to its end."""
        begin, marks, (first, last) = self.begin, self.marks, self.answers
        engines = self._engines()
        end = float(np.nanmax(last))
        paid = sum((end if math.isnan(one.ended) else one.ended) - one.began for one in self.members)
        counts = counted(engines)
        result = shares(marks[0], marks[-1]) if len(marks) > 1 else {}
        chosen = begin + np.flatnonzero(~np.isnan(last[begin:]))
        one = measured(self.requests, self.came, first, last, chosen, counts=counts, **result)
        return FleetServed(
            one, self.requests, self.came, first, last, np.array(self.where), paid, end, self.samples,
            self.starts, self.failed, self.moved, self.refused,
        )  # fmt: skip
