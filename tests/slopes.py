"""Values and slopes of a function at many points: traced once, run by NumPy, since compiling takes far longer."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codesign.evidence.validation.vectorise import at_many


def values_and_slopes(
    function: Callable[..., Any], numbers: Mapping[str, Any], columns: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Values [points, outputs] of a function of named numbers, and their slopes by each of these numbers.

    Args:
        function: of a mapping of numbers, to a list of scalars.
        numbers: the numbers that all points share.
        columns: [points] of the numbers that differ.
    """
    rows = len(next(iter(columns.values())))
    points = {name: jnp.asarray(columns.get(name, np.full(rows, float(x)))) for name, x in numbers.items()}

    def stacked(point: dict[str, Any]) -> tuple[Any, Any]:
        values = jnp.stack(list(function(point)))
        return values, values

    slopes, values = at_many(jax.jacrev(stacked, has_aux=True))(points)
    return values, slopes
