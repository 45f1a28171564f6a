"""Packed programs as JSON: the next process neither derives slopes nor puts equations together.

A text is found under what the packed program was made of, equation by equation, and is read as numbers, names of
primitives and their settings; Python is written from those anew (`packs`). It is kept only where it comes back as it
was.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .again import told_apart
from .made_once import made_once
from .packing import PackedBatch, Packing
from .programs_on_disk import as_text, does_the_same, kinds_as_plain, kinds_from_plain
from .trees_on_disk import CannotBeKept

MOST_KEPT = 256  # texts (disk: 0.2 MB each), more than all experiments have


def packed_once(make: Callable[[], Packing], told: Callable[[], Iterable[Any]]) -> Packing:
    """Return the packing that `make` gives, read from disk where an earlier process had it made of the same.

    Args:
        make: packs a program.
        told: lists and words that no other program has.
    """
    return made_once("packs", told, make, packing_as_plain, packing_from_plain, MOST_KEPT)


def packing_as_plain(packing: Packing) -> Any:
    """A packing as lists and words.

    Raises:
        CannotBeKept: where they would not give back the same one.
    """
    told, kinds = kinds_as_plain([batch.does for batch in packing.batches])
    plain = {
        "types": [kind.str for kind in packing.kinds], "sizes": packing.sizes, "kinds": told,
        "constants": [[buffer, first, own.dtype.str, as_text(own)] for buffer, first, own in packing.constants],
        "wanted": as_text(np.array(packing.wanted)), "outputs": as_text(np.array(packing.outputs)),
        "batches": [_batch(kind, batch) for kind, batch in zip(kinds, packing.batches, strict=True)],
    }  # fmt: skip
    if not _same(packing_from_plain(plain), packing):
        raise CannotBeKept("another packing comes back")
    return plain


def packing_from_plain(plain: Any) -> Packing:
    """The packing that `packing_as_plain` told.

    Raises:
        CannotBeKept: it is none.
    """
    try:
        kinds = kinds_from_plain(plain["kinds"])
        constants = [
            (int(buffer), int(first), np.frombuffer(base64.b64decode(text), dtype=kind))
            for buffer, first, kind, text in plain["constants"]
        ]
        return Packing(
            tuple(np.dtype(kind) for kind in plain["types"]), tuple(map(int, plain["sizes"])), constants,
            list(zip(*[iter(_numbers(plain["wanted"]))] * 3, strict=True)),
            [
                PackedBatch(
                    kinds[kind], tuple(np.dtype(own) for own in types),
                    tuple((int(buffer), tuple(_numbers(rows))) for buffer, rows in reads),
                    tuple((int(buffer), int(first), int(count)) for buffer, first, count in writes),
                    None if shapes is None else tuple(tuple(map(int, shape)) for shape in shapes),
                )
                for kind, types, reads, writes, shapes in plain["batches"]
            ],
            list(zip(*[iter(_numbers(plain["outputs"]))] * 2, strict=True)),
        )  # fmt: skip
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CannotBeKept("no packing") from error


def _batch(kind: int, batch: PackedBatch) -> list[Any]:
    reads = [[buffer, as_text(rows)] for buffer, rows in batch.reads]
    return [kind, [own.str for own in batch.kinds], reads, batch.writes, batch.shapes]


def _numbers(text: str) -> Sequence[int]:
    return np.frombuffer(base64.b64decode(text), dtype=int).tolist()


def _same(one: Packing, other: Packing) -> bool:
    """True if two packings are the same, batch by batch."""
    bare = [
        each._replace(constants=[], batches=[batch._replace(does=None) for batch in each.batches])
        for each in (one, other)
    ]
    return (
        bare[0] == bare[1]
        and [(buffer, first, told_apart(values)) for buffer, first, values in one.constants]
        == [(buffer, first, told_apart(values)) for buffer, first, values in other.constants]
        and all(does_the_same(a.does, b.does) for a, b in zip(one.batches, other.batches, strict=True))
    )
