"""What is told beside what a command prints: a study that nobody named, numbers that are unusual."""

import sys
from collections.abc import Iterable

from ..config import Study
from ..config.plausibility import Unusual, unusual
from ..config.starting import told
from ..results import Results, placed


def say_default(overrides: list[str]) -> None:
    """One line where nothing was named that a study is about, so that the default experiment runs."""
    line = told(overrides)
    if line:
        print(f"codesign: {line}", file=sys.stderr)


def warn(numbers: Iterable[Unusual]) -> None:
    """One line each for numbers that are legal but unusual, beside what a command prints."""
    for one in numbers:
        print(f"codesign: warning: {one.text}", file=sys.stderr)


def unusual_answer(study: Study, results: Results) -> tuple[Unusual, ...]:
    """What is unusual about the best design beyond the inputs: numbers that only several variables together bring."""
    told = study.unusual
    found = unusual(placed(study.problem, results.best), provenance=study.provenance)
    return tuple(
        one._replace(text=f"the best design: {one.text}") for one in found if not any(one.key in t.text for t in told)
    )
