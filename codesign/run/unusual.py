"""What is unusual about the numbers of a study, or about its answer, told beside what a command prints."""

import sys
from collections.abc import Iterable

from ..config import Study
from ..config.plausibility import Unusual, unusual
from ..results import Results, placed


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
