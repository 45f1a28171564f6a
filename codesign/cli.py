"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __version__
from .errors import CodesignError, ConfigError, suggestion
from .strict_json import dumps

DESCRIPTION = "Co-design of AI accelerators, memory, fabrics and parallelism with gradients and proofs."
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
EXAMPLES = """examples of overrides:
  accelerator=b200 model=llama31_70b        other files of conf/ (`codesign list` shows them)
  'space.plan.device_count=[256,512]'       values of a plan field that the search may choose from
  'space.hardware.energy={path: cluster.network.scale_up.fabric.energy_j_per_byte, low: 1e-12, high: 1e-9}'
                                            a number of the hardware that it may choose from a range
  '~space.hardware.hbm_to_ddr'              one that it may not
  objective.limits.tpot_s=0.05              a limit in SI units; objective.limits.capex_usd=null takes one away
  'objective.minimise=time_s * capex_usd'   an expression over metrics (`codesign evaluate --json` names them)
  search=pareto                             how to look; --cfg job shows every setting with its value"""
COMPARE_EXAMPLES = """examples:
  accelerator=h100_sxm,h200,b200 model=llama31_405b workload=serving_fp8 objective.limits.tpot_s=0.05
  scale_out=infiniband_ndr,roce_400 model=gpt3_175b             any group or value may be a list
  ... along=objective.limits.tpot_s:0.02,0.03,0.05              who is best along a limit, a budget or any number
  ... facility.usd_per_j=2e-8 space.plan.device_count=[16,32]   what holds for all"""
YOUNG = 20_000  # objects between two searches for garbage, instead of 700
LISTS = ("metrics", "variables", "limits")
OVERRIDES = "key=value: `accelerator=b200`, `plan.tp=4`, `experiment=serve_llama31_405b` (see `codesign list`)"


class Parser(argparse.ArgumentParser):
    """Complains on one line, with a suggestion, and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        print(f"codesign: {message} (see `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(2)


def parser() -> Parser:
    """All commands and their options."""
    top = Parser(prog="codesign", description=DESCRIPTION)
    top.add_argument("--version", action="version", version=f"codesign {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, function: Callable[[argparse.Namespace], int], text: str) -> Parser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(function=function)
        return added

    one = command("optimize", _optimize, "search a design space and leave a run folder with a report")
    one.epilog, one.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    one.add_argument("-m", "--multirun", action="store_true", help="run every combination of the listed values")
    one.add_argument("-c", "--cfg", choices=("job", "hydra", "all"), help="print the configuration and run nothing")
    one.add_argument("--resolve", action="store_true", help="with --cfg: interpolations resolved")
    one.add_argument("-p", "--package", metavar="KEY", help="with --cfg: only what stands below KEY")
    one.add_argument("-i", "--info", choices=INFO, metavar="WHAT", help=f"print {', '.join(INFO)} and run nothing")
    one.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=OVERRIDES)
    one = command("compare", _compare, "put the best designs of several choices side by side: one table, one page")
    one.epilog, one.formatter_class = COMPARE_EXAMPLES, argparse.RawDescriptionHelpFormatter
    one.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=f"{OVERRIDES}; lists of values are compared")
    one = command("evaluate", _evaluate, "price one design with its full breakdown")
    one.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=OVERRIDES)
    one.add_argument("--json", action="store_true", help="print every number as one flat JSON object")
    one.add_argument("--top", type=int, default=10, metavar="N", help="operations to show (10)")
    one.add_argument(
        "--from", dest="launch", metavar="COMMAND", help="the plan of a `vllm serve ...` or SGLang command"
    )
    one = command("list", _list, "show what there is: groups, the options of one, or what a study can be asked")
    one.add_argument("group", nargs="?", help="a config group, such as accelerator; or metrics, variables, limits")
    one.add_argument("words", nargs="*", metavar="WORD", help="what a line must have; KEY=VALUE: of which study")
    one = command("report", _report, "rebuild the report of a run without rerunning it")
    one.add_argument("run", help="a run folder")
    one.add_argument("--reports", default=None, metavar="DIR", help="also write the outcome to be committed (reports)")
    one = command("export", _export, "write launch commands or files of an engine for a design of a run")
    one.add_argument("run", help="a run folder")
    one.add_argument("--to", required=True, metavar="TARGET", help="vllm, sglang, trtllm, megatron, torchtitan or k8s")
    one.add_argument("--design", type=int, default=1, metavar="N", help="of the run, by its rank (1)")
    one.add_argument("--out", default=None, metavar="DIR", help="write files there instead of printing them")
    one = command("verify", _verify, "check the proof of a run by a program of its own and attack it; exit code 0 or 1")
    one.add_argument("run", help="a run folder of search=certified, grid_then_proof or inverse")
    one.add_argument("--attack", type=int, default=1_000_000, metavar="N", help="designs that try to be better (10^6)")
    one.add_argument("--seed", type=int, default=0, help="of these designs (0)")
    one.add_argument("--json", action="store_true", help="print the answer and its numbers as JSON")
    one = command("simulate", _simulate, "serve requests one by one on a design, beside its closed form")
    one.add_argument("what", nargs="+", metavar="RUN", help="a run folder, or overrides of a design")
    one.add_argument("--design", type=int, default=1, metavar="N", help="of the run, by its rank (1)")
    one.add_argument("--requests", type=int, default=10_000, metavar="N", help="to be served (10,000)")
    one.add_argument("--seed", type=int, default=0, help="of lengths and arrivals (0)")
    one.add_argument("--rate", type=float, default=0.0, metavar="R", help="requests/s of the cluster: an open loop")
    one.add_argument("--cv", type=float, default=1.0, metavar="V", help="of their gaps: 0 even, 1 Poisson, more bursty")
    one.add_argument("--trace", default="", metavar="CSV", help="with arrival_s, input_tokens, output_tokens")
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")
    one = command("calibrate", _calibrate, "fit kernel and collective constants to a folder of measurements")
    one.add_argument("directory", help="folder of measured tables")
    one.add_argument("--out", default=None, metavar="DIR", help="where the constants land (conf/calibration)")
    one.add_argument(
        "--intervals", action="store_true",
        help="fit no constants: cross-validate those at hand, and write how far predictions may be off",
    )  # fmt: skip
    one.add_argument(
        "--only",
        metavar="SUITES",
        default="",
        help="with --intervals: these alone, divided by commas",
    )
    one.add_argument(
        "--few", action="store_true",
        help="of some kernel rows and steps of one machine: stay near the constants at hand, show before and after",
    )  # fmt: skip
    one = command(
        "train-amortised", _train_amortised, "train the networks of search=amortised and measure their regret"
    )
    one.add_argument("names", nargs="*", metavar="FAMILY", help="families of studies; all if none is named")
    one.add_argument("--seed", type=int, default=0, help="of weights and studies (0)")
    one.add_argument("--steps", type=int, default=4000, help="of training (4000)")
    one.add_argument("--held-out", type=int, default=40, metavar="N", help="studies that regret is measured on (40)")
    one.add_argument("--out", default=None, metavar="DIR", help="where the networks land (where the package looks)")
    one = command("validate", _validate, "compare the model with a folder of measured or peer-model results")
    one.add_argument("directory", nargs="?", help="folder of tables, chosen by their columns whatever their names")
    one.add_argument("--schema", action="store_true", help="print the columns of every kind of table and score nothing")
    one.add_argument("--json", action="store_true", help="print the table of errors, or the schema, as JSON")
    one.add_argument("--page", default=None, metavar="FILE", help="write the errors as a page too (docs/errors.md)")
    one = command("new", _new, "write a working skeleton of a component into a plug-in package")
    one.add_argument("kind", metavar="KIND", help="fabric, collective, search, workload, accelerator or experiment")
    one.add_argument("name", metavar="NAME", help="of the option: lower case, digits, underscores")
    one.add_argument("--package", default=None, metavar="PACKAGE", help="that it joins (codesign_NAME)")
    one = command("check", _check, "hold the components of plug-ins against the contracts of their families")
    one.add_argument("names", nargs="*", metavar="CLASS", help="of a plug-in, or of this package; all of plug-ins")
    one = command("reproduce", _reproduce, "run the experiments that reproduce published results")
    one.add_argument("names", nargs="*", metavar="NAME", help="experiments, or all")
    one.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    one.add_argument("--reports", default=None, metavar="DIR", help="rewrite the committed outcomes there (reports)")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a CodesignError, or a file that cannot be read or written, becomes one line and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:  # a process of its own: libraries swallow an exception that meets them in a callback
        signal.signal(signal.SIGINT, _leave)
        gc.disable()  # until all is loaded: see `_later`
    try:
        return _dispatch(words)
    except CodesignError as error:
        print(f"codesign: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has gone; what is left to print has no place to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
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
    from .config.plugins import plugins

    if not plugins():
        return ""
    from .run.setup import prepare_jax
    from .testing import faults_of_plugins

    prepare_jax()
    return next(faults_of_plugins(), "")


def _leave(*_: object) -> NoReturn:
    """Nothing is found yet that would be lost: what writes files does so whole or not at all."""
    os.write(2, b"codesign: interrupted\n")
    os._exit(130)


def _dispatch(words: list[str]) -> int:
    top = parser()
    actions = top._subparsers._group_actions if top._subparsers else []
    commands: dict[str, argparse.ArgumentParser] = dict(actions[0].choices or {})
    if not words:
        top.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in commands:
        raise ConfigError(f"{words[0]!r} is no command{suggestion(words[0], commands)}")
    known, unknown = top.parse_known_args(words)
    if hasattr(known, "overrides"):  # those that stand after an option
        known.overrides += [word for word in unknown if not word.startswith("-")]
        unknown = [word for word in unknown if word.startswith("-")]
    if unknown:
        kind = "option" if unknown[0].startswith("-") else "argument"
        options = [text for action in commands[known.command]._actions for text in action.option_strings]
        raise ConfigError(f"{known.command}: unknown {kind} {unknown[0]!r}{suggestion(unknown[0], options)}")
    return known.function(known)


def _optimize(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    if (options.resolve or options.package) and not options.cfg:
        raise ConfigError("--resolve and --package belong to --cfg: `--cfg job --resolve --package space`")
    if (options.cfg or options.info) and options.multirun:
        raise ConfigError("--cfg and --info show one configuration: leave out -m and lists of values")
    if options.cfg or options.info:
        return _later("run.multirun", "inform")(options)
    if options.multirun:
        return _later("run.multirun", "multirun")(options.overrides)
    return _later("run.optimize", "optimize")(options.overrides)


def _compare(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    return _later("run.compare", "compare_designs")(options.overrides)


def _evaluate(options: argparse.Namespace) -> int:
    _check_overrides(options.overrides)
    _check_priced(options.overrides)
    if options.top < 0:
        raise ConfigError(f"--top = {options.top}: at least 0 operations can be shown")
    if options.launch is not None:
        options.overrides = _later("run.launch_command", "with_launch")(options.launch, options.overrides)
    _later("run.evaluate", "evaluate_design")(options.overrides, as_json=options.json, top=options.top)
    return 0


def _check_overrides(overrides: list[str]) -> None:
    for text in overrides:
        if text.startswith("=") or ("=" not in text and not text.startswith("~")):
            raise ConfigError(f"{text!r} is no override: write key=value")


def _check_priced(overrides: list[str]) -> None:
    """One design has no search: what belongs to one would be read and forgotten."""
    for text in overrides:
        key = text.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] in ("search", "space", "objective"):
            raise ConfigError(
                f"evaluate prices one design and searches nothing: {text!r} belongs to `codesign optimize`"
            )


def _list(options: argparse.Namespace) -> int:
    if options.group in LISTS:
        _later("run.listing", "list_of")(options.group, options.words)
        return 0
    if any("=" in word for word in options.words):
        raise ConfigError(f"list {options.group}: overrides belong to {', '.join(LISTS)}")
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .config import available
    from .config.groups import groups

    if options.group is not None and options.group not in groups():
        hint = suggestion(options.group, [*groups(), *LISTS])
        raise ConfigError(f"config group {options.group!r} does not exist{hint}")
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("group", "options") if options.group is None else (options.group, ""):
        table.add_column(column, overflow="fold")
    for name, text in available(options.group).items():
        if all(word.lower() in f"{name} {text}".lower() for word in options.words):
            table.add_row(name, Text(text))  # citations stand in brackets, which are no markup here
    found = Console(highlight=False)
    (found if found.is_terminal else Console(highlight=False, width=160)).print(table)
    return 0


def _report(options: argparse.Namespace) -> int:
    from .report import build_report, write_run_report

    print(build_report(options.run))
    if options.reports:
        print(write_run_report(options.run, options.reports))
    return 0


def _export(options: argparse.Namespace) -> int:
    return _later("run.export", "export_design")(options.run, options.to, options.design, options.out)


def _verify(options: argparse.Namespace) -> int:
    return _later("run.verify", "verify_run")(options.run, options.attack, options.seed, as_json=options.json)


def _simulate(options: argparse.Namespace) -> int:
    return _later("run.simulate", "simulate_design")(
        options.what, design=options.design, requests=options.requests, seed=options.seed, rate=options.rate,
        cv=options.cv, trace=options.trace, as_json=options.json,
    )  # fmt: skip


def _new(options: argparse.Namespace) -> int:
    from .run.skeletons import new, told

    print(told(options.kind, options.name, new(options.kind, options.name, options.package)))
    return 0


def _check(options: argparse.Namespace) -> int:
    from .run.setup import prepare_jax
    from .testing import broken, chosen

    prepare_jax()
    found = chosen(options.names)
    if not found:
        print("no plug-in brings a component: `codesign new KIND NAME` writes one")
    wrong = 0
    for name, cls in found.items():
        lines = broken(cls)
        wrong += len(lines)
        print("\n".join(lines) if lines else f"{name}: keeps its contract")
    return 2 if wrong else 0


def _calibrate(options: argparse.Namespace) -> int:
    from .config import conf_dir
    from .config.groups import aliases
    from .run.setup import prepare_jax

    aliases()  # refuses accelerators that claim the same measurements
    prepare_jax()
    if options.few:
        if options.intervals or not options.out:
            raise ConfigError("calibrate: --few needs --out DIR, a folder of its own, and goes without --intervals")
        return _calibrate_few(options)
    out = options.out or str(conf_dir() / "calibration")
    only = tuple(name.strip() for name in options.only.split(",") if name.strip())
    if only and not options.intervals:
        raise ConfigError("calibrate: --only goes with --intervals")
    if options.intervals:
        for path in _later("validation.intervals", "fit_intervals")(options.directory, out, only=only):
            print(path)
        return 0
    for path in _later("calibration", "calibrate")(options.directory, out):
        print(path)
    for path in _later("validation", "calibrate_frameworks")(options.directory, out):
        print(path)
    return 0


def _calibrate_few(options: argparse.Namespace) -> int:
    from .validation.hardware import measured_cluster

    def told(line: str) -> None:
        print(line, file=sys.stderr)

    paths, rows = _later("validation.near", "calibrate_near")(options.directory, options.out, measured_cluster, told)
    _print_rows(rows, ("what", "rows", "before", "after"), {"before", "after"}, as_json=False)
    for path in paths:
        print(path)
    return 0


def _train_amortised(options: argparse.Namespace) -> int:
    if options.steps < 1 or options.held_out < 0:
        raise ConfigError("train-amortised: --steps must be at least 1 and --held-out at least 0")
    written = _later("run.amortised", "train_amortised")(
        options.names, options.out, options.seed, options.steps, options.held_out
    )
    for path in written:
        print(path)
    return 0


def _validate(options: argparse.Namespace) -> int:
    if options.schema == bool(options.directory):
        raise ConfigError("validate: either a folder of tables, or --schema alone")
    if options.schema:
        from .measurements import as_data, as_text

        print(dumps(as_data(), indent=2) if options.json else as_text())
        return 0
    from .config.groups import aliases
    from .run.setup import prepare_jax

    aliases()  # refuses accelerators that claim the same measurements
    prepare_jax()
    rows = _later("validation", "validate")(options.directory)
    if options.page:
        for path in _later("validation.page", "write_page")(rows, options.page):
            print(path, file=sys.stderr)
    columns = ("suite", "stratum", "quantity", "group", "n", "median", "mean", "p90", "bias", "rank",
               "coverage", "width")  # fmt: skip
    _print_rows(rows, columns, {"median", "mean", "p90", "bias", "coverage"}, as_json=options.json)
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from .run.setup import prepare_jax

    prepare_jax()
    names = options.names or ["all"]
    columns = ("experiment", "claim", "paper", "model", "error", "bar", "kind", "standing", "ok")
    started = time.perf_counter()

    def told(name: str, found: list[dict[str, Any]]) -> None:
        """Of an experiment before it runs, and its rows as soon as they are there."""
        if not found:
            print(f"{name} ...", file=sys.stderr, flush=True)
            return
        verdicts = [row["ok"] for row in found if row["ok"] is not None]
        bars = f", {sum(verdicts)} of {len(verdicts)} bars met" if verdicts else ""
        spent = time.perf_counter() - started
        print(f"{name}: {len(found)} claims{bars} ({spent:.0f} s so far)", file=sys.stderr, flush=True)
        if not options.json:
            _print_rows(found, columns, {"error", "bar"}, as_json=False)

    rows = _later("reproduce", "reproduce")(names, told)
    if options.reports:
        for page in _later("reproduce", "write_reports")(rows, options.reports):
            print(page, file=sys.stderr)
    counts = _later("reproduce", "summary")(rows)
    if options.json:
        print(dumps({"claims": rows, "summary": counts}, indent=2))
    else:
        shown = _later("reproduce", "summary_rows")(counts)
        _print_rows(shown, tuple(shown[0]), {"median error"}, as_json=False)
    return 1 if any(row["ok"] is False for row in rows) else 0


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is only loaded for its own command.

    What is loaded by then stays for good, and a trace makes many objects that stay for long: looking through all of
    them for garbage again and again would take a fifth of a default run.
    """
    import importlib

    found = getattr(importlib.import_module(f".{module}", __package__), name)
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG, 20, 20)
        gc.enable()
    return found


def _print_rows(rows: list[dict[str, Any]], columns: Sequence[str], shares: set[str], *, as_json: bool) -> None:
    """A table, or JSON; `shares` are fractions, shown in per cent."""
    if as_json:
        print(dumps(rows, indent=2))
        return
    from rich.table import Table

    from .run.terminal import console

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


if __name__ == "__main__":
    sys.exit(main())
