"""JAX setup of a run: float64, a compile cache that outlives the process, warnings alone in the log."""

import logging
import os
from importlib.metadata import version
from pathlib import Path

FLAG = "xla_cpu_use_fusion_emitters"
KNOWN, UNKNOWN = (0, 10), (0, 11)  # versions of JAX, from and up to, in which the flag was tried


def prepare_jax() -> None:
    """Call before anything is built or jitted; a folder that JAX was told of by somebody else stays JAX's own."""
    from ..core.disk_cache import keep_in
    from ..core.jax_typed import configure, configured
    from .compiled_on_disk import FOLDER, keep_compiled

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
    if KNOWN <= release < UNKNOWN and FLAG not in flags:
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
