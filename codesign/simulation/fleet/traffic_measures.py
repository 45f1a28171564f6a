"""Measures of a stream of requests, all that closed forms take from a trace: rate, burstiness, lengths, reuse.

The age of a block when a request comes is counted in blocks asked for since it was last used, since that is what a
cache that throws out the longest unused ages by; and what such a cache of C blocks holds at any time are the C blocks
of the least age.
"""

from dataclasses import dataclass

import numpy as np

from ..serving.requests import Requests

__all__ = ["Reuse", "dispersion", "reuse_of", "traffic_measures"]

WINDOW_S = 60.0  # that counts are compared over


@dataclass(frozen=True)
class Reuse:
    """Blocks asked for one after the other, those of a prompt the last first, as a cache ages them.

    begins: where its prompt begins, of each use of a block; before: where the block was used before, -1 if never.
    """

    begins: np.ndarray
    before: np.ndarray

    @property
    def ages(self) -> np.ndarray:
        """Age of each block when its request comes, infinite where it is new."""
        return np.where(self.before >= 0, self.begins - self.before, np.inf)

    @property
    def blocks(self) -> int:
        """Different blocks."""
        return int((self.before < 0).sum())

    def held(self, place: int) -> np.ndarray:
        """Ages of all blocks that were used by then, the last used first."""
        again = np.zeros(place, bool)
        used = self.before[:place]
        again[used[used >= 0]] = True
        return place - np.flatnonzero(~again)[::-1]


def reuse_of(requests: Requests) -> Reuse:
    """Reuse of the blocks of prompts."""
    sizes = np.diff(requests.hash_starts)
    begins = np.repeat(requests.hash_starts[:-1], sizes)
    count = len(begins)
    order = np.repeat(requests.hash_starts[1:] - 1, sizes) + begins - np.arange(count)
    blocks = requests.hashes[order]
    by_block = np.argsort(blocks, kind="stable")
    same = np.diff(blocks[by_block]) == 0
    before = np.full(count, -1)
    before[by_block[1:][same]] = by_block[:-1][same]
    return Reuse(begins, before)


def dispersion(arrivals: np.ndarray, window_s: float = WINDOW_S) -> float:
    """Variance of the requests in a window over their mean: 1 of a Poisson stream; nan of fewer than ten windows."""
    windows = int(np.ptp(arrivals) // window_s)
    if windows < 10:
        return float("nan")
    counts = np.histogram(arrivals - arrivals[0], windows, (0.0, windows * window_s))[0]
    return float(counts.var() / counts.mean())


def traffic_measures(requests: Requests) -> dict[str, float]:
    """Numbers of a stream by name, those that are not known left out."""
    prompts, outputs = requests.prompts * 1.0, requests.outputs * 1.0
    result: dict[str, float] = {"requests": float(len(requests))}
    if requests.arrivals is not None and np.ptp(requests.arrivals) > 0:
        gaps = np.diff(requests.arrivals)
        result |= {"requests_per_s": 1 / float(gaps.mean()), "arrival_cv": float(gaps.std() / gaps.mean())}
        result["dispersion"] = dispersion(requests.arrivals)
    for name, values in (("input_tokens", prompts), ("output_tokens", outputs)):
        result |= {name: float(values.mean()), f"{name}_cv": float(values.std() / values.mean())}
        result[f"{name}_p99"] = float(np.percentile(values, 99))
    if len(requests.class_names):
        result["classes"] = float(len(requests.class_names))
    if len(requests.sessions):
        result["sessions"] = float(len(np.unique(requests.sessions)))
        result["turns"] = len(requests) / result["sessions"]
    if requests.hashed and len(requests.hashes):
        reuse = reuse_of(requests)
        ages = reuse.ages[reuse.before >= 0]
        result |= {
            "reused_ratio": len(ages) * requests.hash_tokens / float(prompts.sum()),
            "working_set_tokens": float(reuse.blocks) * requests.hash_tokens,
        }
        if len(ages):
            result["reuse_age_p50"] = float(np.median(ages)) * requests.hash_tokens
    return {name: value for name, value in result.items() if np.isfinite(value)}
