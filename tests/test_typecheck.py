"""The checker of the tests refuses wrong types and shapes, wherever a function stands."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import typecheck
from jaxtyping import Array, Float

from codesign.cost import Cost, overlap


def made(function):
    return typecheck.jaxtyped(function, typechecker=typecheck.check)


@made
def scaled(a: Float[Array, "*b"], b: Float[Array, "*b"], name: str = "") -> Float[Array, "*b"]:
    return a * b if name else jnp.sum(a)


def refused(function, *arguments):
    with pytest.raises(Exception, match=r"violates|Type-check"):
        function(*arguments)


def test_types_and_shapes_are_checked():
    three, four = jnp.ones(3), jnp.ones(4)
    assert scaled(three, three, "any").shape == (3,)
    refused(scaled, three, four, "any")  # two shapes of one name
    refused(scaled, three, np.ones(3), "any")  # no array of JAX
    refused(scaled, three, three, 1)
    refused(scaled, three, three)  # what comes back is of another shape
    assert scaled(three, three, "again").shape == (3,)


def test_modules_and_functions_inside_functions_are_checked():
    refused(Cost, "long", jnp.asarray(1.0))
    refused(overlap, "one", Cost(jnp.asarray(1.0), jnp.asarray(1.0)))

    def outer():
        @made
        def inner(path: Path) -> str:
            return str(path)

        return inner

    assert outer()(Path("a")) == "a"
    refused(outer(), "a")
