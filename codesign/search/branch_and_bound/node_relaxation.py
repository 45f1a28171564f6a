"""Plans bounded by groups: what a search asks of a model whose plans are too many to be asked one by one.

A group stands for all plans that agree but for a range of values in fields that every row orders (`orders`). Each row
of the group is the model's at the value that is best for this row, so it lies below that of every plan of the group,
and its tangents bound all of them. Groups that may hold the optimum are split until they are single plans.

Source: see docs/optimisation.md, section 4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.fields import replace
from ...curvature import Judgement, judge
from ...model.scenario import Scenario
from ...staging import distinct_plans, fields_without_rules
from ...study.design_space import MOST_LISTED, DesignSpace
from ..base import Problem
from .dominance import FEW, NEVER_OPEN, SAMPLES, Order, effects, find_orders, order_of, views
from .model_oracle import AbstractModelOracle, Oracle
from .node_tree import PlanTree
from .oracle import Rows, Tangents, relayed

WORTH_GROUPING = 20_000  # combinations below which every plan is bounded by itself
MOST_ROOTS = 1_000_000  # combinations of ungrouped fields up to which orders must be proven to be used
TRIED = 200_000  # legal plans that are tried where not even the groups can be listed


def oracle_for(problem: Problem, rows: Rows, block: int, seed: int = 0) -> AbstractModelOracle:
    """An oracle over all legal plans, in groups where they are many.

    Raises:
        ConfigError: no plan is legal.
    """
    if problem.space.combinations < WORTH_GROUPING:
        return Oracle(problem, rows, block)
    return GroupOracle(problem, rows, block, seed)


class GroupOracle(AbstractModelOracle):
    """Numbers stand for plans and for groups of plans, given out as they are asked for.

    Args:
        problem, rows, block: as of `Oracle`.
        seed: of the plans on which orders are tested.

    `model` answers for plans given by the values of their fields.
    """

    def __init__(self, problem: Problem, rows: Rows, block: int = 512, seed: int = 0):
        space, scenario = problem.space, problem.scenario
        some = space.legal_sample(scenario, 4096, seed)
        self.problem = problem
        self.model = Oracle(problem, rows, block, plans=dict(zip(space.plan, some.T, strict=True)))
        self.names = self.model.names
        lists = {name: np.unique(values) for name, values in space.lists.items()}
        legal_with_all = fields_without_rules(self.model.program, scenario)
        free = [n for n in lists if len(lists[n]) > 1 and n not in NEVER_OPEN and n in legal_with_all]
        self._free = {name: lists[name] for name in free}
        self._judgement: Judgement | None = None
        self._listed, self.doubt = self._outer(free, some)
        self.orders = self._orders(some, seed)
        inner = list(self.orders)
        self.views = views(list(self.orders.values()), len(self.names))
        outer, rest = self._listed, {name: values for name, values in self._free.items() if name not in inner}
        table = crossed([outer[name] for name in lists if name in outer], list(rest.values()))
        order = [*(name for name in lists if name in outer), *rest]
        columns = [order.index(name) for name in lists if name not in inner]
        effect = [self.orders[name].effect for name in inner]
        self.tree = PlanTree(lists, table[:, columns], inner, effect)

    def _outer(self, free: list[str], some: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        """Legal combinations of the other fields, and why these are not all of them."""
        space, scenario = self.problem.space, self.problem.scenario
        outer = DesignSpace({name: values for name, values in space.plan.items() if name not in free})
        if outer.combinations <= MOST_LISTED:
            fixed = replace(scenario, {f"plan.{name}": float(values[0]) for name, values in self._free.items()})
            legal = outer.plans(fixed) if outer.plan else {}
            return distinct_plans([scenario], space, legal, self._free), ""
        plans = space.legal_sample(scenario, TRIED)
        kept = [i for i, name in enumerate(space.plan) if name not in free]
        table = np.unique(plans[:, kept], axis=0)
        count = len(table) * int(np.prod([len(values) for values in self._free.values()], dtype=float))
        why = f"{space.combinations:,} combinations of plan values are too many to bound; {count:,} plans were searched"
        return dict(zip(outer.plan, table.T, strict=True)), why

    def _orders(self, some: np.ndarray, seed: int) -> dict[str, Order]:
        """Fields that every row orders: proven by the walk; tested ones as well where plans are too many without.

        Without hardware variables there is nothing else to prove: fields that designs contradict are not walked for.
        """
        lists = {name: np.unique(values) for name, values in self.problem.space.lists.items()}
        width, result = len(self.variables), dict[str, Order]()
        if width or find_orders(lists, some, width, self._ask, seed, list(self._free), FEW):
            judgement = self.judged()
            proven = {name: order_of(judgement, self.names, name, values) for name, values in self._free.items()}
            result = {name: order for name, order in proven.items() if order is not None}
        left = [name for name in self._free if name not in result]
        roots = len(next(iter(self._listed.values()), [0])) * np.prod([len(self._free[n]) for n in left], dtype=float)
        if roots > MOST_ROOTS:
            tested = find_orders(lists, some, width, self._ask, seed, left)
            result |= tested
            if tested and not self.doubt:
                self.doubt = f"the order of {', '.join(tested)} was tested on {SAMPLES} designs, not proven"
        size = effects(lists, some, width, self._ask, seed, list(result))
        return {name: order._replace(effect=size[name]) for name, order in result.items()}

    def judged(
        self,
        held: Mapping[str, Sequence[float]] | None = None,
        scenarios: Sequence[Scenario] = (),
        ordered: Sequence[str] = (),
    ) -> Judgement:
        """The rows of all plans, listed and free fields; of the problem itself walked once, when first asked for."""
        if not held and not scenarios and not ordered:
            if self._judgement is None:
                self._judgement = self._judge([self.problem.scenario], None, tuple(self._free))
            return self._judgement
        return self._judge(scenarios or [self.problem.scenario], held, ordered)

    def _judge(
        self, cases: Sequence[Scenario], held: Mapping[str, Sequence[float]] | None, ordered: Sequence[str]
    ) -> Judgement:
        return judge(self.model.program, cases, self._listed, self._free, held, ordered)

    def _ask(self, rows: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = self.model.found(rows, u, 1.0, slopes=False)
        return result.exact, result.broken

    evaluated: Any = relayed("model", "evaluated")
    count: Any = relayed("tree", "count")
    plan_count: Any = relayed("tree", "plans")
    parents: Any = relayed("tree", "parent")
    divided: Any = relayed("tree", "divided")
    sample, single, weight = (relayed("tree", name) for name in ("sample", "single", "weight"))
    split, near = (relayed("tree", name) for name in ("split", "near"))

    @property
    def roots(self) -> np.ndarray:
        """One group for each legal combination of ungrouped fields."""
        return np.arange(self.tree.roots)

    def columns(self, plan: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of single plans."""
        return dict(zip(self.tree.fields, self.tree.table(plan).T, strict=True))

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float, scenario: Scenario | None = None
    ) -> Tangents:
        """Rows and tangents; of a group, rows that no plan of it has all at once (`exact` is no design's)."""
        plan, sharpness = np.asarray(plan), np.broadcast_to(np.asarray(sharpness, dtype=float), (len(plan),))
        group, rows = self._best_of(plan)
        result = self.model.of_rows(rows, u, sharpness, scenario)
        for view in self.views[1:] if len(group) else []:
            names, table = [self.names[row] for row in map(int, view.rows)], self.tree.table(plan[group], view.best)
            other = self.model.of_rows(table, u[group], sharpness[group], scenario, names)
            result.exact[np.ix_(group, view.rows)] = other.exact
            result.affine[np.ix_(group, view.rows)] = other.affine
        return result

    def screening(self, plan: np.ndarray, u: np.ndarray) -> Tangents | None:
        """Tangents of memory and the like alone, of single plans."""
        assert self.single(plan).all()
        return self.model.screened(self.tree.table(plan), u)

    def values(
        self, plan: np.ndarray, u: np.ndarray, scenario: Scenario | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows alone; of a group as in `tangents`."""
        plan = np.asarray(plan)
        group, rows = self._best_of(plan)
        result = self.model.found(rows, u, 1.0, scenario, slopes=False)
        for view in self.views[1:] if len(group) else []:
            names, table = [self.names[row] for row in map(int, view.rows)], self.tree.table(plan[group], view.best)
            other = self.model.found(table, u[group], 1.0, scenario, names, slopes=False)
            result.exact[np.ix_(group, view.rows)] = other.exact
        return result.exact, result.broken

    def _best_of(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(places of groups, fields of all: of groups, those that are best for the rows of the first view)."""
        group, rows = np.flatnonzero(~self.tree.single(plan)), self.tree.table(plan)
        rows[group] = self.tree.table(plan[group], self.views[0].best)
        return group, rows


def crossed(columns: Sequence[np.ndarray], lists: Sequence[np.ndarray]) -> np.ndarray:
    """Every row of some columns with every combination of lists: [rows x combinations, columns and lists]."""
    rows = np.stack(list(columns), axis=-1) if len(columns) else np.zeros((1, 0))
    for values in lists:
        rows = np.concatenate([np.repeat(rows, len(values), axis=0), np.tile(values, len(rows))[:, None]], axis=1)
    return rows
