"""Pages of several runs: candidates of a comparison with the frames beside them, and two runs side by side."""

import base64
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..core.atomic_files import frame_bytes, write_files, write_text
from ..core.errors import ConfigError
from ..core.interval_text import has_ends
from ..core.json_yaml import dumps
from ..core.units import percent, unit_of
from ..model.workloads.base import FamilyVocabulary
from . import pages, wording
from .labels import DASH, is_number, number, signed
from .pages import rendered
from .run_folder import RunFolder, read_run
from .side_by_side import Comparison, columns, sentences, winners, without

PAGE, FRAME, FACTS = "report.html", "comparison.parquet", "comparison.json"
MORE = ("phases", "prices")
"""Frames beside the table, each a file where it has rows."""


def write(comparison: Comparison, folder: Path) -> Path:
    """The frames, the facts beside them and the page.

    Returns:
        The page.
    """
    files: dict[Path, str | bytes] = {folder / FRAME: frame_bytes(comparison.table)}
    for name in MORE:
        frame: pd.DataFrame = getattr(comparison, name)
        if not frame.empty:
            files[folder / f"{name}.parquet"] = frame_bytes(frame)
    facts = {
        "goal": comparison.goal, "maximised": comparison.maximised, "job": comparison.job, "along": comparison.along,
        "words": dataclasses.asdict(comparison.words), **comparison.facts,
    }  # fmt: skip
    write_files(files | {folder / FACTS: dumps(facts, indent=2)})
    return write_page(comparison, folder)


def read(folder: Path) -> Comparison:
    """Read a comparison that `write` left.

    Raises:
        ConfigError: a file that cannot be read.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        there = [name for name in MORE if (folder / f"{name}.parquet").is_file()]
        more = {name: pd.read_parquet(folder / f"{name}.parquet") for name in there}
        words = FamilyVocabulary.from_json(facts.pop("words"))
        by_name = {name: facts.pop(name) for name in ("goal", "maximised", "job", "along")}
        return Comparison(pd.read_parquet(folder / FRAME), words=words, facts=facts, **more, **by_name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{str(folder)!r} cannot be read as a comparison: {str(error).splitlines()[0]}") from error


def write_page(comparison: Comparison, folder: Path) -> Path:
    """`report.html` of a comparison."""
    from . import comparison_figures as drawn  # matplotlib is loaded for pages alone

    pictures = {
        name: (png, "data:image/png;base64," + base64.b64encode(png).decode("ascii"))
        for name, png in drawn.pictures(comparison).items()
    }
    page = folder / PAGE
    text = rendered(
        "comparison.html.j2",
        comparison=comparison,
        said=sentences(comparison),
        columns=columns(comparison),
        rows=[dict(row) for _, row in comparison.table.iterrows()],
        levels=_level_rows(comparison),
        pictures={name: uri for name, (_, uri) in pictures.items()},
        percent=lambda share: DASH if share is None or share != share else f"{share:.0%}",
        share=percent,
        without=without,
    )
    write_files({folder / f"{name}.png": png for name, (png, _) in pictures.items()} | {page: text})
    return page


def _level_rows(comparison: Comparison) -> list[tuple[str, str, list[str]]]:
    """(level, best candidate, goal of each candidate) along what was varied."""
    names = list(comparison.table["candidate"])
    rows = []
    for level, best in winners(comparison):
        here = comparison.phases[comparison.phases["level"] == level].set_index("candidate")
        cells = [comparison.text(comparison.goal, here["objective"].get(name, math.nan)) for name in names]
        value = here["value"].iloc[0]
        rows.append((number(value, unit_of(comparison.along)) if value == value else level, best, cells))
    return rows


# Two runs side by side: what was asked differently, what each found, and by how much that differs.


METRICS = (
    "usd_per_million_tokens", "usd_per_million_input_tokens", "usd_per_million_output_tokens", "time_s", "ttft_s",
    "tpot_s", "tokens_per_s", "tokens_per_s_per_user", "mfu", "joules_per_token", "energy_j", "capex_usd",
    "provisioned_power_w", "power_w", "usage.hbm", "usage.ddr",
)  # fmt: skip
SAME = 1e-9  # relative: what differs less is the same number
GROUPS = {
    "cluster": "Hardware", "workload": "Workload", "plan": "Plan", "space": "What may vary",
    "objective": "Goal and limits", "search": "Search",
}  # fmt: skip
LEFT_OUT = ("provenance", "_target_")


class Line(NamedTuple):
    """A number of both runs: with its interval where that is known, and the relative change from the first."""

    label: str
    first: tuple[str, str]
    second: tuple[str, str]
    change: str


class ChangedSetting(NamedTuple):
    """A setting that is not the same."""

    group: str
    path: str
    first: str
    second: str


def numbers(first: RunFolder, second: RunFolder) -> list[Line]:
    """Metrics of both best designs, the goals first."""
    lines = []
    for name in dict.fromkeys((first.goal, second.goal, *METRICS)):
        values = [run.best.get(name) for run in (first, second)]
        if not any(is_number(value) for value in values):
            continue
        shown = [
            (run.metric(name).text(value), wording.interval(run.metric(name), run.best, name))
            for run, value in zip((first, second), values, strict=True)
        ]
        lines.append(Line(first.metric(name).label, shown[0], shown[1], change(*values)))
    return lines


def change(before: Any, after: Any) -> str:
    """From one number to another, in per cent."""
    if not (is_number(before) and is_number(after)) or before == 0:
        return DASH
    share = after / before - 1
    return "the same" if abs(share) < SAME else f"{signed(100 * share, 2 if abs(share) < 0.1 else 1)} %"


def flat(node: Any, path: str = "") -> dict[str, Any]:
    """Dotted path -> value of a configuration, without where its numbers come from."""
    if isinstance(node, Mapping):
        result: dict[str, Any] = {}
        for key, value in node.items():
            if key not in LEFT_OUT:
                result |= flat(value, f"{path}.{key}" if path else str(key))
        return result
    return {path: node}


def differences(first: RunFolder, second: RunFolder) -> list[ChangedSetting]:
    """Settings that differ, group by group; what stands in one configuration alone has a dash in the other."""
    here, there, rows = flat(first.config), flat(second.config), []
    for path in dict.fromkeys((*here, *there)):
        values = [config.get(path) for config in (here, there)]
        if values[0] == values[1]:
            continue
        unit = unit_of(path)
        texts = [number(each, unit, 4) if is_number(each) else DASH if each is None else str(each) for each in values]
        rows.append(ChangedSetting(GROUPS.get(path.partition(".")[0], "Other"), path, texts[0], texts[1]))
    order = [*GROUPS.values(), "Other"]
    return sorted(rows, key=lambda row: order.index(row.group))


def designs(first: RunFolder, second: RunFolder) -> list[tuple[str, str, str]]:
    """(what, first, second) of plan, hardware, what binds and how sure each is."""
    rows = [
        (what, make(first), make(second))
        for what, make in (
            ("Asked", wording.objective_text), ("Plan and hardware", wording.design),
            ("Active constraints", lambda run: "; ".join(wording.binds(run.best, run.words))),
            ("Confidence", wording.claim),
        )
    ]  # fmt: skip
    return [row for row in rows if row[1] or row[2]]


def sentence(first: RunFolder, second: RunFolder) -> str:
    """The difference in one sentence, where both were asked for the same."""
    if first.goal != second.goal or not all(is_number(run.best.get(run.goal)) for run in (first, second)):
        return "The two runs were asked for different things; the numbers below stand side by side all the same."
    goal, values = first.metric(first.goal), [float(run.best[run.goal]) for run in (first, second)]
    difference = change(*values)
    if difference == "the same":
        return f"Both have the same {wording.inside(goal.label)}, {goal.text(values[0])}."
    line = f"{goal.label}: {goal.text(values[0])} in the first, {goal.text(values[1])} in the second ({difference})."
    ends = [[run.best.get(f"{run.goal}_{end}") for end in ("low", "high")] for run in (first, second)]
    if all(has_ends(*pair) for pair in ends):
        (low, high), (other_low, other_high) = ([float(end) for end in pair if end is not None] for pair in ends)
        apart = high < other_low or other_high < low
        meet = " Their 90 % intervals overlap; errors that both share move both, so that the order is surer than that."
        line += " Their 90 % intervals do not meet." if apart else meet
    return line


def compare_runs(first: Path | str, second: Path | str) -> Path:
    """Write `against_<first>.html` into the second folder.

    Raises:
        ConfigError: one of them is not a run.
    """
    runs = read_run(first), read_run(second)
    page = runs[1].path / f"against_{runs[0].path.resolve().name}.html"
    names = [run.path.resolve().name for run in runs]
    text = rendered(
        "two_runs.html.j2",
        runs=runs,
        names=names,
        words=wording,
        said=sentence(*runs),
        lines=numbers(*runs),
        designs=designs(*runs),
        differences=differences(*runs),
        overrides=[[one for one in run.overrides if one not in other.overrides] for run, other in (runs, runs[::-1])],
        script=pages.inline_script(),
    )
    write_text(page, text)
    return page
