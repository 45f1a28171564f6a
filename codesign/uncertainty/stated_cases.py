"""Constants that are not known: the cases that a design is judged in, each with its own values of uncertain leaves.

Efficiencies, prices, latencies are guesses or change with the years. What may be off of the model itself, its errors in
cross-validation, are cases as well: `draws` of them, those that intervals are made of, each a positive factor on costs.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from ..core.errors import ConfigError
from ..core.fields import get_path, replace
from ..core.json_yaml import is_some
from ..model.scenario import Scenario
from ..study.design_space import DesignSpace
from .draws import draw_doubts, no_doubts, one_by_one, under
from .spreads import spreads


@dataclass(frozen=True)
class Uncertain:
    """A leaf whose value is not known: factors of its nominal value.

    Args:
        path: dotted path of the leaf.
        factors: values to reckon with, as multiples of the scenario's.
        tied: further leaves that move by the same factor.
    """

    path: str
    factors: Sequence[float]
    tied: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Some positive factors."""
        given = cast(Any, self.factors)
        if not is_some(given) or any(not isinstance(f, int | float) or f <= 0 for f in given):
            raise ConfigError(f"factors of {self.path} = {self.factors!r} must be a non-empty list of positive numbers")

    def leaves(self, scenario: Scenario, factor: float) -> dict[str, Any]:
        """Dotted path -> value in a case."""
        return {path: get_path(scenario, path) * factor for path in (self.path, *self.tied)}


@dataclass(frozen=True)
class Cases:
    """The cases that a robust design is judged in.

    Every combination of the listed factors, or `samples` random ones: each factor log-uniform between its least and
    its largest. Where a row is log-convex in the leaves as well, its worst value over their box lies at a corner, so
    the two ends of each range cover the whole box. With `draws` each of these in every one of so many joint draws of
    the model's errors (`uncertainty.draws`).
    """

    uncertain: dict[str, Uncertain] = field(default_factory=dict[str, Uncertain])
    samples: int = 0
    draws: int = 0

    def __post_init__(self) -> None:
        """No negative number of samples or draws, and no draws of errors that nobody knows."""
        for name in ("samples", "draws"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)} must not be negative")
        if self.draws and not spreads():
            raise ConfigError(
                f"draws = {self.draws}: no errors of the model are known (`codesign calibrate --intervals`)"
            )

    def check(self, scenario: Scenario, space: DesignSpace) -> None:
        """Refuse leaves that do not exist, or that the space sets itself.

        Raises:
            ConfigError: naming the entry.
        """
        chosen = {variable.path: name for name, variable in space.hardware.items()}
        for name, entry in self.uncertain.items():
            for path in (entry.path, *entry.tied):
                try:
                    get_path(scenario, path)
                except ConfigError as error:
                    raise ConfigError(f"search.cases.uncertain.{name}: {error}") from error
                if path in chosen:
                    raise ConfigError(
                        f"search.cases.uncertain.{name}: {path} is chosen by space.hardware.{chosen[path]},"
                        " so it cannot be uncertain as well"
                    )

    def factors(self, seed: int) -> Float[np.ndarray, "cases entries"]:
        """Factors of each case, along the entries."""
        lists = [np.asarray(entry.factors, dtype=float) for entry in self.uncertain.values()]
        if not self.samples:
            every = list(itertools.product(*lists))
            return np.array(every, dtype=float).reshape(len(every), len(lists))
        rng = np.random.default_rng(seed)
        ends = np.log([[factors.min(), factors.max()] for factors in lists]).reshape(-1, 2)
        return np.exp(ends[:, 0] + (ends[:, 1] - ends[:, 0]) * rng.uniform(size=(self.samples, len(lists))))

    def leaves(self, scenario: Scenario, seed: int) -> list[dict[str, Any]]:
        """Dotted path -> value, in each case."""
        result: list[dict[str, Any]] = []
        for row in self.factors(seed):
            leaves: dict[str, Any] = {}
            for entry, factor in zip(self.uncertain.values(), row, strict=True):
                leaves |= entry.leaves(scenario, float(factor))
            result += [leaves] * max(self.draws, 1)
        return result

    def named(self, seed: int) -> list[dict[str, float]]:
        """Entry -> factor, and the number of the draw, in each case."""
        rows = [dict(zip(self.uncertain, map(float, row), strict=True)) for row in self.factors(seed)]
        if not self.draws:
            return rows
        return [row | {"draw": float(number)} for row in rows for number in range(self.draws)]

    def scenarios(self, scenario: Scenario, seed: int) -> list[Scenario]:
        """The scenario in each case."""
        moved = [replace(scenario, leaves) for leaves in self.leaves(scenario, seed)]
        if not self.draws:
            return moved
        drawn = one_by_one(draw_doubts(scenario, self.draws), self.draws)
        return [under(one, drawn[index % self.draws]) for index, one in enumerate(moved)]

    def with_room(self, scenario: Scenario) -> Scenario:
        """The scenario with the structure that its cases have."""
        return under(scenario, no_doubts()) if self.draws else scenario
