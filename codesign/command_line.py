"""What can be typed: commands, their options, what help says of them."""

import argparse
import sys
from typing import NoReturn

from .release import __version__

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
QUERY_EXAMPLES = """examples:
  RUN                                                                       what there is to ask
  RUN 'select "var.tp", min(time_s) from designs where feasible group by 1'
  RUN 'select kind, count(*), min(log_goal) from kept group by kind'         what the chunks of a grid keep
  RUN 'select first, seconds from chunks order by seconds desc limit 5'      the slowest of them"""
COMPOSING = ("optimize", "compare", "evaluate", "list", "explore", "simulate", "day")
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

    def command(name: str, text: str) -> Parser:
        added = commands.add_parser(name, help=text, description=text)
        if name in COMPOSING:
            text = "folder of your own YAML files, in groups as ours: DIR/accelerator/mine.yaml; may be repeated"
            added.add_argument("--conf", action="append", default=[], metavar="DIR", help=text)
        return added

    one = command("optimize", "search a design space and leave a run folder with a report")
    one.epilog, one.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    one.add_argument("-m", "--multirun", action="store_true", help="run every combination of the listed values")
    one.add_argument("-c", "--cfg", choices=("job", "hydra", "all"), help="print the configuration and run nothing")
    one.add_argument("--resolve", action="store_true", help="with --cfg: interpolations resolved")
    one.add_argument("-p", "--package", metavar="KEY", help="with --cfg: only what stands below KEY")
    one.add_argument("-i", "--info", choices=INFO, metavar="WHAT", help=f"print {', '.join(INFO)} and run nothing")
    one.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=OVERRIDES)
    one = command("compare", "put the best designs of several choices side by side: one table, one page")
    one.epilog, one.formatter_class = COMPARE_EXAMPLES, argparse.RawDescriptionHelpFormatter
    one.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=f"{OVERRIDES}; lists of values are compared")
    one = command("evaluate", "price one design with its full breakdown")
    one.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=OVERRIDES)
    one.add_argument("--json", action="store_true", help="print every number as one flat JSON object")
    one.add_argument("--top", type=int, default=10, metavar="N", help="operations to show (10)")
    one.add_argument(
        "--from", dest="launch", metavar="COMMAND", help="the plan of a `vllm serve ...` or SGLang command"
    )
    one = command("list", "show what there is: groups, the options of one, or what a study can be asked")
    one.add_argument("group", nargs="?", help="a config group, such as accelerator; or metrics, variables, limits")
    one.add_argument("words", nargs="*", metavar="WORD", help="what a line must have; KEY=VALUE: of which study")
    one = command("report", "rebuild the report of a run without rerunning it")
    one.add_argument("run", help="a run folder")
    one.add_argument("other", nargs="?", default=None, metavar="RUN", help="another: both side by side, on one page")
    one.add_argument("--reports", default=None, metavar="DIR", help="also write the outcome to be committed (reports)")
    one = command("explore", "a page on this machine with a slider for each number and limit of a study")
    one.add_argument("overrides", nargs="*", metavar="RUN | OVERRIDE", help=f"a run folder, or {OVERRIDES}")
    one.add_argument("--port", type=int, default=0, metavar="N", help="of 127.0.0.1 (a free one)")
    one.add_argument("--open", action="store_true", help="show it in the browser")
    one = command("query", "ask the frames of a run in SQL")
    one.epilog, one.formatter_class = QUERY_EXAMPLES, argparse.RawDescriptionHelpFormatter
    one.add_argument("run", help="the folder of a run or a multirun")
    one.add_argument("sql", nargs="?", help="one SELECT; without it, the tables and their columns are listed")
    one.add_argument("--csv", default=None, metavar="FILE", help="write all rows there instead of showing the first")
    one = command("export", "write launch commands or files of an engine for a design of a run")
    one.add_argument("run", help="a run folder")
    one.add_argument("--to", required=True, metavar="TARGET", help="vllm, sglang, trtllm, megatron, torchtitan or k8s")
    one.add_argument("--design", type=int, default=1, metavar="N", help="of the run, by its rank (1)")
    one.add_argument("--out", default=None, metavar="DIR", help="write files there instead of printing them")
    one.add_argument("--anyway", action="store_true", help="also a design that breaks a limit of its study")
    one = command("verify", "check the proof of a run by a program of its own and attack it; exit code 0 or 1")
    one.add_argument("run", help="a run folder of search=certified, grid_then_proof or inverse")
    text = "designs that try to be better (what twice the time of the search allows, 16,384 to 10^6)"
    one.add_argument("--attack", type=int, default=None, metavar="N", help=text)
    one.add_argument("--seed", type=int, default=0, help="of these designs (0)")
    one.add_argument("--json", action="store_true", help="print the answer and its numbers as JSON")
    one = command("simulate", "serve requests one by one on a design, beside its closed form")
    one.add_argument("what", nargs="+", metavar="RUN", help="a run folder, or overrides of a design")
    one.add_argument("--design", type=int, default=1, metavar="N", help="of the run, by its rank (1)")
    one.add_argument("--requests", type=int, default=10_000, metavar="N", help="to be served (10,000)")
    one.add_argument("--seed", type=int, default=0, help="of lengths and arrivals (0)")
    one.add_argument("--rate", type=float, default=0.0, metavar="R", help="requests/s of the cluster: an open loop")
    one.add_argument("--cv", type=float, metavar="V", help="of their gaps: 0 even, 1 Poisson (usual), more bursty")
    one.add_argument("--trace", default="", metavar="CSV", help="with arrival_s, input_tokens, output_tokens")
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")
    one = command("day", "how many replicas of a design run in which hour, and what following the load saves")
    one.add_argument("what", nargs="+", metavar="RUN", help="a run of workload=goodput, or overrides of a design")
    one.add_argument("--load", required=True, metavar="FILE", help="CSV: hour, requests_per_s; or a YAML list")
    one.add_argument("--busiest", type=float, default=0.0, metavar="R", help="scale the load to R requests/s at most")
    one.add_argument("--design", type=int, default=1, metavar="N", help="of the run, by its rank (1)")
    one.add_argument("--json", action="store_true", help="print all numbers as JSON")
    one = command("calibrate", "fit kernel and collective constants to a folder of measurements")
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
    one = command("train-amortised", "train the networks of search=amortised and measure their regret")
    one.add_argument("names", nargs="*", metavar="FAMILY", help="families of studies; all if none is named")
    one.add_argument("--seed", type=int, default=0, help="of weights and studies (0)")
    one.add_argument("--steps", type=int, default=4000, help="of training (4000)")
    one.add_argument("--held-out", type=int, default=40, metavar="N", help="studies that regret is measured on (40)")
    one.add_argument("--out", default=None, metavar="DIR", help="where the networks land (where the package looks)")
    one = command("validate", "compare the model with a folder of measured or peer-model results")
    one.add_argument("directory", nargs="?", help="folder of tables, chosen by their columns whatever their names")
    one.add_argument("--schema", action="store_true", help="print the columns of every kind of table and score nothing")
    one.add_argument("--json", action="store_true", help="print the table of errors, or the schema, as JSON")
    one.add_argument("--page", default=None, metavar="FILE", help="write the errors as a page too (docs/errors.md)")
    one = command("new", "write a working skeleton of a component into a plug-in package, or one file of yours")
    kinds = "fabric, collective, kernel, search, runner, workload, accelerator, model or experiment"
    one.add_argument("kind", metavar="KIND", help=kinds)
    one.add_argument("name", metavar="NAME", help="of the option: lower case, digits, underscores")
    one.add_argument("--package", default=None, metavar="PACKAGE", help="that it joins (codesign_NAME)")
    text = "write one YAML file into a folder of your own files instead (accelerator, model, experiment)"
    one.add_argument("--conf", dest="into", default=None, metavar="DIR", help=text)
    one = command("check", "hold the components of plug-ins against the contracts of their families")
    one.add_argument("names", nargs="*", metavar="CLASS", help="of a plug-in, or of this package; all of plug-ins")
    one = command("reproduce", "run the experiments that reproduce published results")
    one.add_argument("names", nargs="*", metavar="NAME", help="experiments, or all")
    one.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    one.add_argument("--reports", default=None, metavar="DIR", help="rewrite the committed outcomes there (reports)")
    return top
