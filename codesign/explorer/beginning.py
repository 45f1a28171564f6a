"""Start of a page: a run folder, or overrides as `codesign optimize` takes them."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Study, own_files, study_from_config
from ..core.errors import ConfigError
from ..core.fields import get_path, with_numpy
from ..core.units import unit_of
from ..report.labels import Metric, metric, number, variable
from ..report.run_folder import PLAN_PREFIX, RunFolder, read_run
from ..search import Certified, GridThenProof, Integer, Mix
from ..study.design_space import Ratio, moved_by

# Sliders of the page: each number of the hardware that a study varies, and each of its limits.


HARDWARE, LIMITS, FLOORS = "hardware", "limits", "floors"
REACH = 4.0  # a limit's slider goes from a quarter of what it is to four times that
STEPS = 200  # of a slider, even in the logarithm: each is 1 to 2 % of the number


@dataclass(frozen=True)
class NumberSlider:
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


def knobs_of(study: Study, begin: Mapping[str, float]) -> tuple[NumberSlider, ...]:
    """Knobs of a study: its variables, then its limits and floors.

    Args:
        study: whose numbers they are.
        begin: name of a variable -> where its slider begins; others where the scenario stands, or in the middle.
    """
    space, objective, words = study.space, study.objective, study.scenario.workload.words
    result: list[NumberSlider] = []
    for name in space.names:
        each = space.hardware[name]
        label = Metric(variable(name), "" if isinstance(each, Ratio) else unit_of(each.path))
        now = begin[name] if name in begin else standing(study, name)
        start = now if each.low <= now <= each.high else math.sqrt(each.low * each.high)
        result.append(NumberSlider(HARDWARE, name, label, each.low, each.high, start))
    for kind, bounds in ((LIMITS, objective.limits), (FLOORS, objective.floors)):
        result += [
            NumberSlider(kind, name, metric(name, words), bound / REACH, bound * REACH, bound)
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


def overrides_of(
    study: Study, base: Sequence[str], knobs: Sequence[NumberSlider], values: Mapping[str, float]
) -> list[str]:
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
    lines = [f"{key}={value!r}" for key, value in (*held.items(), *limits.items())]
    return [*left, *gone, *lines]


def limits_of(study: Study, knobs: Sequence[NumberSlider], values: Mapping[str, float], kind: str) -> dict[str, float]:
    """All limits, or all floors, of the study with the sliders where they are."""
    bounds = dict(getattr(study.objective, kind))
    return bounds | {knob.name: values[knob.key] for knob in knobs if knob.kind == kind}


DELETED = "~space.hardware."
PROVING = (Certified, GridThenProof, Integer)
"""Searches whose proof is of one best design; for others the certified search stands in."""


@dataclass(frozen=True)
class SliderStudy:
    """A study with its sliders.

    overrides: that made the study; run: what was found before, where there is a folder.
    """

    study: Study
    overrides: tuple[str, ...]
    knobs: tuple[NumberSlider, ...]
    run: RunFolder | None = None

    @property
    def start(self) -> dict[str, float]:
        """Key of each knob -> where its slider begins."""
        return {knob.key: knob.start for knob in self.knobs}

    @property
    def title(self) -> str:
        """Title of the page."""
        return self.run.path.resolve().name if self.run else self.study.name


def given(words: Sequence[str]) -> SliderStudy:
    """Read what was asked for: one folder, or overrides.

    Raises:
        ConfigError: neither; a run of a mix; or whatever is wrong with the study.
    """
    if len(words) == 1 and "=" not in words[0] and not words[0].startswith("~"):
        run = read_run(words[0])
        with own_files(*run.conf):
            return _given(run.overrides, run)
    for word in words:
        if word.startswith("=") or ("=" not in word and not word.startswith("~")):
            what = "a folder goes alone" if Path(word).is_dir() else "write key=value, or the folder of a run alone"
            raise ConfigError(f"explore: {word!r} is no override: {what}")
    return _given(tuple(words), None)


def config_words(study: Study) -> list[str]:
    """`--conf DIR` for each folder of own files that a study is made of."""
    return [word for folder in study.conf for word in ("--conf", str(folder))]


def _given(overrides: tuple[str, ...], run: RunFolder | None) -> SliderStudy:
    study, words, held = _with_all_variables(overrides)
    if isinstance(study.search, Mix):
        raise ConfigError("explore shows one workload at a time: name one of the mix as model=... workload=...")
    result = run.best if run is not None else {}
    begin = {name: float(result[PLAN_PREFIX + name]) for name in study.space.names if PLAN_PREFIX + name in result}
    knobs = knobs_of(study, {name: value for name, value in begin.items() if name not in held})
    if not knobs and not study.space.plan:
        raise ConfigError("explore: this study varies nothing and limits nothing: there is nothing to move")
    return SliderStudy(study, words, knobs, run)


def _with_all_variables(overrides: tuple[str, ...]) -> tuple[Study, tuple[str, ...], set[str]]:
    """The study with the variables that overrides took away, as links of this page do: each gets its slider back.

    Returns:
        (study, overrides that make it, variables that were brought back: they begin where the scenario stands)
    """
    gone = [text for text in overrides if text.startswith(DELETED) and "." not in text.removeprefix(DELETED)]
    retained, result = list(overrides), set[str]()
    for some in [gone, *([one] for one in gone)] if len(gone) > 1 else [gone] * len(gone):
        tried = [text for text in retained if text not in some]
        with contextlib.suppress(ConfigError):  # this hardware may not have what was taken away
            names = {text.removeprefix(DELETED) for text in some}
            if names <= study_from_config(*tried).space.hardware.keys():
                retained, result = tried, result | names
        if len(result) == len(gone):
            break
    return study_from_config(*retained), tuple(retained), result
