"""Tracing in the tests: the same equations, written in less time.

JAX sends every sum of two traced numbers through a compiled function of its own, which it then writes out again, and
Equinox builds a module with all its checks for every method that is called. Most traced numbers are of one type and
shape: their operation is written at once. `tests/test_tracing.py` holds what is traced so against what JAX traces.

JAX also loads all that its compiler knows for every small function anew: a third of the time of compiling one.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any
from unittest.mock import patch

import equinox
import jax.numpy as jnp
import numpy as np
from equinox._module._flatten import WRAPPER_FIELD_NAMES
from equinox._module._prebuilt import BoundMethod
from jax import lax
from jax._src.core import Tracer
from jax._src.interpreters import mlir
from jax._src.lax.lax import _convert_element_type
from jax._src.traceback_util import register_exclusion

NOWHERE = "<tracing>"
FLOAT = np.dtype(np.float64)
PLAIN = (float, int)  # and no truth value, which is neither type
OPERATIONS = {
    "__add__": lax.add, "__sub__": lax.sub, "__mul__": lax.mul, "__truediv__": lax.div,
    "__gt__": lax.gt, "__lt__": lax.lt, "__ge__": lax.ge, "__le__": lax.le,
}  # fmt: skip
OF_ONE = {"log": lax.log, "exp": lax.exp, "sqrt": lax.sqrt, "log1p": lax.log1p, "expm1": lax.expm1, "abs": lax.abs}
TURNED = {"__radd__": lax.add, "__rsub__": lax.sub, "__rmul__": lax.mul, "__rtruediv__": lax.div}


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is not said to have written the equations that come of it: whoever calls it has."""
    function.__code__ = function.__code__.replace(co_filename=NOWHERE)
    return function


def weak(number: Any) -> bool:
    """Whether a traced number takes the type of what it meets, as plain numbers do, and has no axes."""
    return number.dtype == FLOAT and number.shape == () and number.weak_type


@unseen
def as_strong(number: Any) -> Any:
    """A number that takes the type of what it meets, met by one that does not."""
    return _convert_element_type(number, number.dtype, weak_type=False) if number.weak_type else number


@unseen
def pair(first: Any, second: Any) -> tuple[Any, Any] | None:
    """Two arguments of an operation as JAX gives them to it, where that is plain; at least the first is traced."""
    one = first.aval
    if isinstance(second, Tracer):
        other = second.aval
        if one.dtype != other.dtype or one.dtype != FLOAT or one.shape != other.shape:
            return None
        if one.weak_type == other.weak_type:
            return first, second
        return (as_strong(first), as_strong(second)) if one.shape == () else None
    if type(second) in PLAIN and one.dtype == FLOAT and one.shape == ():
        return first, float(second)
    return None


def direct(operation: Callable[..., Any], usual: Callable[..., Any], turned: bool) -> Callable[..., Any]:
    """An operator of traced numbers."""

    def run(self: Any, other: Any) -> Any:
        if turned and isinstance(other, Tracer):
            return usual(self, other)
        both = pair(self, other)
        if both is None:
            return usual(self, other)
        return operation(both[1], both[0]) if turned else operation(*both)

    return unseen(run)


def both_true(usual: Callable[..., Any]) -> Callable[..., Any]:
    """`and` of two traced truths without axes."""

    def run(self: Any, other: Any) -> Any:
        if isinstance(other, Tracer) and self.dtype == other.dtype == bool and self.shape == other.shape == ():
            return lax.bitwise_and(as_strong(self), as_strong(other))
        return usual(self, other)

    return unseen(run)


def greatest(operation: Callable[..., Any]) -> Callable[[Any], Any]:
    """`jnp.maximum` and its like."""

    def make(usual: Callable[..., Any]) -> Callable[..., Any]:
        def run(first: Any, second: Any) -> Any:
            both = pair(first, second) if isinstance(first, Tracer) else None
            return usual(first, second) if both is None else operation(*both)

        return unseen(run)

    return make


def of_one(operation: Callable[..., Any]) -> Callable[[Any], Any]:
    """`jnp.log` and its like."""

    def make(usual: Callable[..., Any]) -> Callable[..., Any]:
        def run(number: Any) -> Any:
            return operation(number) if isinstance(number, Tracer) and number.dtype == FLOAT else usual(number)

        return unseen(run)

    return make


def where(usual: Callable[..., Any]) -> Callable[..., Any]:
    """`jnp.where`, for a traced choice between a traced number and a plain one or its like."""

    def run(condition: Any, *choices: Any, **named: Any) -> Any:
        if isinstance(condition, Tracer) and len(choices) == 2 and not named and condition.aval.shape == ():
            first, second = choices
            if isinstance(first, Tracer) and condition.aval.dtype == bool and weak(first.aval):
                if type(second) is float:
                    return lax.select_n(condition, second, first)
                if isinstance(second, Tracer) and weak(second.aval):
                    return lax.select_n(condition, second, first)
        return usual(condition, *choices, **named)

    return unseen(run)


def attribute(self: Any, name: str) -> Any:
    """An attribute of a module; its methods are modules, as Equinox makes them."""
    found = object.__getattribute__(self, name)
    if type(found) is not MethodType or found.__self__ is not self or name[:2] == "__" == name[-2:]:
        return found
    function = found.__func__
    made = object.__new__(BoundMethod)
    kept = object.__getattribute__(made, "__dict__")
    kept["__func__"], kept["__self__"] = function, self
    for name in WRAPPER_FIELD_NAMES:
        with contextlib.suppress(AttributeError):
            kept[name] = getattr(function, name)
    return made


MANY = 200  # programs that one context of the compiler sees: it keeps their constants


class Contexts(threading.local):
    """Of one thread: the context of the compiler, and how many programs it may still see."""

    context: Any = None
    left = 0


def for_many(usual: Callable[[], Any]) -> Callable[[], Any]:
    """`make_ir_context`, the same one for many programs of a thread."""
    own = Contexts()

    def make() -> Any:
        if not own.left:
            own.context, own.left = usual(), MANY
        own.left -= 1
        return own.context

    return make


@contextlib.contextmanager
def as_usual() -> Iterator[None]:
    """Trace as JAX and Equinox do."""
    with contextlib.ExitStack() as stack:
        for (owner, name), usual in replaced.items():
            stack.enter_context(patch.object(owner, name, usual))
        yield


replaced: dict[tuple[Any, str], Any] = {}


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    replaced[owner, name] = getattr(owner, name)
    setattr(owner, name, make(replaced[owner, name]))


def install() -> None:
    """For everything traced from now on."""
    register_exclusion(NOWHERE)
    for name, operation in OPERATIONS.items():
        _replace(Tracer, name, lambda usual, operation=operation: direct(operation, usual, False))
    for name, operation in TURNED.items():
        _replace(Tracer, name, lambda usual, operation=operation: direct(operation, usual, True))
    _replace(Tracer, "__and__", both_true)
    for name, operation in {"maximum": lax.max, "minimum": lax.min}.items():
        _replace(jnp, name, greatest(operation))
    for name, operation in OF_ONE.items():
        _replace(jnp, name, of_one(operation))
    _replace(jnp, "where", where)
    _replace(mlir, "make_ir_context", for_many)
    _replace(equinox.Module, "__getattribute__", lambda usual: attribute)
