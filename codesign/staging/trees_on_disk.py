"""Structures of trees as JSON: what a tree is made of, without its numbers.

Only classes of this package are written and read back; what else a structure has in it, somebody's own class or a
function, is refused, so that nothing is ever read that says less than what it was.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from ..core.jax_typed import flatten, unflatten

PACKAGE = __name__.partition(".")[0]


class CannotBeKept(Exception):
    """Raised for what has no words here, or is no text that `structure_as_plain` wrote."""


class _Leaf:
    """Stands where a number is."""


def structure_as_plain(structure: Any) -> Any:
    """A structure as lists and words; two are equal exactly where these are.

    Raises:
        CannotBeKept: where something in it is not of this package and no plain Python.
    """
    leaves = [_Leaf() for _ in range(structure.num_leaves)]
    places = {id(leaf): index for index, leaf in enumerate(leaves)}
    return _plain(unflatten(structure, leaves), places)


def structure_from_plain(plain: Any) -> Any:
    """The structure that `structure_as_plain` told.

    Raises:
        CannotBeKept: it is none.
    """
    leaves: dict[int, _Leaf] = {}
    try:
        result, structure = flatten(_read(plain, leaves))
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise CannotBeKept("no structure") from error
    if [id(leaf) for leaf in result] != [id(leaves.get(index)) for index in range(len(result))]:
        raise CannotBeKept("leaves in another order")
    return structure


def _plain(node: Any, places: Mapping[int, int]) -> Any:
    """One node, what is below it included: a list that begins with what it is."""
    if id(node) in places:
        return ["leaf", places[id(node)]]
    if node is None or type(node) in (bool, int, str):
        return node
    if type(node) is float:
        return ["float", node.hex()]
    if type(node) in (list, tuple):
        return [type(node).__name__, *(_plain(part, places) for part in node)]
    if type(node) is dict:
        entries = cast(dict[Any, Any], node).items()
        return ["dict", *([_plain(key, places), _plain(value, places)] for key, value in entries)]
    kind = cast(type[Any], type(node))
    if not _is_ours(kind):
        raise CannotBeKept(f"{kind.__name__} is not of this package")
    name = [kind.__module__, kind.__qualname__]
    if isinstance(node, tuple):
        return ["named", *name, *(_plain(part, places) for part in cast(tuple[Any, ...], node))]
    fields = [field.name for field in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else None
    if fields is None or set(vars(node)) != set(fields):
        raise CannotBeKept(f"{type(node).__name__} is more than its fields")
    return ["object", *name, *([field, _plain(getattr(node, field), places)] for field in fields)]


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == PACKAGE and "<" not in kind.__qualname__


def _read(plain: Any, leaves: dict[int, _Leaf]) -> Any:
    if not isinstance(plain, list):
        return plain
    what, *parts = cast(list[Any], plain)
    if what == "leaf":
        return leaves.setdefault(parts[0], _Leaf())
    if what == "float":
        return float.fromhex(parts[0])
    if what in ("list", "tuple"):
        read = [_read(part, leaves) for part in parts]
        return read if what == "list" else tuple(read)
    if what == "dict":
        return {_read(key, leaves): _read(value, leaves) for key, value in parts}
    kind, own = _class(*parts[:2]), parts[2:]
    if what == "named" and issubclass(kind, tuple):
        return cast(Any, tuple).__new__(kind, [_read(part, leaves) for part in own])
    if what == "object" and dataclasses.is_dataclass(kind):
        return _object(kind, own, leaves)
    raise CannotBeKept(f"no node: {what!r}")


def _object(kind: type, fields: Sequence[Any], leaves: dict[int, _Leaf]) -> Any:
    """An object as JAX puts one together: field by field, without its constructor."""
    result = cast(Any, object).__new__(kind)
    for name, value in fields:
        object.__setattr__(result, name, _read(value, leaves))
    return result


def _class(module: str, name: str) -> type:
    if module.partition(".")[0] != PACKAGE:
        raise CannotBeKept(f"{module} is not of this package")
    result: Any = import_module(module)
    for part in name.split("."):
        result = getattr(result, part)
    if not isinstance(result, type):
        raise CannotBeKept(f"{name} is no class")
    return result
