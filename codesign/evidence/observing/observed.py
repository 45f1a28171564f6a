"""Summary of a server's answers: latencies with their percentiles, throughput, a row of measured runs."""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...simulation.serving import Requests
from .driving import Driven
from .endpoint import StreamedAnswer

__all__ = ["Observed"]

SHARES = {"p50": 50, "mean": None, "p90": 90, "p99": 99}
VARIED = 0.005
"""Coefficient of variation from which lengths are told to vary."""
COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s", "error")


class Observed(NamedTuple):
    """Requests as they were asked for, and what came of those that ended."""

    asked: Requests
    driven: Driven

    @property
    def good(self) -> list[StreamedAnswer]:
        """Answers that came whole."""
        return [answer for _, answer in self.driven.answers if not answer.error]

    def failures(self) -> str:
        """Failed requests by cause, most frequent first; empty where none failed."""
        count = Counter(answer.error for _, answer in self.driven.answers if answer.error)
        return ", ".join(f"{number} x {error}" for error, number in count.most_common())

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of prompts and of answers: as the server reports them, else as asked for and counted."""
        whole = [(number, answer) for number, answer in self.driven.answers if not answer.error]
        inputs = [answer.prompt_tokens or int(self.asked.prompts[number]) for number, answer in whole]
        return np.array(inputs, float), np.array([answer.tokens for _, answer in whole], float)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Median, mean and percentiles in seconds: of first tokens, between tokens, of whole requests."""
        values = {
            "ttft": [answer.ttft_s for answer in self.good],
            "tpot": [answer.tpot_s for answer in self.good if answer.tpot_s is not None],
            "e2e": [answer.e2e_s for answer in self.good],
        }
        return {name: _shares(np.array(result, float)) for name, result in values.items() if result}

    def rates(self) -> dict[str, float]:
        """Completed requests and output tokens a second, from the first request to the last token."""
        span = max(answer.last for answer in self.good) - min(answer.sent for answer in self.good)
        return {"output_tokens_per_s": float(self.lengths()[1].sum()) / span, "requests_per_s": len(self.good) / span}

    def arrivals(self) -> tuple[float, float]:
        """Requests a second as they were sent, and the variation of their gaps; NaN of fewer than three."""
        gaps = np.diff(np.sort([answer.sent for _, answer in self.driven.answers]))
        if len(gaps) < 2 or not gaps.mean() > 0:
            return math.nan, math.nan
        return float(1 / gaps.mean()), float(gaps.std() / gaps.mean())

    def run_row(self, stated: Mapping[str, str], clients: int, traced: bool) -> dict[str, str]:
        """The run as a row of a table of measured runs; what was stated of it goes first.

        Args:
            stated: columns of its design.
            clients: of a closed loop.
            traced: whether arrivals are those of a trace, whose variation is then told, not a Poisson stream's.
        """
        numbers: dict[str, float] = {}
        for name, lengths in zip(("input", "output"), self.lengths(), strict=True):
            numbers[f"{name}_tokens"] = float(lengths.mean())
            spread = float(lengths.std() / lengths.mean())
            if spread > VARIED:
                numbers[f"workload.{name}_cv"] = spread
        if self.asked.arrivals is None:
            numbers |= {"concurrency": clients, "num_prompts": len(self.driven.answers)} | self.rates()
        else:
            rate, spread = self.arrivals()
            numbers |= {"request_rate": rate} | ({"workload.arrival_cv": spread} if traced else {})
        for name, shares in self.latencies().items():
            numbers |= {f"{name}_{share}_ms": 1e3 * value for share, value in shares.items()}
        told = {name: f"{value:.6g}" for name, value in numbers.items() if math.isfinite(value)}
        return dict(stated) | {name: text for name, text in told.items() if name not in stated}

    def requests_csv(self) -> str:
        """A row a request, in the order in which they were sent: a trace, with what was measured."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, answer in sorted(self.driven.answers, key=lambda pair: pair[1].sent):
            lengths = (answer.prompt_tokens or int(self.asked.prompts[number]), int(self.asked.outputs[number]))
            times: tuple[str, ...] = ("", "", "")
            if not answer.error:
                lengths = (lengths[0], answer.tokens)
                times = tuple("" if t is None else f"{t:.6f}" for t in (answer.ttft_s, answer.tpot_s, answer.e2e_s))
            writer.writerow((f"{answer.sent - self.driven.begun:.6f}", *lengths, *times, answer.error))
        return out.getvalue()

    def late_s(self) -> float:
        """By how much the client itself was late, at worst one time in a hundred."""
        return float(np.percentile(self.driven.late_s, 99)) if self.driven.late_s else 0.0


def _shares(values: np.ndarray) -> dict[str, float]:
    return {share: float(values.mean() if at is None else np.percentile(values, at)) for share, at in SHARES.items()}
