"""A model traced once for all processes: the program is kept on disk, under a hash of all that it depends on.

That is the structure of what is traced, shapes and types of its numbers, every module of this package, and JAX, NumPy
and Python themselves. A trace that has anything of somebody else's in it is not kept, nor is one that does not come
back as it was.
"""

import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..kept_on_disk import keeps, kept_text, key_of
from ..strict_json import dumps
from ..typed_jax import configured
from .program import Program
from .programs_on_disk import program_as_plain, program_from_plain
from .trees_on_disk import CannotBeKept, structure_as_plain, structure_from_plain

MOST_KEPT = 32  # texts (disk: 0.4 MB each)
PACKAGE = Path(__file__).parent.parent


class Traced(NamedTuple):
    """A program, and of what its outputs are the leaves: `structure` with shapes and types `avals`."""

    program: Program
    structure: Any
    avals: tuple[jax.ShapeDtypeStruct, ...]


def traced_once(make: Callable[[], Traced], structure: Any, avals: Sequence[jax.ShapeDtypeStruct]) -> Traced:
    """What `make` gives, read from disk where an earlier process had it made of the same structure.

    Args:
        make: traces.
        structure: of what is traced.
        avals: shapes and types of its numbers.
    """
    if not keeps():
        return make()
    try:
        key = key_of([dumps([structure_as_plain(structure), _plain(avals)]), *_depends_on()])
    except CannotBeKept:
        return make()
    found: list[Traced] = []

    def text() -> str:
        found.append(make())
        with contextlib.suppress(CannotBeKept):
            return _text(found[-1])
        return ""

    def is_whole(text: str) -> bool:
        with contextlib.suppress(CannotBeKept):
            found.append(_read(text))
        return bool(found)

    kept_text("programs", key, text, is_whole, MOST_KEPT)
    return found[-1]


def _text(traced: Traced) -> str:
    """With a hash of itself, so that a damaged one is told."""
    structure = structure_as_plain(traced.structure)
    if structure_from_plain(structure) != traced.structure:
        raise CannotBeKept("another structure comes back")
    body = dumps([program_as_plain(traced.program), structure, _plain(traced.avals)])
    return dumps([_hash(body), body])


def _read(text: str) -> Traced:
    try:
        told, body = json.loads(text)
        if not isinstance(body, str) or _hash(body) != told:
            raise CannotBeKept("a damaged text")
        program, structure, avals = json.loads(body)
        known = tuple(jax.ShapeDtypeStruct(tuple(shape), np.dtype(kind)) for shape, kind in avals)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise CannotBeKept("no trace") from error
    return Traced(program_from_plain(program), structure_from_plain(structure), known)


def _plain(avals: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    return [[aval.shape, aval.dtype.str] for aval in avals]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _depends_on() -> Iterator[str]:
    """What a program depends on beside the structure."""
    yield from (version("jax"), version("jaxlib"), version("numpy"), version("equinox"), sys.version)
    yield str(configured("jax_enable_x64"))
    yield _modules()


@functools.cache
def _modules() -> str:
    """A hash of every module of this package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return key_of(part for file in files for part in (str(file.relative_to(PACKAGE)), file.read_bytes()))
