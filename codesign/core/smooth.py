"""Every numeric trick, once: the one maximum, safe division, straight-through rounding.

`maximum` is the only maximum in a formula. It has several readings of the same model, chosen from outside:

    hard      max(a, b): every reported number
    p-norm    (a^p + b^p)^(1/p), at least the maximum and at most 2^(1/p) times it: for searches; keeps log-convexity
    weighted  w a + (1 - w) b with w = sigmoid(p log(a/b)) held constant: never above the maximum, for lower bounds

The reading is fixed while a function is traced: `reading(PNorm(8.0), f)` returns a new function of the same
arguments, so a `jit` of it can never be confused with a `jit` of `f`.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from .jax_typed import traced_for_all

__all__ = [
    "TINY", "at_least", "at_most", "bounded", "ceil", "floor", "larger", "largest", "lower", "maximum", "operation",
    "ratio", "reading", "smaller", "upper", "used_share",
]  # fmt: skip


class HardMaximum(NamedTuple):
    """The exact maximum."""


class PNorm(NamedTuple):
    """The p-norm; `p` may be traced."""

    p: Any


class WeightedMaximum(NamedTuple):
    """A fixed convex combination with the p-norm's tangent weights; `p` may be traced."""

    p: Any


Reading = HardMaximum | PNorm | WeightedMaximum
HARD = HardMaximum()
_current: contextvars.ContextVar[Reading] = contextvars.ContextVar("reading")
OPERATION = "codesign."  # begins the names of what stays one equation of a traced program
NAMED: dict[str, Callable[..., Any]] = {}  # those operations by their names, as their modules are imported
TINY = 1e-30  # stands in for zero under a logarithm; far below any second, byte or joule that matters


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of arrays as one equation of a traced program, under its own name.

    For what cannot be told from its parts (a scaled p-norm, a maximum with slopes of its own): `curvature.operations`
    has one rule for each name, and a contract test that attacks it.
    """

    @functools.wraps(function)
    def named(*arguments: Any) -> Any:
        return function(*arguments)

    named.__name__ = named.__qualname__ = OPERATION + function.__name__
    compiled = jax.jit(named)
    NAMED.setdefault(named.__name__, compiled)
    return compiled


def reads_hard() -> bool:
    """True if maxima are exact in the current context."""
    return isinstance(_current.get(HARD), HardMaximum)


@contextlib.contextmanager
def _reading(mode: Reading) -> Iterator[None]:
    token = _current.set(mode)
    try:
        yield
    finally:
        _current.reset(token)


def reading(mode: Reading, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with every `maximum` inside it read as `mode`."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with _reading(mode):
            return function(*args, **kwargs)

    return wrapped


def reading_with_sharpness(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(p, ...)` read as the p-norm of a traced sharpness `p`: one compilation for an annealed search."""

    def wrapped(p: Any, *args: Any) -> Any:
        with _reading(PNorm(p)):
            return function(*args)

    return wrapped


@jax.custom_jvp
def larger(a: Any, b: Any) -> Float[Array, "..."]:
    """The larger of two; a tie has the mean of both derivatives, as in JAX.

    JAX asks which of the two equals the result. A compiler that computes one of them twice, with other roundings, then
    finds that neither does, and the slope is lost; so here the two are compared with each other.
    """
    return jnp.maximum(a, b)


@larger.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (a, b), (slope_a, slope_b) = primals, tangents
    return jnp.maximum(a, b), jnp.where(a == b, 0.5 * (slope_a + slope_b), jnp.where(a > b, slope_a, slope_b))


@jax.custom_jvp
def smaller(a: Any, b: Any) -> Float[Array, "..."]:
    """The smaller of two, with the slopes of `larger`."""
    return jnp.minimum(a, b)


@smaller.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (a, b), (slope_a, slope_b) = primals, tangents
    return jnp.minimum(a, b), jnp.where(a == b, 0.5 * (slope_a + slope_b), jnp.where(a < b, slope_a, slope_b))


@jax.custom_jvp
def _upper(a: Any, b: Any) -> Array:
    return jnp.maximum(a, b)


@jax.custom_jvp
def _lower(a: Any, b: Any) -> Array:
    return jnp.minimum(a, b)


def _chosen(first: Any, along: tuple[Any, Any]) -> Array:
    slopes = (0.0 if isinstance(slope, SymbolicZero) else slope for slope in along)
    return jnp.where(first, *slopes)


@functools.partial(_upper.defjvp, symbolic_zeros=True)
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    return jnp.maximum(*primals), _chosen(primals[0] > primals[1], tangents)


@functools.partial(_lower.defjvp, symbolic_zeros=True)
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    return jnp.minimum(*primals), _chosen(primals[0] < primals[1], tangents)


@traced_for_all
def upper(a: Any, b: Any) -> Float[Array, "..."]:
    """The larger of two; a tie has the slope of `b`: a choice for each slope, a fifth of what `larger` writes down."""
    return _upper(a, b)


@traced_for_all
def lower(a: Any, b: Any) -> Float[Array, "..."]:
    """The smaller of two, with slopes as those of `upper`."""
    return _lower(a, b)


def bounded(value: Any, low: Any, high: Any) -> Float[Array, "..."]:
    """A value between two bounds; at a bound it has the slope of the bound."""
    return lower(upper(value, low), high)


@operation
def kink(a: Any, b: Any) -> Array:
    """The exact maximum of two, in whose place other readings put something else."""
    return larger(a, b)


@operation
def kinks(values: Any) -> Array:
    """The exact maximum of n numbers along the last axis, in whose place other readings put something else."""
    return jnp.max(values, axis=-1)


def maximum(a: Any, b: Any, *more: Any) -> Float[Array, "..."]:
    """The largest of non-negative numbers, in the reading chosen from outside (default: exactly)."""
    if more:
        return maximum(maximum(a, b), *more)
    mode = _current.get(HARD)
    if isinstance(mode, HardMaximum):
        return kink(a, b)
    log_a, log_b = jnp.log(jnp.maximum(a, TINY)), jnp.log(jnp.maximum(b, TINY))
    if isinstance(mode, PNorm):
        return jnp.exp(jnp.logaddexp(mode.p * log_a, mode.p * log_b) / mode.p)
    weight = jax.lax.stop_gradient(jax.nn.sigmoid(mode.p * (log_a - log_b)))
    return weight * a + (1 - weight) * b


def largest(values: Float[Array, "... n"]) -> Float[Array, "..."]:
    """The largest of n non-negative numbers along the last axis, as `maximum` of them all.

    The p-norm of m equal numbers is m^(1/p) times each: m links that are full together look that much slower.
    """
    mode = _current.get(HARD)
    if isinstance(mode, HardMaximum):
        return kinks(values)
    logs = jnp.log(jnp.maximum(values, TINY))
    if isinstance(mode, PNorm):
        return jnp.exp(jax.nn.logsumexp(mode.p * logs, axis=-1) / mode.p)
    return jnp.sum(jax.lax.stop_gradient(jax.nn.softmax(mode.p * logs, axis=-1)) * values, axis=-1)


@operation
def at_least(value: Any, floor: Any) -> Float[Array, "..."]:
    """A constant of the plan bounded below (heads per rank, members of a group): hard in every reading."""
    return larger(value, floor)


@operation
def at_most(value: Any, ceiling: Any) -> Float[Array, "..."]:
    """A constant of the plan bounded above: hard in every reading, never applied to hardware variables."""
    return smaller(value, ceiling)


def ratio(numerator: Any, denominator: Any, otherwise: Any = 0.0) -> Float[Array, "..."]:
    """numerator / denominator, and `otherwise` where the denominator is zero, with finite gradients on both sides."""
    positive = denominator != 0
    return jnp.where(positive, numerator / jnp.where(positive, denominator, 1.0), otherwise)


@operation
def used_share(used: Any, usable: Any) -> Float[Array, "..."]:
    """Share of what is usable that is used, feasible up to 1.

        used / usable    where something is usable
        inf              where something is used and nothing is usable (a reserve that is larger than its tier)
        0                where nothing is used

    What can be used up is never negative: less than nothing is nothing. Slopes are finite on every side, zero where
    the share is infinite.
    """
    some = usable > TINY
    share = used / jnp.where(some, usable, 1.0)
    return jnp.where(some, share, jnp.where(used <= 0, 0.0, jnp.inf))


@operation
def ceil(value: Any) -> Float[Array, "..."]:
    """Round up in the value, identity in the gradient (straight-through); 1e-6 forgives rounding noise."""
    return value + jax.lax.stop_gradient(jnp.ceil(value - 1e-6) - value)


@operation
def floor(value: Any) -> Float[Array, "..."]:
    """Round down in the value, identity in the gradient (straight-through); 1e-6 forgives rounding noise."""
    return value + jax.lax.stop_gradient(jnp.floor(value + 1e-6) - value)
