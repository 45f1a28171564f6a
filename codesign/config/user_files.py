"""A user's own files beside those of `conf/`: a folder with the same groups, no code.

    mine/accelerator/chip.yaml        codesign evaluate --conf mine accelerator=chip
    mine/experiment/rack.yaml         codesign optimize --conf mine experiment=rack

Own files may inherit from ours by `defaults:`. They are read as anybody's: what a file may not do (take the name of
one of ours, name classes of packages that are no plug-in, reach settings of Hydra or anything outside the
configuration) is refused in one line with its name, before anything is composed.
"""

import contextlib
import functools
import re
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..core.atomic_files import write_files
from ..core.earlier_names import GROUPS, current_text
from ..core.errors import ConfigError, suggestion
from ..core.json_yaml import is_list, is_mapping
from ..core.resources import conf_dir
from ..core.untrusted_io import read_text, refuse_irregular, tree_of_yaml
from .plugins import REFUSED, plugins

HIDDEN = {"hydra"}  # settings of the launcher, not of a design
MOST_BYTES = 8 * 2**20  # of all files together: a run folder keeps a copy
MOST_FILES = 2_000
NAMED = ("accelerator", "model")  # groups whose files say what tables and pages call them
RESOLVER = re.compile(r"\$\{\s*[\w.]+\s*:")
OF_HYDRA = re.compile(r"(^|[/@.\s])hydra([/@.:\s]|$)")
HEADER = re.compile(r"\A(?:\s*\n)*#\s*@package\s+(\S+)")
OPTION = re.compile(r"\w[\w.-]*")
ELSEWHERE = ("null", "None")

_folders: ContextVar[tuple[Path, ...]] = ContextVar("folders", default=())


def user_folders() -> tuple[Path, ...]:
    """Folders of own files that are in use."""
    return _folders.get()


@contextlib.contextmanager
def own_files(*folders: Path | str) -> Generator[None, None, None]:
    """Compose with the files of these folders beside ours; of none, as before.

    Raises:
        ConfigError: a folder or a file that cannot be used, with its name.
    """
    result = tuple(dict.fromkeys(Path(folder).expanduser().resolve() for folder in folders))
    if not result or result == user_folders():
        yield
        return
    with contextlib.ExitStack() as stack:
        result = tuple(stack.enter_context(_by_current_names(folder)) for folder in result)
        for folder, said in zip(result, dict.fromkeys(map(str, folders)), strict=False):
            check_folder(folder, said)
        token = _folders.set(result)
        try:
            yield
        finally:
            _folders.reset(token)


@contextlib.contextmanager
def _by_current_names(folder: Path) -> Generator[Path, None, None]:
    """A folder of own files; where it has names of groups and options of an earlier release, a copy without these."""
    places = [path for group in (*groups_of_ours(), *GROUPS) for path in (folder / group).glob("*.yaml")]
    texts = {path.relative_to(folder): read_text(path, f"{path}", MOST_BYTES) for path in places if path.is_file()}
    current = {
        Path(GROUPS.get(relative.parts[0], relative.parts[0]), relative.name): current_text(texts[relative])
        for relative in texts
    }
    if current == texts:
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        copied = Path(name) / folder.name
        shutil.copytree(folder, copied, ignore=lambda _, names: [*{*GROUPS} & {*names}])
        write_files({copied / relative: text for relative, text in current.items()})
        yield copied


def as_folders(conf: Path | str | Sequence[Path | str] | None) -> tuple[Path | str, ...]:
    """One folder, several or none, as several."""
    if conf is None:
        return ()
    return (conf,) if isinstance(conf, str | Path) else tuple(conf)


def groups_of_ours() -> list[str]:
    """Config groups, in alphabetical order."""
    folder = conf_dir()
    return list(_groups_in(folder, folder.stat().st_mtime_ns))


@functools.lru_cache(maxsize=4)
def _groups_in(folder: Path, _: int) -> tuple[str, ...]:
    """List the groups in a folder, cached for as long as nothing comes to it or goes."""
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in HIDDEN))


def check_folder(folder: Path, said: str) -> None:
    """Refuse a folder with a file that could not be chosen, or may not be.

    Raises:
        ConfigError: names the file.
    """
    if not folder.is_dir():
        raise ConfigError(f"--conf {said}: there is no such folder")
    group_names = groups_of_ours()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".yaml", ".yml") and not path.is_dir():
            raise ConfigError(f"{path}: it stands in no group; put it into a folder such as {folder / group_names[0]}")
        if path.is_dir() and path.name not in group_names and any(path.glob("*.y*ml")):
            raise ConfigError(f"{path}: config group {path.name!r} does not exist{suggestion(path.name, group_names)}")
    paths = files_of(folder)
    if not paths:
        raise ConfigError(f"--conf {said}: no group with a file in it, such as {folder / 'accelerator' / 'mine.yaml'}")
    for path in paths:
        check_file(path, folder)
    size = sum(path.stat().st_size for path in paths)
    if size > MOST_BYTES:
        raise ConfigError(f"--conf {said}: its files have {size / 2**20:.1f} MiB; allowed: {MOST_BYTES / 2**20:g} MiB")


def files_of(folder: Path) -> list[Path]:
    """Own files of a folder, those of groups alone.

    Raises:
        ConfigError: more than anybody writes.
    """
    result: list[Path] = []
    for group in groups_of_ours():
        for path in (folder / group).rglob("*.y*ml"):
            result.append(path)
            if len(result) > MOST_FILES:
                raise ConfigError(f"--conf {folder}: more than {MOST_FILES:,} files")
    return sorted(result)


def check_file(path: Path, folder: Path) -> None:
    """Refuse what an own file may not say.

    Raises:
        ConfigError: names the file.
    """
    relative = path.relative_to(folder)
    group, text, node = relative.parts[0], *read(path)
    if path.suffix != ".yaml" or not OPTION.fullmatch(path.stem) or path.stem in ELSEWHERE:
        raise ConfigError(f"{path}: call it NAME.yaml, of letters, digits, dots, - and _")
    for theirs in (conf_dir(), *(plugin.conf for plugin in plugins())):
        if (theirs / relative).exists():
            raise ConfigError(
                f"{path}: {group}={path.stem} is there already ({theirs / relative}); give it another name"
            )
    result, wanted = HEADER.match(text), package_of(group)
    if (result[1] if result else None) != wanted:
        should = f"must be `# @package {wanted}`" if wanted else "must not be a `# @package` line"
        raise ConfigError(f"{path}: its first line {should}, as in other files of {group}")
    if not is_mapping(node):
        raise ConfigError(f"{path}: it should map keys to values")
    if any(OF_HYDRA.search(str(key)) for key in node):
        raise ConfigError(f"{path}: settings of Hydra cannot be given in a file")
    for entry in entries_of(node, path):
        if OF_HYDRA.search(str(entry)):
            raise ConfigError(f"{path}: defaults: {entry}: settings of Hydra cannot be given in a file")
    _check_values(node, path, "")
    if group in NAMED and len(relative.parts) == 2:
        _check_named(node, path, group)


@functools.cache
def package_of(group: str) -> str | None:
    """Package that a group's files are composed into, as their first line must state; None if it states none."""
    first = min((conf_dir() / group).glob("*.yaml"))
    result = HEADER.match(first.read_text(encoding="utf-8"))
    return result[1] if result else None


def read(path: Path) -> tuple[str, Any]:
    """Text and tree of an own file.

    Raises:
        ConfigError: it cannot be read.
    """
    refuse_irregular(path, f"{path}", MOST_BYTES)
    text = read_text(path, f"{path}", MOST_BYTES)
    return text, tree_of_yaml(text, f"{path}")


def entries_of(node: Mapping[str, Any], path: Path) -> list[Any]:
    """List what a file inherits from.

    Raises:
        ConfigError: it is no list.
    """
    entries: Any = node.get("defaults") or []
    if not is_list(entries):
        raise ConfigError(f"{path}: defaults must be a list, such as [h100_sxm, _self_]")
    return entries


def _check_values(node: Any, path: Path, key: str) -> None:
    """Classes of packages that are installed as plug-ins, and no interpolation that leaves the configuration."""
    if is_mapping(node):
        for name, value in node.items():
            _check_values(value, path, f"{key}.{name}" if key else str(name))
    elif is_list(node):
        for value in node:
            _check_values(value, path, key)
    elif isinstance(node, str):
        called = RESOLVER.search(node)
        if called:
            raise ConfigError(f"{path}: {key}: {called[0]}...}} asks for something outside the configuration")
        trusted = {"codesign", *(plugin.package.split(".")[0] for plugin in plugins())}
        if key.rpartition(".")[2] == "_target_" and node.split(".")[0] not in trusted:
            raise ConfigError(f"{path}: {key} = {node!r} is refused: {REFUSED}")


def _check_named(node: dict[str, Any], path: Path, group: str) -> None:
    """Refuse a file without a name of its own: tables and launch commands would show that of what it is made from."""
    prefix = "cluster.accelerator" if group == "accelerator" else ""
    part: Any = node
    for key in prefix.split(".") if prefix else ():
        part = part.get(key) if is_mapping(part) else None
    if not is_mapping(part) or not part.get("name"):
        raise ConfigError(
            f"{path}: {f'{prefix}.' if prefix else ''}name is missing: say what pages call it, {path.stem}"
        )


def origin(path: Path) -> str:
    """Source of an option in words, a user's own file or a plug-in; empty for what is shipped."""
    for folder in user_folders():
        if folder in path.parents:
            return f"own file {shown(path)}"
    for plugin in plugins():
        if plugin.conf in path.parents:
            return f"plug-in {plugin.name}"
    return ""


def shown(path: Path) -> str:
    """A path as short as it can be said from here."""
    with contextlib.suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def texts() -> dict[str, str]:
    """Place below its folder -> text of every own file in use: what a run folder keeps.

    Raises:
        ConfigError: two folders with one file.
    """
    result: dict[str, str] = {}
    for folder in user_folders():
        for path in files_of(folder):
            relative = path.relative_to(folder).as_posix()
            if relative in result:
                raise ConfigError(f"{path}: another folder of --conf has a file of that name; rename one")
            result[relative] = read_text(path, f"{path}", MOST_BYTES)
    return result
