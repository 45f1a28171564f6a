"""Cache on disk of XLA's output with checksums: JAX reads a damaged entry as machine code, and never replaces one.

An entry is the checksum of what JAX gave, and that. One that is damaged, cut short or unreadable counts as none and is
taken away, so that JAX compiles again and puts a whole one there.
"""

import contextlib
import hashlib
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.atomic_files import write_bytes

FOLDER = "compiled"
SIZE = hashlib.sha256().digest_size


class CheckedEntries:
    """Entries of a folder by key, as JAX asks for them.

    Args:
        folder: made where it is not there yet.
    """

    def __init__(self, folder: Path):
        self.path = self._path = folder  # JAX tells the one where the other is asked for

    def get(self, key: str) -> bytes | None:
        """Entry under a key, if it is whole."""
        path = self._of(key)
        with contextlib.suppress(OSError):
            entry = path.read_bytes()
            if hashlib.sha256(entry[SIZE:]).digest() == entry[:SIZE]:
                return entry[SIZE:]
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Put it there, or leave it where nothing can be written."""
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            write_bytes(self._of(key), hashlib.sha256(value).digest() + value)

    def _of(self, key: str) -> Path:
        return self.path / f"{key}-cache"


def keep_compiled(folder: Path) -> bool:
    """Let JAX keep what it compiles in a folder, with checksums.

    Returns:
        Whether it does: another release of JAX may not ask where we answer, and keeps nothing then.
    """
    try:
        module: Any = import_module("jax._src.compilation_cache")
        interface: Any = import_module("jax._src.compilation_cache_interface").CacheInterface
        there = callable(module.get_file_cache)
    except (ImportError, AttributeError):
        return False
    checked = type("CheckedCache", (CheckedEntries, interface), {})

    def cache_of(path: str) -> tuple[Any, str]:
        return checked(Path(path)), path

    module.get_file_cache = cache_of
    return there
