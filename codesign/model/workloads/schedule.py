"""From priced operations to a timeline: what hides behind what, and what one pass of a stage takes."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import stacked
from ...core.cost import Cost, partly_hidden_s, zero
from ...core.fields import Module, quantity, static
from ...core.smooth import maximum
from ..hardware import Work
from .plan import AbstractModelPlan

# The operations a workload lowers to: arithmetic, communication and transfers between memory tiers.
#
# `count` says how often one device runs the operation: per micro-batch for the phases forward, backward and recompute
# (and decode), per step for `gradients`, `parameters` and `optimizer`. Repeated layers are one op with a count, so
# the traced program stays small.


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
FFN = "ffn"
"""The phase that runs on a pool of feed-forward networks (`Cluster.ffn`)."""
TO_FFN, FROM_FFN = "to_ffn", "from_ffn"
"""Phases in which activations go to that pool and come back."""


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


class Timeline(Module):
    """Outcome of a job: per step in training, per batch of requests in serving.

    `breakdown_s` sums to `time_s`; `energy_j` is one device's operations (idle power not included); `tokens` and
    `model_flops` are those of all devices together; `extra` holds what only this kind of job has. `billed` says for
    kinds of tokens that have prices of their own (input, output) which share of the cost is theirs, and how many;
    `beside_j` is the operations of one device of a pool that works beside (`Cluster.prefill`), whose cost is that of
    input tokens, `ffn_j` those of one device of a pool of feed-forward networks (`Cluster.ffn`). `usage` are used
    shares of what bounds the job beside memory and networks, feasible up to 1. In `working_s` one device works on what
    no operation stands for (sampling tokens, sorting them by expert).
    """

    time_s: Float[Array, "*b"]
    breakdown_s: dict[str, Float[Array, "*b"]]
    energy_j: Float[Array, "*b"]
    tokens: Float[Array, "*b"]
    model_flops: Float[Array, "*b"]
    extra: dict[str, Float[Array, "*b"]]
    billed: dict[str, tuple[Float[Array, "*b"], Float[Array, "*b"]]] = eqx.field(default_factory=dict)
    beside_j: Float[Array, "*b"] = eqx.field(default_factory=lambda: jnp.asarray(0.0))
    ffn_j: Float[Array, "*b"] = eqx.field(default_factory=lambda: jnp.asarray(0.0))
    usage: dict[str, Float[Array, "*b"]] = eqx.field(default_factory=dict)
    working_s: Float[Array, "*b"] = eqx.field(default_factory=lambda: jnp.asarray(0.0))


class Pass(Module):
    """One phase of one micro-batch on one stage: arithmetic, what communication and transfers leave exposed.

    `busy_s` is the sum of both: all but the work that only one stage has. It is carried along instead of summed up,
    because what is left exposed is a difference, which is not log-convex; the sum is.
    """

    compute_s: Float[Array, "*b"]
    busy_s: Float[Array, "*b"]
    edge_s: Float[Array, "*b"]
    exposed_s: dict[str, Float[Array, "*b"]]
    energy_j: Float[Array, "*b"]


Priced = list[tuple[Op, Cost]]


def total(priced: Priced, phase: str, kind: type, axes: Iterable[str] = (), *, edge: bool | None = None) -> Cost:
    """Summed cost of the operations of a phase and kind, restricted to mesh axes or edge work where given."""
    chosen = tuple(axes)
    cost = zero()
    for op, price in priced:
        if op.phase != phase or not isinstance(op, kind):
            continue
        if isinstance(op, CommOp) and chosen and op.axis not in chosen:
            continue
        if isinstance(op, ComputeOp) and edge is not None and op.edge != edge:
            continue
        cost = cost + price
    return cost


def alongside(priced: Priced, phases: Sequence[str]) -> Priced:
    """Phases of the same operations as one, under the name of the first: costs and counts [phases]."""
    rows = ([(op, cost) for op, cost in priced if op.phase == phase] for phase in phases)
    result: Priced = []
    for alike in zip(*rows, strict=True):
        count, cost = jax.tree.map(stacked, *((op.count, cost) for op, cost in alike))
        result.append((dataclasses.replace(alike[0][0], count=count), cost))
    return result


def launches(priced: Priced, phase: str, *, edge: bool) -> Array:
    """Kernels that one pass of a stage starts."""
    count = jnp.asarray(0.0)
    for op, _ in priced:
        if op.phase == phase and isinstance(op, ComputeOp) and op.edge == edge:
            count = count + op.count
    return count


def deferred(priced: Priced, phase: str, slowdown: Array) -> tuple[Priced, Array]:
    """(operations without weight gradients of the layers, seconds of these)."""
    remaining: Priced = []
    cost = zero()
    for op, price in priced:
        if isinstance(op, ComputeOp) and op.weight_gradient and not op.edge and op.phase == phase:
            cost = cost + price
        else:
            remaining.append((op, price))
    return remaining, cost.time_s * slowdown


def one_pass(priced: Priced, phase: str, plan: AbstractModelPlan, slowdown: Array, launch_s: Array) -> Pass:
    """Chain what can hide: tensor, context and expert communication, data-parallel traffic, offload, then sends.

    Each is hidden behind the share `*_overlap` of what came before it; what is left is exposed. Kernels cannot start
    faster than the host issues them, one every `launch_s`. What ZeRO 3 does not gather ahead hides behind nothing.
    """
    ahead = jnp.where((plan.zero > 2) & (plan.prefetch < 1), 0.0, 1.0)
    compute, edge = total(priced, phase, ComputeOp, edge=False), total(priced, phase, ComputeOp, edge=True)
    chain = {
        "tp": (total(priced, phase, CommOp, ("tp", "attention_tp", "expert_tp", "decode_cp")), plan.tp_overlap),
        "cp": (total(priced, phase, CommOp, ("cp", "cp_heads")), plan.cp_overlap),
        "ep": (total(priced, phase, CommOp, ("ep",)), plan.ep_overlap),
        "dp": (total(priced, phase, CommOp, ("data", "expert_data")), plan.dp_overlap * ahead),
        "offload": (total(priced, phase, TransferOp), plan.offload_overlap),
        "pp": (total(priced, phase, CommOp, ("pp",)), plan.pp_overlap),
    }
    busy = maximum(compute.time_s * slowdown, launches(priced, phase, edge=False) * launch_s)
    start, energy, exposed = busy, compute.energy_j + edge.energy_j, {}
    for name, (cost, hidden) in chain.items():
        longer = partly_hidden_s(busy, cost, hidden)
        exposed[name] = longer - busy
        busy, energy = longer, energy + cost.energy_j
    edge_s = maximum(edge.time_s * slowdown, launches(priced, phase, edge=True) * launch_s)
    return Pass(start, busy, edge_s, exposed, energy)


# Slowdown of classes of work under a training framework, relative to their times measured alone.


ATTENTION = ("attention_prefill", "mla_prefill")
"""Classes of kernels that a framework brings itself: not those that were timed."""
EXPERTS = "moe_gemm"
"""Kernel of the products of a rank's experts."""


class Slowdowns(Module):
    """Factors on the times of classes of operations, beside `kernel_slowdown`, which is on all kernels.

    `attention` of attention kernels, `elementwise` of passes over memory, `experts` of products of experts, `dispatch`
    of moving tokens to experts and back, `exchange` of gathering parameters and reducing gradients among data-parallel
    ranks. Where each pass gathers and reduces (ZeRO 2 and 3) a ring of all ranks passes a layer's tensors on, one by
    one: `hop_s` is what every further rank adds to a layer's exchange. Where the products of the experts of a rank are
    issued one by one, each adds `expert_s`.

    Assumes: a factor is the same whatever the shape, so that times keep their curvature.
    Source: none: each is fitted on measured steps, with its count beside it.
    """

    attention: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    elementwise: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    experts: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    dispatch: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    exchange: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    hop_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a ring, for each layer and rank")
    expert_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a grouped product, for each expert of a rank")

    @classmethod
    def example(cls) -> "Slowdowns":
        """Passes over memory that take twice as long."""
        return cls(elementwise=2.0)

    def of(self, op: Op) -> Array | None:
        """The factor on the time of an operation; None for one."""
        if isinstance(op, ComputeOp):
            kinds = {**dict.fromkeys(ATTENTION, self.attention), "elementwise": self.elementwise,
                     EXPERTS: self.experts}  # fmt: skip
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
                if isinstance(op, ComputeOp) and op.kernel == EXPERTS:
                    time = time + op.count * op.work.batch * self.expert_s
                cost = dataclasses.replace(cost, time_s=time)
            result.append((op, cost))
        return result
