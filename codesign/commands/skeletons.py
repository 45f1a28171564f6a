"""`codesign scaffold KIND NAME`: a package that works, with one component to be made into what it should be.

What is written is a plug-in (`config/plugins.py`): nothing of this package is edited, and a second component goes into
the same package.
"""

import importlib.resources
import keyword
import re
import shlex
from pathlib import Path

import jinja2

from ..core.atomic_files import write_files
from ..core.errors import ConfigError, suggestion
from ..core.resources import conf_dir

TEMPLATES = "templates"  # folder beside this file: a folder for each kind, with what is written of it
COMPONENT, PROJECT = "component.py", "pyproject.toml"

CLASSES = ("fabric", "collective", "kernel", "search", "runner", "workload")
"""Kinds that are a class."""
CONFS = {"kernel": ("calibration",), "workload": ("workload", "model", "plan", "space", "experiment")}
"""Kind -> groups of `conf/` that get a file, the first of them what chooses it; others are a group of their own."""
WITHOUT_CODE = ("accelerator", "model", "experiment")
KINDS = (*CLASSES, *WITHOUT_CODE)
ALSO = {"workload": ("Model", "Plan")}  # further classes of a kind: names that begin with that of the component


def new(kind: str, name: str, package: str | None = None, root: Path | str = ".") -> list[Path]:
    """Write a skeleton of one component, into a package that is made where it is not there yet.

    Args:
        kind: one of `KINDS`.
        name: of the option, such as `hyperx`: lower case, digits, underscores.
        package: that it belongs to; `codesign_<name>` by default.
        root: folder in which the package's project lies.

    Returns:
        The files, what to edit first.

    Raises:
        ConfigError: no such kind, no name, a name of ours, or a file that exists.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind {kind!r} does not exist{suggestion(kind, KINDS)}")
    package = package or f"codesign_{name}"
    for word in (name, package):
        _check_name(word)
    _refuse_shipped(_confs(kind)[0], name)
    project = Path(root) / package
    made, words = _files(kind, name, package), project / package / "__init__.py"
    for path in made:
        if (project / path).exists():
            raise ConfigError(f"{str(project / path)!r} exists already: choose another name, or edit that file")
    begun = words.read_text(encoding="utf-8") if words.is_file() else f'"""Components of {package}."""\n\n'
    if kind in CLASSES:
        every = [_class(name) + more for more in ("", *ALSO.get(kind, ()))]
        line = "".join(f"from .{name} import {one} as {one}\n" for one in every)
        made[f"{package}/__init__.py"] = begun if line in begun else begun + line
    elif not words.is_file():
        made[f"{package}/__init__.py"] = begun
    if not (project / PROJECT).exists():
        made[PROJECT] = _text(f"{PROJECT}.jinja", package=package, project=package.replace("_", "-"))
    write_files({project / path: text for path, text in made.items()})
    return [project / path for path in made]


def new_file(kind: str, name: str, conf: Path | str) -> Path:
    """Write one file into a folder of own files (`--conf`), which is made where it is not there yet.

    Raises:
        ConfigError: a kind that needs code, no name, a name of ours, or a file that exists.
    """
    if kind not in WITHOUT_CODE:
        needs = "needs a package of its own: leave out --conf" if kind in CLASSES else "does not exist"
        raise ConfigError(f"kind {kind!r} {needs}{suggestion(kind, WITHOUT_CODE) if kind not in CLASSES else ''}")
    _check_name(name)
    _refuse_shipped(kind, name)
    path = Path(conf) / kind / f"{name}.yaml"
    if path.exists():
        raise ConfigError(f"{str(path)!r} exists already: choose another name, or edit that file")
    write_files({path: next(iter(_files(kind, name, "").values()))})
    return path


def next_steps_of_file(kind: str, name: str, path: Path, conf: str) -> str:
    """Message on what was written and what to do next, for a file."""
    then = "optimize" if kind == "experiment" else "evaluate"
    return f"wrote {path}\nnext: edit it, then codesign {then} --conf {shlex.quote(conf)} {kind}={name}"


def next_steps(kind: str, name: str, files: list[Path]) -> str:
    """Message on what was written and what to do next, for a package."""
    project = next(folder for folder in files[0].parents if (folder / PROJECT).is_file())
    then = "optimize" if kind in ("search", "runner") else "evaluate"
    lines = [f"wrote {path}" for path in files]
    return "\n".join([*lines, f"next: pip install -e {project} && codesign {then} {_confs(kind)[-1]}={name}"])


def _check_name(word: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word) or keyword.iskeyword(word):
        raise ConfigError(f"name {word!r} must be lower-case letters, digits and underscores, a letter first")


def _refuse_shipped(group: str, name: str) -> None:
    """A second file of a shipped name would be refused as soon as it is named."""
    if (conf_dir() / group / f"{name}.yaml").is_file():
        raise ConfigError(f"{group}={name} is a file of ours: choose another name (yours may inherit from it)")


def _files(kind: str, name: str, package: str) -> dict[str, str]:
    """Place below the project -> text; what to edit first comes first."""
    given = {"name": name, "package": package, "cls": _class(name), "title": name.replace("_", " ")}
    result = {f"{package}/{name}.py": _text(f"{kind}/{COMPONENT}.jinja", **given)} if kind in CLASSES else {}
    for group in _confs(kind):
        result[f"{package}/conf/{group}/{name}.yaml"] = _text(f"{kind}/{group}.yaml.jinja", **given)
    return result


def _text(template: str, **given: str) -> str:
    """A template, filled in."""
    source = importlib.resources.files("codesign.commands").joinpath(TEMPLATES, template).read_text(encoding="utf-8")
    environment = jinja2.Environment(keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(given)


def _confs(kind: str) -> tuple[str, ...]:
    return CONFS.get(kind, (kind,))


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
