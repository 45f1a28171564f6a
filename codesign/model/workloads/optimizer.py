"""Optimizer part of a training step: gradient exchange among the data-parallel ranks, weight update."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.fields import Module, integer, quantity, static
from ...core.smooth import at_least, at_most
from ..hardware import Work
from .layer_operations import BlockOp, Precision
from .lowering import weights_held
from .plan import Layout
from .schedule import CommOp, ComputeOp, Op

__all__ = ["AbstractOptimizer", "Adam", "Muon", "exchange_ops", "gathered_bytes"]


class AbstractOptimizer(Module):
    """Rule by which weights are updated: bytes of state a parameter, operations of an update."""

    state_bytes: eqx.AbstractVar[Float[Array, "*b"]]

    @property
    def table_state_bytes(self) -> Array | None:
        """Bytes of state a parameter of embedding and head; None where they are as all others."""
        return None

    @abc.abstractmethod
    def update_ops(self, layout: Layout, block: list[BlockOp], held: tuple[Array, Array], layers: Array) -> list[Op]:
        """The update of the share of the weights that this device owns; `held`: (ordinary, of experts) on its stage."""

    def update_bytes(self, layout: Layout, block: list[BlockOp]) -> Array | None:
        """Bytes beside the state while weights are updated; None where there are none."""
        del layout, block
        return None


class Adam(AbstractOptimizer):
    """Adam with a master copy: state, traffic and arithmetic per parameter.

    12 bytes of state are an fp32 master copy and two fp32 moments; a step reads gradient and state and writes state
    and the working copy. `fused` updates all weights in one launch, else each weight tensor has its own.
    """

    state_bytes: Float[Array, "*b"] = quantity(default=12.0)
    traffic_bytes: Float[Array, "*b"] = quantity(default=30.0)
    flops: Float[Array, "*b"] = quantity(default=11.0)
    fused: bool = static(default=True)

    def update_ops(self, layout: Layout, block: list[BlockOp], held: tuple[Array, Array], layers: Array) -> list[Op]:
        """The update of the share of the weights that this device owns; `held`: (ordinary, of experts) on its stage."""

        def update(owned: Array, times: Array) -> Op:
            work = Work(owned * self.flops, owned * self.traffic_bytes)
            return ComputeOp("optimizer", "optimizer", "vector", "optimizer", work, times)

        def owned(op: BlockOp) -> Array:
            return op.weights / (layout.expert_shards(1) if op.expert else layout.shards(1))

        ordinary, expert = held
        if self.fused:
            return [update(ordinary / layout.shards(1) + expert / layout.expert_shards(1), jnp.asarray(1.0))]
        table = ordinary - weights_held(block, layers, expert=False)
        tensors = [op for op in block if op.grad_weight is not None]
        return [
            update(table / layout.shards(1), jnp.asarray(1.0)),
            *[update(owned(op), layers * op.per_layer) for op in tensors],
        ]


def gathered_bytes(precision: Precision) -> float:
    """Bytes of a weight that ZeRO 3 gathers: in the format of products where the sharded copy is wider.

    FSDP2 (`MixedPrecisionPolicy.param_dtype`) and XLA convert before they gather.
    """
    return min(precision.bytes_of("weights"), precision.bytes_of("activations"))


def exchange_ops(layout: Layout, precision: Precision, held: tuple[Array, Array], *, experts: bool) -> list[Op]:
    """Gradient reduction and parameter gathering of each ZeRO stage; `held`: weights (ordinary, of experts) of a stage.

    0: one all-reduce; 1: reduce-scatter of gradients and all-gather of parameters once a step; 2: the reduce-scatter
    after every micro-batch (or once, where the plan does not `reduce_grads_every_microbatch`); 3: parameters gathered
    before every forward and backward as well. Source: [rajbhandari2020] section 7.
    """
    stage = [at_most(at_least(layout.plan.zero - s, 0.0), 1.0) for s in range(3)]
    often = stage[1] * layout.plan.reduce_grads_every_microbatch
    gradient, weight = precision.bytes_of("gradients"), precision.bytes_of("weights")
    ops: list[Op] = []
    for axis, weights in zip(("data", "expert_data")[: 1 + experts], held, strict=False):
        grads, params, narrow = weights * gradient, weights * weight, weights * gathered_bytes(precision)
        ops += [
            CommOp("gradient_sync", "all_reduce", axis, "gradients", grads, 1 - stage[0]),
            CommOp("gradient_sync", "reduce_scatter", axis, "gradients", grads, stage[0] - often),
            CommOp("gradient_sync", "reduce_scatter", axis, "backward", grads, often),
            CommOp("parameter_gather", "all_gather", axis, "parameters", params, stage[0] - stage[2]),
            CommOp("parameter_gather", "all_gather", axis, "forward", narrow, stage[2]),
            CommOp("parameter_gather", "all_gather", axis, "backward", narrow, stage[2]),
        ]
    return ops


# Muon: updates of matrices by their orthogonalised momentum, of embedding and head by Adam.
#
# A matrix of m x n, m <= n, takes k Newton-Schulz steps X <- a X + (b A + c A A) X with A = X X^T:
#
#     k (2 m^2 n + 2 m^3 + 2 m^2 n) FLOPs        state: master copy and one momentum, 8 bytes a parameter in fp32
#
# Tensor ranks orthogonalise their own part of a matrix (`blockwise`), gather it and all do the same (`duplicated`),
# or sum Gram matrices of parts (`distributed`: m is the side that is not cut, A is summed once a step). Data ranks
# that share the optimizer's state (ZeRO 1 to 3) divide whole matrices among them, at least one each. Where parameters
# are cut too (ZeRO 3) parts of a matrix go to its owner and come back as parts of its update, `gather_bytes` a number
# each way.
#
# Assumes: a fused product (queries, keys and values; both halves of a gated network) is one matrix; vectors of norms
# count with the matrices. Source: [jordan2024muon]; shards and state [liu2025muon]; tensor ranks [shoeybi2019]'s
# code.


TP_MODES = ("blockwise", "duplicated", "distributed")
CUT_COLUMNS = (
    *("attention_qkv", "attention_q", "attention_k", "attention_v", "attention_q_up", "attention_kv_up", "mlp_up"),
    *("moe_shared_up", "moe_up"),
)
CUT_ROWS = ("attention_out", "mlp_down", "moe_shared_down", "moe_down")
"""Products whose weights tensor ranks cut by columns, and by rows; those of no list are whole on each."""
NUMBER_BYTES = 4.0  # of a momentum that is orthogonalised


class Muon(AbstractOptimizer):
    """Muon with Adam for embedding and head; see the module.

    `steps` Newton-Schulz iterations in `number_format`; `flops` and `traffic_bytes` of the rest, a parameter.
    """

    state_bytes: Float[Array, "*b"] = quantity(default=8.0)
    traffic_bytes: Float[Array, "*b"] = quantity(default=22.0)
    flops: Float[Array, "*b"] = quantity(default=6.0)
    steps: Float[Array, "*b"] = integer(low=1.0, high=100.0, default=5.0, doc="Newton-Schulz iterations")
    gather_bytes: Float[Array, "*b"] = quantity(low=1.0, high=8.0, default=2.0, doc="of a number between data ranks")
    number_format: str = static(default="bf16")
    tp_mode: str = static(default="blockwise")
    tables: Adam = eqx.field(default_factory=Adam)

    def __check_init__(self) -> None:
        if self.tp_mode not in TP_MODES:
            raise ConfigError(f"tp_mode = {self.tp_mode!r} does not exist{suggestion(self.tp_mode, TP_MODES)}")

    @property
    def table_state_bytes(self) -> Array:
        """Adam's."""
        return self.tables.state_bytes

    def _sides(self, op: BlockOp, layout: Layout) -> tuple[Array, Array, Array]:
        """Side of the Gram matrix, the other side on a device, tensor ranks that hold parts, of a product's weights."""
        assert op.forward is not None
        rows, columns = op.forward.depth, op.forward.cols
        one = jnp.ones_like(rows * columns)
        ranks = layout.expert_tp if op.expert else layout.plan.tp
        cut = one * (ranks if op.name in (*CUT_COLUMNS, *CUT_ROWS) else 1.0)
        if self.tp_mode == "distributed":
            whole, part = (columns, rows) if op.name in CUT_ROWS else (rows, columns)
            lone = cut <= 1
            return (
                jnp.where(lone, jnp.minimum(rows, columns), whole),
                jnp.where(lone, jnp.maximum(rows, columns), part),
                cut,
            )
        if self.tp_mode == "duplicated":
            rows = rows * (cut if op.name in CUT_ROWS else 1.0)
            columns = columns * (cut if op.name in CUT_COLUMNS else 1.0)
        return jnp.minimum(rows, columns), jnp.maximum(rows, columns), cut

    def _matrices(self, block: list[BlockOp]) -> list[tuple[BlockOp, Array]]:
        """Products with weights, and how many matrices one of them has."""
        result = [op for op in block if op.forward is not None and op.kernel in ("gemm", "moe_gemm") and op.grad_weight]
        return [(op, op.weights / (op.forward.depth * op.forward.cols)) for op in result if op.forward is not None]

    def update_ops(self, layout: Layout, block: list[BlockOp], held: tuple[Array, Array], layers: Array) -> list[Op]:
        """Three products a step and matrix, what goes between ranks, and passes over state; Adam's for the tables."""
        ordinary, expert = held
        inside = weights_held(block, layers, expert=False)
        owned = inside / layout.shards(1) + expert / layout.expert_shards(1)
        table = jnp.maximum(ordinary - inside, 0.0) / layout.shards(1)
        ops: list[Op] = [
            ComputeOp("optimizer", "optimizer", "vector", "optimizer", Work(count * flops, count * nbytes), one)
            for count, flops, nbytes, one in (
                (owned, self.flops, self.traffic_bytes, jnp.asarray(1.0)),
                (table, self.tables.flops, self.tables.traffic_bytes, jnp.asarray(1.0)),
            )
        ]
        total = {False: jnp.asarray(0.0), True: jnp.asarray(0.0)}
        for op, count in self._matrices(block):
            total[op.expert] = total[op.expert] + layers * op.per_layer * count
        for op, count in self._matrices(block):
            shards = layout.expert_shards(1) if op.expert else layout.shards(1)
            share = at_most(at_least(1 / shards, 1 / at_least(total[op.expert], 1.0)), 1.0)
            ops += self._orthogonal(op, layout, layers * op.per_layer * count * share)
        on = jnp.where(layout.plan.zero > 2, 2.0, 0.0)
        for axis, weights, shards in (
            ("data", inside, layout.shards(1)),
            ("expert_data", expert, layout.expert_shards(1)),
        )[: 1 + any(op.expert for op in block)]:
            nbytes = weights / shards * self.gather_bytes
            ops.append(CommOp("matrix_gather", "all_to_all", axis, "optimizer", nbytes, on))
        return ops

    def _orthogonal(self, op: BlockOp, layout: Layout, count: Array) -> list[Op]:
        """Newton-Schulz steps of `count` matrices of one product."""
        m, n, cut = self._sides(op, layout)
        times, square, elements = count * self.steps, m * m, m * n
        products = (
            (Work(2 * square * n, (2 * elements + square) * NUMBER_BYTES, m, m, n), "gram"),
            (Work(2 * square * m, 3 * square * NUMBER_BYTES, m, m, m), "square"),
            (Work(2 * square * n, (2 * elements + square) * NUMBER_BYTES, m, n, m), "apply"),
        )
        ops: list[Op] = [
            ComputeOp(f"orthogonal_{name}", "gemm", self.number_format, "optimizer", work, times)
            for work, name in products
        ]
        axis = "expert_tp" if op.expert else "tp"
        if self.tp_mode == "duplicated":
            nbytes = jnp.where(cut > 1, elements * NUMBER_BYTES, 0.0)
            ops.append(CommOp("matrix_gather", "all_gather", axis, "optimizer", nbytes, count))
        elif self.tp_mode == "distributed":
            nbytes = jnp.where(cut > 1, square * NUMBER_BYTES, 0.0)
            ops.append(CommOp("gram_sum", "all_reduce", axis, "optimizer", nbytes, times))
        return ops

    def update_bytes(self, layout: Layout, block: list[BlockOp]) -> Array:
        """The largest matrix twice, its Gram matrix and the square of that."""
        most = jnp.asarray(0.0)
        for op, _ in self._matrices(block):
            m, n, _ = self._sides(op, layout)
            most = at_least(most, 2 * (m * n + m * m) * NUMBER_BYTES)
        return most
