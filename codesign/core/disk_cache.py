"""Texts that take long to make, kept on disk for the next process under a hash of all that they depend on.

A file holds the checksum of its text in the first line, and the text. Nothing is kept before a command says where
(`keep_in`). What is damaged is made anew, in silence; what cannot be read or written is made anew each time.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from .atomic_files import make_folder, write_text

MAX_TEXTS = 1000  # texts of a kind, unless another number is said; a composition has 45 KB, others less
_folder: list[Path] = []


def keep_in(folder: Path | None) -> None:
    """From now on keep texts below this folder; nowhere for None."""
    _folder[:] = [folder] if folder is not None else []


def key_of(parts: Iterable[str | bytes]) -> str:
    """A hash of texts or bytes in their order."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return total.hexdigest()


def keeps() -> bool:
    """True if a command has set the folder of the cache."""
    return bool(_folder)


def cached_text(
    kind: str, key: str, make: Callable[[], str], is_valid: Callable[[str], bool] = bool, most: int | None = None
) -> str:
    """The text of a kind under a key, made where it is not there.

    Args:
        kind: folder.
        key: as `key_of` has it.
        make: the text; an empty one is not kept.
        is_valid: whether what was read is a text that `make` could have made; asked of undamaged ones alone.
        most: texts of this kind; none: `MOST_KEPT`.
    """
    if not _folder:
        return make()
    path = _folder[0] / kind / f"{key}.json"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        noted, _, result = path.read_bytes().decode().partition("\n")
        if noted == _checksum(result) and is_valid(result):
            return result
    made = make()
    if made:
        with contextlib.suppress(OSError):
            _write(path, made, most or MAX_TEXTS)
    return made


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str, most: int) -> None:
    """Whole or not at all; the oldest of too many goes."""
    make_folder(path.parent)
    write_text(path, f"{_checksum(text)}\n{text}")
    written = [name for name in os.listdir(path.parent) if name.endswith(".json")]
    if len(written) <= most:  # else each file is asked for its age, which takes 5 us
        return
    for old in sorted((path.parent / name for name in written), key=lambda one: one.stat().st_mtime)[:-most]:
        with contextlib.suppress(OSError):
            old.unlink()
