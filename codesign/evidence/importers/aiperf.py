"""Aggregates of AIPerf and GenAI-Perf: `profile_export_aiperf.json`, `profile_export_genai_perf.csv` and their like."""

import csv
import re
from typing import Any

from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping
from .bench_json import objects
from .table_rows import ImportedRow, number_of, put

NAME = "AIPerf or GenAI-Perf profile, JSON or CSV"
CSV_NAME = re.compile(r"(.+?)(?: \(([^)]*)\))?")
TIMES = {"time_to_first_token": "ttft", "inter_token_latency": "itl", "request_latency": "e2e"}
SHARES = {"avg": "mean", "p50": "p50", "p90": "p90", "p99": "p99"}
MILLISECONDS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}


def reads(text: str) -> bool:
    """A JSON object with their names of metrics, or their CSV."""
    if text.lstrip()[:1] == "{":
        return '"time_to_first_token"' in text
    return text.startswith("Metric,") and "\ntime to first token (" in text.lower()


def rows(text: str) -> list[ImportedRow]:
    """One run an object.

    Raises:
        ConfigError: JSON that breaks off, a unit that is not known.
    """
    return [_row(one) for one in (objects(text) if text.lstrip()[:1] == "{" else [_of_csv(text)])]


def _of_csv(text: str) -> dict[str, Any]:
    """Their CSV as their JSON: blocks of a header and a metric a line, without the configuration."""
    record, header = dict[str, Any](), list[str]()
    for cells in csv.reader(text.splitlines()):
        if cells[:1] == ["Metric"]:
            header = ["avg" if name == "Value" else name for name in cells[1:]]
        elif cells and (match := CSV_NAME.fullmatch(cells[0])):
            values = {name: cell.replace(",", "") for name, cell in zip(header, cells[1:], strict=False)}
            record[match[1].strip().lower().replace(" ", "_")] = values | {"unit": match[2] or ""}
    return record


def _row(record: dict[str, Any]) -> ImportedRow:
    inside: Any = record.get("records")
    metrics: dict[str, Any] = inside if is_mapping(inside) else record
    row: ImportedRow = {}
    config: Any = record.get("input_config")
    for names, column in ((("model_names", "model"), "model"), (("concurrency",), "concurrency"),
                          (("request_rate",), "request_rate"), (("request_count",), "num_prompts")):  # fmt: skip
        value = _first_value(config, names)
        if column == "model" and value is not None:
            row["model"] = str(value[0] if isinstance(value, list) and value else value)
        elif column != "model":
            put(row, column, value)
    for name, short in TIMES.items():
        metric: Any = metrics.get(name)
        if not is_mapping(metric):
            continue
        unit = str(metric.get("unit", "ms"))
        if unit not in MILLISECONDS:
            raise ConfigError(f"{name} has the unit {unit!r}; allowed: {', '.join(MILLISECONDS)}")
        for stat, share in SHARES.items():
            value = number_of(metric.get(stat))
            if value is not None:
                put(row, f"{short}_{share}_ms", value * MILLISECONDS[unit])
    for name, column in (("input_sequence_length", "input_tokens"), ("output_sequence_length", "output_tokens"),
                         ("output_token_throughput", "output_tokens_per_s"),
                         ("request_throughput", "requests_per_s"), ("request_count", "num_prompts")):  # fmt: skip
        metric = metrics.get(name)
        if is_mapping(metric) and column not in row:
            put(row, column, metric.get("avg"))
    if "request_rate" in row:
        row.pop("concurrency", None)
    return row


def _first_value(node: Any, names: tuple[str, ...]) -> Any:
    """The first value of such a name anywhere in a configuration."""
    if not is_mapping(node):
        return None
    for name in names:
        if node.get(name) is not None:
            return node[name]
    return next((value for one in node.values() if (value := _first_value(one, names)) is not None), None)
