"""Components that have no contract of their own file keep that of their family, and what is broken is one line each."""

from typing import ClassVar

import jax.numpy as jnp
import pytest
from jaxtyping import Array

from codesign.core.fields import quantity
from codesign.model.hardware import Link
from codesign.model.networks.fabrics import AbstractFabric, Group
from codesign.model.workloads import Recommendation
from codesign.testing import FAMILIES, broken, family_of, members
from codesign.testing.check import Products

SHORT = [cls for name in ("kernel", "memory") for cls in members(name).values()]


@pytest.mark.slow
@pytest.mark.parametrize("cls", [*SHORT, Products, Recommendation], ids=lambda cls: cls.__name__)
def test_example_keeps_its_contract(cls):
    """Fabrics, collectives and searches have files of their own; the longer workloads are priced in theirs."""
    assert broken(cls) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_member_brings_an_example(name):
    result = members(name)
    assert len(result) >= 4
    for cls in result.values():
        assert family_of(cls) == name
        assert isinstance(FAMILIES[name].example(cls), cls) or name == "search"


class Odd(AbstractFabric):
    """Two numbers without defaults, and links that are numbers."""

    whole: ClassVar[tuple[str, ...]] = ()
    width: Array = quantity(low=1.0)
    length: Array = quantity()

    def link(self, group: Group) -> Link:
        return self.width  # type: ignore[return-value]

    def reach(self) -> Array:
        return jnp.asarray(0.5)

    def capex_usd(self) -> Array:
        return self.length

    def static_power_w(self) -> Array:
        return self.length


class Told(Odd):
    """With an example."""

    @classmethod
    def example(cls):
        return cls(2.0, 3.0)


def test_what_is_missing_or_wrong_is_one_line():
    (line,) = broken(Odd)
    assert line == (
        "Odd: example() fails with ConfigError: Odd lacks example(), a classmethod that gives a value to width, length"
    )
    lines = broken(Told)
    assert lines[0] == "Told: reach() is less than one device"
    assert lines[1].startswith("Told: background traffic never helps: fails with AttributeError: ")
    assert not any("\n" in line for line in lines)
    assert broken(int) == []
