"""From a run folder to `report.html`: one page that needs nothing else, and its figures as PNG files."""

import base64
import functools
import importlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from ..core.atomic_files import make_folder, write_files
from ..study.objective import feasible
from . import charts, comparison_pages, pages, proof, series, text_tables, wording
from .labels import PARTS, number, signed
from .pages import rendered
from .run_folder import PAGE, MissingPart, RunFolder, note_page, read_run, readable

NOTHING = Markup("")
FLEET, HOURS = "simulation/fleet.csv", "day/hours.csv"  # what `simulate` and `autoscale` leave in a folder


@dataclass(frozen=True)
class Picture:
    """A figure, drawn when it is first looked at, which is when matplotlib is loaded.

    The function of its name in `module` draws it of `shown`.
    """

    name: str
    alt: str
    module: str
    shown: Any

    @functools.cached_property
    def png(self) -> bytes:
        """The figure in the look of all, what it says above it."""
        from . import drawing
        from .findings import found

        draw = getattr(importlib.import_module(f".{self.module}", __package__), self.name)
        with drawing.style():
            return drawing.render(found(draw(self.shown), self.name, self.shown))

    @property
    def data_uri(self) -> str:
        """The picture as text, for the page."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


@dataclass(frozen=True)
class Section:
    """A heading with a sentence or two and what they are about; `missing` says why there is nothing to show.

    shown: what stands in the page in the place of the picture, which is kept for pages that cannot answer.
    """

    title: str
    text: str = ""
    picture: Picture | None = None
    table: text_tables.PageTable | None = None
    folded: tuple[str, text_tables.PageTable] | None = None
    missing: str = ""
    shown: Markup = NOTHING


def build_report(path: Path | str, *, pictures: bool = True) -> Path:
    """Write `report.html` and `figures/*.png` into a run folder, from what the folder holds; or that of a comparison.

    Args:
        path: the folder.
        pictures: also of what the browser draws; without, those alone that stand in the page.

    Raises:
        ConfigError: the folder is not a run.
    """
    if (Path(path) / comparison_pages.FACTS).is_file():
        return comparison_pages.write_page(comparison_pages.read(Path(path)), Path(path))
    run = read_run(path)
    with readable(run.path):
        sections = _sections(run, pictures)
        text = _page(run, sections)
    folder = run.path / "figures"
    drawn = {part.picture.name: part.picture.png for part in sections if part.picture and (pictures or not part.shown)}
    page = run.path / PAGE
    make_folder(folder)
    write_files({folder / f"{name}.png": png for name, png in drawn.items()} | {page: text})
    for name in set(FIGURES) - set(drawn):  # a figure of an earlier report goes where this one has none
        (folder / f"{name}.png").unlink(missing_ok=True)
    note_page(run.path)
    return page


def text_of_page(run: RunFolder) -> str:
    """Text of a run's `report.html`, without its picture for those who print it.

    Raises:
        ConfigError: a field of the run is damaged.
    """
    with readable(run.path):
        return without_pictures(_page(run, _sections(run, pictures=False)))


def without_pictures(text: str) -> str:
    """A page without the bytes of its pictures: other versions of the library draw other ones."""
    return re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "", text)


def _sections(run: RunFolder, pictures: bool) -> list[Section]:
    return [_section(run, title, make, pictures) for title, make in SECTIONS if _is_shown(run, title)]


def _page(run: RunFolder, sections: list[Section]) -> str:
    try:
        budgets = text_tables.budgets(run)
    except MissingPart:
        budgets = []
    return rendered(
        "report.html.j2",
        run=run,
        title=wording.title(run),
        words=wording,
        best_is_feasible=bool(run.best.get("feasible", True)),
        sections=sections,
        budgets=budgets,
        feasible=feasible,
        infinite=math.inf,
        sure=proof.how_sure(run),
        slides=proof.slides(run),
        goal=run.metric(run.goal),
        library=pages.library(),
        script=pages.inline_script(),
        config=(run.path / "config.yaml").read_text(encoding="utf-8"),
    )


def _is_shown(run: RunFolder, title: str) -> bool:
    """True if a section belongs to this kind of run at all."""
    if title == "Proof":
        return run.certificate is not None and run.certificate.front is None
    if title in ("Workloads", "Shared hardware"):
        return bool(wording.mixed(run))
    if title == "Front":
        return run.certificate is not None and run.certificate.front is not None
    if title == "Fleet":
        return (run.path / FLEET).is_file()
    if title == "Replicas by the hour":
        return (run.path / HOURS).is_file()
    if title == "Topology":
        return not run.links.empty
    if title == "Time against cost":
        return len(run.designs) > 1
    return bool(title) or run.is_serving


def _section(run: RunFolder, title: str, make: Callable[[RunFolder], Section], pictures: bool) -> Section:
    try:
        made = make(run)
        if made.picture and (pictures or not made.shown):
            _ = made.picture.png  # what it lacks is found out here
        return made
    except MissingPart as reason:
        return Section(title, missing=f"Left out: {reason}.")


def _best_designs(run: RunFolder) -> Section:
    shown = min(text_tables.MOST_DESIGNS, len(run.designs))
    feasible = int(run.designs["feasible"].sum()) if "feasible" in run.designs else len(run.designs)
    text = f"The {shown} best of {len(run.designs):,} kept designs, {feasible:,} of them within all limits."
    if len(run.designs) == 1:
        text = f"The one design that was kept{', within all limits' if feasible else ', beyond its limits'}."
    if "time_s_low" in run.designs:
        text += " Below a metric: its 90 % interval."
    return Section("Best designs", text, table=text_tables.best_designs(run, text_tables.MOST_DESIGNS))


def _proof(run: RunFolder) -> Section:
    try:
        shown = proof.closing_chart(run)
    except MissingPart:
        return Section("Proof", proof.text(run), table=proof.table(run))
    picture = Picture("convergence", "Best design and bound over the time of the search", "figures", run)
    return Section("Proof", proof.text(run), picture, proof.table(run), shown=shown)


def _workloads(run: RunFolder) -> Section:
    from . import sections

    return Section("Workloads", sections.mix_text(run), table=sections.plans(run))


def _shared(run: RunFolder) -> Section:
    from . import sections

    text = "What all workloads have in common, and what each would have taken for itself."
    try:
        picture = Picture("sharing", "What sharing costs", "sections", sections.workloads(run))
        _ = picture.png
    except MissingPart:
        picture = None
    return Section("Shared hardware", text, picture, sections.hardware(run))


def _proven_front(run: RunFolder) -> Section:
    from . import sections

    picture = Picture("certified_front", "Designs of the front with their bounds", "sections", run)
    return Section("Front", sections.front_text(run), picture, sections.table(run))


def _time(run: RunFolder) -> Section:
    table = series.time_breakdown(run)
    best = table.iloc[0] / table.iloc[0].sum()
    largest = best.sort_values(ascending=False, kind="stable").head(3)
    parts = run.labels(PARTS, run.words.parts)
    words = [f"{number(share, '%', 2)} {parts.get(str(name), (str(name),))[0]}" for name, share in largest.items()]
    text = f"One {run.words.step} of the best design: {', '.join(words)}. ".replace("comm.", "communication")
    text += "Communication counts as far as arithmetic does not hide it."
    picture = Picture("time_breakdown", "Time of the best designs by part", "figures", run)
    return Section("Where the time goes", text, picture, shown=text_tables.time_bars(run))


def _front(run: RunFolder) -> Section:
    table = series.time_against_cost(run)
    front, feasible = int(table["front"].sum()), int(table["feasible"].sum())
    text = "Each point is a kept design; the fastest of those within all limits is also the cheapest."
    if front > 1:
        text = (
            f"Each point is a kept design. On the front ({front:,} of {feasible:,} feasible) nothing "
            "can be had faster without paying more, or cheaper without waiting longer."
        )
    text += " Choose some with the mouse: the table above shows these; a row that is pointed at shows its place here."
    places = table.index
    named = table.assign(
        name=[f"#{row_number + 1} {wording.degrees(row)}," for row_number, row in _rows_at(run, places)]
    )
    named["best"] = named.index == 0
    data, unit = charts.front_data(run, named)
    data["design"] = [f"{run.designs['design'][at]:g}" if "design" in run.designs else str(at) for at in places]
    how = (*charts.front_axes(run, named, unit), 360)
    picture = Picture("time_against_cost", "Time and cost of all designs", "figures", run)
    return Section("Time against cost", text, picture, shown=pages.chart("front", charts.front_plot, how, [data]))


def _rows_at(run: RunFolder, places: pd.Index) -> Iterator[tuple[int, dict[Any, Any]]]:
    """(place, plan) of some designs."""
    plans = run.designs[[f"var.{name}" for name in run.columns("var.")]].to_dict(orient="records")
    return ((int(row_number), plans[int(row_number)] if plans else {}) for row_number in places)


def _roofline(run: RunFolder) -> Section:
    ops = series.roofline(run)
    ridge = ops["peak_flops_per_s"] / ops["bandwidth_bytes_per_s"]
    bound = ops["share"][ops["intensity"] < ridge].sum()
    text = (
        f"Arithmetic of the best design: a mark's area is its share of the time of all ops. Marks left of a roof's "
        f"corner are limited by memory bandwidth; they take {number(bound, '%', 2)} of that time."
    )
    marks, roofs, names, ends = charts.roofline_data(run)
    ends_y = charts.roof_ends(marks, roofs)
    shown = pages.chart("roofline", charts.roofline_plot, (380,), [marks, roofs, names], ends, ends_y)
    picture = Picture("roofline", "Roofline of the best design's operations", "figures", run)
    return Section("Roofline", text, picture, shown=shown)


def _ops(run: RunFolder) -> Section:
    text = (
        "The operations of the best design that take most time, hidden communication included. Work is arithmetic, "
        "or the payload of a message; a rate in brackets is the share of the dense peak."
    )
    return Section("Operations", text, table=text_tables.top_ops(run))


def _topology(run: RunFolder) -> Section:
    cables: dict[str, str] = run.summary.get("cables") or {}
    sentences = [f"{group}: {text}." for group, text in cables.items()]
    text = "Which cable limits the best design's groups, all groups of a kind at once. " + " ".join(sentences)
    return Section(
        "Topology", text, Picture("topology_load", "Topology with its links coloured by load", "findings", run)
    )


def _memory(run: RunFolder) -> Section:
    text = "Bytes per accelerator by class, as shares of what is used; the black mark is the usable capacity."
    picture = Picture("memory_by_tier", "Memory of the best designs by class", "figures", run)
    return Section("Memory", text, picture, shown=text_tables.memory_bars(run))


def _cache(run: RunFolder) -> Section:
    return Section("KV cache", text_tables.cache_room(run))


def _money(run: RunFolder) -> Section:
    text = "The best design's whole cluster, by part."
    picture = Picture("capex_and_power", "Capex and power by part", "figures", run)
    return Section("Price and power", text, picture, shown=text_tables.money_bars(run))


def _elasticities(run: RunFolder) -> Section:
    table = series.elasticities(run)
    guesses = table[table["kind"].isin(["assumed", "unstated"])]
    text = "How the result hangs on the constants it rests on, at the best design with its plan held fixed. "
    if len(guesses):
        first = guesses.iloc[0]
        text += (
            f"{len(guesses)} of the {len(table)} that matter most are assumed or of unstated origin; the heaviest is "
            f"{first['path'].removeprefix('cluster.')} ({signed(first['elasticity'])})."
        )
    else:
        text += f"None of the {len(table)} that matter most is assumed."
    picture = Picture("elasticities", "Elasticities of the objective", "figures", run)
    return Section("What the result hangs on", text, picture, shown=text_tables.elasticity_bars(run))


def _constants(run: RunFolder) -> Section:
    moving, idle = text_tables.constants(run)
    names = ", ".join(label for label in moving.head[4:] if label != text_tables.WORTH)
    text = (
        f"Least sure first. The columns {names} say by how many per cent the result changes when a constant grows by"
        " 1 %."
    )
    if text_tables.WORTH in moving.head:
        text += (
            " The last one says what one unit more of such a part is worth: dollars a month that the whole saves at the"
            " same output, less what the unit costs where it has a price; with a minus, what it takes."
        )
    folded = (f"Without effect on this design: {len(idle.rows)}", idle) if idle.rows else None
    return Section("Constants used", text, table=moving, folded=folded)


def _fleet(run: RunFolder) -> Section:
    from . import sections

    text = "Simulated request by request: what comes, what replicas have to answer, and which of them serve whom."
    picture = Picture("fleet_over_time", "A fleet over the time of its simulation", "sections", run)
    return Section("Fleet", text, picture, sections.served_by(run))


def _hours(run: RunFolder) -> Section:
    text = "As many replicas as the load of each hour needs, and what following it saves."
    picture = Picture("fleet_by_hour", "Load, replicas and power by the hour", "sections", run)
    return Section("Replicas by the hour", text, picture)


def fleet_sections(run: RunFolder) -> list[Section]:
    """Sections of a run that are of a fleet, those that it has."""
    fleet_only = (("Fleet", _fleet), ("Replicas by the hour", _hours))
    return [_section(run, title, make, pictures=True) for title, make in fleet_only if _is_shown(run, title)]


SECTIONS: tuple[tuple[str, Callable[[RunFolder], Section]], ...] = (
    ("Workloads", _workloads),
    ("Shared hardware", _shared),
    ("Best designs", _best_designs),
    ("Proof", _proof),
    ("Front", _proven_front),
    ("Where the time goes", _time),
    ("Time against cost", _front),
    ("Topology", _topology),
    ("Memory", _memory),
    ("", _cache),
    ("Price and power", _money),
    ("Fleet", _fleet),
    ("Replicas by the hour", _hours),
    ("What the result hangs on", _elasticities),
    ("Roofline", _roofline),
    ("Operations", _ops),
    ("Constants used", _constants),
)
FIGURES = (
    "sharing", "convergence", "certified_front",
    "time_breakdown", "time_against_cost", "memory_by_tier", "capex_and_power",
    "elasticities", "roofline", "fleet_over_time", "fleet_by_hour",
)  # fmt: skip
