"""Bound that no scheduler beats on an engine whose steps are tabulated: a linear programme over kinds of steps.

Whatever the order in which requests are served, a second has y steps of each kind (b decodes, q prompt tokens, t
seconds each), and the sequences that decode at a time are the sum of y t b. So the mean time of a token is at least

    min  sum y t b / (lambda L)    with  sum y b = lambda L,  sum y q = lambda I,  sum y t <= 1,  y >= 0

by Little's law, and the requests a second that an engine sustains are at most the largest lambda for which such y are.
Between listed prompt tokens a step is a mixture of two kinds, at the same number of decodes; where numbers of decodes
are not listed one by one, the step of a group is as short as that of its smallest and carries what its largest does.
No step need be convex, and nothing is assumed of lengths or arrivals beyond their means.

Assumes: steps with many decodes read no shorter contexts and attend no fewer keys than others, on average.
"""

from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from .engine import TabulatedSteps
from .requests import Requests

__all__ = ["MeanRequest", "least_token_s", "mean_request", "most_rate"]

SINGLE = 192  # numbers of decodes that are kinds of their own
GROUPS = 80  # of more


@dataclass(frozen=True)
class MeanRequest:
    """Means of requests: decode steps, prompt tokens computed, contexts of a decode, keys of a prompt token.

    `most` is how many sequences may decode together.
    """

    steps: float
    prompt_tokens: float
    context: float
    keys: float
    most: int

    def kinds(self, times: TabulatedSteps) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Decodes as they count for tokens and as they count for time, prompt tokens and seconds of each kind."""
        few, most = self._groups()
        tokens = np.unique(np.asarray(times.prompt_tokens, float))
        rows = np.array([[times.linear_s(float(b), float(q)) for q in tokens] for b in few])
        reading = np.array([times.context_s(float(b)) for b in few]) * few * self.context
        seconds = rows + reading[:, None] + times.pair_s * tokens * self.keys
        shape = np.broadcast_arrays(most[:, None], few[:, None], tokens[None, :], seconds)
        by_tokens, by_time, prompts, each_s = (part.ravel() for part in shape)
        return by_tokens, by_time, prompts, each_s

    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest of each group of numbers of decodes."""
        single = np.arange(0.0, min(self.most, SINGLE) + 1)
        if self.most <= SINGLE:
            return single, single
        edges = np.unique(np.rint(np.geomspace(SINGLE + 1, self.most + 1, GROUPS)))
        return np.concatenate([single, edges[:-1]]), np.concatenate([single, edges[1:] - 1])


def mean_request(requests: Requests, most: int, cached_tokens: float = 0.0) -> MeanRequest:
    """Means of requests as they are, each token of an answer and of a prompt counted once.

    Args:
        requests: one by one.
        most: sequences that may decode together.
        cached_tokens: of each prompt, which nobody computes.
    """
    prompts, steps = requests.prompts.astype(float), requests.outputs.astype(float) - 1
    computed = np.maximum(prompts - cached_tokens, 1.0)
    context = (prompts * steps + 0.5 * steps * (steps - 1)).sum() / max(steps.sum(), 1.0)
    keys = (computed * (prompts - computed) + 0.5 * computed**2).sum() / computed.sum()
    return MeanRequest(float(steps.mean()), float(computed.mean()), float(context), float(keys), max(most, 1))


def least_token_s(times: TabulatedSteps, request: MeanRequest, rate: float) -> float:
    """Seconds that a token takes at least, mean over all tokens, at `rate` requests/s; infinite beyond the most."""
    tokens, decodes, prompts, seconds = request.kinds(times)
    want = np.array([rate * request.steps, rate * request.prompt_tokens])
    result = scipy.optimize.linprog(
        seconds * decodes / want[0], A_ub=seconds[None], b_ub=[1.0], A_eq=np.stack([tokens, prompts]), b_eq=want
    )
    return float(result.fun) if result.status == 0 else float("inf")


def most_rate(times: TabulatedSteps, request: MeanRequest, token_s: float = float("inf")) -> float:
    """Requests/s at most, where a token takes `token_s` on average or less."""
    tokens, decodes, prompts, seconds = request.kinds(times)
    rows, bounds = [np.append(seconds, 0.0)], [1.0]
    if np.isfinite(token_s):
        rows.append(np.append(seconds * decodes, -request.steps * token_s))
        bounds.append(0.0)
    equal = scipy.sparse.csr_array(
        np.stack([np.append(tokens, -request.steps), np.append(prompts, -request.prompt_tokens)])
    )
    cost = np.append(np.zeros(len(seconds)), -1.0)
    result = scipy.optimize.linprog(cost, A_ub=np.stack(rows), b_ub=bounds, A_eq=equal, b_eq=np.zeros(2))
    return float(-result.fun) if result.status == 0 else 0.0
