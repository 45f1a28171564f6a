"""Whatever is read from a file that somebody else may have written: a checked size, kind and depth, or one line.

A file is refused before it is understood: where it is no regular file (a pipe would never end), too large, or not the
text it claims to be; YAML and JSON where they are nested too deeply or grow when references are written out; archives
and tables where they are damaged, would unpack to too much, or hold objects. Nothing here makes an object of a class.
"""

import hashlib
import json
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from .errors import ConfigError
from .json_yaml import Loader, not_decimal, read_yaml

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "checksum", "read_arrays", "read_frame", "read_json", "read_text", "read_yaml_file", "refuse_changed",
    "refuse_irregular", "tree_of_json", "tree_of_yaml", "written",
]  # fmt: skip

MOST_BYTES = 64 * 2**20  # of a text; the largest that is shipped, a topology of 10^5 cables, has 12 MiB
MOST_UNPACKED = 4 * 2**30  # of an archive of arrays: a checkpoint of the largest grid has a quarter of it
MOST_NODES = 2_000_000  # values of a tree once its references are written out
MOST_DEPTH = 64  # levels of a tree; of what is shipped none has ten
SHOWN = 120  # characters of another library's complaint that are repeated

UNREADABLE = (
    ValueError, TypeError, KeyError, AttributeError, IndexError, OSError, EOFError, MemoryError, NotImplementedError,
    OverflowError, RuntimeError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Errors that reading a damaged archive may raise, whichever part of it is damaged."""


def read_bytes(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """A whole file.

    Args:
        path: the file.
        what: how a message begins, such as `topology file 'a.json'`.
        most: bytes.

    Raises:
        ConfigError: it cannot be read, is no regular file, or is larger.
    """
    refuse_irregular(path, what, most)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror or error}") from error


def refuse_irregular(path: Path, what: str, most: int = MOST_BYTES) -> None:
    """Look at a file before it is opened: opening a pipe waits for a writer that may never come.

    Raises:
        ConfigError: it is not there, is no regular file, or is larger than `most` bytes.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a byte 0
        raise ConfigError(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise ConfigError(f"{what} cannot be read: it is {kind}")
    if status.st_size > most:
        raise ConfigError(f"{what} has {status.st_size / 2**20:.0f} MiB; allowed: at most {most / 2**20:g} MiB")


def read_text(path: Path, what: str, most: int = MOST_BYTES) -> str:
    """A whole file of UTF-8.

    Raises:
        ConfigError: see `read_bytes`; or bytes that are no such text.
    """
    data = read_bytes(path, what, most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{what} cannot be read: line {line} is no UTF-8 text") from error


def tree_of_yaml(text: str, what: str) -> Any:
    """Mappings, lists, numbers and words.

    Raises:
        ConfigError: no YAML, a key that stands twice in a mapping, a number in base 60 or 8, or a tree that is too deep
            or too large once its references are written out.
    """
    try:
        if _may_grow(text):
            _measure(text, what)
        result = not_decimal(text)
        if result is not None:
            raise ConfigError(
                f"{what}, line {result[1]}: {result[0]} is no decimal number (YAML may read it in"
                f" base {60 if ':' in result[0] else 8}); write the number itself, a time with its unit as in 1.5h, or"
                f" a word in quotes: '{result[0]}'"
            )
        return read_yaml(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line_text = f", line {mark.line + 1}," if mark else ""
        problem = _short(getattr(error, "problem", None) or error)
        raise ConfigError(f"{what}{line_text} cannot be read: {problem}") from error


def _may_grow(text: str) -> bool:
    """True if a text may expand beyond its length or nest deeply, so that its events are worth counting."""
    return "&" in text or sum(map(text.count, "[{")) > MOST_DEPTH or " " * MOST_DEPTH in text or "- " * 8 in text


def _measure(text: str, what: str) -> None:
    """Follow the events of a text without making a tree of them."""
    opened: list[tuple[str | None, int]] = []  # anchor and nodes before each collection that is still open
    sizes: dict[str, int] = {}
    count = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor, MOST_NODES)  # what holds itself has no end
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes |= {anchor: count - before} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            sizes |= {event.anchor: 1} if event.anchor else {}
            count += 1
        if len(opened) > MOST_DEPTH:
            raise ConfigError(f"{what} is nested more than {MOST_DEPTH} levels deep")
        if count > MOST_NODES:
            raise ConfigError(f"{what} holds more than {MOST_NODES:,} values once its references are written out")


def tree_of_json(text: str, what: str, *, infinite: bool = False) -> Any:
    """Mappings, lists, finite numbers and words; `infinite`: Infinity and NaN, as Python's own writer writes them, too.

    Raises:
        ConfigError: no JSON, numbers that are not finite, a key that stands twice in a mapping, or too deep.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"key {twice!r} stands there twice")
        return result

    def refused(word: str) -> Any:
        raise ValueError(f"{word} is no number of JSON")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=float if infinite else refused)
    except RecursionError as error:
        raise ConfigError(f"{what} is not JSON: it is nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {_short(error)}") from error


def read_yaml_file(path: Path, what: str) -> Any:
    """The tree of a YAML file; raises as `read_text` and `tree_of_yaml` do."""
    return tree_of_yaml(read_text(path, what), what)


def read_json(path: Path, what: str, *, infinite: bool = False) -> Any:
    """The tree of a JSON file; raises as `read_text` and `tree_of_json` do."""
    return tree_of_json(read_text(path, what), what, infinite=infinite)


def read_arrays(path: Path, what: str, needed: Iterable[str] = (), most: int = MOST_UNPACKED) -> dict[str, np.ndarray]:
    """Arrays of an archive by name, plain numbers and words only.

    Raises:
        ConfigError: no such archive, damaged, one that lacks an array or would unpack to more than `most` bytes.
    """
    refuse_irregular(path, what, most)
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(member.file_size for member in archive.infolist())
        if total > most:
            raise ConfigError(f"{what} would unpack to {total / 2**20:.0f} MiB; allowed: at most {most / 2**20:g} MiB")
        with np.load(path, allow_pickle=False) as file:
            result = {name: file[name] for name in file.files}
        if not all(isinstance(value, np.ndarray) for value in result.values()):
            raise ValueError("a member is no array")
    except UNREADABLE as error:
        raise ConfigError(f"{what} is damaged or no archive of arrays: {_short(error)}") from error
    absent = [name for name in needed if name not in result]
    if absent:
        raise ConfigError(f"{what} is damaged or of another version: it has no {', '.join(absent)}")
    return result


def read_frame(path: Path, what: str, most: int = MOST_UNPACKED) -> "pd.DataFrame":
    """A table of Parquet; checksums of its pages are checked where it has any.

    Raises:
        ConfigError: it cannot be read, is damaged, or has more cells than `most` bytes could hold.
    """
    refuse_irregular(path, what, most)
    try:
        import pyarrow.parquet  # with the first table that is read

        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            cells = file.metadata.num_rows * max(file.metadata.num_columns, 1)
            if not 0 <= cells * np.dtype(float).itemsize <= most:
                raise ValueError(f"{cells} cells are said to be in it")
            return file.read().to_pandas()
    except UNREADABLE as error:
        raise ConfigError(f"{what} cannot be read as Parquet: {_short(error)}") from error


def written(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """File of a folder -> checksum, for those that are there; what `changed` is told of later."""
    there = (name for name in names if (folder / name).is_file())
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in there}


def refuse_changed(folder: Path, names: Iterable[str], manifest: str) -> None:
    """Refuse a file of a folder that is not what was written; a file of which nothing was noted passes.

    Args:
        folder: with the files.
        names: of files that are about to be read.
        manifest: name of the file that holds what `written` told.

    Raises:
        ConfigError: names the file.
    """
    if not (folder / manifest).is_file():
        return
    noted = read_json(folder / manifest, f"{str(folder / manifest)!r}")
    if not isinstance(noted, dict):
        raise ConfigError(f"{str(folder / manifest)!r} should hold a mapping of files to checksums")
    for name in names:
        if name in noted and (folder / name).is_file() and written(folder, [name])[name] != noted[name]:
            raise ConfigError(
                f"{str(folder / name)!r} is not what the run wrote: damaged, or changed by hand "
                f"(its checksum differs from {manifest})"
            )


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of names, types, shapes and numbers, which tells a damaged state from the one that was written."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _short(error: Any) -> str:
    """The first line of another library's complaint."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= SHOWN else f"{lines[0][:SHOWN]}..."
