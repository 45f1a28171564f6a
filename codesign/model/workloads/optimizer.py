"""Optimizer part of a training step: gradient exchange among the data-parallel ranks, weight update."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity, static
from ...core.module import Module
from ...core.smooth import at_least, at_most
from ..hardware import Work
from .layer_operations import BlockOp, Precision
from .lowering import weights_held
from .ops import CommOp, ComputeOp, Op
from .plan import Layout


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
