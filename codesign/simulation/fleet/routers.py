"""Routers of a fleet: which replica a request goes to when it comes.

round_robin         by turns
least_outstanding   to one with the fewest requests that are not answered (join the shortest queue)
power_of_two        to the one with fewer of two that are drawn
prefix_aware        where the least is left to compute: tokens of the prompt that the replica's prefix cache lacks, and
                    those of the requests that are not answered
session_sticky      where the conversation was before; its first turn to one with the fewest requests

Among equals the next by turns is taken.

Source: [mitzenmacher2001], two choices; prefixes beside load as in NVIDIA Dynamo's router [dynamo_router].
"""

import abc
from collections.abc import Sequence
from typing import ClassVar, no_type_check

import numpy as np

from ...core.errors import ConfigError, suggestion
from ..serving.cache_blocks import PrefixStore
from ..serving.requests import Requests

__all__ = ["ROUTERS", "AbstractRouter", "Outstanding", "router_of"]

DRAWN = 4096  # random numbers at a time


@no_type_check  # a checker at run time would cost more than the simulation
class Outstanding:
    """Replicas as a router sees them.

    requests, tokens: of each replica, those that are not answered and what these have to compute or decode; `ready`:
    the replicas that take requests; `stores`: prefix caches.
    """

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.tokens: list[float] = []
        self.stores: list[PrefixStore | None] = []
        self.ready: list[int] = []
        self.turn = 0

    def fewest(self) -> int:
        """One of the ready replicas with the fewest requests."""
        return self._least(self.requests)

    def least_work(self) -> int:
        """One of the ready replicas with the fewest tokens left."""
        return self._least(self.tokens)

    def _least(self, values: Sequence[float]) -> int:
        ready = self.ready
        counts = values if len(ready) == len(values) else [values[one] for one in ready]
        least, self.turn = min(counts), (self.turn + 1) % len(counts)
        try:
            return ready[counts.index(least, self.turn)]
        except ValueError:
            return ready[counts.index(least)]


class AbstractRouter(abc.ABC):
    """Choice of a replica for each request, in the order that they come in."""

    needs: ClassVar[str] = ""  # field of `Requests` without which there is nothing to go by

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        self.requests, self.seed = requests, seed

    @abc.abstractmethod
    def choose(self, request: int, now: Outstanding) -> int:
        """Replica that a request goes to, one of those that are ready."""


@no_type_check  # a checker at run time would cost more than the simulation
class RoundRobinRouter(AbstractRouter):
    """See the module."""

    def choose(self, request: int, now: Outstanding) -> int:
        """Replica whose turn it is."""
        one = now.ready[now.turn % len(now.ready)]
        now.turn = (now.turn + 1) % len(now.ready)
        return one


@no_type_check  # a checker at run time would cost more than the simulation
class LeastOutstanding(AbstractRouter):
    """See the module."""

    def choose(self, request: int, now: Outstanding) -> int:
        """Replica with the fewest."""
        return now.fewest()


@no_type_check  # a checker at run time would cost more than the simulation
class PowerOfTwo(AbstractRouter):
    """See the module."""

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        super().__init__(requests, seed)
        self.rng = np.random.default_rng([seed, 2])
        self.drawn: list[float] = []

    def choose(self, request: int, now: Outstanding) -> int:
        """The one with fewer of two."""
        if len(self.drawn) < 2:
            self.drawn = self.rng.random(DRAWN).tolist()
        count = len(now.ready)
        if count == 1:
            return now.ready[0]
        one = int(self.drawn.pop() * count)
        other = (one + 1 + int(self.drawn.pop() * (count - 1))) % count
        one, other = now.ready[one], now.ready[other]
        return one if now.requests[one] <= now.requests[other] else other


@no_type_check  # a checker at run time would cost more than the simulation
class PrefixAware(AbstractRouter):
    """See the module."""

    needs: ClassVar[str] = "hashes"

    def choose(self, request: int, now: Outstanding) -> int:
        """Replica that has the least left to compute with this request."""
        hashes, size = self.requests.hashes_of(request), self.requests.hash_tokens
        best = now.least_work()
        if not hashes:
            return best
        first, least = hashes[0], now.tokens[best]
        for one in now.ready:
            store = now.stores[one]
            if now.tokens[one] - size * len(hashes) >= least:  # were all of the prompt there
                continue
            if store is None or first not in store.held:
                continue
            left = now.tokens[one] - size * store.leading(hashes)
            if left < least:
                best, least = one, left
        return best


@no_type_check  # a checker at run time would cost more than the simulation
class SessionSticky(AbstractRouter):
    """See the module."""

    needs: ClassVar[str] = "sessions"

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        super().__init__(requests, seed)
        self.homes: dict[int, int] = {}

    def choose(self, request: int, now: Outstanding) -> int:
        """Replica of the conversation, another where that one takes no requests any more."""
        session = int(self.requests.sessions[request])
        home = self.homes.get(session, -1)
        if home < 0 or home not in now.ready:
            home = now.fewest()
            if session >= 0:
                self.homes[session] = home
        return home


ROUTERS: dict[str, type[AbstractRouter]] = {
    "round_robin": RoundRobinRouter,
    "least_outstanding": LeastOutstanding,
    "power_of_two": PowerOfTwo,
    "prefix_aware": PrefixAware,
    "session_sticky": SessionSticky,
}


def router_of(name: str, requests: Requests, seed: int = 0) -> AbstractRouter:
    """A router by its name.

    Raises:
        ConfigError: no such router, or requests that lack what it goes by.
    """
    if name not in ROUTERS:
        raise ConfigError(f"router = {name!r} does not exist{suggestion(name, ROUTERS)}")
    result = ROUTERS[name]
    lacks: Sequence[object] = getattr(requests, result.needs) if result.needs else [0]
    if not len(lacks):
        column = {"hashes": "hash_ids of prompts' blocks", "sessions": "a column session"}[result.needs]
        raise ConfigError(f"router = {name!r} goes by {column}, which these requests do not have: take another router")
    return result(requests, seed)
