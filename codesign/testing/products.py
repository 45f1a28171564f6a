"""The smallest workload that has everything a search looks at: one matrix product, cut over ranks, and one sum.

Traced and compiled in a tenth of the time of a transformer, so that every search can be run on every problem.
"""

from jaxtyping import Array, Float

from ..core.fields import quantity, replace, static
from ..core.jax_typed import arrays, asarray, ones_like
from ..core.module import Module
from ..model.hardware import Work
from ..model.scenario import Cluster, Scenario
from ..model.workloads import AbstractWorkload, CommOp, ComputeOp, Layout, Op, Plan, Precision
from ..model.workloads.lowering import indivisible
from ..model.workloads.schedule import Priced, Timeline, total
from .small import accelerator, cluster

BYTES = 2.0  # of an element


class Square(Module):
    """`layers` square matrices of `hidden` rows."""

    hidden: Float[Array, "*b"] = quantity(low=1.0)
    layers: Float[Array, "*b"] = quantity(low=1.0)
    name: str = static(default="square")


class Products(AbstractWorkload):
    """`plan.micro_batch` sequences of `tokens` rows pass every matrix, whose columns lie on `plan.tp` ranks."""

    model: Square
    tokens: Float[Array, "*b"] = quantity(low=1.0)
    precision: Precision = Precision()

    def number_format(self) -> str:
        """Number format of the matrix products."""
        return "bf16"

    def rows(self, layout: Layout) -> Array:
        """Rows of one matrix product."""
        return layout.plan.micro_batch * self.tokens

    def weights(self, layout: Layout) -> Array:
        """Bytes of one matrix on one device."""
        return BYTES * self.model.hidden**2 / layout.plan.tp

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """A product and the sum of its parts."""
        rows, width = self.rows(layout), self.model.hidden
        flops = 2 * rows * width * width / layout.plan.tp
        work = Work(flops, self.weights(layout) + BYTES * rows * width, rows, width, width / layout.plan.tp)
        return (
            ComputeOp("product", "gemm", "bf16", "forward", work, self.model.layers),
            CommOp("sum", "all_reduce", "tp", "forward", BYTES * rows * width, self.model.layers),
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """One after the other."""
        product, added = total(priced, "forward", ComputeOp), total(priced, "forward", CommOp)
        rows = self.rows(layout) * layout.dp
        flops = 2 * rows * self.model.hidden**2 * self.model.layers
        energy = product.energy_j + added.energy_j
        parts = {"compute": product.time_s, "tp": added.time_s}
        return Timeline(product.time_s + added.time_s, parts, energy, rows, flops, {})

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Once."""
        return {"forward": ones_like(layout.plan.tp)}

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, and the rows of one product."""
        held = self.weights(layout) * self.model.layers
        rows = BYTES * self.rows(layout) * self.model.hidden
        return {"weights": (held, self.weights(layout)), "working": (rows, rows)}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Whole replicas."""
        return {"devices": indivisible(layout.devices, layout.plan.tp)}

    @classmethod
    def example(cls) -> "Products":
        """Eighty matrices of half a gigabyte."""
        return cls(Square(*arrays(16384.0, 80.0)), *arrays(256.0))


def products() -> Scenario:
    """43 GB of weights, one switched network, 16 devices."""
    whole = cluster(16.0)
    lean = replace(accelerator(), {"hbm.usd_per_byte": 100e-9})  # memory costs enough to be weighed
    one = Cluster(lean, whole.host, {"scale_up": whole.network["scale_up"]}, asarray(16.0), levels=("scale_up",))
    return Scenario(one, Products.example(), Plan(tp=asarray(2.0), micro_batch=asarray(4.0)))
