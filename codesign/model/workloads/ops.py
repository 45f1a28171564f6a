"""The operations a workload lowers to: arithmetic, communication and transfers between memory tiers.

`count` says how often one device runs the operation: per micro-batch for the phases forward, backward and recompute
(and decode), per step for `gradients`, `parameters` and `optimizer`. Repeated layers are one op with a count, so the
traced program stays small.
"""

from typing import Any

from jaxtyping import Array, Float

from ...core.fields import quantity, static
from ...core.module import Module
from ..hardware import Work

PER_MICRO_BATCH: tuple[str, ...] = ("forward", "backward", "recompute")
PER_STEP: tuple[str, ...] = ("gradients", "parameters", "optimizer")
PREFILL: tuple[str, ...] = (
    *("prefill", "prefill_rest"), *("prefill_one", "prefill_short", "prefill_half", "prefill_long"),
)  # fmt: skip
"""Phases that run on a pool of accelerators beside the others (`Cluster.prefill`)."""
LATER = "later_"
"""Begins the names of phases that run on the stages of a second kind of accelerator (`Cluster.later_stages`)."""
KV_TRANSFER = "kv_transfer"
"""The phase in which caches leave that pool."""


class ComputeOp(Module):
    """`count` launches of one kernel. `edge` work exists on one stage only: it paces a pipeline, it fills no bubble.

    `weight_gradient` work waits for no other stage and none waits for it: schedules may defer it.
    """

    name: str = static()
    kernel: str = static()
    number_format: str = static()
    phase: str = static()
    work: Work
    count: Float[Array, "*b"] = quantity()
    edge: bool = static(default=False)
    weight_gradient: bool = static(default=False)


class CommOp(Module):
    """`count` collective operations among the members of a mesh axis, each with its own `local` work.

    `element_bytes` is the size of a number of what is summed where it may be rounded, 0 where it may not: what rounding
    does is known of the activations of a model that is not trained.
    """

    name: str = static()
    operation: str = static()
    axis: str = static()
    phase: str = static()
    nbytes: Float[Array, "*b"] = quantity()
    count: Float[Array, "*b"] = quantity()
    local: Work | None = None
    element_bytes: float = static(default=0.0)


class TransferOp(Module):
    """`count` transfers of `nbytes` between the accelerator's memory and its second tier."""

    name: str = static()
    phase: str = static()
    nbytes: Float[Array, "*b"] = quantity()
    count: Float[Array, "*b"] = quantity()


Op = ComputeOp | CommOp | TransferOp


def kind_of(op: Op) -> tuple[Any, ...]:
    """Key of operations that are priced in one batch."""
    if isinstance(op, ComputeOp):
        return ("compute", op.kernel, op.number_format)
    if isinstance(op, CommOp):
        return ("communication", op.operation, op.axis, op.local is None, op.element_bytes)
    return ("transfer",)
