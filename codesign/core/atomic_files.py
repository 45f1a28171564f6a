"""Writing of files that a user asked for: whole or not at all, and through to devices, pipes and links.

A regular file, or one that does not exist yet, is written beside its place and renamed into it. A link stays a link:
the file that it leads to is replaced. A device or a pipe is written to as it is. Where anything cannot be written,
nothing of it is left, and the error names the path.
"""

import contextlib
import functools
import hashlib
import io
import itertools
import os
import re
import socket
import stat
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .errors import WriteError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frame_bytes", "is_replaceable", "make_folder", "write_bytes", "write_files", "write_frame", "write_text",
           "writing"]  # fmt: skip

SUFFIX = ".partial"
OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")  # names of what is open already, a regular file included
BY_NUMBER = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
LONGEST_NAME = 60  # characters of a file's name that the name of its partial file repeats
_numbers = itertools.count()


def is_replaceable(path: Path) -> bool:
    """True if a path is a regular file, or nothing yet, so that a file may be renamed into its place."""
    if os.path.abspath(path).startswith(OPEN_FILES):
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # nothing there, or nothing that can be looked at: writing will say why
        return True


@contextlib.contextmanager
def writing(path: Path | str) -> Generator[BinaryIO]:
    """An open file that stands at `path` once the block ends well; where it does not, nothing has changed.

    Raises:
        WriteError: it cannot be written; names the path.
    """
    path = Path(path)
    with _naming(path):
        if not is_replaceable(path):
            with _open_as_it_is(path) as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        partial = _partial(target)
        try:
            with _opened(target, partial) as file:
                yield file
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write a whole file or nothing; raises as `writing` does."""
    with writing(path) as file:
        file.write(data)


def write_text(path: Path | str, text: str) -> None:
    """Write a whole file of UTF-8 or nothing; raises as `writing` does."""
    write_bytes(path, text.encode())


def write_frame(path: Path | str, frame: "pd.DataFrame", **how: Any) -> None:
    """Write a whole file of Parquet or nothing; raises as `writing` does."""
    write_bytes(path, frame_bytes(frame, **how))


def frame_bytes(frame: "pd.DataFrame", **how: Any) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, **how)
    return buffer.getvalue()


def write_files(files: Mapping[Path, str | bytes]) -> None:
    """Write several files, all of them or none; folders that they need are made.

    Raises:
        WriteError: one of them cannot be written; the others are as they were, and no new folder is left.
    """
    made: list[Path] = []
    staged: list[tuple[Path, Path, Path]] = []
    try:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            with _naming(path):
                made += make_folder(path.parent)
                if not is_replaceable(path):
                    write_bytes(path, data)
                    continue
                target = Path(os.path.realpath(path))
                partial = _partial(target)
                staged.append((path, partial, target))
                with _opened(target, partial) as file:
                    file.write(data)
        for path, partial, target in staged:
            with _naming(path):
                os.replace(partial, target)
    except BaseException:
        for _, partial, _ in staged:
            partial.unlink(missing_ok=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else put something there
                folder.rmdir()
        raise


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it; returns the new ones, outermost first.

    Raises:
        WriteError: names the folder.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    with _naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


@contextlib.contextmanager
def _naming(path: Path) -> Generator[None]:
    """Errors of the system become one that names the path; that of a reader who has gone stays what it is."""
    try:
        yield
    except (BrokenPipeError, WriteError):
        raise
    except OSError as error:
        raise WriteError(f"cannot write {str(path)!r}: {error.strerror or error}", error.errno) from error
    except ValueError as error:  # a byte 0 in a name
        if "null" not in str(error):
            raise
        raise WriteError(f"cannot write {str(path)!r}: {error}") from error


@contextlib.contextmanager
def _opened(target: Path, partial: Path) -> Generator[BinaryIO]:
    """A new file beside `target` with the rights that it has or would have.

    Raises:
        OSError: it cannot be made, or what is there may not be written.
    """
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = target.stat().st_mode
        if not os.access(target, os.W_OK):
            raise PermissionError(13, os.strerror(13))
    _clear(target.parent)
    with open(partial, "wb") as file:
        if mode is not None:
            partial.chmod(stat.S_IMODE(mode))
        yield file


def _open_as_it_is(path: Path) -> BinaryIO:
    """A device, a pipe, or what this process has open: written where that has come to."""
    name = os.path.abspath(path)
    number = BY_NUMBER.fullmatch(name)
    if name not in STANDARD and number is None:
        return open(path, "wb")
    sys.stdout.flush()
    return os.fdopen(os.dup(int(number[1]) if number else STANDARD[name]), "wb")


def _partial(target: Path) -> Path:
    """Temporary path to write a file to before it is renamed: a name that nobody else has."""
    name = f".{target.name[:LONGEST_NAME]}.{_machine()}-{os.getpid()}-{next(_numbers)}{SUFFIX}"
    return target.with_name(name)


@functools.lru_cache(maxsize=1024)
def _clear(folder: Path) -> None:
    """Remove, once for each folder, what processes of this machine left half-written when they were killed."""
    for partial in folder.glob(f".*.{_machine()}-*{SUFFIX}"):
        number = partial.name.removesuffix(SUFFIX).split("-")[-2]
        if number.isdigit() and not _runs(int(number)):
            partial.unlink(missing_ok=True)


@functools.cache
def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def _runs(number: int) -> bool:
    """True if a process of this number runs."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
