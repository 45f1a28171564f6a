"""Confidence in a result, in two columns: what is proven of the model, and the model's error against measurements."""

import math
from dataclasses import dataclass
from typing import Any

from ..core.interval_text import between_text, has_ends, remarks_text
from ..search.certificate import Binding
from . import proof
from .labels import DASH, is_number, number, signed
from .run_folder import MissingPart, RunFolder
from .wording import claim, constraint

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
class HowSure:
    """proven: sentences on the model; off: on measurements; strata: (what, measured on, rows, ends of the error)."""

    proven: tuple[str, ...]
    off: tuple[str, ...]
    strata: tuple[tuple[str, str, str, str], ...]


def how_sure(run: RunFolder) -> HowSure:
    """Build both columns for a run."""
    try:
        told = (proof.text(run),) if run.certificate is not None and run.certificate.front is None else ()
    except MissingPart:
        told = ()
    return HowSure((claim(run), *told), tuple(_off(run)), tuple(_strata(run, run.summary.get("errors"))))


def _relative(low: float, high: float, value: float) -> str:
    """Ends over the value in per cent; nothing where it is 0."""
    return f" ({signed(100 * (low / value - 1), 0)} % to {signed(100 * (high / value - 1), 0)} %)" if value else ""


def _off(run: RunFolder) -> list[str]:
    """Sentences on the intervals of the goal."""
    best, known = run.best, run.metric(run.goal)
    low, high, value = (best.get(f"{run.goal}{end}", math.nan) for end in ("_low", "_high", ""))
    if not (has_ends(low, high) and is_number(value)):
        return ["How far the model is off here is not known: the run has no intervals of its numbers."]
    expected = f"between {known.text(low)} and {known.text(high)}{_relative(low, high, value)}"
    if math.isinf(low) or math.isinf(high):
        expected = f"from {between_text(low, high, known.text)}"
    lines = [f"{known.label} {known.text(value)}; nine times in ten a real machine would be expected {expected}."]
    if math.isinf(low) and math.isinf(high):
        lines = [f"{known.label} {known.text(value)}; hardly a real machine would be expected to sustain this."]
    lines += filter(None, [remarks_text(dict(best))])
    regret = run.summary.get("regret")
    if isinstance(regret, dict) and isinstance(regret.get("text"), str):
        lines.append(regret["text"])
    return lines


def _strata(run: RunFolder, rows: Any) -> list[tuple[str, str, str, str]]:
    """Rows of the kernels that the best design runs, and all rows that are not of kernels."""
    told, kernels = [], set(run.ops["kernel"].dropna().astype(str)) if "kernel" in run.ops else None
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or not (is_number(row.get("low")) and is_number(row.get("high"))):
            continue
        kind = str(row.get("what")).removeprefix("kernels: ").replace(" ", "_")
        if kernels is not None and str(row.get("what")).startswith("kernels: ") and kind not in kernels:
            continue
        ends = f"{signed(100 * row['low'], 0)} % to {signed(100 * row['high'], 0)} %"
        told.append((str(row.get("what")), str(row.get("regime")), number(row.get("rows"), ""), ends or DASH))
    return told


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
