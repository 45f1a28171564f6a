"""One compact table of designs: a row each, hardware in absolute numbers, as many columns as there is room for."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
from rich.table import Table

from ..config import Study
from ..config.as_sold import device_name, differences_of_rows
from ..core.interval_text import end_text
from ..core.units import engineering
from ..model.scenario import Scenario
from ..model.workloads.base import OTHERS, FamilyVocabulary
from ..report.labels import variable
from ..search import Mix
from ..search.results import Results
from ..study.objective import share_text
from .terminal import PLAIN_WIDTH, counts_text, goal_text, hardware_names, plan_text, quantity_text

# Names of the devices of found designs: the catalogue's, or marked as modified where numbers differ.


def all_devices(scenario: Scenario) -> float:
    """Accelerators, those of pools beside among them."""
    layout = scenario.layout
    pools = (float(getattr(layout.plan, name, 0.0)) for name in ("prefill_devices", "ffn_devices"))
    return float(layout.devices) + sum(pools)


def prepare_devices(study: Study) -> None:
    """Compose the catalogue's hardware, which `add_devices` compares with: files may change while a search runs."""
    if not isinstance(study.search, Mix):
        _ = study.catalogue


def add_devices(study: Study, results: Results) -> None:
    """Add the name of each design's device, and what of the best one's hardware is not the catalogue's."""
    if isinstance(study.search, Mix):
        return
    rows = results.designs if study.space.hardware else results.designs.head(1)  # else the same hardware for all
    result = differences_of_rows(study, rows)
    names = [device_name(study.scenario, one) for one in result]
    results.designs = results.designs.assign(device=names if len(names) > 1 else names[0])
    results.catalogue = [one.text for one in result[0]]


AROUND = 2  # characters between two columns
NARROW, PLAN_WIDTH = 120, 26  # columns of a terminal below which plans are broken into lines, and how long these are
BINDS_WIDTH = 34
HEADS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "time_s": "step"}
ALWAYS_SHOWN = ("tokens_per_s", "mfu", "joules_per_token", "usd_per_million_tokens")
FIRST, SOON, LATER, LAST = range(4)  # which columns stay where there is little room


class ShownColumn(NamedTuple):
    """A column of the table: its head, a text a row, how soon it is wanted, how wide it may be.

    name: of the metric that it shows, or its key in `explanations.COLUMNS`; empty for a number of the hardware.
    """

    head: str
    cells: Sequence[str]
    wanted: int
    most: int = 1000
    left: bool = False
    name: str = ""

    @property
    def width(self) -> int:
        """Characters that it takes."""
        content = max((len(cell) for cell in self.cells), default=0)
        return AROUND + max(min(content, self.most), *(len(word) for word in self.head.split()))


def designs_table(
    frame: pd.DataFrame,
    title: str,
    count: int = 8,
    units: Mapping[str, str] = MappingProxyType({}),
    names: Sequence[str] = (),
    words: FamilyVocabulary = OTHERS,
    hardware: Mapping[str, Sequence[str]] | None = None,
    width: int = PLAIN_WIDTH,
) -> Table:
    """The best designs: how they are laid out, what they do and cost, what holds them back.

    Args:
        frame: the designs, best first.
        title: above the table.
        count: how many are shown.
        units: hardware variable -> unit.
        names: metrics that are shown besides.
        words: of their jobs.
        hardware: what the variables come to, name -> text of each row; without, the variables as they are.
        width: characters of the terminal; columns that do not fit are named below the table.
    """
    frame = frame.head(count)
    shown, rest = shown_columns(frame, count, units, names, words, hardware, width)
    caption = f"no room here for {', '.join(one.head for one in rest)}: see the report" if rest else None
    table = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, AROUND, 0, 0))
    table.caption, table.caption_justify = caption, "left"
    for one in shown:
        table.add_column(one.head, justify="left" if one.left else "right", width=one.width - AROUND, overflow="fold")
    for at, (_, row) in enumerate(frame.iterrows()):
        table.add_row(*(one.cells[at] for one in shown), style=None if row["feasible"] else "red")
    return table


def shown_columns(
    frame: pd.DataFrame,
    count: int = 8,
    units: Mapping[str, str] = MappingProxyType({}),
    names: Sequence[str] = (),
    words: FamilyVocabulary = OTHERS,
    hardware: Mapping[str, Sequence[str]] | None = None,
    width: int = PLAIN_WIDTH,
) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """(columns of the table, those that do not fit); the arguments are those of `designs_table`."""
    frame = frame.head(count)
    return fitting(_columns(frame, units, names, words, width, hardware or _variables(frame, units)), width)


def fitting(columns: Sequence[ShownColumn], width: int) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """(columns that fit, in their order; those that do not), the sooner wanted first."""
    taken, room = set[int](), width
    for at in sorted(range(len(columns)), key=lambda index: columns[index].wanted):
        if columns[at].wanted == FIRST or columns[at].width <= room:
            taken.add(at)
            room -= columns[at].width
    return [columns[at] for at in sorted(taken)], [one for at, one in enumerate(columns) if at not in taken]


def _variables(frame: pd.DataFrame, units: Mapping[str, str]) -> dict[str, list[str]]:
    names = hardware_names(frame)
    return {variable(n): [quantity_text(value, units.get(n, "")) for value in frame[f"var.{n}"]] for n in names}


def _columns(
    frame: pd.DataFrame, units: Mapping[str, str], names: Sequence[str], words: FamilyVocabulary, width: int,
    hardware: Mapping[str, Sequence[str]],
) -> list[ShownColumn]:  # fmt: skip
    times = ("ttft_s", "tpot_s") if "tpot_s" in frame else ("time_s",)
    names = [name for name in names if name in frame and name not in (*times, *ALWAYS_SHOWN)]
    rows: list[Any] = [row for _, row in frame.iterrows()]
    item = words.item
    paid = f"output {item}" if "tpot_s" in frame else item

    def each(head: str, name: str, text: Callable[[Any], str], wanted: int, **more: Any) -> ShownColumn:
        return ShownColumn(head, [text(row) for row in rows], wanted, name=name, **more)

    columns = [
        each("#", "rank", lambda row: str(row["rank"]), FIRST),
        each("plan", "plan", lambda row: plan_text(row, words), FIRST,
             most=PLAN_WIDTH if width < NARROW else 60, left=True),
        *(ShownColumn(head, [str(text) for text in texts][: len(rows)], SOON) for head, texts in hardware.items()),
        *(each(HEADS[name], name, lambda row, name=name: end_text(row[name], _seconds), FIRST) for name in times),
        each(f"$/M {paid}s", "usd_per_million_tokens",
             lambda row: end_text(row["usd_per_million_tokens"], "{:.4g}".format), FIRST),
        *(each(name, name, lambda row, name=name: goal_text(name, row[name], units, digits=4), FIRST)
          for name in names),
        each(f"{item}s/s", "tokens_per_s", lambda row: f"{row['tokens_per_s']:,.0f}", LATER),
        each("a device", "tokens_per_s_per_device", _rate_of_device, LAST),
        each("MFU", "mfu", lambda row: f"{row['mfu']:.1%}", LATER),
        each(f"J/{item}", "joules_per_token", lambda row: f"{row['joules_per_token']:.3g}", LATER),
        each("HBM used", "usage.hbm", lambda row: share_text(row["usage.hbm"]), LATER),
        each("DDR used", "usage.ddr", lambda row: share_text(row["usage.ddr"]), LAST),
        each("active constraints", "active_constraints", _binds, LAST, most=BINDS_WIDTH, left=True),
        *_counted(rows),
    ]  # fmt: skip
    return [one for one in columns if any(one.cells)]


def _seconds(value: float) -> str:
    return engineering(value, "s")


def _rate_of_device(row: Any) -> str:
    """Tokens or samples per second of one device, where the plan says how many there are."""
    ranks = ("dp", "tp", "pp")
    if not all(f"var.{name}" in row for name in ranks):
        return ""
    devices = math.prod(float(row[f"var.{name}"]) for name in ranks) * float(row.get("var.cp", 1.0))
    devices += sum(float(row.get(f"var.{name}_devices", 0.0)) for name in ("prefill", "rollout", "ffn"))
    return f"{row['tokens_per_s'] / devices:,.1f}"


def constraints_of(row: Any) -> str:
    """Active constraints of a row without the shares of its time, which are none."""
    return ", ".join(text for text in str(row["active_constraints"]).split("; ") if " of time" not in text) or "nothing"


def _binds(row: Any) -> str:
    constraints = constraints_of(row)
    return constraints if row["feasible"] else f"not feasible: {constraints}"


def _counted(rows: Sequence[Any]) -> list[ShownColumn]:
    texts = ["; ".join(counts_text(row)) for row in rows]
    return [ShownColumn("parts", texts, SOON, 40, left=True, name="counts")] if any(texts) else []
