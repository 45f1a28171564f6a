"""Composing the configuration in the tests: the files of conf/ are read and merged once, not thousands of times.

Hydra reads some thirty files for each composition and merges them one by one. Here what a file says is kept, and so is
what a list of files comes to; each composition gets a copy, to which its overrides are then applied by Hydra as ever.
Other folders than conf/ itself, which tests write, are read anew each time.
"""

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.default_element import ResultDefault
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

CONF = Path(__file__).resolve().parent.parent / "conf"
load, merge = CachingConfigRepository.load_config, ConfigLoaderImpl._compose_config_from_defaults_list
choices = defaults_list._create_interpolation_map
read: dict[Any, Any] = {}
merged: dict[Any, bytes] = {}
BEGUN = "what was merged before"
EACH = 5  # files, after which what they came to is kept


def places(repository: Any) -> tuple[str, ...]:
    """Where a repository looks, if nothing there changes while tests run; else nothing."""
    sources = repository.get_sources()
    if any(source.scheme() == "file" and Path(source.path) != CONF for source in sources):
        return ()
    return tuple(f"{source.scheme()}://{source.path}" for source in sources)


def load_config(self: CachingConfigRepository, config_path: str) -> Any:
    """What a file says; None where there is none. Nobody may change it."""
    where = places(self)
    if not where:
        return load(self, config_path)
    key = (where, config_path)
    if key not in read:
        found = load(self, config_path)
        if found is None:
            return None
        read[key] = found
    return read[key]


class Fresh:
    """A repository of which each answer may be changed, and where what some files came to stands as one more file."""

    def __init__(self, repository: Any, begun: bytes) -> None:
        self.repository, self.begun = repository, begun

    def load_config(self, config_path: str) -> Any:
        """What a file says, as a copy."""
        if config_path == BEGUN:
            return ConfigResult("", "", pickle.loads(self.begun), {"package": ""}, is_schema_source=True)
        found = copy.copy(self.repository.load_config(config_path))
        found.config = pickle.loads(pickle.dumps(found.config))  # five times as fast as a deep copy
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.repository, name)


def merge_files(self: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """What these files come to, one after the other; what the first of them came to before is kept."""
    where = places(repo)
    if not where:
        return merge(self, defaults, repo)
    names = [(one.config_path, one.package, one.is_self, one.primary) for one in defaults]
    stops = [*range(0, len(defaults), EACH), len(defaults)]
    keys = {stop: (where, *names[:stop]) for stop in stops}
    start = max((stop for stop in stops if keys[stop] in merged), default=0)
    for first, last in itertools.pairwise(stops):
        if last > start:
            begun = [ResultDefault(config_path=BEGUN, package="", primary=True)] if first else []
            made = merge(self, [*begun, *defaults[first:last]], Fresh(repo, merged.get(keys[first], b"")))
            merged[keys[last]] = pickle.dumps(made)
    return pickle.loads(merged[keys[len(defaults)]])


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
