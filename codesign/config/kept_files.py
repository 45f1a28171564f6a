"""Cache on disk of what Hydra composes, for the next process: JSON, under a hash of all files that may be read."""

import functools
import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from ..core.disk_cache import keeps, kept_text, key_of
from ..core.json_io import dumps
from ..core.yaml_io import is_mapping
from .plain_composition import Composition


def kept(overrides: Sequence[str], files: Sequence[tuple[str, int]], make: Callable[[], Composition]) -> Composition:
    """Return what `make` gives for these overrides, read from disk where it was made of the same files before.

    Args:
        overrides: choices of groups.
        files: path of every file that may be read, and when it was written.
        make: composes anew.
    """
    if not keeps():
        return make()
    try:
        key = key_of([repr(tuple(overrides)), version("hydra-core"), version("omegaconf"), _digest(tuple(files))])
    except OSError:
        return make()
    result: list[Composition] = []

    def text() -> str:
        result.append(make())
        return _text(result[-1])

    def is_whole(text: str) -> bool:
        known = _read(text)
        result.extend([known] if known else [])
        return known is not None

    kept_text("composed", key, text, is_whole)
    return result[-1]


@functools.lru_cache(maxsize=4)
def _digest(files: tuple[tuple[str, int], ...]) -> str:
    """A hash of all names and contents.

    Raises:
        OSError: a file cannot be read.
    """
    return key_of(part for name, _ in files for part in (name, Path(name).read_bytes()))


def _read(text: str) -> Composition | None:
    """None where nothing of use is there."""
    try:
        plain = json.loads(text)
        config, options = plain["config"], plain["options"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not is_mapping(config) or not is_mapping(options):
        return None
    return Composition(config, {group: str(option) for group, option in options.items()})


def _text(made: Composition) -> str:
    """Composition as JSON; empty if JSON would not give it back unchanged."""
    plain = {"config": made.config, "options": made.options}
    text = dumps(plain)  # strict: what JSON has no words for is changed, and then not kept
    return text if repr(json.loads(text)) == repr(plain) else ""
