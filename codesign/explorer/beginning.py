"""Start of a page: a run folder, or overrides as `codesign optimize` takes them."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import Study, own_files, study_from_config
from ..core.errors import ConfigError
from ..report.run_folder import PLAN_PREFIX, RunFolder, read_run
from ..search import Certified, GridThenProof, Integer, Mix
from .knobs import Knob, knobs_of

DELETED = "~space.hardware."
PROVING = (Certified, GridThenProof, Integer)
"""Searches whose proof is of one best design; for others the certified search stands in."""


@dataclass(frozen=True)
class Given:
    """A study with its sliders.

    overrides: that made the study; run: what was found before, where there is a folder.
    """

    study: Study
    overrides: tuple[str, ...]
    knobs: tuple[Knob, ...]
    run: RunFolder | None = None

    @property
    def start(self) -> dict[str, float]:
        """Key of each knob -> where its slider begins."""
        return {knob.key: knob.start for knob in self.knobs}

    @property
    def title(self) -> str:
        """Title of the page."""
        return self.run.path.resolve().name if self.run else self.study.name


def given(words: Sequence[str]) -> Given:
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


def own_words(study: Study) -> list[str]:
    """`--conf DIR` for each folder of own files that a study is made of."""
    return [word for folder in study.conf for word in ("--conf", str(folder))]


def _given(overrides: tuple[str, ...], run: RunFolder | None) -> Given:
    study, kept, held = _with_all_variables(overrides)
    if isinstance(study.search, Mix):
        raise ConfigError("explore shows one workload at a time: name one of the mix as model=... workload=...")
    result = run.best if run is not None else {}
    begin = {name: float(result[PLAN_PREFIX + name]) for name in study.space.names if PLAN_PREFIX + name in result}
    knobs = knobs_of(study, {name: value for name, value in begin.items() if name not in held})
    if not knobs and not study.space.plan:
        raise ConfigError("explore: this study varies nothing and limits nothing: there is nothing to move")
    return Given(study, kept, knobs, run)


def _with_all_variables(overrides: tuple[str, ...]) -> tuple[Study, tuple[str, ...], set[str]]:
    """The study with the variables that overrides took away, as links of this page do: each gets its slider back.

    Returns:
        (study, overrides that make it, variables that were brought back: they begin where the scenario stands)
    """
    gone = [text for text in overrides if text.startswith(DELETED) and "." not in text.removeprefix(DELETED)]
    kept, result = list(overrides), set[str]()
    for some in [gone, *([one] for one in gone)] if len(gone) > 1 else [gone] * len(gone):
        tried = [text for text in kept if text not in some]
        with contextlib.suppress(ConfigError):  # this hardware may not have what was taken away
            names = {text.removeprefix(DELETED) for text in some}
            if names <= study_from_config(*tried).space.hardware.keys():
                kept, result = tried, result | names
        if len(result) == len(gone):
            break
    return study_from_config(*kept), tuple(kept), result
