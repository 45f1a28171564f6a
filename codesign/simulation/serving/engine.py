"""Parameters of one simulated engine that batches continuously."""

from dataclasses import dataclass

from ...core.errors import ConfigError
from .engine_steps import StepTimes

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
    (`prefix_store`); what of a prompt is there is not computed but comes over in `store_token_s` a token, beside the
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
