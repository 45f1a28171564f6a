"""Plain values as JSON and YAML: strict JSON, and YAML by the C library where it is installed, eight times as fast."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

import yaml

# YAML of plain values, by the C library where it is installed: eight times as fast as in Python; what they are.
#
# Numbers are decimal, as a reader takes them: `1:30:00`, which YAML 1.1 reads in base 60 as 5400, and `010`, which it
# reads as 8, are words. A key stands once in a mapping.


_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NOT_DECIMAL = re.compile(r"[-+]?(?:[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|0[0-7_]+)")
"""A number in base 60, or in base 8, of YAML 1.1."""

_PERHAPS = re.compile(r"[0-9]:[0-9]|(?<![\w.])0[0-9_]")  # a text that may hold one
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _once(self: Any, node: Any, deep: bool = False) -> Any:
    """A mapping whose keys differ.

    Raises:
        yaml.YAMLError: a key that stands there twice.
    """
    names = set[str]()
    for key, _ in node.value:
        if key.tag == "tag:yaml.org,2002:str":
            if key.value in names:
                what = "while constructing a mapping"
                raise yaml.constructor.ConstructorError(
                    what, node.start_mark, f"key {key.value!r} stands there twice", key.start_mark
                )
            names.add(key.value)
    return _Safe.construct_mapping(self, node, deep=deep)


Loader: Any = type("Loader", (_Safe,), {"construct_mapping": _once})
Loader.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile(rf"(?!{NOT_DECIMAL.pattern}$)(?:{pattern.pattern})", re.X) if tag in _NUMBERS else pattern)
        for tag, pattern in resolvers
    ]
    for first, resolvers in _Safe.yaml_implicit_resolvers.items()
}
Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_yaml(text: str) -> Any:
    """Mappings, lists, numbers and words, and nothing else.

    Raises:
        yaml.YAMLError: text that is not YAML, or asks for an object.
    """
    return yaml.load(text, Loader=Loader)  # a safe loader: no object is made


def not_decimal(text: str) -> tuple[str, int] | None:
    """The first number without quotes that other readers of YAML take in base 60 or 8, with its line; None without.

    Raises:
        yaml.YAMLError: text that is not YAML.
    """
    if not _PERHAPS.search(text):
        return None
    parse: Any = getattr(yaml, "parse")  # noqa: B009  # a checker knows no types of it
    for event in parse(text, Loader=Loader):
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and NOT_DECIMAL.fullmatch(event.value):
            return event.value, event.start_mark.line + 1
    return None


def write_yaml(value: Any) -> str:
    """Keys in the order in which they stand."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def is_mapping(value: Any) -> TypeGuard[dict[str, Any]]:
    """True if a plain value is a mapping; a type checker then knows its keys."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """True if a plain value is a list, or the tuple that stands for one."""
    return isinstance(value, list | tuple)


def is_some(value: Any) -> TypeGuard[Sequence[Any]]:
    """True if a plain value is a non-empty list, and no word."""
    return isinstance(value, Sequence) and not isinstance(value, str) and len(cast(Sequence[Any], value)) > 0


# JSON that every reader takes: numbers that are none, infinity and NaN, become null, all that JSON has for them.


_AS_THEY_ARE = frozenset[type]((type(None), bool, int, str))


def strict(value: Any) -> Any:
    """Convert a value to what JSON knows: mappings, lists, words, finite numbers, true, false and null.

    Arrays become lists, numbers of NumPy and JAX plain ones; anything else is written as a word.
    """
    if type(value) in _AS_THEY_ARE:  # nearly all of a traced program
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        return {str(key): strict(entry) for key, entry in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        entries = cast(Sequence[Any], value)
        return [entry if type(entry) is int else strict(entry) for entry in entries]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return strict(value.tolist()) if hasattr(value, "tolist") else str(value)


def dumps(value: Any, indent: int | None = None) -> str:
    """Strict JSON; the only place that writes any."""
    return json.dumps(strict(value), indent=indent, allow_nan=False)
