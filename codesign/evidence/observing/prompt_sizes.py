"""Prompts of a stated number of tokens, of random words: how many words that takes is asked of the server.

    tokens = extra + words tokens_a_word

Two prompts of different lengths are sent before anything is measured; the server reports how many tokens they have, and
both constants follow: a chat's template is in the first. Words are drawn anew for each prompt, so that a cache of
prefixes finds none.
"""

from typing import NamedTuple

import numpy as np
from tornado.httpclient import AsyncHTTPClient

from ...core.errors import ConfigError
from .endpoint import REFUSES_OURS, Endpoint, StreamedAnswer

__all__ = ["PromptSizes", "measured_sizes"]

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
    if first.error and first.code in REFUSES_OURS and endpoint.own_fields:
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
