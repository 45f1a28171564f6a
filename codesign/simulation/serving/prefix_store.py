"""Prefix cache of finite size: blocks of prompt tokens by their hash, the longest unused thrown out first.

A block's hash stands for its tokens and all before them (the `hash_ids` of a trace), so that the blocks of all prompts
are a tree. A prompt finds the blocks that it begins with. All of them are used together, the first last: a block is
then never older than what follows it, and what is thrown out are ends, not beginnings.

Source: hash_ids [qin2025mooncake]; blocks by hash, least recently used first and ends before beginnings [kwon2023].
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import no_type_check


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
