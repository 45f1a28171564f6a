"""`search=amortised`: an instant answer from a network that has seen many studies of its family.

    guess   a small network turns workload, budgets and prices into a score of every plan and the hardware that suits it
    answer  the best are priced there, the most promising solved, their neighbours looked at (`answer`)

No proof comes with the answer; what comes is the regret measured on studies the network was not trained on. As a warm
start (`proof`) it hands its design to the certified search, which then only has to prove it.
"""

import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import ConfigError
from ..base import AbstractSearch, Problem, Progress, Report, Trace, silent
from ..branch_and_bound.certified import Certified
from ..branch_and_bound.model_oracle import Oracle, designs_of
from ..branch_and_bound.oracle import rows_of
from ..branch_and_bound.warm_start import COLD, WarmStart
from ..certificate import certify
from .answer import Instant, InstantAnswer, with_plans
from .guesser import Guesser, shipped


@dataclass(frozen=True)
class Amortised(AbstractSearch):
    """The instant answer of a network trained on studies of this family.

    Args:
        weights: file of the network; empty chooses one that comes with the package.
        proof: a certified search that starts from the answer and proves it; none gives the answer alone.
    """

    weights: str = ""
    proof: Certified | None = None

    def refuse(self, problem: Problem) -> None:
        """Before anything is written: no network that can be read fits the study.

        Raises:
            ConfigError: what is wrong with the file, or why none fits.
        """
        super().refuse(problem)
        self._fitting(problem)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Answer, and prove where that is asked for.

        Raises:
            ConfigError: no network fits the study.
        """
        guesser = self._fitting(problem)
        instant = Instant(problem, guesser.shape)
        InstantAnswer(guesser, instant, problem).run()  # compiles
        began = time.perf_counter()
        answer = InstantAnswer(guesser, instant, problem).run()
        seconds = time.perf_counter() - began
        with contextlib.suppress(KeyboardInterrupt):  # the answer is there
            report(Progress("amortised", answer.evaluated, answer.evaluated, math.exp(min(answer.upper, 700.0))))
        if self.proof is not None:
            return self._proven(problem, guesser, answer, seed, report, seconds)
        result = np.isfinite(answer.upper)
        points = designs_of(
            with_plans(instant.oracle, problem, answer.row[None]), np.zeros(1, dtype=int), answer.u[None]
        )
        claim = regret_text(guesser.facts) if result else "no feasible design found near the network's guess; no proof"
        facts = {"family": guesser.family, **guesser.facts}
        certificate = certify(
            problem.wanted, answer.upper, -math.inf, convex=False, closed=False, reason=claim, amortised=facts
        )
        counts = {"points": answer.evaluated}
        return Trace(points, ["amortised"], counts, {"amortised": seconds}, claim, certificate)

    def _fitting(self, problem: Problem) -> Guesser:
        if self.weights and not Path(self.weights).is_file():
            raise ConfigError(f"search.weights = {self.weights!r} is no file")
        known = [Guesser.load(Path(self.weights))] if self.weights else shipped()
        reasons: list[str] = []
        for guesser in known:
            reason = guesser.misfit(problem)
            if not reason:
                return guesser
            reasons.append(f"{guesser.family}: {reason}")
        raise ConfigError(f"search=amortised has no network for this study ({'; '.join(reasons) or 'none is there'})")

    def _proven(
        self, problem: Problem, guesser: Guesser, answer: InstantAnswer, seed: int, report: Report, seconds: float
    ) -> Trace:
        """The certified search, started from the answer."""
        proof = self.proof
        assert proof is not None
        oracle = Oracle(problem, rows_of(problem), proof.batch_size)
        warm = COLD
        if np.isfinite(answer.upper):
            order = [guesser.shape.fields.index(name) for name in oracle.plans]
            same = np.flatnonzero((np.stack(list(oracle.plans.values()), axis=-1) == answer.row[order]).all(axis=1))
            warm = WarmStart(plan=same[:1], u=answer.u[None]) if len(same) else COLD
        trace = proof.search(oracle, problem.wanted, seed, report, warm)
        trace.seconds["amortised"] = seconds
        return trace


def regret_text(facts: dict[str, Any]) -> str:
    """Regret measured on held-out studies, in words."""
    measured = facts.get("regret")
    if not measured:
        return "instant answer; its regret was not measured"
    return (
        f"instant answer, no proof: on {measured['studies']} studies held out, {measured['within_1_percent']:.0%} were "
        f"within 1 % of the certified optimum (median {measured['median']:.2%}, worst {measured['worst']:.1%})"
    )
