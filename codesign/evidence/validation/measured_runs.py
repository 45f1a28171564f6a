"""Measured runs of tables of any source (`measurements.folder`): a row is a command, and its metrics are the command's.

Nothing is modelled here: a row chooses options and numbers, `codesign evaluate` predicts the metrics that it holds. A
row that names no workload has the one that its columns mean: a request rate `at_rate`, a global batch `training`, else
`continuous`; with devices that prefill, those of two pools. A row that states how many requests were sent is a run from
its first to its last, as `codesign simulate --num-prompts` simulates. Training whose tensor ranks are stated and stages
are not has one stage. What no row says is as the command line takes it, the framework that people run among it.
"""

import contextlib
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...config import scenario_from_config
from ...config.engines import EngineStart, engine_overrides
from ...config.groups import available
from ...config.legal_start import legal_start
from ...config.model_names import hub_name
from ...core import fields
from ...core.errors import CodesignError, ConfigError, DataError
from ...jaxprs.evaluator import interpreted
from ...model.metrics import cache_room, memory_by_class
from ...model.metrics.footprint import interval_bytes, predicted_bytes
from ...model.metrics.simulated import finite_run
from ...model.scenario import Scenario
from ...search.results import numbers_of
from ...uncertainty import Interval, intervals, trace_with_draws
from ..measurements import schema
from ..measurements.folder import (
    CHOICES,
    MEMORY,
    SHARES_OF_MEMORY,
    SPECULATION,
    YES,
    files,
    is_runs,
    metric_of,
    number_path,
)
from .row_overrides import RUNS, PricedRun, accelerator_option, command, configured_model, option_of, predicted
from .scores import Errors, Row, rows
from .served_rows import PUBLISHED, PUBLISHED_AS

__all__ = ["FEW", "RUN", "commands", "compared", "run_of", "run_rows", "run_tables", "scored"]


SUITE = "measured runs"
MEMORY_METRICS = {name for name, _ in MEMORY.values()}
FORMATS = {"fp8": "fp8", "fp4": "fp4", "nvfp4": "fp4", "bf16": "bf16", "fp16": "bf16"}
FINITE = ("continuous", "at_rate")  # workloads whose requests can be counted
RATE, PLACES = "workload.arrivals_per_s", "plan.micro_batch"
USUAL_PLACES = 256  # sequences that an engine takes at a time where nobody says, as vLLM does
OF_A_DEVICE = "tokens_per_s_per_device"
PARTS = ("compute", "weights", "kv_cache")
WORD = re.compile(r"[a-z]\w*")  # of a path that is chosen by a word, such as plan.recompute=full
SHARE = re.compile(r"(\w+)_s\.(p\d+)")  # a percentile as a simulation names it
LAYOUT = ("plan.tp", "plan.pp", "plan.cp")
"""Whose product is the number of devices where no column states it."""


class MeasuredRun(NamedTuple):
    """A row: where it stands, its design, and what was measured, by metric in SI units.

    `requests` are those of a run with a beginning and an end, which come at a `rate` or, where that is 0, from clients;
    `carried` is the text of columns that choose and measure nothing, such as a source.
    """

    place: str
    run: PricedRun
    measured: dict[str, float]
    group: str
    requests: int = 0
    rate: float = 0.0
    carried: str = ""


def run_tables(directory: Path, known: Sequence[Path], messages: list[str]) -> list[MeasuredRun]:
    """Rows of all tables below a folder that hold measured runs and are of no other kind.

    Args:
        known: tables of other kinds.
        messages: rows and columns that are set aside are told here.
    """
    result: list[MeasuredRun] = []
    composed: dict[tuple[str, ...], Scenario] = {}
    for path in files(directory):
        shown = path.relative_to(directory).as_posix()
        if path in known or not _holds_runs(path, shown):
            continue
        table = schema.cells(path, shown)
        aside = [name for name in table.header if not _used(name)]
        if aside:
            messages.append(f"{shown}: column(s) {', '.join(aside)} carried along")
        for cells, line in zip(table.rows, table.lines, strict=True):
            place = f"{shown}, line {line}"
            try:
                one, told = _with_legal_plan(run_of(dict(zip(table.header, cells, strict=True)), place), composed)
                messages += [f"{place}: {told}"] if told else []
                result.append(one)
            except ConfigError as error:
                messages.append(f"{place}: set aside, {error}")
    return result


def _with_legal_plan(one: MeasuredRun, composed: dict[tuple[str, ...], Scenario]) -> tuple[MeasuredRun, str]:
    """The run, with the plan that the command line takes where the one that its workload brings breaks a rule.

    Args:
        one: a run.
        composed: scenarios of the same choices, which are kept.

    Returns:
        (run, a line on what was taken instead, empty where nothing was)
    """
    chosen, numbers = one.run
    if chosen not in composed:
        composed[chosen] = scenario_from_config(*one.run.overrides())
    scenario = fields.replace(composed[chosen], dict(numbers))
    legal, told = legal_start(scenario, one.run.overrides())
    if not told:
        return one, ""
    before = {path: float(value) for path, _, value in fields.walk(scenario.plan, "plan")}
    after = {path: float(value) for path, _, value in fields.walk(legal.plan, "plan")}
    taken = {path: value for path, value in after.items() if value != before.get(path)}
    return one._replace(run=PricedRun(chosen, numbers | taken)), told


def _holds_runs(path: Path, shown: str) -> bool:
    try:
        return is_runs(schema.cells(path, shown, only_header=True).header)
    except DataError:
        return False


def _used(column: str) -> bool:
    known = column.lower() in (*CHOICES, *SHARES_OF_MEMORY, SPECULATION)
    return known or number_path(column) is not None or metric_of(column) is not None


def run_of(row: Mapping[str, str], place: str) -> MeasuredRun:
    """A row as a design and its metrics.

    Raises:
        ConfigError: a device, model, format or number that is none; two columns that disagree; no metric.
    """
    chosen: dict[str, str] = {}
    numbers: dict[str, float] = {}
    measured: dict[str, float] = {}
    shares: dict[str, float] = {}
    words: dict[str, str] = {}
    for column, cell in row.items():
        text, metric, path = cell.strip(), metric_of(column), number_path(column)
        if not text:
            continue
        if column.lower() in SHARES_OF_MEMORY:
            _set(shares, "share", _number(text, column), column)
        elif column.lower() in CHOICES:
            _set(chosen, CHOICES[column.lower()], text, column)
        elif metric is not None:
            number = _yes(text, column) if metric.name == "fits" else _number(text, column)
            _set(measured, metric.name, metric.unit * number, column)
        elif path is not None and column == path and WORD.fullmatch(text):
            _set(words, path, text, column)
        elif path is not None:
            _set(numbers, path, _number(text, column), column)
    if not measured:
        raise ConfigError("no metric is stated")
    guesses = row.get(SPECULATION, "").strip().lower()
    if guesses not in ("", "none") and "workload.accepted_tokens" not in numbers:
        raise ConfigError(f"it speculates ({guesses}), but how many tokens are accepted is not stated")
    requests, rate = round(numbers.pop("requests", 0.0)), 0.0
    if requests and chosen.get("workload", "continuous").startswith(FINITE) and "workload.global_batch" not in numbers:
        rate = numbers.pop(RATE, 0.0)
        if rate:  # who waits for a place is seen as it comes
            numbers.setdefault(PLACES, float(min(requests, USUAL_PLACES)))
            chosen["workload"] = chosen.get("workload", "continuous").replace("at_rate", "continuous")
    else:
        requests = 0
    run = _run(chosen, numbers)
    run = run._replace(chosen=(*run.chosen, *(f"{path}={word}" for path, word in words.items())))
    if MEMORY_METRICS & set(measured):
        run = run._replace(chosen=(*run.chosen, *_started(chosen, numbers, run, shares.get("share", 0.0))))
    devices = run.numbers.get("cluster.device_count")
    if "workload=training" in run.chosen and devices and OF_A_DEVICE in measured:
        measured["tokens_per_s"] = devices * measured.pop(OF_A_DEVICE)
    group = f"{chosen['accelerator']} {chosen.get('model', '')}"
    carried = ", ".join(cell.strip() for column, cell in row.items() if cell.strip() and not _used(column))
    return MeasuredRun(place, run, measured, group, requests, rate, carried)


def _set(into: dict[str, Any], key: str, value: Any, column: str) -> None:
    if into.setdefault(key, value) != value:
        raise ConfigError(f"{column} = {value} disagrees with {into[key]}, which another column says of {key}")


def _number(text: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(f"{column} = {text!r} is no number") from error
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{column} = {text} must be a finite number from 0 on")
    return value


def _yes(text: str, column: str) -> float:
    if text.lower() not in YES:
        raise ConfigError(f"{column} = {text!r} is neither yes nor no")
    return YES[text.lower()]


def _started(chosen: Mapping[str, str], numbers: Mapping[str, float], run: PricedRun, share: float) -> list[str]:
    """The engine's memory, as it is started on what a row says.

    Raises:
        ConfigError: a share that is none.
    """
    engine = chosen.get("engine_memory", _option("engine_memory", chosen.get("framework", "")))
    if engine not in available("engine_memory"):
        return []
    if not 0 <= share <= 1:
        raise ConfigError(f"a share of the memory of {share:g} is outside [0, 1]")
    scenario = scenario_from_config(*run.overrides())
    device, plan = scenario.cluster.accelerator, scenario.plan
    capacity = float(getattr(device.hbm, "capacity_bytes", 0.0)) or float(device.hbm.usable_bytes())
    return engine_overrides(EngineStart(
        engine, share, device.name, capacity, float(plan.tp), float(plan.pp), float(plan.token_budget),
        PLACES in numbers, "plan.token_budget" in numbers,
    ))  # fmt: skip


def _run(chosen: dict[str, str], numbers: dict[str, float]) -> PricedRun:
    if "accelerator" not in chosen:
        raise ConfigError("no accelerator is stated")
    workload = chosen.get("workload", _meant(numbers))
    words = [f"accelerator={accelerator_option(chosen['accelerator'])}", f"workload={workload}"]
    if workload.startswith("disaggregated"):
        words.append("prefill=same")
    if "model" in chosen:
        words.append(f"model={_model(chosen['model'], chosen.get('precision', '').lower())}")
    for group in ("framework", "kernel_correction", "scale_out", "fabric"):
        if group in chosen:
            words.append(f"{group}={_option(group, chosen[group])}")
    if "precision" in chosen:
        option = chosen["precision"].lower()
        named = next((word.removeprefix("model=") for word in words if word.startswith("model=")), "")
        if workload != "training" and named and _published(named, option):
            option = PUBLISHED
        number_format = FORMATS.get(option)
        if number_format is None and option in available("precision"):
            words.append(f"precision={option}")
            number_format = "bf16"
        if number_format is None:
            raise ConfigError(f"precision {chosen['precision']!r} is not modelled; allowed: {', '.join(FORMATS)}")
        cache = "fp8" if number_format == "fp4" else number_format
        formats = dict.fromkeys(PARTS, number_format) | {"kv_cache": cache}
        if workload == "training":
            formats = {"compute": number_format}
        words += [f"workload.precision.{part}={name}" for part, name in formats.items() if name != "bf16"]
    if "kv_cache" in chosen:
        words = [word for word in words if not word.startswith("workload.precision.kv_cache=")]
        words.append(f"workload.precision.kv_cache={chosen['kv_cache'].lower()}")
    if "cluster.device_count" not in numbers and any(path in numbers for path in LAYOUT):
        numbers = numbers | {"cluster.device_count": math.prod(numbers.get(path, 1.0) for path in LAYOUT)}
    if (
        workload == "training" and "plan.tp" in numbers and "plan.pp" not in numbers
    ):  # a table of layouts without stages
        numbers = {"plan.virtual_stages": 1.0} | numbers | {"plan.pp": 1.0}
    if workload.startswith(FINITE):
        numbers = _over_tensor_ranks(numbers)
    return PricedRun(tuple(words), numbers)


def _meant(numbers: Mapping[str, float]) -> str:
    """The workload that a row's columns mean."""
    if "workload.global_batch" in numbers:
        return "training"
    pools = "disaggregated_" if numbers.get("plan.prefill_devices") else ""
    if "workload.arrivals_per_s" in numbers:
        return f"{pools}at_rate"
    return f"{pools}clients" if pools else "continuous"


def _published(model: str, number_format: str) -> bool:
    """True if a row's format is that of the experts of its model's checkpoint."""
    formats = getattr(configured_model(model), "formats", None)
    return formats is not None and formats.experts.startswith(PUBLISHED_AS.get(number_format, number_format))


def _over_tensor_ranks(numbers: dict[str, float]) -> dict[str, float]:
    """Engines count the tensor ranks among those over which experts are spread; a plan counts data ranks alone.

    Assumes: experts spread over ranks that share every sequence cost as if each rank held a part of every expert.
    """
    spread, data = numbers.get("plan.ep", 1.0), numbers.get("cluster.device_count", 1.0)
    data /= math.prod(numbers.get(path, 1.0) for path in LAYOUT)
    tp = numbers.get("plan.tp", 1.0)
    return numbers | {"plan.ep": data} if spread > data >= 1 and spread == data * tp else numbers


def _model(name: str, precision: str) -> str:
    """The option of a model; of a published checkpoint in its own formats, the one whose formats these are."""
    if precision not in FORMATS and precision in available("precision"):
        with contextlib.suppress(ConfigError):
            return hub_name(name).model or option_of(name)
        if name in available("model"):
            return name
    return option_of(name)


def _option(group: str, text: str) -> str:
    plain = text.lower().replace("-", "").replace("tensorrtllm", "trtllm")
    return plain if plain in available(group) else text.lower()


class Compared(NamedTuple):
    """A metric of a run, predicted and measured, in SI units."""

    run: MeasuredRun
    metric: str
    predicted: float
    measured: float


def compared(found: Sequence[MeasuredRun], messages: list[str]) -> list[Compared]:
    """Every metric that a run holds beside its prediction; what cannot be priced, or lacks the metric, is told."""
    groups: dict[tuple[Any, ...], list[MeasuredRun]] = {}
    for one in found:
        alone = one.place if one.requests else ""
        groups.setdefault((one.run.chosen, tuple(sorted(one.measured)), alone), []).append(one)
    result: list[Compared] = []
    for (_, metrics, alone), members in groups.items():
        result += _simulated(members[0], messages) if alone else _priced(members, metrics, messages)
    return result


def scored(found: Sequence[Compared]) -> list[Row]:
    """Errors by metric."""
    errors: dict[str, dict[str, list[Compared]]] = {}
    for one in found:
        errors.setdefault(one.metric, {}).setdefault(one.run.group, []).append(one)
    return [
        row
        for metric, groups in errors.items()
        for row in rows(
            SUITE, metric if "_per_" in metric else metric.removesuffix("_s"),
            [Errors("every run", name, *_sides(metric, members)) for name, members in groups.items()],
        )
    ]  # fmt: skip


def _sides(metric: str, members: Sequence[Compared]) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and measured; of yes or no 1 beside 1 where they agree, 2 beside 1 where not: the mean error is the
    share that is wrong."""
    predicted, measured = (np.array([getattr(one, side) for one in members]) for side in ("predicted", "measured"))
    if metric == "fits":
        return 1.0 + (predicted != measured), np.ones(len(members))
    return predicted, measured


def _simulated(one: MeasuredRun, messages: list[str]) -> list[Compared]:
    """A run with a beginning and an end."""
    try:
        scenario = scenario_from_config(*one.run.overrides())
        work: Any = scenario.workload
        clients = float(scenario.plan.micro_batch)
        told = finite_run(scenario, one.requests, clients=clients, rate=one.rate).summary()
    except CodesignError as error:
        messages.append(f"{one.place}: set aside, {error}")
        return []
    told |= {"requests_per_s": told["rate"], "tokens_per_s": told["rate"] * float(work.output_tokens)}
    told["tokens_per_s_per_device"] = told["tokens_per_s"] / float(scenario.layout.devices)
    told |= {SHARE.sub(r"\1_\2_s", name): value for name, value in told.items() if SHARE.fullmatch(name)}
    absent = [metric for metric in one.measured if metric not in told]
    if absent:
        messages.append(f"{one.place}: {', '.join(absent)} not compared, a run with an end has no such metric")
    return [Compared(one, name, told[name], value) for name, value in one.measured.items() if name in told]


def _priced(members: Sequence[MeasuredRun], metrics: Sequence[str], messages: list[str]) -> Iterator[Compared]:
    """Metrics of runs of one structure."""
    legal: list[MeasuredRun] = []
    for one in members:
        try:
            scenario_from_config(*one.run.overrides())
            legal.append(one)
        except ConfigError as error:
            messages.append(f"{one.place}: set aside, {error}")
    if not legal:
        return
    try:
        ours = predicted([one.run for one in legal], [*metrics, RUNS], named=True)
    except CodesignError as error:
        messages.append(f"{legal[0].place}: set aside, {error}")
        return
    absent = [metric for metric in metrics if np.isnan(ours[metric]).all()]
    if absent:
        what = next(word for word in legal[0].run.chosen if word.startswith("workload="))
        messages.append(f"{legal[0].place}: {', '.join(absent)} not compared, {what} has no such metric")
    can = ours[RUNS] > 0
    timed = [metric for metric in metrics if metric not in MEMORY_METRICS]
    messages += [f"{one.place}: set aside, its design cannot run as priced: `{command(one.run)}` says why"
                 for one, runs in zip(legal, can, strict=True) if timed and not runs]  # fmt: skip
    for one, runs, *values in zip(legal, can, *(ours[metric] for metric in metrics), strict=True):
        for metric, value in zip(metrics, values, strict=True):
            if (runs or metric in MEMORY_METRICS) and metric not in absent:
                yield Compared(one, metric, float(value), one.measured[metric])


def commands(found: Sequence[MeasuredRun]) -> Iterator[str]:
    """The command of each run, behind it what was measured."""
    for one in found:
        told = ", ".join(f"{name} {value:.6g}" for name, value in one.measured.items())
        yield f"{command_of(one)}  # {one.place}: {told}"


def command_of(one: MeasuredRun) -> str:
    """The command that prints what is predicted of a run."""
    if not one.requests:
        return command(one.run)
    rate = f" --rate {one.rate:.17g}" if one.rate else ""
    return " ".join(["codesign simulate", *one.run.overrides(), f"--num-prompts {one.requests}"]) + rate


# Few measured runs, one by one: what was predicted, how far that may be off, and what was measured.


FEW = 40
"""Runs of which each is shown: of more, errors by stratum say as much and take less time."""
RUN = "run"
"""The suite of such rows."""


def run_rows(found: Sequence[Compared]) -> list[Row]:
    """A row for each metric of each run, where there are few: predicted, the ends of its 90 % interval, measured.

    A run that is simulated may be as far off, in proportion, as the closed form of its design.
    """
    if len({one.run.place for one in found}) > FEW:
        return []
    known: dict[str, dict[str, Interval]] = {}
    rows: list[Row] = []
    for one in found:
        if one.run.place not in known:
            known[one.run.place] = _shares(one.run)
        low, high = known[one.run.place].get(one.metric, (None, None))
        rows.append({
            "suite": RUN, "stratum": one.run.place, "quantity": one.metric, "group": one.run.group, "n": 1,
            "predicted": one.predicted, "measured": one.measured,
            "low": None if low is None else low * one.predicted, "high": None if high is None else high * one.predicted,
            "error": one.predicted / one.measured - 1 if one.measured else None, "command": command_of(one.run),
            "carried": one.run.carried,
        })  # fmt: skip
    return rows


def _shares(run: MeasuredRun) -> dict[str, Interval]:
    """Metric -> ends of its interval over its closed form."""
    try:
        scenario = scenario_from_config(*run.run.overrides())
        if MEMORY_METRICS.issuperset(run.measured):
            return _memory_shares(scenario)
        trace_with_draws(scenario)
        told, result = numbers_of(scenario), intervals(scenario)
    except CodesignError:
        return {}
    times = {
        name: (low / told[name], high / told[name])
        for name, (low, high) in result.items()
        if told.get(name) and math.isfinite(high)
    }
    return times | _memory_shares(scenario)


def _memory_shares(scenario: Scenario) -> dict[str, Interval]:
    """Ends of the intervals of memory over what is predicted: what is counted is exact, the rest is off by a factor."""
    counted, guessed, room = (float(one) for one in _memory(scenario))
    low, high = interval_bytes(guessed)
    whole = counted + guessed
    result = {"peak_memory_bytes": ((counted + low) / whole, (counted + high) / whole)}
    if room > 0:
        ends = max(room + guessed - high, 0.0) / room, (room + guessed - low) / room
        result |= {"cache_room_bytes": ends, "cache_tokens": ends}
    return result


@functools.partial(interpreted, always=True)
def _memory(scenario: Scenario) -> tuple[Any, Any, Any]:
    """Bytes of a device that are counted, that are predicted, and that a cache has room for."""
    layout = scenario.workload.laid_out(scenario.layout)
    used = memory_by_class(scenario, layout)
    counted, guessed = predicted_bytes(used, "hbm")
    room = cache_room(scenario, layout, used) if "hbm/kv_cache" in used else 0.0 * counted
    return counted, guessed + 0.0 * counted, room
