"""Memory of a launch command once its accelerator is known: the engine's share, weights in the host's, lengths."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from ...core.errors import ConfigError

__all__ = ["CacheRoom", "memory_overrides"]

FIELD = "workload.engine_memory"
INPUT_SHARE = 0.8  # of the longest request, where the lengths at hand are longer
GIB = 2**30
UNSAID = {"vllm": 0.9, "trtllm": 0.9}
"""Share that an engine takes where nothing is said. Source: [vllm_source] up to release 0.20, [trtllm_source]."""
LARGE_DEVICE = 70 * GIB
DEFAULT_STEP = {True: (1024, 8192), False: (256, 2048)}
"""Large device -> sequences and tokens of a step of vLLM where nothing is said. Source: [vllm_source], arg_utils.py."""


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
    found, notes = list[str](), list[str]()
    if asked.engine and not any(key == "engine_memory" or key.startswith(FIELD) for key in said):
        found += _engine(asked, config, notes)
    if asked.longest:
        found += _lengths(config, asked.longest, said, notes)
    if asked.engine and not asked.sequences and "plan.micro_batch" not in said:
        found += _fewer([*overrides, *found], notes)
    if asked.offload_gib and "plan.offload_weights" not in said:
        found += _offload([*overrides, *found], asked.offload_gib * 2**30, notes)
    return found, notes


def _engine(asked: CacheRoom, config: Any, notes: list[str]) -> list[str]:
    """The engine's memory, the share that it takes and the step that it sizes its activations by."""
    device, capacity = config.cluster.accelerator, config.cluster.accelerator.hbm.get("capacity_bytes")
    found = [f"engine_memory={asked.engine}"]
    if not isinstance(capacity, int | float):
        notes.append("the engine's share of memory is not modelled for a memory of several tiers")
        return found
    share = asked.utilisation or (
        sglang_share(capacity, config.plan) if asked.engine == "sglang" else UNSAID[asked.engine]
    )
    if not asked.utilisation:
        notes.append(f"the engine's share of memory is not said: {share:g}, its default")
    found.append(f"{FIELD}.utilisation={share:g}")
    if asked.engine == "vllm":
        large = capacity >= LARGE_DEVICE and not str(device.get("name", "")).startswith("a100")
        sequences, tokens = DEFAULT_STEP[large]
        found += [] if asked.sequences else [f"{FIELD}.sequences={sequences}"]
        found += [] if asked.tokens else [f"{FIELD}.tokens={tokens}"]
    return found


def _fewer(overrides: Sequence[str], notes: list[str]) -> list[str]:
    """As many sequences as there is room for, where the command says none and the usual number has none."""
    from ...config.study import scenario_from_config
    from ...jaxprs.evaluator import interpreted
    from ...model.metrics import cache_budget, memory_by_class
    from ..setup import prepare_jax

    prepare_jax()
    scenario = scenario_from_config(*overrides)

    def numbers(one: Any) -> Any:
        layout = one.workload.laid_out(one.layout)
        used = memory_by_class(one, layout)
        found = cache_budget(one, layout, used)
        near = sum(nbytes for name, nbytes in used.items() if name.startswith("hbm/"))
        left = one.cluster.accelerator.hbm.usable_bytes() - near + used["hbm/kv_cache"]
        return {"cache": used["hbm/kv_cache"], "left": left, "room": left if found is None else found.room_bytes}

    found = {name: float(value) for name, value in interpreted(numbers, always=True)(scenario).items()}
    planned, room = float(scenario.plan.micro_batch), min(found["left"], found["room"])
    if not 0 < room < found["cache"]:
        return []
    fits = max(int(planned * room / found["cache"]), 1)
    notes.append(f"the cache has room for {fits} of {planned:g} sequences: plan.micro_batch={fits}")
    return [f"plan.micro_batch={fits}"]


def sglang_share(capacity: float, plan: Any) -> float:
    """Share of weights and cache that SGLang chooses: what is left of a device beside its estimate of the rest.

    Source: [sglang_source]: 512 MiB, 1.5 MiB a token of a chunk, 2 MiB a sequence of the largest graph, 1 GiB for eight
    ranks, together at least 10 GiB on devices of more than 60 GiB.
    """
    number = {name: plan.get(name) for name in ("tp", "pp", "token_budget")}
    tp, pp, chunk = (value if isinstance(value, int | float) else 1 for value in number.values())
    graphs = 256 if tp < 4 else 512
    aside = 512 + 1.5 * max(chunk, 2048) + 2 * graphs + tp * pp / 8 * 1024
    aside = max(aside, 10 * 1024) if capacity > 60 * GIB else aside
    return round(max(1 - aside * 2**20 / capacity, 0.1), 3)


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
