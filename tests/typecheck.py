"""The run-time type checker of the tests: beartype, taking an int where a float is asked for (PEP 484).

Four things make this quick, and check no less. The checks of a function are made when it is first called: most
processes call few of them. A function inside a function is made anew whenever the outer one runs, and making its checks
takes a thousand times as long as running it: they are made once for each place in the code and set of annotations. What
says nothing about shapes needs no account of them; what does is checked once, before and after it runs, in one account.
And what the modules come to with the checks written in is kept between processes, under .cache/, by the text it is
made of.
"""

import contextlib
import dataclasses
import functools
import importlib._bootstrap_external  # pyright: ignore
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintException
from jax._src.traceback_util import register_exclusion
from jaxtyping._import_hook import _JaxtypingLoader
from jaxtyping._storage import pop_shape_memo, push_shape_memo

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
of_one_function = jaxtyping.jaxtyped
SHAPES = "jaxtyping."  # in the text of an annotation that says something about shapes
KEPT = Path(__file__).resolve().parent.parent / ".cache" / "checked"
checkers: dict[Any, "Checker"] = {}


def made(function: Callable[..., Any], typechecker: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its checks."""
    told = [one if isinstance(one, str) else repr(one) for one in getattr(function, "__annotations__", {}).values()]
    shaped = any(SHAPES in one for one in told)
    late = any(isinstance(one, str) for one in getattr(function, "__annotations__", {}).values())
    symbolic = any("{" in one for one in told)  # a size that is computed from arguments
    if late or symbolic or (shaped and inspect.isgeneratorfunction(inspect.unwrap(function))):
        return of_one_function(function, typechecker=typechecker)
    with contextlib.suppress(BeartypeDecorHintException):  # what refers to what comes later
        return accounted(function, typechecker(function)) if shaped else typechecker(function)
    return of_one_function(function, typechecker=typechecker)


def accounted(function: Callable[..., Any], with_checks: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its checks, in an account of shapes of its own."""

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        push_shape_memo({})
        try:
            return with_checks(*arguments, **named)
        finally:
            pop_shape_memo()

    return run


def checked(function: Callable[..., Any], typechecker: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gets its checks when it is first called."""
    ready: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        if not ready:
            ready.append(made(function, typechecker))
        return ready[0](*arguments, **named)

    return run


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
    """`jaxtyping.jaxtyped`, quick."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(function) and inspect.isfunction(function.__init__):
        if dataclasses.is_dataclass(function) and function.__init__.__globals__ is not globals():
            function.__init__ = checked(function.__init__, typechecker)
        return function
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


def kept_at(place: str, *_: Any, **__: Any) -> str:
    """Where the checked form of a module is kept."""
    made_by = f"{sys.implementation.cache_tag}-{jaxtyping.__version__}"
    return str(KEPT / made_by / f"{Path(place).as_posix().replace('/', '-')}c")


def load(self: _JaxtypingLoader, module: Any) -> None:
    """Run a module with its checks; their code is read from where it is kept, whatever is done with other code."""
    with (
        patch.object(importlib._bootstrap_external, "cache_from_source", kept_at),
        patch.object(sys, "dont_write_bytecode", False),
    ):
        code = self.get_code(module.__name__)
    exec(code, module.__dict__)


def install(package: str) -> None:
    """Check every function of a package that is imported from now on."""
    register_exclusion(__file__)  # an equation is said to be written by the function that is checked
    jaxtyping.jaxtyped = jaxtyped
    _JaxtypingLoader.exec_module = load
    jaxtyping.install_import_hook(package, "typecheck.check")
