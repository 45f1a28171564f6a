"""Few measured runs, one by one: what was predicted, how far that may be off, and what was measured."""

import functools
import math
from collections.abc import Sequence
from typing import Any

from ...config import scenario_from_config
from ...core.errors import CodesignError
from ...jaxprs.evaluator import interpreted
from ...model.metrics import cache_room, memory_by_class
from ...model.metrics.fit_chance import interval_bytes, predicted_bytes
from ...model.scenario import Scenario
from ...search.results import numbers_of
from ...uncertainty import Interval, intervals
from .measured_runs import Compared, MeasuredRun, command_of
from .scores import Row

__all__ = ["FEW", "RUN", "run_rows"]

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
