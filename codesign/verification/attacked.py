"""The two ends that every check has: what it refutes becomes the answer's one line, and what it found none against is
attacked."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .derivation import Refuted

FLOOR, MOST = 1 << 14, 1_000_000  # designs tried where nobody says how many: at least and at most
FEW = 0.2  # of the best designs are polished where there is no more time than for the fewest designs
ALIKE = 1e-9  # what rounding may leave between two ways to price a design, in a logarithm
Told = Callable[[str, int, int], None]


@dataclass
class Answer:
    """Result of a verification.

    verified: nothing that was claimed is false. line: the answer. checks: what was done, in order. numbers: for JSON.
    """

    verified: bool
    line: str
    checks: list[str] = field(default_factory=list[str])
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class AttackEffort:
    """Number of designs to try: as asked, or as many as the time allows.

    until: of this process, in seconds of a processor.
    """

    designs: int | None = None
    until: float = 0.0


@runtime_checkable
class Attempt(Protocol):
    """Designs that are tried against a claim: `Attack`, `MixAttack`."""

    def run(self, count: int, rng: np.random.Generator, told: Callable[[int, int], None]) -> None:
        """Try so many."""
        ...

    def polish(self, share: float = 1.0) -> int:
        """Improve a share of the best; says how many."""
        ...


def quiet(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def answered(check: Callable[[Answer], None]) -> Answer:
    """Run a check, which writes into the answer, and return that."""
    answer = Answer(False, "")
    try:
        check(answer)
        answer.verified = True
    except Refuted as result:
        answer.line = f"not verified: {result}"
    return answer


def alike(apart: float, whose: str = "") -> None:
    """Designs are priced with tables of the plan, all of them; some without as well.

    Args:
        apart: how far these differ at most, in a logarithm.
        whose: begins the refusal.

    Raises:
        Refuted: by more than rounding.
    """
    if apart > ALIKE:
        raise Refuted(f"{whose}designs priced with tables of the plan and without differ by {apart:.3g} in a logarithm")


def attacked(tried: Attempt, designs: int | AttackEffort, rng: np.random.Generator, told: Told) -> int:
    """Try random designs, then polish the best; says how many of these."""

    def tell(done: int, total: int) -> None:
        told("attack", done, total)

    asked, share = designs if isinstance(designs, int) else designs.designs, 1.0
    if asked is not None or isinstance(designs, int):
        tried.run(asked or 0, rng, tell)
    else:
        began = time.process_time()
        tried.run(FLOOR, rng, tell)
        there = time.process_time()
        possible = FLOOR * (1 + (designs.until - there) / max(there - began, 1e-3))
        if possible >= 2 * FLOOR:
            tried.run(min(int(possible), MOST), rng, tell)
        else:
            share = FEW
    told("polishing", 0, 1)
    return tried.polish(share)
