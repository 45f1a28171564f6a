"""Remarks beside what a command prints: what columns and rows mean, a study that nobody named, unusual numbers."""

import contextlib
import re
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config import Study
from ..config.as_sold import Difference
from ..config.checks import not_held
from ..config.composition import admit, combinations, composed
from ..config.consistency import idle_fields
from ..config.device_counts import COUNT, left_open, listed
from ..config.groups import expand
from ..config.least_devices import ANOTHER
from ..config.plausibility import UnusualValue, unusual
from ..config.starting import defaults_line, framework_line, names, precision_line
from ..core.errors import ConfigError
from ..core.fields import walk, with_numpy
from ..core.json_yaml import is_mapping
from ..model.scenario import Scenario
from ..model.workloads.base import OTHERS, FamilyVocabulary
from ..model.workloads.plan_fields import plan_field
from ..report.labels import counted, meaning, metric, unit_of, variable
from ..search.results import Results, placed
from ..study.design_space import DesignSpace
from .terminal import SHORT

# Remarks beside what a command prints: a study that nobody named, numbers that are unusual.


def say_default(overrides: list[str]) -> None:
    """One line for each default that is taken: the study, the framework, the number formats."""
    for line in (defaults_line(overrides), framework_line(overrides), precision_line(overrides)):
        if line:
            print(f"codesign: {line}", file=sys.stderr)


def say_devices(overrides: list[str], space: DesignSpace | None = None, counted: str = "") -> None:
    """One line where a study says nothing of how many devices there are.

    Args:
        overrides: as they were typed.
        space: of the study, which may have counts that its demand asks for.
        counted: what was said of a number that was found.
    """
    if line := counted or devices_taken(overrides, space):
        print(f"codesign: {line}", file=sys.stderr)


def say_not_held(study: Study, overrides: list[str]) -> None:
    """One line for each plan field that somebody typed and that varies all the same."""
    for line in not_held(study.space, overrides):
        print(f"codesign: {line}", file=sys.stderr)


def say_idle(scenario: Scenario, overrides: Sequence[str]) -> None:
    """One line for each plan field that somebody typed and that changes nothing of this job."""
    idle, usual = idle_fields(scenario), type(scenario.plan)()
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        listed = expand(key.removeprefix("space."))
        name = listed.removeprefix("plan.")
        if name in idle and listed != name and value != f"{float(getattr(usual, name) or 0.0):g}":
            print(f"codesign: {key} = {value} changes nothing: {idle[name]}", file=sys.stderr)


def devices_taken(overrides: list[str], space: DesignSpace | None = None) -> str:
    """Line that says how many devices are taken where nothing asks, and how to ask; empty where something does."""
    if any("device_count" in text for text in overrides) or not names(overrides, "model", "workload", "accelerator"):
        return ""  # most are, which need not be composed
    resolved = OmegaConf.to_container(composed(combinations(admit(overrides))[0]), resolve=False)
    if not is_mapping(resolved) or not left_open(overrides, resolved):
        return ""
    if space is not None and COUNT in space.plan:
        return f"{listed(space.plan[COUNT])} devices, by what the job needs; {ANOTHER}"
    planned = resolved.get("plan", {}).get("device_count")  # some plans have a count of their own
    count = f"{planned or resolved['cluster']['device_count']:,} devices, since nothing says how many"
    another = "name plan.device_count for another number" if planned else ANOTHER
    return f"{count}; {another}, 'space.plan.device_count=[64,128]' lets it vary"


def warn(numbers: Iterable[UnusualValue]) -> None:
    """One line each for numbers that are legal but unusual, beside what a command prints."""
    for one in numbers:
        print(f"codesign: warning: {one.text}", file=sys.stderr)


@contextlib.contextmanager
def naming_unusual(scenario: Scenario, provenance: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
    """Let a refusal of a design name its unusual numbers: 80 bytes of memory, where 80 GB were meant, fit no model."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            "; ".join([str(error), *(one.text for one in unusual(scenario, provenance=provenance))])
        ) from error


def say_trace(provenance: Mapping[str, Mapping[str, Any]]) -> None:
    """One line where closed forms are not to be believed for the trace that a study names, and what is."""
    for key, origin in provenance.items():
        source, note = str(origin.get("source", "")), str(origin.get("note", ""))
        if key.endswith("arrival_cv") and source.startswith("trace ") and "codesign simulate" in note:
            print(f"codesign: {source}: {note}", file=sys.stderr)


def unusual_answer(study: Study, results: Results) -> tuple[UnusualValue, ...]:
    """Find what is unusual in the best design beyond the inputs: numbers that only several variables together bring."""
    warnings = study.unusual
    result = unusual(placed(study.problem, results.best), provenance=study.provenance)
    return tuple(
        one._replace(text=f"the best design: {one.text}")
        for one in result
        if not any(one.key in t.text for t in warnings)
    )


# `--explain`: what the columns and rows of a table mean, one line each, with units.


RATE = re.compile(r"([a-z]+)_per_s(?:_per_|$)")
COLUMNS = {
    "rank": "rank of the design in the run, best first",
    "job": "number of the job in the multirun",
    "plan": "how the job is laid out on the devices, in the abbreviations below; usual values are left out",
    "active_constraints": "limits and memories that hold the design back, with their used share",
    "counts": "switches, cables and tiers that the network of each level needs",
    "candidate": "combination of the listed values, named by what differs",
    "wins": "share of joint draws of the model's errors in which this candidate is the best",
    "plan, active constraints": "devices and plan, then what holds the design back, with the largest parts of its time",
}
"""Columns that show no metric."""

PLAN_WORDS = {
    "tp": "plan.tp: devices that share each layer (tensor parallel)",
    "pp": "plan.pp: stages that the layers are divided into (pipeline parallel)",
    "micro_batch": "plan.micro_batch: sequences that a replica computes at once",
    "recompute": "plan.recompute: which activations are computed again in the backward pass",
    "dp": "replicas of the model (data parallel): the devices over those of one replica",
}
"""Words of a plan whose field says too little, or that are no field."""


class Explanation(NamedTuple):
    """Meaning and unit of one column or row."""

    label: str
    meaning: str
    unit: str = ""


def of_metric(label: str, name: str, words: FamilyVocabulary = OTHERS) -> Explanation:
    """The meaning of a metric, under the label that a table gives it."""
    text = counted(metric_meaning(name, words), words.item) or f"as the study defines it: {name}"
    return Explanation(label, text, metric_unit(name, words))


def of_column(head: str, name: str, words: FamilyVocabulary = OTHERS) -> Explanation:
    """The meaning of a column, which shows a metric or stands in `COLUMNS`."""
    return Explanation(head, COLUMNS[name]) if name in COLUMNS else of_metric(head, name, words)


def metric_meaning(name: str, words: FamilyVocabulary = OTHERS) -> str:
    """Meaning of a metric for a workload family; empty for an unknown metric."""
    return meaning(name) or (metric(name, words).label if name in words.metrics else "")


def metric_unit(name: str, words: FamilyVocabulary = OTHERS) -> str:
    """The unit of a metric: `share` of what is shown in per cent, `tokens/s` of a rate, none of a plain count."""
    unit, rate = metric(name, words).unit, RATE.search(name)
    if unit == "count":
        return counted(f"{rate[1]}/s", words.item) if rate else ""
    return "share" if unit == "%" or name.startswith("usage.") else unit


def of_plan(names: Iterable[str]) -> list[Explanation]:
    """The abbreviations of the plan fields among these columns of a frame (`var.tp`)."""
    fields = {name.removeprefix("var.") for name in names if name.startswith("var.")}
    lines: list[Explanation] = []
    for name in [*SHORT, "dp", *sorted(fields)]:
        short = SHORT[name][0].strip() if name in SHORT else name.replace("_", " ")
        field = plan_field(name)
        text = PLAN_WORDS.get(name) or (f"plan.{name}: {field.get('doc', '')}" if field else "")
        if name in fields and text and all(text != one.meaning for one in lines):
            lines.append(Explanation("sp" if name == "sequence_parallel" else short, text))
    return lines


def of_hardware(study: Study) -> dict[str, Explanation]:
    """Head of a column -> the number of the hardware that the study varies, in absolute numbers and as a ratio."""
    documents = {path: metadata.get("doc") for path, metadata, _ in walk(with_numpy(study.scenario))}
    result: dict[str, Explanation] = {}
    for name, mover in study.space.hardware.items():
        document, ratio = documents.get(mover.path), getattr(mover, "denominator", "")
        text = mover.path + (f": {document}" if document else "")
        for head in (Difference(mover.path, 0.0, 0.0).name, variable(name)):
            result[head] = Explanation(head, f"varied: {text}", unit_of(mover.path))
        if ratio:
            result[variable(name)] = Explanation(variable(name), f"varied: {mover.path} over {ratio}")
    return result


def of_table(
    columns: Sequence[tuple[str, str]],
    frame: Iterable[str],
    words: FamilyVocabulary,
    hardware: Mapping[str, Explanation],
) -> list[Explanation]:
    """The columns of a table of designs, and the words of their plans.

    Args:
        columns: (head, name) of each; without a name it shows a number of the hardware.
        frame: names of the columns of the frame that is shown.
        words: of the jobs.
        hardware: head -> meaning of each number of the hardware.
    """
    unknown = "a number of the hardware that is varied"
    lines = [
        of_column(head, name, words) if name else hardware.get(head, Explanation(head, unknown))
        for head, name in columns
    ]
    return lines + of_plan(frame)


def print_explanations(out: Console, rows: Sequence[Explanation]) -> None:
    """Print one line for each, below a table."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), title="What this means", title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_column(overflow="fold")
    for row in dict.fromkeys(rows):
        table.add_row(Text(row.label), Text(row.unit), Text(row.meaning))
    out.print(table)
