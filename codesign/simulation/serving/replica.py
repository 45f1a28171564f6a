"""One engine at work whose sequences grow by a token a step: many steps alike are one."""

import heapq
import math
from collections.abc import Iterable
from typing import Any, NamedTuple, no_type_check

import numpy as np

from .abstract_replica import AbstractReplica
from .engine import Engine
from .requests import Requests

# One engine at work that speculates: a step brings a sequence some of the tokens that it verifies.


HALVINGS = 60
DRAWN = 4096  # numbers of tokens at a time


def chance_of(accepted: float, verified: int) -> float:
    """Probability that a drafted token is right, where 1 + c + ... + c^(verified - 1) = accepted are on average."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        few = sum(middle**index for index in range(verified)) < accepted
        low, high = (middle, high) if few else (low, middle)
    return high


class DecodingSequence(NamedTuple):
    """A sequence that decodes: blocks that it shares, and the prefix that it shares them of."""

    shared: int
    prefix: int


@no_type_check  # a checker at run time would cost more than the simulation: millions of small calls
class SpeculatingReplica(AbstractReplica):
    """Each step brings each sequence the drafted tokens before the first wrong one, and one more.

    A drafted token is right with the same probability, independent of all others; `verified` - 1 are drafted. Blocks
    are taken for the tokens that are kept.

    Source: [leviathan2023] section 3.
    """

    def __init__(self, engine: Engine, requests: Requests, **more: Any) -> None:
        super().__init__(engine, requests, **more)
        self.stored, self.left = np.zeros(len(requests), int), np.zeros(len(requests), int)
        self.rng, self.chance = np.random.default_rng(engine.seed), chance_of(engine.accepted, engine.verified)
        self.running: np.ndarray | None = None  # requests that decode, None where it has to be made anew
        self.brings = np.zeros(len(requests), int)  # tokens in the coming step
        self.drawn, self.position = np.zeros(0, int), 0

    def _join(self, request: int, stored: int, outputs: int, shared: int, prefix: int) -> None:
        if outputs <= 0:
            raise ValueError(f"request {request} has nothing to decode")
        self.decoding[request] = DecodingSequence(shared, prefix)
        self.stored[request], self.left[request] = stored, outputs
        self.context += stored
        self.running = None

    def _left(self, request: int) -> int:
        return int(self.left[request])

    def _leave(self, request: int) -> int:
        result, tokens = self.decoding.pop(request), int(self.stored[request])
        self.context -= tokens
        self.pool.give(self.engine.blocks_of(tokens) - result.shared)
        if result.prefix >= 0:
            self.pool.leave(result.prefix)
        self.running = None
        return tokens

    def _ended(self) -> Iterable[int]:
        if not self.decoding:
            return []
        members = self._members()
        return members[self.left[members] == 0].tolist()

    def _make_room(self) -> None:
        members = self._members()
        self.brings[members] = np.minimum(self._draw(len(members)), self.left[members])
        while self._opened() > self.pool.available:
            if not self._preempt():
                return

    def _decode_steps(self, until: float) -> None:
        del until
        decodes = len(self.decoding)
        seconds = self.times.linear_s(decodes, 0) + self.times.context_s(decodes) * self.context
        self._pass(self._with_host(seconds, decodes), 1, decodes, 0)

    def _grow(self, count: int) -> None:
        members = self._members()
        brought = self.brings[members]
        self.pool.take(self._opened())
        self.decoded += count
        self.stored[members] += brought
        self.left[members] -= brought
        self.context += int(brought.sum())
        self.decode_tokens += int(brought.sum())

    def _members(self) -> np.ndarray:
        if self.running is None:
            self.running = np.fromiter(self.decoding, int, len(self.decoding))
        return self.running

    def _opened(self) -> int:
        """Blocks that the coming step opens."""
        members, size = self._members(), self.engine.block_tokens
        stored = self.stored[members] + size - 1
        return int(((stored + self.brings[members]) // size - stored // size).sum())

    def _draw(self, count: int) -> np.ndarray:
        """Tokens that a step brings so many sequences."""
        verified = self.engine.verified
        if self.position + count > len(self.drawn):
            size = max(DRAWN, count)
            right = self.rng.geometric(1 - self.chance, size) if self.chance < 1 else np.full(size, verified)
            self.drawn, self.position = np.minimum(right, verified), 0
        self.position += count
        return self.drawn[self.position - count : self.position]


class Decoding(NamedTuple):
    """A sequence that joined at a step with `stored` tokens and leaves after step `ends`."""

    joined: int
    stored: int
    ends: int
    shared: int
    prefix: int


@no_type_check  # a checker at run time would cost more than the simulation: millions of small calls
class Replica(AbstractReplica):
    """See the module."""

    def __init__(self, engine: Engine, requests: Requests, **more: Any) -> None:
        super().__init__(engine, requests, **more)
        self.ends: list[tuple[int, int]] = []  # (step, request), those that left early included
        self.opening = [0] * engine.block_tokens  # decodes that need a new block at a step, by the step's remainder

    def _join(self, request: int, stored: int, outputs: int, shared: int, prefix: int) -> None:
        """Decode a sequence from the next step on."""
        if outputs <= 0:
            raise ValueError(f"request {request} has nothing to decode")
        self.decoding[request] = Decoding(self.decoded, stored, self.decoded + outputs, shared, prefix)
        heapq.heappush(self.ends, (self.decoded + outputs, request))
        self.context += stored
        self.opening[(self.decoded - stored) % self.engine.block_tokens] += 1

    def _leave(self, request: int) -> int:
        """Take a sequence out and its blocks back; tokens that it had stored."""
        result = self.decoding.pop(request)
        tokens = result.stored + self.decoded - result.joined
        self.context -= tokens
        self.opening[(result.joined - result.stored) % self.engine.block_tokens] -= 1
        self.pool.give(self.engine.blocks_of(tokens) - result.shared)
        if result.prefix >= 0:
            self.pool.leave(result.prefix)
        return tokens

    def _left(self, request: int) -> int:
        return self.decoding[request].ends - self.decoded

    def _ended(self) -> Iterable[int]:
        while self.ends and self.ends[0][0] <= self.decoded:
            end, request = heapq.heappop(self.ends)
            result = self.decoding.get(request)
            if result is not None and result.ends == end:
                yield request

    def _make_room(self) -> None:
        """Blocks of the coming decode step: while they lack, the last to come goes."""
        size = self.engine.block_tokens
        while self.opening[self.decoded % size] > self.pool.available:
            if not self._preempt():
                return

    def _decode_steps(self, until: float) -> None:
        """Steps of decodes alone: as many as nothing changes in."""
        count, seconds = self._alike(until)
        self._pass(seconds, count, len(self.decoding), 0)

    def _decodes_end(self) -> float:
        if self.opening[self.decoded % self.engine.block_tokens] > self.pool.available:
            return self.now  # somebody yields
        return self.now + self._alike(math.inf)[1]

    def _alike(self, until: float) -> tuple[int, float]:
        """Number of decode steps without any change, up to the one that reaches a time, and seconds of all of them."""
        decodes, engine = len(self.decoding), self.engine
        growth = self.times.context_s(decodes)
        start, slope = self.times.linear_s(decodes, 0) + growth * self.context, growth * decodes
        host = self._host(decodes)
        while self.ends[0][1] not in self.decoding or self.decoding[self.ends[0][1]].ends != self.ends[0][0]:
            heapq.heappop(self.ends)
        most = self.ends[0][0] - self.decoded
        if self.arriving:
            most = 1
        if engine.async_scheduling and start < host:
            if slope:
                most = min(most, max(math.ceil((host - start) / slope), 1))
            start, slope = host, 0.0
        elif not engine.async_scheduling:
            start += host
        count = min(most, _steps_until(until - self.now, start, slope))
        if count > 1 and self._opened(count) > self.pool.available:
            count = 1
        return count, start * count + slope * count * (count - 1) / 2

    def _opened(self, count: int) -> int:
        """Blocks that the decodes open in so many steps."""
        size = self.engine.block_tokens
        rounds, rest = divmod(count, size)
        begin, opening = self.decoded % size, self.opening
        opened = sum(opening[begin : begin + rest])
        if begin + rest > size:
            opened += sum(opening[: begin + rest - size])
        return rounds * len(self.decoding) + opened

    def _grow(self, count: int) -> None:
        decodes = len(self.decoding)
        self.pool.take(self._opened(count))
        self.decoded += count
        self.context += decodes * count
        self.decode_tokens += decodes * count


def _steps_until(seconds: float, start: float, slope: float) -> int:
    """Steps of start, start + slope, ... seconds that reach a time: at least one."""
    if seconds == math.inf:
        return 1 << 60
    if seconds <= start:
        return 1
    if slope == 0:
        return math.ceil(seconds / start - 1e-9)
    half = start - slope / 2
    return max(math.ceil((math.sqrt(half * half + 2 * slope * seconds) - half) / slope - 1e-9), 1)
