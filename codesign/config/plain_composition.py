"""Files of the configuration put together by Hydra's defaults list, and merged as plain mappings.

Hydra says which files there are and where each of them goes. It would compose its own settings beside ours and merge
nodes of OmegaConf, which takes three times as long. What such a merge might do otherwise than one of plain mappings
(keys below a reference, a key without a value) is left to it.
"""

import functools
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from ..core.disk_cache import cached_text, keeps, key_of
from ..core.json_yaml import Loader, dumps, is_list, is_mapping

PRIMARY = "config"
PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
NO_VALUE, REFERENCE, OF_HYDRA, DEFAULTS = "???", "${", "hydra", "defaults"


_LOADER: Any = type("_Loader", (Loader,), {"yaml_implicit_resolvers": get_yaml_loader().yaml_implicit_resolvers})
"""The C parser with the words, numbers and dates of OmegaConf."""


class UnsupportedMerge(Exception):
    """A merge that is left to OmegaConf."""


class Composition(NamedTuple):
    """A configuration with its references unresolved, and which option was chosen of each group."""

    config: dict[Any, Any]
    options: dict[str, str]


class _File(NamedTuple):
    """A file as Hydra reads it, and its content: nobody may change either."""

    result: ConfigResult
    content: dict[Any, Any]


class _Source(FileConfigSource):
    """Hydra's source of files, parsed by the C library; what it needs of one is the header and the defaults list."""

    @staticmethod
    def scheme() -> str:
        """Scheme that its addresses begin with."""
        return "plain"

    def load_config(self, config_path: str) -> ConfigResult:
        """A file's header, its defaults list, and one of the keys beside it.

        Raises:
            NotPlain: see `_parsed`.
        """
        text, content = _parsed(f"{self.path}/{config_path}.yaml")
        listed = {key: content[key] for key in content if key == DEFAULTS}
        some = dict.fromkeys([key for key in content if key != DEFAULTS][:1])  # Hydra asks whether there is any
        return ConfigResult(
            provider=self.provider,
            path=f"{self.scheme()}://{self.path}",
            config=OmegaConf.create(some | listed),
            header=self._get_header_dict(text[:512]),
        )


class _Files(ConfigRepository):
    """Folders of files, each of which is read once a process."""

    def __init__(self, folders: Sequence[str]):
        self.sources = [_Source("main", f"{_Source.scheme()}://{folder}") for folder in folders]

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A file's header and defaults list; None where there is no such file."""
        file = self.file(config_path)
        return file.result if file is not None else None

    def file(self, config_path: str) -> _File | None:
        """A file of the first folder that has one of this name."""
        source: Any = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None:
            return None
        status = os.stat(f"{source.path}/{config_path}.yaml")
        return _read(source.path, config_path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4096)
def _read(folder: str, config_path: str, *age_and_size: int) -> _File:
    """A file of this age and size.

    Raises:
        NotPlain: see `_parsed`.
    """
    result = ConfigRepository.load_config(_Files([folder]), config_path)
    assert result is not None
    _, content = _parsed(f"{folder}/{config_path}.yaml")
    return _File(result, {key: content[key] for key in content if key != DEFAULTS})


def _parsed(path: str) -> tuple[str, dict[Any, Any]]:
    """Text and content of a file.

    Raises:
        NotPlain: it is no mapping of words, numbers, lists and mappings.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        content = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise UnsupportedMerge from error
    if content is None:
        return text, {}
    if not is_mapping(content) or not _is_plain(content):
        raise UnsupportedMerge
    return text, content


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and _is_plain(part) for key, part in cast(dict[Any, Any], value).items())
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[Any], value)))
    return value is None or isinstance(value, str | int | float)


def compose_plainly(folders: Sequence[str], overrides: Sequence[Override]) -> Composition | None:
    """The configuration of these choices; None where it is for Hydra to compose, or to say what is wrong.

    Args:
        folders: ours, then those beside it.
        overrides: of groups.
    """
    try:
        files = _Files(folders)
        chosen = create_defaults_list(files, PRIMARY, [*overrides], prepend_hydra=False, skip_missing=False)
        if chosen.config_overrides:
            return None
        config: dict[Any, Any] = {}
        for default in chosen.defaults:
            file = files.file(default.config_path) if default.config_path is not None else None
            if file is None:
                return None
            package = default.package if default.package is not None else file.result.header["package"]
            _merge(config, _placed(file.content, package or ""))
    except (UnsupportedMerge, HydraException, OmegaConfBaseException, OSError, ValueError):
        return None
    choices = chosen.overrides.known_choices.items()
    return Composition(config, {str(group): str(option) for group, option in choices if option})


def as_config(plain: Any, key: Any = None, parent: Any = None) -> Any:
    """`OmegaConf.create` of mappings, lists, words and numbers, in a tenth of its time: it looks at each node thrice.

    Args:
        plain: what it is made of.
        key: of the node.
        parent: its node.
    """
    node: Any = None
    if is_mapping(plain):
        node = _like(_MAPPING, key, parent)
        node.__dict__[_INSIDE] = {name: as_config(value, name, node) for name, value in plain.items()}
    elif is_list(plain):
        node = _like(_LIST, key, parent)
        node.__dict__[_INSIDE] = [as_config(value, index, node) for index, value in enumerate(plain)]
    elif isinstance(plain, str) and REFERENCE in plain:
        node = AnyNode(plain, key=key, parent=parent)  # says where a reference is none
    else:
        node = _like(_LEAF, key, parent)
        node.__dict__[_VALUE] = plain
    return node


_INSIDE, _VALUE, _METADATA, _PARENT = "_content", "_val", "_metadata", "_parent"
_EMPTY: Any = object.__new__
_MAPPING: Any = DictConfig({})
_LIST: Any = ListConfig([])
_LEAF: Any = AnyNode(None)


def _like(node: Any, key: Any, parent: Any) -> Any:
    """A node as OmegaConf has just made this one, under another key and parent."""
    metadata = node.__dict__[_METADATA]
    result, copied = _EMPTY(node.__class__), _EMPTY(metadata.__class__)
    copied.__dict__ = {**metadata.__dict__, "key": key, "flags": {}, "resolver_cache": defaultdict(dict)}
    result.__dict__.update(node.__dict__ | {_METADATA: copied, _PARENT: parent, "_flags_cache": None})
    return result


def _placed(content: dict[Any, Any], package: str) -> dict[Any, Any]:
    """A file's content below the keys of a package.

    Raises:
        NotPlain: the package is no name, or the file speaks to Hydra.
    """
    if OF_HYDRA in content or (package and not PACKAGE.fullmatch(package)):
        raise UnsupportedMerge
    for key in reversed(package.split(".") if package else ()):
        content = {key: content}
    return content


def _merge(base: dict[Any, Any], added: dict[Any, Any]) -> None:
    """Put one mapping into another, as OmegaConf does: mappings key by key, anything else in place of what is there.

    Raises:
        NotPlain: OmegaConf might do otherwise.
    """
    for key, value in added.items():
        here = base.get(key)
        if value == NO_VALUE and key in base:
            raise UnsupportedMerge
        if (is_mapping(value) or is_list(value)) and isinstance(here, str) and REFERENCE in here:
            raise UnsupportedMerge
        if (is_list(value) and is_mapping(here)) or (is_mapping(value) and is_list(here)):  # it refuses these
            raise UnsupportedMerge
        if not is_mapping(value):
            base[key] = value
            continue
        if not is_mapping(here):
            base[key] = {}
        _merge(base[key], value)


# Cache on disk of what Hydra composes, for the next process: JSON, under a hash of all files that may be read.


def cached(overrides: Sequence[str], files: Sequence[tuple[str, int]], make: Callable[[], Composition]) -> Composition:
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

    def is_readable(text: str) -> bool:
        composition = _stored_composition(text)
        result.extend([composition] if composition else [])
        return composition is not None

    cached_text("composed", key, text, is_readable)
    return result[-1]


@functools.lru_cache(maxsize=4)
def _digest(files: tuple[tuple[str, int], ...]) -> str:
    """A hash of all names and contents.

    Raises:
        OSError: a file cannot be read.
    """
    return key_of(part for name, _ in files for part in (name, Path(name).read_bytes()))


def _stored_composition(text: str) -> Composition | None:
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
