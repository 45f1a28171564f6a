"""Composing the configuration in the tests: the files of conf/ are read and merged once, not thousands of times.

Hydra reads some thirty files for each composition and merges them one by one. Here what a file says is kept, and so is
what a few files in a row come to; each composition merges copies of these, to which its overrides are then applied by
Hydra as ever.
Files of other folders than conf/ itself, which tests write, are read anew each time. What is chosen of conf/ alone is
composed once for all workers, and kept under a hash of all files and of what composes them.
"""

import contextlib
import copy
import functools
import hashlib
import os
import pickle
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from omegaconf import DictConfig, OmegaConf, flag_override

ROOT = Path(__file__).resolve().parent.parent
CONF, STORE = ROOT / "conf", ROOT / ".cache" / "composed"
load, merge = CachingConfigRepository.load_config, ConfigLoaderImpl._compose_config_from_defaults_list
choices = defaults_list._create_interpolation_map
read: dict[Any, Any] = {}
merged: dict[Any, bytes] = {}
EACH = 5  # files that are merged by themselves


def origin(repository: Any, config_path: str | None) -> tuple[str, str] | None:
    """Where a repository finds a file, if nothing there changes while tests run; else None."""
    for source in repository.get_sources() if config_path else ():
        if source.is_config(config_path):
            unchanged = source.scheme() != "file" or Path(source.path) == CONF
            return (source.scheme(), source.path) if unchanged else None
    return None


def load_config(self: CachingConfigRepository, config_path: str) -> Any:
    """What a file says; None where there is none. Nobody may change it."""
    where = origin(self, config_path)
    if where is None:
        return load(self, config_path)
    key = (where, config_path)
    if key not in read:
        read[key] = load(self, config_path)
    return read[key]


class Fresh:
    """A repository of which each answer may be changed."""

    def __init__(self, repository: Any) -> None:
        self.repository = repository

    def load_config(self, config_path: str) -> Any:
        """What a file says, as a copy."""
        found = copy.copy(self.repository.load_config(config_path))
        found.config = pickle.loads(pickle.dumps(found.config))  # five times as fast as a deep copy
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.repository, name)


def merge_files(self: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """What these files come to, one after the other; what a few of them that follow each other come to is kept."""
    parts = []
    for first in range(0, len(defaults), EACH):
        some = defaults[first : first + EACH]
        where = [origin(repo, one.config_path) for one in some]
        files = [(one.config_path, one.package, one.is_self, one.primary) for one in some]
        key = (*where, *files)
        if None in where:
            parts.append(merge(self, some, Fresh(repo)))
            continue
        if key not in merged:
            merged[key] = pickle.dumps(merge(self, some, Fresh(repo)))
        parts.append(pickle.loads(merged[key]))
    whole = parts[0]
    with flag_override(whole, "no_deepcopy_set_nodes", True):
        for part in parts[1:]:
            whole.merge_with(part)
    return whole


def choices_known(overrides: Any, defaults: list[Any], self_added: bool) -> DictConfig:
    """What a list of files may refer to as `${group}`: most refer to nothing."""
    if any(one.is_interpolation() for one in defaults):
        return choices(overrides, defaults, self_added)
    return OmegaConf.create()


@functools.cache
def of_files() -> str:
    """A hash of what compositions of conf/ depend on."""
    parts = [version("hydra-core"), version("omegaconf"), str(CONF)]
    parts += [f"{path.relative_to(CONF)} {path.read_text(encoding='utf-8')}" for path in sorted(CONF.rglob("*.yaml"))]
    parts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "codesign" / "config").glob("*.py"))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def composed_once(overrides: tuple[str, ...], edition_of_files: Any) -> tuple[bytes, dict[str, str]]:
    """A configuration, pickled, and group -> option: read where a worker composed it before."""
    ours = f"{CONF}{os.sep}"
    if composition.conf_dir() != CONF or not all(path.startswith(ours) for path, _ in edition_of_files):
        return whole(overrides, edition_of_files)
    path = STORE / of_files() / hashlib.sha256(repr(overrides).encode()).hexdigest()
    with contextlib.suppress(OSError):
        return pickle.loads(path.read_bytes())
    made = whole(overrides, edition_of_files)
    partial = path.with_suffix(f".{os.getpid()}")
    if not path.parent.is_dir():  # what was composed of other files is of no use any more
        for other in STORE.glob("*"):
            if other != path.parent:  # which another worker may have made in the meantime
                shutil.rmtree(other, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
    partial.write_bytes(pickle.dumps(made))
    partial.replace(path)
    return made


def install() -> None:
    """For all compositions from now on."""
    global composition, whole  # not imported before checks of types are installed
    from codesign.config import composition

    whole = composition._whole
    composition._whole = functools.lru_cache(maxsize=64)(composed_once)
    CachingConfigRepository.load_config = load_config
    ConfigLoaderImpl._compose_config_from_defaults_list = merge_files
    defaults_list._create_interpolation_map = choices_known
