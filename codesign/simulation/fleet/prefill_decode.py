"""Fleet of two pools: prompts on prefill replicas, decodes on others, a router before each and a link between them.

A prompt is routed when it comes and waits at its prefill replica, whose steps take as many prompts as they have room
for, the last of them cut. Its keys and values then cross that replica's link, one prompt after another, and a router
sends it to a decode replica when they are there. Nothing holds the first pool back: a cache that is there waits at its
decode replica. `one_queue` in place of a router lets any prefill replica that is free take the prompt in front.

With `store_blocks` each prefill replica has a prefix cache of its own; all of a prompt's cache crosses the link.
"""

import dataclasses
import heapq
from collections import deque
from collections.abc import Callable
from typing import no_type_check

import numpy as np

from ...core.errors import ConfigError
from ..serving.cache_blocks import PrefixStore
from ..serving.engine import Engine
from ..serving.requests import Requests
from ..serving.serve import WARM_UP, HandoverTimes, Report, check_fits, measured
from .fleet import MOST_REPLICAS, simulate_fleet
from .fleet_outcome import FleetServed
from .routers import ROUTERS, Outstanding, router_of

__all__ = ["ONE_QUEUE", "TwoPoolsServed", "simulate_two_pools"]

ONE_QUEUE = "one_queue"
NOT_OF_DECODES = {"prefix_aware": "least_outstanding"}  # whose cache came over: none is nearer to it


def _no_report(done: int, total: int) -> None:
    del done, total


@dataclasses.dataclass(frozen=True)
class TwoPoolsServed:
    """Outcome of two pools.

    fleet: of each request its times and decode replica; handed: when prompts are begun, have their first token and have
    their cache across; prefill_replica: where each prompt was computed; prefill_busy, link_busy: shares of the time
    from the first request to the last cache.
    """

    fleet: FleetServed
    handed: HandoverTimes
    prefill_replica: np.ndarray
    prefill_busy: float
    link_busy: float


def simulate_two_pools(
    prefill: Engine,
    decode: Engine,
    requests: Requests,
    transfer_s: Callable[[np.ndarray], np.ndarray],
    *,
    replicas: tuple[int, int] = (1, 1),
    routers: tuple[str, str] = ("round_robin", "round_robin"),
    drain_s: float = 0.0,
    seed: int = 0,
    report: Report = _no_report,
) -> TwoPoolsServed:
    """Serve requests by two pools.

    Args:
        prefill, decode: an engine of each pool.
        requests: with arrivals that nothing moves.
        transfer_s: prompt tokens -> seconds that their cache takes over a replica's link.
        replicas: of each pool.
        routers: before each pool, names of `ROUTERS`; of the first also `one_queue`.
        drain_s: from when a prompt leaves a replica's first stage to its end: that stage takes the next one meanwhile.
        seed: of what routers and engines draw.
        report: called now and then, as decodes are finished.

    Raises:
        ConfigError: no such router, requests whose turns wait for answers, pools without replicas, one that never fits.
    """
    if not all(1 <= count <= MOST_REPLICAS for count in replicas):
        raise ConfigError(f"pools of {replicas[0]} and {replicas[1]} replicas: allowed are 1 to {MOST_REPLICAS:,} each")
    if requests.arrivals is None or (len(requests.after) and (requests.after >= 0).any()):
        raise ConfigError("two pools need requests that come at times which are known")
    if routers[0] != ONE_QUEUE and routers[0] not in ROUTERS:
        router_of(routers[0], requests)  # says which there are
    check_fits(decode, requests)
    first = _Prompts(prefill, requests, replicas[0], routers[0], drain_s, transfer_s(requests.prompts), seed)
    handed = first.handed()
    order = np.flatnonzero(requests.outputs > 1)
    order = order[np.argsort(handed.ready[order], kind="stable")]
    total, last, where = len(requests), np.array(handed.first), np.full(len(requests), -1)
    counts = dict.fromkeys(("steps", "mixed", "decode_tokens", "sequence_steps", "preempted"), 0)
    decoded: FleetServed | None = None
    if len(order):
        others = dataclasses.replace(requests, arrivals=None).chosen(order)
        decode_requests = dataclasses.replace(others, arrivals=handed.ready[order])
        router = NOT_OF_DECODES.get(routers[1], routers[1])
        decoded = simulate_fleet(
            decode, decode_requests, router, replicas=replicas[1], computed_elsewhere=True, seed=seed, report=report
        )
        last[order], where[order], counts = decoded.last, decoded.replica, dict(decoded.served.counts)
    counts |= {"hit_tokens": first.hit_tokens, "prompt_tokens": first.prompt_tokens, "finished": total}
    chosen = np.arange(int(total * WARM_UP), total)
    served = measured(requests, requests.arrivals, handed.first, last, chosen, counts=counts, handed=handed)
    served = dataclasses.replace(served, decodes=counts["sequence_steps"] / max(counts["steps"], 1))
    end, span = float(last.max()), max(float(handed.ready.max() - requests.arrivals[0]), 1e-30)
    paid = end * replicas[0] + (decoded.replica_s if decoded else 0.0)
    samples = decoded.samples if decoded else []
    fleet = FleetServed(served, requests, requests.arrivals, handed.first, last, where, paid, end, samples)
    return TwoPoolsServed(
        fleet, handed, first.where, first.busy_s / (span * replicas[0]), first.link_s / (span * replicas[0])
    )


@no_type_check  # a checker at run time would cost more than the simulation
class _Prompts:
    """The first pool."""

    def __init__(
        self, engine: Engine, requests: Requests, count: int, router: str, drain_s: float, moving: np.ndarray, seed: int
    ) -> None:
        self.engine, self.requests, self.drain_s = engine, requests, drain_s
        self.moving: list[float] = moving.tolist()
        self.lengths: list[int] = requests.prompts.tolist()
        self.room = min(engine.budget, engine.chunk)
        shared: deque[int] | None = deque() if router == ONE_QUEUE else None
        self.queues: list[deque[int]] = [shared if shared is not None else deque() for _ in range(count)]
        self.router = None if router == ONE_QUEUE else router_of(router, requests, seed)
        self.cut: list[tuple[int, int] | None] = [None] * count  # a prompt that is begun, and how far it is
        self.ends: list[list[int]] = [[] for _ in range(count)]  # prompts that end with the step under way
        self.works, self.link = [False] * count, [0.0] * count
        self.idle = [(0.0, index) for index in range(count)]  # of one queue, the longest idle first
        self.heap: list[tuple[float, int]] = []  # when a replica's step ends
        stored = engine.store_blocks if requests.hashed else 0
        self.view = Outstanding()
        for index in range(count):
            self.view.requests.append(0)
            self.view.tokens.append(0.0)
            self.view.stores.append(PrefixStore(stored) if stored else None)
            self.view.ready.append(index)
        total = len(requests)
        self.began, self.first, self.ready = (np.zeros(total) for _ in range(3))
        self.where, self.work = np.zeros(total, int), [0.0] * total
        self.busy_s = self.link_s = 0.0
        self.hit_tokens = self.prompt_tokens = 0

    def handed(self) -> HandoverTimes:
        """Take all prompts in the order that they come in."""
        arrived = self.requests.arrivals
        assert arrived is not None
        came: list[float] = arrived.tolist()
        for request, now in enumerate(came):
            while self.heap and self.heap[0][0] < now:
                self._goes_on()
            self._arrive(request, now)
        while self.heap:
            self._goes_on()
        return HandoverTimes(arrived, self.began, self.first, self.ready)

    def _arrive(self, request: int, now: float) -> None:
        view = self.view
        if self.router is None:
            self.queues[0].append(request)
            if self.idle:
                index = heapq.heappop(self.idle)[1]
                self.works[index] = True
                heapq.heappush(self.heap, (now, index))
            return
        index = self.router.choose(request, view)
        result = self._cached_tokens(index, request)
        self.work[request] = float(max(self.lengths[request] - result, 1))
        view.requests[index] += 1
        view.tokens[index] += self.work[request]
        self.queues[index].append(request)
        if not self.works[index]:
            self.works[index] = True
            heapq.heappush(self.heap, (now, index))

    def _begun(self, request: int, index: int, at: float) -> tuple[int, int]:
        """A prompt and how much of it the replica's cache holds, which is brought now."""
        self.began[request], self.where[request] = at, index
        result, store = self._cached_tokens(index, request), self.view.stores[index]
        if result and store is not None:
            store.use(self.requests.hashes_of(request), -(-result // self.requests.hash_tokens))
        return request, result

    def _cached_tokens(self, index: int, request: int) -> int:
        store = self.view.stores[index]
        if store is None:
            return 0
        count = store.leading(self.requests.hashes_of(request))
        return min(count * self.requests.hash_tokens, self.lengths[request] - 1)

    def _goes_on(self) -> None:
        """The end of a replica's step, and the next one, where a prompt waits."""
        at, index = heapq.heappop(self.heap)
        view, store = self.view, self.view.stores[index]
        for request in self.ends[index]:
            if self.router is not None:
                view.requests[index] -= 1
                view.tokens[index] -= self.work[request]
            if store is not None:
                store.put(self.requests.hashes_of(request))
        self.ends[index] = []
        queue = self.queues[index]
        if self.cut[index] is None and not queue:
            self.works[index] = False
            if self.router is None:
                heapq.heappush(self.idle, (at, index))
            return
        tokens, pairs, loading, ended = 0, 0.0, 0, self.ends[index]
        while tokens < self.room and (self.cut[index] is not None or queue):
            under_way = self.cut[index]
            if under_way is None:
                under_way = self._begun(queue.popleft(), index, at)
                loading += under_way[1]
            request, done = under_way
            part = min(self.lengths[request] - done, self.room - tokens)
            pairs += part * (done + 0.5 * part)
            tokens += part
            is_last = done + part == self.lengths[request]
            self.cut[index] = None if is_last else (request, done + part)
            if is_last:
                ended.append(request)
        engine = self.engine
        computed = at + engine.times.linear_s(0, tokens) + engine.times.pair_s * pairs
        end = max(computed, at + engine.store_token_s * loading) + engine.host_s
        self.busy_s += end - at
        self.hit_tokens += loading
        self.prompt_tokens += tokens
        heapq.heappush(self.heap, (end, index))
        for request in ended:
            self.first[request] = end + self.drain_s
            self.link[index] = max(self.link[index], self.first[request]) + self.moving[request]
            self.ready[request] = self.link[index]
            self.link_s += self.moving[request]
