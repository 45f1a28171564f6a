"""Commands that fit, score and reproduce: constants on measurements, networks, errors, published results."""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.earlier_names import CLAIM_COLUMNS
from ..core.errors import ConfigError
from ..core.json_yaml import dumps
from ..core.lazy import later


def calibrate(options: argparse.Namespace) -> int:
    """Constants of kernels, collectives and frameworks, or how far predictions may be off."""
    from ..config import conf_dir
    from ..config.groups import aliases
    from .setup import prepare_jax

    aliases()  # refuses accelerators that claim the same measurements
    prepare_jax()
    if options.few_shot:
        if options.intervals or not options.out:
            raise ConfigError(
                "calibrate: --few-shot needs --out DIR, a folder of its own, and goes without --intervals"
            )
        return _calibrate_few(options)
    out = options.out or str(conf_dir() / "calibration")
    only = tuple(name.strip() for name in options.only.split(",") if name.strip())
    if only and not options.intervals:
        raise ConfigError("calibrate: --only goes with --intervals")
    if options.intervals:
        for path in later("evidence.validation.intervals", "fit_intervals")(options.directory, out, only=only):
            print(path)
        return 0
    for path in later("evidence.calibration", "calibrate")(options.directory, out):
        print(path)
    for path in later("evidence.validation", "calibrate_frameworks")(options.directory, out):
        print(path)
    return 0


def _calibrate_few(options: argparse.Namespace) -> int:
    from ..evidence.validation.row_overrides import measured_cluster

    def told(line: str) -> None:
        print(line, file=sys.stderr)

    paths, rows = later("evidence.validation.near", "calibrate_near")(
        options.directory, options.out, measured_cluster, told
    )
    _print_rows(rows, ("what", "rows", "before", "after"), {"before", "after"}, as_json=False)
    for path in paths:
        print(path)
    return 0


def train_amortised(options: argparse.Namespace) -> int:
    """The networks of search=amortised."""
    if options.steps < 1 or options.held_out < 0:
        raise ConfigError("train-amortised: --steps must be at least 1 and --held-out at least 0")
    written = later("commands.train_amortised", "train_amortised")(
        options.names, options.out, options.seed, options.steps, options.held_out
    )
    for path in written:
        print(path)
    return 0


def validate(options: argparse.Namespace) -> int:
    """Errors against measurements."""
    if options.schema == bool(options.directory):
        raise ConfigError("validate: either a folder of tables, or --schema alone")
    if options.schema:
        from ..evidence.measurements import as_data, as_text

        print(dumps(as_data(), indent=2) if options.json else as_text())
        return 0
    from ..config.groups import aliases
    from .setup import prepare_jax

    aliases()  # refuses accelerators that claim the same measurements
    prepare_jax()
    if options.commands:
        for line in later("evidence.validation", "commands_of")(options.directory):
            print(line)
        return 0
    rows = later("evidence.validation", "validate")(options.directory)
    if options.page:
        for path in later("evidence.validation.page", "write_tables")(rows, options.page):
            print(path, file=sys.stderr)
    columns = ("suite", "stratum", "quantity", "group", "n", "median", "mean", "p90", "bias", "rank",
               "coverage", "left_out", "width")  # fmt: skip
    shown = rows
    if not options.json:
        runs = [row for row in rows if row["suite"] == "run"]
        apart = ("note", "run")
        shown = [row for row in rows if row["suite"] not in apart and (options.groups or row["group"] == "all")]
        if runs:
            _print_rows(runs, ("stratum", "quantity", "predicted", "low", "high", "measured", "error"), {"error"},
                        as_json=False)  # fmt: skip
        for row in rows:
            if row["suite"] == "note":
                print(f"codesign: {row['quantity']}", file=sys.stderr)
    _print_rows(shown, columns, {"median", "mean", "p90", "bias", "coverage", "left_out"}, as_json=options.json)
    return 0


def reproduce(options: argparse.Namespace) -> int:
    """Published results."""
    from .setup import prepare_jax

    prepare_jax()
    names = options.names or ["all"]
    columns = ("experiment", "claim", "paper", "model", "error", "tolerance", "evidence", "provenance", "ok")
    started, begun = time.perf_counter(), list[str]()
    total = len(later("evidence.reproduction", "available")()) if "all" in names else len(names)

    def told(name: str, found: list[dict[str, Any]]) -> None:
        """Announce an experiment before it runs; once its rows are there print them and write its page."""
        if not found:
            begun.append(name)
            print(f"{name} ... ({len(begun)} of {total})", file=sys.stderr, flush=True)
            return
        verdicts = [row["ok"] for row in found if row["ok"] is not None]
        bars = f", {sum(verdicts)} of {len(verdicts)} bars met" if verdicts else ""
        spent = time.perf_counter() - started
        print(f"{name}: {len(found)} claims{bars} ({spent:.0f} s so far)", file=sys.stderr, flush=True)
        if not options.json:
            _print_rows(found, columns, {"error", "tolerance"}, as_json=False)
        if options.reports:
            for page in later("evidence.reproduction", "write_reports")(found, options.reports):
                print(page, file=sys.stderr, flush=True)
        if len(begun) < total:
            later("evidence.reproduction", "forget")(name)

    broken = list[str]()

    def failed(name: str, error: Exception) -> None:
        """Print one line on an experiment that ended in an error: what happened, and where."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        text = " ".join(str(error).split()) or "no message"
        broken.append(f"{name}: {type(error).__name__}: {text} ({where})")
        print(f"codesign: {broken[-1]}; the other experiments go on", file=sys.stderr, flush=True)

    rows = later("evidence.reproduction", "reproduce")(names, told, failed)
    counts = later("evidence.reproduction", "summary")(rows)
    if options.json:
        earlier = [row | {old: row[new] for old, new in CLAIM_COLUMNS.items() if new in row} for row in rows]
        print(dumps({"claims": earlier, "summary": counts, "failed": broken}, indent=2))
    elif rows:
        shown = later("evidence.reproduction", "summary_rows")(counts)
        _print_rows(shown, tuple(shown[0]), {"median error"}, as_json=False)
    for line in broken:
        print(f"codesign: experiment {line}", file=sys.stderr)
    return 1 if broken or any(row["ok"] is False for row in rows) else 0


def _print_rows(rows: list[dict[str, Any]], columns: Sequence[str], shares: set[str], *, as_json: bool) -> None:
    """A table, or JSON; `shares` are fractions, shown in per cent."""
    if as_json:
        print(dumps(rows, indent=2))
        return
    from rich.table import Table

    from .terminal import console

    table = Table(header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if rows and isinstance(rows[0].get(column), int | float) else "left")
    for row in rows:
        table.add_row(*(_cell(row.get(column), column in shares) for column in columns))
    console().print(table)


def _cell(value: Any, share: bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.1%}" if share else f"{value:.4g}"
    return "" if value is None else str(value)
