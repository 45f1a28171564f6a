"""Time of one step of an engine, as a simulation requests it from a model of the hardware."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class StepTimes(Protocol):
    """Seconds of a step, in three parts.

    A step that decodes n sequences whose contexts hold K tokens together, and computes c prompt tokens that attend
    P keys together, takes

        linear_s(n, c) + K context_s(n) + P pair_s

    so that a run of steps without prompts is an arithmetic series.
    """

    pair_s: float

    def linear_s(self, decodes: float, prompt_tokens: float) -> float:
        """Seconds that do not depend on contexts: weights, matrix products, norms, communication, launches."""
        ...

    def context_s(self, decodes: float) -> float:
        """One token of context of one decoding sequence."""
        ...


@dataclass(frozen=True)
class RooflineSteps:
    """linear = fixed_s + max(weights_s, token_s (n + c)): weights are streamed once, or arithmetic is the longer."""

    fixed_s: float
    weights_s: float
    token_s: float
    read_s: float  # one token of context
    pair_s: float  # one query of a prompt and one key

    def linear_s(self, decodes: float, prompt_tokens: float) -> float:
        """See the class."""
        return self.fixed_s + max(self.weights_s, self.token_s * (decodes + prompt_tokens))

    def context_s(self, decodes: float) -> float:
        """Seconds of one token of context, equal for every number of sequences."""
        del decodes
        return self.read_s


@dataclass(frozen=True)
class TabulatedSteps:
    """Between listed numbers of decodes and prompt tokens; beyond the last ones as between the last two.

    Args:
        decodes, prompt_tokens: rising; the first of each is 0.
        linear: seconds, [decodes, prompt_tokens].
        context: seconds a token of context, [decodes].
        pair_s: seconds a query and key of prompts.
    """

    decodes: Sequence[float]
    prompt_tokens: Sequence[float]
    linear: np.ndarray
    context: np.ndarray
    pair_s: float
    _linear: dict[tuple[float, float], float] = field(
        default_factory=dict[tuple[float, float], float], repr=False, compare=False
    )
    _context: dict[float, float] = field(default_factory=dict[float, float], repr=False, compare=False)

    def times(self, factor: float) -> "TabulatedSteps":
        """Every step so many times as long."""
        return TabulatedSteps(
            self.decodes, self.prompt_tokens, factor * self.linear, factor * self.context, factor * self.pair_s
        )

    def linear_s(self, decodes: float, prompt_tokens: float) -> float:
        """Bilinear; what was asked before is remembered."""
        asked = (decodes, prompt_tokens)
        known = self._linear.get(asked)
        if known is None:
            row, up = _place(self.decodes, decodes)
            column, right = _place(self.prompt_tokens, prompt_tokens)
            near, far = self.linear[row], self.linear[row + 1]
            low = (1 - right) * near[column] + right * near[column + 1]
            high = (1 - right) * far[column] + right * far[column + 1]
            known = self._linear[asked] = float((1 - up) * low + up * high)
        return known

    def context_s(self, decodes: float) -> float:
        """Linear between the listed numbers."""
        known = self._context.get(decodes)
        if known is None:
            row, up = _place(self.decodes, decodes)
            known = self._context[decodes] = float((1 - up) * self.context[row] + up * self.context[row + 1])
        return known


def _place(listed: Sequence[float], value: float) -> tuple[int, float]:
    """Index of the entry below, and how far it is to the next."""
    index = min(max(bisect.bisect_right(listed, value) - 1, 0), len(listed) - 2)
    return index, (value - listed[index]) / (listed[index + 1] - listed[index])
