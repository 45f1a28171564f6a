"""Composing the configuration in the tests: the files of conf/ are read and merged once, not thousands of times.

Hydra reads some thirty files for each composition and merges them one by one. Here what a file says is kept, and so is
what a few files in a row come to; each composition merges copies of these, to which its overrides are then applied by
Hydra as ever.
Files of other folders than conf/ itself, which tests write, are read anew each time.
"""

import copy
import pickle
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from omegaconf import DictConfig, OmegaConf, flag_override

CONF = Path(__file__).resolve().parent.parent / "conf"
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


def install() -> None:
    """For all compositions from now on."""
    CachingConfigRepository.load_config = load_config
    ConfigLoaderImpl._compose_config_from_defaults_list = merge_files
    defaults_list._create_interpolation_map = choices_known
