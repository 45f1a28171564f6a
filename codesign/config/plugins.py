"""Packages beside this one that bring accelerators, fabrics, collectives, workloads, searches and experiments.

A plug-in is an installed package that says so by an entry point of the group `codesign.plugins`:

    [project.entry-points."codesign.plugins"]
    torus = "codesign_torus"

What stands in the namespace of that package may be named in YAML as `codesign_torus.HyperX`, as the classes of this
package's own menus may; the folder `conf/` beside its `__init__.py` adds files to the groups of `conf/`. Which plug-ins
there are is decided by who installs packages, never by a configuration.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError

GROUPS = ("codesign.plugins", "codesign")  # of entry points, as they are called and as they were
REFUSED = "only classes of codesign and of packages that declare an entry point 'codesign.plugins' may be named"
"""Complaint about a `_target_` that belongs to neither codesign nor a plug-in."""


@dataclass(frozen=True)
class Plugin:
    """name: of the entry point; package: that it names; conf: its configurations, which need not exist."""

    name: str
    package: str
    conf: Path


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """All installed plug-ins, by name.

    Raises:
        ConfigError: one names a package that is not there.
    """
    result: list[Plugin] = []
    points = {point.value: point for group in GROUPS[::-1] for point in importlib.metadata.entry_points(group=group)}
    for point in sorted(points.values(), key=lambda point: point.name):
        spec = importlib.util.find_spec(point.value)
        if spec is None or spec.origin is None:
            raise ConfigError(f"plug-in {point.name!r} names the package {point.value!r}, which cannot be imported")
        result.append(Plugin(point.name, point.value, Path(spec.origin).parent / "conf"))
    return tuple(result)


def plugin_classes() -> dict[str, Callable[..., Any]]:
    """Concrete dataclasses in the namespaces of all plug-ins: what a `_target_` may name -> class.

    Raises:
        ConfigError: a package that fails when it is imported, with its own words.
    """
    result: dict[str, Callable[..., Any]] = {}
    for plugin in plugins():
        try:
            module = importlib.import_module(plugin.package)
        except Exception as error:
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
            raise ConfigError(f"plug-in {plugin.name!r} cannot be imported: {what}") from error
        for key, value in vars(module).items():
            ours = str(getattr(value, "__module__", "")).split(".")[0] == plugin.package.split(".")[0]
            if not (ours and inspect.isclass(value) and is_dataclass(value)) or key.startswith("_"):
                continue
            missing = sorted(getattr(value, "__abstractmethods__", ()))
            if missing:
                raise ConfigError(f"plug-in {plugin.name!r}: {key} lacks {', '.join(missing)}, which its base asks for")
            result[f"{plugin.package}.{key}"] = value
    return result


def plugin_folders() -> list[Path]:
    """Folders of configurations that plug-ins bring."""
    return [plugin.conf for plugin in plugins() if plugin.conf.is_dir()]
