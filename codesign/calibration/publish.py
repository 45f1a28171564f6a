"""Results on disk: all of them once everything is fitted, each file in one step."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def publish(texts: Mapping[Path, str | bytes]) -> list[Path]:
    """Write files so that an interruption leaves each of them as it was or as it should be.

    Args:
        texts: path -> content; folders are made.
    """
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return list(texts)
