"""Helpers of contracts: a promise raises where it is broken, slopes are finite."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Broken(AssertionError):
    """A promise is not kept; one line on what was seen."""


def must(kept: Any, what: str) -> None:
    """Refuse what is not kept everywhere.

    Raises:
        Broken: saying what.
    """
    if not bool(np.all(np.asarray(kept))):
        raise Broken(what)


def all_finite(tree: Any) -> bool:
    """True if every number of a tree is finite."""
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))
