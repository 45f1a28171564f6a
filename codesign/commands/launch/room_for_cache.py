"""Memory of a launch command once its accelerator is known: the engine's share, weights in the host's, lengths."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from ...core.errors import ConfigError

__all__ = ["CacheRoom", "memory_overrides"]

RESERVED = "cluster.accelerator.hbm.reserved_bytes"
INPUT_SHARE = 0.8  # of the longest request, where the lengths at hand are longer


class CacheRoom(NamedTuple):
    """Share of the memory that an engine takes, GiB of weights in the host's, tokens of the longest request; 0: unsaid.

    static: the share is of weights and cache alone, beside which the engine has its buffers.
    """

    utilisation: float = 0.0
    offload_gib: float = 0.0
    longest: int = 0
    static: bool = False


def memory_overrides(asked: CacheRoom, overrides: Sequence[str], said: AbstractSet[str]) -> tuple[list[str], list[str]]:
    """Overrides of memory and lengths, and lines about them.

    Args:
        asked: of the command.
        overrides: of the design so far.
        said: keys that are overridden by hand, which stay as they are.

    Raises:
        ConfigError: a configuration that is wrong, or an offload of more than the weights.
    """
    if asked == CacheRoom():
        return [], []
    from ...config.composition import compose  # with the first command that asks

    config = compose(list(overrides))
    found, notes = list[str](), list[str]()
    if asked.utilisation and RESERVED not in said:
        hbm = config.cluster.accelerator.hbm
        capacity, reserved = hbm.get("capacity_bytes"), hbm.get("reserved_bytes")
        if isinstance(capacity, int | float):
            free = (1 - asked.utilisation) * capacity
            kept = float(reserved) if isinstance(reserved, int | float) and not asked.static else 0.0
            found.append(f"{RESERVED}={free + kept:.6g}")
        else:
            notes.append("the engine's share of memory is not modelled for a memory of several tiers")
    if asked.longest:
        found += _lengths(config, asked.longest, said, notes)
    if asked.offload_gib and "plan.offload_weights" not in said:
        found += _offload([*overrides, *found], asked.offload_gib * 2**30, notes)
    return found, notes


def _lengths(config: Any, longest: float, said: AbstractSet[str], notes: list[str]) -> list[str]:
    """Lengths of requests that the engine takes, where those of the workload are longer."""
    tokens = [config.workload.get(name) for name in ("input_tokens", "output_tokens")]
    names = {"workload.input_tokens", "workload.output_tokens", "workload.trace"}
    if not all(isinstance(one, int | float) for one in tokens) or sum(tokens) <= longest:
        return []
    if said & names:
        notes.append(f"requests of {sum(tokens):g} tokens are longer than the {longest:g} that the engine takes")
        return []
    prompt = max(int(INPUT_SHARE * longest), 1)
    answer = max(int(longest) - prompt, 2)
    notes.append(f"requests of {prompt} + {answer} tokens: the longest that the engine takes")
    return [f"workload.input_tokens={prompt}", f"workload.output_tokens={answer}"]


def _offload(overrides: Sequence[str], held: float, notes: list[str]) -> list[str]:
    """Share of a device's weights that the host keeps."""
    from ...config.study import scenario_from_config
    from ...search.results import numbers_in, priced
    from ..setup import prepare_jax

    prepare_jax()
    numbers = numbers_in(priced(scenario_from_config(*overrides)))
    stored = sum(
        value for key, value in numbers.items() if key.startswith("memory_bytes.") and key.endswith("/weights")
    )
    if not stored:
        raise ConfigError("--from: --cpu-offload-gb: this workload stores no weights")
    if held > stored:
        notes.append(
            f"--cpu-offload-gb is more than the {stored / 2**30:.3g} GiB of weights of a device: all are offloaded"
        )
    return [f"plan.offload_weights={min(held / stored, 1.0):.6g}"]
