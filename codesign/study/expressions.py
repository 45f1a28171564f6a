"""Objectives and limits as expressions over metric names: parsed, never run as code.

Grammar: metric names (`time_s`, `usage.hbm`), numbers, + - * / **, parentheses, and `max`, `min`, `sqrt`. A power is a
number. What an expression means for a proof the walk over the traced program decides (`curvature`).
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.smooth import maximum

LONGEST = 1000  # characters
MOST = 1e300  # of a number that is written out: products of two still have an end where metrics do
FUNCTIONS = ("max", "min", "sqrt")
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
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
    def is_name(self) -> bool:
        """Nothing but the name of a metric."""
        return isinstance(self.tree, ast.Name | ast.Attribute)

    @property
    def names(self) -> tuple[str, ...]:
        """Metrics it asks for, each once, in the order of the text."""
        return tuple(dict.fromkeys(_dotted(node) for node in _names(self.tree)))

    def check(self, known: Iterable[str]) -> None:
        """Refuse names that are no metrics.

        Raises:
            ConfigError: with a suggestion.
        """
        metrics = list(known)
        for name in self.names:
            if name not in metrics:
                raise ConfigError(
                    f"{self.where} = {self.text!r}: metric {name!r} does not exist{suggestion(name, metrics)}"
                )

    def value(self, look_up: Callable[[str], Array]) -> Array:
        """The value where `look_up` gives those of the metrics; differentiable, maxima in the reading of the moment."""
        return jnp.asarray(_value(self.tree, look_up))

    def positive(self, names: Collection[str]) -> bool:
        """True if the form of the expression keeps it above zero where these metrics are."""
        return _positive(self.tree, names)

    def _refuse(self, what: str) -> ConfigError:
        return ConfigError(f"{self.where} = {self.text!r}: {what}")

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                if not abs(node.value) <= MOST:
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
        case ast.Constant():
            return float(node.value)
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
