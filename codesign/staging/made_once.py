"""Cache on disk of what takes long to make, shared by all processes: JSON, under a hash of its origin.

Beside what is asked for the hash has every module of this package, and JAX, NumPy and Python themselves. What has no
words is not kept, nor is what does not come back as it was.
"""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from ..core.disk_cache import keeps, kept_text, key_of
from ..core.jax_typed import configured
from ..core.json_io import dumps
from .trees_on_disk import CannotBeKept

PACKAGE = Path(__file__).parent.parent
Made = TypeVar("Made")


def made_once(
    kind: str,
    told: Callable[[], Iterable[Any]],
    make: Callable[[], Made],
    as_plain: Callable[[Made], Any],
    from_plain: Callable[[Any], Made],
    most: int,
) -> Made:
    """Return what `make` gives, read from disk where an earlier process had it made of the same.

    Args:
        kind: folder.
        told: lists and words that say what it is made of; asked where anything is kept at all.
        make: makes it.
        as_plain: says it in lists and words; it looks whether the same comes back.
        from_plain: what they say.
        most: texts that are kept.
    """
    if not keeps():
        return make()
    try:
        key = key_of([*(dumps(part) for part in told()), *_depends_on()])
    except CannotBeKept:
        return make()
    result: list[Made] = []

    def text() -> str:
        result.append(make())
        with contextlib.suppress(CannotBeKept):
            return dumps(as_plain(result[-1]))
        return ""

    def is_whole(text: str) -> bool:
        with contextlib.suppress(CannotBeKept):
            result.append(from_plain(_tree(text)))
        return bool(result)

    kept_text(kind, key, text, is_whole, most)
    return result[-1]


def _tree(text: str) -> Any:
    """Parse a text as JSON.

    Raises:
        CannotBeKept: nothing.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotBeKept("no text of ours") from error


def _depends_on() -> Iterator[str]:
    """Versions and sources that everything depends on that is made here."""
    yield from (version("jax"), version("jaxlib"), version("numpy"), version("equinox"), sys.version)
    yield str(configured("jax_enable_x64"))
    yield _modules()


@functools.cache
def _modules() -> str:
    """A hash of every module of this package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return key_of(part for file in files for part in (str(file.relative_to(PACKAGE)), file.read_bytes()))
