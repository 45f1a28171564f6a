"""A model traced once for all processes: the program is kept on disk, under a hash of all that it depends on.

That is the structure of what is traced, shapes and types of its numbers, every module of this package, and JAX, NumPy
and Python themselves. A trace that has anything of somebody else's in it is not kept, nor is one that does not come
back as it was.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..jaxprs.program import Program
from .made_once import made_once
from .programs_on_disk import program_as_plain, program_from_plain
from .trees_on_disk import CannotBeKept, structure_as_plain, structure_from_plain

MOST_KEPT = 256  # texts (disk: 0.2 MB each), more than all experiments have


class Traced(NamedTuple):
    """A program, and of what its outputs are the leaves: `structure` with shapes and types `avals`."""

    program: Program
    structure: Any
    avals: tuple[jax.ShapeDtypeStruct, ...]


def traced_once(make: Callable[[], Traced], structure: Any, avals: Sequence[jax.ShapeDtypeStruct]) -> Traced:
    """Return the trace that `make` gives, read from disk where an earlier process had it made of the same structure.

    Args:
        make: traces.
        structure: of what is traced.
        avals: shapes and types of its numbers.
    """
    return made_once(
        "programs", lambda: [[structure_as_plain(structure), _plain(avals)]], make, _as_plain, _from_plain, MOST_KEPT
    )


def _as_plain(traced: Traced) -> Any:
    structure = structure_as_plain(traced.structure)
    if structure_from_plain(structure) != traced.structure:
        raise CannotBeKept("another structure comes back")
    return [program_as_plain(traced.program), structure, _plain(traced.avals)]


def _from_plain(plain: Any) -> Traced:
    try:
        program, structure, avals = plain
        known = tuple(jax.ShapeDtypeStruct(tuple(shape), np.dtype(kind)) for shape, kind in avals)
    except (TypeError, ValueError) as error:
        raise CannotBeKept("no trace") from error
    return Traced(program_from_plain(program), structure_from_plain(structure), known)


def _plain(avals: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    return [[aval.shape, aval.dtype.str] for aval in avals]
