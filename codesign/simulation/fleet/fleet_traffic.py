"""Traffic drawn at random: streams of arrivals, classes of requests, conversations whose prompts share beginnings.

Streams       gamma-distributed gaps of a variation (`serving.arrivals`: Poisson at 1); rates that follow each other as
              a Markov chain, and a profile of rates (hours of a day), by a change of the clock of a stream of rate 1
Classes       lengths, share of the conversations, a first part of the prompt that many share, turns, time between them
Conversations the first prompt is a shared part and a question; the next is all that was said and another question,
              asked a think time (of a person, or of a tool that an agent calls) after the answer

Prompts are known by hashes of their whole blocks, each of which stands for all before it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.errors import ConfigError
from ..serving.requests import Requests, arrivals, lengths

__all__ = [
    "Modulation", "RequestClass", "Reuse", "by_profile", "conversations", "dispersion", "markov_modulated",
    "reuse_of", "traffic_measures",
]  # fmt: skip


# Measures of a stream of requests, all that closed forms take from a trace: rate, burstiness, lengths, reuse.
#
# The age of a block when a request comes is counted in blocks asked for since it was last used, since that is what a
# cache that throws out the longest unused ages by; and what such a cache of C blocks holds at any time are the C
# blocks of the least age.


WINDOW_S = 60.0  # that counts are compared over


@dataclass(frozen=True)
class Reuse:
    """Blocks asked for one after the other, those of a prompt the last first, as a cache ages them.

    begins: where its prompt begins, of each use of a block; before: where the block was used before, -1 if never.
    """

    begins: np.ndarray
    before: np.ndarray

    @property
    def ages(self) -> np.ndarray:
        """Age of each block when its request comes, infinite where it is new."""
        return np.where(self.before >= 0, self.begins - self.before, np.inf)

    @property
    def blocks(self) -> int:
        """Different blocks."""
        return int((self.before < 0).sum())

    def held(self, index: int) -> np.ndarray:
        """Ages of all blocks that were used by then, the last used first."""
        again = np.zeros(index, bool)
        used = self.before[:index]
        again[used[used >= 0]] = True
        return index - np.flatnonzero(~again)[::-1]


def reuse_of(requests: Requests) -> Reuse:
    """Reuse of the blocks of prompts."""
    sizes = np.diff(requests.hash_starts)
    begins = np.repeat(requests.hash_starts[:-1], sizes)
    count = len(begins)
    order = np.repeat(requests.hash_starts[1:] - 1, sizes) + begins - np.arange(count)
    blocks = requests.hashes[order]
    by_block = np.argsort(blocks, kind="stable")
    same = np.diff(blocks[by_block]) == 0
    before = np.full(count, -1)
    before[by_block[1:][same]] = by_block[:-1][same]
    return Reuse(begins, before)


def dispersion(arrivals: np.ndarray, window_s: float = WINDOW_S) -> float:
    """Variance of the requests in a window over their mean: 1 of a Poisson stream; nan of fewer than ten windows."""
    windows = int(np.ptp(arrivals) // window_s)
    if windows < 10:
        return float("nan")
    counts = np.histogram(arrivals - arrivals[0], windows, (0.0, windows * window_s))[0]
    return float(counts.var() / counts.mean())


def traffic_measures(requests: Requests) -> dict[str, float]:
    """Numbers of a stream by name, those that are not known left out."""
    prompts, outputs = requests.prompts * 1.0, requests.outputs * 1.0
    result: dict[str, float] = {"requests": float(len(requests))}
    if requests.arrivals is not None and np.ptp(requests.arrivals) > 0:
        gaps = np.diff(requests.arrivals)
        result |= {"requests_per_s": 1 / float(gaps.mean()), "arrival_cv": float(gaps.std() / gaps.mean())}
        result["dispersion"] = dispersion(requests.arrivals)
    for name, values in (("input_tokens", prompts), ("output_tokens", outputs)):
        result |= {name: float(values.mean()), f"{name}_cv": float(values.std() / values.mean())}
        result[f"{name}_p99"] = float(np.percentile(values, 99))
    if len(requests.class_names):
        result["classes"] = float(len(requests.class_names))
    if len(requests.sessions):
        result["sessions"] = float(len(np.unique(requests.sessions)))
        result["turns"] = len(requests) / result["sessions"]
    if requests.hashed and len(requests.hashes):
        reuse = reuse_of(requests)
        ages = reuse.ages[reuse.before >= 0]
        result |= {
            "reused_ratio": len(ages) * requests.hash_tokens / float(prompts.sum()),
            "working_set_tokens": float(reuse.blocks) * requests.hash_tokens,
        }
        if len(ages):
            result["reuse_age_p50"] = float(np.median(ages)) * requests.hash_tokens
    return {name: value for name, value in result.items() if np.isfinite(value)}


BLOCK_TOKENS = 512
Row = tuple[float, int, int, int, int, int, float]  # arrival, prompt, output, session, class, turn, think


@dataclass(frozen=True)
class RequestClass:
    """Requests of one kind.

    share: of the conversations; input, output tokens: of a question and an answer, lognormal with a variation each;
    prefix_tokens: that each of `prefixes` shared beginnings has, wanted as rank^-zipf; turns: mean number, geometric;
    think_s: mean time between an answer and the next question, exponential.
    """

    name: str
    input_tokens: float
    output_tokens: float
    share: float = 1.0
    input_cv: float = 0.5
    output_cv: float = 0.5
    prefix_tokens: int = 0
    prefixes: int = 1
    zipf: float = 1.0
    turns: float = 1.0
    think_s: float = 0.0

    def __post_init__(self) -> None:
        """Counts of at least one, nothing below zero.

        Raises:
            ConfigError: naming what is not.
        """
        for name in ("input_tokens", "output_tokens", "prefixes", "turns"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"class {self.name!r}: {name} = {getattr(self, name)} must be at least 1")
        for name in ("share", "input_cv", "output_cv", "prefix_tokens", "zipf", "think_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"class {self.name!r}: {name} = {getattr(self, name)} must not be below 0")


def markov_modulated(
    rng: np.random.Generator, rates: Sequence[float], stays_s: Sequence[float], count: int
) -> np.ndarray:
    """Arrivals of a Poisson stream whose rate stays at each of `rates` for an exponential time, then is another one.

    Raises:
        ConfigError: rates or times that are none.
    """
    _refuse_chain(rates, stays_s)
    state, edges, work = 0, [0.0], [0.0]
    while work[-1] < 2 * count + 20:  # of a stream of rate 1, enough for so many
        stay = float(rng.exponential(stays_s[state]))
        edges.append(edges[-1] + stay)
        work.append(work[-1] + stay * rates[state])
        state = _next(rng, state, len(rates))
    return np.interp(np.cumsum(rng.exponential(1.0, count)), *_rising(np.array(work), np.array(edges)))


def _refuse_chain(rates: Sequence[float], stays_s: Sequence[float]) -> None:
    if len(rates) != len(stays_s) or len(rates) < 2 or min(stays_s) <= 0 or min(rates) < 0 or max(rates) <= 0:
        raise ConfigError(f"markov_modulated: rates {list(rates)} with mean stays of {list(stays_s)} s are no stream")


def _next(rng: np.random.Generator, state: int, count: int) -> int:
    """Another state, each as likely."""
    return (state + 1 + int(rng.integers(count - 1))) % count if count > 2 else 1 - state


@dataclass(frozen=True)
class Modulation:
    """Rates that follow each other as in `markov_modulated`, and the mean time that each stays."""

    rates: tuple[float, ...]
    stays_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Rates and times of a stream.

        Raises:
            ConfigError: as of `markov_modulated`.
        """
        _refuse_chain(self.rates, self.stays_s)

    def mean(self) -> float:
        """Mean rate: each state is entered as often as any other."""
        return float(np.average(self.rates, weights=self.stays_s))

    def factors(self, rng: np.random.Generator, span_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Edges of stays from 0 to `span_s`, and the rate over its mean in each."""
        state, edges, result = 0, [0.0], list[float]()
        while edges[-1] < span_s:
            edges.append(edges[-1] + float(rng.exponential(self.stays_s[state])))
            result.append(self.rates[state] / self.mean())
            state = _next(rng, state, len(self.rates))
        return np.minimum(np.array(edges), span_s), np.array(result)


def by_profile(
    rng: np.random.Generator,
    rates: Sequence[float] | np.ndarray,
    interval_s: float,
    cv: float = 1.0,
    span_s: float = 0.0,
    *,
    modulation: Modulation | None = None,
) -> np.ndarray:
    """Arrivals at a rate that is known by the interval, over all of them (or `span_s`), from the first on again.

    With a `modulation` it is multiplied by that one's rate over its mean.

    Raises:
        ConfigError: rates that are none.
    """
    numbers = np.asarray(rates, float)
    if (
        not len(numbers)
        or not (np.isfinite(numbers) & (numbers >= 0)).all()
        or not numbers.max() > 0
        or not interval_s > 0
    ):
        raise ConfigError(f"by_profile: rates {numbers.tolist()} over {interval_s:g} s each are no stream of requests")
    parts = math.ceil((span_s or interval_s * len(numbers)) / interval_s)
    edges = interval_s * np.arange(parts + 1)
    each = numbers[np.arange(parts) % len(numbers)]
    if modulation is not None:
        stays, factors = modulation.factors(rng, float(edges[-1]))
        both = np.unique(np.concatenate([edges, stays]))
        middle = 0.5 * (both[1:] + both[:-1])
        at = np.minimum(np.searchsorted(stays, middle, side="right") - 1, len(factors) - 1)
        each = each[np.minimum((middle // interval_s).astype(int), parts - 1)] * factors[at]
        edges = both
    work = np.concatenate([[0.0], np.cumsum(np.diff(edges) * each)])
    unit = arrivals(rng, 1.0, cv, int(work[-1] + 10 * max(cv, 1.0) * math.sqrt(work[-1]) + 20))
    return np.interp(unit[unit < work[-1]], *_rising(work, edges))


def _rising(work: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A clock and what it reads, without the times at which it stands still."""
    moves = np.concatenate([[True], np.diff(work) > 0])
    moves[:-1] |= moves[1:]
    return work[moves] + 1e-12 * np.arange(float(moves.sum())), edges[moves]


def conversations(
    rng: np.random.Generator,
    begins: np.ndarray,
    classes: Sequence[RequestClass],
    *,
    block_tokens: int = BLOCK_TOKENS,
    answer_s: float = 0.0,
    most_tokens: int = 131_072,
    open_loop: bool = False,
) -> Requests:
    """Requests of conversations that begin at these times.

    Args:
        rng: what is drawn with.
        begins: seconds, rising.
        classes: what they are.
        block_tokens: of a block that is hashed.
        answer_s: seconds that an answer is expected to take, for arrivals of an open loop.
        most_tokens: of a prompt and its answer: a conversation ends before.
        open_loop: whether turns come at times that are drawn now, as in a trace, not when the one before is answered.

    Raises:
        ConfigError: no classes or no shares.
    """
    shares = np.array([one.share for one in classes], float)
    if not len(classes) or not shares.sum() > 0:
        raise ConfigError("conversations: at least one class with a share above 0")
    kinds: np.ndarray = rng.choice(len(classes), len(begins), p=shares / shares.sum())
    rows: list[Row] = []
    wanted = [np.cumsum(np.arange(1, one.prefixes + 1.0) ** -one.zipf) for one in classes]
    prefix = np.zeros(len(begins), int)
    for kind in range(len(classes)):
        indices = np.flatnonzero(kinds == kind)
        drawn = rng.random(len(indices)) * wanted[kind][-1]
        prefix[indices] = np.searchsorted(wanted[kind], drawn)
    of_each: list[int] = kinds.tolist()
    turns = [int(rng.geometric(1 / classes[kind].turns)) for kind in of_each]
    total = sum(turns)
    per_turn = np.repeat(kinds, turns)
    asks, says, thinks = np.zeros(total, int), np.zeros(total, int), np.zeros(total)
    for kind, one in enumerate(classes):
        indices = np.flatnonzero(per_turn == kind)
        asks[indices] = lengths(rng, one.input_tokens, one.input_cv, len(indices))
        says[indices] = lengths(rng, one.output_tokens, one.output_cv, len(indices), least=2)
        thinks[indices] = rng.exponential(one.think_s, len(indices)) if one.think_s else 0.0
    at = 0
    for session, (begin, kind) in enumerate(zip(begins.tolist(), of_each, strict=True)):
        history, now = classes[kind].prefix_tokens, float(begin)
        for turn in range(turns[session]):
            history += int(asks[at + turn])
            if history + int(says[at + turn]) > most_tokens and turn:
                break
            think = float(thinks[at + turn]) if turn else 0.0
            now += think + (answer_s if turn else 0.0)
            rows.append((now, min(history, most_tokens), int(says[at + turn]), session, kind, turn, think))
            history += int(says[at + turn])
        at += turns[session]
    return _assembled(rows, classes, prefix, block_tokens, open_loop=open_loop)


def _assembled(
    rows: list[Row],
    classes: Sequence[RequestClass],
    prefix: np.ndarray,
    block_tokens: int,
    *,
    open_loop: bool,
) -> Requests:
    rows.sort(key=lambda row: row[0])
    table = np.array(rows, float)
    came, prompts, outputs = table[:, 0], table[:, 1].astype(int), table[:, 2].astype(int)
    sessions, kinds = table[:, 3].astype(int), table[:, 4].astype(int)
    codes: dict[tuple[int, ...], int] = {}
    flat: list[int] = []
    starts = [0]
    held: dict[int, list[int]] = {}  # blocks of each conversation so far
    who: list[list[int]] = np.stack([prompts, sessions, kinds], 1).tolist()
    for prompt, session, kind in who:
        chain = held.get(session)
        if chain is None:
            shared = classes[kind].prefix_tokens // block_tokens
            chain = [codes.setdefault((kind, int(prefix[session]), block), len(codes)) for block in range(shared)]
            held[session] = chain
        while len(chain) < prompt // block_tokens:
            chain.append(codes.setdefault((-1, session, len(chain)), len(codes)))
        flat += chain[: prompt // block_tokens]
        starts.append(len(flat))
    after = np.full(len(rows), -1)
    if not open_loop:
        latest: dict[int, int] = {}
        for request, session in enumerate(sessions.tolist()):
            after[request] = latest.get(session, -1)
            latest[session] = request
    return Requests(
        prompts, outputs, came, hashes=np.array(flat, int), hash_starts=np.array(starts), hash_tokens=block_tokens,
        sessions=sessions, classes=kinds, class_names=tuple(one.name for one in classes),
        after=np.zeros(0, int) if open_loop else after, think_s=table[:, 6],
    )  # fmt: skip
