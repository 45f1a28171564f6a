"""The run-time type checker of the tests: beartype, taking an int where a float is asked for (PEP 484).

Two things make this quick, and check no less. A function inside a function is made anew whenever the outer one runs,
and making its checks takes a thousand times as long as running it: they are made once for each place in the code and
set of annotations. And what says nothing about shapes needs no account of them, which takes ten times as long as the
types.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintException
from jax._src.traceback_util import register_exclusion

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
of_one_function = jaxtyping.jaxtyped
SHAPES = "jaxtyping."  # in the text of an annotation that says something about shapes
checkers: dict[Any, "Checker"] = {}


def checked(function: Callable[..., Any], typechecker: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its checks."""
    told = getattr(function, "__annotations__", {}).values()
    if not any(isinstance(one, str) or SHAPES in repr(one) for one in told):
        with contextlib.suppress(BeartypeDecorHintException):  # what refers to what comes later
            return typechecker(function)
    return of_one_function(function, typechecker=typechecker)


class Checker:
    """The checks of one function inside another, for all that are made at that place."""

    def __init__(self, function: Callable[..., Any], typechecker: Callable[..., Any]) -> None:
        self.next: list[Callable[..., Any]] = []

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            return self.next.pop()(*arguments, **named)

        self.checked = checked(run, typechecker)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """This function with the checks."""

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            depth = len(self.next)
            self.next.append(function)
            try:
                return self.checked(*arguments, **named)
            finally:
                del self.next[depth:]  # it is still there where the arguments were refused

        return run


def jaxtyped(function: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """`jaxtyping.jaxtyped`, quick for functions inside functions."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if not inspect.isfunction(function):
        return of_one_function(function, typechecker=typechecker)
    if "<locals>" not in function.__qualname__:
        return checked(function, typechecker)
    told = function.__annotations__.items(), (function.__kwdefaults__ or {}).items()
    place = (function.__module__, function.__code__, function.__defaults__, *map(tuple, told))
    try:
        hash(place)
    except TypeError:
        return checked(function, typechecker)
    if place not in checkers:
        checkers[place] = Checker(function, typechecker)
    return checkers[place].around(function)


def install(package: str) -> None:
    """Check every function of a package that is imported from now on."""
    register_exclusion(__file__)  # an equation is said to be written by the function that is checked
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(package, "typecheck.check")
