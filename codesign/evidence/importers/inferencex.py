"""Results of InferenceX (formerly InferenceMAX): `agg_*.json` of a run, lists of them, rows of its public data.

Seconds and tokens/s of a device. Its clients draw each length evenly from four fifths of what is stated up to all of it
and send ten requests each (`benchmark_serving --random-range-ratio 0.8 --num-prompts 10 x conc`), so the mean is nine
tenths. A served model on two pools has the degrees of both; `concurrency` is then that of one engine that decodes.
"""

import csv
from typing import Any

from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping
from .bench_json import objects
from .table_rows import ImportedRow, number_of, put

NAME = "InferenceX (InferenceMAX) results, JSON or CSV"
LATENCIES = ("ttft", "tpot", "itl", "e2el")
SHARES = ("mean", "median", "p90", "p99")
SHORTEST = 0.8
MEAN, SPREAD = (1 + SHORTEST) / 2, (1 - SHORTEST) / 12**0.5 / ((1 + SHORTEST) / 2)
"""Mean of a length over the stated one, and its coefficient of variation."""
REQUESTS = 10.0
"""Requests that each client sends."""
FRAMEWORKS = {"trt": "trtllm", "tensorrt-llm": "trtllm"}
ORCHESTRATORS = ("dynamo-", "mori-")
"""Prefixes of orchestrators in the name of a framework."""
MODELS = {
    "dsr1": "deepseek-ai/DeepSeek-R1-0528", "gptoss": "openai/gpt-oss-120b", "gptoss120b": "openai/gpt-oss-120b",
    "llama70b": "meta-llama/Llama-3.3-70B-Instruct", "70b": "meta-llama/Llama-3.3-70B-Instruct",
    "qwen3.5": "Qwen/Qwen3.5-397B-A17B", "kimik2.5": "moonshotai/Kimi-K2.5", "minimaxm2.5": "MiniMaxAI/MiniMax-M2.5",
    "glm5": "zai-org/GLM-5-FP8",
}  # fmt: skip
"""Short names of its models, where the path of a checkpoint says nothing."""
STATED = ("tput_per_gpu", "output_tput_per_gpu")


def reads(text: str) -> bool:
    """JSON or CSV with its names of a device, a concurrency and a rate."""
    if text.lstrip()[:1] in ("{", "["):
        return '"conc"' in text and any(f'"{name}"' in text for name in STATED)
    header = text.partition("\n")[0].strip().split(",")
    return {"hw", "conc"} <= {*header} and any(name in header for name in STATED)


def rows(text: str) -> list[ImportedRow]:
    """One run a record.

    Raises:
        ConfigError: JSON that breaks off, a record without a device, a length, a concurrency or a latency.
    """
    result: list[ImportedRow] = []
    for number, record in enumerate(_records(text), 1):
        try:
            result.append(_row(record))
        except ConfigError as error:
            raise ConfigError(f"record {number}: {error}") from error
    return result


def _records(text: str) -> list[dict[str, Any]]:
    if text.lstrip()[:1] in ("{", "["):
        return objects(text)
    return [{name: cell for name, cell in one.items() if name} for one in csv.DictReader(text.splitlines())]


def _row(record: dict[str, Any]) -> ImportedRow:
    nested: Any = record.get("metrics")
    said = record | nested if is_mapping(nested) else record
    row: ImportedRow = {"gpu": _device(said), "model": _model(said)}
    row |= {
        "framework": _engine(str(said.get("framework") or "")),
        "precision": str(said.get("precision") or "").lower(),
    }
    row = {name: value for name, value in row.items() if value} | _layout(said)
    for what, name in (("input", "isl"), ("output", "osl")):
        length = number_of(said.get(name))
        if length:
            put(row, f"{what}_tokens", MEAN * length)
            put(row, f"workload.{what}_cv", SPREAD)
    row["workload.clients.rounds"] = f"{REQUESTS:g}"
    speculation = str(said.get("spec_decoding") or said.get("mtp") or "none").lower()
    row |= {} if speculation in ("none", "off", "false") else {"spec_decoding": speculation}
    for what in LATENCIES:
        for share in SHARES:
            put(row, f"{share}_{what}_s", said.get(f"{share}_{what}"))
    for share in SHARES:  # both would be the time between tokens
        if f"{share}_tpot_s" in row:
            row.pop(f"{share}_itl_s", None)
    if not _is_split(said):  # else of the devices that decode alone
        put(row, "output_tokens_per_s_per_gpu", said.get("output_tput_per_gpu"))
    if "output_tokens_per_s_per_gpu" not in row:
        put(row, "total_tokens_per_s_per_gpu", said.get("tput_per_gpu"))
    for name in ("image", "date"):
        row |= {name: str(said[name])} if said.get(name) else {}
    missing = [name for name in ("gpu", "model", "input_tokens", "output_tokens", "concurrency") if not row.get(name)]
    if missing:
        raise ConfigError(f"{missing[0]} is not stated, or not by a number above 0")
    if not any(name.endswith(("_ttft_s", "_tpot_s", "tokens_per_s_per_gpu")) for name in row):
        raise ConfigError("no latency and no rate is stated: a run that failed, or of another benchmark of theirs")
    return row


def _device(said: dict[str, Any]) -> str:
    """`h200` of `h200-nv`, `cluster:b300-nv` or `mi355x-amds_3`: runners are called by their device."""
    name = str(said.get("hw") or said.get("hardware") or "").lower()
    return name.rpartition(":")[2].partition("-")[0].partition("_")[0]


def _model(said: dict[str, Any]) -> str:
    """The name of a hub; that of the short one where the run served a folder of its machine."""
    path = str(said.get("model") or "")
    short = str(said.get("infmax_model_prefix") or said.get("model_prefix") or "").lower()
    local = path.startswith("/") or "/" not in path
    return MODELS.get(short, MODELS.get(path.lower(), path)) if local else path


def _engine(name: str) -> str:
    plain = name.lower()
    for before in ORCHESTRATORS:
        plain = plain.removeprefix(before)
    plain = plain.removesuffix("-disagg")
    return FRAMEWORKS.get(plain, plain)


def _is_split(said: dict[str, Any]) -> bool:
    """True if prefill runs on a pool of its own."""
    return str(said.get("disagg")).lower() == "true"


def _layout(said: dict[str, Any]) -> ImportedRow:
    """Columns of the layout, and of the clients of one engine."""
    clients, row = number_of(said.get("conc")), ImportedRow()
    tp = number_of(said.get("tp")) or number_of(said.get("decode_tp"))
    dp = said.get("dp_attention", said.get("decode_dp_attention"))
    workers = 1.0
    put(row, "tp", tp)
    if str(dp).lower() == "true":
        put(row, "attention_dp", tp)
    put(row, "experts_over", said.get("ep", said.get("decode_ep")))
    if _is_split(said):
        workers = max(number_of(said.get("decode_num_workers")) or 1.0, 1.0)
        put(row, "num_gpus", said.get("num_decode_gpu"))
        put(row, "plan.prefill_devices", said.get("num_prefill_gpu"))
        put(row, "plan.prefill_tp", said.get("prefill_tp"))
        if str(said.get("prefill_dp_attention")).lower() == "true":
            put(row, "plan.prefill_attention_dp", said.get("prefill_tp"))
        if "plan.prefill_devices" not in row:
            raise ConfigError("prompts have devices of their own, but num_prefill_gpu does not say how many")
    elif tp:
        put(row, "num_gpus", tp)
    if clients:
        put(row, "concurrency", max(clients / workers, 1.0))
        put(row, "workload.concurrency" if _is_split(said) else "clients", clients)
    return row
