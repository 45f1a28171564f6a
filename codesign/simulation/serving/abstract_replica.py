"""Common base of engines at work: admission, chunks of prompts, preemption, time that goes by."""

import abc
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, no_type_check

import numpy as np

from .cache_blocks import BlockPool, PrefixStore
from .engine import Engine
from .requests import Requests

FEW = 4096  # admissions remembered before those that have left are forgotten


Answers = tuple[np.ndarray, np.ndarray]  # seconds of the first token and of the last of each request


def unanswered(count: int) -> Answers:
    """Times of requests that have no answer yet."""
    return np.full(count, math.nan), np.full(count, math.nan)


class Waiting(NamedTuple):
    """A request before it runs: tokens to compute, outputs to come, and whether its cache came over a link."""

    request: int
    tokens: int
    outputs: int
    cached: bool


class Prompt:
    """A prompt that is being computed: `done` of `tokens`, in `private_blocks` beside those of a shared prefix."""

    __slots__ = ("done", "outputs", "prefix", "private_blocks", "request", "tokens")

    def __init__(self, waiting: Waiting, done: int, private_blocks: int, prefix: int) -> None:
        self.request, self.tokens, self.outputs, _ = waiting
        self.done, self.private_blocks, self.prefix = done, private_blocks, prefix


@no_type_check  # a checker at run time would cost more than the simulation: millions of small calls
class AbstractReplica(abc.ABC):
    """State of one engine; `step` runs one step, or many alike up to the next event."""

    decoded: int  # decode steps so far
    context: int  # tokens in the contexts of all decodes

    def __init__(
        self,
        engine: Engine,
        requests: Requests,
        *,
        timeline: bool = False,
        answers: Answers | None = None,
        store: PrefixStore | None = None,
    ) -> None:
        """An idle engine.

        Args:
            engine: what it is.
            requests: all that may come.
            timeline: whether steps are written down.
            answers: where times of answers are written, which engines of a fleet share.
            store: prefix cache that it shares with others; without, one of its own where the engine has one.
        """
        self.engine, self.requests, self.times = engine, requests, engine.times
        if store is None and engine.store_blocks and requests.hashed:
            store = PrefixStore(engine.store_blocks)
        self.store, self.loading = store, 0  # tokens that the coming step brings in from the store
        self.now = 0.0
        self.queue: deque[Waiting] = deque()
        self.arriving: deque[Waiting] = deque()  # seen by an async_scheduling scheduler one step later
        self.prompts: deque[Prompt] = deque()
        self.decoding: dict[int, Any] = {}  # what is kept of a sequence is the subclass's to say
        self.admitted: list[int] = []  # in that order, those that left included
        self.pool = BlockPool(engine.blocks)
        self.promised: dict[int, int] = {}  # blocks of whole requests that run, where the engine promises them
        self.promises = 0
        self.decoded = self.context = 0
        self.first, self.last = answers or unanswered(len(requests))
        self.steps = self.mixed = self.decode_tokens = self.prompt_tokens = self.preempted = self.hit_tokens = 0
        self.finished = self.sequence_steps = 0
        self.timeline: list[tuple[float, ...]] | None = [] if timeline else None
        self.ranks: list[int] = requests.priorities.tolist()  # none: first come, first served

    def add(self, request: int, *, cached: bool = False) -> None:
        """A request arrives; `cached`: with its keys and values and its first token from elsewhere."""
        prompt, outputs = int(self.requests.prompts[request]), int(self.requests.outputs[request])
        waiting = Waiting(request, prompt, outputs - 1 if cached else outputs, cached)
        busy = bool(self.decoding or self.prompts)
        if self.engine.async_scheduling and busy:
            self.arriving.append(waiting)
        else:
            self._queue_up(waiting)

    def _queue_up(self, waiting: Waiting, *, back: bool = False) -> None:
        """Queue behind those who go first; one that comes `back` stands before its equals."""
        queue, ranks = self.queue, self.ranks
        if not ranks:
            (queue.appendleft if back else queue.append)(waiting)
            return
        rank = ranks[waiting.request] - back
        if not queue or ranks[queue[-1].request] <= rank:
            queue.append(waiting)
            return
        queue.insert(next(index for index, one in enumerate(queue) if ranks[one.request] > rank), waiting)

    def step(self, until: float, done: Callable[[int], None]) -> bool:
        """Run a step, or equal steps until somebody may arrive (`until`) or leaves; False where there is nothing to do.

        Args:
            until: seconds at which the next request arrives.
            done: called with each request that is finished, after the step.
        """
        self._admit()
        if not self.decoding and not self.prompts:
            if not self.arriving:
                return False
            while self.arriving:
                self._queue_up(self.arriving.popleft())
            self._admit()
        seen = len(self.arriving)  # what the scheduler sees while this step runs
        if self.decoding:
            self._make_room()
        if self.prompts:
            self._mixed_step(done)
        elif self.decoding:
            self._decode_steps(until)
        for _ in range(seen):
            self._queue_up(self.arriving.popleft())
        for request in self._ended():
            self._leave(request)
            self._finish(request, done)
        return True

    def run_end(self) -> float:
        """Seconds until which nothing changes where nobody comes; those of now where the next step says, or inf."""
        self._admit()
        if self.prompts or self.arriving:
            return self.now
        return self._decodes_end() if self.decoding else math.inf

    @property
    def waiting(self) -> int:
        """Requests that have come and are not admitted."""
        return len(self.queue) + len(self.arriving)

    def _decodes_end(self) -> float:
        """Seconds at which the coming decode steps end, as many as nothing changes in; or of now."""
        return self.now

    @abc.abstractmethod
    def _join(self, request: int, stored: int, outputs: int, shared: int, prefix: int) -> None:
        """Decode a sequence of `stored` tokens from the next step on, until `outputs` more are there."""

    @abc.abstractmethod
    def _left(self, request: int) -> int:
        """Tokens that a sequence has still to decode."""

    @abc.abstractmethod
    def _leave(self, request: int) -> int:
        """Take a sequence out and its blocks back; tokens that it had stored."""

    @abc.abstractmethod
    def _ended(self) -> Iterable[int]:
        """Sequences that have nothing left to decode."""

    @abc.abstractmethod
    def _make_room(self) -> None:
        """Blocks of the coming decode step: while they lack, the last to come goes."""

    @abc.abstractmethod
    def _decode_steps(self, until: float) -> None:
        """Steps of decodes alone: as many as nothing changes in."""

    @abc.abstractmethod
    def _grow(self, count: int) -> None:
        """Decodes take their blocks and tokens of so many steps."""

    def _admit(self) -> None:
        """Let those in front of the queue in, while sequences, blocks and the token budget have room."""
        if not self.queue:
            return
        engine, pool = self.engine, self.pool
        spare = int(engine.blocks * engine.watermark)
        pending = sum(prompt.tokens - prompt.done for prompt in self.prompts)
        while self.queue and len(self.decoding) + len(self.prompts) < engine.sequences:
            waiting = self.queue[0]
            room = min(engine.budget - len(self.decoding), engine.chunk)
            if not waiting.cached and pending >= room:
                return
            prefix = self.requests.prefix_of(waiting.request) if engine.prefix_cache and not waiting.cached else -1
            hit = pool.hit(prefix)
            if hit:
                pool.use(prefix)
            needed = engine.blocks_of(waiting.tokens) - hit
            alone = not self.decoding and not self.prompts
            promised_blocks = engine.blocks_of(waiting.tokens + waiting.outputs) - hit if engine.promised else 0
            if pool.available - needed < (0 if alone else spare) or self.promises + promised_blocks > engine.blocks:
                if hit:
                    pool.leave(prefix)
                return
            self.queue.popleft()
            pool.take(needed)
            self.promised[waiting.request] = promised_blocks
            self.promises += promised_blocks
            self._remember(waiting.request)
            if waiting.cached:
                self._join(waiting.request, waiting.tokens, waiting.outputs, 0, -1)
                continue
            cached = min(hit * engine.block_tokens, waiting.tokens - 1)
            if self.store is not None:
                cached = self._from_store(self.store, waiting, cached)
            self.hit_tokens += cached
            pending += waiting.tokens - cached
            self.prompts.append(Prompt(waiting, cached, needed, prefix if hit else -1))

    def _from_store(self, store: PrefixStore, waiting: Waiting, cached: int) -> int:
        """Tokens of a prompt that need not be computed, those of the store on their way with the coming step."""
        hashes = self.requests.hashes_of(waiting.request)
        count = store.leading(hashes)
        result = min(count * self.requests.hash_tokens, waiting.tokens - 1)
        if result <= cached:
            return cached
        store.use(hashes, count)
        self.loading += result - cached
        return result

    def _remember(self, request: int) -> None:
        self.admitted.append(request)
        if len(self.admitted) > FEW + 8 * (len(self.decoding) + len(self.prompts)):
            here = set(self.decoding) | {prompt.request for prompt in self.prompts}
            self.admitted = [one for one in self.admitted if one in here]

    def _finish(self, request: int, done: Callable[[int], None]) -> None:
        self.last[request] = self.now
        self.promises -= self.promised.pop(request, 0)
        self.finished += 1
        done(request)

    def _preempt(self) -> bool:
        """Send the last one admitted back to the head of the queue, of those with priorities one that goes last.

        A lone sequence has nobody to yield to.
        """
        if len(self.decoding) + len(self.prompts) <= 1:
            raise MemoryError("one sequence needs more blocks than there are")
        while self.admitted:
            request = self.admitted.pop(self._yields())
            if request in self.decoding:
                left, tokens = self._left(request), self._leave(request)
                self._queue_up(Waiting(request, tokens + 1, left, False), back=True)
                self.preempted += 1
                return True
            for prompt in self.prompts:
                if prompt.request == request:
                    self.prompts.remove(prompt)
                    self.pool.give(prompt.private_blocks)
                    if prompt.prefix >= 0:
                        self.pool.leave(prompt.prefix)
                    self._queue_up(Waiting(request, prompt.tokens, prompt.outputs, False), back=True)
                    self.preempted += 1
                    return True
        return False

    def _yields(self) -> int:
        """Place in `admitted` of who gives its blocks back."""
        if not self.ranks:
            return -1
        here = set(self.decoding) | {prompt.request for prompt in self.prompts}
        self.admitted = [one for one in self.admitted if one in here]
        return max(range(len(self.admitted)), key=lambda index: (self.ranks[self.admitted[index]], index))

    def _host(self, decodes: int) -> float:
        return self.engine.host_s + self.engine.host_sequence_s * decodes

    def _mixed_step(self, done: Callable[[int], None]) -> None:
        """All decodes and a chunk of the prompts in front."""
        decodes, pairs, tokens = len(self.decoding), 0.0, 0
        room = max(min(self.engine.budget - decodes, self.engine.chunk), 0)
        for prompt in self.prompts:
            part = min(prompt.tokens - prompt.done, room - tokens)
            if part <= 0:
                break
            pairs += part * (prompt.done + 0.5 * part)
            prompt.done += part
            tokens += part
        seconds = self.times.linear_s(decodes, tokens) + self.times.pair_s * pairs
        if decodes:
            seconds += self.times.context_s(decodes) * self.context
        if self.loading:
            seconds, self.loading = max(seconds, self.engine.store_token_s * self.loading), 0
        self._pass(self._with_host(seconds, decodes), 1, decodes, tokens)
        self.mixed += tokens > 0
        self.prompt_tokens += tokens
        while self.prompts and self.prompts[0].done == self.prompts[0].tokens:
            self._answer(self.prompts.popleft(), done)

    def _answer(self, prompt: Prompt, done: Callable[[int], None]) -> None:
        """The last chunk of a prompt gives its first token."""
        request, engine = prompt.request, self.engine
        if math.isnan(self.first[request]):
            self.first[request] = self.now
        if self.store is not None:
            self.store.put(self.requests.hashes_of(request))
        shared, prefix = engine.blocks_of(prompt.tokens) - prompt.private_blocks, prompt.prefix
        wanted = self.requests.prefix_of(request) if engine.prefix_cache else -1
        if prefix < 0 <= wanted and not self.pool.hit(wanted):
            shared = min(self.requests.prefix_tokens, prompt.tokens) // engine.block_tokens
            if shared:
                self.pool.share(wanted, shared)
                prefix = wanted
        if prompt.outputs > 1:
            self._join(request, prompt.tokens, prompt.outputs - 1, shared, prefix)
            return
        self.pool.give(engine.blocks_of(prompt.tokens) - shared)
        if prefix >= 0:
            self.pool.leave(prefix)
        self._finish(request, done)

    def _with_host(self, device_s: float, decodes: int) -> float:
        host = self._host(decodes)
        return max(device_s, host) if self.engine.async_scheduling else device_s + host

    def _pass(self, seconds: float, count: int, decodes: int, tokens: int) -> None:
        """Time goes on by so many steps, in which decodes grow."""
        if self.timeline is not None:
            waiting = len(self.queue) + len(self.arriving)
            self.timeline.append((self.now, seconds, count, decodes, tokens, waiting, self.pool.used))
        self.now += seconds
        self.steps += count
        self.sequence_steps += decodes * count
        if decodes:
            self._grow(count)
