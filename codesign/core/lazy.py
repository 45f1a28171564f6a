"""Menus of packages whose names are imported when they are first asked for.

The command line starts without JAX, and who asks for words and units alone draws nothing. Editors and type checkers see
the plain imports that such a package has below `TYPE_CHECKING`; `tests/test_api.py` holds these against its menu.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


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
