"""Leaves of the tree: every physical number is a traced array with a legal range.

A Python float inside an `equinox.Module` would be static under `jit`: no gradient and a new compilation for every
value. `quantity()` therefore converts what it is given to an array and remembers the legal range, which
`check_ranges` reads when a study is built (outside `jit`; inside the graph nothing raises).
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer

from .errors import ConfigError, suggestion


def as_leaf(value: Any) -> Any:
    """Convert a number to a floating-point array of the default precision; leave tracers and placeholders alone."""
    if isinstance(value, bool):
        return jnp.asarray(float(value))
    if isinstance(value, int | float):
        return jnp.asarray(float(value))
    return value


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
        low, high: legal range, both ends included.
        default: value when the constructor is not given one.
        doc: one line for `codesign list`.
        usual: what products and papers have; far outside of it a study is warned (`config.plausibility`).
    """
    return eqx.field(
        converter=as_leaf, metadata={"low": low, "high": high, "doc": doc, "usual": usual}, default=default
    )


def quantities(*, low: float = 0.0, high: float = math.inf, usual: Usual | None = None) -> Any:
    """A name -> number mapping whose values are all traced and share one legal range."""
    return eqx.field(converter=as_leaves, metadata={"low": low, "high": high, "usual": usual})


def switch(*, default: Any = dataclasses.MISSING, doc: str = "") -> Any:
    """A yes/no choice as a traced 0 or 1, so that plans stay data and searches may relax it."""
    return quantity(low=0.0, high=1.0, default=default, doc=doc)


def static(**kwargs: Any) -> Any:
    """A choice of structure: part of the tree's shape, one compilation for each value."""
    return eqx.field(static=True, **kwargs)


def walk(module: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield (dotted path, field metadata, value) of every quantity below `module`."""
    if dataclasses.is_dataclass(module):
        for field in dataclasses.fields(module):
            value = getattr(module, field.name, None)
            here = f"{path}.{field.name}" if path else field.name
            if "low" in field.metadata:
                entries = value.items() if isinstance(value, dict) else [(None, value)]
                for key, entry in entries:
                    if entry is None:  # an optional number that is not given
                        continue
                    yield (here if key is None else f"{here}.{key}"), dict(field.metadata), entry
            elif not field.metadata.get("static", False):
                yield from walk(value, here)
    elif isinstance(module, dict):
        for key, value in module.items():
            yield from walk(value, f"{path}.{key}" if path else str(key))
    elif isinstance(module, tuple | list):
        for index, value in enumerate(module):
            yield from walk(value, f"{path}.{index}" if path else str(index))


def check_ranges(module: Any, prefix: str = "") -> None:
    """Refuse values outside their legal range.

    Raises:
        ConfigError: naming the key, the value and the range.
    """
    for path, metadata, value in walk(module, prefix):
        if isinstance(value, str) or not hasattr(value, "dtype"):
            raise ConfigError(f"{path} = {value!r} is not a number (plain numbers in SI units, as the name says)")
        if isinstance(value, Tracer):
            continue
        low, high = metadata["low"], metadata["high"]
        smallest, largest = float(jnp.min(value)), float(jnp.max(value))
        if not (smallest >= low and largest <= high):
            wrong = smallest if not smallest >= low else largest
            raise ConfigError(f"{path} = {wrong:g} is outside [{low:g}, {high:g}]")


def _child(node: Any, key: str, path: str) -> Any:
    """One step down a dotted path.

    Raises:
        ConfigError: no such key, with a suggestion.
    """
    if isinstance(node, dict):
        if key in node:
            return node[key]
        known = list(node)
    elif isinstance(node, tuple | list):
        if key.isdigit() and int(key) < len(node):
            return node[int(key)]
        known = [str(index) for index in range(len(node))]
    else:
        known = [field.name for field in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []
        if key in known:
            return getattr(node, key)
    raise ConfigError(f"{path}: no {key!r} there{suggestion(key, known)}")


def get_path(tree: Any, path: str) -> Any:
    """The leaf (or subtree) at a dotted path, such as `cluster.accelerator.hbm.capacity_bytes`.

    Raises:
        ConfigError: the path does not exist.
    """
    node = tree
    for key in path.split("."):
        node = _child(node, key, path)
    return node


def replace(tree: Any, values: dict[str, Any]) -> Any:
    """A copy of the tree with the leaves at these dotted paths replaced.

    Raises:
        ConfigError: a path does not exist.
    """
    paths = list(values)
    for path in paths:
        get_path(tree, path)
    if not paths:
        return tree
    leaves = tuple(as_leaf(values[path]) for path in paths)
    return eqx.tree_at(
        lambda t: tuple(get_path(t, path) for path in paths), tree, leaves, is_leaf=lambda leaf: leaf is None
    )
