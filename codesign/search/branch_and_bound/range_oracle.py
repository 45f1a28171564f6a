"""Plans bounded by ranges, where nothing but the plan varies: groups that set some fields and leave the others open.

Fields are set in one order. A group is a legal choice of the first of them, and stands for every legal plan that begins
so; each row of it is the least that its tables and interval arithmetic allow over the fields left open
(`staging.ranges`). Groups that may hold the optimum are split by their next field, down to single plans, which are
evaluated. Legal plans are counted, drawn and followed by their rules, and never listed.

Source: interval extensions, [moore1966]; see docs/optimisation.md, section 4.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ...curvature import Judgement, judge
from ...model.scenario import Scenario
from ...staging import PlanRanges
from ...study.feasible_plans import Rules
from ..base import Problem
from .model_oracle import LOWEST, AbstractModelOracle, Oracle
from .oracle import Rows, Tangents, relayed

SAMPLE = 4096  # legal plans by which fields are ordered
HIGHEST = -LOWEST  # log that stands in for infinity
NEARBY = 4  # of a long list, values on either side of one that count as its neighbours
LONG = 16  # values of a long list


class RangeOracle(AbstractModelOracle):
    """Numbers stand for groups of plans and for single plans, given out as they are asked for.

    Args:
        problem, rows, block: as of `Oracle`; no hardware varies.
        seed: of the plans by which fields are ordered.

    Raises:
        TooManyPlans: legal plans cannot be counted.
        ConfigError: no plan is legal.
    """

    def __init__(self, problem: Problem, rows: Rows, block: int = 512, seed: int = 0):
        space, scenario = problem.space, problem.scenario
        assert not space.names
        lists = {name: np.unique(values) for name, values in space.lists.items()}
        tables = Rules(lists, scenario).tables
        self.problem, self.fields = problem, tuple(lists)
        self.lists = {
            name: each[some] for (name, each), some in zip(lists.items(), tables.possible_values, strict=True)
        }
        some = space.legal_sample(scenario, SAMPLE, seed)
        self.model = Oracle(problem, rows, block, plans=dict(zip(space.plan, some.T, strict=True)))
        self.names = self.model.names
        result = self.model.evaluate(some, np.empty((len(some), 0)), 1.0, slopes=False)
        ruled = sorted({field for fields, _ in tables.rules for field in fields if len(fields) > 1})
        free = [field for field in range(len(lists)) if field not in ruled]
        self.order = _ordered(_ordered([], ruled, some, result.exact), free, some, result.exact)
        self._left = tables.completions(self.order)
        self.plans = math.prod(int(table) for _, table in self._left[0])
        self.ranges = PlanRanges(self.model.program, scenario, self.lists, tables.rules)
        self.codes = np.zeros((1, len(lists)), dtype=np.int16)
        self.depth, self._parent = np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.int64)
        self._first_child, self._children = np.full(1, -1), np.zeros(1, dtype=int)
        self._singles: dict[bytes, int] = {}
        self._roots = self.split(np.zeros(1, dtype=int))[0]

    evaluated: Any = relayed("model", "evaluated")

    @property
    def bounds(self) -> bool:
        """True if groups that leave one field open have a goal that is bounded, as where no loop is in the way."""
        some = self.sample(np.random.default_rng(0), 64)
        low = self._least(some, len(self.fields) - 1)
        return bool(np.isfinite(low[:, 0]).mean() > 0.5)

    def _least(self, plan: np.ndarray, depth: int) -> Float[np.ndarray, "k rows"]:
        """Least of each row over the plans that begin as these do."""
        return self.ranges.least(self.codes[plan].astype(np.int64), frozenset(self.order[depth:]))

    @property
    def count(self) -> int:
        """Numbers given out so far."""
        return len(self.depth)

    @property
    def plan_count(self) -> int:
        """Legal plans."""
        return self.plans

    @property
    def roots(self) -> np.ndarray:
        """One group for each value of the first field."""
        return self._roots

    @property
    def parents(self) -> np.ndarray:
        """The group that each number came out of; of a plan listed before that, the one of all plans."""
        return self._parent

    @property
    def divided(self) -> np.ndarray:
        """Groups whose parts are listed."""
        return np.flatnonzero(self._first_child >= 0)

    def single(self, plan: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
        """Mask of the numbers that stand for one plan."""
        return self.depth[plan] == len(self.fields)

    def weight(self, plan: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
        """Legal plans under each number."""
        plan = np.asarray(plan)
        result = np.ones(len(plan), dtype=np.int64)
        for depth in np.unique(self.depth[plan]).tolist():
            here = np.flatnonzero(self.depth[plan] == depth)
            result[here] = self._completions(self.codes[plan[here]].astype(np.int64), depth)
        return result

    def _completions(self, codes: np.ndarray, depth: int) -> Int[np.ndarray, " k"]:
        """Legal plans that begin with these values of the first fields."""
        result = np.ones(len(codes), dtype=np.int64)
        for fields, table in self._left[depth]:
            result *= table[tuple(codes[:, field] for field in fields)] if fields else table
        return result

    def split(self, plan: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
        """(parts, position in `plan` of each one's group): one for each value of the next field that is legal."""
        plan = np.asarray(plan)
        for depth in np.unique(self.depth[plan]).tolist():
            fresh = np.unique(plan[(self.depth[plan] == depth) & (self._first_child[plan] < 0)])
            if depth < len(self.fields) and len(fresh):
                self._list_parts(fresh, depth)
        counts = self._children[plan]
        parent = np.repeat(np.arange(len(plan)), counts)
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._settled(self._first_child[plan[parent]] + offset), parent

    def _list_parts(self, group: np.ndarray, depth: int) -> None:
        field = self.order[depth]
        size = len(self.lists[self.fields[field]])
        codes = np.repeat(self.codes[group], size, axis=0)
        codes[:, field] = np.tile(np.arange(size), len(group))
        legal = self._completions(codes.astype(np.int64), depth + 1) > 0
        counts = legal.reshape(len(group), size).sum(axis=1)
        first = self._append(codes[legal], depth + 1, np.repeat(group, counts))
        self._first_child[group], self._children[group] = first + np.cumsum(counts) - counts, counts

    def _append(self, codes: np.ndarray, depth: int, parent: np.ndarray) -> int:
        first, new = self.count, len(codes)
        self.codes = np.concatenate([self.codes, codes.astype(np.int16)])
        self.depth = np.concatenate([self.depth, np.full(new, depth, dtype=np.int8)])
        self._parent = np.concatenate([self._parent, parent])
        self._first_child = np.concatenate([self._first_child, np.full(new, -1)])
        self._children = np.concatenate([self._children, np.zeros(new, dtype=int)])
        return first

    def _settled(self, part: np.ndarray) -> np.ndarray:
        """The numbers that these parts are known by: a plan listed before keeps its first one."""
        single = np.flatnonzero(self.single(part))
        if len(single) == 0:
            return part
        part = part.copy()
        for at in single.tolist():
            number = int(part[at])
            listed = self._singles.setdefault(self.codes[number].tobytes(), number)
            if listed != number:
                part[at], self._parent[listed] = listed, self._parent[number]
        return part

    def _listed(self, codes: Int[np.ndarray, "k fields"]) -> Int[np.ndarray, " k"]:
        """Numbers of single plans."""
        codes = codes.astype(np.int16)
        keys = [row.tobytes() for row in codes]
        fresh = {key: at for at, key in enumerate(keys) if key not in self._singles}
        first = self._append(codes[list(fresh.values())], len(self.fields), np.zeros(len(fresh), dtype=np.int64))
        self._singles.update(zip(fresh, range(first, first + len(fresh)), strict=True))
        return np.array([self._singles[key] for key in keys], dtype=int)

    def sample(self, rng: np.random.Generator, most: int) -> Int[np.ndarray, " k"]:
        """Numbers of so many random legal plans, each once."""
        left = np.unique(rng.integers(0, self.plans, most)) if self.plans > most else np.arange(self.plans)
        codes = np.zeros((len(left), len(self.fields)), dtype=np.int64)
        for depth, field in enumerate(self.order, start=1):
            chosen, open_ = np.zeros(len(left), dtype=np.int64), np.ones(len(left), dtype=bool)
            for value in range(len(self.lists[self.fields[field]])):
                codes[:, field] = value
                below = self._completions(codes, depth)
                here = open_ & (left < below)
                chosen[here], open_ = value, open_ & ~here
                left = np.where(open_, left - below, left)
            codes[:, field] = chosen
        return np.sort(self._listed(codes))

    def near(self, plan: int, changes: int) -> Int[np.ndarray, " k"]:
        """Numbers of the legal plans that differ from one in at most so many fields, in long lists by few places."""
        base = self.codes[plan].astype(np.int64)
        rows, changed = base[None], np.zeros(1, dtype=int)
        for field, name in enumerate(self.fields):
            size, at = len(self.lists[name]), int(base[field])
            first, last = (max(at - NEARBY, 0), min(at + NEARBY + 1, size)) if size > LONG else (0, size)
            others = np.array([index for index in range(first, last) if index != at], dtype=np.int64)
            some = changed < changes
            moved = np.repeat(rows[some], len(others), axis=0)
            moved[:, field] = np.tile(others, int(some.sum()))
            changed = np.concatenate([changed, np.repeat(changed[some] + 1, len(others))])
            rows = np.concatenate([rows, moved])
        return np.unique(self._listed(rows[self._completions(rows, len(self.fields)) > 0]))

    def ends(self, plan: Int[np.ndarray, " k"]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(first, last) values of each field that plans of these numbers may have."""
        first, last = dict[str, np.ndarray](), dict[str, np.ndarray]()
        for position, field in enumerate(self.order):
            name = self.fields[field]
            values, all_values = self.lists[name], np.unique(self.problem.space.lists[name])
            opened, chosen = self.depth[plan] <= position, values[self.codes[plan, field]]
            first[name], last[name] = np.where(opened, all_values[0], chosen), np.where(opened, all_values[-1], chosen)
        return first, last

    def columns(self, plan: Int[np.ndarray, " k"]) -> dict[str, np.ndarray]:
        """Fields of single plans; of groups, the first value of what is open."""
        return {name: self.ends(plan)[0][name] for name in self.fields}

    def _table(self, plan: np.ndarray) -> Float[np.ndarray, "k fields"]:
        return np.stack([self.lists[n][self.codes[plan, i]] for i, n in enumerate(self.fields)], axis=-1)

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float, scenario: Scenario | None = None
    ) -> Tangents:
        """Rows, which are their own bounds; of a group, rows that no plan of it may have all at once."""
        exact, broken = self.values(plan, u, scenario)
        return Tangents(exact, np.clip(np.nan_to_num(exact, nan=LOWEST), LOWEST, HIGHEST)[..., None], broken)

    def values(
        self, plan: np.ndarray, u: np.ndarray, scenario: Scenario | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows alone; of a group as in `tangents`."""
        assert scenario is None
        plan = np.asarray(plan)
        exact, broken = np.empty((len(plan), len(self.names))), np.zeros(len(plan))
        depths = self.depth[plan]
        for depth in np.unique(depths).tolist():
            here = np.flatnonzero(depths == depth)
            if depth == len(self.fields):
                result = self.model.evaluate(self._table(plan[here]), u[here], 1.0, slopes=False)
                exact[here], broken[here] = result.exact, result.broken
                continue
            self.model.evaluated += len(here)
            exact[here] = np.clip(self._least(plan[here], depth), LOWEST, HIGHEST)
        return exact, broken

    def judged(
        self, held: Mapping[str, Sequence[float]] | None = None, scenarios: Sequence[Scenario] = ()
    ) -> Judgement:
        """The rows of all plans, legal or not."""
        return judge(self.model.program, scenarios or [self.problem.scenario], {}, self.lists, held, ())


def _ordered(first: list[int], fields: list[int], plans: np.ndarray, rows: np.ndarray) -> list[int]:
    """Fields in the order in which groups set them, behind these: next is what leaves least of the goal open.

    What rules join comes before what is free, since most that follows from it follows from all of it.
    """
    finite = np.isfinite(rows[:, 0])
    plans, goal, result = plans[finite], rows[finite, 0], list(first)

    def groups_of(some: Sequence[int]) -> np.ndarray:
        return np.unique(plans[:, some], axis=0, return_inverse=True)[1].reshape(-1)

    def left(field: int) -> float:
        group = groups_of([*result, field])
        counts = np.bincount(group)
        mean = np.bincount(group, goal) / counts
        return float(((goal - mean[group]) ** 2).sum() / max(len(goal) - len(counts), 1))

    while len(result) < len(first) + len(fields):
        result.append(min((each for each in fields if each not in result), key=left))
    return result
