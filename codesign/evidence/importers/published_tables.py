"""Tables that people publish: CSV with commas, semicolons or tabulators, and Markdown; results of MLPerf Inference.

Columns are those of measured runs (`measurements.columns`) under any spelling. A heading before a table of Markdown
says the device (`System: DGX-B200`), as NeMo and Megatron-Bridge publish theirs.
"""

import csv
import itertools
import re

from ...core.errors import ConfigError
from ..measurements.columns import YES, choice_of, metric_of, plain
from .table_rows import ImportedRow

NAME = "table of measured runs (CSV or Markdown), results of MLPerf Inference"
RULER = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-+:?\s*)+\|?\s*$")
SYSTEM = re.compile(r"\bSystem:\W*(?:DGX[- ])?([A-Z]{1,3}\d+\w*)", re.IGNORECASE)
MLPERF = {
    "accelerator": "gpu", "num_of_accelerators": "num_accelerators", "model_mlc": "model", "scenario": "scenario",
    "result": "result", "units": "result_units", "submitter": "submitter", "division": "division",
    "software": "software", "id": "mlperf_id",
}  # fmt: skip
"""Plain column of the results of MLPerf -> column of kind `mlperf_inference`."""
NEEDED = ("accelerator", "num_of_accelerators", "scenario", "result", "units")
UNSTATED = ("n/a", "na", "-", "")


def reads(text: str) -> bool:
    """A header with a metric or the columns of MLPerf, of CSV or above a ruler of Markdown."""
    return any(_of_runs(header) or _of_mlperf(header) for header in _headers(text))


def rows(text: str) -> list[ImportedRow]:
    """A run a line.

    Raises:
        ConfigError: a line with more cells than the header.
    """
    if text.lstrip()[:1] != "|" and not _markdown(text):
        return _of_csv(text)
    result, device, header = list[ImportedRow](), "", list[str]()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if system := SYSTEM.search(line):
            device = system[1]
        if not line.strip().startswith("|"):
            header = []
        elif number + 1 < len(lines) and RULER.match(lines[number + 1]):
            header = _cells(line)
        elif header and _of_runs(header) and not RULER.match(line):
            row = _row(header, _cells(line), number + 1)
            result.append(({"gpu": device} if device and not any(map(_is_device, row)) else {}) | row)
    return result


def _markdown(text: str) -> bool:
    return any(RULER.match(line) for line in text.splitlines())


def _is_device(column: str) -> bool:
    return choice_of(column) == "accelerator"


def _headers(text: str) -> list[list[str]]:
    lines = text.splitlines()
    if _markdown(text):
        return [_cells(line) for line, below in itertools.pairwise(lines) if RULER.match(below)]
    return [_csv_header(text)] if lines and lines[0].isprintable() else []


def _separator(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _csv_header(text: str) -> list[str]:
    return next(csv.reader([text.lstrip("\ufeff").partition("\n")[0]], delimiter=_separator(text)), [])


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("*`").strip() for cell in line.strip().strip("|").split("|")]


def _of_runs(header: list[str]) -> bool:
    return len(header) > 1 and any(metric_of(name) for name in header)


def _of_mlperf(header: list[str]) -> bool:
    return {*NEEDED} <= {plain(name) for name in header}


def _of_csv(text: str) -> list[ImportedRow]:
    header, result = _csv_header(text), list[ImportedRow]()
    for number, cells in enumerate(csv.reader(text.splitlines()[1:], delimiter=_separator(text)), 2):
        if any(cell.strip() for cell in cells):
            result.append(_mlperf(header, cells, number) if _of_mlperf(header) else _row(header, cells, number))
    return result


def _row(header: list[str], cells: list[str], line: int) -> ImportedRow:
    """Its cells under their columns, without those that say nothing."""
    if len(cells) > len(header):
        raise ConfigError(f"line {line}: {len(cells)} cells; allowed: {len(header)}, as its header has")
    pairs = [(name.strip(), cell.strip()) for name, cell in zip(header, cells, strict=False)]
    row = {name: cell for name, cell in pairs if name and cell.lower() not in UNSTATED}
    sharded = next((row.pop(name) for name in ("FSDP", "fsdp") if name in row), "0")
    return row | ({"plan.zero": "3"} if YES.get(sharded.lower()) else {})


def _mlperf(header: list[str], cells: list[str], line: int) -> ImportedRow:
    if len(cells) > len(header):
        raise ConfigError(f"line {line}: {len(cells)} cells; allowed: {len(header)}, as its header has")
    pairs = [(plain(name), cell.strip()) for name, cell in zip(header, cells, strict=False)]
    return {MLPERF[name]: cell for name, cell in pairs if name in MLPERF}
