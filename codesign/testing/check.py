"""What a component breaks of its contract, a line each."""

from collections.abc import Iterator

from .families import FAMILIES, family_of
from .keeping import Broken


def broken(cls: type) -> list[str]:
    """Lines on what the example of a class does not keep; none where it keeps everything or has no contract."""
    name = family_of(cls)
    return list(_lines(cls, name)) if name else []


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
