"""Recommendation models at work: what inference and training share, and batches of samples answered."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.cost import Cost, partly_hidden_s
from ...core.fields import quantity, switch
from ...core.smooth import at_least, maximum
from ...core.units import GB
from ..hardware import Work
from .base import AbstractWorkload, FamilyVocabulary
from .layer_operations import Precision
from .plan import Layout, Plan
from .recommendation_model import Linear, RecommendationModel, Sharding, linear_work
from .schedule import CommOp, ComputeOp, Op, Priced, Timeline, TransferOp, total

EMBEDDING = ("indices", "lookup", "far", "sums")


class AbstractRecommendation(AbstractWorkload):
    """Common base of inference and training: the forward pass, tables in memory, the rules of a plan.

    A replica is tp devices with one copy of the tables between them, cut as `Sharding` says; each computes the
    perceptrons of its own share of the replica's `plan.micro_batch` samples. What a report calls a token is a sample.
    """

    words: ClassVar[FamilyVocabulary] = FamilyVocabulary("serving", item="sample")

    model: eqx.AbstractVar[RecommendationModel]
    precision: eqx.AbstractVar[Precision]
    imbalance: eqx.AbstractVar[Float[Array, "*b"]]
    access_bytes: eqx.AbstractVar[Float[Array, "*b"]]
    shared_memory: eqx.AbstractVar[Float[Array, "*b"]]
    step_overhead_s: eqx.AbstractVar[Float[Array, "*b"]]

    def number_format(self) -> str:
        """Format of the matrix products."""
        return self.precision.compute

    def sharding(self, layout: Layout) -> Sharding:
        """The tables on the devices of a replica."""
        batch = layout.plan.micro_batch
        return Sharding(layout, self.model.tables, batch, self.imbalance, self.access_bytes, self.shared_memory)

    def forward_ops(self, layout: Layout) -> list[Op]:
        """Phases `indices`, `lookup`, `sums`, `bottom`, `top`."""
        shard, act = self.sharding(layout), self.precision.bytes_of("activations")
        samples = shard.own_samples
        ops: list[Op] = [shard.send_indices(phase="indices"), *shard.lookup(act, phase="lookup")]
        ops += shard.send_sums(act, phase="sums")
        ops += self._perceptron("bottom", self.model.bottom_layers(), samples)
        if self.model.top:
            ops.append(self._product("interaction", "top", self.model.interaction(samples, act)))
        return ops + self._perceptron("top", self.model.top_layers(), samples)

    def _perceptron(self, phase: str, layers: list[Linear], samples: Array, times: float = 1.0) -> list[Op]:
        act, weight = self.precision.bytes_of("activations"), self.precision.bytes_of("weights")
        works = [linear_work(samples, layer, act, weight) for layer in layers]
        return [self._product(f"{phase}_mlp_{i + 1}", phase, work, times) for i, work in enumerate(works)]

    def _product(self, name: str, phase: str, work: Work, times: float = 1.0) -> ComputeOp:
        return ComputeOp(name, "gemm", self.precision.compute, phase, work, times + 0 * work.flops)

    def tables_bytes(self, layout: Layout) -> Array:
        """Share of the tables on one device."""
        return self.sharding(layout).held_bytes()

    def working_bytes(self, layout: Layout) -> Array:
        """Indices, pooled vectors before and after they are sent, the widest activations."""
        shard, act, tables = self.sharding(layout), self.precision.bytes_of("activations"), self.model.tables
        pooled = shard.sums() + shard.own_samples * tables.count * tables.dimension
        widest = jnp.asarray(0.0)
        for inputs, outputs in (*self.model.bottom_layers(), *self.model.top_layers()):
            widest = at_least(widest, inputs + outputs)
        return shard.lookups() * tables.index_bytes + (pooled + shard.own_samples * widest) * act

    def violations(self, layout: Layout) -> dict[str, Array]:
        """The cut of the tables, and a bottom result that fits the dot products."""
        rules = self.sharding(layout).violations()
        if self.model.bottom and self.model.top:
            gap = jnp.abs(self.model.bottom[-1] / self.model.tables.dimension - 1)
            rules["dimension"] = jnp.where(gap > 1e-6, gap, 0.0)
        return rules

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Every phase once a batch."""
        return {}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """A broken rule in numbers."""
        plan, tables = layout.plan, self.model.tables
        tp, rows, columns = float(plan.tp), float(plan.row_shards), float(plan.column_shards)
        cut = f"plan.row_shards = {rows:g} x plan.column_shards = {columns:g}"
        texts = {
            "devices": f"plan.tp = {tp:g} does not divide cluster.device_count = {float(layout.devices):g}",
            "degrees": "plan: pp, cp and ep must be 1: a recommendation model is cut by tp, row_shards, column_shards",
            "shards": f"{cut} does not divide plan.tp = {tp:g}",
            "tables": f"{cut} leaves {tp / (rows * columns):g} groups of devices for"
            f" {float(tables.count):g} tables: cut the tables into more pieces or lower plan.tp = {tp:g}",
            "columns": f"plan.column_shards = {columns:g} does not divide model.tables.dimension"
            f" = {float(tables.dimension):g}",
            "rows": f"plan.row_shards = {rows:g} is more than model.tables.rows = {float(tables.rows):g}",
            "batch": f"plan.tp = {tp:g} does not divide plan.micro_batch = {float(plan.micro_batch):g} samples",
            "dimension": f"model.bottom ends in {float(self.model.bottom[-1]) if self.model.bottom else 0:g}, which"
            f" must be model.tables.dimension = {float(tables.dimension):g} for the dot products",
            "replicas": f"training keeps one copy of the tables: plan.tp = {tp:g} must be cluster.device_count"
            f" = {float(layout.devices):g}",
        }
        return texts.get(rule)

    def hopeless(self, layout: Layout, capacity: dict[str, float]) -> str | None:
        """Tables that all memory of the cluster together cannot hold."""
        everywhere = float(layout.devices) * sum(capacity.values())
        table, tables = float(self.model.tables.table_bytes()), self._all_table_bytes()
        if tables <= everywhere:
            return None
        what = "one embedding table" if table > everywhere else f"{float(self.model.tables.count):g} embedding tables"
        size = table if table > everywhere else tables
        return (
            f"model.tables: {what} of {size / GB:,.1f} GB is larger than all memory of the cluster,"
            f" {everywhere / GB:,.1f} GB on {float(layout.devices):g} devices"
            f" ({', '.join(f'{tier} {nbytes / GB:,.1f}' for tier, nbytes in capacity.items())} GB each):"
            f" {size / GB - everywhere / GB:,.1f} GB too much"
        )

    def _all_table_bytes(self) -> float:
        return float(self.model.tables.parameters()) * self.model.tables.element_bytes

    def embedding_s(self, priced: Priced, layout: Layout) -> dict[str, Array]:
        """Seconds of the embedding's parts: what is looked up afar is partly hidden behind what is near."""
        near = total(priced, "lookup", ComputeOp).time_s
        return {
            "indices": total(priced, "indices", CommOp).time_s,
            "lookup": near,
            "far": self.looked_up_s(priced, layout) - near,
            "sums": total(priced, "sums", CommOp).time_s,
        }

    def looked_up_s(self, priced: Priced, layout: Layout) -> Array:
        """Look-ups near and far together: log-convex, unlike what is left of the far ones."""
        near, far = total(priced, "lookup", ComputeOp), total(priced, "lookup", TransferOp)
        return partly_hidden_s(near.time_s, far, layout.plan.offload_overlap)


def energy_of(priced: Priced) -> Array:
    """Joules of everything one device does."""
    joules = jnp.asarray(0.0)
    for _, cost in priced:
        joules = joules + cost.energy_j
    return joules


def behind(work: Cost, other: Cost, hidden: Array) -> Array:
    """Seconds of `other` that stay exposed when the share `hidden` of the work covers it."""
    return partly_hidden_s(work.time_s, other, hidden) - work.time_s


class Recommendation(AbstractRecommendation):
    """Batches of `plan.micro_batch` samples, each answered by one replica.

    indices -> look-up -> sums -> interaction and top perceptron, one after the other; the bottom perceptron runs while
    the sums travel and hides them by the share `plan.tp_overlap`. `imbalance` is the busiest device's look-ups over
    the mean, `shared_memory` 1 where all devices of a replica address one memory that holds the tables.
    """

    model: RecommendationModel
    precision: Precision = Precision()
    imbalance: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    access_bytes: Float[Array, "*b"] = quantity(low=1.0, default=32.0, doc="smallest piece a memory reads")
    shared_memory: Float[Array, "*b"] = switch(default=0.0, doc="one memory for all devices of a replica")
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """The forward pass."""
        return tuple(self.forward_ops(layout))

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """One batch from its arrival to its answers."""
        bottom, top = total(priced, "bottom", ComputeOp).time_s, total(priced, "top", ComputeOp).time_s
        breakdown = self.embedding_s(priced, layout)
        covered = partly_hidden_s(bottom, total(priced, "sums", CommOp), layout.plan.tp_overlap)
        time = breakdown["indices"] + self.looked_up_s(priced, layout) + covered + top + self.step_overhead_s
        breakdown |= {"sums": covered - bottom, "bottom": bottom, "top": top, "overhead": 1.0 * self.step_overhead_s}
        samples = layout.plan.micro_batch * layout.dp
        tables = self.model.tables
        extra = {
            "samples_per_s": samples / time,
            "lookups_per_s": samples * tables.count * tables.pooling / time,
            "embedding_s": sum((breakdown[part] for part in EMBEDDING), jnp.asarray(0.0)),
            "hit_ratio": self.sharding(layout).hits(),
        }
        return Timeline(time, breakdown, energy_of(priced), samples, samples * self.model.forward_flops(), extra)

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Tables (which may lie in the second tier), perceptrons, working memory."""
        tables, dense = self.tables_bytes(layout), self.model.dense_parameters() * self.precision.bytes_of("weights")
        working = self.working_bytes(layout)
        return {"tables": (tables, 0.0 * tables), "dense": (dense, dense), "working": (working, working)}

    @classmethod
    def example(cls) -> "Recommendation":
        """An example: eight tables."""
        return cls(RecommendationModel.example())


# One training step of a recommendation model.


class RecommendationTraining(AbstractRecommendation):
    """One step on `plan.micro_batch` samples with row-wise Adagrad on the tables and Adam on the perceptrons.

    Backward, each layer costs two more products; the vectors' gradients travel as the sums did, the other way round;
    each row looked up is read and written once more with `row_state_bytes` of optimizer state; the perceptrons'
    gradients are all-reduced over all devices, hidden behind the share `plan.dp_overlap` of their backward pass. The
    gradients of the vectors are hidden behind the share `plan.tp_overlap` of the bottom's backward pass.

    Assumes: one copy of the tables (tp = devices), as replicas of sparse rows would have to be summed; no row twice in
    a batch, so no gradients are summed before the update.
    Source: [mudigere2022] for the parallelism and the optimizer.
    """

    words: ClassVar[FamilyVocabulary] = FamilyVocabulary("training", "training step", item="sample")

    model: RecommendationModel
    precision: Precision = Precision()
    imbalance: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    access_bytes: Float[Array, "*b"] = quantity(low=1.0, default=32.0, doc="smallest piece a memory reads")
    shared_memory: Float[Array, "*b"] = switch(default=0.0, doc="one memory for all devices of a replica")
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    row_state_bytes: Float[Array, "*b"] = quantity(default=4.0, doc="optimizer state of one row")
    dense_state_bytes: Float[Array, "*b"] = quantity(default=12.0, doc="optimizer state and master copy of a weight")

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Forward, then `dense_backward`, `vectors_back`, `update`, `dense_gradients`, `dense_update`."""
        shard, act = self.sharding(layout), self.precision.bytes_of("activations")
        samples, dense = shard.own_samples, self.model.dense_parameters()
        ops = self.forward_ops(layout)
        for phase, layers in (("top", self.model.top_layers()), ("bottom", self.model.bottom_layers())):
            for op in self._perceptron(phase, layers, samples, 2.0):
                assert isinstance(op, ComputeOp)
                ops.append(self._product(f"{op.name}_backward", f"{phase}_backward", op.work, 2.0))
        if self.model.top:
            work = self.model.interaction(samples, act)
            ops.append(self._product("interaction_backward", "top_backward", work, 2.0))
        ops += shard.send_sums(act, phase="vectors_back", back=True)
        ops += self._update(shard, act)
        nbytes = dense * self.precision.bytes_of("gradients")
        ops.append(CommOp("dense_gradients", "all_reduce", "world", "dense_gradients", nbytes, jnp.asarray(1.0)))
        adam = Work(11 * dense, dense * (2 * self.dense_state_bytes + self.precision.bytes_of("gradients")))
        ops.append(ComputeOp("dense_adam", "optimizer", "vector", "dense_update", adam, jnp.asarray(1.0)))
        return tuple(ops)

    def _update(self, shard: Sharding, act: float) -> list[Op]:
        """Rows and their state are read and written once more, those of the second tier over the host's link."""
        rows, moved = shard.lookups(), 2 * (shard.row_bytes() + self.row_state_bytes)
        elements = shard.row_bytes() / self.model.tables.element_bytes
        near, far = rows * moved * shard.hits() + shard.sums() * act, rows * moved * (1 - shard.hits())
        work = Work(4 * rows * elements, near, rows, elements)
        return [
            ComputeOp("embedding_update", "embedding", "vector", "update", work, 1.0 + 0 * rows),
            TransferOp("embedding_far_update", "update", far, 1.0 + 0 * far),
        ]

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Forward, backward of the dense part, gradients of the vectors, update of the rows."""
        plan = layout.plan
        spent = {
            phase: total(priced, phase, ComputeOp) for phase in ("bottom", "top", "bottom_backward", "top_backward")
        }
        backward = spent["top_backward"] + spent["bottom_backward"]
        near, far = total(priced, "update", ComputeOp), total(priced, "update", TransferOp)
        breakdown = self.embedding_s(priced, layout)
        travelling = behind(spent["bottom_backward"], total(priced, "vectors_back", CommOp), plan.tp_overlap)
        sums = behind(spent["bottom"], total(priced, "sums", CommOp), plan.tp_overlap)
        breakdown |= {
            "sums": sums + travelling,
            "bottom": spent["bottom"].time_s + spent["bottom_backward"].time_s,
            "top": spent["top"].time_s + spent["top_backward"].time_s,
            "far": breakdown["far"] + behind(near, far, plan.offload_overlap),
            "update": near.time_s + total(priced, "dense_update", ComputeOp).time_s,
            "dp": behind(backward, total(priced, "dense_gradients", CommOp), plan.dp_overlap),
            "overhead": 1.0 * self.step_overhead_s,
        }
        exchanges = total(priced, "vectors_back", CommOp), total(priced, "dense_gradients", CommOp)
        time = (
            breakdown["indices"]
            + self.looked_up_s(priced, layout)
            + partly_hidden_s(spent["bottom"].time_s, total(priced, "sums", CommOp), plan.tp_overlap)
            + spent["top"].time_s
            + both_hidden_s(spent["bottom_backward"].time_s, spent["top_backward"].time_s, exchanges, plan)
            + partly_hidden_s(near.time_s, far, plan.offload_overlap)
            + total(priced, "dense_update", ComputeOp).time_s
            + self.step_overhead_s
        )
        samples, tables = plan.micro_batch * layout.dp, self.model.tables
        extra = {"lookups_per_s": samples * tables.count * tables.pooling / time}
        extra |= {"samples_per_s": samples / time, "hit_ratio": self.sharding(layout).hits()}
        return Timeline(time, breakdown, energy_of(priced), samples, 3 * samples * self.model.forward_flops(), extra)

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Tables with their rows' state, perceptrons with gradients and state, activations kept for the way back."""
        held = self.tables_bytes(layout)
        row = self.model.tables.dimension * self.model.tables.element_bytes / layout.plan.column_shards
        tables = held * (1 + self.row_state_bytes / row)
        each = self.precision.bytes_of("weights") + self.precision.bytes_of("gradients") + self.dense_state_bytes
        dense, working = self.model.dense_parameters() * each, self.working_bytes(layout)
        activations = jnp.asarray(0.0)
        for inputs, outputs in (*self.model.bottom_layers(), *self.model.top_layers()):
            activations = activations + (inputs + outputs) * self.precision.bytes_of("activations")
        activations = activations * self.sharding(layout).own_samples
        return {
            "tables": (tables, 0.0 * tables), "dense": (dense, dense),
            "working": (working, working), "kept": (activations, activations),
        }  # fmt: skip

    def violations(self, layout: Layout) -> dict[str, Array]:
        """The cut of the tables, and one copy of them."""
        return super().violations(layout) | {"replicas": at_least(layout.dp - 1, 0.0)}

    @classmethod
    def example(cls) -> "RecommendationTraining":
        """An example: eight tables."""
        return cls(RecommendationModel.example())


def both_hidden_s(bottom_s: Array, top_s: Array, exchanges: tuple[Cost, Cost], plan: Plan) -> Array:
    """The backward pass with what its two exchanges leave exposed.

    The vectors' gradients hide behind the bottom's part of it, the dense ones behind the whole:
    hidden(bottom, vectors) - bottom + hidden(whole, dense), with the difference worked out in each of the four cases
    so that a sum of two maxima becomes a maximum of four sums without one.

    Assumes: log-convex where both shares hidden are at most one together.
    """
    (vectors, dense), whole_s = exchanges, bottom_s + top_s
    return maximum(
        whole_s + vectors.engine_s + dense.engine_s,
        vectors.engine_s + (1 - plan.dp_overlap) * whole_s + dense.time_s,
        vectors.time_s + top_s + (1 - plan.tp_overlap) * bottom_s + dense.engine_s,
        vectors.time_s
        + (1 - plan.dp_overlap) * top_s
        + (1 - plan.tp_overlap - plan.dp_overlap) * bottom_s
        + dense.time_s,
    )
