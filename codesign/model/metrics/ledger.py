"""The traffic ledger: how many bytes each parallelism scheme moves over which class of path, and what they cost.

What an algorithm of minimal volume puts on the wire, from the same operations that are timed.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.jax_typed import asarray
from ...core.module import Module
from ..networks.fabrics import Group
from ..networks.fabrics.path_energy import PathEnergy, PathShares
from ..scenario import Scenario
from ..workloads import CommOp, ComputeOp, Op
from ..workloads.ops import KV_TRANSFER, PREFILL

SCHEMES = {"data": "dp", "expert_data": "dp"}
"""Mesh axes that are booked under another scheme's name."""

SENT: dict[str, Callable[[Array], Array]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send": lambda n: jnp.where(n > 1, 1.0, 0.0),
}
"""Bytes a member sends per byte of the operation."""


class Entry(Module):
    """Bytes that one scheme moves in a step or batch, on all devices, by class of path."""

    tray: Float[Array, "*b"]
    rack: Float[Array, "*b"]
    inter_rack: Float[Array, "*b"]
    offload: Float[Array, "*b"]

    def __add__(self, other: "Entry") -> "Entry":
        return Entry(*(mine + theirs for mine, theirs in zip(self._all(), other._all(), strict=True)))

    def _all(self) -> tuple[Array, Array, Array, Array]:
        return self.tray, self.rack, self.inter_rack, self.offload

    def total_bytes(self) -> Array:
        """Bytes over every path."""
        return self.tray + self.rack + self.inter_rack + self.offload

    def energy_j(self, paths: PathEnergy) -> Array:
        """Joules of the adapters and switches on the way; memories and arithmetic are counted where they work."""
        each = paths.j_per_byte()
        return sum((getattr(self, name) * joules for name, joules in each.items()), asarray(0.0))


def spread(nbytes: Array, shares: PathShares) -> Entry:
    """Bytes between accelerators, divided over the classes of path."""
    return Entry(nbytes * shares.tray, nbytes * shares.rack, nbytes * shares.inter_rack, 0.0 * nbytes)


def offloaded(nbytes: Array) -> Entry:
    """Bytes to or from memory that is no accelerator's own."""
    none = 0.0 * nbytes
    return Entry(none, none, none, nbytes)


def ledger(scenario: Scenario, paths: PathEnergy, ops: Sequence[Op] | None = None) -> dict[str, Entry]:
    """Scheme (tp, cp, ep, dp, pp, offload, kv_transfer) -> bytes by class of path, of one step or batch on all devices.

    Rings and pipelines talk to the next member, all-to-alls to every peer; groups lie as the layout numbers its ranks.
    A prefill pool stands in racks of its own, numbered alike; caches leave it for other racks.

    Args:
        scenario: what moves them.
        paths: where trays and racks end.
        ops: what the workload lowers to, where that is known already.
    """
    whole = scenario.layout
    repeats = scenario.workload.repeats(whole)
    booked: dict[str, Entry] = {}
    for op in scenario.workload.lower(whole) if ops is None else ops:
        apart = scenario.cluster.prefill is not None and op.phase in (*PREFILL, KV_TRANSFER)
        layout = whole.prefill if apart else whole
        times = layout.devices * repeats.get(op.phase, 1.0)
        if isinstance(op, ComputeOp):
            continue
        if op.phase == KV_TRANSFER:
            none, nbytes = asarray(0.0), times * op.count * op.nbytes
            name, entry = KV_TRANSFER, spread(nbytes, PathShares(none, none, asarray(1.0)))
        elif isinstance(op, CommOp):
            group = layout.group(op.axis)
            nbytes = times * op.count * op.nbytes * SENT[op.operation](group.size)
            if op.axis == "pp":  # the last stage of a pipeline has nobody to send to
                nbytes = nbytes * (group.size - 1) / group.size
            name, entry = SCHEMES.get(op.axis, op.axis), spread(nbytes, _place(op, group, paths))
        else:
            name, entry = "offload", offloaded(times * op.count * op.nbytes)
        booked[name] = booked[name] + entry if name in booked else entry
    return booked


def moved(scenario: Scenario, ops: Sequence[Op]) -> dict[str, Array]:
    """Scheme -> joules that its bytes cost on their way, on all devices; nothing where the cluster names no paths."""
    paths = scenario.cluster.path_energy
    if paths is None:
        return {}
    return {scheme: entry.energy_j(paths) for scheme, entry in ledger(scenario, paths, ops).items()}


def _place(op: CommOp, group: Group, paths: PathEnergy) -> PathShares:
    """Paths that the members of a group communicate over."""
    if op.operation == "all_to_all":
        return paths.to_any_peer(group)
    return paths.to_next(group, closed=op.axis != "pp")
