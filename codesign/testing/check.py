"""Contract checks of a component: what it breaks, a line each."""

from collections.abc import Iterator, Sequence

from ..core.errors import ConfigError, suggestion
from .component_families import FAMILIES, family_of, members
from .keeping import Broken


def broken(cls: type) -> list[str]:
    """Lines on what the example of a class does not keep; none where it keeps everything or has no contract."""
    name = family_of(cls)
    return list(_lines(cls, name)) if name else []


def chosen(names: Sequence[str] = ()) -> dict[str, type]:
    """Classes by name, all those of plug-ins where none is named; of a plug-in `package.Class` or `Class`.

    Raises:
        ConfigError: no such class, with a suggestion; a plug-in that is not whole.
    """
    every = {name: cls for family in FAMILIES for name, cls in members(family).items()}
    if not names:
        return {name: cls for name, cls in every.items() if "." in name}
    known = every | {name.rpartition(".")[2]: cls for name, cls in every.items()}
    for name in names:
        if name not in known:
            raise ConfigError(f"component {name!r} does not exist{suggestion(name, known)}")
    return {name: known[name] for name in names}


def faults_of_plugins() -> Iterator[str]:
    """Yield what the components of all plug-ins break of their contracts, a line each."""
    for cls in chosen().values():
        yield from broken(cls)


def _lines(cls: type, family: str) -> Iterator[str]:
    try:
        example = FAMILIES[family].example(cls)
    except Exception as error:
        yield f"{cls.__name__}: example() {_said(error)}"
        return
    for promise in FAMILIES[family].promises:
        try:
            promise(example)
        except Broken as error:
            yield f"{cls.__name__}: {error}"
        except Exception as error:
            yield f"{cls.__name__}: {promise.__name__.strip('_').replace('_', ' ')}: {_said(error)}"


def _said(error: Exception) -> str:
    """An error of somebody's code in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"fails with {type(error).__name__}: {lines[0] if lines else 'no reason given'}"
