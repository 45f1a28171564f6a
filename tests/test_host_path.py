"""A library's send through the hosts' PCIe: its launch, then the slower of library and path; measured rows beside."""

import dataclasses

import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.model.hardware import Channel, pcie
from codesign.model.networks.fabrics import Group

PAIR = Group(jnp.asarray(2.0))
LAUNCH_S = 39.24e-6
ROWS = {33554432: 1400.87e-6, 134217728: 5436.43e-6, 1073741824: 43154.7e-6}  # [nccl_cluster], ten nodes of one card


@pytest.fixture(scope="module")
def level():
    """The network with hosts."""
    return scenario_from_config("scale_out=infiniband_ndr_hosts", "model=llama2_7b").cluster.network["scale_out"]


def seconds(level, nbytes, path=None):
    send = level.collectives.send
    send = send if path is None else dataclasses.replace(send, path=path)
    return float(send.cost(jnp.asarray(float(nbytes)), PAIR, level.fabric.link(PAIR)).time_s)


def path_s(level, nbytes, path):
    """The path by itself."""
    link = level.fabric.link(PAIR)
    wire = Channel(1 / link.beta_s_per_byte, unit_bytes=path.wire.packet_bytes())
    return float(link.alpha_s + dataclasses.replace(path, wire=wire).time_s(jnp.asarray(float(nbytes))))


@pytest.mark.parametrize("nbytes", ROWS)
def test_large_messages_are_as_measured(level, nbytes):
    """Within one percent; with all of the path added half as long again."""
    measured, path = ROWS[nbytes], level.collectives.send.path
    assert seconds(level, nbytes) == pytest.approx(measured, rel=0.01)
    assert seconds(level, nbytes) + path_s(level, nbytes, path) > 1.4 * measured


def test_the_launch_is_added_on_slow_hosts(level):
    """PCIe of the third generation is slower than the library: path and launch, by hand."""
    send = level.collectives.send
    slow = dataclasses.replace(send.path, near=pcie(3), far=pcie(3))
    nbytes = 1e8
    assert seconds(level, nbytes, slow) == pytest.approx(LAUNCH_S + path_s(level, nbytes, slow), rel=1e-6)
    library = float(send.inner.cost(jnp.asarray(nbytes), PAIR, level.fabric.link(PAIR)).time_s)
    assert seconds(level, nbytes, slow) > library
    assert seconds(level, nbytes) == pytest.approx(library, rel=1e-6)


def test_a_short_message_takes_the_launch_and_the_path(level):
    result = seconds(level, 1024)
    assert result == pytest.approx(LAUNCH_S + path_s(level, 1024, level.collectives.send.path), rel=1e-6)
    assert result == pytest.approx(41.2e-6, rel=0.01)
