"""Requests sent to a server: so many at a time in a closed loop, or each when it arrives, however busy that is."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import numpy as np
from tornado.httpclient import AsyncHTTPClient

from ...simulation.serving import Requests
from .endpoint import Endpoint, StreamedAnswer
from .prompt_sizes import PromptSizes

__all__ = ["Driven", "drive"]

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
    asked: Requests,
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
    prompts = [sizes.prompt(rng, int(tokens)) for tokens in asked.prompts]  # drawn before the clock runs
    answers: list[tuple[int, StreamedAnswer]] = []
    late: list[float] = []
    begun = time.perf_counter()

    async def one(number: int) -> None:
        answers.append((number, await endpoint.ask(client, prompts[number], int(asked.outputs[number]))))
        tell(len(answers), len(asked))

    async def closed() -> None:
        waiting = iter(range(len(asked)))

        async def client_of_loop() -> None:
            for number in waiting:  # which all clients share
                await one(number)

        await _together([client_of_loop() for _ in range(min(clients, len(asked)))])

    async def arriving(number: int, at_s: float) -> None:
        await asyncio.sleep(begun + at_s - time.perf_counter())
        await one(number)

    came = asked.arrivals
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
