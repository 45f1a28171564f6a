"""Traffic of a plan over each network level, and which flows are under way at the same time.

Bytes are those an algorithm puts on the wire, counted by the algorithm itself: it is priced on links that cost one
joule a byte on the level in question and nothing elsewhere.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.fields import quantity
from ..core.jax_typed import asarray
from ..core.smooth import at_least, at_most, maximum, ratio
from .hardware import Link
from .networks.collectives import NetworkLevel, stages
from .networks.collectives.levels import Stage, spanning
from .networks.fabrics import AbstractFabric, AbstractWrappedFabric, BackgroundTraffic, Group, QueuedNode
from .networks.fabrics.queued import LONGEST
from .workloads import CommOp, Layout, Op

__all__ = [
    "SLOWEST", "Flow", "beside", "bytes_by_level", "collective_times", "flows", "leaving_ratio",
    "sent_per_step", "shares_links", "tail_s",
]  # fmt: skip


# Time of one collective or send amid other traffic: the mean and the slowest of a hundred.


SLOWEST = 2.3263479
"""Standard deviations of a normal number that 99 in a hundred stay below. Source: derived."""


class DelayedFabric(AbstractWrappedFabric):
    """A fabric whose messages take `later_s` more."""

    later_s: Float[Array, "*b"] = quantity()

    def link(self, group: Group) -> Link:
        """The inner link, later."""
        link = self.inner.link(group)
        return dataclasses.replace(link, alpha_s=link.alpha_s + self.later_s)


def tail_s(mean: Array, variance: Array) -> Array:
    """Seconds that the slowest of a hundred sums of waits exceeds the mean by, for a gamma distribution, at least 0.

        mean (1 - 1 / (9 a) + 2.326 / (3 sqrt(a)))^3 - mean,    a = mean^2 / variance

    Source: the cube root of a gamma number is nearly normal [wilson1931].
    """
    mean = at_most(mean, LONGEST)
    waits = (mean > 0) & (variance > 0)
    shape = jnp.where(waits, ratio(mean * mean, variance), 1.0)
    root = at_least(1 - 1 / (9 * shape) + SLOWEST / (3 * jnp.sqrt(shape)), 0.0)
    return jnp.where(waits, at_least(mean * root**3 - mean, 0.0), 0.0)


def steps(op: CommOp, parts: Sequence[Stage], here: int) -> Array:
    """Messages of an operation on one level that follow one another: by how much it is later if each is by a second."""

    def later(seconds: Array) -> Array:
        part = parts[here]
        level = dataclasses.replace(part.level, fabric=DelayedFabric(part.level.fabric, seconds))
        return spanning(op.operation, op.nbytes, [*parts[:here], part._replace(level=level), *parts[here + 1 :]]).time_s

    return jax.jvp(later, (asarray(0.0),), (asarray(1.0),))[1]


def collective_times(ops: Iterable[tuple[CommOp, Sequence[Stage]]]) -> dict[str, Array]:
    """`collective_s.AXIS` and `collective_p99_s.AXIS`, where others' bursts are waited for: seconds of an axis' longest
    single operation, and of the slowest of a hundred such operations.

    Assumes: waits of the messages of an operation are independent. Against rings of eight carried out: within 25 %. The
    tail is not log-convex: a search under a limit on it gives no certificate.
    """
    result: dict[str, Array] = {}
    for op, parts in ops:
        if not any(isinstance(part.level.fabric, QueuedNode) for part in parts):
            continue
        mean = spread = asarray(0.0)
        for here, part in enumerate(parts):
            if isinstance(part.level.fabric, QueuedNode):
                count = steps(op, parts, here)
                one, variance = part.level.fabric.wait(part.group)
                mean, spread = mean + count * one, spread + count * variance
        once = spanning(op.operation, op.nbytes, parts).time_s
        runs = op.count > 0
        for name, seconds in (("collective_s", once), ("collective_p99_s", once + tail_s(mean, spread))):
            key = f"{name}.{op.axis}"
            result[key] = maximum(result.get(key, asarray(0.0)), jnp.where(runs, seconds, 0.0))
    return result


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


class MeteredFabric(AbstractFabric):
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
            dataclasses.replace(level, fabric=MeteredFabric(level.fabric, 1.0 if index == here else 0.0))
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
) -> dict[Flow, list[BackgroundTraffic]]:
    """(phase, axis) -> what runs beside it, seen from each level.

    Two flows are under way together for the share of the later one (in the order of `OVERLAP`) that may be hidden. A
    flow between nodes also passes the links inside (the card is a port of the inner fabric).

    Assumes: an exchange of once per step runs beside one pass, whose traffic is spread evenly over it.
    """
    flow_bytes, beyond = flows(ops, levels, layout), leaving_ratio(ops, levels, layout, repeats)
    seconds = {axis: _seconds_per_byte(axis, levels, layout) for axis in {axis for _, axis in flow_bytes}}
    result = {}
    for phase, axis in flow_bytes:
        none = [jnp.asarray(0.0)] * len(levels)
        nbytes, busy, met, all_met = none, none, jnp.asarray(0.0), jnp.asarray(0.0)
        for (other_phase, other), sent in flow_bytes.items():
            share = _passes_met(phase, other_phase, repeats)
            if other == axis or share is None or not {axis, other} <= set(OVERLAP):
                continue
            weight = getattr(layout.plan, OVERLAP[max(axis, other, key=list(OVERLAP).index)])
            passing = _passing(sent)
            nbytes = [a + weight * b for a, b in zip(nbytes, passing, strict=True)]
            busy = [a + weight * b * s for a, b, s in zip(busy, passing, seconds[other], strict=True)]
            met, all_met = met + weight * passing[0] * share, all_met + weight * passing[0]
        flow = flow_bytes[phase, axis]
        views = _seen(flow, nbytes, busy, seconds[axis], ratio(met, all_met))
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
    flow: Sequence[Array], others: Sequence[Array], busy: Sequence[Array], beta: Sequence[Array], met: Array
) -> list[BackgroundTraffic]:
    """Per byte of a flow's own on each level: others' bytes there, and the busiest other level's time."""
    passing, views = _passing(flow), []
    for here, nbytes in enumerate(flow):
        elsewhere = jnp.asarray(0.0)
        for level in range(len(flow)):
            if level != here:
                mine = passing[level] * beta[level] if level < here else 0.0
                elsewhere = maximum(elsewhere, ratio(busy[level] + mine, nbytes))
        views.append(BackgroundTraffic(ratio(others[here], nbytes), elsewhere, met))
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
