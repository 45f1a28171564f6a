"""Parameters of one simulated engine that batches continuously."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from ...core.errors import ConfigError

# Time of one step of an engine, as a simulation requests it from a model of the hardware.


@runtime_checkable
class StepTimes(Protocol):
    """Seconds of a step, in three parts.

    A step that decodes n sequences whose contexts hold K tokens together, and computes c prompt tokens that attend
    P keys together, takes

        linear_s(n, c) + K context_s(n) + P pair_s

    so that a run of steps without prompts is an arithmetic series.
    """

    @property
    def pair_s(self) -> float:
        """Seconds a pair of a query and a key of prompts."""
        ...

    def linear_s(self, decodes: float, prompt_tokens: float) -> float:
        """Seconds that do not depend on contexts: weights, matrix products, norms, communication, launches."""
        ...

    def context_s(self, decodes: float) -> float:
        """One token of context of one decoding sequence."""
        ...


@dataclass(frozen=True)
class RooflineSteps:
    """linear = fixed_s + max(weights_s, token_s (n + c)): weights are streamed once, or arithmetic is the longer."""

    fixed_s: float
    weights_s: float
    token_s: float
    read_s: float  # one token of context
    pair_s: float  # one query of a prompt and one key

    def linear_s(self, decodes: float, prompt_tokens: float) -> float:
        """See the class."""
        return self.fixed_s + max(self.weights_s, self.token_s * (decodes + prompt_tokens))

    def context_s(self, decodes: float) -> float:
        """Seconds of one token of context, equal for every number of sequences."""
        del decodes
        return self.read_s


@dataclass(frozen=True)
class TabulatedSteps:
    """Between listed numbers of decodes and prompt tokens; beyond the last ones as between the last two.

    Args:
        decodes, prompt_tokens: rising; the first of each is 0.
        linear: seconds, [decodes, prompt_tokens].
        context: seconds a token of context, [decodes].
        pair_s: seconds a query and key of prompts.
    """

    decodes: Sequence[float]
    prompt_tokens: Sequence[float]
    linear: np.ndarray
    context: np.ndarray
    pair_s: float
    _linear: dict[tuple[float, float], float] = field(
        default_factory=dict[tuple[float, float], float], repr=False, compare=False
    )
    _context: dict[float, float] = field(default_factory=dict[float, float], repr=False, compare=False)

    def times(self, factor: float) -> "TabulatedSteps":
        """Every step so many times as long."""
        return TabulatedSteps(
            self.decodes, self.prompt_tokens, factor * self.linear, factor * self.context, factor * self.pair_s
        )

    def linear_s(self, decodes: float, prompt_tokens: float) -> float:
        """Bilinear; what was asked before is remembered."""
        key = (decodes, prompt_tokens)
        cached = self._linear.get(key)
        if cached is None:
            row, up = _cell(self.decodes, decodes)
            column, right = _cell(self.prompt_tokens, prompt_tokens)
            near, far = self.linear[row], self.linear[row + 1]
            low = (1 - right) * near[column] + right * near[column + 1]
            high = (1 - right) * far[column] + right * far[column + 1]
            cached = self._linear[key] = float((1 - up) * low + up * high)
        return cached

    def context_s(self, decodes: float) -> float:
        """Linear between the listed numbers."""
        cached = self._context.get(decodes)
        if cached is None:
            row, up = _cell(self.decodes, decodes)
            cached = self._context[decodes] = float((1 - up) * self.context[row] + up * self.context[row + 1])
        return cached


def _cell(listed: Sequence[float], value: float) -> tuple[int, float]:
    """Index of the entry below, and how far it is to the next."""
    index = min(max(bisect.bisect_right(listed, value) - 1, 0), len(listed) - 2)
    return index, (value - listed[index]) / (listed[index + 1] - listed[index])


UNLIMITED = 10**9


@dataclass(frozen=True)
class Engine:
    """One replica as its scheduler sees it.

    Each step decodes every running sequence by one token and fills what is left of `budget` with prompt tokens, at
    most `chunk` of them, first come first served. The key-value cache is cut into blocks; a prompt is admitted when all
    its blocks are free and `watermark` of all blocks stays free beside them. Where a decode finds no block, the
    sequence admitted last gives all of its own back and is computed again, before anybody who waits. An engine that has
    `promised` admits a request only where the blocks of its whole answer are free beside those promised to others, so
    that none is ever taken back.

    The host needs `host_s` a step and `host_sequence_s` for each decoding sequence: before each step, or beside the
    step before it (`async_scheduling`), which then decides one step ahead what the next one does.

    Beside the room of running sequences a prefix store may hold `store_blocks` blocks of prompts by their hashes
    (`cache_blocks`); what of a prompt is there is not computed but comes over in `store_token_s` a token, beside the
    first step that has room for the prompt, which takes at least that long.

    With speculation a step verifies `verified` tokens of each sequence and keeps `accepted` of them on average (drawn
    from `seed`); multi-token prediction is the same with its own heads in place of a draft.

    Source: continuous batching [yu2022]; blocks and preemption by recomputation [kwon2023]; chunks [agrawal2024];
    speculation [leviathan2023]; prompts loaded layer by layer beside what is computed [qin2025mooncake].
    """

    times: StepTimes
    budget: int
    chunk: int = UNLIMITED
    sequences: int = 1024
    blocks: int = UNLIMITED
    block_tokens: int = 16
    watermark: float = 0.01
    prefix_cache: bool = False
    store_blocks: int = 0
    store_token_s: float = 0.0
    promised: bool = False
    async_scheduling: bool = False
    host_s: float = 0.0
    host_sequence_s: float = 0.0
    accepted: float = 1.0
    verified: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Whole positive counts, shares below one.

        Raises:
            ConfigError: naming what is not.
        """
        for name in ("budget", "chunk", "sequences", "blocks", "block_tokens", "verified"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"{name} = {getattr(self, name)} must be at least 1")
        if not (self.store_blocks >= 0 and self.store_token_s >= 0):
            raise ConfigError(
                f"store_blocks = {self.store_blocks} and store_token_s = {self.store_token_s} must not be negative"
            )
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark = {self.watermark} must be in [0, 1)")
        if not 1 <= self.accepted <= self.verified:
            raise ConfigError(
                f"accepted = {self.accepted:g} of verified = {self.verified} tokens of a sequence in a step: at least"
                " one is right, and no more are right than are verified"
            )
        if not (self.host_s >= 0 and self.host_sequence_s >= 0):
            raise ConfigError(
                f"host_s = {self.host_s} and host_sequence_s = {self.host_sequence_s} must not be negative"
            )

    def blocks_of(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_tokens)
