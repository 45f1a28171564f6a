"""Vectorised predictions: scenarios that differ in numbers alone are built once, traced once and priced together."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from dataclasses import replace as change
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.fields import get_path, quantity
from ...model.hardware import AbstractKernel, Residual
from ...model.hardware.compute import AbstractChip, Chip, Work
from ...model.hardware.residual import UNKNOWN, AbstractResidual, FitContext, ShapeNetwork, applied, network_of
from ...model.scenario import Cluster, Scenario
from ...model.workloads import Precision
from ...model.workloads.number_formats import OP_CLASSES
from ...staging import at_many
from ..calibration.fit import unlabelled

__all__ = [
    "PARTS", "Adjust", "Batch", "Form", "Sheet", "anonymous", "batches", "form_of", "grouped",
    "sized", "vectorised",
]  # fmt: skip


# Scenarios that differ in a few numbers: built once, then copied with other numbers in their places.
#
# Building a scenario checks and converts every field of every part; a table asks thousands that differ in a handful.
# A `Sheet` is what `jax.tree.flatten` would have made of one: its structure, and its numbers by place; a `Form` makes
# them.


Number = float | np.ndarray
"""A leaf of a scenario: a number, or several where a part has one for each of its dimensions, as a torus."""


class Sheet(NamedTuple):
    """A scenario as its structure and its numbers."""

    leaves: list[Any]
    structure: Any


class Same:
    """An object as a key of a cache: equal to itself alone, and kept alive by the cache."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


def number_of(leaf: Any) -> Number:
    """A leaf as a plain number, or as an array of them."""
    return float(leaf) if np.ndim(leaf) == 0 else np.asarray(leaf, dtype=float)


class Form(NamedTuple):
    """A structure, its numbers, and the places of those that differ from row to row."""

    leaves: list[Number]
    structure: Any
    places: dict[str, int]

    def with_numbers(self, numbers: Mapping[str, float]) -> Sheet:
        """The scenario with these numbers in their places."""
        leaves: list[Any] = list(self.leaves)
        for path, index in self.places.items():
            leaves[index] = numbers[path]
        return Sheet(leaves, self.structure)


def form_of(scenario: Scenario, paths: Sequence[str]) -> Form:
    """The form of a scenario in which the numbers at these dotted paths differ from row to row."""
    leaves, structure = jax.tree.flatten(scenario)
    index_of = {id(leaf): at for at, leaf in enumerate(leaves)}
    places = {path: index_of[id(get_path(scenario, path))] for path in paths}
    return Form([number_of(leaf) for leaf in leaves], structure, places)


# Learned factors whose names are numbers: devices, engines and formats of one structure share one program.
#
# `hardware.Residual` finds what was learned about a kernel by the words of its chip's label, which are structure:
# every device, engine and format would be traced on its own. Here the label keeps the class alone, and the chip the
# rows of the network's embeddings that stand for the three other words. The factor is the same, number by number.


class NumberedChip(AbstractChip):
    """A chip and the rows of its class's embeddings: of accelerator, framework and number format."""

    accelerator_row: Float[Array, "*b"] = quantity(default=0.0)
    framework_row: Float[Array, "*b"] = quantity(default=0.0)
    format_row: Float[Array, "*b"] = quantity(default=0.0)


class NumberedResidual(AbstractResidual):
    """Learned residual, like `Residual`, for kernels that `numbered` made."""

    def factor(self, kernel: AbstractKernel, work: Work) -> Float[Array, "*b"]:
        """Factor on the seconds of launches."""
        chip = getattr(kernel, "chip", None)
        network = network_of(chip.label, self.folder) if isinstance(chip, NumberedChip) else None
        if network is None or not isinstance(chip, NumberedChip):
            return Residual(self.folder).factor(kernel, work)
        return applied(network, _context(network, chip), work, chip)


def _context(network: ShapeNetwork, chip: NumberedChip) -> Array:
    """Contribution of the three words to the first layer: a row each, chosen by a product with ones and zeros."""
    result = jnp.zeros_like(jnp.asarray(network.biases[0]))
    for rows, row in zip(network.embeddings, (chip.accelerator_row, chip.framework_row, chip.format_row), strict=True):
        chosen = jnp.equal(jnp.arange(float(len(rows))), row).astype(float)
        result = result + chosen @ jnp.asarray(rows)
    return result


def numbered(kernel: AbstractKernel, folder: str) -> AbstractKernel:
    """Copy with numbers for the words of its label; without a label where nothing was learned of its class."""
    chip = getattr(kernel, "chip", None)
    label = FitContext.of(chip.label) if isinstance(chip, Chip) else None
    network = network_of(label.kind, folder) if label is not None else None
    if not isinstance(chip, Chip):
        return kernel
    values = {field.name: getattr(chip, field.name) for field in fields(Chip)}
    if label is None or network is None:
        return eqx.tree_at(lambda one: one.chip, kernel, Chip(**values | {"label": ""}))
    rows = [
        float(names.index(word) + 1 if word in names else UNKNOWN)
        for names, word in zip(network.names, label[1:], strict=True)
    ]
    replaced = NumberedChip(**values | {"label": label.kind}, **dict(zip(_ROWS, map(np.float64, rows), strict=True)))
    return eqx.tree_at(lambda one: one.chip, kernel, replaced)


_ROWS = ("accelerator_row", "framework_row", "format_row")


# Many jobs priced together: one trace for each shape of problem, whatever devices and models are named.
#
# Names and number formats are structure, so runs of two GPUs, or in two formats, would each be a program of their
# own. `anonymous` gives a scenario the same numbers under the parts that its formats play: a handful of programs then
# serves all tables.


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
def _anonymous(
    cluster: Any, products: tuple[tuple[str, str], ...], attention: str, energies: bool, pictures: str
) -> Cluster:
    device = cluster.value.accelerator
    seen = {pictures: pictures} if pictures else {}
    formats = {**dict(products), **seen, "attention": attention, "vector": "vector"}
    residual, plain = device.kernel_correction, unlabelled
    if residual is not None:  # what was learned is found by names
        residual, plain = (
            NumberedResidual(device.kernel_correction.folder),
            lambda one: numbered(one, device.kernel_correction.folder),
        )
    parts = {
        kind: (dict(products) if part == "compute" else {part: formats[part]}) | seen for kind, part in PARTS.items()
    }
    kernels = {
        kind: {part: plain(device.kernel(kind, name)) for part, name in named.items()} for kind, named in parts.items()
    }
    peaks = {part: device.peak(name) for part, name in formats.items()}
    joules: dict[str, Any] = {}
    if energies:
        none, joules_per_flop = jnp.asarray(0.0), device.energy_j_per_flop
        joules = {part: joules_per_flop.get(device.arithmetic(name), none) for part, name in formats.items()}
    accelerator = change(
        device,
        name="",
        generation="",
        peak_flops_per_s=peaks,
        kernels=kernels,
        energy_j_per_flop=joules,
        kernel_correction=residual,
    )
    pool = cluster.value.prefill
    if pool is None:
        return change(cluster.value, accelerator=accelerator)
    beside = change(pool, cluster=_anonymous(Same(pool.cluster), products, attention, energies, pictures))
    return change(cluster.value, accelerator=accelerator, prefill=beside)


def anonymous(
    cluster: Cluster, precision: Precision, *, energies: bool = False, sees: bool = False
) -> tuple[Cluster, Precision]:
    """Copy with the same numbers in a structure that names neither device nor arithmetic.

    Each class of kernel keeps the entries, and each part the peak, that this precision asks for; products keep their
    names where classes of weights have formats of their own. Energies per FLOP are left out unless asked for: times and
    memory are what most tables compare. Of a model that sees, the arithmetic of its encoder keeps its name.

    Raises:
        ConfigError: the device has no peak for a number format.
    """
    pictures = precision.activations if sees else ""
    if precision.by_class is None:
        plain = _anonymous(Same(cluster), (("compute", precision.compute),), precision.attention, energies, pictures)
        return plain, change(precision, compute="compute", attention="attention")
    products = tuple((one, one) for one in sorted({precision.compute, *map(precision.product, OPERATIONS)}))
    plain = _anonymous(Same(cluster), products, precision.attention, energies, pictures)
    return plain, change(precision, attention="attention")


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
    numbers: dict[int, Number] = {}  # one conversion for each array; those of a cluster are shared by its rows

    def number(leaf: Any) -> Number:
        if isinstance(leaf, float):
            return leaf
        if id(leaf) not in numbers:
            numbers[id(leaf)] = number_of(leaf)
        return numbers[id(leaf)]

    columns = zip(*([number(leaf) for leaf in leaves] for _, leaves in members), strict=True)
    return Batch([index for index, _ in members], jax.tree.unflatten(structure, [np.array(one) for one in columns]))


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
            for total, part in zip(result, values, strict=True):
                total[mine] = part
    return tuple(result)
