"""Blocks of the key-value cache: who holds how many, and prefixes that several share."""

from collections import OrderedDict
from dataclasses import dataclass


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
