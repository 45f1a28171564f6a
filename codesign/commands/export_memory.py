"""Memory of an exported engine: its share of a device's memory and its longest request, by the design's own account."""

import dataclasses
import functools
import math

import jax.numpy as jnp

from ..core.resources import conf_dir
from ..core.untrusted_io import read_yaml_file
from ..model.workloads import EngineMemory, Plan
from .export_command import Command
from .export_engines import EngineGroup, longest, mean_request
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
    mean = mean_request(found)
    return max(math.floor(mean * group.of_a_group), math.ceil(mean))


def add_memory(found: Deployment, group: EngineGroup, command: Command, option: str, engine: str) -> None:
    """The least share of a device's memory that has room for what the design stores, by the engine's own account.

    Args:
        found: the design.
        group: its engines; those of a pool for prompts alone store less, which the account does not tell apart.
        command: that the switch is added to.
        option: its name.
        engine: option of the group `engine_memory`.
    """
    if not found.capacity_bytes or not found.stored() or group.role == "prefill":
        return
    plan = Plan(**{name: found.plan[name] for name in ("tp", "pp", "cp", "ep") if name in found.plan})
    near = dict.fromkeys(("weights", "kv_cache", "working", "graphs"), 0.0) | dict(found.memory)
    stored = {name: jnp.asarray(nbytes) for name, nbytes in near.items()}
    share = float(_memory_of(engine).needed_share(jnp.asarray(found.capacity_bytes), plan, stored))
    command.add(option, f"{min(math.ceil(share / STEP) * STEP, FULLEST):.2f}")
    if share > FULLEST:
        command.note(f"the design fills {share:.1%} of the memory: {option} {FULLEST} leaves room for fewer sequences")


@functools.cache
def _memory_of(engine: str) -> EngineMemory:
    """The memory of an engine that is given a share."""
    result = read_yaml_file(conf_dir() / "engine_memory" / f"{engine}.yaml", f"engine_memory/{engine}.yaml")
    names = {field.name for field in dataclasses.fields(EngineMemory)}
    return EngineMemory(**{key: value for key, value in result.items() if key in names} | {"utilisation": 1.0})
