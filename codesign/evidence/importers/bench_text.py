"""Printed results of `vllm bench serve` and SGLang's `bench_serving`: blocks called Serving Benchmark Result."""

import re

from .table_rows import ImportedRow, number_of, put, put_rate

NAME = "printed `Serving Benchmark Result` blocks of vLLM or SGLang"
BEGIN, END = re.compile(r"=+ Serving Benchmark Result =+"), re.compile(r"={40,}\s*$")
LINE = re.compile(r"^\W*([A-Za-z0-9][^:]*):\s+([-+.\w]+)\s*$")
TIMES = re.compile(r"(mean|median|p90|p99) (ttft|tpot|itl|e2el|e2e latency) \(ms\)")
CLIENTS = ("maximum request concurrency", "max request concurrency")
RATES = ("traffic request rate", "request rate configured (rps)")


def reads(text: str) -> bool:
    """A block anywhere."""
    return BEGIN.search(text) is not None


def rows(text: str) -> list[ImportedRow]:
    """One run a block that ends; one that breaks off is left out."""
    result: list[ImportedRow] = []
    fields: dict[str, str] | None = None
    load: dict[str, str] = {}  # as releases of vLLM print it before the run
    for line in text.splitlines():
        if BEGIN.search(line):
            fields, load = load, {}
        elif fields is not None and END.search(line.strip()):
            result.append(_row(fields))
            fields = None
        elif fields is not None and (match := LINE.match(line.strip())):
            fields[match[1].strip().lower()] = match[2]
        elif fields is None and (match := LINE.match(line.strip())) and match[1].lower() in (*CLIENTS, *RATES):
            load[match[1].lower()] = match[2]
    return result


def _row(fields: dict[str, str]) -> ImportedRow:
    row: ImportedRow = {}
    requests = number_of(fields.get("successful requests"))
    for column, name in (("input_tokens", "total input tokens"), ("output_tokens", "total generated tokens")):
        total = number_of(fields.get(name))
        if total and requests:
            put(row, column, total / requests)
    put(row, "num_prompts", requests)
    rate, clients = (next((fields[name] for name in names if name in fields), None) for names in (RATES, CLIENTS))
    put_rate(row, rate, clients)
    put(row, "output_tokens_per_s", fields.get("output token throughput (tok/s)"))
    for name, value in fields.items():
        if match := TIMES.fullmatch(name):
            put(row, f"{match[1]}_{match[2].replace('e2e latency', 'e2el')}_ms", value)
    for share in ("mean", "median", "p90", "p99"):
        if f"{share}_tpot_ms" in row:
            row.pop(f"{share}_itl_ms", None)
    return row
