"""A component brings an example of itself: `example()`, a small one with plain numbers, which the contracts price."""

import inspect
from typing import TypeVar

from .errors import ConfigError

T = TypeVar("T")


def by_default(cls: type[T]) -> T:
    """The example of a class all of whose arguments have defaults.

    Raises:
        ConfigError: some have none, so that it must bring an example of its own.
    """
    wanted = [name for name, one in inspect.signature(cls).parameters.items() if one.default is one.empty]
    if wanted:
        raise ConfigError(f"{cls.__name__} lacks example(), a classmethod that gives a value to {', '.join(wanted)}")
    return cls()
