"""Interface of plans, whichever family of workloads they lay out, and the fields that plans have altogether.

A family brings a plan of its own with the numbers that it may choose, the mesh axes along which its parts talk, words
for values that have names, and what may be changed where the plan does not fit. Plans known to a process are those of
the classes that are imported.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.examples import by_default
from ...core.fields import Module, as_leaf, as_numbers
from ...core.jax_typed import asarray
from ...core.pretty import as_text
from ..networks.fabrics import Group

if TYPE_CHECKING:
    from .plan import Layout

Change = Callable[[float], list[float]]


class AbstractPlan(Module):
    """The parallelisation of one job.

    Replicas are no field: they are what the devices leave, `Layout.dp`. A plan with a `device_count` buys that many,
    whatever the cluster says, so that a search can choose it with the degrees that divide it.

    `axes` are those along which parts of a replica, or replicas, talk; `placed_as` says of an axis with whose level it
    goes where levels are given to axes by hand; `said` are fields that a design is told by though none is searched.
    """

    axes: ClassVar[tuple[str, ...]] = ()
    placed_as: ClassVar[Mapping[str, str]] = {}
    said: ClassVar[tuple[str, ...]] = ()

    device_count: eqx.AbstractVar[Float[Array, "*b"] | None]

    __repr__ = as_text

    @classmethod
    def example(cls) -> "AbstractPlan":
        """One that is legal, with the example of its workload, on as many devices as a replica has."""
        return by_default(cls)

    @abc.abstractmethod
    def ranks(self) -> Array:
        """Devices of one replica."""

    def replicas(self, devices: Array) -> Array:
        """Copies of the job's model on so many devices."""
        return devices / self.ranks()

    @abc.abstractmethod
    def members(self, axis: str, layout: "Layout") -> Group:
        """Size and stride of the group of one of `axes`, neighbouring devices first."""

    def algorithm(self, axis: str) -> Array:
        """Place in `ALGORITHMS` of what networks that leave the choice to the plan use on an axis: the first."""
        del axis
        return asarray(0.0)

    def offloaded(self, data: str) -> Array | None:
        """Share of a class of data that the plan keeps in the second tier; None where it leaves it near."""
        del data
        return None

    def changes(self) -> dict[str, Change]:
        """Field -> its value -> values that may make a plan fit that does not, the smallest change first."""
        return {}

    def told(self) -> dict[str, Array]:
        """Fields by which a design is told that is not searched: those `said`, all where none is."""
        every = [field.name for field in dataclasses.fields(self)]
        result = {name: getattr(self, name) for name in self.said or every}
        return {name: value for name, value in result.items() if value is not None}


def named(field: str, words: Sequence[str], default: float, doc: str) -> Any:
    """A number of a plan whose values have names, in the order of the numbers that stand for them."""
    metadata = {"low": 0.0, "high": float(len(words) - 1), "doc": doc, "words": tuple(words), "integer": True}
    return eqx.field(converter=functools.partial(_number, field, words), default=default, metadata=metadata)


def combination(field: str, parts: Sequence[str], doc: str) -> Any:
    """A list of names as one number of a plan: its digits to base 2, the first name last; 0 names none.

    Its words are the names joined by `+`, in any order: `layernorm+moe_act`.
    """
    words = tuple(
        "+".join(name for index, name in enumerate(parts) if number >> index & 1) or "none"
        for number in range(2 ** len(parts))
    )
    metadata = {"low": 0.0, "high": float(len(words) - 1), "doc": doc, "words": words, "integer": True}
    metadata["parts"] = tuple(parts)
    return eqx.field(converter=functools.partial(_joined, field, tuple(parts)), default=0.0, metadata=metadata)


def _joined(field: str, parts: Sequence[str], value: Any) -> Any:
    """The number that stands for names joined by `+`; numbers pass.

    Raises:
        ConfigError: a name that is none, or one that stands there twice.
    """
    if not isinstance(value, str):
        return as_leaf(value)
    names = [] if value == "none" else [name.strip() for name in value.split("+")]
    for name in names:
        if name not in parts:
            raise ConfigError(f"{field} = {value!r}: {name!r} does not exist{suggestion(name, parts)}")
        if names.count(name) > 1:
            raise ConfigError(f"{field} = {value!r}: {name!r} stands there twice")
    return as_leaf(float(sum(2 ** parts.index(name) for name in names)))


def _number(field: str, words: Sequence[str], value: Any) -> Any:
    """The number that stands for a named value (0, 1, 2 for none, selective, full); numbers pass.

    Raises:
        ConfigError: a word that is no name there.
    """
    if isinstance(value, str):
        if value not in words:
            raise ConfigError(f"{field} = {value!r} does not exist{suggestion(value, words)}")
        return as_leaf(float(words.index(value)))
    return as_leaf(value)


def plans_known(base: type[AbstractPlan] = AbstractPlan) -> Iterator[type[Any]]:
    """Every class of plans there is."""
    for cls in base.__subclasses__():
        yield from ((cls,) if dataclasses.is_dataclass(cls) else ())
        yield from plans_known(cls)


def plan_field(name: str) -> Mapping[str, Any] | None:
    """Range, doc and words of a field that some plan has; None where none has it."""
    for cls in plans_known():
        for field in dataclasses.fields(cls):
            if field.name == name:
                return field.metadata
    return None


def plan_fields() -> tuple[str, ...]:
    """Fields of all plans."""
    return tuple(dict.fromkeys(field.name for cls in plans_known() for field in dataclasses.fields(cls)))


def words_of(field: str) -> tuple[str, ...]:
    """Names of a field's values; none where they are plain numbers."""
    return tuple((plan_field(field) or {}).get("words", ()))


def plan_numbers(field: str, values: Sequence[Any]) -> Float[np.ndarray, " values"]:
    """The numbers that stand for listed values of a field, as leaves of the tree have them.

    Raises:
        ConfigError: a word that is no name there.
    """
    if not words_of(field) and all(type(value) in (int, float) for value in values):
        return as_numbers(values)
    return np.array([float(plan_value(field, value)) for value in values])


def plan_value(field: str, value: Any) -> Any:
    """The number that stands for a named value of a field; numbers pass.

    Raises:
        ConfigError: a word that is no name there.
    """
    parts = (plan_field(field) or {}).get("parts")
    if parts:
        return _joined(field, parts, value)
    words = words_of(field)
    return _number(field, words, value) if words else as_leaf(value)
