"""The proof of a certified search on the page: how the gap closed, what binds, what more of it would bring."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from ..core.interval_text import between_text, has_ends, remarks_text
from ..model.workloads.base import OTHERS, FamilyVocabulary
from ..search.certificate import Binding, Certificate, RequiredRelaxation
from . import charts, pages
from .labels import DASH, Metric, axis_prefix, is_number, number, signed, variable
from .run_folder import PLAN_PREFIX, MissingPart, RunFolder
from .text_tables import PageTable
from .wording import claim, constraint, inside

DIGITS = 6  # at most, of best design and bound, which are near each other
LITTLE = 1e-3  # share by which a constraint gives that is not worth telling
NARROW = 1e-3  # log by which best and bound differ that no axis can show


def certificate(run: RunFolder) -> Certificate:
    """Certificate of the search.

    Raises:
        MissingPart: the search proves nothing.
    """
    result = run.certificate
    if result is None:
        raise MissingPart("the search leaves no certificate")
    return result


def goal(run: RunFolder) -> Metric:
    """Goal that is proven: a blend of goals, a hardware variable, or the metric of the objective."""
    result = certificate(run)
    if result.workloads:
        return goal_of_mix(run)
    return run.metric(result.goal if PLAN_PREFIX + result.goal in run.designs else run.goal)


BLENDS = {
    "log_sum": "geometric mean", "sum": "weighted mean", "worst": "worst", "cvar": "mean of the worst share",
}  # fmt: skip


def goal_of_mix(run: RunFolder) -> Metric:
    """Goal that the mix minimises; with the unit of its workloads' goals where they have one in common."""
    entries, said = certificate(run).workloads or (), certificate(run).goal
    names = {entry.goal for entry in entries}
    blend = BLENDS.get(said.split(" ")[0], said.split(" ")[0])
    relative = "relative to its own best" in said
    unit = run.metric(names.pop()) if len(names) == 1 else None
    what = inside(unit.label) if unit else "the workloads' goals"
    words = f"{blend[0].upper()}{blend[1:]} of {what}" + (", relative to each one's best" if relative else "")
    return Metric(words, "" if relative or unit is None else unit.unit)


def text(run: RunFolder) -> str:
    """Text on the best design's gap to the optimum, and on variables at the edge of their range."""
    result, goal_label = certificate(run), goal(run)
    if not result.convex:
        return f"Heuristic solution, no certificate: {result.reason}."
    if result.best is None and not result.certified:
        return f"No feasible design found, nothing proven: {result.reason or 'it was stopped early'}."
    if result.best is None:
        return "No plan keeps all constraints, whatever the hardware: each is ruled out by its tangents."
    if result.bound is None or result.gap is None:
        return f"Best found, nothing proven yet: {result.reason or 'it was stopped early'}."
    pairs = [
        (goal_label.text(result.bound, digits), goal_label.text(result.best, digits)) for digits in range(3, DIGITS + 1)
    ]
    bound, best = next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
    words = [
        f"No design of this space is better than {bound}; the best one found has {best}, "
        f"{number(result.gap, '%', 4) if result.gap >= 5e-5 else 'less than 0.01 %'} away."
    ]
    edges = result.at_bounds or ()
    if edges:
        ends = {"low": "least", "high": "most"}
        listed = ", ".join(f"{variable(edge.variable)} (at its {ends[edge.at]})" for edge in edges)
        words.append(f"At the edge of its range: {listed}.")
    under = f", and holds under the assumption that {result.assuming}" if result.assuming else ""
    return " ".join(words) + f" The proof is of the model, not of reality{under}."


def table(run: RunFolder) -> PageTable | None:
    """Table of what binds and what a tenth more of it would bring; or of how much constraints must give."""
    return explained(certificate(run), run.words)


def explained(certificate: Certificate, words: FamilyVocabulary = OTHERS) -> PageTable | None:
    """The table of a certificate; None where nothing binds."""
    if certificate.infeasible:
        return _conflict(certificate.infeasible, words)
    rows = [
        (
            constraint(row.constraint, words),
            number(row.used, "%", 3),
            *(signed(getattr(row, side), 3) for side in ("elasticity_fewer", "elasticity_more")),
            f"{_reach(row.valid_down)} to {_reach(row.valid_up)}",
            _brought(row),
        )
        for row in certificate.constraints or ()
        if row.used > 0.5
    ]
    head = ("Constraint", "Used", "Elasticity down", "Elasticity up", "Holds over", "10 % more brings")
    return PageTable(head, rows, frozenset({0, 4}), "binding") if rows else None


def _brought(row: Binding) -> str:
    """Change of the goal with a tenth more of a resource, and whether by another plan."""
    text = signed(100 * row.tenth_more)
    return "nothing" if text == "0" else f"{text} %{' (another plan)' if row.changes_plan else ''}"


def _reach(change: float | None) -> str:
    return "any" if change is None else f"{signed(100 * change, 1)} %"


def _conflict(rows: Sequence[RequiredRelaxation], words: FamilyVocabulary) -> PageTable:
    """By how much each constraint must give, alone or, where none can give enough alone, together."""
    if any(row.alone for row in rows) or all(row.together is None for row in rows):
        cells = [(constraint(row.constraint, words), _must_give(row)) for row in rows]
        return PageTable(("Constraint", "Must give, if it alone gives"), cells, name="infeasible")
    cells = [(constraint(row.constraint, words), _times(row.needed), _times(row.together)) for row in rows]
    return PageTable(("Constraint", "Must give, whatever the others do", "Enough together"), cells, name="infeasible")


def _must_give(row: RequiredRelaxation) -> str:
    if not row.alone:
        return f"{DASH} (others also fail)"
    proven = f", {row.factor_at_least:.4g} does not" if row.factor_at_least else ""
    return f"a factor of {row.factor:.4g} suffices{proven}"


def _times(factor: float | None) -> str:
    """A factor by which something gives; nothing is said of less than a thousandth."""
    if factor is None:
        return DASH
    return "nothing" if factor < 1 + LITTLE else f"a factor of {factor:.4g}"


def closing(run: RunFolder) -> list[tuple[float, float, float | None]]:
    """(seconds, best design, bound) over the time of the search.

    Raises:
        MissingPart: there is too little to follow.
    """
    result = certificate(run)
    points = [(s, best, bound) for s, best, bound in result.history or () if best is not None]
    if len(points) < 2 or not result.convex:
        raise MissingPart("the search ended before its gap could be followed")
    values = [value for _, best, bound in points for value in (best, bound) if value is not None]
    if math.log(max(values) / min(values)) < NARROW:
        raise MissingPart("best design and bound were one from the beginning")
    return points


def closing_chart(run: RunFolder) -> Markup:
    """Chart in the page of best design and bound over the time of the search.

    Raises:
        MissingPart: as `closing`.
    """
    points, goal_label = closing(run), goal(run)
    values = [value for _, best, bound in points for value in (best, bound) if value is not None]
    plain = goal_label.unit in ("", "%", "count", "$")  # of these no prefix is written
    factor, unit = (1.0, goal_label.unit.replace("count", "")) if plain else axis_prefix(max(values), goal_label.unit)
    best = [(s, value) for s, value, _ in points]
    bound = [(s, value) for s, _, value in points if value is not None]
    data = [
        {
            "s": [s for s, _ in each], name: [value / factor for _, value in each],
            f"{name}_told": [goal_label.text(value, 5) for _, value in each],
        }
        for name, each in (("best", best), ("bound", bound))
    ]  # fmt: skip
    how = (charts.axis_kind(np.array(values)), f"{goal_label.label} [{unit}]" if unit else goal_label.label)
    return pages.chart("convergence", charts.closing_plot, how, data)


# Confidence in a result, in two columns: what is proven of the model, and the model's error against measurements.


SLIDES = 1e-4  # elasticity from which a slider shows anything


@dataclass(frozen=True)
class Slide:
    """A limit that may be moved within what its elasticity was proven to hold for."""

    name: str
    low: float
    high: float
    fewer: float
    more: float


@dataclass(frozen=True)
class ProofAndErrors:
    """proven: sentences on the model; off: on measurements; strata: (what, measured on, rows, ends of the error)."""

    proven: tuple[str, ...]
    off: tuple[str, ...]
    strata: tuple[tuple[str, str, str, str], ...]


def how_sure(run: RunFolder) -> ProofAndErrors:
    """Build both columns for a run."""
    try:
        explanation = (text(run),) if run.certificate is not None and run.certificate.front is None else ()
    except MissingPart:
        explanation = ()
    return ProofAndErrors((claim(run), *explanation), tuple(_off(run)), tuple(_strata(run, run.summary.get("errors"))))


def _relative(low: float, high: float, value: float) -> str:
    """Ends over the value in per cent; nothing where it is 0."""
    return f" ({signed(100 * (low / value - 1), 0)} % to {signed(100 * (high / value - 1), 0)} %)" if value else ""


def _off(run: RunFolder) -> list[str]:
    """Sentences on the intervals of the goal."""
    best, metric = run.best, run.metric(run.goal)
    low, high, value = (best.get(f"{run.goal}{end}", math.nan) for end in ("_low", "_high", ""))
    if not (has_ends(low, high) and is_number(value)):
        return ["How far the model is off here is not known: the run has no intervals of its numbers."]
    expected = f"between {metric.text(low)} and {metric.text(high)}{_relative(low, high, value)}"
    if math.isinf(low) or math.isinf(high):
        expected = f"from {between_text(low, high, metric.text)}"
    lines = [f"{metric.label} {metric.text(value)}; nine times in ten a real machine would be expected {expected}."]
    if math.isinf(low) and math.isinf(high):
        lines = [f"{metric.label} {metric.text(value)}; hardly a real machine would be expected to sustain this."]
    lines += filter(None, [remarks_text(dict(best))])
    regret = run.summary.get("regret")
    if isinstance(regret, dict) and isinstance(regret.get("text"), str):
        lines.append(regret["text"])
    return lines


def _strata(run: RunFolder, rows: Any) -> list[tuple[str, str, str, str]]:
    """Rows of the kernels that the best design runs, and all rows that are not of kernels."""
    strata, kernels = [], set(run.ops["kernel"].dropna().astype(str)) if "kernel" in run.ops else None
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or not (is_number(row.get("low")) and is_number(row.get("high"))):
            continue
        kind = str(row.get("what")).removeprefix("kernels: ").replace(" ", "_")
        if kernels is not None and str(row.get("what")).startswith("kernels: ") and kind not in kernels:
            continue
        ends = f"{signed(100 * row['low'], 0)} % to {signed(100 * row['high'], 0)} %"
        strata.append((str(row.get("what")), str(row.get("regime")), number(row.get("rows"), ""), ends or DASH))
    return strata


def slides(run: RunFolder) -> list[Slide]:
    """Limits whose worth is known around the optimum, over the range for which it was found to hold."""
    result = run.certificate
    if result is None or result.front is not None or result.workloads or result.goal != run.goal:
        return []
    return [_slide(row, run) for row in result.constraints or () if _moves(row)]


def _moves(row: Binding) -> bool:
    reach = max(abs(row.elasticity_fewer), abs(row.elasticity_more))
    return reach > SLIDES and (row.valid_up or 0) - (row.valid_down or 0) > 0


def _slide(row: Binding, run: RunFolder) -> Slide:
    down, up = row.valid_down if row.valid_down is not None else -0.1, row.valid_up if row.valid_up is not None else 0.1
    return Slide(constraint(row.constraint, run.words), 100 * down, 100 * up, row.elasticity_fewer, row.elasticity_more)
