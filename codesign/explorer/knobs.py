"""Sliders of the page: each number of the hardware that a study varies, and each of its limits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..config import Study
from ..core.fields import get_path, with_numpy
from ..core.units import unit_of
from ..report.labels import Metric, metric, number, variable
from ..study.design_space import Ratio
from ..study.variables import moved_by

HARDWARE, LIMITS, FLOORS = "hardware", "limits", "floors"
REACH = 4.0  # a limit's slider goes from a quarter of what it is to four times that
STEPS = 200  # of a slider, even in the logarithm: each is 1 to 2 % of the number


@dataclass(frozen=True)
class Knob:
    """A number with a slider.

    kind: what it is; name: of the variable or the limited quantity; start: where its slider begins.
    """

    kind: str
    name: str
    label: Metric
    low: float
    high: float
    start: float

    @property
    def key(self) -> str:
        """Key that tells knobs apart: a quantity may have a limit and a floor."""
        return f"{self.kind}.{self.name}"

    def at(self, step: float) -> float:
        """The value at a step of the slider; the ends exactly."""
        share = min(max(step / STEPS, 0.0), 1.0)
        return self.high if share == 1.0 else self.low * (self.high / self.low) ** share

    def step(self, value: float) -> float:
        """The step of a value, which need not be whole."""
        return STEPS * math.log(self.within(value) / self.low) / math.log(self.high / self.low)

    def within(self, value: float) -> float:
        """A value, or the end of the slider that is nearest."""
        return min(max(value, self.low), self.high)

    def text(self, value: float) -> str:
        """A value with its unit."""
        if self.label.unit == "s/B" and value > 0:  # seconds a byte: the rate that it is
            return number(1 / value, "B/s")
        return self.label.text(value)

    @property
    def title(self) -> str:
        """Label of the slider, with "at most" or "at least" for a limit."""
        words = {LIMITS: " at most", FLOORS: " at least"}.get(self.kind, "")
        return f"{self.label.label}{words}"


def knobs_of(study: Study, begin: Mapping[str, float]) -> tuple[Knob, ...]:
    """Knobs of a study: its variables, then its limits and floors.

    Args:
        study: whose numbers they are.
        begin: name of a variable -> where its slider begins; others where the scenario stands, or in the middle.
    """
    space, objective, words = study.space, study.objective, study.scenario.workload.words
    result: list[Knob] = []
    for name in space.names:
        each = space.hardware[name]
        label = Metric(variable(name), "" if isinstance(each, Ratio) else unit_of(each.path))
        now = begin[name] if name in begin else standing(study, name)
        start = now if each.low <= now <= each.high else math.sqrt(each.low * each.high)
        result.append(Knob(HARDWARE, name, label, each.low, each.high, start))
    for kind, bounds in ((LIMITS, objective.limits), (FLOORS, objective.floors)):
        result += [
            Knob(kind, name, metric(name, words), bound / REACH, bound * REACH, bound)
            for name, bound in bounds.items()
            if is_key(name)
        ]
    return tuple(result)


def is_key(name: str) -> bool:
    """True if a limited quantity can be given anew by an override: a plain name, no expression."""
    return name.isidentifier()


def standing(study: Study, name: str) -> float:
    """Value of a variable in the scenario as it is."""
    each, scenario = study.space.hardware[name], with_numpy(study.scenario)
    value = float(get_path(scenario, each.path))
    return value / float(get_path(scenario, each.denominator)) if isinstance(each, Ratio) else value


def overrides_of(study: Study, base: Sequence[str], knobs: Sequence[Knob], values: Mapping[str, float]) -> list[str]:
    """Overrides that hold the sliders where they are: `codesign optimize` searches the plan, `explore` shows the page.

    Args:
        study: as it was before any slider moved.
        base: its own overrides.
        knobs: of the study.
        values: key of a knob -> its value.
    """
    point = {knob.name: values[knob.key] for knob in knobs if knob.kind == HARDWARE}
    placed = study.space.place(with_numpy(study.scenario), point)
    held: dict[str, Any] = {}
    for name in point:
        held |= {path: float(get_path(placed, path)) for path in moved_by(study.space.hardware[name])}
    gone = [f"~space.hardware.{name}" for name in point]
    limits = {
        f"objective.{knob.kind}.{knob.name}": values[knob.key]
        for knob in knobs
        if knob.kind != HARDWARE and values[knob.key] != knob.start
    }
    new = {*held, *limits}
    left = [text for text in base if text.lstrip("+").partition("=")[0] not in new and text not in gone]
    told = [f"{key}={value!r}" for key, value in (*held.items(), *limits.items())]
    return [*left, *gone, *told]


def limits_of(study: Study, knobs: Sequence[Knob], values: Mapping[str, float], kind: str) -> dict[str, float]:
    """All limits, or all floors, of the study with the sliders where they are."""
    bounds = dict(getattr(study.objective, kind))
    return bounds | {knob.name: values[knob.key] for knob in knobs if knob.kind == kind}
