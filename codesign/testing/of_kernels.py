"""Contract of every kernel model: work of every kind answered, no work for nothing, better hardware never slower."""

import dataclasses

from jaxtyping import Array

from ..core.fields import check_ranges
from ..core.jax_typed import arrays, asarray, grad
from ..jaxprs.evaluator import interpreted
from ..model.hardware import AbstractKernel, Work
from .keeping import all_finite, must

PEAK, BANDWIDTH = 1e15, 3e12
SHAPES = (
    Work(*arrays(2 * 4096.0**3, 6 * 4096.0**2, 4096.0, 4096.0, 4096.0)),  # a square product
    Work(*arrays(2 * 4096.0**2, 2 * 4096.0**2, 1.0, 4096.0, 4096.0)),  # one row
    Work(*arrays(4.0 * 64 * 2048 * 128, 2.0 * 64 * 2048 * 128, 1.0, 2048.0, 128.0, 64.0, 8.0)),  # one new token
    Work(*arrays(4.0 * 64 * 2048**2 * 128, 8.0 * 64 * 2048 * 128, 2048.0, 2048.0, 128.0, 64.0, 8.0)),  # of a prompt
    Work(*arrays(0.0, 1e6)),  # traffic alone
)
"""Work of every kind a kernel may be given; a kernel that is made for another kind must answer all the same."""


def _seconds(kernel: AbstractKernel, work: Work, peak: Array, bandwidth: Array) -> Array:
    return asarray(kernel.time_s(work, peak, bandwidth))


_slopes = interpreted(grad(_seconds, argnums=(0, 1, 2, 3)))


def takes_time_for_work_and_none_for_nothing(kernel: AbstractKernel) -> None:
    """Positive and finite for every shape, zero for none."""
    check_ranges(kernel)
    peak, bandwidth = asarray(PEAK), asarray(BANDWIDTH)
    for work in SHAPES:
        must(_seconds(kernel, work, peak, bandwidth) > 0, "time_s() of work is not positive")
    must(_seconds(kernel, Work(*arrays(0.0, 0.0)), peak, bandwidth) == 0, "time_s() of no work is not zero")


def better_hardware_is_never_slower(kernel: AbstractKernel) -> None:
    """Twice the peak, twice the bandwidth; and more traffic is never faster."""
    for work in SHAPES:
        base = _seconds(kernel, work, asarray(PEAK), asarray(BANDWIDTH))
        better = _seconds(kernel, work, asarray(2 * PEAK), asarray(2 * BANDWIDTH))
        more = dataclasses.replace(work, nbytes=1.5 * work.nbytes)
        must(better <= base * (1 + 1e-12), "twice the peak and bandwidth take longer")
        must(
            _seconds(kernel, more, asarray(PEAK), asarray(BANDWIDTH)) >= base * (1 - 1e-12),
            "more bytes take less",
        )


def finite_slopes(kernel: AbstractKernel) -> None:
    """Check that slopes in the work, the hardware and the kernel's own numbers are finite, also without work."""
    for work in (*SHAPES, Work(*arrays(0.0, 0.0))):
        must(all_finite(_slopes(kernel, work, asarray(PEAK), asarray(BANDWIDTH))), "slopes are not finite")


PROMISES = (takes_time_for_work_and_none_for_nothing, better_hardware_is_never_slower, finite_slopes)
