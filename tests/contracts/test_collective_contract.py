"""Promises of every algorithm: those of the menu and of plug-ins by their examples, and what files of conf/ build."""

from typing import Any

import jax
import numpy as np
import pytest
from contracts.menus import built, configs
from hypothesis import given
from hypothesis import strategies as st

from codesign.core.fields import check_ranges
from codesign.model.networks.collectives import OPERATIONS
from codesign.testing import members
from codesign.testing.contracts import ALWAYS, AT_RANDOM, COLLECTIVE_PROMISES

pytestmark = pytest.mark.slow

MEMBERS = members("collective")
FILES = [(group, name) for group in ("collective", "scale_out") for name in configs(group)]


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("promise", AT_RANDOM, ids=lambda p: p.__name__)
@given(seed=st.integers(0, 2**31))
def test_class_keeps(promise, name, seed):
    promise(MEMBERS[name].example(), MEMBERS[name].operation, seed)


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("promise", ALWAYS, ids=lambda p: p.__name__)
def test_class_also_keeps(promise, name):
    algorithm = MEMBERS[name].example()
    assert algorithm.operation in OPERATIONS
    check_ranges(algorithm)
    promise(algorithm, algorithm.operation, 0)


HELD: set[Any] = set()
"""Algorithms that kept every promise: two thirds of those of files are equal, in structure and in every number."""


@pytest.mark.parametrize(("group", "name"), FILES, ids=["/".join(f) for f in FILES])
def test_file_keeps_every_promise(group, name):
    made = built(group, name)
    for operation in OPERATIONS:
        algorithm = getattr(made, "collectives", made).algorithm(operation)
        leaves, structure = jax.tree.flatten(algorithm)
        equal = operation, structure, *((np.shape(leaf), np.asarray(leaf).tobytes()) for leaf in leaves)
        if equal in HELD:
            continue
        check_ranges(algorithm)
        for promise in COLLECTIVE_PROMISES:
            promise(algorithm, operation, 7)
        HELD.add(equal)
