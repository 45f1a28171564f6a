"""An exhaustive search in chunks that know nothing of each other, and what they leave, put together in any order.

A chunk is a range of blocks of a study. What it leaves is a portion; `merged(a, b)` is a portion again. Merging is
associative, commutative and idempotent: ties go to the address that one pass meets first, the edges of the histogram
are fixed before the first chunk, and counts are kept for each chunk, so that one that comes twice is counted once.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..._version import __version__
from ...core.pareto_tools import non_dominated_rows
from .stream import BINS, EDITION, Kept
from .sweep import Sweep

FIRST_LOOKS, LOOKS = 16, 64  # blocks that are looked at for the histogram's range: the first, and others evenly spread
NOTHING_SEEN = (-46.0, 46.0)  # its range where none of them has a feasible point: 1e-20 to 1e20


@dataclass(frozen=True, order=True)
class Chunk:
    """Blocks `first` to `first + blocks` of a study, which is named by a hash."""

    study: str
    first: int
    blocks: int

    @property
    def end(self) -> int:
        """The block after the last."""
        return self.first + self.blocks

    def __str__(self) -> str:
        """Blocks of the chunk, as text."""
        return f"blocks {self.first} to {self.end - 1}"


@dataclass(frozen=True)
class Portion:
    """Results of some chunks of a study.

    chunks: [n, 2] first block and blocks of each, in order; counts: [n, 2 + bins] points, feasible points and
    histogram of each; seconds: [n] that each took. front_block: block of each point of the front. The other arrays are
    those of `Kept`.
    """

    study: str
    keep: int
    chunks: np.ndarray
    counts: np.ndarray
    seconds: np.ndarray
    best: np.ndarray
    best_at: np.ndarray
    nearest: np.ndarray
    nearest_at: np.ndarray
    front: np.ndarray
    front_at: np.ndarray
    front_block: np.ndarray
    by_value: np.ndarray
    edges: np.ndarray

    @property
    def points(self) -> int:
        """Evaluated."""
        return int(self.counts[:, 0].sum())

    @property
    def least(self) -> float:
        """Log goal of the best point."""
        return float(self.best.min(initial=np.inf))

    def kept(self, plans: int) -> Kept:
        """Results in the form of one pass over the grid; `plans` in a block."""
        kept = Kept.empty(plans, len(self.by_value))
        kept.done, kept.feasible = np.asarray(self.chunks[:, 1].sum()), np.asarray(self.counts[:, 1].sum())
        for name in ("best", "best_at", "nearest", "nearest_at", "front", "front_at", "by_value", "edges"):
            setattr(kept, name, getattr(self, name))
        kept.histogram = self.counts[:, 2:].sum(axis=0)
        return kept


def study_of(sweep: Sweep) -> str:
    """The hash that chunks of a study are named by: what is searched, how it is cut, what is kept, by which edition."""
    words = (sweep.study, sweep.keep, EDITION, __version__)
    return hashlib.sha256(repr(words).encode()).hexdigest()


def merged(a: Portion, b: Portion) -> Portion:
    """Merge the results of two sets of chunks.

    Raises:
        ValueError: of two studies or two histograms, or chunks that overlap without being the same.
    """
    if (a.study, a.keep) != (b.study, b.keep) or not np.array_equal(a.edges, b.edges):
        raise ValueError("portions of two studies cannot be merged")
    chunks, first, same = np.unique(
        np.concatenate([a.chunks, b.chunks]), axis=0, return_index=True, return_inverse=True
    )
    if (chunks[:-1].sum(axis=1) > chunks[1:, 0]).any():
        raise ValueError("chunks that overlap would be counted twice")
    seconds = np.full(len(chunks), np.inf)
    np.minimum.at(seconds, same.ravel(), np.concatenate([a.seconds, b.seconds]))
    best, best_at = _least(a, b, "best")
    nearest, nearest_at = _least(a, b, "nearest")
    front, front_at, front_block = _front(a, b)
    return Portion(
        study=a.study, keep=a.keep, chunks=chunks, counts=np.concatenate([a.counts, b.counts])[first],
        seconds=seconds, best=best, best_at=best_at, nearest=nearest, nearest_at=nearest_at,
        front=front, front_at=front_at, front_block=front_block,
        by_value=np.minimum(a.by_value, b.by_value), edges=a.edges,
    )  # fmt: skip


def _least(a: Portion, b: Portion, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The best plans of both, each once, at its best level: the lowest where several are as good."""
    values = np.concatenate([getattr(a, name), getattr(b, name)])
    pairs = np.concatenate([getattr(a, f"{name}_at"), getattr(b, f"{name}_at")])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], values))
    _, met = np.unique(pairs[order, 0], return_index=True)
    order = order[np.sort(met)][: a.keep]
    return values[order], pairs[order]


def _front(a: Portion, b: Portion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The front of both fronts; of equal points the one that a single pass meets first."""
    values, pairs, block = (np.concatenate([getattr(x, name) for x in (a, b)])
                            for name in ("front", "front_at", "front_block"))  # fmt: skip
    order = np.lexsort((pairs[:, 1], pairs[:, 0], block))
    order = order[non_dominated_rows(values[order])]
    return values[order], pairs[order], block[order]


class Gathering:
    """Portions put together as they come: each is merged with one of its size, so that none is copied often."""

    def __init__(self, portions: Iterable[Portion] = ()):
        self._heaps: list[Portion] = []
        self.points, self.least = 0, np.inf
        for portion in portions:
            self.take(portion)

    def take(self, portion: Portion) -> None:
        """One more, of chunks that are not in it yet."""
        self.points, self.least = self.points + portion.points, min(self.least, portion.least)
        while self._heaps and len(self._heaps[-1].chunks) <= len(portion.chunks):
            portion = merged(self._heaps.pop(), portion)
        self._heaps.append(portion)

    def whole(self) -> Portion | None:
        """Merged results of all chunks so far; None if there are none."""
        while len(self._heaps) > 1:
            self._heaps.append(merged(self._heaps.pop(), self._heaps.pop()))
        return self._heaps[0] if self._heaps else None


def edges_of(sweep: Sweep) -> np.ndarray:
    """Edges of the histogram: those of one pass where a block near the beginning has a feasible point.

    Else of the first feasible block among some that are evenly spread; a range that holds anything where there is none.
    """
    total = sweep.block_count
    spread = np.linspace(0, total - 1, LOOKS).astype(int).tolist()
    for number in dict.fromkeys([*range(min(FIRST_LOOKS, total)), *spread]):
        kept = sweep.fresh()
        sweep.take(kept, sweep.evaluated(*sweep.block_at(number)))
        if len(kept.edges):
            return kept.edges
    return np.linspace(*NOTHING_SEEN, BINS + 1)


def cut(study: str, gaps: Sequence[tuple[int, int]], size: int) -> list[Chunk]:
    """Chunks of at most so many blocks that cover ranges [first, end) of blocks."""
    return [
        Chunk(study, first, min(size, end - first)) for start, end in gaps for first in range(start, end, size)
    ]  # fmt: skip


def run(sweep: Sweep, chunk: Chunk, edges: np.ndarray) -> Portion:
    """Evaluate the blocks of a chunk, one after the other."""
    start, points, kept, plan = time.perf_counter(), 0, sweep.fresh(), np.zeros(0, np.int64)
    kept.edges = edges
    for number in range(chunk.first, chunk.end):
        plan, level = sweep.block_at(number)
        sweep.take(kept, sweep.evaluated(plan, level))
        points += len(plan) * len(level)
    kept.finish_plans(plan, sweep.keep)  # nothing is left of them where the last block had their last levels
    return Portion(
        study=chunk.study, keep=sweep.keep, chunks=np.array([[chunk.first, chunk.blocks]]),
        counts=np.array([[points, int(kept.feasible), *kept.histogram]]),
        seconds=np.array([time.perf_counter() - start]),
        best=kept.best, best_at=kept.best_at, nearest=kept.nearest, nearest_at=kept.nearest_at,
        front=kept.front, front_at=kept.front_at, front_block=sweep.block_of(kept.front_at),
        by_value=kept.by_value, edges=edges,
    )  # fmt: skip
