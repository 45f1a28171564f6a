"""Time of a kernel: the requested work against peak and bandwidth.

Every kernel model maps (work, peak FLOP/s, bandwidth B/s) to seconds, and is a posynomial or a maximum of posynomials
in 1/peak and 1/bandwidth; shapes only enter as constants of the plan. Exchange one for another in YAML.
"""

import abc
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.examples import by_default
from ...core.fields import Module, as_leaf, quantity, static
from ...core.smooth import maximum, operation, ratio


class Routing(Module):
    """Token routing of a grouped product: the inputs of routing, permutation and padding.

    Of a group of devices that share a layer's experts. `visits` is how many experts a token visits, `shards` how many
    devices share the width of one, `load` rows of this device over the mean, `back` whether results are as wide as
    the tokens.
    """

    tokens: Float[Array, "*b"] = quantity(default=1.0, doc="of the whole group")
    visits: Float[Array, "*b"] = quantity(default=1.0)
    experts: Float[Array, "*b"] = quantity(default=1.0, doc="of the whole group")
    shards: Float[Array, "*b"] = quantity(default=1.0)
    load: Float[Array, "*b"] = quantity(default=1.0)
    back: Float[Array, "*b"] = quantity(default=0.0)


class Work(Module):
    """Work of one kernel launch.

    flops and nbytes are the compulsory arithmetic and memory traffic. The shape is what the class of kernel says: a
    GEMM is `batch` products of [rows, depth] x [depth, cols]; attention has rows = new tokens a sequence, cols = keys
    a sequence, depth = head dimension, batch = sequences x heads, groups = sequences x KV heads; a grouped product has
    batch = experts on the device, groups = experts with any row, and says more of them by `routing`.
    """

    flops: Float[Array, "*b"] = quantity()
    nbytes: Float[Array, "*b"] = quantity()
    rows: Float[Array, "*b"] = quantity(default=1.0)
    cols: Float[Array, "*b"] = quantity(default=1.0)
    depth: Float[Array, "*b"] = quantity(default=1.0)
    batch: Float[Array, "*b"] = quantity(default=1.0)
    groups: Float[Array, "*b"] = quantity(default=1.0)
    routing: Routing | None = None


class AbstractKernel(Module):
    """A kernel-time model: seconds of one launch. `long` formulas are traced once for all launches of their kind."""

    long: ClassVar[bool] = False

    @classmethod
    def example(cls) -> "AbstractKernel":
        """A small one with plain numbers, which contracts price; classes without defaults bring their own."""
        return by_default(cls)

    @abc.abstractmethod
    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch of `work`; zero for no work."""


class Roofline(AbstractKernel):
    """time = t0 + max(F / (e P), B / (b W)), and nothing for no work.

    Assumes: perfect overlap of arithmetic and memory traffic inside a kernel; efficiencies independent of size, the
    fixed time carrying what small kernels lose.
    Source: [williams2009] with a launch time; constants from `conf/calibration`.
    """

    t0_s: Float[Array, "*b"] = quantity(default=0.0)
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=1.5, default=1.0)
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=4.0, default=1.0)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        busy = maximum(
            work.flops / (self.compute_ratio * peak_flops_per_s),
            work.nbytes / (self.memory_ratio * bandwidth_bytes_per_s),
        )
        return jnp.where(work.flops + work.nbytes > 0, self.t0_s + busy, 0.0)


class Steps(Module):
    """An efficiency table: the ratio of the first break that the size reaches, else the last ratio.

    Not differentiable in the size (the size is a constant of the plan); exact in the hardware.
    """

    breaks: tuple[Float[Array, ""], ...] = eqx.field(converter=lambda v: tuple(as_leaf(x) for x in v))
    ratios: tuple[Float[Array, ""], ...] = eqx.field(converter=lambda v: tuple(as_leaf(x) for x in v))

    def __check_init__(self) -> None:
        """One more ratio than breaks: the last is for what reaches none."""
        if len(self.ratios) != len(self.breaks) + 1:
            raise ValueError(f"Steps needs one ratio more than breaks, not {len(self.ratios)} and {len(self.breaks)}")

    def __call__(self, size: Array) -> Array:
        """Efficiency at `size` (FLOP or bytes, in the unit of the breaks)."""
        value = self.ratios[-1]
        for least, efficiency in zip(self.breaks[::-1], self.ratios[:-1][::-1], strict=True):
            value = jnp.where(size >= least, efficiency, value)
        return value


class Stepped(AbstractKernel):
    """time = F / (e(F) P) + B / (b(B) W) with tabulated efficiencies, arithmetic and traffic one after the other.

    Source: [isaev2023], processing mode 'no_overlap', its default.
    """

    compute: Steps
    memory: Steps
    serial: bool = static(default=True)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        arithmetic = ratio(work.flops, self.compute(work.flops) * peak_flops_per_s)
        traffic = work.nbytes / (self.memory(work.nbytes) * bandwidth_bytes_per_s)
        return arithmetic + traffic if self.serial else maximum(arithmetic, traffic)

    @classmethod
    def example(cls) -> "Stepped":
        """Three efficiencies of arithmetic, two of traffic."""
        return cls(Steps((1e9, 1e6), (0.9, 0.7, 0.3)), Steps((1e6,), (0.8, 0.4)))


# Common parts of the measured kernel models: the device they were fitted on, caches, p-norms, waves.
#
# Symbols of these models: P peak FLOP/s, W memory bytes/s, S processors (SMs), L last-level cache bytes. S and L
# enter coefficients only, and a choice among tilings is made at the peak and bandwidth of the device that was
# measured. For a given shape every model is therefore a sum of p-norms (p >= 1) of monomials in 1/P and 1/W:
# log-convex in both.


class AbstractChip(Module):
    """The device that a kernel was measured on: what its tilings were chosen for.

    A design that changes peak or bandwidth keeps these, and with them the tilings.
    """

    processors: Float[Array, "*b"] = quantity(low=1.0, default=132.0, doc="streaming multiprocessors or compute units")
    cache_bytes: Float[Array, "*b"] = quantity(low=1.0, default=50e6, doc="last-level cache")
    peak_flops_per_s: Float[Array, "*b"] = quantity(low=1.0, default=989e12, doc="of the kernel's number format")
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=3.35e12)
    label: str = static(default="")  # class, accelerator, framework and number format that constants were fitted on


class Chip(AbstractChip):
    """A device as its numbers are listed."""


@operation
def p_norm(p: Array, *terms: Array) -> Array:
    """(sum x^p)^(1/p) of non-negative terms that are not all zero, scaled by the largest against underflow."""
    top = jax.lax.stop_gradient(reduce(jnp.maximum, terms))
    return top * sum((term / top) ** p for term in terms) ** (1 / p)


def missed(nbytes: Array, working_set_bytes: Array, cache_bytes: Array) -> Array:
    """The part of `nbytes` that a cache does not serve: all where the working set is much larger than the cache."""
    ratio = jnp.minimum(working_set_bytes / cache_bytes, 1e6) ** 4  # the bound keeps float32 finite
    return nbytes * ratio / (1 + ratio)


def waves(blocks_per_processor: Array, rounding: Array) -> Array:
    """Rounds of blocks on the processors: at least one, and `rounding` of the way up to the next whole number."""
    up = rounding * (jnp.ceil(blocks_per_processor - 1e-6) - blocks_per_processor)
    return jnp.maximum(1.0, blocks_per_processor + up)


def throttle(loss: Array, flops: Array, peak_flops_per_s: Array, after_s: float) -> Array:
    """Slowdown under sustained load: 1 + `loss` for kernels that run much longer than `after_s`."""
    return 1 + loss * flops / (flops + peak_flops_per_s * after_s)


def log_linear(x: Array, knots: Sequence[float], values: Sequence[Any]) -> Array:
    """Straight lines between (log knot, log value), constant beyond the ends."""
    result, log_x = jnp.log(values[0]), jnp.log(x)
    for low, high, a, b in zip(np.log(knots[:-1]), np.log(knots[1:]), values[:-1], values[1:], strict=True):
        result = result + jnp.clip((log_x - low) / (high - low), 0, 1) * (jnp.log(b) - jnp.log(a))
    return jnp.exp(result)


class Elementwise(AbstractKernel):
    """t = t0 + p_norm(B missed / (b W), B / (r b W), F / (e P), rows row_s / S): one pass over memory.

    B / (r b W) is the pass through the cache, `row_s` the time one processor spends on a row.

    Assumes: a kernel that reads and writes each element once.
    Source: constants from `conf/calibration`.
    """

    chip: AbstractChip = eqx.field(default_factory=Chip)
    t0_s: Float[Array, "*b"] = quantity(default=3e-6, doc="launch and drain")
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=4.0, default=0.85)
    cache_ratio: Float[Array, "*b"] = quantity(low=1e-2, high=100.0, default=3.0, doc="cache over memory bandwidth")
    cached_share: Float[Array, "*b"] = quantity(low=1e-3, high=10.0, default=0.5, doc="share of the cache that holds")
    row_s: Float[Array, "*b"] = quantity(default=1e-7, doc="processor time per row")
    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=4.0)
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=1.5, default=1.0)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        busy = work.flops + work.nbytes > 0
        nbytes = jnp.where(busy, work.nbytes, 1.0)
        rate = self.memory_ratio * bandwidth_bytes_per_s
        seconds = p_norm(
            self.norm,
            missed(nbytes, nbytes, self.cached_share * self.chip.cache_bytes) / rate,
            nbytes / (self.cache_ratio * rate),
            work.flops / (self.compute_ratio * peak_flops_per_s),
            work.rows * self.row_s / self.chip.processors,
        )
        return jnp.where(busy, self.t0_s + seconds, 0.0)
