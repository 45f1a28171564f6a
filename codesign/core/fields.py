"""Leaves of the tree: every physical number is a traced array with a legal range.

A Python float inside an `equinox.Module` would be static under `jit`: no gradient and a new compilation for every
value. `quantity()` therefore converts what it is given to an array and remembers the legal range, which
`check_ranges` reads when a study is built (outside `jit`; inside the graph nothing raises).
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from .errors import ConfigError, suggestion
from .jax_typed import asarray, flatten, tree_at
from .json_yaml import is_list, is_mapping

__all__ = [
    "Usual", "as_leaf", "as_leaves", "as_numbers", "check_integer", "check_ranges", "get_path", "integer", "part",
    "quantities", "quantity", "range_of", "replace", "static", "switch", "walk",
]  # fmt: skip


# Base of the classes that are pytrees.


class Module(eqx.Module):
    """An Equinox module whose methods are Python's own.

    Equinox makes a pytree of each method that is asked for, some twenty microseconds a call: a seventh of a trace. Ours
    are called, not handed over as trees.
    """

    __getattribute__ = object.__getattribute__


def as_leaf(value: Any) -> Any:
    """Convert a number to a floating-point array of the default precision; leave tracers and placeholders alone."""
    return asarray(_float(value)) if isinstance(value, int | float) else value


def _float(value: float) -> float:
    """A whole number beyond all floats is infinite; `check_value` refuses it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_numbers(values: Sequence[float]) -> np.ndarray:
    """Convert several numbers as `as_leaf` does, to a NumPy array: rounded to the default precision."""
    return np.array([_float(value) for value in values]).astype(asarray(0.0).dtype).astype(float)


def as_leaves(value: dict[str, Any]) -> dict[str, Any]:
    """Convert a name -> number mapping, keys in sorted order (the order in which JAX returns them)."""
    return {key: as_leaf(value[key]) for key in sorted(value)}


Usual = tuple[float, float] | tuple[float, float, str]
"""Least and largest of what there is: about what parts of `conf/` have, or as a third entry says."""


def quantity(
    *,
    low: float = 0.0,
    high: float = math.inf,
    default: Any = dataclasses.MISSING,
    doc: str = "",
    usual: Usual | None = None,
) -> Any:
    """A traced number with a closed legal range, in the unit its name says.

    Args:
        low, high: legal range, both ends included; without `high` any finite number.
        default: value when the constructor is not given one.
        doc: one line for `codesign list`.
        usual: what products and papers have; far outside of it a study is warned (`config.plausibility`).
    """
    return eqx.field(
        converter=as_leaf, metadata={"low": low, "high": high, "doc": doc, "usual": usual}, default=default
    )


def quantities(*, low: float = 0.0, high: float = math.inf, usual: Usual | None = None, optional: bool = False) -> Any:
    """A name -> number mapping whose values are all traced and share one legal range; `optional`: it may be empty."""
    metadata = {"low": low, "high": high, "usual": usual}
    if optional:
        return eqx.field(converter=as_leaves, metadata=metadata, default_factory=dict)
    return eqx.field(converter=as_leaves, metadata=metadata)


def integer(
    *,
    low: float = 0.0,
    high: float = math.inf,
    default: Any = dataclasses.MISSING,
    doc: str = "",
    usual: Usual | None = None,
) -> Any:
    """A `quantity` that counts: configurations give whole numbers (`check_integer`), searches may relax it."""
    metadata = {"low": low, "high": high, "doc": doc, "usual": usual, "integer": True}
    return eqx.field(converter=as_leaf, metadata=metadata, default=default)


def switch(*, default: Any = dataclasses.MISSING, doc: str = "") -> Any:
    """A yes/no choice as a traced 0 or 1, so that plans stay data and searches may relax it."""
    return integer(low=0.0, high=1.0, default=default, doc=doc)


def static(**kwargs: Any) -> Any:
    """A choice of structure: part of the tree's shape, one compilation for each value."""
    return eqx.field(static=True, **kwargs)


def part() -> Any:
    """A component of its own that stands behind numbers: a checker takes these for fields with a default."""
    return eqx.field()


def walk(module: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield (dotted path, field metadata, value) of every quantity below `module`."""
    if dataclasses.is_dataclass(module):
        for field in dataclasses.fields(module):
            value = getattr(module, field.name, None)
            here = f"{path}.{field.name}" if path else field.name
            if "low" in field.metadata:
                entries: Iterable[tuple[Any, Any]] = value.items() if is_mapping(value) else [(None, value)]
                for key, entry in entries:
                    if entry is None:  # an optional number that is not given
                        continue
                    yield (here if key is None else f"{here}.{key}"), dict(field.metadata), entry
            elif not field.metadata.get("static", False):
                yield from walk(value, here)
    elif is_mapping(module):
        for key, value in module.items():
            yield from walk(value, f"{path}.{key}" if path else str(key))
    elif is_list(module):
        for index, value in enumerate(module):
            yield from walk(value, f"{path}.{index}" if path else str(index))


def with_numpy(tree: Any) -> Any:
    """Copy of a tree with NumPy arrays: arithmetic on a few numbers then compiles nothing."""

    def by_numpy(leaf: Any) -> Any:
        return cast(Any, leaf) if isinstance(leaf, Tracer) else np.asarray(leaf)

    return jax.tree.map(by_numpy, tree)


def check_ranges(module: Any, prefix: str = "") -> None:
    """Refuse values outside their legal range.

    Raises:
        ConfigError: naming the key, the value and the range.
    """
    for path, metadata, value in walk(module, prefix):
        check_value(path, metadata, value)


def check_value(path: str, metadata: Mapping[str, Any], value: Any, slack: float = 0.0) -> None:
    """Refuse what a leaf may not hold: no number, none that is finite, or one outside its range.

    A traced value passes: inside the graph nothing raises.

    Args:
        path: of the leaf, for the message.
        metadata: of its field.
        value: what it is to hold, a number or an array of them.
        slack: relative rounding by which it may miss its range.

    Raises:
        ConfigError: naming the key, the value and the range.
    """
    if isinstance(value, Tracer | jax.ShapeDtypeStruct) or (value is None and metadata.get("optional")):
        return
    number = np.asarray(_float(value) if isinstance(value, int | float) else value)
    if number.dtype.kind not in "biuf":
        raise ConfigError(f"{path} = {value!r} is not a number (plain numbers in SI units, as the name says)")
    low, high = metadata["low"], metadata["high"]
    smallest, largest = float(number.min()), float(number.max())
    if math.isinf(smallest) or math.isinf(largest):
        raise ConfigError(f"{path} = {largest:g} is not finite, as a number of [{low:g}, {high:g}] must be")
    room = slack * max(abs(smallest), abs(largest))
    if not smallest >= low - room:
        raise ConfigError(f"{path} = {smallest:g} is outside [{low:g}, {high:g}]")
    if not largest <= high + room:
        raise ConfigError(f"{path} = {largest:g} is outside [{low:g}, {high:g}]")


def check_integer(path: str, metadata: Mapping[str, Any], value: Any) -> None:
    """Refuse a part of a thing that is counted; what is no finite number is refused elsewhere.

    Args:
        path: of the leaf, for the message.
        metadata: of its field.
        value: a plain number of a configuration.

    Raises:
        ConfigError: naming the key, the value and the nearest numbers that are allowed.
    """
    if not metadata.get("integer") or not isinstance(value, float) or value.is_integer() or not math.isfinite(value):
        return
    words = metadata.get("words")
    near = [end for end in (math.floor(value), math.ceil(value)) if metadata["low"] <= end <= metadata["high"]]
    allowed = words or [f"{end:.15g}" for end in near]
    raise ConfigError(f"{path} = {value!r} is not a whole number; take {' or '.join(allowed) or 'one'}")


def _child(node: Any, key: str, path: str) -> Any:
    """One step down a dotted path.

    Raises:
        ConfigError: no such key, with a suggestion.
    """
    if is_mapping(node):
        if key in node:
            return node[key]
        names = list(node)
    elif is_list(node):
        if key.isdigit() and int(key) < len(node):
            return node[int(key)]
        names = [str(index) for index in range(len(node))]
    else:
        names = [field.name for field in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []
        if key in names:
            return getattr(node, key)
    raise ConfigError(f"{path}: no {key!r} there{suggestion(key, names)}")


def flattened(tree: Any) -> tuple[list[Any], Any]:
    """Leaves of a tree in their order, and what tells trees of another structure apart."""
    return flatten(tree)


def get_path(tree: Any, path: str) -> Any:
    """The leaf (or subtree) at a dotted path, such as `cluster.accelerator.hbm.capacity_bytes`.

    Raises:
        ConfigError: the path does not exist.
    """
    node = tree
    for key in path.split("."):
        node = _child(node, key, path)
    return node


def range_of(tree: Any, path: str) -> dict[str, Any] | None:
    """Field metadata (`low`, `high`, `doc`) of the number at a dotted path; None where no number may stand.

    Raises:
        ConfigError: the path does not exist.
    """
    node, result = tree, None
    for key in path.split("."):
        below = _child(node, key, path)
        if dataclasses.is_dataclass(node):
            field = next(field for field in dataclasses.fields(node) if field.name == key)
            result = dict(field.metadata) | {"optional": field.default is None} if "low" in field.metadata else None
        node = below
    return result


def check_replacement(tree: Any, path: str, value: Any, slack: float = 0.0) -> None:
    """Refuse what may not stand at a path of the tree.

    Raises:
        ConfigError: no such path, a word, or a number that is not allowed there.
    """
    metadata = range_of(tree, path)
    if isinstance(get_path(tree, path), Tracer) and not isinstance(value, str):  # inside the graph nothing raises
        return
    if is_mapping(value) and metadata is not None:
        for key, entry in value.items():
            check_value(f"{path}.{key}", metadata, entry, slack)
    elif metadata is not None:
        check_value(path, metadata, value, slack)
    elif isinstance(value, str | int | float):
        raise ConfigError(f"{path} = {value!r}: no number stands there that could be replaced")


def replace(tree: Any, values: dict[str, Any], slack: float = 0.0) -> Any:
    """A copy of the tree with the leaves at these dotted paths replaced.

    Args:
        tree: what is copied.
        values: dotted path -> number, array, traced value or subtree.
        slack: relative rounding by which numbers may miss their legal range.

    Raises:
        ConfigError: a path does not exist, or its leaf may not hold the value.
    """
    paths = list(values)
    for path in paths:
        check_replacement(tree, path, values[path], slack)
    if not paths:
        return tree
    with jax.ensure_compile_time_eval():  # a number that is known stays known where others are traced
        leaves = tuple(as_leaf(values[path]) for path in paths)

    def chosen(tree: Any) -> tuple[Any, ...]:
        return tuple(get_path(tree, path) for path in paths)

    def absent(leaf: Any) -> bool:
        return leaf is None

    return tree_at(chosen, tree, leaves, is_leaf=absent)
