"""Menus of packages whose names are imported when they are first asked for.

The command line starts without JAX, and who asks for words and units alone draws nothing. Editors and type checkers see
the plain imports that such a package has below `TYPE_CHECKING`; `tests/test_api.py` holds these against its menu.
"""

import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
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


def lazily(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: module of it -> names that come from there.
        modules: modules of it that are offered whole, to be read as `module.name`.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f".{name}", package)
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{home[name]}", package), name)

    return get, lambda: sorted([*home, *modules])
