"""Running state of an exhaustive search over streaming points: a few arrays, however many points there are."""

import copy
import hashlib
from dataclasses import dataclass, fields
from pathlib import Path

import jax
import numpy as np

from ...core.atomic_files import writing
from ...core.errors import ConfigError
from ...core.jax_typed import structure
from ...core.pareto_tools import non_dominated_rows
from ...core.untrusted_io import checksum, read_arrays
from ...study.objective import feasible
from ..base import Problem

BINS = 64  # of the histogram: bars that a page of its width shows apart
EDITION = "2"  # of the saved state: what another edition left is not continued
LOOKS = 8  # designs of the front that points are held against before the front as a whole


@dataclass
class Block:
    """One evaluated block: plans x levels.

    plan, level: numbers of the rows and columns; goal: log; excess: largest violation; front: the two quantities of the
    Pareto front.
    """

    plan: np.ndarray
    level: np.ndarray
    goal: np.ndarray
    excess: np.ndarray
    front: tuple[np.ndarray, np.ndarray]


@dataclass
class Kept:
    """The state of a streaming search; points are addressed by (plan, level), so no count overflows.

    best, level: of the `keep` best plans so far, least first (log goal of the best feasible level); nearest likewise by
    violation, for spaces without a feasible point. row: best goal (and nearest) of the plans under way. by_value: best
    goal at each value of each variable, one after the other. edges, histogram: of the log goal of feasible points.
    """

    done: np.ndarray  # blocks
    feasible: np.ndarray
    best: np.ndarray
    best_at: np.ndarray  # [k, 2] plan, level
    nearest: np.ndarray
    nearest_at: np.ndarray
    row: np.ndarray  # [plans of a block, 4] goal, level; excess, level
    front: np.ndarray
    front_at: np.ndarray
    by_value: np.ndarray
    edges: np.ndarray
    histogram: np.ndarray

    @property
    def least(self) -> float:
        """Log goal of the best point so far."""
        return float(min(self.best.min(initial=np.inf), self.row[:, 0].min(initial=np.inf)))

    @classmethod
    def empty(cls, plans: int, values: int) -> "Kept":
        """Nothing seen; `plans` in a block, `values` of all variables together."""
        pairs, none = np.zeros((0, 2), dtype=np.int64), np.zeros(0)
        return cls(
            done=np.zeros((), np.int64), feasible=np.zeros((), np.int64),
            best=none, best_at=pairs, nearest=none, nearest_at=pairs,
            row=_fresh_rows(plans), front=np.zeros((0, 2)), front_at=pairs,
            by_value=np.full(values, np.inf), edges=none, histogram=np.zeros(BINS, np.int64),
        )  # fmt: skip

    def save(self, path: Path, study: str) -> None:
        """Whole or not at all."""
        arrays = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        words = {"edition": EDITION, "study": study, "checksum": checksum(arrays)}
        with writing(path) as file:
            np.savez(file, allow_pickle=False, **{name: np.array(word) for name, word in words.items()}, **arrays)

    @classmethod
    def load(cls, path: Path, study: str) -> "Kept":
        """Load the state that another run left.

        Raises:
            ConfigError: no such file, damaged, or one of another study or edition of this package.
        """
        cls.check(path)
        what, names = f"search.resume: {str(path)!r}", [f.name for f in fields(cls)]
        result = read_arrays(path, what, ("edition", "study", "checksum", *names))
        if str(result["edition"]) != EDITION:
            raise ConfigError(f"{what} is of another edition of this package: begin the search anew")
        if str(result["study"]) != study:
            raise ConfigError(f"{what} is of another study: repeat the overrides of that run")
        arrays = {name: result[name] for name in names}
        if str(result["checksum"]) != checksum(arrays):
            raise ConfigError(f"{what} is damaged: its checksum is not that of its numbers; begin the search anew")
        return cls(**arrays)

    @staticmethod
    def check(path: Path) -> None:
        """Refuse a state that is not there.

        Raises:
            ConfigError: no such file.
        """
        if not path.is_file():
            raise ConfigError(f"search.resume: {str(path)!r} does not exist: name the folder of an interrupted run")

    def take(self, block: Block, plan_values: np.ndarray, level_values: np.ndarray, keep: int) -> None:
        """Learn from one block.

        Args:
            block: what was evaluated.
            plan_values: [plans, plan variables] places in `by_value`.
            level_values: [levels, hardware variables] likewise.
            keep: plans that are kept in the end.
        """
        ok = feasible(block.excess) & np.isfinite(block.goal)
        score = np.where(ok, block.goal, np.inf)
        self.feasible = self.feasible + int(ok.sum())
        self._rows(block, score, keep)
        self._by_value(score, plan_values, level_values)
        at = np.nonzero(ok)
        if len(at[0]):
            self._histogram(score[at])
            self._front(block, at)
        self.done = self.done + 1

    def _rows(self, block: Block, score: np.ndarray, keep: int) -> None:
        """The best level of each plan of the block that may be among those kept, over all blocks of levels."""
        rows = self.row[: len(block.plan)]
        excess = np.where(np.isnan(block.excess), np.inf, block.excess)
        for first, values, best in ((0, score, self.best), (2, excess, self.nearest)):
            least = values.min(axis=1)
            limit = best[-1] if len(best) >= keep else np.inf
            better = np.flatnonzero((least < rows[:, first]) & (least < limit))
            level = values[better].argmin(axis=1)
            rows[better, first], rows[better, first + 1] = least[better], block.level[level]

    def finish_plans(self, plan: np.ndarray, keep: int) -> None:
        """All levels of these plans have been seen: the best plans so far."""
        rows = self.row[: len(plan)]
        for first, name in ((0, "best"), (2, "nearest")):
            result = np.isfinite(rows[:, first])
            values = np.concatenate([getattr(self, name), rows[result, first]])
            pairs = np.stack([plan[result], rows[result, first + 1].astype(np.int64)], axis=-1)
            pairs = np.concatenate([getattr(self, f"{name}_at"), pairs])
            order = np.lexsort((pairs[:, 1], pairs[:, 0], values))[:keep]
            setattr(self, name, values[order])
            setattr(self, f"{name}_at", pairs[order])
        self.row = _fresh_rows(len(self.row))

    def _by_value(self, score: np.ndarray, plan_values: np.ndarray, level_values: np.ndarray) -> None:
        for places, least in ((plan_values, score.min(axis=1)), (level_values, score.min(axis=0))):
            for column in places.T:
                np.minimum.at(self.by_value, column, least)

    def _histogram(self, values: np.ndarray) -> None:
        """The first block with feasible points sets the range, with room on both sides."""
        if len(self.edges) == 0:
            self.edges = np.linspace(float(values.min()) - 1.0, float(values.max()) + 1.0, BINS + 1)
        place = (values - self.edges[0]) * (BINS / (self.edges[-1] - self.edges[0]))
        bins = np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)
        self.histogram = self.histogram + bins

    def _front(self, block: Block, at: tuple[np.ndarray, ...]) -> None:
        first, second = (part[at] for part in block.front)
        open_ = np.ones(len(first), dtype=bool)
        for a, b in self.front[:: max(1, len(self.front) // LOOKS)]:  # most points are beaten by one of a few
            open_ &= (first < a) | (second < b)
        values = np.stack([first[open_], second[open_]], axis=-1)
        pairs = np.stack([block.plan[at[0][open_]], block.level[at[1][open_]]], axis=-1)
        own = non_dominated_rows(values)
        values, pairs = np.concatenate([self.front, values[own]]), np.concatenate([self.front_at, pairs[own]])
        keep = non_dominated_rows(values)
        self.front, self.front_at = values[keep], pairs[keep]

    def copied(self) -> "Kept":
        """Copy with arrays of its own for all that changes in place."""
        other = copy.copy(self)
        other.row, other.by_value = self.row.copy(), self.by_value.copy()
        return other


def _fresh_rows(count: int) -> np.ndarray:
    rows = np.full((count, 4), np.inf)
    rows[:, 1::2] = 0
    return rows


def fingerprint(
    problem: Problem, plans: dict[str, np.ndarray], levels: list[np.ndarray], block: tuple[int, int]
) -> str:
    """A study and the way it is cut into blocks, as a hash: state of one must not be continued in another."""
    digest = hashlib.sha256()
    objective = problem.objective
    words = (objective.minimise, objective.maximise, sorted(objective.limits.items()), sorted(objective.floors.items()))
    parts = (words, sorted(problem.space.hardware.items()), sorted(plans), block, structure(problem.scenario))
    digest.update(repr(parts).encode())
    for array in (*(plans[name] for name in sorted(plans)), *levels, *jax.tree.leaves(problem.scenario)):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
