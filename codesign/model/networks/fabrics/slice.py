"""A slice of a rack of circuits, as its scheduler gave it: how many of its members share how many fibers."""

import dataclasses
from collections.abc import Sequence

from ....core.errors import ConfigError
from ....core.jax_typed import asarray
from ...slices import CircuitRack
from .optical_circuit import OpticalCircuit
from .photonic_rack import PhotonicRack

Circuits = OpticalCircuit | PhotonicRack


def on_slice(
    inner: Circuits, size: int, taken: Sequence[int], each: int, fibers: int, per_member: float = 0.0
) -> Circuits:
    """The circuits of a slice of `size` accelerators, placed on a rack of which some are taken.

    Inside one server a slice has full rate. Spread over several, the members in the server with the most of them to a
    fiber set the pace of every group that leaves it (`over_fibers`).

    Args:
        inner: the rack's circuits.
        size: accelerators of the slice.
        taken: accelerators that other slices have in each server.
        each: accelerators of a server.
        fibers: that leave a server.
        per_member: fibers that the scheduler gives for each member, while there are any; at least a ring of servers.

    Raises:
        ConfigError: the rack has no place for it.
    """
    rack = CircuitRack.occupied(taken, each, fibers, per_member)
    handle = rack.allocate(size)
    if handle is None:
        free = rack.free
        raise ConfigError(
            f"size = {size} finds no place on this rack: {free} accelerators are free with {fibers} fibers a server;"
            " ask for less, free some (taken) or add fibers"
        )
    parts = rack.parts(handle)
    if not parts:
        return dataclasses.replace(inner, endpoints=asarray(float(size)), server_fibers=asarray(0.0))
    members, ends = max(parts, key=lambda part: part[0] / part[1])
    return dataclasses.replace(
        inner,
        endpoints=asarray(float(size)),
        server_endpoints=asarray(float(members)),
        server_fibers=asarray(float(ends)),
    )
