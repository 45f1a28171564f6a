"""Tables of a run as cells of text, ready for a page."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup, escape

from ..core.interval_text import between_text
from ..core.units import YEAR_S
from ..model.workloads.base import FamilyVocabulary
from ..study.objective import share_text
from . import series
from .labels import (
    DASH,
    KINDS,
    MEMORY_CLASSES,
    OTHER_COLOUR,
    PARTS,
    TIERS,
    component,
    number,
    signed,
    sold,
    unit_of,
    variable,
)
from .run_folder import PLAN_PREFIX, MissingPart, RunFolder
from .wording import binds, bounds, choices, degrees, hardware, hardware_names

# Bars as text of a page: readable at any width, in light and dark, by a screen reader; a word on each part's hover.
#
# Everything that is filled in is escaped.


DARK = 140  # brightness below which words on a colour are white
LABELLED = 0.07  # share of the width from which a part carries its share in words
MONEY, POWER = ("capex.", "$", "Purchase price"), ("power.", "W", "Provisioned power")


class BarPiece(NamedTuple):
    """One piece of a bar: its name, colour and share of the longest bar; a sentence for who points at it."""

    name: str
    colour: str
    share: float
    label: str
    words: str = ""


class BarLine(NamedTuple):
    """A line: what it is of, its pieces, what they come to; `end` is where its room ends, as a share."""

    what: str
    parts: tuple[BarPiece, ...]
    total: str
    end: float | None = None


def bars(lines: Sequence[BarLine], key: Sequence[tuple[str, str]] = ()) -> Markup:
    """Lines of bars, and what their colours mean."""
    rows = Markup("").join(_line(line) for line in lines)
    return Markup('<ul class="bars">{}</ul>{}').format(rows, _key(key) if key else "")


def _line(line: BarLine) -> Markup:
    parts = Markup("").join(
        Markup('<i style="width:{:.2f}%;background:{};color:{}" title="{}">{}</i>').format(
            100 * max(part.share, 0.0), part.colour, _on(part.colour), part.label, part.words
        )
        for part in line.parts
    )
    end = Markup('<b style="left:{:.2f}%"></b>').format(100 * line.end) if line.end is not None else Markup("")
    return _listed(line.what, Markup('<span class="track">{}{}</span>').format(parts, end), line.total)


def _broken_at_words(path: str) -> Markup:
    """A path that a narrow page breaks behind a dot or an underscore."""
    return Markup("").join(part + Markup("<wbr>") * (part in "._") for part in map(escape, re.split(r"([._])", path)))


def _listed(what: str, track: Markup, total: str) -> Markup:
    return Markup('<li><span class="what">{}</span>{}<span class="sum">{}</span></li>').format(what, track, total)


def _key(colours: Iterable[tuple[str, str]]) -> Markup:
    """Key of the colours."""
    lines = (Markup('<li><i style="background:{}"></i>{}</li>').format(colour, name) for name, colour in colours)
    return Markup('<ul class="key">{}</ul>').format(Markup("").join(lines))


def _on(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < DARK else "#1c2733"


def _stacked(
    table: pd.DataFrame, labels: Sequence[str], colours: dict[str, tuple[str, str]], unit: str, longest: float,
    ends: Sequence[float] | None = None,
) -> Markup:  # fmt: skip
    """A line for each row of a table, a piece for each column."""
    lines, shown = (
        [],
        {str(name): colours.get(str(name), (str(name).replace("_", " "), OTHER_COLOUR)) for name in table},
    )
    for at, (label, (_, row)) in enumerate(zip(labels, table.iterrows(), strict=True)):
        total = float(row.sum())
        parts = []
        for name, (words, colour) in shown.items():
            value = float(row[name])
            share = value / total if total else 0.0
            text = f"{words}: {number(value, unit)} ({share:.1%})"
            parts.append(
                BarPiece(words, colour, value / longest, text, f"{share:.0%}" if value / longest > LABELLED else "")
            )
        end = ends[at] / longest if ends is not None and ends[at] == ends[at] else None
        lines.append(BarLine(label, tuple(parts), number(total, unit, zeros=True), end))
    return bars(lines, list(shown.values()))


def time_bars(run: RunFolder, count: int = series.SHOWN_DESIGNS) -> Markup:
    """Time breakdown of the best designs as bars."""
    table = series.time_breakdown(run, count)
    parts = run.labels(PARTS, run.words.parts)
    longest = float(table.sum(axis="columns").max())
    return _stacked(table, series.design_labels(run, len(table)), parts, "s", longest)


def memory_bars(run: RunFolder, count: int = series.SHOWN_DESIGNS) -> Markup:
    """Bytes of each tier by class; the mark is what is usable."""
    charts, classes = Markup(""), run.labels(MEMORY_CLASSES, run.words.memory)
    for tier, (table, capacity) in series.memory_by_tier(run, count).items():
        room = capacity[capacity < float("inf")]
        longest = max(float(table.sum(axis="columns").max()), float(room.max()) if room.notna().any() else 0.0)
        labels = series.design_labels(run, len(table))
        chart = _stacked(table, labels, classes, "B", 1.02 * longest, list(capacity))
        charts += Markup("<h3>{} per accelerator</h3>{}").format(TIERS.get(tier, tier), chart)
    return charts


def money_bars(run: RunFolder) -> Markup:
    """Bars of what the best design costs to buy and to power, by part."""
    charts = Markup("")
    for prefix, unit, title in (MONEY, POWER):
        values = series.parts(run, prefix)
        total, longest = float(values.sum()), float(values.max())
        lines = [
            BarLine(component(str(name)), (BarPiece("", "#2f6fb0", value / longest, f"{value / total:.1%}"),),
                f"{number(value, unit)} · {value / total:.0%}")
            for name, value in values.items()
        ]  # fmt: skip
        charts += Markup("<h3>{}: {}</h3>{}").format(title, number(total, unit), bars(lines))
    return charts


def elasticity_bars(run: RunFolder, count: int = series.SHOWN_ELASTICITIES) -> Markup:
    """By how many per cent the goal moves when a constant grows by one; colours say how sure the constant is."""
    table = series.elasticities(run, count)
    reach, rows, used = float(table["elasticity"].abs().max()), Markup(""), dict[str, str]()
    for row in table.to_dict(orient="records"):
        label, colour = KINDS.get(row["kind"], (row["kind"], OTHER_COLOUR))
        used[label] = colour
        value = float(row["elasticity"])
        share, start = 50 * abs(value) / reach, 50 - 50 * max(-value, 0.0) / reach
        piece = Markup('<i style="margin-left:{:.2f}%;width:{:.2f}%;background:{}" title="{}"></i>')
        track = Markup('<span class="track both">{}</span>').format(piece.format(start, share, colour, label))
        rows += _listed(_broken_at_words(row["path"].removeprefix("cluster.")), track, signed(value))
    return Markup('<ul class="bars long">{}</ul>{}').format(rows, _key(used.items()))


def text_lines(lines: Sequence[str]) -> Markup:
    """Lines of a cell."""
    return Markup("<br>").join(escape(line) for line in lines)


BEST_DESIGNS, SHOWN_OPS = 10, 15
MOST_DESIGNS = 200  # of a table that can be sorted


@dataclass(frozen=True)
class PageTable:
    """Cells of text. A cell of several lines is a tuple. `text` names the columns that hold words, not numbers.

    values: what cells are sorted by, where that is a number; ids: what rows are called by a picture beside the table.
    """

    head: tuple[str, ...]
    rows: list[tuple[str | tuple[str, ...], ...]]
    text: frozenset[int] = frozenset({0})
    name: str = ""
    values: tuple[tuple[float | None, ...], ...] = ()
    ids: tuple[str, ...] = ()


def best_designs(run: RunFolder, count: int = BEST_DESIGNS) -> PageTable:
    """The best designs: plan, hardware, what they do and cost, how full the memory is, what binds."""
    middle = ("ttft_s", "tpot_s") if run.is_serving else ("time_s",)
    throughput = "tokens_per_s_per_device" if run.is_serving and run.device_count else "tokens_per_s"
    names = [*middle, throughput, "mfu", "joules_per_token", "usd_per_million_tokens"]
    top = run.designs.head(count)
    tiers = [f"usage.{tier}" for tier in TIERS if f"usage.{tier}" in top and top[f"usage.{tier}"].any()]
    if run.is_serving and run.device_count and "tokens_per_s" in top:
        top = top.assign(tokens_per_s_per_device=top["tokens_per_s"] / run.devices_of(top))
    names = [name for name in [*names, *tiers] if name in top]
    varied = hardware_names(run)
    split = len(varied) <= 3  # a column each while the page is wide enough
    columns = [variable(name) for name in varied] if split else ["Hardware"]
    head = ("#", "Plan", *columns, *_heads(run, names))
    rows, values, ids = [], [], []
    for index, row in enumerate(top.to_dict(orient="records")):
        keys = [row[PLAN_PREFIX + name] for name in varied] if split else [None]
        values.append((index + 1, None, *map(_sorted_by, (*keys, *(row[name] for name in names))), None))
        ids.append(f"{row.get('design', index):g}")
        plan = tuple(text for text in (degrees(row), choices(row, run.words)) if text) or (DASH,)
        cells: list[str | tuple[str, ...]] = [str(index + 1), plan]
        if split:
            cells += [value for _, value in hardware(run, row)]
        else:
            cells.append(tuple(f"{label} {value}" for label, value in hardware(run, row)))
        cells += [_with_interval(run, name, row) for name in names]
        cells.append(_binds(row, run.words))
        rows.append(tuple(cells))
    words = frozenset({1, 1 if split else 2, len(head)})
    return PageTable((*head, "Binds"), rows, words, "designs", tuple(values), tuple(ids))


def _sorted_by(value: Any) -> float | None:
    """A number, or nothing where there is none."""
    return float(value) if isinstance(value, int | float) and value == value else None


def _cell(run: RunFolder, name: str, value: Any) -> str:
    """A metric with its unit; a share of nothing in words."""
    nothing = name.startswith("usage.") and value == math.inf
    return share_text(value) if nothing else run.metric(name).text(value)


def _with_interval(run: RunFolder, name: str, row: dict[str, Any]) -> str | tuple[str, ...]:
    """A metric, and below it the ends of its 90 % interval where they are known, one a line: columns stay narrow."""
    ends = (row.get(f"{name}_low"), row.get(f"{name}_high"))
    text = between_text(*ends, lambda end: _cell(run, name, end), "[{},\n{}]")
    return (_cell(run, name, row[name]), *text.split("\n")) if text else _cell(run, name, row[name])


SHORT = {
    "time_s": "Step time",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "tokens_per_s": "Tokens/s",
    "tokens_per_s_per_device": "Tokens/s per accelerator",
    "joules_per_token": "J/token",
    "usd_per_million_tokens": "$/M tokens",
    "usage.ddr": "DDR",
}


def _heads(run: RunFolder, names: list[str]) -> list[str]:
    short = {name: text for name, text in SHORT.items() if name not in run.words.metrics}
    short |= {name: "$/M output tokens" for name in short if sold(name, run.words)}
    return [run.counted(short[name]) if name in short else run.metric(name).label for name in names]


def _binds(row: dict[str, Any], words: FamilyVocabulary) -> tuple[str, ...]:
    lines = binds(row, words) or (DASH,)
    return lines if row.get("feasible", True) else ("infeasible", *lines)


def budgets(run: RunFolder) -> list[tuple[str, str, str, float]]:
    """(what, value, bound, used share) of each limit and each memory tier, of the best design."""
    best, rows = run.best, []
    for name, bound, is_floor in bounds(run):
        metric, value = run.metric(name), best.get(name)
        if value is None or value != value:
            continue
        share = best.get(f"limit.{name}", bound / value if is_floor else value / bound)
        rows.append(
            (metric.label, metric.text(value), f"{'≥' if is_floor else '≤'} {metric.text(bound)}", float(share))
        )
    for tier, label in TIERS.items():
        share = best.get(f"usage.{tier}")
        if share is None or not share > 0:
            continue
        used = sum(value for name, value in best.items() if name.startswith(f"memory_bytes.{tier}/") and value == value)
        rows.append((f"{label} per accelerator", number(used, "B"), f"≤ {number(used / share, 'B')}", float(share)))
    if not rows:
        raise MissingPart("neither limits nor memory usage are recorded")
    return rows


def cache_room(run: RunFolder) -> str:
    """Text on the near memory left for the KV cache of the best design, and on the sequences that it holds."""
    best = run.best
    cache, share = best.get("memory_bytes.hbm/kv_cache", 0.0), best.get("usage.hbm", 0.0)
    if not (cache > 0 and 0 < share < math.inf):
        raise MissingPart("memory_bytes.hbm/kv_cache and usage.hbm are not recorded")
    used = sum(value for name, value in best.items() if name.startswith("memory_bytes.hbm/") and value == value)
    room = used / share - (used - cache)
    text = (
        f"KV cache: {number(cache, 'B')} per accelerator in use; {number(room, 'B')} are free of weights and working "
        f"memory, so {number(cache / room, '%')} of the room is taken"
    )
    batch = best.get("var.micro_batch", run.setting("plan.micro_batch"))
    if batch:
        sequences = int(room / (cache / batch) + 1e-9)
        text += f". A replica answers {batch:,.0f} sequences at a time; the room would hold the cache of {sequences:,}"
    return text + "."


def top_ops(run: RunFolder) -> PageTable:
    """The ops of the best design that take most of its time, and what bounds each."""
    top = series.operations(run).sort_values(["share", "name"], ascending=[False, True], kind="stable").head(SHOWN_OPS)
    rows = []
    for row in top.to_dict(orient="records"):
        flops = row.get("flops", 0)
        amount = number(flops, "FLOP") if flops and flops == flops else number(row.get("nbytes"), "B")
        rows.append((
            str(row["name"]), str(row.get("phase") or DASH), _where(row), number(row.get("count"), "", 4), amount,
            number(row.get("time_s"), "s"), number(row["whole_s"], "s"), number(row["share"], "%"),
            *_rate(row),
        ))  # fmt: skip
    head = ("Op", "Phase", "Runs as", "Count", "Work each", "Time each", "Total", "Share", "Achieved", "Bound by")
    return PageTable(head, rows, frozenset({0, 1, 2, 9}))


def _where(row: dict[str, Any]) -> str:
    first = (("operation", "axis"), ("kernel", "number_format"))
    for names in first:
        words = [str(row[name]) for name in names if isinstance(row.get(name), str) and row[name]]
        if words:
            return ", ".join(words).replace("_", " ")
    return "transfer"


def _rate(row: dict[str, Any]) -> tuple[str, str]:
    """(achieved rate, what bounds it); for communication the payload rate of the whole collective."""
    if isinstance(row.get("operation"), str) and row["operation"]:
        seconds, nbytes = row.get("time_s") or 0.0, row.get("nbytes") or 0.0
        return (number(nbytes / seconds, "B/s") if seconds > 0 else DASH), "network"
    achieved, peak = row.get("achieved_flops_per_s"), row.get("peak_flops_per_s")
    if not (achieved and peak and achieved == achieved):
        return DASH, DASH
    ridge = peak / row["bandwidth_bytes_per_s"]
    share = f"{achieved / peak:.0%}" if achieved >= 0.01 * peak else "<1%"
    text = f"{number(achieved, 'FLOP/s')} ({share})"
    return text, "arithmetic" if row.get("intensity", 0.0) > ridge else "memory"


def constants(run: RunFolder) -> tuple[PageTable, PageTable]:
    """(constants that move a result, those that do not): least sure first, then by weight on the objective."""
    table = run.require("elasticities", "path", "value")
    goal = series.elasticity_metric(run)
    columns = [name for name in table if name not in ("path", "value", "kind", "source") and _is_numeric(table[name])]
    kinds = series.kinds(run)
    order = list(KINDS)
    ranked = table.assign(
        kind=kinds,
        sureness=[order.index(kind) if kind in order else 1 for kind in kinds],
        weight=table[goal].abs().fillna(0.0),
        moves=table[columns].abs().fillna(0.0).max(axis="columns") > series.NEGLIGIBLE,
    ).sort_values(["sureness", "weight", "path"], ascending=[True, False, True], kind="stable")
    head = ("Constant", "Value", "Standing", "Source", *_heads(run, columns))
    moving, idle = (_constant_rows(ranked[ranked["moves"] == moves], columns) for moves in (True, False))
    if spent := _usd_per_month(run):
        head = (*head, WORTH)
        shown = ranked[ranked["moves"]].to_dict(orient="records")
        moving = [(*cells, _worth_text(row, spent)) for cells, row in zip(moving, shown, strict=True)]
    return PageTable(head, moving, frozenset({0, 2, 3})), PageTable(
        head[:4], [r[:4] for r in idle], frozenset({0, 2, 3})
    )


COST = "usd_per_million_tokens"
WORTH = "Worth of one more, a month"
STEPS = {"B/s": (1e9, "GB/s"), "B": (1e9, "GB"), "FLOP/s": (1e12, "TFLOP/s"), "W": (1.0, "W"), "b/s": (1e9, "Gb/s")}
"""Unit -> what a seller counts it in. Of seconds it is a microsecond, or a millisecond of what takes longer."""
LONGEST_S = 10.0  # what takes longer is no part's speed but a life, or an interval of failures


def _usd_per_month(run: RunFolder) -> float:
    """Money that the best design takes in a month, of studies whose constants move a cost; else 0."""
    if COST not in run.elasticities:
        return 0.0
    each, rate = (float(run.best.get(name, math.nan)) for name in (COST, "tokens_per_s"))
    result = each * 1e-6 * rate * YEAR_S / 12
    return result if math.isfinite(result) else 0.0


def worth(row: Mapping[str, Any], usd_per_month: float) -> tuple[float, str] | None:
    """Dollars a month that one more GB/s (GB, us ...) of every such part saves at the same output, and that unit.

    To first order: - elasticity of the cost x cost / value. None for what is not counted in such units.
    """
    unit, value, slope = unit_of(row["path"]), float(row["value"]), float(row[COST])
    step, name = (1e-3, "ms") if value >= 1e-3 else (1e-6, "us")
    if unit != "s" or value > LONGEST_S:
        step, name = STEPS.get(unit, (0.0, ""))
    is_bought = ".kernels." not in row["path"] and 0 < step <= value
    if not is_bought or abs(slope) <= series.NEGLIGIBLE:
        return None
    return -slope * usd_per_month * step / value, name


def _worth_text(row: Mapping[str, Any], usd_per_month: float) -> str:
    price = worth(row, usd_per_month)
    if price is None:
        return DASH
    return f"{'-' if price[0] < 0 else ''}{number(abs(price[0]), '$')} per {price[1]}"


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column)


def _constant_rows(table: pd.DataFrame, columns: list[str]) -> list[tuple[str | tuple[str, ...], ...]]:
    rows = []
    for row in table.to_dict(orient="records"):
        source = row.get("source")
        kind = KINDS.get(row["kind"], (row["kind"], ""))[0]
        rows.append((
            row["path"].removeprefix("cluster."), number(row["value"], unit_of(row["path"]), 4), kind,
            source if isinstance(source, str) and source and row["kind"] not in series.CHOSEN else DASH,
            *(signed(row[name], 3) if abs(row[name]) > series.NEGLIGIBLE else "0" for name in columns),
        ))  # fmt: skip
    return rows
