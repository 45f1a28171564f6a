"""Share of a device's memory that an engine takes, and the step that it sizes its activations by, as overrides."""

from typing import NamedTuple

__all__ = ["FIELD", "EngineStart", "engine_overrides", "sglang_share"]

FIELD = "workload.engine_memory"
GIB = 2**30
UNSAID = {"vllm": 0.9, "vllm_0_21": 0.92, "trtllm": 0.9}
"""Share that an engine takes where nothing is said. Source: [vllm_source], [trtllm_source]."""
LARGE_DEVICE = 70 * GIB
DEFAULT_STEP = {True: (1024, 8192), False: (256, 2048)}
"""Large device -> sequences and tokens of a step of vLLM where nothing is said. Source: [vllm_source], arg_utils.py."""


class EngineStart(NamedTuple):
    """Start of an engine: option of `engine_memory`, share (0: unsaid), device, ranks and tokens of a step.

    sequences, tokens: whether it is said how many a step has.
    """

    engine: str
    utilisation: float
    device: str
    capacity_bytes: float
    tp: float = 1.0
    pp: float = 1.0
    token_budget: float = 0.0
    sequences: bool = True
    tokens: bool = True


def engine_overrides(start: EngineStart) -> list[str]:
    """Overrides that a start means."""
    share = start.utilisation or (sglang_share(start) if start.engine == "sglang" else UNSAID[start.engine])
    result = [f"engine_memory={start.engine}", f"{FIELD}.utilisation={share:g}"]
    if start.engine.startswith("vllm"):
        large = start.capacity_bytes >= LARGE_DEVICE and not start.device.startswith("a100")
        sequences, tokens = DEFAULT_STEP[large]
        result += [] if start.sequences else [f"{FIELD}.sequences={sequences}"]
        result += [] if start.tokens else [f"{FIELD}.tokens={tokens}"]
    return result


def sglang_share(start: EngineStart) -> float:
    """Share of weights and cache that SGLang chooses: what is left of a device beside its estimate of the rest.

    Source: [sglang_source]: 512 MiB, 1.5 MiB a token of a chunk, 2 MiB a sequence of the largest graph, 1 GiB for eight
    ranks, together at least 10 GiB on devices of more than 60 GiB.
    """
    graphs = 256 if start.tp < 4 else 512
    aside = 512 + 1.5 * max(start.token_budget, 2048) + 2 * graphs + start.tp * start.pp / 8 * 1024
    aside = max(aside, 10 * 1024) if start.capacity_bytes > 60 * GIB else aside
    return round(max(1 - aside * 2**20 / start.capacity_bytes, 0.1), 3)
