"""One accelerator: engines, memory, kernels, power and price."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import one_call
from ...core.cost import Cost
from ...core.errors import ConfigError
from ...core.fields import Module, part, quantities, quantity, static
from ...core.jax_typed import asarray
from ...core.pretty import as_text
from ...core.smooth import at_least, maximum, used_share
from .compute import AbstractKernel, Work
from .die import Die, Shoreline
from .memory import AbstractMemory
from .residual import AbstractResidual

# A board at work: what its clocks draw, and what a lower limit on its power costs in time.


LEAST_W = 1e-3  # left for kernels where idle power takes all of a limit: see `limits`


class AbstractBoard(Module):
    """Power model of a board: what it draws beyond its idle power while kernels run, and which limit it keeps."""

    working_w: eqx.AbstractVar[Float[Array, "*b"]]
    rated_w: eqx.AbstractVar[Float[Array, "*b"]]

    def drawn_j(self, seconds: Array, joules: Array) -> Array:
        """Joules beyond idle power of a kernel at rated clocks."""
        return joules + self.working_w * seconds

    def most_j(self, seconds: Array, idle_w: Array) -> Array:
        """Joules beyond idle power that the rated limit allows in so long a step."""
        return at_least(self.rated_w - idle_w, LEAST_W) * seconds

    @abc.abstractmethod
    def at_work(self, seconds: Array, joules: Array, idle_w: Array) -> tuple[Array, Array]:
        """Seconds of a kernel, and joules beyond idle power.

        Args:
            seconds: as measured, positive.
            joules: of arithmetic and traffic.
            idle_w: of the board, watts.
        """

    @abc.abstractmethod
    def limits(self, idle_w: Array) -> dict[str, Array]:
        """Share of the limit that an idle board takes: beyond one no clock keeps it."""


class Board(AbstractBoard):
    """Board that draws power beyond idle while kernels run; over a step it never draws more than `rated_w`.

    A kernel of t seconds and E joules of arithmetic and traffic takes E + working_w t joules, a whole step of T seconds
    at most (rated_w - idle) T: a board evens out what it draws over milliseconds, longer than kernels and shorter than
    steps.

    Assumes: kernel times were measured under the same limit, so that none of them is slower for it.
    Source: fitted by `codesign calibrate` on boards that serve ([mlenergy2025]); `conf/calibration/power`.
    """

    working_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="beyond idle power while kernels run, before arithmetic and traffic"
    )
    rated_w: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="limit of the board, memory included")

    def at_work(self, seconds: Array, joules: Array, idle_w: Array) -> tuple[Array, Array]:
        """The seconds that were measured, and clocks beside arithmetic and traffic."""
        del idle_w
        return seconds, self.drawn_j(seconds, joules)

    def limits(self, idle_w: Array) -> dict[str, Array]:
        """Share of the limit that an idle board takes: beyond one no clock keeps it."""
        return {"board_power": used_share(idle_w, self.rated_w)}

    @classmethod
    def example(cls) -> "Board":
        """200 W of clocks, 700 W in all."""
        return cls(asarray(200.0), asarray(700.0))


class CappedBoard(AbstractBoard):
    """A board whose power is limited to `limit_w`: its clocks fall until it keeps it.

    With D = min(E + working_w t, (rated_w - idle) t) of a kernel at rated clocks, and B = limit_w - idle power:

        t' = max(t, (t^2 D / B)^(1/3))       E' = min(D, B t')

    Dynamic power is f V^2, and voltage follows the clock, so the clock falls with the cube root of B over what would be
    drawn, and energy with its two thirds.

    Assumes: all of a kernel's time follows the clock (that of traffic does not: too long for what memory bounds, which
    seldom meets the limit); voltage follows the clock as far down as asked; each kernel keeps the lower limit by
    itself. The minima take a proof's curvature from times and energies.
    Source: switching power; tests/test_board.py holds the exponent against one chip on boards of two limits.
    """

    working_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="beyond idle power while kernels run, before arithmetic and traffic"
    )
    rated_w: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="limit of the board, memory included")
    limit_w: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="of the board, memory included")

    def at_work(self, seconds: Array, joules: Array, idle_w: Array) -> tuple[Array, Array]:
        """Seconds of a kernel under the limit, and joules beyond idle power; as `Board.at_work`."""
        dynamic = jnp.minimum(self.drawn_j(seconds, joules), self.most_j(seconds, idle_w))
        budget = at_least(self.limit_w - idle_w, LEAST_W)
        slowed = maximum(seconds, (seconds**2 * at_least(dynamic, 1e-30) / budget) ** (1 / 3))
        return slowed, jnp.minimum(dynamic, budget * slowed)

    def limits(self, idle_w: Array) -> dict[str, Array]:
        """Share of the lower limit that an idle board takes."""
        return {"board_power": used_share(idle_w, self.limit_w)}

    @classmethod
    def example(cls) -> "CappedBoard":
        """An example: a 700 W board capped at 500 W."""
        return cls(asarray(200.0), asarray(700.0), asarray(500.0))


RELATED_FORMATS = {
    "fp16": ("bf16",), "bf16": ("fp16",), "fp8": ("int8", "bf16"), "int8": ("fp8",), "fp4": ("fp8",),
    "fp8_block": ("fp8", "int8"), "mxfp4_w4a8": ("fp8", "int8"), "mxfp4_w4a16": ("bf16", "fp16"),
}  # fmt: skip
"""Number formats whose kernel constants stand in for a format without its own, nearest first."""

ARITHMETIC = {"fp8_block": ("fp8",), "mxfp4_w4a8": ("fp8",), "mxfp4_w4a16": ("bf16", "fp16")}
"""Kernels named by their weights -> formats of the arithmetic whose peak bounds them, the first that a device has."""

RELATED_KERNELS = {"mla_prefill": "attention_prefill", "mla_decode": "attention_decode", "moe_gemm": "gemm"}
"""Class of kernel that stands in for one without constants of its own."""

DATA_OF = {
    "gemm": "weights", "moe_gemm": "weights", "attention_decode": "kv_cache", "mla_decode": "kv_cache",
    "optimizer": "optimizer",
}  # fmt: skip
"""Class of data that a class of kernel mostly moves; the others move activations."""


class Accelerator(Module):
    """A device that computes. Peaks are dense; `vector` is the peak of everything that is no matrix product.

    kernels maps class -> number format -> kernel model; a class or format without its own entry takes the nearest
    (see `kernel`). With a `die`, its area and clock scale the peaks, powers and price that stand here. A `residual`
    multiplies kernel times by what was learned from measurements beyond their formulas. `generation` names the
    family of chips: what was measured on one says something of the others. A `board` says what its clocks draw and
    which limit they keep.
    """

    name: str = static()
    peak_flops_per_s: dict[str, Float[Array, "*b"]] = quantities(low=1.0, usual=(1.9e13, 1.5e16))
    hbm: AbstractMemory = part()
    kernels: dict[str, dict[str, AbstractKernel]] = part()
    energy_j_per_flop: dict[str, Float[Array, "*b"]] = quantities(usual=(5e-14, 1.1e-11))
    idle_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="board power before arithmetic and traffic are counted", usual=(226.0, 910.0)
    )
    tdp_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="rated board power less its HBM at full rate", usual=(250.0, 1200.0)
    )
    price_usd: Float[Array, "*b"] = quantity(default=0.0, doc="device without its HBM", usual=(7700.0, 41000.0))
    shoreline: Shoreline | None = None
    die: Die | None = None
    kernel_correction: AbstractResidual | None = None
    generation: str = static(default="")
    board: AbstractBoard | None = None

    __repr__ = as_text

    def arithmetic(self, number_format: str) -> str:
        """Format of the arithmetic of a number format or of kernels named by their weights."""
        named = (number_format, *ARITHMETIC.get(number_format, ()))
        return next((one for one in named if one in self.peak_flops_per_s), number_format)

    def peak(self, number_format: str) -> Array:
        """Dense peak of a number format.

        Raises:
            ConfigError: the device has no such format.
        """
        arithmetic = self.arithmetic(number_format)
        if arithmetic not in self.peak_flops_per_s:
            formats = ", ".join(sorted(self.peak_flops_per_s))
            raise ConfigError(f"accelerator {self.name} has no peak for {number_format!r} (known: {formats})")
        peak = self.peak_flops_per_s[arithmetic]
        return peak if self.die is None else peak * self.die.peak_ratio()

    def idle_power_w(self) -> Array:
        """Board power before arithmetic and traffic are counted."""
        return self.idle_w if self.die is None else self.idle_w * self.die.power_ratio()

    def rated_power_w(self) -> Array:
        """Rated board power less its HBM at full rate."""
        return self.tdp_w if self.die is None else self.tdp_w * self.die.power_ratio()

    def capex_usd(self) -> Array:
        """Price of the device without its HBM."""
        return self.price_usd if self.die is None else self.price_usd * self.die.price_ratio()

    def dies(self) -> Array:
        """Dies of a package; each has its edge."""
        return asarray(1.0) if self.die is None else self.die.dies

    def limits(self) -> dict[str, Array]:
        """Used share of what bounds the die and its package, if it is a design of its own, and of the board."""
        die_limits = {} if self.die is None else self.die.limits(self.rated_power_w() + self.hbm.peak_power_w())
        return die_limits if self.board is None else die_limits | self.board.limits(self.idle_power_w())

    def kernel(self, kind: str, number_format: str) -> AbstractKernel:
        """The kernel model of a class and number format; falls back to a related class, format, then `elementwise`."""
        related = RELATED_KERNELS.get(kind, kind)
        formats = self.kernels.get(kind) or self.kernels.get(related) or self.kernels["elementwise"]
        for candidate in (number_format, *RELATED_FORMATS.get(number_format, ()), "bf16", "fp16", "any"):
            if candidate in formats:
                return formats[candidate]
        return next(iter(formats.values()))

    @one_call("kind", "number_format")
    def compute(self, work: Work, count: Array, *, kind: str, number_format: str) -> Cost:
        """`count` launches of `work`: seconds, and the joules of its arithmetic and traffic."""
        some = work.flops + work.nbytes > 0
        # no shape divides by zero; free of `count`, so that the compiler shares the time of repeated work
        data = DATA_OF.get(kind, "activations")
        charged = dataclasses.replace(work, nbytes=work.nbytes + self.hbm.added_bytes(work.nbytes, data))

        def at_least_one(extent: Array) -> Array:
            return jnp.where(some, extent, 1.0)

        launched = jax.tree.map(at_least_one, charged)
        kernel = self.kernel(kind, number_format)
        seconds = kernel.time_s(launched, self.peak(number_format), self.hbm.bandwidth(data))
        if self.kernel_correction is not None:
            seconds = seconds * self.kernel_correction.factor(kernel, launched)
        per_flop = self.energy_j_per_flop.get(self.arithmetic(number_format), asarray(0.0))
        per_flop = per_flop if self.die is None else per_flop * self.die.energy_ratio()
        joules = work.flops * per_flop + work.nbytes * self.hbm.energy(data)
        if self.board is not None:
            seconds, joules = self.board.at_work(seconds, joules, self.idle_power_w())
            joules = jnp.where(some, joules, 0.0)
        return Cost(jnp.where(some & (count > 0), seconds, 0.0), joules) * count
