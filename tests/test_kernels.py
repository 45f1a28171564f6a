"""Kernel models: limits by hand, log-convexity, gradients, jit and vmap, zero work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign.model.hardware import (
    Chip,
    DecodeAttention,
    Elementwise,
    Gemm,
    GroupedGemm,
    PrefillAttention,
    Roofline,
    Work,
)
from codesign.model.hardware.compute import missed, p_norm, waves

PEAK, RATE = 989e12, 3.35e12
CASES = {
    "gemm_large": (Gemm(), Work(2 * 4096.0**3, 6 * 4096.0**2, 4096, 4096, 4096)),
    "gemm_split": (Gemm(), Work(2 * 16 * 256 * 65536.0, 2.0 * (272 * 65536 + 16 * 256), 16, 256, 65536)),
    "grouped": (GroupedGemm(), Work(2 * 256 * 4096 * 2048.0, 1.4e8, 32, 4096, 2048, 8, 8)),
    "prefill": (PrefillAttention(), Work(2 * 4096.0**2 * 32 * 128, 1.3e8, 4096, 4096, 128, 32, 32)),
    "decode": (DecodeAttention(), Work(4 * 8192 * 256 * 128.0, 5.4e8, 1, 8192, 128, 256, 64)),
    "decode_short": (DecodeAttention(), Work(4 * 64 * 32 * 128.0, 6e5, 1, 64, 128, 32, 32)),
    "elementwise": (Elementwise(), Work(0.0, 1e9, 8192)),
    "roofline": (Roofline(t0_s=1e-6, compute_ratio=0.7), Work(1e12, 1e9)),
}


@pytest.fixture(params=sorted(CASES))
def case(request):
    return CASES[request.param]


def test_p_norm_by_hand():
    assert float(p_norm(jnp.asarray(2.0), jnp.asarray(3e-6), jnp.asarray(4e-6))) == pytest.approx(5e-6)
    assert float(p_norm(jnp.asarray(1.0), jnp.asarray(3.0), jnp.asarray(0.0))) == pytest.approx(3.0)


def test_waves_by_hand():
    assert float(waves(jnp.asarray(2.25), jnp.asarray(1.0))) == 3.0
    assert float(waves(jnp.asarray(2.25), jnp.asarray(0.0))) == 2.25
    assert float(waves(jnp.asarray(0.1), jnp.asarray(0.0))) == 1.0


def test_cache_serves_what_fits():
    assert float(missed(jnp.asarray(10.0), jnp.asarray(1e9), jnp.asarray(1e6))) == pytest.approx(10.0)
    assert float(missed(jnp.asarray(10.0), jnp.asarray(1e5), jnp.asarray(1e6))) < 0.01
    assert float(missed(jnp.asarray(10.0), jnp.asarray(1e6), jnp.asarray(1e6))) == pytest.approx(5.0)


def test_huge_gemm_runs_at_its_efficiency():
    n = 16384.0
    kernel = Gemm(t0_s=0.0, compute_ratio=0.8, fill_depth=0.0, small_tile_loss=0.0, wave_rounding=0.0,
                  throttle_loss=0.0, cache_ratio=100.0, norm=20.0)  # fmt: skip
    seconds = kernel.time_s(Work(2 * n**3, 6 * n**2, n, n, n), jnp.asarray(PEAK), jnp.asarray(RATE))
    assert float(seconds) == pytest.approx(2 * n**3 / (0.8 * PEAK), rel=2e-3)


def test_thin_gemm_streams_its_weights():
    n = 32768.0
    kernel = Gemm(t0_s=5e-6, memory_ratio=0.9, norm=20.0, cache_ratio=100.0, fill_depth=0.0)
    seconds = kernel.time_s(Work(2 * 8 * n * n, 2 * n * n, 8, n, n), jnp.asarray(PEAK), jnp.asarray(RATE))
    assert float(seconds) == pytest.approx(5e-6 + 2 * n * n / (0.9 * RATE), rel=2e-2)


def test_one_small_gemm_leaves_processors_idle():
    """A 64 x 64 result is one tile on one of 132 processors, however high the peak of all of them."""
    kernel = Gemm(t0_s=0.0, fill_depth=0.0, split_s=1.0, small_tile_loss=0.0, cache_ratio=100.0, norm=20.0)
    work = Work(2 * 64 * 64 * 1e5, 2 * 128 * 1e5, 64, 64, 1e5)
    seconds = kernel.time_s(work, jnp.asarray(PEAK), jnp.asarray(RATE))
    assert float(seconds) >= 132 * 2 * 64 * 64 * 1e5 / (0.8 * PEAK)


def test_idle_experts_cost_nothing():
    few = Work(2 * 8 * 4096 * 2048.0, 2 * (2 * 4096 * 2048.0 + 8 * 6144), 1, 4096, 2048, 8, 2)
    all_ = Work(2 * 8 * 4096 * 2048.0, 2 * (8 * 4096 * 2048.0 + 8 * 6144), 1, 4096, 2048, 8, 8)
    peak, rate = jnp.asarray(PEAK), jnp.asarray(RATE)
    assert float(GroupedGemm().time_s(few, peak, rate)) < 0.5 * float(GroupedGemm().time_s(all_, peak, rate))


def test_long_decode_streams_its_cache():
    kernel = DecodeAttention(t0_s=0.0, memory_ratio=0.9, norm=20.0, cache_ratio=100.0, processor_ratio=100.0,
                             compute_ratio=2.0, group_s=0.0, split_s=0.0)  # fmt: skip
    nbytes = 2 * 64 * 131072 * 128 * 2.0
    work = Work(4 * 131072 * 64 * 128.0, nbytes, 1, 131072, 128, 64, 64)
    seconds = kernel.time_s(work, jnp.asarray(PEAK), jnp.asarray(RATE))
    assert float(seconds) == pytest.approx(nbytes / (0.9 * RATE), rel=2e-2)


def test_no_work_takes_no_time_and_has_finite_gradients(case):
    kernel, _ = case

    def seconds(flops, nbytes, peak):
        return kernel.time_s(Work(flops, nbytes), peak, jnp.asarray(RATE))

    zero = jnp.asarray(0.0)
    assert float(seconds(zero, zero, jnp.asarray(PEAK))) == 0.0
    slopes = jax.grad(seconds, argnums=(0, 1, 2))(zero, zero, jnp.asarray(PEAK))
    assert all(bool(jnp.isfinite(slope)) for slope in slopes)


@pytest.mark.slow
def test_jit_and_vmap_are_the_plain_call(case):
    kernel, work = case
    plain = kernel.time_s(work, jnp.asarray(PEAK), jnp.asarray(RATE))
    jitted = jax.jit(lambda w, p, r: kernel.time_s(w, p, r))(work, jnp.asarray(PEAK), jnp.asarray(RATE))
    scales = jnp.asarray([0.5, 1.0, 2.0])
    many = jax.vmap(lambda s: kernel.time_s(work, PEAK * s, jnp.asarray(RATE)))(scales)
    assert float(jitted) == pytest.approx(float(plain), rel=1e-12)
    assert float(many[1]) == pytest.approx(float(plain), rel=1e-12)


def test_gradients_are_finite_differences(case):
    kernel, work = case

    def log_seconds(log_peak, log_rate):
        return jnp.log(kernel.time_s(work, PEAK * jnp.exp(log_peak), RATE * jnp.exp(log_rate)))

    zero, step = jnp.asarray(0.0), 1e-5
    slopes = jax.grad(log_seconds, argnums=(0, 1))(zero, zero)
    by_peak = (log_seconds(zero + step, zero) - log_seconds(zero - step, zero)) / (2 * step)
    by_rate = (log_seconds(zero, zero + step) - log_seconds(zero, zero - step)) / (2 * step)
    np.testing.assert_allclose([float(s) for s in slopes], [float(by_peak), float(by_rate)], atol=1e-5)
    assert -1 - 1e-9 <= float(slopes[0] + slopes[1]) <= 0


@pytest.mark.slow
@given(st.lists(st.floats(-2.0, 2.0), min_size=4, max_size=4))
@pytest.mark.parametrize("name", sorted(CASES))
def test_log_convex_in_peak_and_bandwidth(name, z):
    kernel, work = CASES[name]

    def log_seconds(a, b):
        return float(jnp.log(kernel.time_s(work, jnp.asarray(PEAK * np.exp(a)), jnp.asarray(RATE * np.exp(b)))))

    middle = log_seconds((z[0] + z[2]) / 2, (z[1] + z[3]) / 2)
    assert middle <= (log_seconds(z[0], z[1]) + log_seconds(z[2], z[3])) / 2 + 1e-9


def test_more_of_anything_takes_no_less(case):
    kernel, work = case
    peak, rate = jnp.asarray(PEAK), jnp.asarray(RATE)
    base = float(kernel.time_s(work, peak, rate))
    for name in ("flops", "nbytes"):
        more = Work(**{**vars(work), name: 1.5 * getattr(work, name)})
        assert float(kernel.time_s(more, peak, rate)) >= base * (1 - 1e-12)
    assert float(kernel.time_s(work, 2 * peak, 2 * rate)) <= base


def test_search_precision_agrees(case):
    """Float32, as searches use it, gives the number of float64."""
    kernel, work = case
    low = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (kernel, work))
    exact = float(kernel.time_s(work, jnp.asarray(PEAK), jnp.asarray(RATE)))
    rough = float(low[0].time_s(low[1], jnp.float32(PEAK), jnp.float32(RATE)))
    assert rough == pytest.approx(exact, rel=1e-4)


def test_tilings_stay_when_the_hardware_changes():
    """The tiling is that of the chip measured: halving all rates doubles all but the launch and the split's latency."""
    kernel, work = CASES["gemm_split"]
    still = Gemm(chip=Chip(), t0_s=0.0, split_s=0.0)
    fast = float(still.time_s(work, jnp.asarray(PEAK), jnp.asarray(RATE)))
    slow = float(still.time_s(work, jnp.asarray(PEAK / 2), jnp.asarray(RATE / 2)))
    assert slow == pytest.approx(2 * fast, rel=1e-9)
    assert float(kernel.time_s(work, jnp.asarray(PEAK), jnp.asarray(RATE))) > fast
