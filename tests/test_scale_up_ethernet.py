"""Scale-up Ethernet of the catalogue: one send, packets and sums in the switches, in numbers that a reader can redo."""

import itertools

import jax
import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.model.networks.collectives import MulticastAllReduce
from codesign.model.networks.fabrics import Group, PacketFormat, SwitchChips

MIB = 2.0**20


@pytest.fixture(scope="module")
def level():
    told = ("accelerator=h200", "model=llama31_8b", "workload=training", "framework=none")
    return scenario_from_config(*told, "fabric=sue", "collective=sue").cluster.network["scale_up"]


def test_a_send_of_a_mebibyte_is_4096_packets_of_290_bytes(level):
    """256 of payload, 10 of header, 24 of the frame, at 800 GB/s behind 400 ns."""
    group = Group(2.0)
    cost = level.collectives.send.cost(jnp.asarray(MIB), group, level.fabric.link(group))
    assert float(cost.time_s) == pytest.approx(0.4e-6 + 4096 * 290 / 800e9, rel=1e-12)
    assert float(cost.energy_j) == pytest.approx(4096 * 290 * 44e-12, rel=1e-12)


def test_an_all_reduce_is_summed_on_the_way(level):
    """Six trips, the response and the adders; each of eight sends its buffer and the part that it asked for."""
    group = Group(8.0)
    assert isinstance(level.collectives.all_reduce, MulticastAllReduce)
    cost = level.collectives.all_reduce.cost(jnp.asarray(MIB), group, level.fabric.link(group))
    assert float(cost.time_s) == pytest.approx(6 * 0.4e-6 + 109e-9 + 4096 * 290 * (1 + 1 / 8) / 800e9, rel=1e-12)


def test_ports_of_the_chips_are_just_enough(level):
    """64 devices of 6.4 Tb/s on 8 chips of 51.2 Tb/s."""
    assert float(level.fabric.reach()) == 64
    limits = {name: float(value) for name, value in level.fabric.limits().items()}
    assert limits == {"switch_ports": pytest.approx(1.0), "switch_links": pytest.approx(0.125)}
    assert limits["switch_ports"] <= 1


@pytest.mark.parametrize(
    ("payload", "header", "wire"),
    [(256.0, 10.0, 290 / 256), (256.0, 46.0, 326 / 256), (4096.0, 10.0, 4130 / 4096), (16.0, 10.0, 83.1 / 16)],
)
def test_a_packet_takes_its_bytes_or_the_shortest_slot(payload, header, wire):
    assert float(PacketFormat(payload, header, 24.0, 83.1).wire_ratio()) == pytest.approx(wire)


def test_the_shortest_slot_is_a_frame_of_64_bytes():
    """Announced: 77 billion packets a second; 51.2 Tb/s over 84 bytes are 76.2 billion."""
    assert pytest.approx(77e9, rel=0.015) == 51.2e12 / 8 / 84
    assert pytest.approx(83.1, rel=1e-3) == 51.2e12 / 8 / 77e9


def seconds(logs):
    payload, header, frame, slot, rate = jnp.exp(logs)
    fabric = SwitchChips(64.0, rate, 4e-7, packets=PacketFormat(payload, header, frame, slot))
    return fabric.link(Group(8.0)).beta_s_per_byte


def test_seconds_per_byte_are_log_convex_with_slopes_that_are_right():
    """At the middle of any two points at most the geometric mean; plain, `jit` and `vmap` agree."""
    ends = jnp.log(jnp.array([[16.0, 1.0, 1.0, 20.0, 1e9], [16384.0, 100.0, 50.0, 500.0, 4e12]]))
    corners = [jnp.array([ends[side[axis], axis] for axis in range(5)]) for side in itertools.product((0, 1), repeat=5)]
    for one, other in itertools.pairwise(corners):
        assert float(seconds((one + other) / 2)) <= float(jnp.sqrt(seconds(one) * seconds(other))) * (1 + 1e-12)
    plain = [float(seconds(corner)) for corner in corners]
    assert all(0 < value < float("inf") for value in plain)
    assert jax.jit(jax.vmap(seconds))(jnp.stack(corners)).tolist() == pytest.approx(plain, rel=1e-12)
    for at in (jnp.log(jnp.array([256.0, 10.0, 24.0, 83.1, 8e11])), jnp.log(jnp.array([16.0, 10.0, 24.0, 83.1, 8e11]))):
        slopes, step = jax.grad(lambda x: jnp.log(seconds(x)))(at), 1e-6
        for axis in range(5):
            along = step * jnp.eye(5)[axis]
            numeric = (jnp.log(seconds(at + along)) - jnp.log(seconds(at - along))) / (2 * step)
            assert float(slopes[axis]) == pytest.approx(float(numeric), abs=1e-8)
