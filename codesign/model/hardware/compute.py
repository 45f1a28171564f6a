"""Time of a kernel: the requested work against peak and bandwidth.

Every kernel model maps (work, peak FLOP/s, bandwidth B/s) to seconds, and is a posynomial or a maximum of posynomials
in 1/peak and 1/bandwidth; shapes only enter as constants of the plan. Exchange one for another in YAML.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.examples import by_default
from ...core.fields import as_leaf, quantity, static
from ...core.module import Module
from ...core.smooth import maximum, ratio


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
