"""Fleet on a run's page: what `simulate --replicas` and `autoscale` left in its folder."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..core.units import engineering
from .fleet_timeline import timeline_of
from .replicas import day_figure
from .run_folder import MissingPart, RunFolder
from .text_tables import PageTable

__all__ = ["fleet_by_hour", "fleet_over_time", "served_by"]

FLEET, TOLD, TABLE = "simulation", "fleet.json", "fleet.csv"
DAY, HOURS = "day", "hours.csv"
SHOWN = 3  # replicas that are named of a class


def _frame(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        result = pd.read_csv(path)
        for name in columns:
            result[name] = result[name].astype(float)
    except (OSError, ValueError, KeyError) as error:
        raise MissingPart(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error
    if result.empty:
        raise MissingPart(f"{path.name} has no rows")
    return result


def told(run: RunFolder) -> dict[str, Any]:
    """Numbers of the simulation.

    Raises:
        MissingPart: a file that cannot be read.
    """
    try:
        result: dict[str, Any] = json.loads((run.path / FLEET / TOLD).read_text(encoding="utf-8"))
        _ = result["headline"], result["classes"], result["replicas"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingPart(f"{TOLD} cannot be read: {str(error).splitlines()[0]}") from error
    return result


def fleet_over_time(run: RunFolder) -> Figure:
    """Picture of the simulation, drawn of its table as the one beside it."""
    columns = ("begin_s", "end_s", "requests_per_s", "requests_mean", "requests_least", "requests_most", "waiting",
               "replicas", "paid", "attainment")  # fmt: skip
    return timeline_of(_frame(run.path / FLEET / TABLE, columns), str(told(run)["headline"]))


def fleet_by_hour(run: RunFolder) -> Figure:
    """Replicas, load and power by the hour."""
    columns = ("hour", "requests_per_s", "replicas", "power_w", "power_all_on_w")
    return day_figure(_frame(run.path / DAY / HOURS, columns))


def served_by(run: RunFolder) -> PageTable:
    """Class, what it sees and keeps, and which replicas serve it."""
    head = ("class", "requests", "kept", "agreed", "TTFT p99", "TPOT p99", "served by")
    rows: list[tuple[str | tuple[str, ...], ...]] = []
    try:
        for row in told(run)["classes"]:
            rows.append((
                str(row["class"]), f"{row['requests']:,}", f"{row['attainment']:.2%}", f"{row['agreed']:.2%}",
                engineering(row["ttft_p99_s"], "s"), engineering(row["tpot_p99_s"], "s"), _replicas(row["by_replica"]),
            ))  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise MissingPart(f"{TOLD} cannot be read: {str(error).splitlines()[0]}") from error
    return PageTable(head, rows, frozenset({0, 6}))


def _replicas(counts: list[int]) -> str:
    """Most of a class's replicas with their shares, or that all have about as many."""
    total, some = sum(counts), [(count, index) for index, count in enumerate(counts, 1) if count]
    if not total:
        return ""
    most = sorted(some, key=lambda one: (-one[0], one[1]))[:SHOWN]
    named = ", ".join(f"{place} ({count / total:.0%})" for count, place in most)
    return f"{len(some)} replicas, most of it by {named}" if len(some) > SHOWN else f"replica {named}"
