"""Slowdown of classes of work under a training framework, relative to their times measured alone."""

import dataclasses

from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module
from .ops import PER_MICRO_BATCH, CommOp, ComputeOp, Op
from .schedule import Priced

ATTENTION = ("attention_prefill", "mla_prefill")
"""Classes of kernels that a framework brings itself: not those that were timed."""


class Slowdowns(Module):
    """Factors on the times of classes of operations, beside `kernel_slowdown`, which is on all kernels.

    `attention` of attention kernels, `elementwise` of passes over memory, `experts` of products of experts, `dispatch`
    of moving tokens to experts and back, `exchange` of gathering parameters and reducing gradients among data-parallel
    ranks. Where each pass gathers and reduces (ZeRO 2 and 3) a ring of all ranks passes a layer's tensors on, one by
    one: `hop_s` is what every further rank adds to a layer's exchange.

    Assumes: a factor is the same whatever the shape, so that times keep their curvature.
    Source: none: each is fitted on measured steps, with its count beside it.
    """

    attention: Float[Array, "*b"] = quantity(low=0.1, default=1.0)
    elementwise: Float[Array, "*b"] = quantity(low=0.1, default=1.0)
    experts: Float[Array, "*b"] = quantity(low=0.1, default=1.0)
    dispatch: Float[Array, "*b"] = quantity(low=0.1, default=1.0)
    exchange: Float[Array, "*b"] = quantity(low=0.1, default=1.0)
    hop_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a ring, for each layer and rank")

    @classmethod
    def example(cls) -> "Slowdowns":
        """Passes over memory that take twice as long."""
        return cls(elementwise=2.0)

    def of(self, op: Op) -> Array | None:
        """The factor on the time of an operation; None for one."""
        if isinstance(op, ComputeOp):
            kinds = {**dict.fromkeys(ATTENTION, self.attention), "elementwise": self.elementwise,
                     "moe_gemm": self.experts}  # fmt: skip
            return kinds.get(op.kernel)
        if isinstance(op, CommOp):
            return {"data": self.exchange, "expert_data": self.exchange, "ep": self.dispatch}.get(op.axis)
        return None

    def over(self, priced: Priced, hops: Array) -> Priced:
        """Priced operations with their times under the framework; `hops`: ranks passed, of all layers."""
        result: Priced = []
        for op, cost in priced:
            factor = self.of(op)
            if factor is not None:
                time = cost.time_s * factor
                if isinstance(op, CommOp) and op.axis == "data" and op.phase in PER_MICRO_BATCH:
                    time = time + op.count * hops * self.hop_s
                cost = dataclasses.replace(cost, time_s=time)
            result.append((op, cost))
        return result
