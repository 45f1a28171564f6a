"""Requests sent to a server: so many at a time in a closed loop, or each when it arrives, however busy that is."""

import asyncio
import csv
import io
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import numpy as np
from tornado.httpclient import AsyncHTTPClient

from ...core.errors import ConfigError
from ...simulation.serving import Requests
from .endpoint import REFUSES_OURS, Endpoint, StreamedAnswer

__all__ = ["Driven", "Observed", "PromptSizes", "drive", "measured_sizes"]


# Prompts of a stated number of tokens, of random words: how many words that takes is asked of the server.
#
#     tokens = extra + words tokens_a_word
#
# Two prompts of different lengths are sent before anything is measured; the server reports how many tokens they have,
# and both constants follow: a chat's template is in the first. Words are drawn anew for each prompt, so that a cache
# of prefixes finds none.


COMMON = (
    "time way year work world life part place case week company system program question government number night point "
    "home water room mother area money story fact month right study book eye job word business issue side kind head "
    "house service friend father power hour game line end member law car city community name president team minute "
    "idea kid body information back parent face others level office door health person art war history party result "
    "change morning reason research girl guy moment air teacher force education foot boy age policy process music "
    "market sense nation plan college interest death experience effect use class control field development role effort "
    "rate heart drug show leader light voice wife police mind price report decision son view relationship town road "
    "arm difference value building action season society tax director position player record paper space ground form "
    "event official matter center couple site project activity star table need court oil situation cost industry"
)
WORDS = COMMON.split()
"""Most of them are one token of most tokenizers."""
SHORTEST = 16  # words of the longer of the two prompts


class PromptSizes(NamedTuple):
    """Tokens of a prompt without words, and of each of its words; whether the server said so, or one is assumed."""

    extra: float = 0.0
    a_word: float = 1.0
    counted: bool = False

    def prompt(self, rng: np.random.Generator, tokens: int) -> str:
        """Words of so many tokens, as near as whole words come; one at least."""
        count = max(round((tokens - self.extra) / self.a_word), 1)
        drawn: list[int] = rng.integers(len(WORDS), size=count).tolist()
        return " ".join(WORDS[number] for number in drawn)


async def measured_sizes(
    client: AsyncHTTPClient, endpoint: Endpoint, rng: np.random.Generator, tokens: int
) -> tuple[PromptSizes, Endpoint]:
    """Tokens that prompts of random words have at a server, and the endpoint with the fields that it takes.

    Args:
        tokens: of a usual prompt.

    Raises:
        ConfigError: the server answers neither of two short requests.
    """
    bare = PromptSizes()
    long = max(tokens, SHORTEST)
    first = await endpoint.ask(client, bare.prompt(rng, long), 1)
    if first.error and first.code in REFUSES_OURS and endpoint.extension_fields:
        endpoint = endpoint.plain()
        first = await endpoint.ask(client, bare.prompt(rng, long), 1)
    second = await endpoint.ask(client, bare.prompt(rng, long // 2), 1)
    for answer in (first, second):
        if answer.error:
            raise ConfigError(f"{endpoint.url} does not serve: {answer.error}")
    return _fitted(first, second, long), endpoint


def _fitted(first: StreamedAnswer, second: StreamedAnswer, long: int) -> PromptSizes:
    """The line through both."""
    if not first.prompt_tokens or not second.prompt_tokens:
        return PromptSizes()
    a_word = (first.prompt_tokens - second.prompt_tokens) / (long - long // 2)
    if a_word <= 0:  # a server that counts something else
        return PromptSizes()
    return PromptSizes(first.prompt_tokens - a_word * long, a_word, counted=True)


LOOKED_S = 0.01
"""Seconds between checks of the client for its own lateness."""


class Driven(NamedTuple):
    """Answers to a load: (request, answer) in the order of their ends, and how late the client itself was.

    begun: when the first request could be sent, on the clock of the answers. late_s: seconds by which the client came
    late to what it meant to do, one each `LOOKED_S`: what is measured is no finer than that.
    """

    answers: list[tuple[int, StreamedAnswer]]
    begun: float
    late_s: list[float]
    stopped: bool


async def drive(
    client: AsyncHTTPClient,
    endpoint: Endpoint,
    sizes: PromptSizes,
    requests: Requests,
    *,
    clients: int,
    rng: np.random.Generator,
    stop: asyncio.Event,
    tell: Callable[[int, int], None],
) -> Driven:
    """Send all requests, or those until `stop` is set: what is then under way is given up.

    Args:
        asked: lengths, and arrivals in an open loop.
        clients: requests at a time where there are no arrivals.
        tell: (ended, of how many).
    """
    prompts = [sizes.prompt(rng, int(tokens)) for tokens in requests.prompts]  # drawn before the clock runs
    answers: list[tuple[int, StreamedAnswer]] = []
    late: list[float] = []
    begun = time.perf_counter()

    async def one(number: int) -> None:
        answers.append((number, await endpoint.ask(client, prompts[number], int(requests.outputs[number]))))
        tell(len(answers), len(requests))

    async def closed() -> None:
        waiting = iter(range(len(requests)))

        async def client_of_loop() -> None:
            for number in waiting:  # which all clients share
                await one(number)

        await _together([client_of_loop() for _ in range(min(clients, len(requests)))])

    async def arriving(number: int, at_s: float) -> None:
        await asyncio.sleep(begun + at_s - time.perf_counter())
        await one(number)

    came = requests.arrivals
    work = closed() if came is None else _together([arriving(n, float(at)) for n, at in enumerate(came)])
    load, watch, end = (asyncio.ensure_future(one_of) for one_of in (work, _lateness(late), stop.wait()))
    await asyncio.wait((load, end), return_when=asyncio.FIRST_COMPLETED)
    stopped = not load.done()
    for task in (load, watch, end):
        task.cancel()
    await asyncio.gather(load, watch, end, return_exceptions=True)
    if not stopped:
        load.result()
    return Driven(answers, begun, late, stopped)


async def _together(work: list[Coroutine[Any, Any, None]]) -> None:
    """All of it; where one part fails or all is given up, none is left running."""
    async with asyncio.TaskGroup() as group:
        for part in work:
            group.create_task(part)


async def _lateness(late: list[float]) -> None:
    """Note how late a sleep ends, again and again."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(LOOKED_S)
        late.append(max(time.perf_counter() - before - LOOKED_S, 0.0))


# Summary of a server's answers: latencies with their percentiles, throughput, a row of measured runs.


SHARES = {"p50": 50, "mean": None, "p90": 90, "p99": 99}
VARIED = 0.005
"""Coefficient of variation from which lengths are told to vary."""
COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s", "error")


class Observed(NamedTuple):
    """Requests as they were asked for, and what came of those that ended."""

    requests: Requests
    driven: Driven

    @property
    def good(self) -> list[StreamedAnswer]:
        """Answers that came whole."""
        return [answer for _, answer in self.driven.answers if not answer.error]

    def failures(self) -> str:
        """Failed requests by cause, most frequent first; empty where none failed."""
        count = Counter(answer.error for _, answer in self.driven.answers if answer.error)
        return ", ".join(f"{number} x {error}" for error, number in count.most_common())

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of prompts and of answers: as the server reports them, else as asked for and counted."""
        answered = [(number, answer) for number, answer in self.driven.answers if not answer.error]
        inputs = [answer.prompt_tokens or int(self.requests.prompts[number]) for number, answer in answered]
        return np.array(inputs, float), np.array([answer.tokens for _, answer in answered], float)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Median, mean and percentiles in seconds: of first tokens, between tokens, of whole requests."""
        values = {
            "ttft": [answer.ttft_s for answer in self.good],
            "tpot": [answer.tpot_s for answer in self.good if answer.tpot_s is not None],
            "e2e": [answer.e2e_s for answer in self.good],
        }
        return {name: _shares(np.array(result, float)) for name, result in values.items() if result}

    def rates(self) -> dict[str, float]:
        """Completed requests and output tokens a second, from the first request to the last token."""
        span = max(answer.last for answer in self.good) - min(answer.sent for answer in self.good)
        return {"output_tokens_per_s": float(self.lengths()[1].sum()) / span, "requests_per_s": len(self.good) / span}

    def arrivals(self) -> tuple[float, float]:
        """Requests a second as they were sent, and the variation of their gaps; NaN of fewer than three."""
        gaps = np.diff(np.sort([answer.sent for _, answer in self.driven.answers]))
        if len(gaps) < 2 or not gaps.mean() > 0:
            return math.nan, math.nan
        return float(1 / gaps.mean()), float(gaps.std() / gaps.mean())

    def run_row(self, stated: Mapping[str, str], clients: int, traced: bool) -> dict[str, str]:
        """The run as a row of a table of measured runs; what was stated of it goes first.

        Args:
            stated: columns of its design.
            clients: of a closed loop.
            traced: whether arrivals are those of a trace, whose variation is then told, not a Poisson stream's.
        """
        numbers: dict[str, float] = {}
        for name, lengths in zip(("input", "output"), self.lengths(), strict=True):
            numbers[f"{name}_tokens"] = float(lengths.mean())
            spread = float(lengths.std() / lengths.mean())
            if spread > VARIED:
                numbers[f"workload.{name}_cv"] = spread
        if self.requests.arrivals is None:
            numbers |= {"concurrency": clients, "num_prompts": len(self.driven.answers)} | self.rates()
        else:
            rate, spread = self.arrivals()
            numbers |= {"request_rate": rate} | ({"workload.arrival_cv": spread} if traced else {})
        for name, shares in self.latencies().items():
            numbers |= {f"{name}_{share}_ms": 1e3 * value for share, value in shares.items()}
        texts = {name: f"{value:.6g}" for name, value in numbers.items() if math.isfinite(value)}
        return dict(stated) | {name: text for name, text in texts.items() if name not in stated}

    def requests_csv(self) -> str:
        """A row a request, in the order in which they were sent: a trace, with what was measured."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, answer in sorted(self.driven.answers, key=lambda pair: pair[1].sent):
            lengths = (answer.prompt_tokens or int(self.requests.prompts[number]), int(self.requests.outputs[number]))
            times: tuple[str, ...] = ("", "", "")
            if not answer.error:
                lengths = (lengths[0], answer.tokens)
                times = tuple("" if t is None else f"{t:.6f}" for t in (answer.ttft_s, answer.tpot_s, answer.e2e_s))
            writer.writerow((f"{answer.sent - self.driven.begun:.6f}", *lengths, *times, answer.error))
        return out.getvalue()

    def late_s(self) -> float:
        """By how much the client itself was late, at worst one time in a hundred."""
        return float(np.percentile(self.driven.late_s, 99)) if self.driven.late_s else 0.0


def _shares(values: np.ndarray) -> dict[str, float]:
    return {share: float(values.mean() if at is None else np.percentile(values, at)) for share, at in SHARES.items()}
