"""From one layer's operations to the counted operations of a pass."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array

from ...core.computed_once import one_call
from ...core.smooth import at_least
from .attention import GroupedQueryAttention
from .engine_memory import padding_bytes
from .feed_forward import DenseFeedForward
from .layer_operations import BlockComm, BlockOp, Precision, Shard, linear
from .number_formats import WEIGHT_FORMATS, class_of
from .plan import Layout, Plan
from .schedule import CommOp, ComputeOp, Op
from .transformer import Transformer, VisionEncoder

__all__ = [
    "backward_ops", "beyond", "comm_ops", "encoder_ops", "forward_ops", "held_by_class", "held_weight_bytes",
    "indivisible", "layer_bytes", "module_bytes", "recompute_ops", "unspread", "weights_held",
]  # fmt: skip


def forward_ops(block: list[BlockOp], times: Array, *, phase: str = "forward", edge: bool = False) -> list[Op]:
    """Every forward kernel, `times` an average layer's count."""
    return [
        ComputeOp(op.name, op.kernel, op.number_format, phase, op.forward, times * op.per_layer, edge)
        for op in block
        if op.forward is not None
    ]


def backward_ops(block: list[BlockOp], times: Array, *, edge: bool = False) -> list[Op]:
    """Input and weight gradients."""
    return [
        ComputeOp(op.name, op.kernel, op.number_format, "backward", work, times * op.per_layer, edge, last)
        for op in block
        for work, last in ((op.grad_input, False), (op.grad_weight, True))
        if work is not None
    ]


def recompute_ops(block: list[BlockOp], times: Array) -> list[Op]:
    """The forward kernels that run again."""
    return [
        ComputeOp(
            op.name, op.kernel, op.number_format, "recompute", op.forward, times * op.per_layer * op.recomputed
        )
        for op in block
        if op.forward is not None
    ]  # fmt: skip


def comm_ops(comms: list[BlockComm], times: Array, phases: tuple[str, ...], *, trained: bool = True) -> list[CommOp]:
    """Communication of the given phases; what a model that is trained sums may not be rounded."""
    return [
        CommOp(
            comm.name, comm.operation, comm.axis, phase, comm.nbytes,
            times * comm.per_layer * getattr(comm, phase), None if phase == "recompute" else comm.local,
            0.0 if trained else comm.element_bytes,
        )
        for comm in comms
        for phase in phases
    ]  # fmt: skip


def weights_held(block: list[BlockOp], times: Array, *, expert: bool) -> Array:
    """Weights one device holds of its layers: those of experts, or all others."""
    total = jnp.asarray(0.0)
    for op in block:
        if op.expert == expert:
            total = total + op.weights * op.per_layer * times
    return total


def held_weight_bytes(
    block: list[BlockOp], layers: Array, model: Transformer, precision: Precision, plan: Plan
) -> Array:
    """Bytes of the weights that one device holds: its layers, its part of embedding and head, and what is beside."""
    single = jnp.where(plan.pp > 1, 1.0, 2 - model.tied_embeddings)
    table, formats = model.vocab * model.hidden / plan.tp, precision.by_class
    if formats is None:
        held = weights_held(block, layers, expert=False) + weights_held(block, layers, expert=True)
        nbytes = (held + table * single) * precision.bytes_of("weights")
    else:
        embedding, head = (WEIGHT_FORMATS[name].nbytes for name in (formats.embedding, formats.head))
        nbytes = table * (embedding + (single - 1) * head)
        for op in block:
            nbytes = nbytes + op.weights * op.per_layer * layers * precision.weight_bytes(op.name)
    added = padding_bytes(block, layers, model.hidden, precision)
    nbytes = nbytes if added is None else nbytes + added
    beside = model.beside_parameters()
    return nbytes if beside is None else nbytes + beside * precision.bytes_of("activations") / plan.tp


def held_by_class(
    block: list[BlockOp], layers: Array, model: Transformer, precision: Precision, plan: Plan
) -> dict[str, Array]:
    """The bytes of `held_weight_bytes` by class of weights (`number_formats.CLASSES`); "" for what has none."""
    single = jnp.where(plan.pp > 1, 1.0, 2 - model.tied_embeddings)
    table, formats = model.vocab * model.hidden / plan.tp, precision.by_class
    both = (formats.embedding, formats.head) if formats is not None else None
    embedding, head = (WEIGHT_FORMATS[name].nbytes for name in both) if both else (precision.bytes_of("weights"),) * 2
    result = {"embedding": table * embedding, "head": table * (single - 1) * head}
    for op in block:
        name = class_of(op.name)
        nbytes = op.weights * op.per_layer * layers * precision.weight_bytes(op.name)
        result[name] = result.get(name, 0.0) + nbytes
    added = padding_bytes(block, layers, model.hidden, precision)
    if added is not None:
        result["experts"] = result["experts"] + added
    beside = model.beside_parameters()
    if beside is not None:
        result[""] = result.get("", 0.0) + beside * precision.bytes_of("activations") / plan.tp
    return result


def module_bytes(block: list[BlockOp], model: Transformer, precision: Precision, plan: Plan) -> dict[str, Array]:
    """Class of weights -> bytes of the modules that predict ahead on one device, of the operations of one of them."""
    return held_by_class(block, jnp.asarray(float(model.predicts_ahead)), model.ahead(), precision, plan)


def layer_bytes(block: list[BlockOp], kind: str) -> Array:
    """Sum of stored, working or gradient bytes over an average layer."""
    total = jnp.asarray(0.0)
    for op in block:
        total = total + getattr(op, kind) * op.per_layer
    return total


MOST_COPIES = 2.0
"""Ranks over experts beyond which experts are spread over no more of them: each would be held more than twice."""


def unspread(experts: Array, ranks: Array) -> Array:
    """0 where so many ranks can hold the experts of a server, redundant ones among them, else how far they are off."""
    return beyond(ranks, MOST_COPIES * experts)


def unspread_ranks(model: Transformer, layout: Layout, groups: Array) -> Array:
    """0 where a server's experts are spread over whole tensor groups, else how far off the plan is.

    Args:
        model: what is served; one without experts has no tensor degree of them.
        layout: the plan of a pool.
        groups: tensor groups of a stage (data x context ranks), which engines that share experts divide.
    """
    plan, network = layout.plan, model.feed_forward
    apart = indivisible(layout.sharing, jnp.ones_like(plan.ep)) + indivisible(groups, layout.sharing)
    if not model.has_experts:
        return apart + plan.etp
    cut = indivisible(network.expert_width, at_least(plan.etp, 1.0))
    again = jnp.where((plan.etp > 0) & (plan.etp >= plan.tp), 1.0, 0.0)  # what 0, or groups, say: one way to write it
    return unspread(network.experts, plan.ep) + apart + cut + again


@one_call()
def beyond(number: Array, most: Array) -> Array:
    """Share by which `number` is more than `most`: exactly 0 where both are equal, however a quotient is rounded."""
    return at_least(number - most, 0.0) / most


def indivisible(number: Array, part: Array) -> Array:
    """0 where `part` divides `number`, else the share that is left over."""
    rest = number / part
    gap = jnp.abs(rest - jnp.round(rest))
    return jnp.where(gap < 1e-4, 0.0, gap / jnp.maximum(rest, 1.0)) + jnp.where(rest < 1 - 1e-6, 1 / rest - 1, 0.0)


# The work of a vision encoder on the images of prompts: the operations of its layers, as those of any layers.


def encoder_ops(
    vision: VisionEncoder, layout: Layout, precision: Precision, images: Array, *, phase: str, axis: str = "tp"
) -> list[Op]:
    """Patches to hidden numbers, layers in which every patch attends all of its image, merged tokens projected.

        FLOPs = images (P (2 h i + L (2 h (4 a + (2 + g) w) + 4 a P)) + 2 projection P / merge)

    with P patches of i numbers, L layers of h hidden numbers, attention a wide, feed-forward networks w wide with gate
    g. Norms, activations and residuals come on top. One launch takes the images of a step together, or one of them
    where there are fewer: the number of launches is then a part of one.

    Args:
        vision: the encoder.
        layout: of the ranks that share it.
        precision: of the language model; the encoder runs in the format of its activations.
        images: of a step.
        phase: that the operations belong to.
        axis: of the ranks that join its layers.

    Assumes: on the stage that paces a pipeline; divided evenly over tensor ranks; all layers attend the whole image.
    Source: [dosovitskiy2021], the layers; FLOPs as of any product.
    """
    together = at_least(images, 1.0)
    often, patches, activations = images / together, at_least(vision.patches, 1.0), precision.activations
    held = Precision(compute=activations, weights=activations, activations=activations, attention=activations)
    shard, hidden = Shard(layout, held, together, patches, patches), vision.hidden
    attention = GroupedQueryAttention(
        vision.heads, vision.heads, vision.attention_width / vision.heads, causal=0.0, cached=False
    )
    network, options = DenseFeedForward(vision.width, vision.gated), {"dropout": False, "norm_vectors": 2.0}
    block = attention.ops(shard, hidden, **options) + network.ops(shard, hidden, vision.layers, **options)
    tokens, merged = shard.tokens, hidden * vision.merge
    ends = [
        linear("patches", shard, tokens, at_least(vision.patch_inputs, 1.0), hidden),
        linear("projection", shard, tokens / vision.merge, merged, vision.projection / merged / layout.plan.tp),
    ]
    joins = attention.comms(shard, hidden) + network.comms(shard, hidden, vision.layers)
    joins = [dataclasses.replace(one, axis=axis) for one in joins if one.axis == "tp"]
    ops = [*forward_ops(block, vision.layers * often, phase=phase), *forward_ops(ends, often, phase=phase)]
    for op in comm_ops(joins, vision.layers * often, ("forward",), trained=False):
        ops.append(dataclasses.replace(op, phase=phase, local=None))
    return [dataclasses.replace(op, name=f"vision_{op.name}", count=op.count * jnp.asarray(1.0)) for op in ops]
