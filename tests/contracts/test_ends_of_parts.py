"""The ends of every legal range of every part by itself: algorithms, links, fabrics, kernels, memories, hosts.

A scenario asks a part only for what its plan needs; here each is asked for everything it can do.
"""

import itertools
from functools import cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest
from contracts.choices import without_label
from contracts.ends import faults, probe, visits
from contracts.menus import built, configs
from contracts.test_collective_contract import FILES as ALGORITHMS
from contracts.test_fabric_contract import FILES as FABRICS
from contracts.test_fabric_contract import fabric_of

from codesign.core.fields import walk
from codesign.model.hardware import Link
from codesign.model.networks.collectives import OPERATIONS
from codesign.model.networks.collectives.base import AbstractCollective
from codesign.model.networks.fabrics import Group
from codesign.testing.contracts import SHAPES

pytestmark = pytest.mark.slow

SIZES, BYTES = (8.0, 48.0), (1.0, 1e9)
LINK = Link(1e-6, 1e-11, 1e-11, 5e-6, lanes=16.0)
PEAK, BANDWIDTH = 1e15, 3e12


class OnALink(eqx.Module):
    """An algorithm with the link it runs on."""

    algorithm: AbstractCollective
    link: Link


@cache
def of_collectives():
    def ask(pair: OnALink) -> dict[str, Any]:
        numbers = {}
        for size, nbytes in itertools.product(SIZES, BYTES):
            cost = pair.algorithm.cost(jnp.asarray(nbytes), Group(size), pair.link)
            numbers[f"time of {nbytes:g} B among {size:g}"] = cost.time_s
            numbers[f"energy of {nbytes:g} B among {size:g}"] = cost.energy_j
        return numbers

    return probe(ask)


@cache
def of_fabrics():
    def ask(fabric: Any) -> dict[str, Any]:
        numbers = {"capex_usd": fabric.capex_usd(), "static_power_w": fabric.static_power_w(), "reach": fabric.reach()}
        numbers |= {f"usage.{name}": share for name, share in fabric.limits().items()} | fabric.counts(
            jnp.asarray(64.0)
        )
        for size, stride in ((2.0, 1.0), (8.0, 1.0), (16.0, 8.0)):
            link = fabric.link(Group(size, stride))
            for part in ("alpha_s", "beta_s_per_byte", "energy_j_per_byte", "reconfiguration_s", "lanes"):
                numbers[f"{part} of {size:g} {stride:g} apart"] = getattr(link, part)
        return numbers

    return probe(ask)


@cache
def of_kernels():
    def ask(kernel: Any) -> dict[str, Any]:
        return {
            f"shape {index}": kernel.time_s(work, jnp.asarray(PEAK), jnp.asarray(BANDWIDTH))
            for index, work in enumerate(SHAPES)
        }

    return probe(ask)


@cache
def of_memories():
    def ask(memory: Any) -> dict[str, Any]:
        stored = {"weights": jnp.asarray(1e10), "kv_cache": jnp.asarray(1e9)}
        numbers = {"bandwidth": memory.bandwidth("weights"), "energy": memory.energy("weights")}
        numbers |= {"price_usd": memory.price_usd(), "static_power_w": memory.static_power_w()}
        numbers |= {"peak_power_w": memory.peak_power_w(), "added": memory.added_bytes(jnp.asarray(1e6), "weights")}
        numbers |= {f"edge {name}": rate for name, rate in memory.edge_bytes_per_s().items()}
        return numbers | {f"usage.{name}": share for name, share in memory.limits(stored).items()}

    return probe(ask)


@pytest.mark.parametrize(("group", "name"), ALGORITHMS, ids=["/".join(f) for f in ALGORITHMS])
def test_of_algorithms_and_their_link(group, name):
    made = built(group, name)
    algorithms = getattr(made, "collectives", made)
    pairs = {operation: OnALink(algorithms.algorithm(operation), LINK) for operation in OPERATIONS}
    assert faults(visits(of_collectives(), pairs)) == []


@pytest.mark.parametrize(("group", "name"), FABRICS, ids=["/".join(f) for f in FABRICS])
def test_of_fabrics(group, name):
    assert faults(visits(of_fabrics(), {name: fabric_of(group, name)})) == []


def test_of_kernels():
    """Of all accelerators together: of some hundred kernels a handful differ in structure, and each is traced once."""
    kernels = {
        f"{name} {kind} {form}": without_label(kernel)
        for name in configs("accelerator")
        for kind, formats in built("accelerator", name).kernels.items()
        for form, kernel in formats.items()
    }
    assert {key.partition(" ")[0] for key in kernels} == {*configs("accelerator")}
    result = list(visits(of_kernels(), kernels))
    assert {visit.name for visit in result} >= {name for name, kernel in kernels.items() if next(walk(kernel), None)}
    assert faults(result) == []


MEMORIES = [("accelerator", name) for name in configs("accelerator")] + [("memory", name) for name in configs("memory")]


@pytest.mark.parametrize(("group", "name"), MEMORIES, ids=["/".join(f) for f in MEMORIES])
def test_of_memories(group, name):
    made = built(group, name)
    assert faults(visits(of_memories(), {name: getattr(made, "hbm", made)})) == []
