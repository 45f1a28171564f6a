"""From priced operations to a timeline: what hides behind what, and what one pass of a stage takes."""

import dataclasses
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import stacked
from ...core.cost import Cost, partly_hidden_s, zero
from ...core.module import Module
from ...core.smooth import maximum
from .ops import CommOp, ComputeOp, Op, TransferOp
from .plan import AbstractModelPlan


class Timeline(Module):
    """Outcome of a job: per step in training, per batch of requests in serving.

    `breakdown_s` sums to `time_s`; `energy_j` is one device's operations (idle power not included); `tokens` and
    `model_flops` are those of all devices together; `extra` holds what only this kind of job has. `billed` says for
    kinds of tokens that have prices of their own (input, output) which share of the cost is theirs, and how many;
    `beside_j` is the operations of one device of a pool that works beside (`Cluster.prefill`), whose cost is that of
    input tokens. `usage` are used shares of what bounds the job beside memory and networks, feasible up to 1.
    In `working_s` one device works on what no operation stands for (sampling tokens, sorting them by expert).
    """

    time_s: Float[Array, "*b"]
    breakdown_s: dict[str, Float[Array, "*b"]]
    energy_j: Float[Array, "*b"]
    tokens: Float[Array, "*b"]
    model_flops: Float[Array, "*b"]
    extra: dict[str, Float[Array, "*b"]]
    billed: dict[str, tuple[Float[Array, "*b"], Float[Array, "*b"]]] = eqx.field(default_factory=dict)
    beside_j: Float[Array, "*b"] = eqx.field(default_factory=lambda: jnp.asarray(0.0))
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
    kept: Priced = []
    cost = zero()
    for op, price in priced:
        if isinstance(op, ComputeOp) and op.weight_gradient and not op.edge and op.phase == phase:
            cost = cost + price
        else:
            kept.append((op, price))
    return kept, cost.time_s * slowdown


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
