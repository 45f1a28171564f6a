"""Measured runs beside what is predicted of them: errors by metric, a row for each of few, the command of each."""

import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...config import scenario_from_config
from ...core.errors import CodesignError, ConfigError
from ...jaxprs.evaluator import interpreted
from ...model.metrics import cache_room, memory_by_class
from ...model.metrics.footprint import interval_bytes, predicted_bytes
from ...model.metrics.simulated import finite_run
from ...model.scenario import Scenario
from ...search.results import numbers_of
from ...uncertainty import Interval, intervals, trace_with_draws
from .measured_runs import MEMORY_METRICS, MeasuredRun
from .row_overrides import RUNS, command, predicted
from .scores import Errors, Row, rows

__all__ = ["FEW", "RUN", "Compared", "command_of", "commands", "compared", "run_rows", "scored"]

SUITE = "measured runs"
MEDIAN = "_p50"
IN_PROPORTION: dict[str, str] = dict.fromkeys(("tokens_per_s_per_device", "requests_per_s"), "tokens_per_s")
"""Metric -> the one that it is a fixed share of, so that both are off by the same factor."""
SHARE = re.compile(r"(\w+)_s\.(p\d+)")  # a percentile as a simulation names it


class Compared(NamedTuple):
    """A metric of a run, predicted and measured, in SI units."""

    run: MeasuredRun
    metric: str
    predicted: float
    measured: float


def compared(runs: Sequence[MeasuredRun], messages: list[str]) -> list[Compared]:
    """Every metric that a run holds beside its prediction; what cannot be priced, or lacks the metric, is told."""
    groups: dict[tuple[Any, ...], list[MeasuredRun]] = {}
    for one in runs:
        alone = one.location if one.requests else ""
        groups.setdefault((one.run.chosen, tuple(sorted(one.measured)), alone), []).append(one)
    result: list[Compared] = []
    for (_, metrics, alone), members in groups.items():
        result += _simulated(members[0], messages) if alone else _priced(members, metrics, messages)
    return result


def scored(comparisons: Sequence[Compared]) -> list[Row]:
    """Errors by metric."""
    errors: dict[str, dict[str, list[Compared]]] = {}
    for one in comparisons:
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
        summary = finite_run(scenario, one.requests, clients=clients, rate=one.rate).summary()
    except CodesignError as error:
        messages.append(f"{one.location}: set aside, {error}")
        return []
    summary |= {"requests_per_s": summary["rate"], "tokens_per_s": summary["rate"] * float(work.output_tokens)}
    summary["tokens_per_s_per_device"] = summary["tokens_per_s"] / float(scenario.layout.devices)
    summary |= {SHARE.sub(r"\1_\2_s", name): value for name, value in summary.items() if SHARE.fullmatch(name)}
    absent = [metric for metric in one.measured if metric not in summary]
    if absent:
        messages.append(f"{one.location}: {', '.join(absent)} not compared, a run with an end has no such metric")
    return [Compared(one, name, summary[name], value) for name, value in one.measured.items() if name in summary]


def _priced(members: Sequence[MeasuredRun], metrics: Sequence[str], messages: list[str]) -> Iterator[Compared]:
    """Metrics of runs of one structure."""
    legal: list[MeasuredRun] = []
    for one in members:
        try:
            scenario_from_config(*one.run.overrides())
            legal.append(one)
        except ConfigError as error:
            messages.append(f"{one.location}: set aside, {error}")
    if not legal:
        return
    means = {metric: metric.replace(MEDIAN, "") for metric in metrics if MEDIAN in metric}
    try:
        ours = predicted([one.run for one in legal], [*metrics, *means.values(), RUNS], named=True)
    except CodesignError as error:
        messages.append(f"{legal[0].location}: set aside, {error}")
        return
    spreadless = [
        metric for metric in means if np.isnan(ours[metric]).all() and not np.isnan(ours[means[metric]]).all()
    ]
    if spreadless:
        messages.append(
            f"{legal[0].location}: {', '.join(spreadless)}: medians compared with means, which is all that is predicted"
            " of clients that wait for each answer"
        )
        ours |= {metric: ours[means[metric]] for metric in spreadless}
    absent = [metric for metric in metrics if np.isnan(ours[metric]).all()]
    if absent:
        what = next(word for word in legal[0].run.chosen if word.startswith("workload="))
        messages.append(f"{legal[0].location}: {', '.join(absent)} not compared, {what} has no such metric")
    can = ours[RUNS] > 0
    timed = [metric for metric in metrics if metric not in MEMORY_METRICS]
    messages += [f"{one.location}: set aside, its design cannot run as priced: `{command(one.run)}` says why"
                 for one, runs in zip(legal, can, strict=True) if timed and not runs]  # fmt: skip
    for one, runs, *values in zip(legal, can, *(ours[metric] for metric in metrics), strict=True):
        for metric, value in zip(metrics, values, strict=True):
            if (runs or metric in MEMORY_METRICS) and metric not in absent:
                yield Compared(one, metric, float(value), one.measured[metric])


def commands(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """The command of each run, behind it what was measured."""
    for one in runs:
        measured = ", ".join(f"{name} {value:.6g}" for name, value in one.measured.items())
        yield f"{command_of(one)}  # {one.location}: {measured}"


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


def run_rows(comparisons: Sequence[Compared]) -> list[Row]:
    """A row for each metric of each run, where there are few: predicted, the ends of its 90 % interval, measured.

    A run that is simulated may be as far off, in proportion, as the closed form of its design.
    """
    if len({one.run.location for one in comparisons}) > FEW:
        return []
    intervals_by_run: dict[str, dict[str, Interval]] = {}
    rows: list[Row] = []
    for one in comparisons:
        if one.run.location not in intervals_by_run:
            intervals_by_run[one.run.location] = _shares(one.run)
        shares = intervals_by_run[one.run.location]
        other = IN_PROPORTION.get(one.metric, one.metric.replace(MEDIAN, ""))
        low, high = shares.get(one.metric) or shares.get(other) or (None, None)
        rows.append({
            "suite": RUN, "stratum": one.run.location, "quantity": one.metric, "group": one.run.group, "n": 1,
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
        numbers, result = numbers_of(scenario), intervals(scenario)
    except CodesignError:
        return {}
    times = {
        name: (low / numbers[name], high / numbers[name])
        for name, (low, high) in result.items()
        if numbers.get(name) and math.isfinite(high)
    }
    return times | _memory_shares(scenario)


def _memory_shares(scenario: Scenario) -> dict[str, Interval]:
    """Ends of the intervals of memory over what is predicted: what is counted is exact, the rest is off by a factor."""
    counted, guessed, room = (float(one) for one in _memory(scenario))
    low, high = interval_bytes(guessed)
    total = counted + guessed
    result = {"peak_memory_bytes": ((counted + low) / total, (counted + high) / total)}
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
