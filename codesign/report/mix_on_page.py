"""A mix on the page: every workload with its plan, the hardware they share, and what sharing it costs."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from ..model.workloads.plan_fields import plan_fields
from ..search.certificate import Certificate, Shared
from .drawing import INK, SOFT, canvas
from .labels import DASH, TIMES, Metric, number, signed, variable
from .run_folder import PLAN_PREFIX, MissingPart, RunFolder
from .text_tables import PageTable
from .wording import choices, constraint, degrees, inside

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d7d7d")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
BLENDS = {
    "log_sum": "geometric mean", "sum": "weighted mean", "worst": "worst", "cvar": "mean of the worst share",
}  # fmt: skip
NEARLY_USED = 0.5  # share of a limit from which it is worth a word


def workloads(run: RunFolder) -> Sequence[Shared]:
    """The entries of the run's certificate.

    Raises:
        MissingPart: the search is no mix, or found nothing.
    """
    if run.certificate is None or not run.certificate.workloads:
        raise MissingPart("the search leaves no workloads")
    return run.certificate.workloads


def _certificate(run: RunFolder) -> Certificate:
    assert run.certificate is not None  # `workloads` says so
    return run.certificate


def goal(run: RunFolder) -> Metric:
    """Goal that the mix minimises; with the unit of its workloads' goals where they have one in common."""
    entries, said = workloads(run), _certificate(run).goal
    names = {entry.goal for entry in entries}
    blend = BLENDS.get(said.split(" ")[0], said.split(" ")[0])
    relative = "relative to its own best" in said
    unit = run.metric(names.pop()) if len(names) == 1 else None
    what = inside(unit.label) if unit else "the workloads' goals"
    words = f"{blend[0].upper()}{blend[1:]} of {what}" + (", relative to each one's best" if relative else "")
    return Metric(words, "" if relative or unit is None else unit.unit)


def text(run: RunFolder) -> str:
    """Text on a mix's gap to the optimum, and on the bound with separate hardware for each workload."""
    result, known, entries = _certificate(run), goal(run), workloads(run)
    words = [f"{len(entries)} workloads share one hardware; each has a plan and limits of its own."]
    if not result.convex or result.bound is None:
        words.append(f"No proof: {result.reason or 'it was stopped early'}.")
    else:
        words.append(
            f"{known.label}: {known.text(result.best, 4)}; no hardware and no plans reach less than "
            f"{known.text(result.bound, 4)}, {number(result.gap, '%', 4)} away."
        )
        own = result.bound_of_own_hardware
        if own:
            words.append(
                f"Hardware of its own for each workload would bring it to {known.text(own, 4)} at the very least."
            )
    words.append(f"Key figures, budgets and all that shows one design are those of {entries[0].workload}.")
    return " ".join(words)


def plans(run: RunFolder) -> PageTable:
    """Every workload: goal, what it could have alone, plan, limits that are nearly used."""
    rows = []
    for entry in workloads(run):
        known = run.metric(entry.goal)
        own = entry.own_best
        design = {PLAN_PREFIX + name: value for name, value in entry.design.items()}
        design["tpot_s"] = "tpot_s" in entry.used
        used = [f"{constraint(n)} {number(share, '%', 3)}" for n, share in entry.used.items() if share > NEARLY_USED]
        rows.append((
            (entry.workload, f"weight {entry.weight:g}"), (known.text(entry.value, 4), inside(known.label)),
            known.text(own, 4) if own is not None else DASH,
            f"{signed(100 * entry.costs, 1)} %" if entry.costs is not None else DASH,
            tuple(part for part in (degrees(design), choices(design)) if part) or (DASH,), tuple(used) or (DASH,),
        ))  # fmt: skip
    head = ("Workload", "Here", "On hardware of its own", "Sharing costs", "Plan", "Limits used")
    return PageTable(head, rows, frozenset({0, 4, 5}), "mix")


def hardware_names(entries: Sequence[Shared]) -> list[str]:
    """The variables that the workloads share."""
    return [name for name in entries[0].design if name not in plan_fields()]


def hardware(run: RunFolder) -> PageTable:
    """The common hardware beside what each workload would have taken."""
    entries = workloads(run)
    own = [entry for entry in entries if entry.own_design]
    designs = [entries[0].design, *(entry.own_design for entry in own)]
    rows = [
        (variable(name), *(number(design[name], run.unit(name)) for design in designs))
        for name in hardware_names(entries)
    ]
    return PageTable(("Hardware", "Common", *(f"Own of {entry.workload}" for entry in own)), rows)


def sharing(entries: Sequence[Shared]) -> Figure:
    """Draw what sharing costs each workload; and its own hardware over the common one.

    Raises:
        MissingPart: no workload was searched on hardware of its own.
    """
    own = [entry for entry in entries if entry.own_design]
    if not own:
        raise MissingPart("no workload was searched on hardware of its own (search.alone)")
    names = hardware_names(own)
    figure, (left, right) = canvas(1.5 + 0.3 * max(len(own), len(names)), 2)
    places = range(len(own))
    colours = [COLOURS[i % len(COLOURS)] for i in places]
    costs = [100 * (entry.costs or 0.0) for entry in own]
    left.barh(places, costs, height=0.55, color=colours)
    for place, cost in zip(places, costs, strict=True):
        left.annotate(f"{signed(cost, 1)} %", (max(cost, 0), place), (4, 0), textcoords="offset points", va="center")
    left.set_yticks(places, [entry.workload for entry in own])
    left.invert_yaxis()
    left.set_xlim(min(0.0, *costs), max(1.25 * max(costs), 0.1))
    left.set_xlabel("Dearer than on hardware of its own [%]")
    left.grid(axis="y", visible=False)
    step = 0.6 / max(len(own), 1)
    for i, entry in enumerate(own):
        ratio = [entry.own_design[name] / entry.design[name] for name in names]
        at = [index + step * (i - 0.5 * (len(own) - 1)) for index in range(len(names))]
        right.plot(ratio, at, MARKERS[i % len(MARKERS)], color=colours[i], markersize=5.5, label=entry.workload)
    right.axvline(1.0, color=INK, linewidth=1)
    right.set_yticks(range(len(names)), [variable(name) for name in names])
    right.set_ylim(len(names) - 0.5, -0.5)
    right.set_xscale("log")
    right.xaxis.set_major_locator(_ticks(own, names))
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{TIMES}{value:.3g}"))
    right.xaxis.set_minor_formatter(NullFormatter())
    right.set_xlabel("Its own hardware over the common")
    right.tick_params(axis="both", which="both", colors=SOFT, labelcolor=INK)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=min(len(own), 4))
    return figure


def _ticks(own: Sequence[Shared], names: Sequence[str]) -> FixedLocator:
    """Round numbers over the range of the ratios."""
    ratios = [entry.own_design[name] / entry.design[name] for entry in own for name in names]
    rounds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    shown = [value for value in rounds if 0.6 * min(ratios) <= value <= 1.7 * max(ratios)]
    return FixedLocator(shown if len(shown) > 1 else [0.5, 1.0, 2.0])
