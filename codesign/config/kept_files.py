"""What Hydra composes, kept on disk for the next process: as JSON, under a hash of all files it could be composed of.

Nothing is kept before a command says where (`keep_in`); what cannot be read, or is not what was written, is composed.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

MOST_KEPT = 200  # compositions; one has 30 to 60 KB
_place: list[Path] = []


class Composition(NamedTuple):
    """A configuration with its references unresolved, and which option was chosen of each group."""

    config: DictConfig
    options: dict[str, str]


def keep_in(folder: Path | None) -> None:
    """From now on keep compositions below this folder; nowhere for None."""
    _place[:] = [folder / "composed"] if folder is not None else []


def kept(overrides: Sequence[str], files: Iterable[str], make: Callable[[], Composition]) -> Composition:
    """What `make` returns for these overrides, read from disk where it was made of the same files before.

    Args:
        overrides: choices of groups.
        files: path of every file that may be read.
        make: composes anew.
    """
    if not _place:
        return make()
    try:
        path = _place[0] / f"{_key(overrides, files)}.json"
        found = _read(path)
        if found is not None:
            return found
        made = make()
        _write(made, path)
    except OSError:
        return make()
    return made


def _key(overrides: Sequence[str], files: Iterable[str]) -> str:
    """A hash of the choices, of what is in the files and of whoever composes them."""
    total = hashlib.sha256(repr((tuple(overrides), version("hydra-core"), version("omegaconf"))).encode())
    for name in files:
        total.update(hashlib.sha256(name.encode()).digest())
        total.update(hashlib.sha256(Path(name).read_bytes()).digest())
    return total.hexdigest()


def _read(path: Path) -> Composition | None:
    """None where nothing of use is there."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        config, options = OmegaConf.create(plain["config"]), dict(plain["options"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(config, DictConfig):
        return None
    OmegaConf.set_struct(config, True)  # as Hydra leaves it
    return Composition(config, options)


def _write(made: Composition, path: Path) -> None:
    """Whole or not at all, and only what JSON gives back as it was."""
    plain = {"config": OmegaConf.to_container(made.config, resolve=False), "options": made.options}
    try:
        text = json.dumps(plain, allow_nan=False)  # `strict_json` would change what it cannot say
    except (TypeError, ValueError):
        return
    if repr(json.loads(text)) != repr(plain):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    others = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
    for old in others[:-MOST_KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
