"""Limits kept with a stated chance: margins on speed, widened until the best design keeps them in that share of draws.

A draw multiplies the model's predictions by errors that were measured of them. What slows steps down is one factor to a
search: the limits have to hold at the centre and with all kernels so much slower, which `search=robust` proves. First
tokens err once more, by a factor that their limits fall by. The design is the proven best with these margins; that none
cheaper keeps the limits with the same chance is not proven.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..model.metrics import Account
from ..study.objective import Objective, feasible
from ..uncertainty.draws import COUNT, draw_doubts
from ..uncertainty.metrics import under_draws
from ..uncertainty.unsustained import LOAD, over_the_load
from .candidates import Candidate

SLOWER = "workload.kernel_slowdown"
FIRST = ("ttft_", "e2e_")
WIDER = 0.5  # of a margin's logarithm, by which it grows where too few draws keep the limits


class Margin(NamedTuple):
    """Factors by which kernels are slower, and first tokens later, than at the centre."""

    slower: float
    later: float

    @property
    def wider(self) -> "Margin":
        """The next margin to try."""
        return Margin(*(max(value, 1.02) ** (1 + WIDER) for value in self))


def kept_share(candidate: Candidate, asked: Objective, seed: int = 0, count: int = COUNT) -> float:
    """Share of the draws in which a candidate's best design keeps these limits, and whatever a design must keep.

    Args:
        candidate: searched.
        asked: the limits.
        seed: of the draws; a search with a chance is made on those of seed 0.
        count: of draws.
    """

    def told(account: Account) -> dict[str, Any]:
        return {" ": asked.excess(account.metrics)}

    return float(
        np.mean(np.asarray(feasible(under_draws([candidate.scenario], told, count, seed)[" "][0]), dtype=bool))
    )


def margin_of(candidate: Candidate, share: float) -> Margin:
    """A margin to begin with: quantiles of how much slower a step is, and how much later a first token, in draws.

    Args:
        candidate: searched.
        share: of the draws that the margin covers.
    """
    assert candidate.best is not None

    def told(account: Account) -> dict[str, Any]:
        load = over_the_load(account.metrics)
        return {" ": load.get(LOAD, account.metrics.time_s)}

    level = under_draws([candidate.scenario], told)[" "][0]
    later = np.asarray(draw_doubts(candidate.scenario).first_token)
    return Margin(
        max(1.0, float(np.quantile(level, share) / np.median(level))), max(1.0, float(np.quantile(later, share)))
    )


def with_margin(candidate: Candidate, asked: Objective, margin: Margin) -> Candidate:
    """The candidate's study with the limits kept at the centre and with this margin."""
    rest = [text for text in candidate.overrides if not _of_search(text)]
    slower = f"{{_target_: codesign.search.Uncertain, path: {SLOWER}, factors: [1.0, {margin.slower!r}]}}"
    limits = [
        f"++objective.limits.{name}={(limit / margin.later if name.startswith(FIRST) else limit)!r}"
        for name, limit in asked.limits.items()
    ]
    search = ("search=robust", "~search.cases.uncertain.accelerator_price", f"++search.cases.uncertain.slower={slower}")
    return dataclasses.replace(candidate, overrides=(*search, *rest, *limits, "search.aggregate=sum"))


def _of_search(text: str) -> bool:
    return text.lstrip("+~").startswith(("search=", "search.", "objective.limits."))


def refuse_search(overrides: Sequence[str]) -> str:
    """Error text if overrides set a search, which `--confidence` does not allow; empty otherwise."""
    own = [text for text in overrides if text.lstrip("+~").startswith(("search=", "search."))]
    return f"--confidence is a search of its own: leave out {own[0]!r}" if own else ""
