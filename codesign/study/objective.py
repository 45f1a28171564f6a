"""Objective of a study: goal and limits -> one scalar, and what a design violates."""

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.jax_typed import asarray
from ..core.smooth import at_least, maximum, used_share
from ..model.metrics import Metrics
from ..model.metrics.footprint import stretch

__all__ = [
    "POSITIVE", "TOLERANCE", "Expression", "Objective", "feasible", "feasible_logs", "share_text", "signed_log",
]  # fmt: skip


# Objectives and limits as expressions over metric names: parsed, never run as code.
#
# Grammar: metric names (`time_s`, `usage.hbm`), numbers, + - * / **, parentheses, and `max`, `min`, `sqrt`. A power
# is a number. What an expression means for a proof the walk over the traced program decides (`curvature`).


LONGEST = 1000  # characters
MOST = 1e300  # of a number that is written out: products of two still have an end where metrics do
FUNCTIONS = ("max", "min", "sqrt")
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Args:
        text: what was written.
        where: the key it stands under, for errors.
    """

    text: str
    where: str = "expression"
    tree: ast.expr = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parse, and refuse whatever the grammar does not have.

        Raises:
            ConfigError: naming the key, the text and what is wrong with it.
        """
        if len(self.text) > LONGEST:
            raise ConfigError(f"{self.where}: an expression has at most {LONGEST} characters, not {len(self.text)}")
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
            self._check(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            raise ConfigError(f"{self.where} = {self.text!r} cannot be read as an expression ({why})") from error
        object.__setattr__(self, "tree", tree)

    @property
    def names(self) -> tuple[str, ...]:
        """Metrics it asks for, each once, in the order of the text."""
        return tuple(dict.fromkeys(_dotted(node) for node in _names(self.tree)))

    def check(self, names: Iterable[str]) -> None:
        """Refuse names that are no metrics.

        Raises:
            ConfigError: with a suggestion.
        """
        metrics = list(names)
        for name in self.names:
            if name not in metrics:
                raise ConfigError(
                    f"{self.where} = {self.text!r}: metric {name!r} does not exist{suggestion(name, metrics)}"
                )

    def value(self, look_up: Callable[[str], Array]) -> Array:
        """The value where `look_up` gives those of the metrics; differentiable, maxima in the reading of the moment."""
        return asarray(_value(self.tree, look_up))

    def positive(self, names: Collection[str]) -> bool:
        """True if the form of the expression keeps it above zero where these metrics are."""
        return _positive(self.tree, names)

    def _refuse(self, what: str) -> ConfigError:
        return ConfigError(f"{self.where} = {self.text!r}: {what}")

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                if not abs(number) <= MOST:
                    raise self._refuse(f"a number beyond {MOST:g}")
            case ast.Name():
                pass
            case ast.Attribute():
                if not all(isinstance(part, ast.Name | ast.Attribute) for part in _chain(node)):
                    raise self._refuse("a dot may only stand inside the name of a metric")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                self._check(node.operand)
            case ast.BinOp() if type(node.op) in OPERATORS:
                self._check(node.left)
                self._check(node.right)
                if isinstance(node.op, ast.Pow) and _number(node.right) is None:
                    raise self._refuse("a power must be a number")
                _number(node)  # what has no end is refused here, not where it is asked for
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
                if (name == "sqrt") != (len(node.args) == 1) or not node.args:
                    raise self._refuse(f"{name} takes {'one argument' if name == 'sqrt' else 'two or more arguments'}")
                for argument in node.args:
                    self._check(argument)
            case ast.Call(func=ast.Name(id=name)):
                raise self._refuse(f"{name!r} is no function of an expression{suggestion(name, FUNCTIONS)}")
            case _:
                raise self._refuse(f"{ast.unparse(node)!r} is no metric, number or operation (+ - * / ** max min sqrt)")


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """A dotted name from the outside in."""
    while isinstance(node, ast.Attribute):
        yield node
        node = node.value
    yield node


def _dotted(node: ast.expr) -> str:
    return ast.unparse(node)


def _names(node: ast.expr) -> Iterator[ast.expr]:
    """Metrics of a checked tree."""
    match node:
        case ast.Name() | ast.Attribute():
            yield node
        case ast.UnaryOp():
            yield from _names(node.operand)
        case ast.BinOp():
            yield from _names(node.left)
            yield from _names(node.right)
        case ast.Call():
            for argument in node.args:
                yield from _names(argument)
        case _:
            pass


def _number(node: ast.expr) -> float | None:
    """The value of a part without metrics; None of one with."""
    if any(True for _ in _names(node)):
        return None
    try:
        result = float(_value(node, _nothing))
        if math.isfinite(result):
            return result
        raise OverflowError("it has no end")
    except (OverflowError, ZeroDivisionError, TypeError) as error:
        raise ValueError(str(error)) from error


def _nothing(name: str) -> Array:
    raise KeyError(name)


def _value(node: ast.expr, look_up: Callable[[str], Array]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp():
            inner = _value(node.operand, look_up)
            return -inner if isinstance(node.op, ast.USub) else inner
        case ast.BinOp():
            power = isinstance(node.op, ast.Pow)
            right = _number(node.right) if power else _value(node.right, look_up)
            return OPERATORS[type(node.op)](_value(node.left, look_up), right)
        case ast.Call(func=ast.Name(id=name)):
            parts = [_value(argument, look_up) for argument in node.args]
            if name == "sqrt":
                return parts[0] ** 0.5
            return maximum(parts[0], *parts[1:]) if name == "max" else 1 / maximum(*(1 / part for part in parts))
        case _:
            return look_up(_dotted(node))


def _positive(node: ast.expr, names: Collection[str]) -> bool:
    number = _number(node)
    if number is not None:
        return number > 0
    match node:
        case ast.UnaryOp(op=ast.UAdd(), operand=inner) | ast.BinOp(left=inner, op=ast.Pow()):
            return _positive(inner, names)
        case ast.BinOp(op=ast.Add() | ast.Mult() | ast.Div()):
            return _positive(node.left, names) and _positive(node.right, names)
        case ast.Call():
            return all(_positive(argument, names) for argument in node.args)
        case ast.Name() | ast.Attribute():
            return _dotted(node) in names
        case _:
            return False


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
        fits: chance with which memory has to suffice (`model.metrics.footprint`); 0: as predicted.
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
        numbers = metrics.flat()
        if quantity in self.custom:
            return custom_value(quantity, self.custom[quantity], metrics)
        if quantity in numbers:
            return numbers[quantity]
        if _is_metric(quantity):
            hint = suggestion(quantity, (*self.custom, *numbers))
            raise ConfigError(f"{self._where(quantity)}: metric {quantity!r} does not exist{hint}")
        expression = Expression(quantity, self._where(quantity))
        expression.check((*self.custom, *numbers))
        custom = self.custom
        return expression.value(lambda n: custom_value(n, custom[n], metrics) if n in custom else numbers[n])

    def _where(self, quantity: str) -> str:
        return next((where for where, text in self._places() if text == quantity), "expression")

    def made(self, metrics: Metrics) -> dict[str, Array]:
        """Quantities of this objective that are no metrics."""
        numbers = metrics.flat()
        return {text: self.value(metrics, text) for _, text in self._places() if text not in numbers}

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
        """Constraint -> used share, at most 1 where it holds; infinite where there is nothing to use.

        Shares that follow from others limit nothing; a chance to fit is asked of all near memory together.
        """
        implied = [name for name in metrics.implied if not (self.fits and name == "hbm")]
        used = {f"usage.{tier}": share for tier, share in metrics.usage.items() if tier not in implied}
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


def custom_value(name: str, function: Callable[[Metrics], Any], metrics: Metrics) -> Array:
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
