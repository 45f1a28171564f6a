"""Memory of an exported engine: its share of a device's memory and its longest request, by the design's own account."""

import math

from .export_command import Command
from .export_engines import EngineGroup, longest
from .export_plan import Deployment

__all__ = ["add_memory", "longest_request"]

STEP = 0.01  # of a share, rounded up
FULLEST = 0.97  # share beyond which engines have no room for what no account holds


def longest_request(found: Deployment, group: EngineGroup) -> int:
    """Tokens of the longest request: prompt and answer where all are alike, else what the caches of a group hold.

    Engines refuse to start where a request of this length would not fit alone.
    """
    if longest(found):
        return longest(found)
    mean = found.number("input_tokens") + found.number("output_tokens")
    return max(math.floor(mean * group.of_a_group), math.ceil(mean))


def add_memory(found: Deployment, group: EngineGroup, command: Command, option: str, *, static: bool = False) -> None:
    """The share of a device's memory that an engine needs, from the bytes that the design stores.

    Args:
        found: the design.
        group: its engines; those of a pool for prompts alone store less, which the account does not tell apart.
        command: that the switch is added to.
        option: its name.
        static: the share is of weights and cache, without what a step needs and the engine reserves.
    """
    stored = found.stored("weights", "kv_cache") if static else found.stored()
    if not found.capacity_bytes or not stored or group.role == "prefill":
        return
    share = (stored + (0.0 if static else found.reserved_bytes)) / found.capacity_bytes
    command.add(option, f"{min(math.ceil(share / STEP) * STEP, FULLEST):.2f}")
    if share > FULLEST:
        command.note(f"the design fills {share:.1%} of the memory: {option} {FULLEST} leaves room for fewer sequences")
