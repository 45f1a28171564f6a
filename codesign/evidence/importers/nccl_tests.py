"""Output of nccl-tests and rccl-tests: what `all_reduce_perf` and its relatives print, and their JSON (`-J FILE`).

A row is a message size: seconds out of place, or in place where nothing else was timed. How many devices on how many
nodes took part is what the lines of the ranks say; where these are missing, as where no line names the collective,
whoever imports the file says it.
"""

import re
from collections.abc import Iterator
from typing import Any

from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping
from .bench_json import objects
from .table_rows import ImportedRow, number_of, put

NAME = "output of nccl-tests or rccl-tests, printed or JSON"
PREFIX = r"^\s*(?:[^\s|]*[:|]\s)?\s*"
"""Prefixes that launchers put before each line: a rank, a host."""
HEADER = re.compile(PREFIX + r"#\s+size\s+count\s+(?:\(?elements\)?\s+)?type\s+(.*)$")
ROW = re.compile(PREFIX + r"(\d+)\s+(\d+)\s+([a-z]\w*)\s+(.*)$")
RANK = re.compile(
    r"#\s+Rank\s+\d+\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*?)\s*$"
)
TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|sendrecv|broadcast|reduce|gather|scatter)_perf")
VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)|nccl-library=(\d+)")
GRAPH = re.compile(r"\bgraph: (\d+)")
WRONG = ("#wrong", "error")


def reads(text: str) -> bool:
    """A header of their table, or a JSON object with their results."""
    if text.lstrip()[:1] == "{":
        return '"out_of_place"' in text and '"nccl_version"' in text
    return any(HEADER.match(line) for line in text.splitlines())


def rows(text: str) -> list[ImportedRow]:
    """A row a message size.

    Raises:
        ConfigError: a row that breaks off, a sum that came out wrong, times of the processor alone.
    """
    if text.lstrip()[:1] == "{":
        return [row for record in objects(text) for row in _of_json(record)]
    return list(_of_text(text))


def _of_text(text: str) -> Iterator[ImportedRow]:
    """Rows of printed tables, one after another as in a log of several runs."""
    said: ImportedRow = {}
    ranks: list[tuple[int, str, str]] = []
    columns: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := RANK.search(line):
            if columns:
                ranks, columns = [], []
            ranks.append((int(match[1] or 0), match[2], match[3]))
        elif match := HEADER.match(line):
            columns = match[1].split()
            if "cputime" in columns:
                raise ConfigError(f"line {number}: times of the processor (-C); allowed: times of the device")
        elif columns and (match := ROW.match(line)):
            yield from _row(match, columns, said | _members(ranks), f"line {number}")
        if match := TEST.search(line):
            said["collective"] = match[1]
        if match := VERSION.search(line):
            said["nccl_version"] = match[1] or _version(int(match[2]))
        if match := GRAPH.search(line):
            said.pop("cuda_graph", None)
            put(said, "cuda_graph", match[1])


def _row(match: re.Match[str], columns: list[str], said: ImportedRow, where: str) -> Iterator[ImportedRow]:
    """The row of a line; none where no bytes were sent."""
    size, _, dtype, rest = match.groups()
    cells, names = rest.split(), list(columns)
    if names[0] == "redop" and cells and number_of(cells[0]) is not None:
        names.remove("redop")  # of a collective that reduces nothing, as older releases print it
    first = names.index("time") if "time" in names else 0
    width = len(names) - first
    half = width // 2
    values = cells[first:]
    if len(values) not in (half, width) and len(values) < width:
        raise ConfigError(f"{where}: the row breaks off after {len(values)} of {width} times and rates; take all of it")
    times = dict(zip(names[first : first + half], values, strict=False))
    _check(next((times[name] for name in WRONG if name in times), ""), where)
    redop, root = [*cells[:first], "", ""][:2]
    row: ImportedRow = said | {"dtype": dtype}
    put(row, "message_bytes", size)
    put(row, "latency_us", times.get("time"))
    put(row, "busbw_gbytes_per_s", times.get("busbw"))
    if "collective" not in row:
        result = _reduces(redop, root, times, number_of(row.get("num_gpus")))
        row |= {"collective": result} if result else {}
    if "message_bytes" in row and "latency_us" in row:
        yield row


def _reduces(redop: str, root: str, times: dict[str, str], members: float | None) -> str:
    """The collective that sums, told by its bus bandwidth: twice (n - 1)/n of the rate or once; empty for others."""
    rates = [number_of(times.get(name)) for name in ("algbw", "busbw")]
    if redop in ("", "none") or root not in ("", "-1") or not members or members < 2 or not rates[0] or not rates[1]:
        return ""
    share = (rates[1] or 0.0) / (rates[0] or 1.0) * members / (members - 1)
    return "all_reduce" if 1.8 < share < 2.2 else "reduce_scatter" if 0.9 < share < 1.1 else ""


def _check(wrong: str, where: str) -> None:
    """Refuse a row whose results are wrong; `N/A` where nobody looked."""
    count = number_of(wrong)
    if count and count > 1e-3:  # older releases print the largest difference instead of a count
        raise ConfigError(f"{where}: {count:g} elements came out wrong; allowed: rows of right results")


def _members(ranks: list[tuple[int, str, str]]) -> ImportedRow:
    """Device, ranks and nodes of the first communicator."""
    if not ranks:
        return {}
    first = min(group for group, _, _ in ranks)
    members = [(host, device) for group, host, device in ranks if group == first]
    hosts, devices = {host for host, _ in members}, {device for _, device in members}
    if len(devices) > 1:
        raise ConfigError(f"ranks on {' and '.join(sorted(devices))}; allowed: devices of one kind")
    if len(members) % len(hosts):
        raise ConfigError(f"{len(members)} ranks on {len(hosts)} nodes; allowed: as many on each")
    row: ImportedRow = {"gpu": members[0][1]} if members[0][1] else {}
    put(row, "num_gpus", len(members))
    put(row, "num_nodes", len(hosts))
    put(row, "gpus_per_node", len(members) // len(hosts))
    return row


def _version(code: int) -> str:
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def _of_json(record: dict[str, Any]) -> Iterator[ImportedRow]:
    """Rows of a file of `-J`."""
    config: Any = record.get("config")
    config = config if is_mapping(config) else {}
    listed: Any = config.get("devices", record.get("devices")) or []
    ranks = [
        (int(number_of(one.get("group")) or 0), str(one.get("hostname", "")), str(one.get("device_info", "")).strip())
        for one in listed
        if is_mapping(one)
    ]
    said = _members(ranks) if len(ranks) > 1 else {}  # a build without MPI lists the first device alone
    if ranks and not said:
        said = {"gpu": ranks[0][2]}
        put(said, "num_gpus", (number_of(config.get("nthreads")) or 1.0) * (number_of(config.get("ngpus")) or 1.0))
        said |= {"num_nodes": "1", "gpus_per_node": said.get("num_gpus", "1")}
    named = TEST.search(" ".join(str(word) for word in record.get("args") or []))
    said |= {"collective": named[1]} if named else {}
    code = number_of(record.get("nccl_version"))
    said |= {"nccl_version": _version(int(code))} if code else {}
    put(said, "cuda_graph", config.get("graph"))
    results: Any = record.get("results")
    for number, one in enumerate(results if isinstance(results, list) else [], 1):
        where = f"result {number}"
        timed: Any = one.get("out_of_place") or one.get("in_place") if is_mapping(one) else None
        if not is_mapping(timed):
            raise ConfigError(f"{where} has no time; allowed: a size with its time out of place or in place")
        if "cpu_time" in timed:
            raise ConfigError(f"{where}: times of the processor (-C); allowed: times of the device")
        _check(str(timed.get("nwrong")), where)
        row: ImportedRow = said | {"dtype": str(one.get("type", ""))}
        put(row, "message_bytes", one.get("size"))
        put(row, "latency_us", timed.get("time"))
        put(row, "busbw_gbytes_per_s", timed.get("bus_bw"))
        if "message_bytes" in row and "latency_us" in row:
            yield row
