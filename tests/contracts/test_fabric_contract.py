"""Promises of every fabric: of the menu and of plug-ins by their examples, and of every file that builds one."""

import pytest
from contracts.menus import built, configs
from hypothesis import given
from hypothesis import strategies as st

from codesign.model.networks.fabrics import AbstractFabric
from codesign.testing import members
from codesign.testing.contracts import FABRIC_PROMISES, GROUPS, log_convex_in_every_continuous_leaf

pytestmark = pytest.mark.slow

MEMBERS = members("fabric")
FILES = [("fabric", name) for name in configs("fabric")] + [("scale_out", name) for name in configs("scale_out")]


def fabric_of(group: str, name: str) -> AbstractFabric:
    made = built(group, name)
    return made.fabric if group == "scale_out" else made


@pytest.fixture(params=[*MEMBERS, *FILES], ids=lambda p: p if isinstance(p, str) else "/".join(p))
def fabric(request) -> AbstractFabric:
    return MEMBERS[request.param].example() if isinstance(request.param, str) else fabric_of(*request.param)


@pytest.mark.parametrize("promise", FABRIC_PROMISES, ids=lambda p: p.__name__)
def test_fabric_keeps(promise, fabric):
    promise(fabric)


@given(seed=st.integers(0, 2**32 - 1), group=st.sampled_from(GROUPS))
@pytest.mark.parametrize("name", MEMBERS)
def test_log_convex_in_every_continuous_leaf(name, seed, group):
    """Leaves within a factor 20 of the example, up and down; counts that decide the group's path stay."""
    log_convex_in_every_continuous_leaf(MEMBERS[name], group, seed)
