"""Results that several parts of one evaluation ask for: computed by the first of them and handed to the others.

A model's rooms meet in few objects (a layout, a job), and each asks them for what it needs: ranks of a group, a layer's
operations, bytes by moment. Within `computing_once` a method marked `computed_once` runs for the first who asks of
these very objects: half the equations of a trace. Outside of it nothing is kept.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array

from .smooth import reads_hard

Function = TypeVar("Function", bound=Callable[..., Any])
ResultCache = dict[tuple[Any, ...], list[tuple[Any, tuple[Any, ...], Any]]]
"""(function, arguments by identity) -> (trace, the arguments, which thus stay alive, result)."""
PLAIN = (int, str, float, bool, type(None))

_results: ContextVar[ResultCache | None] = ContextVar("kept", default=None)


@contextlib.contextmanager
def computing_once() -> Iterator[None]:
    """Keep results of `computed_once` until the end of the block; one inside another keeps what the outer one has."""
    if _results.get() is not None:
        yield
        return
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def computed_once(function: Function) -> Function:
    """Mark a pure function of immutable arguments as computed once an evaluation, in each trace by itself.

    A number that was traced inside a loop or a `vmap` means nothing outside, so that another trace computes it anew.
    """

    @functools.wraps(function)
    def cached_function(*arguments: Any) -> Any:
        results = _results.get()
        if results is None:
            return function(*arguments)
        key = (function, reads_hard(), *(each if isinstance(each, PLAIN) else id(each) for each in arguments))
        trace, before = get_opaque_trace_state(), results.setdefault(key, [])
        for at, _, result in before:
            if at == trace:
                return result
        result = function(*arguments)
        before.append((trace, arguments, result))
        return result

    return cast(Function, cached_function)


def one_call(*static: str) -> Callable[[Function], Function]:
    """Decorator of a pure function that a model calls often with arguments of one form: JAX traces it for the first.

    Each call is then one equation of the trace, and not what the function writes. Numbers that are not traced are
    computed as they stand, without a compiler; another reading of maxima is traced anew.

    Args:
        static: names of arguments that are no arrays, given by keyword.
    """

    def wrapped(function: Function) -> Function:
        together = jax.jit(function, static_argnames=static)

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((arguments, named)))
            return (together if traced and reads_hard() else function)(*arguments, **named)

        return cast(Function, called)

    return wrapped


@one_call()
def _apart(array: Array) -> tuple[Array, ...]:
    return tuple(array[index] for index in range(array.shape[0]))


def pieces_of(array: Array) -> tuple[Array, ...]:
    """Entries of an array along its first axis, of which `stacked` knows where they are from."""
    pieces, results = _apart(array), _results.get()
    if results is not None:
        for index, piece in enumerate(pieces):
            results[pieces_of, id(piece)] = [(get_opaque_trace_state(), (piece,), (array, index))]
    return pieces


def stacked(*pieces: Array) -> Array:
    """Arrays along a new first axis: evenly spaced entries of one array are cut out of it at once.

    An entry each, and a stack of them, is what a compiler would else read, and in reverse write, one by one.
    """
    results = _results.get() or {}
    origins = [results[pieces_of, id(piece)][0][2] for piece in pieces if (pieces_of, id(piece)) in results]
    places = [index for _, index in origins]
    steps = {after - before for before, after in itertools.pairwise(places)}
    if len(origins) == len(pieces) and len({id(array) for array, _ in origins}) == 1 == len(steps) and min(steps) > 0:
        return jax.lax.slice_in_dim(origins[0][0], places[0], places[-1] + 1, *steps)
    return jnp.stack(pieces)
