"""Results on disk: all of them once everything is fitted."""

from collections.abc import Mapping
from pathlib import Path

from ...core.atomic_files import write_files


def publish(texts: Mapping[Path, str | bytes]) -> list[Path]:
    """Write files so that an interruption leaves each of them as it was or as it should be.

    Args:
        texts: path -> content; folders are made.

    Raises:
        WriteError: one cannot be written; none is then.
    """
    write_files(texts)
    return list(texts)
