"""Simulated services: a closed loop, an open loop, one whose prompts and decodes have machines of their own, and a
benchmark's run from its first request to its last.
"""

import dataclasses
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...core.errors import ConfigError
from .abstract_replica import AbstractReplica
from .engine import Engine
from .replica import Replica, SpeculatingReplica
from .requests import Requests

# Outcome of a simulation: times of each request, and how the engine spent its steps.


TIMELINE = ("start_s", "seconds", "steps", "decodes", "prompt_tokens", "waiting", "blocks")


@dataclass(frozen=True)
class HandoverTimes:
    """Seconds at which prompts of two pools come, are begun, have their first token and have their cache across."""

    came: np.ndarray
    began: np.ndarray
    first: np.ndarray
    ready: np.ndarray


@dataclass(frozen=True)
class ServedTimes:
    """Times of the measured requests, those after the warm-up, and counts of the whole simulation.

    `decodes` is the mean number of sequences that a step decodes and `hybrid_step_share` the share of steps that carry
    prompt tokens, while measured requests come; `rate` the requests a second that were finished in the measured time.
    """

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    e2e_s: np.ndarray
    rate: float
    decodes: float = 0.0
    hybrid_step_share: float = 0.0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    timeline: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    handed: HandoverTimes | None = None

    def summary(self) -> dict[str, float]:
        """Means and quantiles by the names that metrics have."""
        result = {"rate": self.rate, "decodes": self.decodes, "hybrid_step_share": self.hybrid_step_share}
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            values = getattr(self, name)
            result[name] = float(values.mean()) if len(values) else float("nan")
            for share in (50, 90, 99):
                result[f"{name}.p{share}"] = float(np.quantile(values, share / 100)) if len(values) else float("nan")
        return result | {name: float(count) for name, count in self.counts.items()}

    def later(self, seconds: float) -> "ServedTimes":
        """Copy in which every request spends so long at the host before it comes to the engine."""
        return replace(self, ttft_s=self.ttft_s + seconds, e2e_s=self.e2e_s + seconds)

    def meeting(self, ttft_s: float, tpot_s: float) -> float:
        """Requests a second that keep both limits: goodput."""
        if len(self.tpot_s) != len(self.ttft_s):
            return self.rate * float(np.mean(self.ttft_s <= ttft_s))
        return self.rate * float(np.mean((self.ttft_s <= ttft_s) & (self.tpot_s <= tpot_s)))


def measured(
    requests: Requests, came: np.ndarray, first: np.ndarray, last: np.ndarray, chosen: np.ndarray, **more: Any
) -> ServedTimes:
    """Times of the chosen requests; those of a single token have no time between tokens."""
    steps = requests.outputs[chosen] - 1
    between = (last - first)[chosen] / np.maximum(steps, 1)
    ended = np.sort(last[chosen])
    spread = float(ended[-1] - ended[0]) if len(ended) else 0.0
    rate = (len(ended) - 1) / spread if spread > 0 else float("nan")
    return ServedTimes((first - came)[chosen], between[steps > 0], (last - came)[chosen], rate, **more)


COUNTS = ("steps", "mixed", "decode_tokens", "sequence_steps", "prompt_tokens", "preempted", "hit_tokens", "finished")


def counted(replicas: list[AbstractReplica]) -> dict[str, int]:
    """Sums over replicas."""
    return {name: sum(getattr(replica, name) for replica in replicas) for name in COUNTS}


def shares(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    """Sequences that a step decodes, and the share of steps with prompts, between two counts."""
    steps = max(after["steps"] - before["steps"], 1)
    return {
        "decodes": (after["sequence_steps"] - before["sequence_steps"]) / steps,
        "hybrid_step_share": (after["mixed"] - before["mixed"]) / steps,
    }


Report = Callable[[int, int], None]  # requests finished, of how many
WARM_UP = 0.2  # share of the requests that come before any is measured


def _no_report(done: int, total: int) -> None:
    del done, total


def simulate_closed(
    engine: Engine, requests: Requests, concurrency: int, *, report: Report = _no_report, timeline: bool = False
) -> ServedTimes:
    """So many requests are always under way: one that is finished is followed by the next at once.

    Measured are those that come after the warm-up and before the supply ends.

    Raises:
        ConfigError: a request that never fits; too few requests for the concurrency.
    """
    total = len(requests)
    if not 1 <= concurrency < total:
        raise ConfigError(f"concurrency = {concurrency} needs between 1 and {total - 1} of the {total} requests")
    check_fits(engine, requests)
    replica, came, following = _replica(engine, requests, timeline=timeline), np.zeros(total), concurrency
    begin = max(min(int(total * WARM_UP) + concurrency, (total - concurrency) // 2), concurrency)
    marks: list[dict[str, int]] = []

    def done(request: int) -> None:
        nonlocal following
        del request
        if following in (begin, total - 1):
            marks.append(counted([replica]))
        if following < total:
            came[following] = replica.now
            replica.add(following)
            following += 1

    for request in range(concurrency):
        replica.add(request)
    _run(replica, total, done, report)
    return _of_one(replica, requests, came, np.arange(begin, max(total - concurrency, begin + 1)), marks)


def simulate_open(
    engine: Engine, requests: Requests, *, report: Report = _no_report, timeline: bool = False
) -> ServedTimes:
    """Requests come when they come.

    Raises:
        ConfigError: requests without arrivals, or one that never fits.
    """
    came = _arrivals(requests)
    check_fits(engine, requests)
    replica = _replica(engine, requests, timeline=timeline)
    total = len(requests)
    begin = int(total * WARM_UP)
    marks = _feed(replica, np.arange(total), came, report, marked=(begin, total - 1))
    return _of_one(replica, requests, came, np.arange(begin, total), marks)


def simulate_run(
    engine: Engine, requests: Requests, clients: int | None = None, *, report: Report = _no_report
) -> ServedTimes:
    """A run from its first request to its last, as a benchmark makes it: all requests are measured.

    Args:
        engine: idle when the first one comes.
        requests: with arrivals; without them each of the clients sends its next when it has its answer, all at once
            at first.
        clients: of requests without arrivals.
        report: called now and then.

    Raises:
        ConfigError: requests with neither arrivals nor clients, or one that never fits.
    """
    check_fits(engine, requests)
    total = len(requests)
    replica, everybody = _replica(engine, requests, timeline=False), np.arange(total)
    if requests.arrivals is not None:
        came = requests.arrivals - requests.arrivals[0]
        _feed(replica, everybody, came, report)
    elif clients is None:
        raise ConfigError("a run needs requests with arrivals, or clients")
    else:
        came, following = np.zeros(total), min(clients, total)

        def done(request: int) -> None:
            nonlocal following
            del request
            if following < total:
                came[following] = replica.now
                replica.add(following)
                following += 1

        for request in range(following):
            replica.add(request)
        _run(replica, total, done, report)
    counts = counted([replica])
    result = measured(
        requests,
        came,
        replica.first,
        replica.last,
        everybody,
        counts=counts,
        **shares(dict.fromkeys(counts, 0), counts),
    )
    return dataclasses.replace(result, rate=total / float(np.max(replica.last)))


def simulate_apart(
    prefill: Engine,
    decode: Engine,
    counts: tuple[int, int],
    requests: Requests,
    transfer_s: Callable[[np.ndarray], np.ndarray],
    *,
    drain_s: float = 0.0,
    report: Report = _no_report,
    timeline: bool = False,
) -> ServedTimes:
    """Prompts on engines of their own, from one queue; decodes on others, by turns.

    A step of a prefill engine has room for `chunk` tokens: of the prompts in front as many as it takes, the last of
    them cut. Their keys and values cross a link of that engine, one prompt after another, beside the next step; the
    decode engine that one goes to continues from the second token.

    Args:
        prefill, decode: an engine of each pool.
        counts: engines of each pool.
        requests: with arrivals.
        transfer_s: prompt tokens -> seconds that their cache takes over the link.
        drain_s: from when a prompt leaves an engine's first stage to its end: that stage takes the next one meanwhile.
        report: called now and then.
        timeline: whether to keep when each prompt is where, and the steps of the first decode engine.

    Raises:
        ConfigError: requests without arrivals, pools without engines, a request that never fits.
    """
    came, total = _arrivals(requests), len(requests)
    if min(counts) < 1:
        raise ConfigError(f"pools of {counts[0]} and {counts[1]} engines: at least one of each")
    check_fits(decode, requests)
    handed = _prefilled(prefill, counts[0], requests, came, transfer_s(requests.prompts), drain_s)
    first, ready = handed.first, handed.ready
    last = np.array(first)
    longer = np.flatnonzero(requests.outputs > 1)
    order = longer[np.argsort(ready[longer], kind="stable")]
    replicas: list[AbstractReplica] = []
    for engine in range(counts[1]):
        assigned = order[engine :: counts[1]]
        replica = _replica(dataclasses.replace(decode, seed=decode.seed + engine), requests, timeline=timeline)
        _feed(replica, assigned, ready, report, cached=True)
        last[assigned] = replica.last[assigned]
        replicas.append(replica)
    result = counted(replicas)
    chosen = np.arange(int(total * WARM_UP), total)
    extras: dict[str, Any] = {"timeline": replicas[0].timeline or [], "handed": handed} if timeline else {}
    return measured(
        requests, came, first, last, chosen, counts=result, **shares(dict.fromkeys(result, 0), result), **extras
    )


def _replica(engine: Engine, requests: Requests, *, timeline: bool) -> AbstractReplica:
    kind = SpeculatingReplica if engine.verified > 1 else Replica
    return kind(engine, requests, timeline=timeline)


def _prefilled(
    engine: Engine, count: int, requests: Requests, came: np.ndarray, moving: np.ndarray, drain_s: float
) -> HandoverTimes:
    """Times at which each prompt is begun, has its first token, and has its cache across the link."""
    times, room = engine.times, min(engine.budget, engine.chunk)
    lengths, arrived, total = requests.prompts.tolist(), came.tolist(), len(requests)
    free, link = [(0.0, index) for index in range(count)], [0.0] * count
    cut: list[tuple[int, int] | None] = [None] * count  # of each engine: a prompt that is begun, and how far it is
    began, first, ready = (np.zeros(total) for _ in range(3))
    front = 0  # of the queue
    while free:
        at, index = heapq.heappop(free)
        if cut[index] is None:
            if front == total:
                continue
            at = max(at, arrived[front])
        tokens, pairs, ended = 0, 0.0, list[int]()
        while tokens < room and (cut[index] is not None or (front < total and arrived[front] <= at)):
            under_way = cut[index]
            if under_way is None:
                under_way, began[front], front = (front, 0), at, front + 1
            request, done = under_way
            part = min(lengths[request] - done, room - tokens)
            pairs += part * (done + 0.5 * part)
            tokens += part
            is_last = done + part == lengths[request]
            cut[index] = None if is_last else (request, done + part)
            ended += [request] if is_last else []
        end = at + times.linear_s(0, tokens) + times.pair_s * pairs + engine.host_s
        heapq.heappush(free, (end, index))
        for request in ended:
            first[request] = end + drain_s
            link[index] = max(link[index], first[request]) + float(moving[request])
            ready[request] = link[index]
    return HandoverTimes(came, began, first, ready)


def check_fits(engine: Engine, requests: Requests) -> None:
    """Refuse what would wait for ever.

    Raises:
        ConfigError: the longest request, the blocks that it lacks; or sequences that leave prompts no budget.
    """
    longest = int(np.argmax(requests.prompts + requests.outputs))
    tokens = int(requests.prompts[longest] + requests.outputs[longest])
    lacks = engine.blocks_of(tokens) - engine.blocks
    if lacks > 0:
        raise ConfigError(
            f"request {longest} of {tokens} tokens lacks {lacks} of {engine.blocks_of(tokens)} blocks:"
            " give the cache more room or leave it out"
        )


def _arrivals(requests: Requests) -> np.ndarray:
    if requests.arrivals is None:
        raise ConfigError("an open loop needs requests with arrivals: draw them or read a trace")
    return requests.arrivals


def _run(replica: AbstractReplica, total: int, done: Callable[[int], None], report: Report) -> None:
    """Step until everybody is served."""
    reported = 0
    while replica.finished < total:
        replica.step(math.inf, done)
        if replica.finished >= reported + total // 100 + 1:
            reported = replica.finished
            report(reported, total)


def _feed(
    replica: AbstractReplica,
    order: np.ndarray,
    came: np.ndarray,
    report: Report,
    *,
    cached: bool = False,
    marked: tuple[int, ...] = (),
) -> list[dict[str, int]]:
    """Step while requests come at their times; the counts when those that are `marked` come."""
    times, total, next_index, reported, marks = came[order].tolist(), len(order), 0, 0, list[dict[str, int]]()
    while replica.finished < total:
        while next_index < total and times[next_index] <= replica.now:
            if next_index in marked:
                marks.append(counted([replica]))
            replica.add(int(order[next_index]), cached=cached)
            next_index += 1
        upcoming = times[next_index] if next_index < total else math.inf
        if not replica.step(upcoming, lambda request: None):
            replica.now = upcoming
        if replica.finished >= reported + total // 100 + 1:
            reported = replica.finished
            report(reported, total)
    return marks


def _of_one(
    replica: AbstractReplica, requests: Requests, came: np.ndarray, chosen: np.ndarray, marks: list[dict[str, int]]
) -> ServedTimes:
    return measured(
        requests, came, replica.first, replica.last, chosen, counts=counted([replica]),
        timeline=replica.timeline or [], **shares(marks[0], marks[-1]),
    )  # fmt: skip
