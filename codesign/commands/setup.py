"""JAX setup of a run: float64, a compile cache that outlives the process, warnings alone in the log."""

import contextlib
import hashlib
import logging
import os
import shutil
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..core.atomic_files import write_bytes

# Cache on disk of XLA's output with checksums: JAX reads a damaged entry as machine code, and never replaces one.
#
# An entry is the checksum of what JAX gave, and that. One that is damaged, cut short or unreadable counts as none and
# is taken away, so that JAX compiles again and puts a whole one there.


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


FLAG = "xla_cpu_use_fusion_emitters"
TESTED, UNKNOWN = (0, 10), (0, 11)  # versions of JAX, from and up to, in which the flag was tried


def prepare_jax() -> None:
    """Call before anything is built or jitted; a folder that JAX was told of by somebody else stays JAX's own."""
    from ..core.disk_cache import keep_in
    from ..core.jax_typed import configure, configured

    _compile_quickly()
    configure("jax_enable_x64", True)
    logging.getLogger("jax").setLevel(logging.WARNING)
    folder = cache_folder()
    keep_in(folder)
    if folder is None or configured("jax_compilation_cache_dir"):
        return
    compiled = folder / FOLDER
    if keep_compiled(compiled):
        configure("jax_compilation_cache_dir", str(compiled))
        configure("jax_persistent_cache_min_compile_time_secs", 0)
        configure("jax_persistent_cache_min_entry_size_bytes", -1)


def _compile_quickly() -> None:
    """Ask the compiler for its older way to fuse operations on the CPU: large functions compile in a third of the time.

    It is a setting of the process, read when JAX first computes; a version that does not know it would end the process.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    release = tuple(map(int, version("jax").split(".")[:2]))
    if TESTED <= release < UNKNOWN and FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{FLAG}=false".strip()


def cache_folder() -> Path | None:
    """Folder of compiled programs; None if nothing can be written, which only costs time."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(base).expanduser() / "codesign"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the latter of a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None
