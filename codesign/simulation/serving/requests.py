"""Requests of a simulation, their lengths and arrivals: drawn, or read from a trace."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import ConfigError
from ...core.untrusted_io import read_text
from .traces import ALIASES, TraceTable, alias_of, in_order, labels_of, read_json_trace, to_seconds

Numbers = np.ndarray
ARRIVAL = "arrival_s"
COLUMNS = (ARRIVAL, "input_tokens", "output_tokens")
BEYOND = "beyond the header"  # what stands in a row after its last column
MOST_TOKENS = 1e12  # of a request in a trace
MOST_PER_S = 1e12  # requests, as of a workload
LEAST_REQUESTS = 2  # that have a gap between them


@dataclass(frozen=True)
class Requests:
    """Prompt and output tokens of each request; when it comes (open loop), and what prefix it shares with whom.

    `arrivals` rise; without them a closed loop keeps a number of requests under way. Requests of one `prefix` (a number
    from 0, -1 for none) begin with the same `prefix_tokens` tokens. `cached_ratio` is the share of prompt tokens that
    a trace says were asked before, at the beginning of a prompt.

    `hashes` are those of blocks of `hash_tokens` prompt tokens, of all requests one after the other, the blocks of
    request i from `hash_starts[i]` to `hash_starts[i + 1]`. Requests of one number in `sessions` are turns of one
    conversation; `classes` are numbers of `class_names`. A request with `after` = j from 0 on comes `think_s` after
    request j has its answer, whatever its arrival says; -1 for those that come when they come. Of those who wait at an
    engine the least of `priorities` goes first, and of equals whoever came first; without them all are equal.
    """

    prompts: Numbers
    outputs: Numbers
    arrivals: Numbers | None = None
    prefixes: Numbers = field(default_factory=lambda: np.zeros(0, int))
    prefix_tokens: int = 0
    cached_ratio: float = 0.0
    hashes: Numbers = field(default_factory=lambda: np.zeros(0, int))
    hash_starts: Numbers = field(default_factory=lambda: np.zeros(0, int))
    hash_tokens: int = 512
    sessions: Numbers = field(default_factory=lambda: np.zeros(0, int))
    classes: Numbers = field(default_factory=lambda: np.zeros(0, int))
    class_names: tuple[str, ...] = ()
    after: Numbers = field(default_factory=lambda: np.zeros(0, int))
    think_s: Numbers = field(default_factory=lambda: np.zeros(0))
    priorities: Numbers = field(default_factory=lambda: np.zeros(0, int))

    def __post_init__(self) -> None:
        """One output for each prompt, at least one token of each, arrivals in order.

        Raises:
            ConfigError: naming the first request that is none.
        """
        if not len(self.prompts) or len(self.prompts) != len(self.outputs):
            raise ConfigError(f"{len(self.prompts)} prompts and {len(self.outputs)} outputs: one of each a request")
        for name in ("prompts", "outputs"):
            least = int(np.argmin(getattr(self, name)))
            if getattr(self, name)[least] < 1:
                raise ConfigError(f"request {least}: {name} = {getattr(self, name)[least]} must be at least 1 token")
        if self.arrivals is None:
            return
        if len(self.arrivals) != len(self.prompts):
            raise ConfigError(f"{len(self.arrivals)} arrivals of {len(self.prompts)} requests")
        back = np.flatnonzero(np.diff(self.arrivals) < 0)
        if len(back):
            one, next_one = self.arrivals[back[0]], self.arrivals[back[0] + 1]
            raise ConfigError(
                f"request {back[0] + 1} arrives {one - next_one:g} s before request {back[0]}:"
                " sort the trace by arrival_s"
            )

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.prompts)

    @property
    def hashed(self) -> bool:
        """True if it is known which blocks prompts begin with."""
        return len(self.hash_starts) > 0

    def hashes_of(self, request: int) -> list[int]:
        """Hashes of a prompt's blocks, the first one first."""
        return self.hashes[self.hash_starts[request] : self.hash_starts[request + 1]].tolist()

    def chosen(self, which: Numbers) -> "Requests":
        """Copy of some of them, in the order that they are named in; who follows whom is left out."""
        selected: dict[str, Any] = {
            name: getattr(self, name)[which]
            for name in ("prompts", "outputs", "prefixes", "sessions", "classes", "priorities")
            if len(getattr(self, name))
        }
        if self.hashed:
            sizes = np.diff(self.hash_starts)[which]
            starts = np.concatenate([[0], np.cumsum(sizes)])
            places = np.repeat(self.hash_starts[which] - starts[:-1], sizes) + np.arange(int(starts[-1]))
            selected |= {"hashes": self.hashes[places], "hash_starts": starts}
        came = None if self.arrivals is None else self.arrivals[which]
        empty = {"after": np.zeros(0, int), "think_s": np.zeros(0)}
        return replace(self, arrivals=came, **selected, **empty)

    def served_first(self, names: Sequence[str]) -> "Requests":
        """Copy in which classes go first in this order; those that are not named come last.

        Raises:
            ConfigError: a class that they do not have.
        """
        unknown = [name for name in names if name not in self.class_names]
        if unknown:
            classes = ", ".join(self.class_names) or "none"
            raise ConfigError(f"priority: the requests have no class {', '.join(unknown)} (they have {classes})")
        places = np.array([names.index(name) if name in names else len(names) for name in self.class_names], int)
        return replace(self, priorities=places[self.classes])

    def prefix_of(self, request: int) -> int:
        """The number of its prefix, -1 for none."""
        return int(self.prefixes[request]) if len(self.prefixes) else -1


def lengths(rng: np.random.Generator, mean: float, cv: float, count: int, least: int = 1) -> Numbers:
    """Lognormal whole numbers of a mean and a coefficient of variation; all alike where that is 0."""
    if cv == 0:
        return np.full(count, max(round(mean), least))
    variance = math.log1p(cv * cv)
    drawn = rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)
    return np.maximum(np.rint(drawn), least).astype(int)


def arrivals(rng: np.random.Generator, rate: float, cv: float, count: int) -> Numbers:
    """Seconds of gamma-distributed gaps: evenly spaced at cv 0, Poisson at 1, bursty above.

    Raises:
        ConfigError: a rate or a variation that is none.
    """
    if not rate > 0 or not cv >= 0:
        raise ConfigError(f"arrivals: rate = {rate:g} requests/s with a variation of {cv:g} is no stream of requests")
    if cv == 0:
        return np.arange(1, count + 1) / rate
    shape = 1 / cv**2
    return np.cumsum(rng.gamma(shape, 1 / (rate * shape), count))


def read_trace(path: Path | str, *, timed: bool = True) -> Requests:
    """Requests of a trace: columns input_tokens, output_tokens and arrival_s (in seconds, rising), or one as published.

    Args:
        path: of the file: CSV, JSON or lines of JSON; `traces` says which are known.
        timed: whether it has to say when requests come; else a file without arrivals leaves that open.

    Raises:
        ConfigError: no such file or column, or the first row that is no request.
    """
    what = f"trace {str(path)!r}"
    text = read_text(Path(path), what)
    if text.lstrip()[:1] in ("{", "["):
        return _of_table(read_json_trace(text, what), what, timed=timed)
    rows = _rows(text, what)
    header = rows[0][1]
    if not {"input_tokens", "output_tokens"} <= set(header):
        return _of_table(_by_alias(rows, what), what, timed=timed)
    wanted = [name for name in COLUMNS if timed or name in header or name != ARRIVAL]
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ConfigError(f"{what} has no column {', '.join(missing)} (it has {', '.join(map(str, header))})")
    columns = {
        name: np.array([_number(row[name], name, f"{what}, line {line}") for line, row in rows]) for name in wanted
    }
    prompts, outputs = (columns[name].astype(int) for name in COLUMNS if name != ARRIVAL)
    _enough(len(prompts), what)
    lines = [line for line, _ in rows]
    came = _rising(columns[ARRIVAL], lines, what) if ARRIVAL in columns else None
    return Requests(prompts, outputs, came, **_labelled(labels_of([row for _, row in rows])))


def _enough(count: int, what: str) -> None:
    if count < LEAST_REQUESTS:
        raise ConfigError(f"{what} has {count} requests: at least {LEAST_REQUESTS} say anything")


def _by_alias(rows: list[tuple[int, dict[str, Any]]], what: str) -> TraceTable:
    """Columns under names that published traces have; rows without an answer are left out, those that failed."""
    names: dict[str, str] = {}
    for column in rows[0][1]:
        names.setdefault(alias_of(str(column)), str(column))
    missing = [name for name in ("input_tokens", "output_tokens") if name not in names]
    if missing:
        raise ConfigError(f"{what} has no column {', '.join(missing)} (it has {', '.join(map(str, rows[0][1]))})")
    prompts, outputs = (
        np.array([_number(row[names[name]], name, f"{what}, line {line}", least=0) for line, row in rows]).astype(int)
        for name in ALIASES
        if name != ARRIVAL
    )
    served = (prompts >= 1) & (outputs >= 1)
    came = None
    if ARRIVAL in names:
        came = to_seconds([row[names[ARRIVAL]] for _, row in rows], names[ARRIVAL], what)[served]
    labels = labels_of([row for (_, row), good in zip(rows, served, strict=True) if good])
    result = TraceTable(prompts[served], outputs[served], came, labels=labels)
    return result if came is None else in_order(result)


def _of_table(table: TraceTable, what: str, *, timed: bool) -> Requests:
    """Requests of a published trace.

    Raises:
        ConfigError: too few, or none that say when they come.
    """
    _enough(len(table.prompts), what)
    if table.arrivals is None:
        if timed:
            raise ConfigError(f"{what} does not say when requests come: a column {ARRIVAL}, or timestamp")
        return Requests(table.prompts, table.outputs, None, cached_ratio=table.cached_ratio, **_optional_columns(table))
    came = _rising(table.arrivals, list(range(1, len(table.prompts) + 1)), what)
    return Requests(table.prompts, table.outputs, came, cached_ratio=table.cached_ratio, **_optional_columns(table))


def _optional_columns(table: TraceTable) -> dict[str, Any]:
    """Fields of what a trace says beside lengths and times."""
    columns = _labelled(table.labels)
    if not table.blocks:
        return columns
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in table.blocks])])
    flat = np.fromiter((one for ids in table.blocks for one in ids), int, int(starts[-1]))
    return columns | {"hashes": flat, "hash_starts": starts, "hash_tokens": table.block_tokens}


def _labelled(labels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Labels as numbers."""
    result: dict[str, Any] = {}
    if "session" in labels:
        result["sessions"] = np.unique(labels["session"], return_inverse=True)[1]
    if "class" in labels:
        names, result["classes"] = np.unique(labels["class"], return_inverse=True)
        result["class_names"] = tuple(map(str, names))
    return result


def _rows(text: str, what: str) -> list[tuple[int, dict[str, Any]]]:
    """Line, as an editor counts, and cells by column, as many as in the header; empty lines are left out."""
    try:
        reader = csv.DictReader(io.StringIO(text), restkey=BEYOND)
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ConfigError(f"{what} is no table: {error}") from error
    if not rows:
        raise ConfigError(f"{what} is empty: a header with {', '.join(COLUMNS)}, then a row a request")
    header = list(reader.fieldnames or ())
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{what} has two columns {twice}: leave one")
    for line, row in rows:
        if BEYOND in row:
            raise ConfigError(
                f"{what}, line {line}: {len(header) + len(row[BEYOND])} cells where the header has {len(header)}:"
                " write numbers without separators"
            )
    return rows


def _rising(came: Numbers, lines: list[int], what: str) -> Numbers:
    """Seconds after the first."""
    back: list[int] = np.flatnonzero(np.diff(came) < 0).tolist()
    if back:
        line, by = lines[back[0] + 1], came[back[0]] - came[back[0] + 1]
        raise ConfigError(f"{what}, line {line}: arrival_s is {by:g} s before the row above: sort the file by it")
    if not came[-1] > came[0]:
        raise ConfigError(f"{what}: all {len(came)} requests come at {came[0]:g} s: arrival_s must rise, in seconds")
    rate = (len(came) - 1) / float(came[-1] - came[0])
    if rate > MOST_PER_S:
        raise ConfigError(
            f"{what}: arrival_s rises by {came[-1] - came[0]:g} s over {len(came)} requests, {rate:.4g} requests/s;"
            f" allowed: at most {MOST_PER_S:g}: give seconds"
        )
    return came - came[0]


def _number(text: Any, column: str, where: str, least: float = 1) -> float:
    """A finite number of a cell."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if column != ARRIVAL and math.isfinite(value) and not least <= value <= MOST_TOKENS:
        raise ConfigError(f"{where}: {column} = {value:g} is outside [{least:g}, {MOST_TOKENS:g}]")
    if column == ARRIVAL and value < 0:
        raise ConfigError(f"{where}: {column} = {text} is before 0; count seconds from the first request or earlier")
    if column != ARRIVAL and math.isfinite(value) and not value.is_integer():
        near = f"{math.floor(value)} or {math.ceil(value)}"
        raise ConfigError(f"{where}: {column} = {text} is not a whole number of tokens; take {near}")
    if not math.isfinite(value):
        said = "is empty" if text is None or not text.strip() else f"= {text!r} is no number"
        raise ConfigError(f"{where}: {column} {said}; fill it in or leave the row out")
    return value
