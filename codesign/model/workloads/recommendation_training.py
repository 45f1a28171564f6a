"""One training step of a recommendation model."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.cost import Cost, partly_hidden_s
from ...core.fields import quantity, switch
from ...core.smooth import at_least, maximum
from ..hardware import Work
from .layer_operations import Precision
from .ops import CommOp, ComputeOp, Op, TransferOp
from .plan import Layout, Plan
from .recommendation import AbstractRecommendation, behind, energy_of
from .recommendation_model import RecommendationModel
from .schedule import Priced, Timeline, total
from .sharding import Sharding
from .words import Words


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

    words: ClassVar[Words] = Words("training", "training step", item="sample")

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
        kept = jnp.asarray(0.0)
        for inputs, outputs in (*self.model.bottom_layers(), *self.model.top_layers()):
            kept = kept + (inputs + outputs) * self.precision.bytes_of("activations")
        kept = kept * self.sharding(layout).own_samples
        return {
            "tables": (tables, 0.0 * tables), "dense": (dense, dense),
            "working": (working, working), "kept": (kept, kept),
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
