"""The command that would measure what a design of serving promises: `vllm bench serve`, which any engine answers."""

import math

from .export_command import FILL_IN, WIDTH, Command, checked_text, comments
from .export_engines import EngineGroup
from .export_plan import Deployment

__all__ = ["benchmark"]

FILE = "benchmark.sh"
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
ROUNDS = 8  # of requests, for each that is under way: a closed loop has forgotten its start by then
FEWEST = 200
MOST_RATIO = 0.99  # of the range of random lengths


def benchmark(found: Deployment, groups: list[EngineGroup], engine: str) -> dict[str, str]:
    """The benchmark's script, with the predicted figures above it.

    A closed loop keeps as many requests under way as the engines of the design decode; an open one sends them at the
    rate of the study, with gaps of the same variation (burstiness is 1 / variation squared).
    """
    command = Command(["vllm", "bench", "serve"])
    command.add("--backend", BACKENDS.get(engine, "vllm"))
    command.add("--base-url", "http://localhost:8000" if engine != "sglang" else "http://localhost:30000")
    command.add("--model", found.hub or f"{FILL_IN}-MODEL")
    command.add("--dataset-name", "random")
    command.add("--random-input-len", round(found.number("input_tokens", default=2048)))
    command.add("--random-output-len", round(found.number("output_tokens", default=512)))
    spread = max(found.number("input_cv"), found.number("output_cv"))
    if spread:
        command.add("--random-range-ratio", f"{min(math.sqrt(3) * spread, MOST_RATIO):.2f}")
        command.note("lengths are drawn evenly around their mean, with the variation of the study where that can be")
    decode = groups[-1]
    under_way = max(decode.sequences * decode.sharing * decode.count, 1)
    rate = found.number("arrivals_per_s")
    if rate:
        command.add("--request-rate", f"{rate:g}")
        variation = found.number("arrival_cv", default=1.0)
        if variation and variation != 1:
            command.add("--burstiness", f"{1 / variation**2:.4g}")
    else:
        command.add("--max-concurrency", under_way)
    command.add("--num-prompts", max(ROUNDS * under_way, FEWEST) if not rate else max(math.ceil(600 * rate), FEWEST))
    command.add("--ignore-eos")
    command.add("--percentile-metrics", "ttft,tpot,itl,e2el")
    command.add("--save-result")
    for name, unit in (("ttft_s", "s to the first token"), ("tpot_s", "s a token after it")):
        if name in found.predicted:
            command.note(f"predicted: {found.predicted[name]:.4g} {unit}")
    if found.predicted.get("tokens_per_s"):
        command.note(f"predicted: {found.predicted['tokens_per_s']:,.0f} tokens/s")
    if found.number("images"):
        command.note(f"it sends text alone: {found.number('images'):g} images a request are yours to add")
    if sum(group.count for group in groups) > 1:
        command.note("the URL is that of the router in front of all engines")
    command.note("`codesign import` reads the file that it saves, beside the measurements of `codesign validate`")
    head = [checked_text("vllm_bench"), f"{found.title}: what would measure its prediction"]
    assert all(len(line) < 3 * WIDTH for line in head)
    return {FILE: comments(head) + command.text()}
