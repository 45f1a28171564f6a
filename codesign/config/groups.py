"""Config groups: the folders of `conf/` and the files in them, of plug-ins and a user's own too."""

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, suggestion
from ..core.json_yaml import is_list, is_mapping
from ..core.resources import conf_dir as conf_dir
from ..core.short_names import CHOICES
from ..core.untrusted_io import read_yaml_file
from .plugins import plugin_folders
from .user_files import groups_of_ours, origin, user_folders


def folders() -> list[Path]:
    """Folders of configurations beside ours: of plug-ins, and a user's own."""
    return [*plugin_folders(), *user_folders()]


def search_path() -> list[str]:
    """Override that lets Hydra find the files beside ours; nothing where there are none."""
    quoted = (str(folder).replace("\\", "\\\\").replace("'", "\\'") for folder in folders())
    listed = ",".join(f"'file://{folder}'" for folder in quoted)
    return [f"hydra.searchpath=[{listed}]"] if listed else []


Edition = tuple[tuple[str, int], ...]
"""Path of each file that can be chosen from, and when it was written (ns)."""


def edition() -> Edition:
    """Every file that can be chosen from and when it was written, for whoever keeps what was composed of them."""
    return tuple(sorted(entry for folder in (conf_dir(), *folders()) for entry in _written_below(folder)))


def _written_below(folder: Path | str, depth: int = 8) -> Iterator[tuple[str, int]]:
    """Files of a folder and of `depth` levels below, where a link may lead back up."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _written_below(entry.path, depth - 1) if depth else ()
            elif entry.name.endswith(".yaml"):
                yield entry.path, entry.stat().st_mtime_ns


def groups() -> list[str]:
    """Config groups, in alphabetical order."""
    return groups_of_ours()


def describe(path: Path) -> str:
    """The first comment of a YAML file that is no directive to Hydra."""
    status = path.stat()
    return _first_comment(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4096)
def _first_comment(path: Path, *age_and_size: int) -> str:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if text.startswith("#") and not text.startswith("# @package"):
            return text.lstrip("# ").strip()
        if text and not text.startswith("#"):
            break
    return ""


def available(group: str | None = None) -> dict[str, str]:
    """Groups with their options, or the options of one group with a line on each.

    Raises:
        ConfigError: no such group, with a suggestion; two accelerators with one alias.
    """
    if group is None:
        return {name: ", ".join(available(name)) for name in groups()}
    if group not in groups():
        raise ConfigError(f"config group {group!r} does not exist{group_suggestion(group)}")
    if group == "accelerator":
        aliases()  # refuses files that claim the same measurements
    return {path.stem: _with_origin(path) for path in files(group)}


def group_suggestion(word: str, others: Iterable[str] = ()) -> str:
    """Group that an everyday word stands for, `accelerator` for `gpus`, or one spelt like it, also of `others`."""
    meant = CHOICES.get(word.lower()) or CHOICES.get(word.lower().removesuffix("s"))
    return f" (did you mean {meant!r}?)" if meant else suggestion(word, [*groups(), *others])


def _with_origin(path: Path) -> str:
    """Description of a file, and whose it is, where it is not one of ours."""
    description, whose = describe(path), origin(path)
    return f"{description} ({whose})".strip() if whose else description


def files(group: str) -> list[Path]:
    """YAML files of a group, those beside ours too, in alphabetical order.

    Raises:
        ConfigError: two files of one name.
    """
    result: dict[str, Path] = {}
    for folder in (conf_dir(), *folders()):
        for path in sorted((folder / group).glob("*.yaml")):
            if path.is_file() and result.setdefault(path.stem, path) != path:
                raise ConfigError(f"{group}={path.stem} is two files, {result[path.stem]} and {path}: rename one")
    return [result[name] for name in sorted(result)]


def check_part(group: str, choices: Iterable[str]) -> None:
    """Check a folder below a group (`+calibration/power=b200`): its files are options that no menu lists.

    Raises:
        ConfigError: no such folder, or no such file in it.
    """
    if "/" not in group or group.startswith("hydra/"):
        return
    options = [path.stem for path in files(group)]
    if not options:
        raise ConfigError(f"config group {group!r} does not exist{suggestion(group.partition('/')[0], groups())}")
    for choice in choices:
        if choice not in options:
            raise ConfigError(f"{group} = {choice} does not exist{suggestion(choice, options)}")


def aliases() -> dict[str, str]:
    """Name of a device as tables of measurements write it -> accelerator option.

    Raises:
        ConfigError: two files claim the same measurements.
    """
    return _aliases(tuple(files("accelerator")))


@functools.cache
def _aliases(paths: tuple[Path, ...]) -> dict[str, str]:
    result: dict[str, str] = {}
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    for path in paths:
        device = _device(path)
        names = [("alias", path.stem), *(("alias", name) for name in words(device, "aliases", path))]
        names += [("prefix", name) for name in words(device, "prefixes", path)]
        names += [("name", str(device["name"]))] if "name" in device else []
        for kind, name in names:
            owner, written = owners.setdefault((kind, plain_name(name)), (path.stem, name))
            if owner != path.stem:
                also = "" if written == name else f" as {written!r}"
                raise ConfigError(
                    f"accelerator/{path.name}: {kind} {name!r} stands in accelerator/{owner}.yaml too{also}: both would"
                    f" take the same measurements; a copied file gives itself a name, aliases and prefixes of its own"
                )
            if kind == "alias":
                result[name] = path.stem
    return result


MAKERS = ("nvidia", "geforce", "tesla", "amd", "instinct", "google", "cloud", "amazon", "aws", "intel", "habana")
"""Words before a device's name that some write, in this order."""


def accelerator_option(name: str) -> str | None:
    """The accelerator option that a name means, `h100_sxm` of `NVIDIA-H100`; None where it is nobody's."""
    if name in {path.stem for path in files("accelerator")}:
        return name
    return {plain_name(alias): option for alias, option in aliases().items()}.get(plain_name(name))


def plain_name(name: str) -> str:
    """A device's name without what spellings differ in: `NVIDIA H100-SXM` is `h100sxm`."""
    plain = "".join(ch for ch in name.lower() if ch.isalnum())
    for maker in MAKERS:
        plain = plain.removeprefix(maker)
    return plain


def _device(path: Path) -> dict[str, Any]:
    """The accelerator of a file, whichever package it is written for."""
    node: Any = read_yaml(path)
    for key in ("cluster", "accelerator"):
        node = node.get(key, node) if is_mapping(node) else {}
    return node if is_mapping(node) else {}


def words(part: dict[str, Any], key: str, path: Path) -> list[str]:
    """A list of names in the file of an accelerator or a model.

    Raises:
        ConfigError: it is no list.
    """
    names: Any = part.get(key) or []
    if not is_list(names):
        raise ConfigError(
            f"{path.parent.name}/{path.name}: {key} = {names!r} must be a list of names, such as [{names}]"
        )
    return [str(name) for name in names]


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        ConfigError: it cannot be read, with the place.
    """
    return read_yaml_file(path, f"{path.parent.name}/{path.name}")


PACKAGES = {
    "accelerator": "cluster.accelerator",
    "calibration": "cluster.accelerator.kernels",
    "memory": "cluster.accelerator.hbm",
    "die": "cluster.accelerator.die",
    "stack": "cluster.accelerator",
    "kernel_correction": "cluster.accelerator.kernel_correction",
    "framework": "workload",
    "host": "cluster.host",
    "facility": "cluster.facility",
    "ownership": "cluster.facility.ownership",
    "path_energy": "cluster.path_energy",
    "prefill": "cluster.prefill",
    "later_stages": "cluster.later_stages",
    "ffn": "cluster.ffn",
    "fabric": "cluster.network.scale_up.fabric",
    "collective": "cluster.network.scale_up.collectives",
    "scale_out": "cluster.network.scale_out",
    "reliability": "cluster.reliability",
    "carbon": "cluster.carbon",
    "model": "workload.model",
    "scaling_law": "workload.scaling_law",
    "precision": "workload.precision",
    "optimizer": "workload.optimizer",
    "engine_memory": "workload.engine_memory",
}
"""Key under which the content of a group lands, if not under the group's own name."""


SYNONYMS = {
    "objective.goal": "objective.minimise",
    "workers": "runner.workers",
    "search.optimiser": "search.optimizer",
    "search.descent.optimiser": "search.descent.optimizer",
}
"""Keys that say the same, and what stands below them."""


def expand(key: str) -> str:
    """`model.path` -> `workload.model.path`: a key that starts with a group stands for the place of that group."""
    for old, new in SYNONYMS.items():
        if key == old or key.startswith(f"{old}."):
            key = new + key[len(old) :]
    first, dot, rest = key.partition(".")
    return f"{PACKAGES[first]}{dot}{rest}" if dot and first in PACKAGES else key
