"""Learned correction of kernel models: a factor that only shapes and the measured chip decide.

seconds = exp(1.5 tanh(network(features))) x physics. The features are logarithms of the shape of a launch, of its tiles
and waves on the chip that was measured, and which multiples its sides are; a constant of the first layer stands for
accelerator, framework and number format. The network sees neither the peak nor the bandwidth of the design at hand: for
a plan the factor is a positive constant, between 0.22 and 4.5, and what is log-convex without it stays so.

Source: networks and their cards from `codesign calibrate`; the split of a kernel time into physics and a bounded
learned factor is ours.
"""

import abc
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError, DataError
from ...core.fields import Module, static
from ...core.jax_typed import asarray, ones
from ...core.resources import conf_dir
from ...core.rowwise import rowwise
from ...core.untrusted_io import read_arrays
from .compute import AbstractChip, AbstractKernel, Routing, Work

BOUND = 1.5  # log of the largest factor: a guard where nothing was measured (assumed)
TILES = ((64, 64), (128, 128), (128, 256))
GROUP_TILES = ((16, 128), (64, 128), (128, 128))
MULTIPLES = (8, 16, 64, 128)
FARTHEST = 4.0  # standard deviations beyond which a feature is taken as that far: nothing was measured there
UNKNOWN = 0  # row of an embedding that stands for whatever was not measured
EDITION = 1  # of what a file holds and what features mean
LAYERS = 4
CHIP, SIZES = 4, 5  # numbers of the measured chip, and sizes of a launch
FEATURES, ROUTING = 48, 7  # of every launch, and more of one that says how tokens reach experts
MOST_BYTES = 64 * 2**20  # of a file; the largest that is shipped unpacks to 0.1 MiB


class FitContext(NamedTuple):
    """Origin of fitted constants: class of kernel, accelerator, framework, number format."""

    kind: str
    accelerator: str
    framework: str
    number_format: str

    @classmethod
    def of(cls, text: str) -> "FitContext | None":
        """From the four words of `Chip.label`; None where there are none."""
        words = text.split()
        return cls(*words) if len(words) == len(cls._fields) else None


class ShapeNetwork(NamedTuple):
    """One class of kernels: weights and biases of each layer, what features were scaled by, embeddings by name."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    mean: np.ndarray
    spread: np.ndarray
    names: tuple[tuple[str, ...], ...]
    embeddings: tuple[np.ndarray, ...]

    def context(self, label: FitContext) -> np.ndarray:
        """Contribution of accelerator, framework and number format to the first layer."""
        result = np.zeros_like(self.biases[0])
        for names, rows, word in zip(self.names, self.embeddings, label[1:], strict=True):
            result = result + rows[names.index(word) + 1 if word in names else UNKNOWN]
        return result


def features(work: Work, chip: AbstractChip) -> Float[Array, "*b features"]:
    """Features of launches: logarithms of sizes, of tiles and waves, flags for sides that are whole multiples.

    Only shapes are read, not flops and bytes: these may depend on the memory of the design at hand.
    """
    return jnp.stack(jnp.broadcast_arrays(*_features(*_numbers_of(work, chip))), axis=-1)


def _numbers_of(work: Work, chip: AbstractChip) -> tuple[Sequence[Array], Sequence[Array], Sequence[Array]]:
    """Numbers that features are made of: sizes of launches, what the measured chip is, how tokens reach experts."""
    balance = work.routing
    routing = (
        []
        if balance is None
        else [balance.tokens, balance.visits, balance.experts, balance.shards, balance.load, balance.back]
    )
    return (
        [work.rows, work.cols, work.depth, work.batch, work.groups],
        [chip.processors, chip.peak_flops_per_s, chip.bandwidth_bytes_per_s, chip.cache_bytes],
        routing,
    )


def _features(sizes: Sequence[Any], chip: Sequence[Any], routing: Sequence[Any]) -> list[Array]:
    rows, cols, depth, batch, groups = (jnp.maximum(size, 1e-3) for size in sizes)
    processors, peak, bandwidth, cache = chip
    processors = jnp.maximum(processors, 1.0)

    def log(x: Array) -> Array:
        return jnp.log(jnp.maximum(x, 1e-6))

    elements = batch * rows * depth + groups * depth * cols + batch * rows * cols
    products = batch * rows * cols * depth
    balance = peak / bandwidth
    result = [log(rows), log(cols), log(depth), log(batch), log(groups), log(batch / groups)]
    result += [
        log(products) / 3,
        log(elements) / 3,
        log(products / elements / balance),
        log(elements / cache),
    ]
    for tall, wide in TILES:
        blocks = jnp.ceil(rows / tall) * jnp.ceil(cols / wide) * batch / processors
        result += [log(blocks), log(jnp.ceil(blocks) / blocks)]
        result += [log(jnp.ceil(rows / tall) * tall / rows), log(jnp.ceil(cols / wide) * wide / cols)]
    each = rows * batch / groups
    for tall, wide in GROUP_TILES:
        tiles = jnp.ceil(each / tall) * groups * jnp.ceil(cols / wide) / processors
        result += [log(tiles), log(jnp.ceil(tiles) / tiles), log(jnp.ceil(each / tall) * tall / each)]
    for multiple in MULTIPLES:
        result += [(jnp.ceil(side / multiple) * multiple == side).astype(float) for side in (rows, cols, depth)]
    result += [log(peak / 1e15), log(bandwidth / 3e12), log(processors / 100.0)]
    result += [log(each), log(groups / processors)]
    if routing:
        tokens, visits, experts, shards, load, back = routing
        result += [*map(log, (tokens, visits, experts, shards, load, experts / batch)), back]
    return result


def logistic_unit(x: Array) -> Array:
    """x / (1 + exp(-x)), the activation of hidden layers."""
    return x * jax.nn.sigmoid(x)


def hidden_output(
    scaled: Float[Array, "*b features"],
    context: Float[Array, "... hidden"],
    weights: Sequence[Any],
    biases: Sequence[Any],
) -> Float[Array, "*b"]:
    """Output of the last layer, of which `bounded` is the log of the factor."""
    hidden = scaled @ weights[0] + biases[0] + context
    for weight, bias in zip(weights[1:], biases[1:], strict=True):
        hidden = logistic_unit(hidden) @ weight + bias
    return hidden[..., 0]


def bounded(output: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Log of the factor."""
    return BOUND * jnp.tanh(output)


def output(
    scaled: Float[Array, "*b features"],
    context: Float[Array, "... hidden"],
    weights: tuple[Any, ...],
    biases: tuple[Any, ...],
) -> Float[Array, "*b"]:
    """Log of the factor."""
    return bounded(hidden_output(scaled, context, weights, biases))


@rowwise
def shape_network(
    shapes: Float[Array, "*b shape"],
    context: Float[Array, "*c hidden"],
    mean: Float[Array, " features"],
    spread: Float[Array, " features"],
    *layers: Array,
) -> Float[Array, "*b"]:
    """Output of a network for launches of these shapes (see `shape_of`), its weights before its biases."""
    columns = [shapes[..., column] for column in range(shapes.shape[-1])]
    chip, sizes, routing = columns[:CHIP], columns[CHIP : CHIP + SIZES], columns[CHIP + SIZES :]
    features = jnp.stack(jnp.broadcast_arrays(*_features(sizes, chip, routing)), axis=-1)
    scaled = jnp.clip((features - mean) / spread, -FARTHEST, FARTHEST)
    return hidden_output(scaled, context, layers[:LAYERS], layers[LAYERS:])


def place(kind: str, folder: str) -> Path:
    """The file of a class: in a folder, or among those that come with the package."""
    return (Path(folder) if folder else conf_dir() / "calibration" / "residual") / f"{kind}.npz"


def load(path: Path) -> ShapeNetwork:
    """A network from its file.

    Raises:
        DataError: it is not readable, or of another edition.
    """
    try:
        arrays = read_arrays(path, str(path), most=MOST_BYTES)
        if int(arrays["edition"]) != EDITION:
            raise DataError(f"{path} is of edition {int(arrays['edition'])}, not {EDITION}: calibrate again")
        numbers = range(LAYERS)

        def exact(name: str) -> np.ndarray:  # sums of stored float32 that do not depend on their order
            stored = arrays[name]
            return stored.astype(np.float64) if np.issubdtype(stored.dtype, np.floating) else stored

        network = ShapeNetwork(
            tuple(exact(f"weight_{i}") for i in numbers), tuple(exact(f"bias_{i}") for i in numbers),
            arrays["mean"], arrays["spread"], tuple(tuple(map(str, arrays[f"names_{i}"])) for i in range(3)),
            tuple(exact(f"embedding_{i}") for i in range(3)),
        )  # fmt: skip
    except (ConfigError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no network of `codesign calibrate`: {error}") from error
    _check(path, network)
    return network


def _check(path: Path, network: ShapeNetwork) -> None:
    """Refuse numbers that are not finite and shapes that do not fit."""
    parts = (*network.weights, *network.biases, network.mean, network.spread, *network.embeddings)
    width = [len(network.mean), *(bias.shape[0] for bias in network.biases)]
    fits = [weight.shape == size for weight, size in zip(network.weights, itertools.pairwise(width), strict=True)]
    rows = [e.shape == (len(n) + 1, width[1]) for e, n in zip(network.embeddings, network.names, strict=True)]
    finite = all(np.issubdtype(p.dtype, np.floating) and np.isfinite(p).all() for p in parts)
    if not (finite and all(fits) and all(rows) and network.spread.shape == network.mean.shape and width[-1] == 1):
        raise DataError(f"{path} holds numbers that are not finite, or layers that do not fit each other")


@lru_cache(maxsize=32)
def _loaded(path: Path, _: int) -> ShapeNetwork:
    return load(path)


def network_of(kind: str, folder: str = "") -> ShapeNetwork | None:
    """The network of a class of kernels, read again where its file has changed; None where there is none."""
    path = place(kind, folder)
    return _loaded(path, path.stat().st_mtime_ns) if path.is_file() else None


def applied(network: ShapeNetwork, context: Array, work: Work, chip: AbstractChip) -> Float[Array, "*b"]:
    """Factor of a network on the seconds of launches, its context that of the kernel's constants."""
    if network.mean.shape[-1] == FEATURES + ROUTING and work.routing is None:
        work = replace(work, routing=Routing())
    sizes, chip_numbers, routing = _numbers_of(work, chip)
    shapes = jnp.stack(jnp.broadcast_arrays(*chip_numbers, *sizes, *routing), axis=-1)
    layers = (*network.weights, *network.biases)
    return jnp.exp(bounded(shape_network(shapes, context, network.mean, network.spread, *layers)))


class LearnedCorrection(NamedTuple):
    """Learned correction of a kernel: its chip, the network of its class and the context of its constants."""

    chip: AbstractChip
    network: ShapeNetwork
    context: np.ndarray


def learnt(kernel: AbstractKernel, find: Callable[[str], ShapeNetwork | None]) -> LearnedCorrection | None:
    """Learned correction of a kernel; None where its class has none."""
    chip = getattr(kernel, "chip", None)
    label = FitContext.of(chip.label) if chip is not None else None
    network = find(label.kind) if label is not None else None
    if chip is None or label is None or network is None:
        return None
    return LearnedCorrection(chip, network, network.context(label))


def factor(kernel: AbstractKernel, work: Work, find: Callable[[str], ShapeNetwork | None]) -> Float[Array, "*b"]:
    """Factor on the seconds of launches; one where nothing was learned about their class."""
    correction = learnt(kernel, find)
    if correction is None:
        return ones(())
    return applied(correction.network, asarray(correction.context), work, correction.chip)


class AbstractResidual(Module):
    """Correction factor on the times of launches.

    folder: of networks that `codesign calibrate` wrote; those that come with the package if empty.
    """

    folder: str = static(default="")

    @abc.abstractmethod
    def factor(self, kernel: AbstractKernel, work: Work) -> Float[Array, "*b"]:
        """Factor on the seconds of launches."""


class Residual(AbstractResidual):
    """Learned factors of an accelerator's kernel times.

    Args:
        folder: of networks that `codesign calibrate` wrote; those that come with the package if empty.

    Assumes: nothing of the design's own peak and bandwidth: the factor is a constant of the plan.
    Source: measurements named in the cards beside the networks.
    """

    def factor(self, kernel: AbstractKernel, work: Work) -> Float[Array, "*b"]:
        """Factor on the seconds of launches, by the network of the kernel's class."""
        return factor(kernel, work, lambda kind: network_of(kind, self.folder))
