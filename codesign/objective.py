"""What is wanted and what must hold: goal and limits -> one scalar, and what a design violates."""

from dataclasses import dataclass, field

import jax.numpy as jnp
from jaxtyping import Array

from .errors import ConfigError
from .metrics import Metrics
from .smooth import at_least

TOLERANCE = 1e-6  # relative; what counts as holding in a hard float64 evaluation


@dataclass(frozen=True)
class Objective:
    """Minimise (or maximise) one metric under limits on others.

    Memory that does not fit and rules of the plan that are broken always count as violations.

    Args:
        minimise: name of a metric (see `Metrics.flat`); empty where `maximise` is given.
        maximise: name of a metric.
        limits: metric -> largest value allowed.
        floors: metric -> smallest value allowed.
    """

    minimise: str = "time_s"
    maximise: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Exactly one goal, positive bounds."""
        if bool(self.minimise) == bool(self.maximise):
            raise ConfigError("objective needs exactly one of minimise and maximise (set the other to '')")
        for group in ("limits", "floors"):
            for name, value in getattr(self, group).items():
                if not isinstance(value, int | float) or value <= 0:
                    raise ConfigError(f"objective.{group}.{name} = {value!r} must be a positive number")

    @property
    def goal(self) -> str:
        """Name of the metric that is optimised."""
        return self.minimise or self.maximise

    def log_goal(self, metrics: Metrics) -> Array:
        """Log of the goal, to be minimised."""
        sign = 1.0 if self.minimise else -1.0
        return sign * jnp.log(metrics.get(self.goal))

    def usages(self, metrics: Metrics) -> dict[str, Array]:
        """Constraint -> used share, at most 1 where it holds."""
        used = {f"usage.{tier}": share for tier, share in metrics.usage.items()}
        used |= {name: metrics.get(name) / bound for name, bound in self.limits.items()}
        return used | {name: bound / metrics.get(name) for name, bound in self.floors.items()}

    def excess(self, metrics: Metrics) -> Array:
        """The largest relative violation of any constraint or rule; at most 0 where the design is feasible."""
        worst = jnp.asarray(-1.0)
        for share in self.usages(metrics).values():
            worst = jnp.maximum(worst, share - 1)
        for broken in metrics.violations.values():
            worst = jnp.maximum(worst, jnp.where(broken > 0, broken, -1.0))
        return worst

    def loss(self, metrics: Metrics, weight: Array | float, margin: Array | float = 0.0) -> Array:
        """log(goal) + weight times the sum of log-violations, each constraint tightened by `margin`."""
        total = self.log_goal(metrics)
        for share in self.usages(metrics).values():
            total = total + weight * at_least(jnp.log(at_least(share, 1e-9)) + margin, 0.0)
        return total

    def check(self, metrics: Metrics) -> None:
        """Refuse names that are no metrics, before anything runs.

        Raises:
            ConfigError: unknown metric, with a suggestion.
        """
        for name in (self.goal, *self.limits, *self.floors):
            metrics.get(name)
