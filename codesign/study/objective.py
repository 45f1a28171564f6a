"""Objective of a study: goal and limits -> one scalar, and what a design violates."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.jax_typed import asarray
from ..core.smooth import at_least, used_share
from ..model.metrics import Metrics
from ..model.metrics.fit_chance import stretch
from .expressions import Expression

__all__ = ["Objective", "feasible"]

TOLERANCE = 1e-7
"""Relative: what a limit may be exceeded by in a hard float64 evaluation.

Searches end on their limits; where they stop and how compilers round is below 1e-8, and no budget is known to 1e-7.
"""
LEAST_CHANCE = 0.5  # with less, memory would be taken to be smaller than predicted
LEAST = 1e-30  # below this magnitude a goal ranks as zero; single precision still holds it
POSITIVE = {
    *("time_s", "tokens_per_s", "mfu", "energy_j", "joules_per_token", "power_w", "provisioned_power_w", "capex_usd"),
    *("usd_per_million_tokens", "ttft_s", "tpot_s", "decode_tokens_per_s", "e2e_s", "requests_per_s", "concurrency"),
    *("tokens_per_s_per_user", "tokens_per_s_per_device"),
}
"""Metrics that no design has at zero, unlike the share of a memory or a part of the time."""


@dataclass(frozen=True)
class Objective:
    """Minimise (or maximise) one quantity under limits on others.

    A quantity is a metric (see `Metrics.flat`), a function of your own (`custom`) or an expression over both, such as
    `time_s ** 0.5 * joules_per_token`. Searches that take logarithms ask for goals and floors that are positive (see
    `logged`); the others only rank. Memory that does not fit and broken rules of the plan always count as violations.

    Args:
        minimise: quantity; empty where `maximise` is given.
        maximise: quantity.
        limits: quantity -> largest value allowed.
        floors: quantity -> smallest value allowed.
        custom: name -> function of the metrics, for quantities of your own.
        fits: chance with which memory has to suffice (`model.metrics.fit_chance`); 0: as predicted.
    """

    minimise: str = "time_s"
    maximise: str = ""
    limits: dict[str, float] = field(default_factory=dict[str, float])
    floors: dict[str, float] = field(default_factory=dict[str, float])
    custom: dict[str, Callable[[Metrics], Array]] = field(default_factory=dict[str, Callable[[Metrics], Array]])
    fits: float = 0.0

    def __post_init__(self) -> None:
        """Exactly one goal, positive bounds, expressions that can be read."""
        if bool(self.minimise) == bool(self.maximise):
            given = f"minimise = {self.minimise!r} and maximise = {self.maximise!r}"
            raise ConfigError(f"objective needs exactly one goal, not {given} (set the other to '')")
        chance = vars(self)["fits"]
        if not isinstance(chance, int | float) or not (chance == 0 or LEAST_CHANCE <= chance < 1):
            raise ConfigError(
                f"objective.fits = {chance!r} must be a chance from {LEAST_CHANCE:g} to below 1, or 0: as predicted"
            )
        for group in ("limits", "floors"):
            for name, value in getattr(self, group).items():
                if not isinstance(value, int | float) or not 0 < value < math.inf:
                    raise ConfigError(f"objective.{group}.{name} = {value!r} must be a positive number below inf")
        for name, function in self.custom.items():
            if not callable(function) or not name.isidentifier():
                raise ConfigError(f"objective.custom.{name} must be a function of the metrics under a plain name")
        for where, text in self._places():
            Expression(text, where) if not _is_metric(text) else None

    def _places(self) -> list[tuple[str, str]]:
        """(key, quantity) of everything that is asked for, the goal first."""
        goal = "minimise" if self.minimise else "maximise"
        bounds = [(f"objective.{group}", name) for group in ("limits", "floors") for name in getattr(self, group)]
        return [(f"objective.{goal}", self.goal), *bounds]

    @property
    def goal(self) -> str:
        """The quantity that is optimised, as it was written."""
        return self.minimise or self.maximise

    def value(self, metrics: Metrics, quantity: str) -> Array:
        """A metric, a custom quantity or an expression over them.

        Raises:
            ConfigError: a name that is none of these, with a suggestion.
        """
        known = metrics.flat()
        if quantity in self.custom:
            return own_quantity(quantity, self.custom[quantity], metrics)
        if quantity in known:
            return known[quantity]
        if _is_metric(quantity):
            hint = suggestion(quantity, (*self.custom, *known))
            raise ConfigError(f"{self._where(quantity)}: metric {quantity!r} does not exist{hint}")
        expression = Expression(quantity, self._where(quantity))
        expression.check((*self.custom, *known))
        custom = self.custom
        return expression.value(lambda n: own_quantity(n, custom[n], metrics) if n in custom else known[n])

    def _where(self, quantity: str) -> str:
        return next((where for where, text in self._places() if text == quantity), "expression")

    def made(self, metrics: Metrics) -> dict[str, Array]:
        """Quantities of this objective that are no metrics."""
        known = metrics.flat()
        return {text: self.value(metrics, text) for _, text in self._places() if text not in known}

    def log_goal(self, metrics: Metrics) -> Array:
        """Log of the goal, to be minimised."""
        sign = 1.0 if self.minimise else -1.0
        return sign * jnp.log(self.value(metrics, self.goal))

    def rank(self, metrics: Metrics) -> Array:
        """Number that orders designs, least best: the log of the goal, continued through zero."""
        value, sign = self.value(metrics, self.goal), 1.0 if self.minimise else -1.0
        return sign * signed_log(value)

    def goal_at(self, rank: float) -> float:
        """The goal's value of a rank; inf where there is none."""
        if not math.isfinite(rank):
            return math.inf
        log, least = (rank if self.minimise else -rank), math.log(LEAST)
        return math.exp(log) if log >= least else -math.exp(2 * least - log)

    def logged(self) -> list[tuple[str, str]]:
        """(key, quantity) of the goal and of floors whose form does not keep them above zero."""
        return [
            (where, text)
            for where, text in self._places()
            if not where.endswith(".limits") and not Expression(text, where).positive(POSITIVE)
        ]

    def usages(self, metrics: Metrics) -> dict[str, Array]:
        """Constraint -> used share, at most 1 where it holds; infinite where there is nothing to use."""
        used = {f"usage.{tier}": share for tier, share in metrics.usage.items()}
        if self.fits:
            used |= {
                f"usage.{name}": metrics.usage[name] * stretch(metrics.memory_bytes, name.partition(".")[0], self.fits)
                for name in ("hbm", "hbm.engine")
                if name in metrics.usage
            }
        used |= {name: self.value(metrics, name) / bound for name, bound in self.limits.items()}
        return used | {name: used_share(bound, self.value(metrics, name)) for name, bound in self.floors.items()}

    def excess(self, metrics: Metrics) -> Array:
        """The largest relative violation of any constraint or rule, for `feasible`; at most 0 where all are kept.

        Infinite where a tier has no capacity or the goal is no number; not a number where a constraint is none.
        """
        worst = jnp.where(jnp.isfinite(self.value(metrics, self.goal)), -1.0, jnp.inf)
        for share in self.usages(metrics).values():
            worst = jnp.maximum(worst, share - 1)
        for broken in metrics.violations.values():
            worst = jnp.maximum(worst, jnp.where(broken <= 0, -1.0, broken))
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
            ConfigError: unknown metric, with its key and a suggestion.
        """
        for _, name in self._places():
            self.value(metrics, name)


def own_quantity(name: str, function: Callable[[Metrics], Any], metrics: Metrics) -> Array:
    """Value of a user's function of the metrics: one number for each design.

    Raises:
        ConfigError: it fails, or gives something else.
    """
    where = f"objective.custom.{name}"
    try:
        result: Any = function(metrics)
    except ConfigError:
        raise
    except jax.errors.JAXTypeError as why:
        raise ConfigError(
            f"{where} needs the numbers of a design where they are not known yet: write it with jax.numpy, with"
            " jnp.where in the place of if, without float() or numpy"
        ) from why
    except Exception as why:
        said = str(why).strip().partition("\n")[0]
        raise ConfigError(f"{where} fails: {type(why).__name__}: {said}") from why
    kind: Any = getattr(result, "dtype", type(cast(object, result)))
    if not isinstance(result, int | float) and not hasattr(result, "dtype"):
        said = repr(result)[:40] if result is None or isinstance(result, str) else f"a {type(result).__name__}"
        raise ConfigError(f"{where} gives {said}, which is no number")
    if np.iscomplexobj(result) or not (np.issubdtype(kind, np.number) or np.issubdtype(kind, np.bool_)):
        raise ConfigError(f"{where} gives {kind} where a real number is needed")
    shape, one = jnp.shape(result), jnp.shape(metrics.time_s)
    if shape not in ((), one):
        raise ConfigError(f"{where} gives an array of shape {shape} where one number is needed")
    return result if isinstance(result, Array) else asarray(result)


def signed_log(value: Array) -> Array:
    """log(value), continued through zero: -value lies as far below log(LEAST) as value above it."""
    above = jnp.log(jnp.maximum(value, LEAST))
    return jnp.where(value > -LEAST, above, 2 * math.log(LEAST) - jnp.log(jnp.maximum(-value, LEAST)))


def feasible(excess: Any) -> Any:
    """True where designs meet every limit: the one decision of every search, report and command.

    Args:
        excess: largest relative violation, used share less one (see `Objective.excess`); no number is infeasible.
    """
    return excess <= TOLERANCE


def feasible_logs(violation: Any) -> Any:
    """`feasible` of the largest log of a used share, which is what certified and black-box searches see."""
    return feasible(np.expm1(violation))


def share_text(share: float, digits: int = 0) -> str:
    """A used share for a reader: `98%`; `no capacity` where something is used of nothing."""
    if share == math.inf:
        return "no capacity"
    return f"{share:.{digits}%}" if share == share else "unknown"


def _is_metric(quantity: str) -> bool:
    """A plain name, perhaps with dots inside (and the slash of a class of memory): no expression."""
    plain = quantity.replace("/", ".", 1) if quantity.startswith("memory_bytes.") else quantity
    return bool(plain) and all(part.isidentifier() for part in plain.split("."))
