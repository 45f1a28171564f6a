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
from types import FunctionType
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
    def run(*arguments: Any, __with_checks: Any = with_checks, __push: Any = push_shape_memo,
            __pop: Any = pop_shape_memo, **named: Any) -> Any:  # fmt: skip
        __push({})
        try:
            return __with_checks(*arguments, **named)
        finally:
            __pop()

    return run


def stands_alone(function: Any) -> bool:
    """Whether its code needs nothing but its defaults, so that another function may run it."""
    return isinstance(function, FunctionType) and not function.__code__.co_freevars


def checked(function: Callable[..., Any], typechecker: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gets its checks when it is first called, and from then on is the one with the checks."""

    @functools.wraps(function)
    def run(*arguments: Any, __function: Any = function, __typechecker: Any = typechecker,
            __self: Any = None, __ready: Any = None, **named: Any) -> Any:  # fmt: skip
        if __ready is None:
            __ready = made(__function, __typechecker)
            if stands_alone(__ready) and __ready is not __function:
                __self.__code__, __self.__kwdefaults__ = __ready.__code__, __ready.__kwdefaults__
            else:
                __self.__kwdefaults__ = {**__self.__kwdefaults__, "__ready": __ready}
        return __ready(*arguments, **named)

    run.__kwdefaults__["__self"] = run
    return run


INSIDE = "__beartype_func"  # where a function with checks keeps the one that it checks


class Checker:
    """The checks of one function inside another, for all that are made at that place."""

    def __init__(self, typechecker: Callable[..., Any]) -> None:
        self.typechecker = typechecker
        self.model: Any = None
        self.shaped: Any = None
        self.bare = False

    def around(self, function: FunctionType) -> Callable[..., Any]:
        """This function with the checks, which are made when the first of them is called."""
        if self.model is not None:
            return self.with_checks(function)

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            if self.model is None:
                self.learn(function)
            return self.with_checks(function)(*arguments, **named)

        return run

    def learn(self, function: FunctionType) -> None:
        """Make the checks."""
        model = made(function, self.typechecker)
        inner = (getattr(model, "__kwdefaults__", None) or {}).get("__with_checks", model)
        self.shaped = None if inner is model else model
        simple = inner is function or (stands_alone(inner) and INSIDE in (inner.__kwdefaults__ or {}))
        self.model = inner if simple else of_one_function
        self.bare = inner is function  # nothing is said of its types

    def with_checks(self, function: FunctionType) -> Callable[..., Any]:
        """Another function made at the same place, with the same checks."""
        if self.model is of_one_function:
            return checked(function, self.typechecker)
        one = function if self.bare else _like(self.model, function, INSIDE, function)
        return _like(self.shaped, function, "__with_checks", one) if self.shaped else one


def _like(model: Any, function: FunctionType, place: str, inside: Callable[..., Any]) -> FunctionType:
    """What does what `model` does, to another function."""
    new = FunctionType(model.__code__, model.__globals__, function.__name__, model.__defaults__)
    new.__kwdefaults__ = {**model.__kwdefaults__, place: inside}
    new.__qualname__, new.__module__, new.__doc__ = function.__qualname__, function.__module__, function.__doc__
    new.__annotations__, new.__wrapped__ = function.__annotations__, function
    new.__dict__.update(function.__dict__)
    return new


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
    place = (function.__code__, *function.__annotations__.values())
    try:
        checker = checkers.get(place)
    except TypeError:  # a type that cannot be looked up
        return checked(function, typechecker)
    if checker is None:
        checker = checkers[place] = Checker(typechecker)
    return checker.around(function)


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
