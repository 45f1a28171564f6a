"""Blocks of the key-value cache: who holds how many, and prefixes that several share."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import no_type_check

# Prefix cache of finite size: blocks of prompt tokens by their hash, the longest unused thrown out first.
#
# A block's hash stands for its tokens and all before them (the `hash_ids` of a trace), so that the blocks of all
# prompts are a tree. A prompt finds the blocks that it begins with. All of them are used together, the first last: a
# block is then never older than what follows it, and what is thrown out are ends, not beginnings.
#
# Source: hash_ids [qin2025mooncake]; blocks by hash, least recently used first and ends before beginnings [kwon2023].


@no_type_check  # a checker at run time would cost more than the simulation
class PrefixStore:
    """Hashes of `blocks` blocks at most."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.held: OrderedDict[int, None] = OrderedDict()

    def leading(self, hashes: Sequence[int]) -> int:
        """Number of leading blocks of a prompt that are cached; asking counts as no use."""
        held, count = self.held, 0
        for one in hashes:
            if one not in held:
                break
            count += 1
        return count

    def use(self, hashes: Sequence[int], count: int) -> None:
        """The first `count` blocks, which are there, are the last used."""
        move = self.held.move_to_end
        for one in hashes[count - 1 :: -1] if count else ():
            move(one)

    def put(self, hashes: Sequence[int]) -> None:
        """All blocks of a prompt are there and the last used; what has no room goes."""
        held = self.held
        move = held.move_to_end
        for one in reversed(hashes):
            if one in held:
                move(one)
            else:
                held[one] = None
        while len(held) > self.blocks:
            held.popitem(last=False)


@dataclass
class Prefix:
    """Blocks that hold the beginning of several requests."""

    blocks: int
    users: int


class BlockPool:
    """Counts blocks; a prefix nobody uses stays until its room is needed, the one longest unused goes first."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self.prefixes: dict[int, Prefix] = {}
        self.unused: OrderedDict[int, None] = OrderedDict()
        self.evictable = 0

    @property
    def available(self) -> int:
        """Blocks that a request could get."""
        return self.free + self.evictable

    @property
    def used(self) -> int:
        """Blocks that somebody needs."""
        return self.total - self.available

    def take(self, blocks: int) -> None:
        """Hand out blocks, throwing out prefixes where there is no room; the caller has seen that they suffice."""
        while self.free < blocks:
            oldest, _ = self.unused.popitem(last=False)
            self._forget(oldest)
        self.free -= blocks

    def give(self, blocks: int) -> None:
        """Take blocks back."""
        self.free += blocks

    def hit(self, prefix: int) -> int:
        """Blocks of a prefix that are there."""
        result = self.prefixes.get(prefix)
        return result.blocks if result else 0

    def use(self, prefix: int) -> None:
        """One more request reads a prefix that is there."""
        result = self.prefixes[prefix]
        if not result.users:
            del self.unused[prefix]
            self.evictable -= result.blocks
        result.users += 1

    def share(self, prefix: int, blocks: int) -> None:
        """Blocks that one request has filled become a prefix, which it uses."""
        self.prefixes[prefix] = Prefix(blocks, 1)

    def leave(self, prefix: int) -> None:
        """One request fewer reads a prefix."""
        result = self.prefixes[prefix]
        result.users -= 1
        if not result.users:
            self.unused[prefix] = None
            self.evictable += result.blocks

    def _forget(self, prefix: int) -> None:
        blocks = self.prefixes.pop(prefix).blocks
        self.evictable -= blocks
        self.free += blocks
