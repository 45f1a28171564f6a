"""Results of `vllm bench serve --save-result` (JSON) and of SGLang's `bench_serving --output-file` (JSON lines)."""

import json
from typing import Any

from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping
from .table_rows import ImportedRow, layout_of, number_of, put, put_rate

NAME = "vllm bench serve JSON or SGLang bench_serving JSON lines"
LATENCIES = ("ttft", "tpot", "itl", "e2el")
SHARES = ("mean", "median", "p90", "p99")
MODELS = ("model_id", "model", "model_path", "tokenizer_id")
ACCEPTED = ("accept_length", "spec_decode_acceptance_length")
"""Tokens of a sequence that a step of speculative decoding yields."""
ENGINES = {"vllm": "vllm", "openai": "vllm", "openai-chat": "vllm", "sglang": "sglang", "trt": "trtllm"}


def reads(text: str) -> bool:
    """A JSON object, one a line, or a list of them, with a time to the first token."""
    return text.lstrip()[:1] in ("{", "[") and '"mean_ttft_ms":' in text


def rows(text: str) -> list[ImportedRow]:
    """One run an object.

    Raises:
        ConfigError: JSON that breaks off, or that is no object.
    """
    return [_row(one) for one in objects(text)]


def objects(text: str) -> list[dict[str, Any]]:
    """Objects of a file that is one, a list of them, or has one a line.

    Raises:
        ConfigError: text that is no JSON, with its line.
    """
    try:
        parts = [json.loads(text)]
    except json.JSONDecodeError as failure:
        lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
        parts = []
        for at, line in lines:
            try:
                parts.append(json.loads(line))
            except (json.JSONDecodeError, RecursionError) as error:
                alone = len(lines) == 1 or at == 1
                where = f"line {failure.lineno}: {failure.msg}" if alone else f"line {at}: {error}"
                raise ConfigError(f"{where}; allowed: JSON that is whole") from error
    except RecursionError as error:
        raise ConfigError("JSON of more levels than any result has") from error
    if len(parts) == 1 and isinstance(parts[0], list):
        parts = parts[0]
    for one in parts:
        if not is_mapping(one):
            raise ConfigError("allowed: JSON objects, one a run")
    return parts


def _row(run: dict[str, Any]) -> ImportedRow:
    server: Any = run.get("server_info")
    server = server if is_mapping(server) else {}
    row: ImportedRow = {}
    model = next((str(said[name]) for name in MODELS for said in (run, server) if said.get(name)), "")
    if model:
        row["model"] = model
    row |= layout_of(server) | layout_of(run)
    engine = str(run.get("backend", "")).removesuffix("-chat").removesuffix("-oai")
    if engine in ENGINES:
        row["backend"] = ENGINES[engine]
    done = number_of(run.get("completed")) or number_of(run.get("num_prompts"))
    for column, totals in (("input_tokens", ("total_input_tokens", "total_input")),
                           ("output_tokens", ("total_output_tokens", "total_output"))):  # fmt: skip
        total = next((number_of(run[name]) for name in totals if name in run), None)
        if total and done:
            put(row, column, total / done)
    put(row, "num_prompts", run.get("num_prompts", run.get("completed")))
    put_rate(row, run.get("request_rate"), run.get("max_concurrency"))
    accepted = next((number for name in ACCEPTED if (number := number_of(run.get(name)))), 0.0)
    if accepted > 1:
        row["spec_decoding"] = str(server.get("speculative_algorithm") or "speculative").lower()
        put(row, "workload.accepted_tokens", accepted)
        put(row, "workload.verified_tokens", server.get("speculative_num_draft_tokens") or _verified(run))
    for what in LATENCIES:
        for share in SHARES:
            for key in (f"{share}_{what}_ms", f"{share}_{what.replace('e2el', 'e2e_latency')}_ms"):
                put(row, f"{share}_{what}_ms", run.get(key))
    put(row, "output_tokens_per_s", run.get("output_throughput"))
    if what_is_missing := [name for name in ("mean_ttft_ms", "output_tokens") if name not in row]:
        raise ConfigError(f"{what_is_missing[0]} is not stated, or not by a number")
    return _one_between_tokens(row)


def _verified(run: dict[str, Any]) -> float | None:
    """Tokens of a sequence that a step verifies: those drafted for it, and one of the model itself."""
    drafts, tokens = (number_of(run.get(f"spec_decode_{name}")) for name in ("num_drafts", "draft_tokens"))
    return 1 + tokens / drafts if drafts and tokens else None


def _one_between_tokens(row: ImportedRow) -> ImportedRow:
    """Without times between single tokens where those of whole answers are stated: both would be one metric."""
    for share in SHARES:
        if f"{share}_tpot_ms" in row:
            row.pop(f"{share}_itl_ms", None)
    return row
