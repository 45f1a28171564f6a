"""Promises of every fabric: those of the menu with plain numbers, and every file of conf/fabric and conf/scale_out."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.menus import built, classes, configs
from contracts.probing import all_finite, midpoint_excess
from hypothesis import given
from hypothesis import strategies as st

from codesign import fabrics
from codesign.fabrics import (
    AbstractFabric,
    Contended,
    FatTree,
    FoldedClos,
    Group,
    OpticalCircuit,
    PcieTree,
    PhotonicRack,
    QueuedNode,
    RoutedTopology,
    SwitchChips,
    SwitchDomain,
)
from codesign.fields import check_ranges, replace, walk
from codesign.hardware import Channel, OpticalPath, Pcie, PhotonicLink, PhotonicReceiver, RingModulator
from codesign.interpreting import interpreted
from codesign.topology import PcieBoxes

PRICED = dict(energy_j_per_byte=1e-11, usd_per_bytes_per_s=4e-9, static_w_per_bytes_per_s=1e-10, fixed_usd=50.0)
EXAMPLES = {
    "SwitchDomain": SwitchDomain(8.0, 450e9, 1e-6, **PRICED),
    "SwitchChips": SwitchChips(8.0, 450e9, 1e-6, usd_per_switch=2000.0, switch_w=10.0, **PRICED),
    "FatTree": FatTree(50e9, 5e-6, 1e-6, leaf_endpoints=32.0, blocking=2.0, **PRICED),
    "FoldedClos": FoldedClos(
        16.0, 50e9, 1e-6, 2e-7, 4e-11, 500.0, 2.0, 3e12, 2e-8, 1e-8, 2e-8, 5e-10, 2e-10, 3e-10
    ),  # three tiers of a rail
    "OpticalCircuit": OpticalCircuit(256.0, 300e9, 7e-7, 3.7e-6, wavelengths=16.0, **PRICED),
    "PhotonicRack": PhotonicRack(
        PhotonicLink(
            RingModulator(insertion_db=0.3, drop_db=0.1, through_db=1e-4),
            OpticalPath(2.0, 0.05, 1e-3, 2.0, 0.01, 0.01, 3.0, 2.0, 0.1, 0.1, 0.1),
            PhotonicReceiver(penalty_db=0.5, energy_j_per_bit=3e-13),
            5.0,
            16.0,
            32e9,
            filter_ratio=0.1,
        ),
        256.0,
        7e-7,
        3.7e-6,
        server_endpoints=32.0,
        server_fibers=8.0,
        usd_per_wavelength=10.0,
        usd_per_waveguide=30.0,
    ),
    "PcieTree": PcieTree(16.0, 1e-6, 16e9, 1e-7, crossings=3.0, crossings_per_endpoint=2.0, fixed_usd=900.0),
    "RoutedTopology": RoutedTopology(
        PcieBoxes(domains=2, split=True),
        {"xgmi": Channel(64e9, 1e-6), "port": Pcie(16e9), "uplink": Pcie(16e9), "root": Pcie(16e9)},
        usd_per_bytes_per_s=4e-9,
        static_w=20.0,
    ),
    "QueuedNode": QueuedNode(SwitchDomain(8.0, 450e9, 1e-6, **PRICED), 45e9, 0.2, 1e6, 8.0, 8.0),
    "Contended": Contended(FatTree(50e9, 5e-6, **PRICED), background_bytes_per_s=20e9),
}
"""Class -> an instance with plain numbers; a new fabric adds a line."""

FILES = [("fabric", name) for name in configs("fabric")] + [("scale_out", name) for name in configs("scale_out")]
GROUPS = [Group(float(n), float(s)) for n in (1, 2, 3, 8, 16, 300) for s in (1, 2, 8, 64)]


def fabric_of(group: str, name: str) -> AbstractFabric:
    made = built(group, name)
    return made.fabric if group == "scale_out" else made


@pytest.fixture(params=[*EXAMPLES, *FILES], ids=lambda p: p if isinstance(p, str) else "/".join(p))
def fabric(request) -> AbstractFabric:
    return EXAMPLES[request.param] if isinstance(request.param, str) else fabric_of(*request.param)


def outputs(fabric: AbstractFabric, group: Group):
    """Everything that may be asked of it, continuous in the hardware: seconds, joules, dollars, watts."""
    link = fabric.link(group)
    return jnp.stack(jnp.broadcast_arrays(
        link.alpha_s, link.beta_s_per_byte, link.energy_j_per_byte, link.reconfiguration_s,
        fabric.capex_usd(), fabric.static_power_w(), *fabric.limits().values(),
        *fabric.counts(jnp.asarray(1024.0)).values(),
    ))  # fmt: skip


def test_every_class_of_the_menu_has_an_example():
    assert set(classes(fabrics, AbstractFabric)) == set(EXAMPLES)


def test_legal_and_sensible_for_every_group(fabric):
    check_ranges(fabric)
    assert float(fabric.reach()) >= 1
    for group in GROUPS:
        link = fabric.link(group)
        assert float(link.beta_s_per_byte) > 0
        assert all(float(leaf) >= 0 for leaf in jax.tree.leaves(link))
    assert float(fabric.capex_usd()) >= 0
    assert float(fabric.static_power_w()) >= 0


def test_background_traffic_never_helps(fabric):
    for group in GROUPS:
        loaded = Group(group.size, group.stride, 1e9)
        assert float(fabric.link(loaded).beta_s_per_byte) >= float(fabric.link(group).beta_s_per_byte)


slopes = interpreted(jax.jacrev(outputs, argnums=(0, 1)))


def test_finite_slopes_in_every_leaf_and_in_the_group(fabric):
    for group in GROUPS[::5]:
        assert all_finite(slopes(fabric, group))


def test_jit_and_vmap_equal_the_plain_call(fabric):
    groups = jax.tree.map(lambda *leaves: jnp.stack(leaves), *GROUPS)
    together = jax.jit(jax.vmap(outputs, in_axes=(None, 0)))(fabric, groups)
    np.testing.assert_allclose(together, [outputs(fabric, g) for g in GROUPS], rtol=1e-12)


@cache
def by_logs(name: str):
    """(start, logs of the leaves that move, group -> outputs) of an example; compiled once for all groups."""
    example = EXAMPLES[name]
    values = {path: float(value) for path, _, value in walk(example)}
    counts = ("endpoints", "radix", "rails")
    moves = np.array([value > 0 and not any(c in path for c in counts) for path, value in values.items()])
    given_values = jnp.array(list(values.values()))

    @jax.jit
    def priced(point, group):
        moved = jnp.where(moves, jnp.exp(point), given_values)
        return outputs(replace(example, dict(zip(values, moved, strict=True))), group) + 1e-30

    return jnp.log(jnp.where(moves, given_values, 1.0)), priced


@given(seed=st.integers(0, 2**32 - 1), group=st.sampled_from(GROUPS))
@pytest.mark.parametrize("name", EXAMPLES)
def test_log_convex_in_every_continuous_leaf(name, seed, group):
    """Leaves within a factor 20 of the example, up and down; counts that decide the group's path stay."""
    start, priced = by_logs(name)
    rng = np.random.default_rng(seed)
    a, b = (start + np.log(20) * jnp.asarray(rng.uniform(-1, 1, len(start))) for _ in range(2))
    assert midpoint_excess(lambda point: priced(point, group), a, b) < 1e-9
