"""`codesign observe URL`: a server under load, measured, as a table of measured runs and one of its requests."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from ..core.atomic_files import write_files, write_text
from ..core.errors import ConfigError, suggestion
from ..core.json_yaml import dumps
from ..core.short_names import CHOICES, NUMBERS
from ..core.units import engineering
from ..evidence.importers import ImportedRow, as_csv, imported, is_typed, typed_rows
from ..evidence.measurements.columns import (
    choice_of,
    is_recognised,
    names_devices,
    not_stated,
    number_path,
    plain,
)
from ..evidence.observing import Endpoint, Observed, client_of, drive, measured_sizes, served_model
from ..evidence.validation.measured_runs import run_of
from ..simulation.serving import LEAST_REQUESTS, Requests, arrivals, read_trace
from .optimize import INTERRUPTED
from .plain_values import rate_or_number
from .simulate import ServedBar
from .terminal import console, text_table

__all__ = ["observe"]


# `codesign import`: what benchmarks and trainers wrote, as a table of measured runs or of collectives.


def import_runs(options: argparse.Namespace) -> int:
    """Read files, add what they do not say, write or print the table."""
    paths, added = list[Path](), dict[str, str]()
    for word in options.files:
        key, equals, value = word.partition("=")
        if equals and not Path(word).exists():
            added[key] = value
        else:
            paths.append(Path(word))
    if not paths:
        raise ConfigError("import: name at least one file; what it does not say follows as key=value (gpu=h100 tp=8)")
    rows = [row for path in paths for row in imported(path)]
    if is_typed(rows):
        text = as_csv(typed_rows(_with_catalogue_names(rows), added), {})
    else:
        for key in added:
            check_run_column(key, "import")
        if not names_devices((*added, *rows[0])):
            raise ConfigError("import: no file says on which device it ran; add gpu=NAME, such as gpu=h100_sxm")
        rows = [
            {name: cell for name, cell in row.items() if _meaning(name) not in map(_meaning, added)} for row in rows
        ]
        for row in rows:
            trains = (row | added).get("workload", "").startswith("training")
            if lacking := not_stated((*row, *added), trains=trains):
                columns = " ".join(f"{name.partition(' ')[0]}=..." for name in lacking)
                raise ConfigError(f"import: no file says {', '.join(lacking)} of its runs; add {columns}")
        text = as_csv(rows, added)
    if options.out is None:
        print(text, end="")
        return 0
    out = Path(options.out)
    write_text(out, text)
    what = "row" if is_typed(rows) else "run"
    what_was_read = (
        f"{len(rows)} {what}{'s' if len(rows) > 1 else ''} of {len(paths)} file{'s' if len(paths) > 1 else ''}"
    )
    print(f"codesign: {what_was_read}; `codesign validate {out.parent}` compares them", file=sys.stderr)
    print(out)
    return 0


def _meaning(column: str) -> str:
    """Path or group of a column, so that an added one replaces one of a file under another spelling."""
    return number_path(column) or choice_of(column) or plain(column)


def _with_catalogue_names(rows: list[ImportedRow]) -> list[ImportedRow]:
    """The rows with devices as files of ours call them, where one does: drivers print `NVIDIA H100 80GB HBM3`."""
    from ..evidence.validation.row_overrides import accelerator_option  # which loads JAX

    catalogue_names = dict[str, str]()
    for name in {row["gpu"] for row in rows if "gpu" in row}:
        with contextlib.suppress(ConfigError):
            catalogue_names[name] = accelerator_option(name)
    return [row | ({"gpu": catalogue_names[row["gpu"]]} if row.get("gpu") in catalogue_names else {}) for row in rows]


def check_run_column(key: str, command: str) -> None:
    """Refuse a column that no table of runs knows.

    Raises:
        ConfigError: it knows no such.
    """
    if not is_recognised(key):
        raise ConfigError(f"{command}: {key} is no column of measured runs{suggestion(key, (*CHOICES, *NUMBERS))}")


EACH, IN_ALL = 10, 200  # requests of each client, and those of an open loop, where nobody says how many
MOST = {"clients": 100_000, "input": 10_000_000, "output": 10_000_000, "requests": 10_000_000, "seed": 2**32 - 1}
MOST_RATE = 1e6  # requests a second
LATE = 0.1  # of a first token's time, and of all that follow, from which the client is told to be late
SHOWN = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "whole request"}


class ObservedLoad(NamedTuple):
    """A load: requests, and the clients of a closed loop; whether its arrivals are a trace's."""

    requests: Requests
    clients: int
    traced: bool

    @property
    def words(self) -> str:
        """The load in words, for the heading."""
        if self.requests.arrivals is None:
            return f"{len(self.requests):,} requests, {self.clients:,} at a time"
        return f"{len(self.requests):,} requests {'of a trace' if self.traced else 'at a rate'}"


def observe(options: argparse.Namespace) -> int:
    """Drive a server, print what it did and write both tables.

    Returns:
        Exit code: 0, or 130 where Ctrl-C ended it; what was measured until then is written all the same.

    Raises:
        ConfigError: a wrong option, a server that does not answer, or none of whose answers came whole.
    """
    stated = _stated(options.columns)
    stream = _load_of(options)
    endpoint = Endpoint.of_url(
        options.url, chat=options.chat, key=_key(options.key_env), timeout_s=_positive(options.timeout, "timeout")
    )
    observed, model, note = asyncio.run(_measured(endpoint, stream, stated, options))
    if not observed.good:
        if observed.driven.stopped:
            print("codesign: interrupted before a request ended: nothing is measured", file=sys.stderr)
            return INTERRUPTED
        raise ConfigError(f"observe: all {len(observed.driven.answers)} requests failed: {observed.failures()}")
    row = observed.run_row({"source": "codesign observe", "model": model} | stated, stream.clients, stream.traced)
    paths = _write(Path(options.out), observed, row)
    if options.json:
        print(dumps(_numbers(observed), indent=2))
    else:
        _show(console(), observed, stream, model)
    for line in (note, *_notes(observed, stream)):
        if line:
            print(f"codesign: {line}", file=sys.stderr)
    print(f"codesign: `codesign validate {paths[0].parent}` compares this run", file=sys.stderr)
    print("\n".join(map(str, paths)), file=sys.stderr if options.json else sys.stdout)
    return INTERRUPTED if observed.driven.stopped else 0


def _stated(words: list[str]) -> dict[str, str]:
    """Columns of the design that was observed.

    Raises:
        ConfigError: a word that is no key=value or no column of runs, or no device among them.
    """
    stated = dict[str, str]()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise ConfigError(f"observe: {word!r} is no key=value: accelerator=h100_sxm tp=4 framework=vllm")
        check_run_column(key, "observe")
        stated[key] = value
    if not names_devices(tuple(stated)):
        raise ConfigError("observe: say what serves: accelerator=NAME, then model=, tp=, framework= ... as they are")
    return stated


def _load_of(options: argparse.Namespace) -> ObservedLoad:
    """The load that is asked for.

    Raises:
        ConfigError: two loads, or a number outside its range.
    """
    loads = [f"--{name}" for name in ("clients", "rate", "trace") if getattr(options, name) is not None]
    if len(loads) > 1:
        raise ConfigError(f"observe: {' and '.join(loads)} are different loads: say one")
    for name, most in MOST.items():
        value = getattr(options, name)
        if value is not None and not (0 if name == "seed" else 1) <= value <= most:
            raise ConfigError(f"observe: --{name} {value} is outside [{0 if name == 'seed' else 1}, {most:,}]")
    if options.trace is not None:
        result = read_trace(options.trace)
        count = min(options.requests or len(result), len(result))
        came = result.arrivals[:count] if result.arrivals is not None else None
        return ObservedLoad(Requests(result.prompts[:count], result.outputs[:count], came), 1, traced=True)
    clients = options.clients or 1
    count = options.requests or (EACH * clients if options.rate is None else IN_ALL)
    lengths = np.full(count, options.input), np.full(count, options.output)
    if options.rate is None:
        return ObservedLoad(Requests(*lengths), clients, traced=False)
    if count < LEAST_REQUESTS:
        raise ConfigError(f"observe: --requests {count} have no rate: at least {LEAST_REQUESTS}")
    came = arrivals(np.random.default_rng(options.seed), _rate(options.rate), 1.0, count)
    return ObservedLoad(Requests(*lengths, came - came[0]), 1, traced=False)


def _rate(text: str) -> float:
    """Requests a second of `5`, `5/s` or `300/min`.

    Raises:
        ConfigError: no rate.
    """
    try:
        rate = rate_or_number(text)
    except ConfigError:
        rate = -1.0
    if not 0 < rate <= MOST_RATE:
        raise ConfigError(f"observe: --rate {text!r} is no rate up to {MOST_RATE:g}/s: 5, 5/s, 300/min")
    return rate


def _positive(value: float, name: str) -> float:
    if not 0 < value <= 1e7:
        raise ConfigError(f"observe: --{name} {value:g} must be above 0, in seconds")
    return value


def _key(name: str | None) -> str:
    """Value of an environment variable, for servers that want an API key.

    Raises:
        ConfigError: it is not set.
    """
    if name is None:
        return ""
    if not os.environ.get(name):
        raise ConfigError(f"observe: --key-env {name}: no such variable is set")
    return os.environ[name]


async def _measured(
    endpoint: Endpoint, load: ObservedLoad, stated: Mapping[str, str], options: argparse.Namespace
) -> tuple[Observed, str, str]:
    """The observed run, its model's name in tables, and why `validate` would not compare it, if so."""
    open_at_most = load.clients if load.requests.arrivals is None else len(load.requests)
    client, rng = client_of(open_at_most), np.random.default_rng(options.seed)
    try:
        wanted = options.served_model or stated.get("model", "")
        endpoint = endpoint.of_model(await served_model(client, endpoint, wanted))
        model = stated.get("model") or endpoint.model
        note = _set_aside(dict(stated) | {"model": model})
        sizes, endpoint = await measured_sizes(client, endpoint, rng, round(float(np.mean(load.requests.prompts))))
        with ServedBar(Console(stderr=True)) as bar, _interrupting() as stop:
            bar.begin(len(load.requests))
            driven = await drive(
                client, endpoint, sizes, load.requests, clients=load.clients, rng=rng, stop=stop, tell=bar.tell
            )
    finally:
        client.close()
    if not sizes.counted:
        note += f"{'; ' if note else ''}the server reports no tokens: a word of a prompt is taken for one"
    return Observed(load.requests, driven), model, note


@contextlib.contextmanager
def _interrupting() -> Generator[asyncio.Event]:
    """An event that the first Ctrl-C sets; the second one breaks in."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupt(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(stop.set)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _set_aside(stated: Mapping[str, str]) -> str:
    """Warning if `validate` will not compare such a run, with the reason; empty if it will."""
    try:
        run_of(dict(stated) | {"ttft_ms": "1"}, "")
    except ConfigError as error:
        return f"`codesign validate` will set this run aside: {error}"
    return ""


def _write(folder: Path, observed: Observed, row: Mapping[str, str]) -> tuple[Path, Path]:
    """Write both tables under unused names and return their paths."""
    stem = time.strftime("%Y%m%d-%H%M%S")
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    free = next(name for name in names if not (folder / f"{name}.csv").exists())
    paths = folder / f"{free}.csv", folder / f"{free}.requests.csv"
    write_files({paths[0]: as_csv([dict(row)], {}), paths[1]: observed.requests_csv()})
    return paths


def _numbers(observed: Observed) -> dict[str, float]:
    """Every number, in SI units."""
    result = {f"{name}_{share}_s": value for name, shares in observed.latencies().items()
             for share, value in shares.items()}  # fmt: skip
    inputs, outputs = observed.lengths()
    result |= observed.rates() | {"input_tokens": float(inputs.mean()), "output_tokens": float(outputs.mean())}
    failed = len(observed.driven.answers) - len(observed.good)
    return result | {"requests": len(observed.good), "failed": failed, "client_late_p99_s": observed.late_s()}


def _show(out: Console, observed: Observed, load: ObservedLoad, model: str) -> None:
    """Latencies and throughput."""
    inputs, outputs = observed.lengths()
    heads, latencies = ("", "median", "mean", "p90", "p99"), observed.latencies().items()
    rows = ((SHOWN[name], *(engineering(value, "s") for value in shares.values())) for name, shares in latencies)
    out.print(text_table(f"{model}: {load.words}", heads, rows))
    rates = observed.rates()
    out.print(
        f"{rates['output_tokens_per_s']:,.4g} output tokens/s, {rates['requests_per_s']:,.4g} requests/s; "
        f"prompts of {inputs.mean():,.1f} tokens, answers of {outputs.mean():,.1f} (means of {len(inputs):,} requests)"
    )


def _notes(observed: Observed, load: ObservedLoad) -> list[str]:
    """Remarks on the run: failures, a late client, prompts of another length than asked."""
    answers, notes = observed.driven.answers, list[str]()
    if failed := observed.failures():
        notes.append(f"{len(answers) - len(observed.good):,} of {len(answers):,} requests failed: {failed}")
    if observed.driven.stopped:
        notes.append(f"interrupted: {len(answers):,} of {len(load.requests):,} requests had ended, and are kept")
    lengths = observed.lengths()[1]
    short = [n for (n, answer) in answers if not answer.error and answer.tokens < load.requests.outputs[n]]
    if short:
        notes.append(f"{len(short):,} answers ended early (mean of all: {lengths.mean():,.4g} tokens)")
    seen = observed.latencies()
    after = seen["e2e"]["p50"] - seen["ttft"]["p50"]  # of which the time between tokens is a share
    if observed.late_s() > LATE * min(seen["ttft"]["p50"], after or seen["ttft"]["p50"]):
        late = engineering(observed.late_s(), "s")
        notes.append(f"this client was busy itself, late by {late} (p99): times are no finer")
    return notes
