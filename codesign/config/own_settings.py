"""Settings in a user's own files: whose numbers these are, and which file a complaint is about."""

import contextlib
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from ..core.json_yaml import is_mapping
from ..core.resources import conf_dir
from .composition import chosen_options
from .own import HEADER, entries_of, groups_of_ours, own_folders, read, shown

SCENARIO = ("cluster.", "workload.", "plan.")


class Setting(NamedTuple):
    """A value that an own file sets: which file, the value, and whether the file says where it comes from."""

    file: str  # from here
    place: str  # below its folder, wherever that lies: runs keep copies
    value: Any
    documented: bool

    @property
    def is_number(self) -> bool:
        """True if it is a number, perhaps with a unit."""
        return isinstance(self.value, int | float) or (isinstance(self.value, str) and self.value[:1] in "$0123456789")


def origins(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """An origin for every number that an own file sets without one, so that what it inherits from is not credited."""
    return {
        key: {"source": one.place, "kind": "assumed", "note": "own file that does not say where the number comes from"}
        for key, one in _chosen(overrides).items()
        if one.is_number and not one.documented and key.startswith(SCENARIO)
    }


@contextlib.contextmanager
def naming_files(overrides: Sequence[str]) -> Generator[None, None, None]:
    """Put before a complaint about a key the own file that sets it."""
    try:
        yield
    except ConfigError as error:
        said = str(error)
        about = [key for key in _chosen(overrides) if said.startswith((f"{key} ", f"{key}.", f"{key}:"))]
        if not about or ".yaml" in said:
            raise
        raise ConfigError(f"{_chosen(overrides)[max(about, key=len)].file}: {said}") from error


def _chosen(overrides: Sequence[str]) -> dict[str, Setting]:
    """Settings of the own files among the options that these overrides choose."""
    if not own_folders():
        return {}
    try:
        return settings(chosen_options(list(overrides)))
    except ConfigError:
        return {}


def settings(options: Mapping[str, str]) -> dict[str, Setting]:
    """Dotted path -> what an own file sets there.

    Args:
        options: group -> option of what was chosen.
    """
    result: dict[str, Setting] = {}
    for group, option in options.items():
        for path in _inherited(group, option):
            text, node = read(path)
            header = HEADER.match(text)
            place = (header[1] if header else group).replace("_global_", "")
            told, values = set[str](), dict[str, Any]()
            _flatten({key: value for key, value in node.items() if key != "defaults"}, place, values, told)
            for key, value in values.items():
                documented = any(key == one or key.startswith(f"{one}.") for one in told)
                result[key] = Setting(shown(path), f"{group}/{path.name}", value, documented)
    return result


def refuse_overruled_options(overrides: Sequence[str]) -> None:
    """Refuse an own file that is chosen beside an experiment of ours which sets other values over it; of ours, say so.

    Raises:
        ConfigError: the file, the key, both values, and what to type for either.
    """
    typed: dict[str, str] = {}
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        typed[key] = value
    experiment = typed.get("experiment")
    named = {group: option for group, option in typed.items() if group in groups_of_ours() and group != "experiment"}
    if not experiment or not named or _inherited("experiment", experiment):
        return
    theirs = _values("experiment", experiment, [conf_dir()])
    for group, option in named.items():
        own = bool(_inherited(group, option))
        values = _values(group, option, own_folders() if own else [conf_dir()])
        lost = [key for key, value in values.items() if key in theirs.keys() - typed.keys() and theirs[key] != value]
        if lost and own:
            key = lost[0]
            raise ConfigError(
                f"{key}: experiment={experiment} sets {theirs[key]} over the {values[key]} of {group}={option}: type "
                f"{key}={values[key]} or {key}={theirs[key]}"
            )
        if lost:
            kept = ", ".join(f"{key}={theirs[key]}" for key in lost)
            print(f"codesign: experiment={experiment} sets {kept} over {group}={option}", file=sys.stderr)


def _values(group: str, option: str, folders: Sequence[Path]) -> dict[str, Any]:
    """Dotted path -> value of an option's file and those of its group that it is made from."""
    result: dict[str, Any] = {}
    for path in _inherited(group, option, folders):
        text, node = read(path)
        header = HEADER.match(text)
        place = (header[1] if header else group).replace("_global_", "")
        _flatten({key: value for key, value in node.items() if key != "defaults"}, place, result, set())
    return result


def _inherited(group: str, option: str, folders: Sequence[Path] | None = None) -> list[Path]:
    """The own file of an option, or that of other folders, and those of its group that it is made from, these first."""
    paths, wanted = list[Path](), [option]
    while wanted:
        name = wanted.pop().removesuffix(".yaml")
        for folder in own_folders() if folders is None else folders:
            path = folder / group / f"{name}.yaml"
            if path.is_file() and path not in paths:
                paths.append(path)
                wanted += [entry for entry in entries_of(read(path)[1], path) if isinstance(entry, str)]
    return paths[::-1]


def _flatten(node: Any, place: str, values: dict[str, Any], told: set[str]) -> None:
    """Values by dotted path, and the paths of which a block of provenance tells."""
    if not is_mapping(node):
        values[place] = node
        return
    for key, value in node.items():
        path = f"{place}.{key}" if place else str(key)
        if key != "provenance":
            _flatten(value, path, values, told)
        elif is_mapping(value):
            told |= {f"{place}.{name}" for name in value}
