"""Reports of `trtllm-bench throughput`: what it prints, and its JSON (`--report_json`).

Neither says whether clients waited for answers. Where all requests come at once, at least half of them are open on
average until the last is answered (they drain evenly); fewer are those of a closed loop, as many as were open.
"""

import re
from typing import Any

from ...core.json_yaml import is_mapping
from .bench_json import objects
from .table_rows import ImportedRow, number_of, put

NAME = "report of trtllm-bench, printed or JSON"
LINE = re.compile(r"^\s*([A-Za-z][^:\n]*?)\s*:[ \t]+(\S.*?)\s*$", re.MULTILINE)
BEGIN = re.compile(r"= *(?:PYTORCH|TENSORRT|_?AUTODEPLOY)[ \w]*BACKEND|= *ENGINE DETAILS|= *REQUEST DETAILS")
PRINTED = {
    "model": "model", "quantization": "quantization", "kv cache dtype": "kv_cache_dtype", "tp size": "tp_size",
    "pp size": "pp_size", "ep size": "ep_size", "average input length (tokens)": "input_tokens",
    "average output length (tokens)": "output_tokens", "number of requests": "num_requests",
    "number of concurrent requests": "open", "issue rate (req/sec)": "issue_rate",
    "max runtime batch size": "max_batch_size",
    "total output throughput (tokens/sec)": "output_tokens_per_s",
    "average time-to-first-token [ttft] (ms)": "ttft_mean_ms",
    "average time-per-output-token [tpot] (ms)": "tpot_mean_ms", "average request latency (ms)": "e2e_mean_ms",
}  # fmt: skip
"""Line of what is printed -> column."""
JSON = {
    "engine": {"model": "model", "quantization": "quantization", "kv_cache_dtype": "kv_cache_dtype"},
    "world_info": {"tp_size": "tp_size", "pp_size": "pp_size", "ep_size": "ep_size", "issue_rate": "issue_rate",
                   "max_batch_size": "max_batch_size"},
    "request_info": {"num_requests": "num_requests", "avg_num_concurrent_requests": "open",
                     "avg_input_length": "input_tokens", "avg_output_length": "output_tokens"},
    "performance": {"system_output_throughput_tok_s": "output_tokens_per_s", "avg_request_latency_ms": "e2e_mean_ms"},
    "streaming_metrics": {"avg_ttft_ms": "ttft_mean_ms", "avg_tpot_ms": "tpot_mean_ms"},
}  # fmt: skip
"""Part of the JSON -> its names -> columns."""
WORDS = ("model", "quantization", "kv_cache_dtype")
MOST_RATE = 1e6
"""Requests a second from which an issue rate means all at once: it prints how fast requests were put in a queue."""
UNLIMITED = ("none", "n/a", "")


def reads(text: str) -> bool:
    """A JSON object with its parts, or its headings with a throughput."""
    if text.lstrip()[:1] == "{":
        return all(f'"{part}"' in text for part in ("world_info", "request_info", "performance"))
    return BEGIN.search(text) is not None and "Request Throughput (req/sec):" in text


def rows(text: str) -> list[ImportedRow]:
    """One run a report.

    Raises:
        ConfigError: JSON that breaks off, a negative number.
    """
    if text.lstrip()[:1] == "{":
        return [_row(_of_json(one)) for one in objects(text)]
    lines = {name.lower(): value for name, value in LINE.findall(text)}
    return [_row({column: lines[name] for name, column in PRINTED.items() if name in lines})]


def _of_json(record: dict[str, Any]) -> dict[str, Any]:
    said = dict[str, Any]()
    for part, names in JSON.items():
        inside: Any = record.get(part)
        if is_mapping(inside):
            said |= {column: inside[name] for name, column in names.items() if inside.get(name) is not None}
    return said


def _row(said: dict[str, Any]) -> ImportedRow:
    row: ImportedRow = {"framework": "trtllm"}
    row |= {name: str(said[name]) for name in WORDS if str(said.get(name) or "").lower() not in UNLIMITED}
    requests, waiting, rate = (number_of(said.get(name)) for name in ("num_requests", "open", "issue_rate"))
    put(row, "num_prompts", requests)
    if rate and rate < MOST_RATE:
        put(row, "request_rate", rate)
    elif requests and waiting and waiting < requests / 2:
        put(row, "concurrency", max(round(waiting), 1))
    else:
        row["request_rate"] = "inf"
        put(row, "max_batch_size", said.get("max_batch_size"))
    for name, value in said.items():
        if name not in (*WORDS, "num_requests", "open", "issue_rate", "max_batch_size"):
            put(row, name, value)
    return row
