"""Menus of packages whose names are imported when they are first asked for.

The command line starts without JAX, and who asks for words and units alone draws nothing. What such a package offers
are the plain imports that it has below `TYPE_CHECKING`, as editors and type checkers see them.
"""

import ast
import gc
import importlib
import sys
from collections.abc import Callable
from importlib.abc import InspectLoader
from typing import Any

# Names of modules that are loaded when a command needs them, and not before.


YOUNG = 20_000  # objects between two searches for garbage, instead of 700


def later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is only loaded for its own command.

    What is loaded by then stays for good, and a trace makes many objects that stay for long: looking through all of
    them for garbage again and again would take a fifth of a default run.
    """

    result = getattr(importlib.import_module(f"codesign.{module}"), name)
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG, 20, 20)
        gc.enable()
    return result


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, of the imports that its `__init__` has below `TYPE_CHECKING`.

    Args:
        package: its `__name__`.
    """
    spec = sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec and isinstance(spec.loader, InspectLoader) else None
    typed = [part for node in ast.parse(source or "").body if isinstance(node, ast.If) for part in node.body]
    imports = [node for node in typed if isinstance(node, ast.ImportFrom)]
    home = {alias.name: node.module for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = home[name]
        if module is None:  # offered whole, to be read as `module.name`
            return importlib.import_module(f".{name}", package)
        return getattr(importlib.import_module(f".{module}", package), name)

    return get, lambda: sorted(home)
