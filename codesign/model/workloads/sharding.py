"""Embedding tables over devices: by tables, by rows, by columns, or in a memory that all of them address."""

from jaxtyping import Array, Float

from ...core.fields import quantity, switch
from ...core.module import Module
from ...core.smooth import at_least, ceil
from ..hardware import Work
from .lowering import indivisible
from .ops import CommOp, ComputeOp, Op, TransferOp
from .plan import Layout
from .recommendation_model import EmbeddingTables

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
            "tables": at_least(self.groups / tables.count - 1, 0.0) * (1 - self.shared),
            "columns": indivisible(tables.dimension, plan.column_shards),
            "rows": at_least(plan.row_shards / tables.rows - 1, 0.0),
            "batch": indivisible(plan.micro_batch, plan.tp),
        }
