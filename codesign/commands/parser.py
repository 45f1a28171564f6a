"""Parsers of the command line: commands and their options. Help texts are in `help`."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, cast

from .._version import __version__
from ..core.earlier_names import current_command
from ..core.errors import ConfigError, is_text, suggestion
from ..core.short_names import OPEN_REQUESTS, full_names
from .help import COMMANDS, examples_text, overview_text

DESCRIPTION = "Co-design of AI accelerators, memory, fabrics and parallelism with gradients and proofs."
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
COMPOSING = (
    "serve",
    "fleet",
    "train",
    "optimize",
    "compare",
    "evaluate",
    "fit",
    "list",
    "explore",
    "simulate",
    "autoscale",
)
OVERRIDES = "key=value: `accelerator=b200`, `plan.tp=4`, `experiment=serve_llama31_405b` (see `codesign list`)"
TARGETS = "vllm, sglang, trtllm, megatron, torchtitan, maxtext, k8s, lws, dynamo or llm-d"
DESIGN = "rank of the design in the run (1)"
API = "prices of an API for the same load, dollars a million tokens, as in in=0.27,cached=0.07,out=1.10"
MARKOV = "rates that follow each other, each for an exponential time with this mean, as in 20/s:2min,60/s:10s"
REGION = "rent in a region of a cloud, as in europe-west4 (owned)"
EXPLAIN = "say below each table what its columns and rows mean, with units"


MISSING = "the following arguments are required:"
"""Beginning of the line with which argparse refuses."""


class Parser(argparse.ArgumentParser):
    """A parser that complains on one line, with a suggestion, and exits with code 2."""

    overview = ""
    """Help in place of argparse's own, where there is one."""

    def format_help(self) -> str:
        """Return the overview, or what argparse makes of the options."""
        return self.overview or super().format_help()

    def error(self, message: str) -> NoReturn:
        """Refuse; of what is missing with an example that has it."""
        name = self.prog.rpartition(" ")[2]
        if message.startswith(MISSING) and name in COMMANDS:
            lacking, example = message.removeprefix(MISSING).strip(), COMMANDS[name].examples[0][0]
            message = f"{name}: {lacking.replace(', ', ' and ')} missing, as in `{example}`"
        print(f"codesign: {message} (see `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(2)


Command = Callable[[str], Parser]


def parser() -> Parser:
    """All commands and their options."""
    top = Parser(prog="codesign", description=DESCRIPTION)
    top.overview = overview_text(DESCRIPTION)
    top.add_argument("--version", action="version", version=f"codesign {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str) -> Parser:
        result = COMMANDS[name]
        added = commands.add_parser(
            name, help=result.summary, description="\n".join(result.about), epilog=examples_text(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        if name in COMPOSING:
            text = "folder of your own YAML files, in groups as ours: DIR/accelerator/mine.yaml; may be repeated"
            added.add_argument("--conf", action="append", default=[], metavar="DIR", help=text)
        return added

    _add_choosing(command)
    _add_reading(command)
    _add_checking(command)
    _add_launching(command)
    _add_fitting(command)
    _add_extending(command)
    return top


def _add_choosing(command: Command) -> None:
    one = command("list")
    one.add_argument("group", nargs="?", help="a config group, such as accelerator; or metrics, variables, limits")
    one.add_argument("words", nargs="*", metavar="WORD", help="show lines that have it; KEY=VALUE chooses the study")
    one.add_argument("--table", action="store_true", help="numbers of accelerators side by side, and their standing")
    one = command("evaluate")
    one.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help=OVERRIDES)
    one.add_argument("--json", action="store_true", help="print every number as one flat JSON object")
    one.add_argument("--explain", action="store_true", help=EXPLAIN)
    one.add_argument("--top", type=int, default=10, metavar="N", help="operations to show (10)")
    text = "take the plan from a launch command, a script or a manifest: its text, or a file with it"
    one.add_argument("--from", dest="launch", metavar="COMMAND", help=text)
    one = command("fit")
    one.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help=OVERRIDES)
    one.add_argument("--json", action="store_true", help="print bytes by moment and class, and changes, as JSON")
    one.add_argument("--picture", default="", metavar="FILE", help="write the picture of the table to a PNG file")
    one.add_argument("--from", dest="launch", metavar="COMMAND", help=text)
    _add_questions(command)
    one = command("compare")
    one.add_argument(
        "overrides", nargs="*", default=[], metavar="OVERRIDE", help=f"{OVERRIDES}; lists of values are compared"
    )
    one.add_argument("--explain", action="store_true", help=EXPLAIN)
    one.add_argument("--api", metavar="PRICES", help=API)
    one = command("optimize")
    one.add_argument("-m", "--multirun", action="store_true", help="run every combination of the listed values")
    one.add_argument("--explain", action="store_true", help=EXPLAIN)
    one.add_argument("-c", "--cfg", choices=("job", "hydra", "all"), help="print the configuration and run nothing")
    one.add_argument("--resolve", action="store_true", help="with --cfg: resolve interpolations")
    one.add_argument("-p", "--package", metavar="KEY", help="with --cfg: print only what stands below KEY")
    one.add_argument("-i", "--info", choices=INFO, metavar="WHAT", help=f"print {', '.join(INFO)} and run nothing")
    one.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help=OVERRIDES)
    one = command("explore")
    one.add_argument("overrides", nargs="*", metavar="RUN | OVERRIDE", help=f"a run folder, or {OVERRIDES}")
    one.add_argument("--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (any free one)")
    one.add_argument("--open", action="store_true", help="open the page in the browser")


def _add_questions(command: Command) -> None:
    one = command("serve")
    _add_question(one)
    one.add_argument("--rate", metavar="RATE", help="requests, as in 30/s, 1800/min or 2M/day; all replicas together")
    one.add_argument("--clients", metavar="N", help="clients of a replica that wait for answers, instead of --rate")
    one.add_argument("--trace", metavar="FILE", help="CSV of requests: input_tokens, output_tokens, arrival_s")
    one.add_argument("--input", "--isl", metavar="N", help="tokens of a prompt (2048)")
    one.add_argument("--output", "--osl", metavar="N", help="tokens of an answer (512)")
    for name, text in (
        ("ttft", "time to first token"),
        ("tpot", "time per output token"),
        ("e2e", "whole request"),
    ):
        for point in ("", "-p50", "-p90", "-p99"):
            explained = f"{text}, {point[1:] or 'mean'}: at most so long, as in 50ms"
            one.add_argument(f"--{name}{point}", metavar="TIME", help=explained)
    one.add_argument("--api", metavar="PRICES", help=API)
    text = "prompts computed beside decodes, apart on a pool of their own, or both (beside)"
    one.add_argument("--pools", choices=("beside", "apart", "both"), default="beside", help=text)
    _add_fleet(command("fleet"))
    one = command("train")
    _add_question(one)
    one.add_argument("--tokens", required=True, metavar="N", help="tokens to train on, as in 15T")
    one.add_argument("--days", required=True, metavar="TIME", help="in how many days, 90 or 90d; also 2160h")
    one.add_argument("--batch", metavar="N", help="tokens of a step (4M), rounded to a power of two of sequences")
    one.add_argument("--sequence", metavar="N", help="tokens of a sequence (8192)")

    one = command("buy")
    one.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help=f"{OVERRIDES}; of every job")
    one.add_argument("--on", required=True, metavar="NAMES", help="accelerators to choose from, as in h200,b200,gb200")
    text = 'a job in the words of `codesign serve`, as in "llama31_70b --rate 30/s --ttft-p99 2s"; may be repeated'
    one.add_argument("--serve", action="append", default=[], metavar="WORDS", help=text)
    text = 'a job in the words of `codesign train`, as in "llama31_8b --tokens 1T --days 30d"; may be repeated'
    one.add_argument("--train", action="append", default=[], metavar="WORDS", help=text)
    one.add_argument("--region", metavar="NAME", help=REGION)
    one.add_argument("--api", metavar="PRICES", help=API)
    one.add_argument("--horizon", metavar="TIME", help="how long everything is kept, as in 4y (4y)")


def _add_fleet(one: Parser) -> None:
    one.add_argument("model", metavar="MODEL", help="name of the catalogue or of a hub, or the path of a config.json")
    one.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help=OVERRIDES)
    one.add_argument("--on", required=True, metavar="NAMES", help="accelerators of the fleet, as in h100_sxm,b200")
    text = "requests of a kind, as in chat:rate=20/s,input=800,output=300,ttft_p99=500ms,tpot_p99=50ms; also cv,"
    text += " input_cv, output_cv, cached; may be repeated"
    one.add_argument("--class", dest="classes", action="append", default=[], metavar="CLASS", help=text)
    one.add_argument("--rate", metavar="RATE", help="requests of one kind, in place of --class: as in 30/s or 2M/day")
    one.add_argument("--input", "--isl", metavar="N", help="tokens of a prompt of --rate")
    one.add_argument("--output", "--osl", metavar="N", help="tokens of an answer of --rate")
    for name, text in (("ttft", "time to first token"), ("tpot", "time per output token")):
        for point in ("p50", "p90", "p99"):
            one.add_argument(
                f"--{name}-{point}", metavar="TIME", help=f"{text} of --rate, {point}: at most, as in 50ms"
            )
    text = "requests with a column class: rates, lengths and variations of each; --class then says limits alone"
    one.add_argument("--trace", metavar="FILE", help=text)
    text = "devices that are there already, whole boxes, at what running them costs; may be repeated"
    one.add_argument("--own", action="append", default=[], metavar="KIND=N", help=text)
    text = "devices that can be bought at most, 0 for none (as many as are needed); may be repeated"
    one.add_argument("--most", action="append", default=[], metavar="KIND=N", help=text)
    one.add_argument("--budget", metavar="MONEY", help="capital of what is bought at most, as in $5M")
    one.add_argument("--power", metavar="WATTS", help="provisioned power of all at most, as in 2MW")
    text = (
        "sizes of a replica to choose from, which fill boxes: 1,2,4,8,16 (parts of a box, more where one is too small)"
    )
    one.add_argument("--devices", metavar="COUNTS", help=text)
    one.add_argument("--engine", metavar="NAME", help="a file of `codesign list framework` (what usually runs there)")
    one.add_argument("--region", metavar="NAME", help=REGION)
    text = "number format: bf16 or fp8 of everything, or one of `codesign list precision` (as published)"
    one.add_argument("--format", metavar="NAME", help=text)
    text = "share of the draws of the model's errors in which a replica keeps its limits at its rate, as in 0.9"
    one.add_argument("--confidence", metavar="SHARE", help=f"{text} (at the centre)")
    text = "replay so many requests of each pool, beside the closed form (none)"
    one.add_argument("--requests", type=int, default=0, metavar="N", help=text)
    one.add_argument("--seed", type=int, default=0, help="seed of the replay (0)")
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")


def _add_question(one: Parser) -> None:
    """Options of every plain question."""
    one.add_argument("model", metavar="MODEL", help="name of the catalogue or of a hub, or the path of a config.json")
    one.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help=OVERRIDES)
    one.add_argument("--on", required=True, metavar="NAMES", help="accelerators to choose from, as in h200,b200,gb200")
    one.add_argument("--budget", metavar="MONEY", help="capital at most, as in $5M")
    one.add_argument("--power", metavar="WATTS", help="provisioned power at most, as in 2MW")
    one.add_argument("--devices", metavar="COUNTS", help="counts to choose from, as in 32,64 (the demand decides)")
    one.add_argument("--engine", metavar="NAME", help="a file of `codesign list framework` (what usually runs there)")
    one.add_argument("--region", metavar="NAME", help=REGION)
    text = "number format: bf16 or fp8 of everything, or one of `codesign list precision` (serving: as published)"
    one.add_argument("--format", metavar="NAME", help=text)
    one.add_argument("--goal", choices=("cost", "energy"), default="cost", help="what is to be least, a token (cost)")
    text = (
        "share of draws of the model's errors in which limits are kept, as in 0.9 (0.5 at a rate, else at the centre)"
    )
    one.add_argument("--confidence", metavar="SHARE", help=text)
    one.add_argument("--show-config", action="store_true", help="print the commands that it stands for, run nothing")


def _add_reading(command: Command) -> None:
    one = command("report")
    one.add_argument("run", help="a run folder")
    one.add_argument("other", nargs="?", default=None, metavar="RUN", help="another run: both side by side")
    one.add_argument("--reports", default=None, metavar="DIR", help="also write the outcome to be committed (reports)")
    one = command("sql")
    one.add_argument("run", help="the folder of a run or a multirun")
    one.add_argument("sql", nargs="?", help="one SELECT; without it, the tables and their columns are listed")
    one.add_argument("--csv", default=None, metavar="FILE", help="write all rows there instead of showing the first")


def _add_checking(command: Command) -> None:
    one = command("verify")
    one.add_argument("run", help="a run folder, or one of a multirun, a comparison or a fleet")
    text = "attack with N designs (as many as twice the time of the search allows, 16,384 to 10^6)"
    one.add_argument("--attack", type=int, default=None, metavar="N", help=text)
    one.add_argument("--seed", type=int, default=0, help="seed of these designs (0)")
    one.add_argument("--json", action="store_true", help="print the answer and its numbers as JSON")
    one = command("validate")
    one.add_argument("directory", nargs="?", help="folder of tables, or a table, recognised by their columns")
    one.add_argument("--schema", action="store_true", help="print the columns of every kind of table and score nothing")
    one.add_argument("--groups", action="store_true", help="a line for each device and model too")
    one.add_argument("--commands", action="store_true", help="print the command of each measured run and score nothing")
    one.add_argument("--json", action="store_true", help="print the table of errors, or the schema, as JSON")
    one.add_argument("--page", default=None, metavar="DIR", help="write the errors as Markdown and CSV tables too")
    one = command("import")
    one.add_argument("files", nargs="+", metavar="FILE", help="results and logs, and key=value for what they lack")
    one.add_argument("--out", default=None, metavar="FILE.csv", help="write the table there instead of printing it")
    _add_observe(command("observe"))
    one = command("reproduce")
    one.add_argument("names", nargs="*", metavar="NAME", help="experiments, or all")
    one.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    one.add_argument("--reports", default=None, metavar="DIR", help="rewrite the committed outcomes there (reports)")


def _add_observe(one: Parser) -> None:
    one.add_argument("url", metavar="URL", help="an OpenAI-compatible server: http://HOST:PORT, with or without /v1")
    text = "columns of the design that serves: accelerator=h100_sxm model=llama31_8b tp=4 framework=vllm"
    one.add_argument("columns", nargs="*", metavar="KEY=VALUE", help=text)
    one.add_argument("--clients", type=int, default=None, metavar="N", help="a closed loop of so many at a time (1)")
    text = "an open loop: Poisson arrivals at R requests/s; also 5/s, 300/min"
    one.add_argument("--rate", default=None, metavar="R", help=text)
    text = "an open loop: arrivals and lengths of a file with arrival_s, input_tokens, output_tokens"
    one.add_argument("--trace", default=None, metavar="CSV", help=text)
    one.add_argument("--input", type=int, default=1024, metavar="N", help="tokens of a prompt (1024)")
    one.add_argument("--output", type=int, default=256, metavar="N", help="tokens of an answer (256)")
    text = "number of requests (10 a client; 200 at a rate; all of a trace)"
    one.add_argument("--requests", type=int, default=None, metavar="N", help=text)
    one.add_argument("--seed", type=int, default=0, help="seed of words and arrivals (0)")
    one.add_argument("--chat", action="store_true", help="ask /v1/chat/completions, not /v1/completions")
    text = "name of the model at the server (its only one)"
    one.add_argument("--served-model", default=None, metavar="NAME", help=text)
    text = "variable of the environment that holds the server's key"
    one.add_argument("--key-env", default=None, metavar="NAME", help=text)
    one.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="give a request up after S seconds (600)"
    )
    one.add_argument(
        "--out", default="observed", metavar="DIR", help="folder that both tables are written to (observed)"
    )
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")


def _add_launching(command: Command) -> None:
    one = command("export")
    one.add_argument("run", help="a run folder")
    one.add_argument("--to", required=True, metavar="TARGET", help=TARGETS)
    one.add_argument("--design", type=int, default=1, metavar="N", help=DESIGN)
    one.add_argument("--out", default=None, metavar="DIR", help="write files there instead of printing them")
    one.add_argument("--anyway", action="store_true", help="also a design that violates a limit of its study")
    one = command("simulate")
    one.add_argument("what", nargs="+", metavar="RUN", help="a run folder, or overrides of a design")
    one.add_argument("--design", type=int, default=1, metavar="N", help=DESIGN)
    text = "number of requests (10,000; of --profile all that its hours bring)"
    one.add_argument("--requests", type=int, metavar="N", help=text)
    text = "a benchmark's run of N requests instead, from an idle engine to the last answer; --rate inf: all at once"
    one.add_argument("--num-prompts", type=int, metavar="N", help=text)
    one.add_argument("--seed", type=int, default=0, help="seed of lengths and arrivals (0)")
    one.add_argument("--rate", default="0", metavar="R", help="an open loop of R requests/s in all; also 1800/min")
    text = "coefficient of variation of interarrival times: 0 even, 1 Poisson (default), above 1 bursty"
    one.add_argument("--cv", "--burstiness", type=float, metavar="V", help=text)
    text = "a fleet of N replicas (engines of the design) under one stream of requests, with a router before them; P,D"
    text += " prefill and decode replicas where prompts have a pool of their own"
    one.add_argument("--replicas", metavar="N", help=text)
    text = "round_robin (default), least_outstanding, power_of_two, prefix_aware or session_sticky; of two pools also a"
    text += " pair, as in one_queue,round_robin"
    one.add_argument("--router", metavar="NAME", help=text)
    text = "room for prefixes in each replica's host memory, as in 200GB; needs a trace with hash_ids"
    one.add_argument("--prefix-cache", metavar="SIZE", help=text)
    text = "limits of a fleet's requests, as in ttft=2s,tpot=50ms,share=0.99; of a class: chat:ttft=1s; may be repeated"
    one.add_argument("--slo", action="append", default=[], metavar="LIMITS", help=text)
    text = "classes of a trace in the order in which they go first where requests wait, as in chat,batch"
    one.add_argument("--priority", metavar="CLASSES", help=text)
    text = "turn requests of a class away where N or more a replica are under way, as in batch=32; may be repeated"
    one.add_argument("--admit", action="append", default=[], metavar="CLASS=N", help=text)
    text = "requests of a trace: Azure, BurstGPT, Mooncake, or columns arrival_s, input_tokens, output_tokens"
    one.add_argument("--trace", default="", metavar="FILE", help=text)
    text = "requests/s of each hour: a CSV or YAML file, or day:3, a day whose busiest hour has 3 times the quietest's"
    one.add_argument("--profile", "--load", default="", metavar="FILE", help=f"{text}; scaled to the mean --rate")
    one.add_argument("--markov", default="", metavar="CHAIN", help=MARKOV)
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")
    one = command("autoscale")
    one.add_argument("what", nargs="+", metavar="RUN", help="a run of workload=goodput, or overrides of a design")
    text = "CSV: hour, requests_per_s; or a YAML list; or day:3, the busiest hour with 3 times the quietest's rate"
    one.add_argument("--load", "--profile", required=True, metavar="FILE", help=text)
    one.add_argument("--markov", default="", metavar="CHAIN", help=f"{MARKOV}; of --start, around each hour's rate")
    text = "simulate policies too, with replicas that take so long to start, as in 2min, beside the least of any policy"
    one.add_argument("--start", metavar="TIME", help=text)
    one.add_argument("--busiest", type=float, default=0.0, metavar="R", help="scale the load to R requests/s at most")
    one.add_argument("--design", type=int, default=1, metavar="N", help=DESIGN)
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")


def _add_fitting(command: Command) -> None:
    one = command("calibrate")
    one.add_argument("directory", help="folder of measured tables")
    text = "folder that the constants are written to (conf/calibration)"
    one.add_argument("--out", default=None, metavar="DIR", help=text)
    text = "fit no constants: cross-validate those at hand, and write how far predictions may be off"
    one.add_argument("--intervals", action="store_true", help=text)
    text = "with --intervals: only these, separated by commas"
    one.add_argument("--only", metavar="SUITES", default="", help=text)
    text = "for a few kernel rows and steps of one machine: stay near the constants at hand, show before and after"
    one.add_argument("--few-shot", action="store_true", help=text)
    one = command("train-amortised")
    one.add_argument("names", nargs="*", metavar="FAMILY", help="families of studies; all if none is named")
    one.add_argument("--seed", type=int, default=0, help="seed of weights and studies (0)")
    one.add_argument("--steps", type=int, default=4000, help="steps of training (4000)")
    one.add_argument("--held-out", type=int, default=40, metavar="N", help="studies that regret is measured on (40)")
    text = "folder that the networks are written to (where the package looks)"
    one.add_argument("--out", default=None, metavar="DIR", help=text)


def _add_extending(command: Command) -> None:
    one = command("scaffold")
    kinds = "fabric, collective, kernel, search, runner, workload, accelerator, model or experiment"
    one.add_argument("kind", metavar="KIND", help=kinds)
    one.add_argument("name", metavar="NAME", help="name of the option: lower case, digits, underscores")
    one.add_argument("--package", default=None, metavar="PACKAGE", help="package that it joins (codesign_NAME)")
    text = "write one YAML file into a folder of your own files instead (accelerator, model, experiment)"
    one.add_argument("--conf", dest="into", default=None, metavar="DIR", help=text)
    one = command("check-plugin")
    text = "classes of plug-ins or of this package; without any, all of plug-ins"
    one.add_argument("names", nargs="*", metavar="CLASS", help=text)


# Words of the command line, read as a command and its options.


TEXTS = (
    "overrides",
    "columns",
    "words",
    "what",
    "names",
    "name",
    "kind",
    "sql",
    "only",
    "load",
)  # of commands, by argument


def parsed(words: list[str]) -> argparse.Namespace:
    """A command's options, read from its words.

    Raises:
        ConfigError: a command or option that there is not, or a word too many.
    """
    top = parser()
    actions = top._subparsers._group_actions if top._subparsers else []
    commands: dict[str, argparse.ArgumentParser] = dict(actions[0].choices or {})
    words = [current_command(words[0]), *words[1:]]
    if not words[0].startswith("-") and words[0] not in commands:
        raise ConfigError(f"{words[0]!r} is not a command{suggestion(words[0], commands)}")
    words = _negative_values(words)
    if words[0] in commands:
        _check_names(words, commands[words[0]])
    options_read, unknown = top.parse_known_args(words)
    for taken in ("overrides", "words", "what", "columns"):  # those that stand after an option
        if hasattr(options_read, taken):
            setattr(
                options_read,
                taken,
                getattr(options_read, taken) + [word for word in unknown if not word.startswith("-")],
            )
            unknown = [word for word in unknown if word.startswith("-")]
    if unknown:
        if not unknown[0].startswith("-"):
            many = f"{unknown[0]!r} is one argument too many (see `codesign {options_read.command} --help`)"
            raise ConfigError(f"{options_read.command}: {many}")
        sub_parser, where = (
            (commands[options_read.command], f"{options_read.command}: ") if options_read.command else (top, "")
        )
        options = [text for action in sub_parser._actions for text in action.option_strings]
        raise ConfigError(f"{where}unknown option {unknown[0]!r}{suggestion(unknown[0], options)}")
    _check_texts(options_read)
    options_read.clients_wait = any(word.startswith(OPEN_REQUESTS) for word in words)
    for taken in ("overrides", "words", "what"):
        if options_read.command in COMPOSING and isinstance(getattr(options_read, taken, None), list):
            setattr(options_read, taken, full_names(getattr(options_read, taken)))
    return options_read


DEVICES, MEANT = ("--gpu", "--gpus", "--accelerator", "--accelerators", "--hardware", "--device"), "--on"
"""Options that questions call otherwise."""


def _check_names(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Refuse an option that there is not, before argparse says which ones are missing.

    Raises:
        ConfigError: naming it, with a suggestion.
    """
    options = [text for action in parser._actions for text in action.option_strings]
    for word in words[1:]:
        name = word.partition("=")[0]
        if word == "--":
            return
        if name.startswith("--") and name not in options and (said := _as_override(words, word)):
            raise ConfigError(f"{words[0]}: unknown option {name!r}: a field of the plan is an override, write {said}")
        if name.startswith("--") and not any(option.startswith(name) for option in options):
            meant = f" (did you mean '{MEANT}'?)" if name in DEVICES and MEANT in options else ""
            raise ConfigError(f"{words[0]}: unknown option {name!r}{meant or suggestion(name, options)}")


def _as_override(words: Sequence[str], word: str) -> str:
    """`plan.ep=4` for `--ep 4`; empty where no plan has such a field."""
    name, given, value = word.removeprefix("--").replace("-", "_").partition("=")
    from ..model.workloads.plan_fields import (
        plan_field,
    )  # of a mistake alone: it takes JAX, which other commands do not

    if plan_field(name) is None:
        return ""
    after = words[words.index(word) + 1 : words.index(word) + 2]
    return f"plan.{name}={value if given else ''.join(text for text in after if not text.startswith('-')) or 'VALUE'}"


def _negative_values(words: list[str]) -> list[str]:
    """Words with `--rate -5/s` as `--rate=-5/s`: argparse takes a negative number with a unit for an option."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-\.?\d", word) and joined and re.fullmatch(r"--[a-z][a-z0-9-]*", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _check_texts(options: argparse.Namespace) -> None:
    """Refuse bytes that are no UTF-8, but in names of files that are there.

    In the C locale Python keeps every byte beyond ASCII as half of a pair, those of UTF-8 too.
    """
    for name in TEXTS:
        value = getattr(options, name, None)
        if isinstance(value, list):
            setattr(options, name, [_text_of(options.command, text) for text in cast(list[object], value)])
        elif value is not None:
            setattr(options, name, _text_of(options.command, value))


def _text_of(command: str, word: object) -> object:
    """A word as UTF-8."""
    if not isinstance(word, str) or is_text(word) or os.path.lexists(word):
        return word
    try:
        return word.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise ConfigError(f"{command}: {word!r} is no text of UTF-8") from error
