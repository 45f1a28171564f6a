"""Plans bounded by groups: what a search asks of a model whose plans are too many to be asked one by one.

A group stands for all plans that agree but for a range of values in fields that every row orders (`orders`). Each row
of the group is the model's at the value that is best for this row, so it lies below that of every plan of the group,
and its tangents bound all of them. Groups that may hold the optimum are split until they are single plans.
"""

import numpy as np

from ..fields import replace
from ..scenario import Scenario
from ..space import MOST_LISTED, DesignSpace
from .base import Problem
from .oracle import Oracle, Rows, Tangents
from .orders import find_orders, views
from .tree import PlanTree

WORTH_GROUPING = 20_000  # combinations below which every plan is bounded by itself
TRIED = 200_000  # legal plans that are tried where not even the groups can be listed


def oracle_for(problem: Problem, rows: Rows, block: int, seed: int = 0) -> Oracle:
    """An oracle over all legal plans, in groups where they are many.

    Raises:
        ConfigError: no plan is legal.
    """
    if problem.space.combinations < WORTH_GROUPING:
        return Oracle(problem, rows, block)
    return GroupOracle(problem, rows, block, seed)


class GroupOracle(Oracle):
    """Numbers stand for plans and for groups of plans, given out as they are asked for.

    Args:
        problem, rows, block: as of `Oracle`.
        seed: of the plans on which orders are tested.
    """

    def __init__(self, problem: Problem, rows: Rows, block: int = 512, seed: int = 0):
        space, scenario = problem.space, problem.scenario
        some = space.legal_sample(scenario, 4096, seed)
        super().__init__(problem, rows, block, plans=dict(zip(space.plan, some.T, strict=True)))
        lists = {name: np.unique(values) for name, values in space.lists.items()}
        self.orders = find_orders(lists, some, len(self.variables), self._ask, seed)
        inner = list(self.orders)
        self.views = views([self.orders[name] for name in inner], len(self.names))
        outer_space = DesignSpace({name: values for name, values in space.plan.items() if name not in inner})
        effect = [self.orders[name].effect for name in inner]
        if outer_space.combinations <= MOST_LISTED:
            fixed = replace(scenario, {f"plan.{name}": float(lists[name][0]) for name in inner})
            listed = outer_space.plans(fixed) if outer_space.plan else {}
            outer = np.stack(list(listed.values()), axis=-1) if listed else np.zeros((1, 0))
        else:
            plans = space.legal_sample(scenario, TRIED, seed)
            outer = np.unique(plans[:, [i for i, name in enumerate(lists) if name not in inner]], axis=0)
            self.doubt = self.doubt or (
                f"{space.combinations:,} combinations of plan values are too many to bound;"
                f" {len(outer) * max(1, int(np.prod([len(lists[name]) for name in inner]))):,} plans were searched"
            )
        self.tree = PlanTree(lists, outer, inner, effect)

    def _ask(self, rows: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = self.of_rows(rows, u, 50.0)
        return found.exact, found.broken

    @property
    def count(self) -> int:
        """Numbers given out so far."""
        return self.tree.count

    @property
    def plan_count(self) -> int:
        """Legal plans."""
        return self.tree.plans

    @property
    def roots(self) -> np.ndarray:
        """One group for each legal combination of ungrouped fields."""
        return np.arange(self.tree.roots)

    def sample(self, rng: np.random.Generator, most: int) -> np.ndarray:
        """Numbers of random single plans."""
        return self.tree.sample(rng, most)

    def single(self, plan: np.ndarray) -> np.ndarray:
        """Which numbers stand for one plan."""
        return self.tree.single(plan)

    def weight(self, plan: np.ndarray) -> np.ndarray:
        """Plans that each number stands for."""
        return self.tree.weight(plan)

    def split(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parts of groups."""
        return self.tree.split(plan)

    @property
    def parents(self) -> np.ndarray:
        """The group each number came out of."""
        return self.tree.parent

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Single plans that differ from one in at most so many fields."""
        return self.tree.near(plan, changes)

    def columns(self, plan: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of single plans."""
        return dict(zip(self.tree.fields, self.tree.table(plan).T, strict=True))

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float, scenario: Scenario | None = None
    ) -> Tangents:
        """Rows and tangents; of a group, rows that no plan of it has all at once (`exact` is no design's)."""
        plan = np.asarray(plan)
        group = np.flatnonzero(~self.tree.single(plan))
        if len(group) == 0:
            return self.of_rows(self.tree.table(plan), u, sharpness, scenario)
        views, first = self.views, len(plan)
        sharpness = np.broadcast_to(np.asarray(sharpness, dtype=float), (first,))
        at = np.concatenate([np.arange(first), *([group] * (len(views) - 1))])
        tables = [self.tree.table(plan[group], view.best) for view in views]
        rows = np.concatenate([self.tree.table(plan), *tables[1:]])
        rows[group] = tables[0]
        found = self.of_rows(rows, u[at], sharpness[at], scenario)
        exact, affine = found.exact[:first].copy(), found.affine[:first].copy()
        for k, view in enumerate(views[1:]):
            part = slice(first + k * len(group), first + (k + 1) * len(group))
            exact[np.ix_(group, view.rows)] = found.exact[part][:, view.rows]
            affine[np.ix_(group, view.rows)] = found.affine[part][:, view.rows]
        return Tangents(exact, affine, found.broken[:first])
