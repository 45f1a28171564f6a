"""Which link each process group sees: numbers a reader can redo, and those printed in the sources."""

import jax
import jax.numpy as jnp
import pytest
from jax.test_util import check_grads

from codesign.core.fields import replace
from codesign.model.networks.fabrics import Contended, FatTree, Group, OpticalCircuit, PcieTree, SwitchDomain


def pcie(transfers_per_s: float = 16e9, **changes) -> PcieTree:
    return PcieTree(16.0, 1e-6, transfers_per_s, hop_latency_s=1e-7, **changes)


def payload_rate(group: Group, fabric) -> float:
    return float(1 / fabric.link(group).beta_s_per_byte)


def test_a_group_is_cut_at_the_domain():
    inner, outer = Group(64.0, 2.0).split(jnp.asarray(8.0))
    assert (float(inner.size), float(inner.stride)) == (4.0, 2.0)
    assert (float(outer.size), float(outer.stride)) == (16.0, 8.0)


@pytest.mark.parametrize(("size", "stride", "inside", "outside"), [(4, 1, 4, 1), (16, 8, 1, 16), (6, 16, 1, 6)])
def test_a_domain_holds_at_least_one_member_and_at_most_all(size, stride, inside, outside):
    inner, outer = Group(float(size), float(stride)).split(jnp.asarray(8.0))
    assert (float(inner.size), float(outer.size)) == (inside, outside)


def test_a_switch_domain_is_the_same_link_for_everyone():
    fabric = SwitchDomain(8.0, 450e9, 1e-6, energy_j_per_byte=1e-11, usd_per_bytes_per_s=4e-9, fixed_usd=100.0)
    for size in (2.0, 8.0):
        link = fabric.link(Group(size))
        assert float(link.alpha_s) == 1e-6
        assert payload_rate(Group(size), fabric) == pytest.approx(450e9)
    assert float(fabric.capex_usd()) == pytest.approx(100 + 450 * 4)
    assert float(fabric.reach()) == 8


def test_a_fat_tree_blocks_beyond_the_leaf_only():
    fabric = FatTree(50e9, 5e-6, hop_latency_s=1e-6, leaf_endpoints=256.0, blocking=2.0, usd_per_bytes_per_s=8e-8)
    near, far = fabric.link(Group(256.0)), fabric.link(Group(32.0, 16.0))
    assert float(near.alpha_s) == pytest.approx(5e-6)
    assert float(far.alpha_s) == pytest.approx(7e-6)
    assert float(far.beta_s_per_byte / near.beta_s_per_byte) == pytest.approx(2.0)
    assert float(fabric.capex_usd()) == pytest.approx(4000 * 0.75)  # half of it is the core, of which half is missing


def test_a_photonic_circuit_says_what_it_costs_to_point_it_elsewhere():
    link = OpticalCircuit(256.0, 300e9, 0.7e-6, 3.7e-6, wavelengths=16.0).link(Group(64.0))
    assert float(link.reconfiguration_s) == 3.7e-6
    assert float(link.lanes) == 16
    assert float(1 / link.beta_s_per_byte) == pytest.approx(300e9)


# Payload GB/s of x16 as the notes on the interference document print them, at maximum payloads of 128, 256, 512 B.
PRINTED_PAYLOAD = {8e9: (13.0, 14.3, 15.0), 16e9: (26.1, 28.5, 30.0), 32e9: (52.2, 57.1, 59.9)}


@pytest.mark.parametrize("transfers_per_s", PRINTED_PAYLOAD)
def test_pcie_payload_rates_match_the_printed_ones(transfers_per_s):
    for size, printed in zip((128.0, 256.0, 512.0), PRINTED_PAYLOAD[transfers_per_s], strict=True):
        rate = 1e-9 / pcie(transfers_per_s, max_payload_bytes=size).seconds_per_byte()
        assert float(rate) == pytest.approx(printed, abs=0.055)  # print rounding; Gen4 at 512 B is 29.948


def test_pcie_payload_rate_by_hand():
    wire = 16 * 8e9 / 8 * 128 / 130  # Gen3 x16: 15.754 GB/s
    assert wire == pytest.approx(15.754e9, rel=1e-4)
    assert float(1 / pcie(8e9).seconds_per_byte()) == pytest.approx(wire * 128 / (128 + 24 + 8 / 3))
    assert float(1e-9 / pcie(8e9).seconds_per_byte()) == pytest.approx(13.04, abs=0.005)  # 1/a_p of the document


@pytest.mark.parametrize(
    ("size", "stride", "share", "hops"),
    [
        (2, 1, 1, 0),  # one switch
        (8, 1, 1, 2),  # a ring round the box: one stream on each uplink
        (4, 2, 1 / 2, 2),  # two rings interleave under each switch
        (2, 4, 1 / 2, 2),  # partners across the box: both members of a switch go up
        (16, 1, 4, 4),  # a ring over both boxes uses all four crossings
        (8, 2, 2, 4),
        (2, 8, 1 / 2, 4),  # eight pairs share four crossings
    ],
)
def test_pcie_path_follows_size_and_stride(size, stride, share, hops):
    fabric = pcie(crossings=4.0, crossings_per_endpoint=4.0)
    group = Group(float(size), float(stride))
    assert payload_rate(group, fabric) * float(fabric.seconds_per_byte()) == pytest.approx(share)
    assert float(fabric.link(group).alpha_s) == pytest.approx(1e-6 + hops * 1e-7)


def test_pcie_member_with_one_port_drives_one_crossing():
    fabric = pcie(crossings=4.0)
    assert payload_rate(Group(16.0), fabric) * float(fabric.seconds_per_byte()) == pytest.approx(1.0)


# Topology -> crossings read into its graph; measured bus bandwidth in GB/s of all-gather, all-reduce, broadcast.
FABREX = {
    "1s-1rp-std-cascade": (2, (56, 54, 54)),
    "1s-2rp-split-cascade": (2, (56, 54, 54)),
    "1s-2rp-std-cascade": (1, (25, 25, 25)),
    "2s-2rp-std-flat": (1, (27, 27, 27)),
    "2s-2rp-split-flat": (4, (92, 100, 107)),
}


def test_pcie_crossings_give_the_measured_bus_bandwidths():
    errors, model = [], {}
    for name, (crossings, measured) in FABREX.items():
        fabric = pcie(crossings=float(crossings), crossings_per_endpoint=4.0)
        model[name] = payload_rate(Group(16.0), fabric) / 1e9  # a ring's bus bandwidth is its link's rate
        errors += [abs(model[name] / value - 1) for value in measured]
    assert sum(errors) / len(errors) < 0.05  # no constant is fitted: packets of the other document
    assert max(errors) < 0.15
    assert max(model, key=model.get) == "2s-2rp-split-flat"


def test_contention_takes_what_the_others_send():
    inner = FatTree(50e9, 5e-6, energy_j_per_byte=1e-10)
    fabric = Contended(inner, background_bytes_per_s=10e9)
    assert payload_rate(Group(16.0), fabric) == pytest.approx(40e9)
    assert payload_rate(Group(16.0, background_bytes_per_s=15e9), fabric) == pytest.approx(25e9)
    assert float(fabric.link(Group(16.0)).alpha_s) == 5e-6
    assert float(fabric.link(Group(16.0)).energy_j_per_byte) == 1e-10
    idle = replace(fabric, {"background_bytes_per_s": 0.0})
    assert payload_rate(Group(16.0), idle) == pytest.approx(50e9)


def test_contention_keeps_what_a_circuit_says():
    circuit = OpticalCircuit(256.0, 300e9, 0.7e-6, 3.7e-6, wavelengths=16.0)
    link = Contended(circuit, background_bytes_per_s=100e9).link(Group(8.0))
    assert (float(link.reconfiguration_s), float(link.lanes)) == (3.7e-6, 16.0)
    assert float(1 / link.beta_s_per_byte) == pytest.approx(200e9)


def test_contention_goes_on_smoothly_and_upwards_past_saturation():
    def beta(background):
        return (
            Contended(SwitchDomain(8.0, 1.0, 0.0), background_bytes_per_s=background).link(Group(8.0)).beta_s_per_byte
        )

    below, above = beta(0.95 - 1e-9), beta(0.95 + 1e-9)
    assert float(below) == pytest.approx(20.0, rel=1e-6)
    assert float(above) == pytest.approx(float(below), rel=1e-6)
    assert float(jax.grad(beta)(0.95 - 1e-9)) == pytest.approx(float(jax.grad(beta)(0.95 + 1e-9)), rel=1e-6)
    values = [float(beta(u)) for u in (0.0, 0.5, 0.949, 0.951, 0.99, 1.0, 1.5, 10.0)]
    assert values == sorted(values)


@pytest.mark.parametrize("bandwidth", [1.0, 1e6, 50e9])
@pytest.mark.parametrize("load", [0.0, 0.5, 0.95, 1.0, 3.0, "legal maximum"])
def test_contention_has_finite_gradients_over_the_whole_legal_box(bandwidth, load):
    background = 1e13 if load == "legal maximum" else load * bandwidth

    def beta(bandwidth, background):
        fabric = Contended(SwitchDomain(8.0, bandwidth, 1e-6), background_bytes_per_s=background)
        return fabric.link(Group(8.0)).beta_s_per_byte

    value, slopes = jax.value_and_grad(beta, argnums=(0, 1))(bandwidth, background)
    assert jnp.isfinite(value)
    assert all(jnp.isfinite(slope) for slope in slopes)
    assert slopes[0] < 0 < slopes[1]


@pytest.mark.parametrize(
    ("fabric", "group"),
    [
        (pcie(crossings=3.0), Group(16.0, 1.0)),
        (OpticalCircuit(64.0, 300.0, 0.7, 3.7, usd_per_bytes_per_s=2.0), Group(8.0)),
        (Contended(SwitchDomain(8.0, 5.0, 1.0), background_bytes_per_s=2.0), Group(8.0)),
        (Contended(SwitchDomain(8.0, 5.0, 1.0), background_bytes_per_s=4.9), Group(8.0)),
    ],
    ids=["pcie", "circuit", "contended", "congested"],
)
def test_gradients_agree_with_finite_differences(fabric, group):
    leaves, shape = jax.tree.flatten(fabric)
    logs = [jnp.log(leaf) for leaf in leaves if leaf > 0]
    where = [index for index, leaf in enumerate(leaves) if leaf > 0]

    def log_outputs(logs):
        changed = list(leaves)
        for index, value in zip(where, logs, strict=True):
            changed[index] = jnp.exp(value)
        made = jax.tree.unflatten(shape, changed)
        return jnp.log(made.link(group).beta_s_per_byte) + jnp.log1p(made.capex_usd())

    check_grads(log_outputs, (logs,), order=1, modes=["rev"], rtol=1e-4)
