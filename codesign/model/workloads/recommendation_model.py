"""Deep learning recommendation models: embedding tables, two perceptrons and what joins them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, as_leaf, integer, quantity, static, switch
from ...core.smooth import at_least, ceil
from ...core.units import BYTES
from ..hardware import Work
from .lowering import beyond, indivisible
from .plan import Layout
from .schedule import CommOp, ComputeOp, Op, TransferOp

# Popularity of rows: Zipf's law, and the share of look-ups that a memory of the hottest rows answers.


def partial_sum(rows: Array, exponent: Array) -> Float[Array, "..."]:
    """sum of k^-s for k = 1..rows, by the midpoint rule: ((rows + 1/2)^(1-s) - (1/2)^(1-s)) / (1-s).

    For s <= 1.2 a seventh above the sum at one row, and shares of it within 3 % from ten rows on; at s = 1 its limit
    log(2 rows + 1). Zero rows have a sum of zero, so that a share of the rows may run continuously from 0 to 1.
    """
    gap = 1 - exponent
    near_one = jnp.abs(gap) < 1e-6
    safe = jnp.where(near_one, 1.0, gap)
    growth = jnp.log1p(2 * rows)  # log of (rows + 1/2) / (1/2)
    return jnp.where(near_one, growth, jnp.expm1(safe * growth) / safe * 0.5**safe)


def hot_share(held: Array, rows: Array, exponent: Array) -> Float[Array, "..."]:
    """Share of all look-ups that go to the `held` most wanted of `rows` rows, popularity rank^-exponent.

    Exponent 0 is uniform: held / rows.

    Assumes: the holder knows the ranks (least frequently used with perfect counts), look-ups independent; a cache that
    must learn them, such as LRU, answers less.
    Source: [breslau1999].
    """
    return partial_sum(held, exponent) / partial_sum(rows, exponent)


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
        pairs = vectors * (vectors - 1) / 2
        flops = 2 * samples * vectors * vectors * dimension
        nbytes = samples * (vectors * dimension + pairs) * element_bytes
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


# Embedding tables over devices: by tables, by rows, by columns, or in a memory that all of them address.


LENGTH_BYTES = 4.0  # of how many rows a sample wants of a table: a 32-bit number


class Sharding(Module):
    """Cut of tables: what the fullest of a replica's n = tp devices holds, looks up and sends, for `samples` = B.

    A table is cut into R row_shards x C column_shards; W = n / (R C) groups of devices hold ceil(T / W) tables each:

        held       ceil(T/W) rows/R D/C elements
        look-ups   B ceil(T/W) P/R rows of D/C elements, times the imbalance
        indices    all-to-all, B ceil(T/W) (P/R index + length) bytes arrive at a device
        sums       reduce-scatter of B ceil(T/W) D/C over the row shards, all-to-all of B/R ceil(T/W) D/C over the rest

    so table-wise sharding sends pooled vectors only, row-wise sharding balances a large table at the price of a
    reduce-scatter, and column-wise sharding sends every index C times and reads short rows. In a memory that all
    devices address (`shared` 1) each looks up B/n samples itself and nothing is sent.

    Memory is read in pieces of `access_bytes`. The hottest rows stay in the first tier when a share of the tables is
    in the second: `hits` of the look-ups find theirs there.

    Assumes: no row is read once for two samples. Log-convex in hardware; the hit ratio is a constant of the plan.
    Source: the three ways to cut of [mudigere2022]; row then table of its table-row-wise scheme.
    """

    layout: Layout
    tables: EmbeddingTables
    samples: Float[Array, "*b"] = quantity(doc="of one replica, handled together")
    imbalance: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    access_bytes: Float[Array, "*b"] = quantity(low=1.0, default=32.0)
    shared: Float[Array, "*b"] = switch(default=0.0)

    @property
    def own_samples(self) -> Array:
        """Samples whose dense part one device computes."""
        return self.samples / self.layout.plan.tp

    @property
    def groups(self) -> Array:
        """W: groups of devices that hold different tables."""
        plan = self.layout.plan
        return plan.tp / (plan.row_shards * plan.column_shards)

    @property
    def own_tables(self) -> Array:
        """Tables of the fullest group."""
        return ceil(self.tables.count / self.groups)

    @property
    def width(self) -> Array:
        """Elements of a row on one device."""
        return self.tables.dimension / self.layout.plan.column_shards

    def held_bytes(self) -> Array:
        """Share of the tables on one device; in shared memory an equal part of all."""
        apart = self.own_tables * self.tables.rows / self.layout.plan.row_shards * self.width
        together = self.tables.parameters() / self.layout.plan.tp
        return self._mixed(apart, together) * self.tables.element_bytes

    def hits(self) -> Array:
        """Share of look-ups that the first tier answers."""
        return self.tables.hit_ratio(1 - self.layout.plan.offload_weights)

    def lookups(self) -> Array:
        """Rows (or pieces of rows) that one device reads."""
        apart = self.samples * self.own_tables * self.tables.pooling / self.layout.plan.row_shards * self.imbalance
        return self._mixed(apart, self.own_samples * self.tables.count * self.tables.pooling)

    def row_bytes(self) -> Array:
        """Bytes that one look-up moves: whole accesses."""
        apart, together = (ceil(self._row(width) / self.access_bytes) for width in (self.width, self.tables.dimension))
        return self._mixed(apart, together) * self.access_bytes

    def sums(self) -> Array:
        """Elements of pooled vectors (partial ones under row-wise sharding) that one device writes."""
        apart = self.samples * self.own_tables * self.width
        return self._mixed(apart, self.own_samples * self.tables.count * self.tables.dimension)

    def _row(self, width: Array) -> Array:
        return width * self.tables.element_bytes

    def _mixed(self, apart: Array, together: Array) -> Array:
        return (1 - self.shared) * apart + self.shared * together

    def lookup(self, element_bytes: float, *, phase: str) -> list[Op]:
        """Read and add rows: those of the first tier by the accelerator, the others over the host's link."""
        lookups, row = self.lookups(), self.row_bytes()
        elements = self._mixed(self.width, self.tables.dimension)
        traffic = lookups * (row * self.hits() + self.tables.index_bytes) + self.sums() * element_bytes
        work = Work(lookups * elements, traffic, lookups, elements)
        far = lookups * (1 - self.hits()) * row
        return [
            ComputeOp("embedding_lookup", "embedding", "vector", phase, work, 1.0 + 0 * lookups),
            TransferOp("embedding_far_rows", phase, far, 1.0 + 0 * far),
        ]

    def send_indices(self, *, phase: str) -> CommOp:
        """Every device asks the holders of its samples' rows."""
        tables, plan = self.tables, self.layout.plan
        arrives = tables.pooling / plan.row_shards * tables.index_bytes + LENGTH_BYTES
        nbytes = self.samples * self.own_tables * arrives
        return CommOp("embedding_indices", "all_to_all", "tp", phase, nbytes, 1 - self.shared)

    def send_sums(self, element_bytes: float, *, phase: str, back: bool = False) -> list[CommOp]:
        """Pooled vectors to the devices of their samples; `back`: their gradients the other way."""
        rows = self.layout.plan.row_shards
        nbytes = self.samples * self.own_tables * self.width * element_bytes
        across = "all_gather" if back else "reduce_scatter"
        return [
            CommOp("embedding_partial_sums", across, "rows", phase, nbytes, 1 - self.shared),
            CommOp("embedding_vectors", "all_to_all", "tables", phase, nbytes / rows, 1 - self.shared),
        ]

    def violations(self) -> dict[str, Array]:
        """Rules of a cut: it divides the devices and the rows' width, and nobody is without a table."""
        plan, tables = self.layout.plan, self.tables
        pieces = plan.row_shards * plan.column_shards
        return {
            "devices": indivisible(self.layout.devices, plan.tp),
            "degrees": at_least(plan.pp * plan.cp * plan.ep - 1, 0.0),
            "shards": indivisible(plan.tp, pieces),
            "tables": beyond(self.groups, tables.count) * (1 - self.shared),
            "columns": indivisible(tables.dimension, plan.column_shards),
            "rows": beyond(plan.row_shards, tables.rows),
            "batch": indivisible(plan.micro_batch, plan.tp),
        }
