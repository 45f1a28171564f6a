"""Benchmarks without a server: `vllm bench throughput` and `latency`, SGLang's `bench_one_batch` and its server's twin.

Those of vLLM state neither lengths nor model: whoever imports them adds `model`, `isl` and `osl`, and the batch of
`latency`. All requests of a throughput come at once; a batch starts together (`static_batch`).
"""

import re
from typing import Any

from .bench_json import objects
from .table_rows import ImportedRow, number_of, put

NAME = "vllm bench throughput or latency JSON, SGLang bench_one_batch, JSON lines or printed"
THROUGHPUT = ('"requests_per_second"', '"total_num_tokens"')
LATENCY = ('"avg_latency"', '"percentiles"')
ONE_BATCH = ('"batch_size"', '"input_len"', '"output_len"', '"overall_throughput"')
KINDS = (THROUGHPUT, LATENCY, ONE_BATCH)
PRINTED = re.compile(r"^Total\. latency:\s*([\d.]+) s, throughput:", re.MULTILINE)
PREFILL = re.compile(r"^Prefill\. latency:\s*([\d.]+) s", re.MULTILINE)
BATCH = re.compile(r"Batch size: (\d+)")
DECODE = re.compile(r"^Decode\.\s+median latency:\s*([\d.]+) s", re.MULTILINE)


def reads(text: str) -> bool:
    """A JSON object with their names, or the lines that one batch prints."""
    if text.lstrip()[:1] == "{":
        return any(all(name in text for name in names) for names in KINDS)
    return PRINTED.search(text) is not None and PREFILL.search(text) is not None


def rows(text: str) -> list[ImportedRow]:
    """One run an object; of what is printed the last, behind its warm-up.

    Raises:
        ConfigError: JSON that breaks off, a negative number.
    """
    if text.lstrip()[:1] == "{":
        return [_row(one) for one in objects(text)]
    row: ImportedRow = {"workload": "static_batch"}
    sizes = BATCH.findall(text)
    put(row, "batch_size", sizes[-1] if sizes else None)
    for column, pattern in (("ttft_mean_s", PREFILL), ("tpot_p50_s", DECODE), ("e2e_mean_s", PRINTED)):
        if times := pattern.findall(text):
            put(row, column, times[-1])
    return [row]


def _row(record: dict[str, Any]) -> ImportedRow:
    row: ImportedRow = {}
    if "requests_per_second" in record:
        row["request_rate"] = "inf"
        for column, name in (("num_prompts", "num_requests"), ("requests_per_s", "requests_per_second"),
                             ("total_tokens_per_s", "tokens_per_second")):  # fmt: skip
            put(row, column, record.get(name))
        return row
    row["workload"] = "static_batch"
    if "avg_latency" in record:  # its percentiles are of repeated batches, not of requests
        put(row, "e2e_mean_s", record.get("avg_latency"))
        return row
    size = number_of(record.get("batch_size"))
    for column, names in (
        ("batch_size", ("batch_size",)), ("input_tokens", ("input_len",)), ("output_tokens", ("output_len",)),
        ("ttft_mean_s", ("prefill_latency", "ttft")), ("tpot_p50_s", ("median_decode_latency",)),
        ("e2e_mean_s", ("total_latency", "latency")),
    ):  # fmt: skip
        put(row, column, next((record[name] for name in names if name in record), None))
    last = number_of(record.get("last_gen_throughput"))
    if last and size and "tpot_p50_s" not in row:  # tokens of all sequences of the batch
        put(row, "tpot_mean_s", size / last)
    return row
