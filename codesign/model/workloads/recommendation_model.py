"""Deep learning recommendation models: embedding tables, two perceptrons and what joins them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import as_leaf, integer, quantity, static
from ...core.module import Module
from ...core.units import BYTES
from ..hardware import Work
from .popularity import hot_share

Linear = tuple[Array, Array]  # inputs and outputs of one layer


def _widths(value: Any) -> tuple[Any, ...]:
    """Widths of a perceptron's layers as traced numbers.

    Raises:
        ConfigError: not a list of positive numbers.
    """
    if not isinstance(value, tuple | list) or any(isinstance(x, str | bool) for x in value):
        raise ConfigError(f"widths of a perceptron = {value!r} must be a list of positive numbers")
    if any(isinstance(x, int | float) and not x > 0 for x in value):
        raise ConfigError(f"widths of a perceptron = {list(value)!r} must all be positive")
    return tuple(as_leaf(x) for x in value)


class EmbeddingTables(Module):
    """`count` tables of `rows` x `dimension`; a sample looks `pooling` rows up in each and adds them.

    `skew` is the Zipf exponent of the rows' popularity: 0 is uniform, recorded traces lie near 1.

    Assumes: equal tables. A model whose tables differ is described by their mean and the sharding's `imbalance`.
    """

    count: Float[Array, "*b"] = integer(low=1.0)
    rows: Float[Array, "*b"] = integer(low=1.0, doc="of one table")
    dimension: Float[Array, "*b"] = integer(low=1.0, doc="elements of a row")
    pooling: Float[Array, "*b"] = quantity(low=0.0, default=1.0, doc="rows added up, per table and sample")
    skew: Float[Array, "*b"] = quantity(high=3.0, default=0.0, doc="Zipf exponent of row popularity")
    index_bytes: Float[Array, "*b"] = quantity(low=1.0, high=16.0, default=8.0)
    number_format: str = static(default="fp32")

    @property
    def element_bytes(self) -> float:
        """Bytes of a stored element.

        Raises:
            ConfigError: unknown number format.
        """
        if self.number_format not in BYTES:
            raise ConfigError(f"model.tables.number_format = {self.number_format!r} is none of {', '.join(BYTES)}")
        return BYTES[self.number_format]

    def table_bytes(self) -> Array:
        """One table."""
        return self.rows * self.dimension * self.element_bytes

    def parameters(self) -> Array:
        """Elements of all tables."""
        return self.count * self.rows * self.dimension

    def hit_ratio(self, share: Array) -> Array:
        """Share of look-ups that find their row in a memory holding the hottest `share` of the rows."""
        return hot_share(share * self.rows, self.rows, self.skew)


class RecommendationModel(Module):
    """DLRM: dense features through the bottom perceptron, pooled embeddings, dot products of all pairs, top perceptron.

    With T tables of dimension D and b = bottom[-1] (which must equal D, or be absent), F = T + 1 vectors meet in
    F (F - 1) / 2 dot products, joined by the bottom result, and go through the top. Without perceptrons the model is
    the embedding part alone.

    Source: [naumov2019].
    """

    name: str = static()
    tables: EmbeddingTables
    dense_features: Float[Array, "*b"] = integer(low=0.0, default=0.0)
    bottom: tuple[Any, ...] = eqx.field(converter=_widths, default=())
    top: tuple[Any, ...] = eqx.field(converter=_widths, default=())

    @property
    def vectors(self) -> Array:
        """Vectors that meet in the dot products: one a table, and the bottom result."""
        return self.tables.count + (1.0 if self.bottom else 0.0)

    def bottom_layers(self) -> list[Linear]:
        """(inputs, outputs) of each layer of the bottom perceptron."""
        return _chain(self.dense_features, self.bottom)

    def top_layers(self) -> list[Linear]:
        """(inputs, outputs) of each layer of the top perceptron."""
        pairs = self.vectors * (self.vectors - 1) / 2
        return _chain(pairs + (self.bottom[-1] if self.bottom else 0.0), self.top)

    def dense_parameters(self) -> Array:
        """Weights and biases of both perceptrons."""
        total = jnp.asarray(0.0)
        for inputs, outputs in (*self.bottom_layers(), *self.top_layers()):
            total = total + (inputs + 1) * outputs
        return total

    def parameters(self) -> Array:
        """Number of learnt parameters."""
        return self.tables.parameters() + self.dense_parameters()

    def forward_flops(self) -> Array:
        """FLOPs of one sample: additions of the pooling, products of the pairs, perceptrons."""
        tables = self.tables
        total = tables.count * tables.pooling * tables.dimension
        if self.top:
            total = total + self.vectors * (self.vectors - 1) * tables.dimension
        for inputs, outputs in (*self.bottom_layers(), *self.top_layers()):
            total = total + 2 * inputs * outputs
        return total

    def interaction(self, samples: Array, element_bytes: float) -> Work:
        """All vectors of a sample against all: a batch of [F, D] x [D, F], of which half is kept."""
        vectors, dimension = self.vectors, self.tables.dimension
        kept = vectors * (vectors - 1) / 2
        flops = 2 * samples * vectors * vectors * dimension
        nbytes = samples * (vectors * dimension + kept) * element_bytes
        return Work(flops, nbytes, vectors, vectors, dimension, samples)

    @classmethod
    def example(cls) -> "RecommendationModel":
        """Eight tables."""
        return cls("small", EmbeddingTables(8.0, 1e5, 64.0), 13.0, (64.0, 64.0), (64.0, 1.0))


def _chain(inputs: Array, widths: tuple[Any, ...]) -> list[Linear]:
    """(inputs, outputs) of layers one after the other."""
    return list(zip((inputs, *widths[:-1]), widths, strict=True)) if widths else []


def linear_work(samples: Array, layer: Linear, activation_bytes: float, weight_bytes: float) -> Work:
    """[samples, inputs] x [inputs, outputs] as one matrix product."""
    inputs, outputs = layer
    nbytes = samples * (inputs + outputs) * activation_bytes + inputs * outputs * weight_bytes
    return Work(2 * samples * inputs * outputs, nbytes, samples, outputs, inputs)
