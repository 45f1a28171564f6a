"""Values and slopes of a function at many points: traced once, run by NumPy, since compiling takes far longer."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codesign.model.metrics import evaluate
from codesign.search import Problem
from codesign.staging import at_many


def values_and_slopes(
    function: Callable[..., Any], numbers: Mapping[str, Any], columns: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Values [points, outputs] of a function of named numbers, and their slopes by each of these numbers.

    Args:
        function: of a mapping of numbers, to a list of scalars.
        numbers: the numbers that all points share.
        columns: [points] of the numbers that differ.
    """
    rows = len(next(iter(columns.values())))
    points = {name: jnp.asarray(columns.get(name, np.full(rows, float(x)))) for name, x in numbers.items()}

    def stacked(point: dict[str, Any]) -> tuple[Any, Any]:
        values = jnp.stack(list(function(point)))
        return values, values

    slopes, values = at_many(jax.jacrev(stacked, has_aux=True))(points)
    return values, slopes


def goals_that_fit(problem: Problem, points: Mapping[str, np.ndarray]) -> np.ndarray:
    """Goals of the points of a space, as the model evaluates them, that break neither rules nor limits.

    Args:
        points: plan field or variable of the hardware -> its value at each point.
    """

    def priced(point: Mapping[str, Any]) -> tuple[Any, Any]:
        metrics = evaluate(problem.space.place(problem.scenario, dict(point)))
        return problem.objective.value(metrics, problem.objective.goal), problem.objective.excess(metrics)

    goal, excess = at_many(priced)({name: np.asarray(column, dtype=float) for name, column in points.items()})
    return goal[excess <= 0]


def combinations(lists: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """All combinations of listed values, as a column for each name."""
    grids = np.meshgrid(*(np.asarray(values, dtype=float) for values in lists.values()), indexing="ij")
    return {name: grid.ravel() for name, grid in zip(lists, grids, strict=True)}
