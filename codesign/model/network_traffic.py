"""Traffic of a plan over each network level, and which flows are under way at the same time.

Bytes are those an algorithm puts on the wire, counted by the algorithm itself: it is priced on links that cost one
joule a byte on the level in question and nothing elsewhere.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.fields import quantity
from ..core.smooth import maximum, ratio
from .hardware import Link
from .networks.collectives import NetworkLevel, stages
from .networks.collectives.levels import spanning
from .networks.fabrics import AbstractFabric, Beside, Group, QueuedNode
from .workloads import CommOp, Layout, Op

__all__ = ["beside", "bytes_by_level", "flows", "sent_per_step", "shares_links"]

BESIDE = {"gradients": "backward", "parameters": "forward"}
"""Exchanges of once per step -> the pass of a micro-batch they run beside."""

OVERLAP = {
    "tp": "tp_overlap", "attention_tp": "tp_overlap", "expert_tp": "tp_overlap", "decode_cp": "tp_overlap",
    "cp": "cp_overlap", "cp_heads": "cp_overlap", "ep": "ep_overlap", "data": "dp_overlap",
    "expert_data": "dp_overlap", "pp": "pp_overlap",
}  # fmt: skip
"""Mesh axis -> the plan's share of its communication that may run beside what comes earlier in this order."""

ONCE = 1.0  # how often a phase is run that a workload says nothing of
Flow = tuple[str, str]  # phase and mesh axis


class Metered(AbstractFabric):
    """A fabric whose links cost `j_per_byte`, everything else as it is: it counts bytes."""

    inner: AbstractFabric
    j_per_byte: Float[Array, "*b"] = quantity()

    def link(self, group: Group) -> Link:
        """The inner link with the meter's price."""
        return dataclasses.replace(self.inner.link(group), energy_j_per_byte=self.j_per_byte)

    def reach(self) -> Array:
        """Reach of the inner fabric."""
        return self.inner.reach()

    def capex_usd(self) -> Array:
        """A meter is free."""
        return jnp.asarray(0.0)

    def static_power_w(self) -> Array:
        """A meter draws nothing."""
        return jnp.asarray(0.0)


def shares_links(levels: Sequence[NetworkLevel]) -> bool:
    """True if any level lets the plan's flows see one another."""
    return any(level.fabric.sees_others for level in levels)


def bytes_by_level(op: CommOp, levels: Sequence[NetworkLevel], layout: Layout) -> list[Array]:
    """Bytes that one device sends on each level, innermost first, in one run of an operation."""
    group = layout.group(op.axis)
    counted = []
    for here in range(len(levels)):
        metered = [
            dataclasses.replace(level, fabric=Metered(level.fabric, 1.0 if index == here else 0.0))
            for index, level in enumerate(levels)
        ]
        counted.append(spanning(op.operation, op.nbytes, stages(metered, group)).energy_j)
    return counted


def flows(ops: Sequence[Op], levels: Sequence[NetworkLevel], layout: Layout) -> dict[Flow, list[Array]]:
    """(phase, axis) -> bytes that one device sends on each level in one pass, or step, of the phase."""
    result: dict[Flow, list[Array]] = {}
    for op in ops:
        if isinstance(op, CommOp):
            sent = [nbytes * op.count for nbytes in bytes_by_level(op, levels, layout)]
            before = result.get((op.phase, op.axis), [jnp.asarray(0.0)] * len(levels))
            result[op.phase, op.axis] = [a + b for a, b in zip(before, sent, strict=True)]
    return result


def sent_per_step(
    ops: Sequence[Op], levels: Sequence[NetworkLevel], layout: Layout, repeats: Mapping[str, Array]
) -> list[Array]:
    """Bytes that one device sends on each level in a step: the mix of a plan's traffic, innermost first."""
    total = [jnp.asarray(0.0)] * len(levels)
    for (phase, _), sent in flows(ops, levels, layout).items():
        total = [a + b * repeats.get(phase, ONCE) for a, b in zip(total, sent, strict=True)]
    return total


def beside(
    ops: Sequence[Op], levels: Sequence[NetworkLevel], layout: Layout, repeats: Mapping[str, Array]
) -> dict[Flow, list[Beside]]:
    """(phase, axis) -> what runs beside it, seen from each level.

    Two flows are under way together for the share of the later one (in the order of `OVERLAP`) that may be hidden. A
    flow between nodes also passes the links inside (the card is a port of the inner fabric).

    Assumes: an exchange of once per step runs beside one pass, whose traffic is spread evenly over it.
    """
    found, beyond = flows(ops, levels, layout), leaving_ratio(ops, levels, layout, repeats)
    seconds = {axis: _seconds_per_byte(axis, levels, layout) for axis in {axis for _, axis in found}}
    result = {}
    for phase, axis in found:
        none = [jnp.asarray(0.0)] * len(levels)
        nbytes, busy, met, all_met = none, none, jnp.asarray(0.0), jnp.asarray(0.0)
        for (other_phase, other), sent in found.items():
            share = _passes_met(phase, other_phase, repeats)
            if other == axis or share is None or not {axis, other} <= set(OVERLAP):
                continue
            weight = getattr(layout.plan, OVERLAP[max(axis, other, key=list(OVERLAP).index)])
            passing = _passing(sent)
            nbytes = [a + weight * b for a, b in zip(nbytes, passing, strict=True)]
            busy = [a + weight * b * s for a, b, s in zip(busy, passing, seconds[other], strict=True)]
            met, all_met = met + weight * passing[0] * share, all_met + weight * passing[0]
        own = found[phase, axis]
        views = _seen(own, nbytes, busy, seconds[axis], ratio(met, all_met))
        result[phase, axis] = [
            dataclasses.replace(view, beyond_ratio=beyond, **_next_to(here, seconds[axis]))
            for here, view in enumerate(views)
        ]
    return result


def leaving_ratio(
    ops: Sequence[Op], levels: Sequence[NetworkLevel], layout: Layout, repeats: Mapping[str, Array]
) -> Array:
    """Share of a plan's bytes in a step that leave the node."""
    total = leaving = jnp.asarray(0.0)
    for op in ops:
        if not isinstance(op, CommOp):
            continue
        for here, sent in enumerate(bytes_by_level(op, levels, layout)):
            each = sent * op.count * repeats.get(op.phase, ONCE)
            total, leaving = total + each, leaving + (each if here else 0.0)
    return ratio(leaving, total)


def _next_to(here: int, seconds: Sequence[Array]) -> dict[str, Array]:
    """Seconds per byte of the levels inside and beyond one's own; nothing where there is none."""
    none = jnp.asarray(0.0)
    inside, beyond = (seconds[at] if 0 <= at < len(seconds) else none for at in (here - 1, here + 1))
    return {"inside_s_per_byte": inside, "beyond_s_per_byte": beyond}


def _seen(
    own: Sequence[Array], others: Sequence[Array], busy: Sequence[Array], beta: Sequence[Array], met: Array
) -> list[Beside]:
    """Per byte of a flow's own on each level: others' bytes there, and the busiest other level's time."""
    passing, views = _passing(own), []
    for here, nbytes in enumerate(own):
        elsewhere = jnp.asarray(0.0)
        for level in range(len(own)):
            if level != here:
                mine = passing[level] * beta[level] if level < here else 0.0
                elsewhere = maximum(elsewhere, ratio(busy[level] + mine, nbytes))
        views.append(Beside(ratio(others[here], nbytes), elsewhere, met))
    return views


def _passing(sent: Sequence[Array]) -> list[Array]:
    """Bytes through the links of each level, with those on their way further out."""
    return [sum(sent[level:], jnp.asarray(0.0)) for level in range(len(sent))]


def _seconds_per_byte(axis: str, levels: Sequence[NetworkLevel], layout: Layout) -> list[Array]:
    """Seconds per byte of an axis' group on each level, alone: without what others take of it."""
    parts = stages(levels, layout.group(axis))
    fabrics = [part.level.fabric.inner if isinstance(part.level.fabric, QueuedNode) else part.level.fabric
               for part in parts]  # fmt: skip
    return [fabric.link(part.group).beta_s_per_byte for fabric, part in zip(fabrics, parts, strict=True)]


def _passes_met(phase: str, other: str, repeats: Mapping[str, Array]) -> Array | None:
    """Share of the passes of `phase` that meet `other`; None where they never do."""
    if phase == other or BESIDE.get(phase) == other:
        return jnp.asarray(1.0)
    if BESIDE.get(other) == phase:
        return repeats[other] / repeats[phase]
    return None
