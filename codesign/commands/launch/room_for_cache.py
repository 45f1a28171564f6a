"""Memory of a launch command once its accelerator is known: the engine's share, weights in the host's, lengths."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from ...config.engine_share import FIELD, EngineStart, engine_overrides
from ...core.errors import ConfigError

__all__ = ["CacheRoom", "memory_overrides"]

INPUT_SHARE = 0.8  # of the longest request, where the lengths at hand are longer


class CacheRoom(NamedTuple):
    """Share of the memory that an engine takes, GiB of weights in the host's, tokens of the longest request; 0: unsaid.

    engine: whose memory it is; sequences, tokens: whether the command says how many a step has.
    """

    utilisation: float = 0.0
    offload_gib: float = 0.0
    longest: int = 0
    engine: str = ""
    sequences: bool = True
    tokens: bool = True


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
    result, notes = list[str](), list[str]()
    if asked.engine and not any(key == "engine_memory" or key.startswith(FIELD) for key in said):
        result += _engine(asked, config, notes)
    if asked.longest:
        result += _lengths(config, asked.longest, said, notes)
    if asked.engine and not asked.sequences and "plan.micro_batch" not in said:
        result += _fewer([*overrides, *result], notes)
    if asked.offload_gib and "plan.offload_weights" not in said:
        result += _offload([*overrides, *result], asked.offload_gib * 2**30, notes)
    return result, notes


def _engine(asked: CacheRoom, config: Any, notes: list[str]) -> list[str]:
    """The engine's memory, the share that it takes and the step that it sizes its activations by."""
    device, capacity = config.cluster.accelerator, config.cluster.accelerator.hbm.get("capacity_bytes")
    if not isinstance(capacity, int | float):
        notes.append("the engine's share of memory is not modelled for a memory of several tiers")
        return [f"engine_memory={asked.engine}"]
    said = [config.plan.get(name) for name in ("tp", "pp", "token_budget")]
    tp, pp, chunk = (float(value) if isinstance(value, int | float) else 1.0 for value in said)
    start = EngineStart(
        asked.engine, asked.utilisation, str(device.get("name", "")), float(capacity), tp, pp, chunk,
        asked.sequences, asked.tokens,
    )  # fmt: skip
    result = engine_overrides(start)
    if not asked.utilisation:
        share = next(one.partition("=")[2] for one in result if one.startswith(f"{FIELD}.utilisation"))
        notes.append(f"the engine's share of memory is not said: {share}, its default")
    return result


def _fewer(overrides: Sequence[str], notes: list[str]) -> list[str]:
    """Reduce the batch to the sequences that fit, where the command does not state it and the default does not fit."""
    from ...config.study import scenario_from_config
    from ...jaxprs.evaluator import interpreted
    from ...model.metrics import cache_room, memory_by_class
    from ..setup import prepare_jax

    prepare_jax()
    scenario = scenario_from_config(*overrides)

    def numbers(one: Any) -> Any:
        layout = one.workload.laid_out(one.layout)
        used = memory_by_class(one, layout)
        return cache_room(one, layout, used), used["hbm/kv_cache"]

    planned = float(scenario.plan.micro_batch)
    room, cache = (float(value) for value in interpreted(numbers, always=True)(scenario))
    if not 0 < room < cache:
        return []
    fits = max(int(planned * room / cache), 1)
    notes.append(f"the cache has room for {fits} of {planned:g} sequences: plan.micro_batch={fits}")
    return [f"plan.micro_batch={fits}"]


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
