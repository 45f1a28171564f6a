"""Many jobs priced together: one trace for each shape of problem, whatever devices and models are named.

Names and number formats are structure, so runs of two GPUs, or in two formats, would each be a program of their own.
`anonymous` gives a scenario the same numbers under the parts that its formats play: a handful of programs then serves
all tables.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace as change
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model.scenario import Cluster, Scenario
from ...model.workloads import Precision
from ...model.workloads.number_formats import OP_CLASSES
from ..calibration.fit import unlabelled
from .many import at_many
from .named_residual import NumberedResidual, numbered
from .sheets import Number, Same, Sheet, number_of

PIECE = 1024  # rows that are priced together: their arrays stay in a cache
PARTS = {  # class of kernel -> the part its number format plays in a precision
    "gemm": "compute", "moe_gemm": "compute", "attention_prefill": "attention", "attention_decode": "attention",
    "mla_prefill": "attention", "mla_decode": "attention", "elementwise": "vector", "optimizer": "vector",
}  # fmt: skip

OPERATIONS = tuple(start for start, _ in OP_CLASSES)
"""Beginnings of the names of operations whose weights may have a format of their own."""

Adjust = Callable[[Scenario], Scenario]
Priced = Callable[[Scenario], tuple[np.ndarray, ...]]


class Batch(NamedTuple):
    """Scenarios of one structure, their numbers stacked, and their places in a table."""

    places: list[int]
    scenarios: Scenario


@functools.lru_cache(maxsize=256)
def _anonymous(cluster: Any, products: tuple[tuple[str, str], ...], attention: str) -> Cluster:
    own = cluster.value.accelerator
    formats = {**dict(products), "attention": attention, "vector": "vector"}
    residual, plain = own.kernel_correction, unlabelled
    if residual is not None:  # what was learned is found by names
        residual, plain = (
            NumberedResidual(own.kernel_correction.folder),
            lambda one: numbered(one, own.kernel_correction.folder),
        )
    parts = {kind: dict(products) if part == "compute" else {part: formats[part]} for kind, part in PARTS.items()}
    kernels = {
        kind: {part: plain(own.kernel(kind, name)) for part, name in named.items()} for kind, named in parts.items()
    }
    peaks = {part: own.peak(name) for part, name in formats.items()}
    accelerator = change(
        own,
        name="",
        generation="",
        peak_flops_per_s=peaks,
        kernels=kernels,
        energy_j_per_flop={},
        kernel_correction=residual,
    )
    pool = cluster.value.prefill
    if pool is None:
        return change(cluster.value, accelerator=accelerator)
    beside = change(pool, cluster=_anonymous(Same(pool.cluster), products, attention))
    return change(cluster.value, accelerator=accelerator, prefill=beside)


def anonymous(cluster: Cluster, precision: Precision) -> tuple[Cluster, Precision]:
    """Copy with the same numbers in a structure that names neither device nor arithmetic.

    Each class of kernel keeps the entries, and each part the peak, that this precision asks for; products keep their
    names where classes of weights have formats of their own. Energies per FLOP are left out: times and memory are what
    is compared.

    Raises:
        ConfigError: the device has no peak for a number format.
    """
    if precision.by_class is None:
        plain = _anonymous(Same(cluster), (("compute", precision.compute),), precision.attention)
        return plain, change(precision, compute="compute", attention="attention")
    products = tuple((one, one) for one in sorted({precision.compute, *map(precision.product, OPERATIONS)}))
    return _anonymous(Same(cluster), products, precision.attention), change(precision, attention="attention")


def sized(cluster: Cluster, devices: float) -> Cluster:
    """The cluster with another number of devices."""
    return change(cluster, device_count=jnp.asarray(float(devices)))


def batches(scenarios: Sequence[Scenario | Sheet]) -> list[Batch]:
    """Scenarios sorted by structure and by the shapes of their numbers, and stacked."""
    kinds: dict[Any, list[tuple[int, list[Any]]]] = {}
    for index, scenario in enumerate(scenarios):
        leaves, structure = scenario if isinstance(scenario, Sheet) else jax.tree.flatten(scenario)
        shapes = tuple((at, shape) for at, leaf in enumerate(leaves) if (shape := getattr(leaf, "shape", ())))
        kinds.setdefault((structure, shapes), []).append((index, leaves))
    return [_stacked(structure, members) for (structure, _), members in kinds.items()]


def _stacked(structure: Any, members: list[tuple[int, list[Any]]]) -> Batch:
    known: dict[int, Number] = {}  # one conversion for each array; those of a cluster are shared by its rows

    def number(leaf: Any) -> Number:
        if isinstance(leaf, float):
            return leaf
        if id(leaf) not in known:
            known[id(leaf)] = number_of(leaf)
        return known[id(leaf)]

    columns = zip(*([number(leaf) for leaf in leaves] for _, leaves in members), strict=True)
    return Batch([place for place, _ in members], jax.tree.unflatten(structure, [np.array(one) for one in columns]))


def vectorised(function: Callable[[Scenario], tuple[Any, ...]]) -> Priced:
    """A function of one scenario as a function of a piece."""
    return at_many(function)


def grouped(prepared: Sequence[Batch], priced: Priced, adjust: Adjust = lambda s: s) -> tuple[np.ndarray, ...]:
    """Numbers of each scenario, in its place.

    Args:
        priced: what `vectorised` returns.
        adjust: the last change to every stacked batch (a fitted constant), of its numbers alone.
    """
    count = sum(len(batch.places) for batch in prepared)
    result: list[np.ndarray] = []
    for places, scenarios in prepared:
        changed = adjust(scenarios)
        for start in range(0, len(places), PIECE):
            piece = jax.tree.map(lambda leaf, at=start: leaf[at : at + PIECE], changed)
            mine = places[start : start + PIECE]
            values = priced(piece)
            result = result or [np.zeros(count) for _ in values]
            for whole, part in zip(result, values, strict=True):
                whole[mine] = part
    return tuple(result)
