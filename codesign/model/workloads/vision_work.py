"""The work of a vision encoder on the images of prompts: the operations of its layers, as those of any layers."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array

from ...core.smooth import at_least
from .attention import GroupedQueryAttention
from .beside_layers import VisionEncoder
from .feed_forward import DenseFeedForward
from .layer_operations import Precision, Shard, linear
from .lowering import comm_ops, forward_ops
from .ops import Op
from .plan import Layout

__all__ = ["encoder_ops"]


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
    often, patches, own = images / together, at_least(vision.patches, 1.0), precision.activations
    held = Precision(compute=own, weights=own, activations=own, attention=own)
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
