"""Payload rates of link protocols, and one message through three stages against packets in a pipeline."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.probing import midpoint_excess

from codesign.core.fields import check_ranges, replace, walk
from codesign.model.hardware import (
    INFINIBAND,
    LOAD_STORE,
    BufferedCopy,
    Channel,
    LoadStore,
    Packets,
    Pcie,
    ThreeStagePath,
    WindowedThroughput,
    infiniband,
    load_store,
    pcie,
)

PRINTED_PAYLOAD = {  # GB/s of x16 at maximum payloads of 128, 256, 512 bytes, from the notes on the document
    3: (13.0, 14.3, 15.0),
    4: (26.1, 28.5, 30.0),
    5: (52.2, 57.1, 59.9),
    6: (104.9, 111.1, 114.4),
}
PROTOCOLS = [
    *(pcie(generation) for generation in PRINTED_PAYLOAD),
    *(infiniband(name) for name in INFINIBAND),
    *(load_store(name) for name in LOAD_STORE),
    Channel(50e9, 1e-6),
]


@pytest.mark.parametrize("generation", PRINTED_PAYLOAD)
def test_pcie_payload_rates_are_the_printed_ones(generation):
    for size, printed in zip((128.0, 256.0, 512.0), PRINTED_PAYLOAD[generation], strict=True):
        rate = 1e-9 / float(pcie(generation, max_payload_bytes=size).seconds_per_byte())
        assert rate == pytest.approx(printed, abs=0.055)  # print rounding; Gen4 at 512 B is 29.948


def test_stages_of_the_document_by_hand():
    assert 1e-9 / float(pcie(3).seconds_per_byte()) == pytest.approx(13.04, abs=0.005)
    assert 1e-9 / float(infiniband("EDR").seconds_per_byte()) == pytest.approx(12.317, abs=0.0005)


@pytest.mark.parametrize(("payload", "rate"), [(128.0, 360.0), (256.0, 400.0)])
def test_a_load_store_link_pays_header_and_reply(payload, rate):
    assert 1e-9 / float(load_store("NVLink 4", payload_bytes=payload).seconds_per_byte()) == pytest.approx(rate)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_payload_stays_below_the_wire(protocol):
    check_ranges(protocol)
    assert float(protocol.seconds_per_byte() * protocol.wire_bytes_per_s()) >= 1 - 1e-12
    assert float(protocol.message_latency_s()) > float(protocol.hop_latency_s())
    assert float(protocol.joules_per_byte()) >= 0


@pytest.mark.parametrize("protocol", [Pcie(16e9), Packets(4e11), LoadStore(9e11), Channel(5e10)])
def test_log_convex_with_right_slopes(protocol):
    values = {path: float(value) for path, _, value in walk(protocol) if float(value) > 0}

    @jax.jit  # inside a trace no range is checked: the law holds beyond the legal ones too
    def by_log(point):
        moved = replace(protocol, dict(zip(values, jnp.exp(point), strict=True)))
        return jnp.stack([moved.seconds_per_byte(), moved.message_latency_s(), moved.wire_bytes_per_s()])

    start = jnp.log(jnp.array(list(values.values())))
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = (start + rng.uniform(-1, 1, len(values)) for _ in range(2))
        assert midpoint_excess(by_log, a, b) < 1e-9
    slopes = jax.jacfwd(by_log)(start)
    for i in range(len(values)):
        step = 1e-6 * jnp.eye(len(values))[i]
        numeric = (by_log(start + step) - by_log(start - step)) / 2e-6
        np.testing.assert_allclose(slopes[:, i] / by_log(start), numeric / by_log(start), rtol=1e-6, atol=1e-8)


def pipeline_s(nbytes: int, packet: int, rates: tuple[float, ...]) -> float:
    """Packets stored and forwarded by one stage after the other; each stage serves one packet at a time."""
    free = [0.0] * len(rates)
    left = nbytes
    while left > 0:
        size, arrived = min(packet, left), 0.0
        for stage, rate in enumerate(rates):
            free[stage] = arrived = max(arrived, free[stage]) + size / rate
        left -= size
    return free[-1]


@pytest.mark.parametrize("packets", [0.03, 1, 2, 7, 64])
@pytest.mark.parametrize("generation", [3, 4])
def test_the_closed_form_is_the_pipeline_of_packets(packets, generation):
    """Whole packets: exact, whichever stage is the bottleneck (Gen3 is faster than EDR by little, HDR is not)."""
    for name in ("EDR", "HDR"):
        path = ThreeStagePath(pcie(generation), infiniband(name), pcie(generation), 1e-6)
        packet = int(path.wire.packet_bytes())
        nbytes = int(packets * packet)
        rates = tuple(1 / float(value) for value in path.stages_s_per_byte())
        assert float(path.pipeline_s(jnp.asarray(float(nbytes)))) == pytest.approx(pipeline_s(nbytes, packet, rates))


def test_limits_of_a_message():
    path = ThreeStagePath(pcie(3), infiniband("EDR"), pcie(3), 1e-6, 4e-7, 220.0, 8e-7, 16e3)
    small, large = jnp.asarray(220.0), jnp.asarray(1e9)
    assert float(path.time_s(small + 1) - path.time_s(small)) == pytest.approx(4e-7, rel=0.01)  # the read
    assert float(large / path.time_s(large)) == pytest.approx(float(path.bandwidth_bytes_per_s()), rel=1e-3)
    assert float(path.bandwidth_bytes_per_s()) == pytest.approx(1 / float(infiniband("EDR").seconds_per_byte()))


def test_a_copy_ends_where_the_handshake_begins():
    path = ThreeStagePath(pcie(3), infiniband("EDR"), pcie(3), 1e-6)
    library = BufferedCopy(path, 4e-7, 2e-10, 16384.0, 5e-11, 2e5, 2e-6)
    extra = lambda n: float(library.time_s(jnp.asarray(n)) - path.time_s(jnp.asarray(n)))  # noqa: E731
    assert extra(1000.0) == pytest.approx(4e-7 + 2e-7)
    assert extra(116384.0) == pytest.approx(4e-7 + 16384 * 2e-10 + 1e5 * 5e-11)
    assert extra(3e5) == pytest.approx(4e-7 + 2e-6)


def test_throughput_between_its_limits():
    window = WindowedThroughput(3e-7, 12e9, 6.0)
    assert float(window.bytes_per_s(jnp.asarray(64.0))) == pytest.approx(64 / 3e-7, rel=1e-3)
    assert float(window.bytes_per_s(jnp.asarray(1e7))) == pytest.approx(12e9, rel=1e-3)
    slope = jax.grad(lambda n: window.bytes_per_s(n))(3600.0)
    step = (window.bytes_per_s(jnp.asarray(3600.1)) - window.bytes_per_s(jnp.asarray(3599.9))) / 0.2
    assert float(slope) == pytest.approx(float(step), rel=1e-5)
