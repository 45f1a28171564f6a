"""Suites of a validation: which kinds of tables each scores."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .scores import Row


class Suite(NamedTuple):
    """A kind of measurement.

    kinds: names of the schemas of `measurements` that it scores; run: its rows, messages added to the list given.
    """

    name: str
    kinds: tuple[str, ...]
    run: Callable[[Path, list[str]], list[Row]]
