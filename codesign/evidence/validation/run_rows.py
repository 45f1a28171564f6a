"""Few measured runs, one by one: what was predicted, how far that may be off, and what was measured."""

import math
from collections.abc import Sequence

from ...config import scenario_from_config
from ...core.errors import CodesignError
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
        })  # fmt: skip
    return rows


def _shares(run: MeasuredRun) -> dict[str, Interval]:
    """Metric -> ends of its interval over its closed form."""
    try:
        scenario = scenario_from_config(*run.run.overrides())
        told, found = numbers_of(scenario), intervals(scenario)
    except CodesignError:
        return {}
    return {
        name: (low / told[name], high / told[name])
        for name, (low, high) in found.items()
        if told.get(name) and math.isfinite(high)
    }
