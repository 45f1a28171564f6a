"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

import argparse
import errno
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..core.earlier_names import CLAIM_COLUMNS
from ..core.errors import CodesignError, ConfigError
from ..core.free_memory import keep_memory
from ..core.json_yaml import dumps
from ..core.lazy import later
from ..core.short_names import as_typed
from ..core.terminal_encoding import lenient_output
from .help import start_text
from .parser import parsed

# Commands that fit, score and reproduce: constants on measurements, networks, errors, published results.


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

    def report(line: str) -> None:
        print(line, file=sys.stderr)

    paths, rows = later("evidence.validation.near", "calibrate_near")(
        options.directory, options.out, measured_cluster, report
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

    def report(name: str, rows: list[dict[str, Any]]) -> None:
        """Announce an experiment before it runs; once its rows are there print them and write its page."""
        if not rows:
            begun.append(name)
            print(f"{name} ... ({len(begun)} of {total})", file=sys.stderr, flush=True)
            return
        verdicts = [row["ok"] for row in rows if row["ok"] is not None]
        bars = f", {sum(verdicts)} of {len(verdicts)} bars met" if verdicts else ""
        spent = time.perf_counter() - started
        print(f"{name}: {len(rows)} claims{bars} ({spent:.0f} s so far)", file=sys.stderr, flush=True)
        if not options.json:
            _print_rows(rows, columns, {"error", "tolerance"}, as_json=False)
        if options.reports:
            for page in later("evidence.reproduction", "write_reports")(rows, options.reports):
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

    rows = later("evidence.reproduction", "reproduce")(names, report, failed)
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


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LISTS = ("metrics", "variables", "limits")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a CodesignError, or a file that cannot be read or written, becomes one line and exit code 2."""
    with lenient_output(restore=arguments is not None):
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:  # a process of its own: libraries swallow an exception that meets them in a callback
        signal.signal(signal.SIGINT, _leave)
        gc.disable()  # until all is loaded: see `lazy`
    try:
        return _dispatch(words)
    except CodesignError as error:
        print(f"codesign: {as_typed(' '.join(str(error).split()), words)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has gone; what is left to print has no place to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno in FULL:  # of files, or of what this is printed to
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            print(f"codesign: nothing more can be written: {error.strerror}", file=sys.stderr)
            return 2
        if error.filename is None:  # not of a file that a user named
            raise
        print(f"codesign: {os.fspath(error.filename)!r}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("codesign: interrupted", file=sys.stderr)
        return 130
    except Exception:  # a component that breaks its contract is told in one line; anything else is our mistake
        line = _broken_plugin()
        if not line:
            raise
        print(f"codesign: {line}", file=sys.stderr)
        return 2


def _broken_plugin() -> str:
    """The first thing that a component of a plug-in does not keep of its contract; empty where all keep it."""
    from ..config.plugins import plugins

    if not plugins():
        return ""
    from ..testing import faults_of_plugins
    from .setup import prepare_jax

    prepare_jax()
    return next(faults_of_plugins(), "")


def _leave(*_: object) -> NoReturn:
    """Nothing is found yet that would be lost: what writes files does so whole or not at all."""
    os.write(2, b"codesign: interrupted\n")
    os._exit(130)


def _dispatch(words: list[str]) -> int:
    if not words:
        print(start_text())
        return 0
    options = parsed(words)
    options.line = words
    if not getattr(options, "conf", None):
        return FUNCTIONS[options.command](options)
    from ..config import own_files

    with own_files(*options.conf):
        return FUNCTIONS[options.command](options)


def _optimize(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    if (options.resolve or options.package) and not options.cfg:
        raise ConfigError("--resolve and --package belong to --cfg: `--cfg job --resolve --package space`")
    if (options.cfg or options.info) and options.multirun:
        raise ConfigError("--cfg and --info show one configuration: leave out -m and lists of values")
    if (options.cfg or options.info) and options.explain:
        raise ConfigError("--explain is of the table of designs: leave out --cfg and --info")
    if options.cfg or options.info:
        return later("commands.multirun", "inform")(options)
    if options.multirun:
        return later("commands.multirun", "multirun")(options.overrides, explain=options.explain)
    return later("commands.optimize", "optimize")(options.overrides, explain=options.explain)


def _compare(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    return later("commands.compare", "compare_designs")(options.overrides, explain=options.explain, api=options.api)


def _serve(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    return later("commands.ask", "serve")(options, options.line)


def _fleet(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    return later("commands.mixed_fleet", "fleet")(options, options.line)


def _train(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    return later("commands.ask", "train")(options, options.line)


def _buy(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    return later("commands.buy", "buy")(options, options.line, parsed)


def _evaluate(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    _check_priced(options.overrides)
    if options.top < 0:
        raise ConfigError(f"--top = {options.top}: at least 0 operations can be shown")
    if options.explain and options.json:
        raise ConfigError("--explain is of the tables: leave out --json (`codesign list metrics` explains its keys)")
    remarks: Sequence[str] = ()
    if options.launch is not None:
        result, remarks = later("commands.launch", "with_launch")(options.launch, options.overrides)
        options.overrides = list(result)
    later("commands.evaluate", "evaluate_design")(
        options.overrides, as_json=options.json, top=options.top, remarks=remarks, explain=options.explain,
        clients_wait=options.clients_wait,
    )  # fmt: skip
    return 0


def _fit(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    _check_priced(options.overrides)
    remarks: Sequence[str] = ()
    if options.launch is not None:
        result, remarks = later("commands.launch", "with_launch")(options.launch, options.overrides)
        options.overrides = list(result)
    later("commands.memory_fit", "fit_design")(
        options.overrides, as_json=options.json, picture=options.picture, remarks=remarks
    )
    return 0


def _check_overrides(overrides: list[str]) -> None:
    for text in overrides:
        if text.startswith("=") or ("=" not in text and not text.startswith("~")):
            meant = later("config.model_names", "choice_meant")(text)
            near = f" (did you mean {meant}?)" if meant else ""
            raise ConfigError(f"{text!r} is no override: write key=value{near}")


def _check_priced(overrides: list[str]) -> None:
    """One design has no search: what belongs to one would be read and forgotten."""
    for text in overrides:
        key = text.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] in ("search", "space", "objective", "runner", "workers"):
            raise ConfigError(
                f"evaluate prices one design and searches nothing: {text!r} belongs to `codesign optimize`"
            )


def _list(options: argparse.Namespace) -> int:
    if options.table:
        if options.group != "accelerator":
            raise ConfigError(f"list {options.group or ''} --table: only accelerators have a table; leave --table out")
        later("commands.listing", "show_accelerators")(options.words)
        return 0
    if options.group in LISTS:
        later("commands.listing", "list_of")(options.group, options.words)
        return 0
    if any("=" in word for word in options.words):
        raise ConfigError(f"list {options.group}: overrides belong to {', '.join(LISTS)}")
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..config import available
    from ..config.groups import group_suggestion, groups

    if options.group is not None and options.group not in groups():
        hint = group_suggestion(options.group, LISTS)
        raise ConfigError(f"config group {options.group!r} does not exist{hint}")
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("group", "options") if options.group is None else (options.group, ""):
        table.add_column(column, overflow="fold")
    for name, text in available(options.group).items():
        if all(word.lower() in f"{name} {text}".lower() for word in options.words):
            table.add_row(name, Text(text))  # citations stand in brackets, which are no markup here
    result = Console(highlight=False)
    (result if result.is_terminal else Console(highlight=False, width=160)).print(table)
    return 0


def _report(options: argparse.Namespace) -> int:
    from ..report import build_report, compare_runs, write_run_report

    if options.other is not None:
        if options.reports:
            raise ConfigError("report: --reports is of one run, not of two side by side")
        print(compare_runs(options.run, options.other))
        return 0
    print(build_report(options.run))
    if options.reports:
        print(write_run_report(options.run, options.reports))
    return 0


def _explore(options: argparse.Namespace) -> int:
    return later("explorer.server", "explore")(options.overrides, options.port, show=options.open)


def _query(options: argparse.Namespace) -> int:
    return later("commands.query", "query_run")(options.run, options.sql, options.csv)


def _export(options: argparse.Namespace) -> int:
    export = later("commands.export", "export_design")
    return export(options.run, options.to, options.design, options.out, anyway=options.anyway)


def _verify(options: argparse.Namespace) -> int:
    keep_memory(sparingly=True)  # before JAX starts threads, each of which would have a heap of its own
    return later("commands.verify_jobs", "verify_folder")(
        options.run, options.attack, options.seed, parsed, as_json=options.json
    )


def _of_fleet(options: argparse.Namespace) -> bool:
    """True if a fleet is meant, by its replicas, its router, its caches, its traffic or its classes."""
    return any(
        value is not None for value in (options.replicas, options.router, options.prefix_cache, options.priority)
    ) or bool(options.profile or options.markov or options.admit)


def _simulate(options: argparse.Namespace) -> int:
    per_s = later("commands.plain_values", "rate_or_number")(options.rate)
    if options.num_prompts is not None:
        if options.trace:
            raise ConfigError("simulate: --num-prompts draws its own requests: leave out --trace")
        if _of_fleet(options):
            raise ConfigError(
                "simulate: --num-prompts is of a benchmark's run: leave out --replicas and what goes with it"
            )
        return later("commands.simulate", "simulate_prompts")(
            options.what, options.num_prompts, design=options.design, seed=options.seed, rate=per_s,
            cv=options.cv, as_json=options.json,
        )  # fmt: skip
    if _of_fleet(options) or options.slo:
        return later("commands.simulate_fleet", "simulate_replicas")(
            options.what, design=options.design, replicas=options.replicas, router=options.router or "round_robin",
            prefix_cache=options.prefix_cache, slo=options.slo, requests=options.requests, seed=options.seed,
            rate=per_s, cv=options.cv, trace=options.trace, as_json=options.json, profile=options.profile,
            markov=options.markov, priority=options.priority, admit=options.admit,
        )  # fmt: skip
    return later("commands.simulate", "simulate_design")(
        options.what, design=options.design, requests=10_000 if options.requests is None else options.requests,
        seed=options.seed, rate=per_s, cv=options.cv, trace=options.trace, as_json=options.json,
    )  # fmt: skip


def _day(options: argparse.Namespace) -> int:
    return later("commands.day", "day_of_design")(
        options.what, options.load, design=options.design, busiest=options.busiest, as_json=options.json,
        start=options.start, markov=options.markov,
    )  # fmt: skip


def _new(options: argparse.Namespace) -> int:
    from .skeletons import new, new_file, next_steps, next_steps_of_file

    if options.into is not None:
        if options.package is not None:
            raise ConfigError("scaffold: --package and --conf exclude each other: a package, or a folder of own files")
        path = new_file(options.kind, options.name, options.into)
        print(next_steps_of_file(options.kind, options.name, path, options.into))
        return 0
    print(next_steps(options.kind, options.name, new(options.kind, options.name, options.package)))
    return 0


def _check(options: argparse.Namespace) -> int:
    from ..testing import broken, chosen
    from .setup import prepare_jax

    prepare_jax()
    result = chosen(options.names)
    if not result:
        print("no plug-in brings a component: `codesign scaffold KIND NAME` writes one")
    wrong = 0
    for name, cls in result.items():
        lines = broken(cls)
        wrong += len(lines)
        print("\n".join(lines) if lines else f"{name}: keeps its contract")
    return 2 if wrong else 0


def _import(options: argparse.Namespace) -> int:
    return later("commands.observe", "import_runs")(options)


def _observe(options: argparse.Namespace) -> int:
    return later("commands.observe", "observe")(options)


FUNCTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": _serve,
    "fleet": _fleet,
    "buy": _buy,
    "train": _train,
    "optimize": _optimize,
    "compare": _compare,
    "evaluate": _evaluate,
    "fit": _fit,
    "list": _list,
    "report": _report,
    "explore": _explore,
    "sql": _query,
    "export": _export,
    "verify": _verify,
    "simulate": _simulate,
    "autoscale": _day,
    "calibrate": calibrate,
    "train-amortised": train_amortised,
    "validate": validate,
    "import": _import,
    "observe": _observe,
    "scaffold": _new,
    "check-plugin": _check,
    "reproduce": reproduce,
}

if __name__ == "__main__":
    sys.exit(main())
