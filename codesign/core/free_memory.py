"""Memory that is no longer used: kept by the C library for the next array, or given back to the system."""

import contextlib
import ctypes
import functools
import gc
import os
import sys
from collections import OrderedDict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

TRIM, PAD, MAPPED, HEAPS = -1, -2, -3, -8  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX of malloc.h
FAST = ((TRIM, 512 << 20), (PAD, 64 << 20), (MAPPED, 32 << 20))
SPARING = ((TRIM, 64 << 20), (PAD, 8 << 20), (MAPPED, 8 << 20), (HEAPS, 2))


HOLDERS = ("codesign.staging", "codesign.jaxprs", "codesign.curvature", "codesign.search")
"""Rooms and modules that keep the last programs that they made."""
CACHE_OF_CALLS = type(functools.lru_cache(len))


def resident_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def forget_calls(names: Mapping[str, Any]) -> None:
    """Empty the caches of calls, and the stores of what was made last, that stand in a module under these names."""
    for held in [*names.values()]:
        if isinstance(held, OrderedDict):
            held.clear()
        elif isinstance(held, CACHE_OF_CALLS):
            held.cache_clear()


def forget_programs() -> None:
    """Drop traced and compiled programs, JAX's and our own, and return their memory; those on disk stay."""
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.clear_caches()
    for name, module in [*sys.modules.items()]:
        if name.startswith(HOLDERS):
            forget_calls(vars(module))
    give_back()


@contextlib.contextmanager
def without_collection() -> Generator[None]:
    """Search for no garbage within the block: a trace makes many objects that stay, a fifth of its time goes there."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def give_back(*, cycles: bool = False) -> None:
    """Return what was freed, on systems with glibc.

    Threads that form arrays by turns leave heaps full of holes: a proof of 10^5 plans held 2.3 GB, half of it unused.

    Args:
        cycles: look for objects that hold each other first, as models and their tables do (a tenth of a second).
    """
    if cycles:
        gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def keep_memory(*, sparingly: bool = False) -> None:
    """Let the C library keep what large arrays leave, instead of giving it back and asking again at each operation.

    Giving it back costs up to three quarters of a grid's time. Where the library has no such setting, nothing is done.

    Args:
        sparingly: keep an eighth of it, in two heaps for all threads. A proof of 360,000 plans uses 0.9 GB;
            fragmentation made that 3 GB. It holds for the rest of the process, and for threads that start later.
    """
    if not sparingly and keep_memory.cache_info().currsize:
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for setting, value in SPARING if sparingly else FAST:
            library.mallopt(setting, value)
