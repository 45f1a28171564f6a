"""A decoder-only transformer: what its layers, embedding and head cost on one device."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import computed_once
from ...core.fields import Module, integer, quantity, static, switch
from .attention import AbstractAttention, GroupedQueryAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward
from .layer_operations import BlockComm, BlockOp, Precision, Shard, elementwise, linear, norm
from .number_formats import WEIGHT_FORMATS, WeightFormats

# Parts of a checkpoint beside the layers of its language model: a vision encoder, further embeddings.


class VisionEncoder(Module):
    """A transformer over the patches of an image, and the projection of its tokens to the language model.

    `heads` attend all patches of their image; feed-forward networks have `gated` + 2 matrices. `merge` patches become
    one token of the language model, through `projection` weights. `patches`: of an image as the file states it (its
    size, its tokens, or the grid of its positions), else 0: its work is then not determined. What a step with images
    does is in `lowering`.

    Assumes: held in bf16 on every tensor rank's share, as engines divide it; embeddings of positions count as weights.
    """

    hidden: Float[Array, "*b"] = integer(low=1.0)
    layers: Float[Array, "*b"] = integer(low=1.0)
    width: Float[Array, "*b"] = integer(low=1.0, doc="intermediate size")
    attention_width: Float[Array, "*b"] = integer(low=1.0, doc="heads times head dimension")
    gated: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    patch_inputs: Float[Array, "*b"] = integer(default=0.0, doc="numbers of a patch")
    positions: Float[Array, "*b"] = integer(default=0.0, doc="learned embeddings")
    projection: Float[Array, "*b"] = quantity(default=0.0, doc="weights that lead to the language model")
    merge: Float[Array, "*b"] = integer(low=1.0, default=1.0, doc="patches a token")
    patches: Float[Array, "*b"] = integer(default=0.0, high=1e6, doc="of an image")
    heads: Float[Array, "*b"] = integer(low=1.0, default=16.0, doc="of its attention")

    def layer_parameters(self) -> Array:
        """Parameters of one layer: attention and feed-forward."""
        return self.hidden * (4 * self.attention_width + (2 + self.gated) * self.width)

    def parameters(self) -> Array:
        """Patches, positions, layers, projection."""
        inputs = self.hidden * (self.patch_inputs + self.positions)
        return inputs + self.layers * self.layer_parameters() + self.projection

    def tokens_per_image(self) -> Array:
        """Tokens of the language model that one image takes."""
        return self.patches / self.merge

    def flops_per_image(self) -> Array:
        """Forward FLOPs of one image."""
        attended = 4 * self.attention_width * self.patches
        layer = 2 * self.layer_parameters() + attended
        inside = self.patches * (2 * self.hidden * self.patch_inputs + self.layers * layer)
        return inside + 2 * self.projection * self.tokens_per_image()

    @classmethod
    def example(cls) -> "VisionEncoder":
        """A small one, of 256 patches."""
        return cls(256.0, 4.0, 1024.0, 256.0, 0.0, 588.0, 256.0, 1024.0 * 512.0, 4.0, 256.0, 4.0)


class ExtraEmbeddings(Module):
    """Embeddings beside the vocabulary's (positions, kinds of token, one a layer): looked up, not multiplied."""

    rows: Float[Array, "*b"] = integer(low=1.0)
    columns: Float[Array, "*b"] = integer(low=1.0)

    def parameters(self) -> Array:
        """Parameters of all of them."""
        return self.rows * self.columns * jnp.asarray(1.0)

    @classmethod
    def example(cls) -> "ExtraEmbeddings":
        """512 positions."""
        return cls(512.0, 512.0)


FUSED = ((5.0, 6.0), (3.0, 6.0))
UNFUSED = ((5.0, 38.0), (3.0, 14.0))
"""(FLOPs, bytes) a logit, forward and backward, of a softmax in 32 bits on logits of 16.

Unfused as Megatron-LM's cross-entropy over a divided vocabulary does it, each pass on its own and in place: to 32 bits
(2 + 4), maximum (4), difference (8), exponential (8), sum (4), quotient (8); backward product (8), to 16 bits (6).
Source: derived from the passes of [shoeybi2019], `VocabParallelCrossEntropy`.
"""


class Transformer(Module):
    """`layers` equal layers of attention and feed-forward, an embedding and a language-model head.

    vocab 0 leaves embedding and head out. `norm_vectors` is 2 for layer normalisation with bias, 1 for RMS norm.
    `fused_loss` reads the logits once each way; otherwise the loss is a chain of passes over them (see `UNFUSED`).
    `predicts_ahead` modules of one more layer and a product of twice the hidden size predict further tokens; they are
    published with the weights, but loaded and run by speculative decoding alone (`ahead`). `formats`: number
    formats that the weights were published in. A vision encoder works on the images of prompts (`lowering`), not in
    training.
    """

    name: str = static()
    hidden: Float[Array, "*b"] = integer(low=1.0)
    layers: Float[Array, "*b"] = integer(low=1.0)
    attention: AbstractAttention
    feed_forward: AbstractFeedForward
    vocab: Float[Array, "*b"] = integer(default=0.0)
    tied_embeddings: Float[Array, "*b"] = switch(default=0.0)
    norm_vectors: float = static(default=1.0)
    dropout: bool = static(default=False)
    fused_loss: bool = static(default=True)
    predicts_ahead: int = static(default=0)
    vision: VisionEncoder | None = None
    extra_embeddings: ExtraEmbeddings | None = None
    formats: WeightFormats | None = None

    @property
    def has_experts(self) -> bool:
        """True if expert parallelism makes a difference."""
        return hasattr(self.feed_forward, "experts")

    @computed_once
    def layer_ops(self, shard: Shard) -> list[BlockOp]:
        """Arithmetic of an average layer."""
        options = {"dropout": self.dropout and not shard.decode, "norm_vectors": self.norm_vectors}
        attention = self.attention.ops(shard, self.hidden, **options)
        return attention + self.feed_forward.ops(shard, self.hidden, self.layers, **options)

    def layer_comms(self, shard: Shard) -> list[BlockComm]:
        """Communication of an average layer."""
        return self.attention.comms(shard, self.hidden) + self.feed_forward.comms(shard, self.hidden, self.layers)

    def head_ops(self, shard: Shard, scored: Array) -> list[BlockOp]:
        """Final norm, projection of `scored` tokens to the vocabulary, softmax in fp32."""
        share = self.vocab / shard.layout.plan.tp
        hidden = jnp.where(self.vocab > 0, self.hidden, 0.0)
        logits = scored * share
        forward, backward = FUSED if self.fused_loss else UNFUSED
        return [
            norm("head_norm", shard, hidden, vectors=self.norm_vectors),
            linear("head", shard, scored, hidden, share, stored_bytes=scored * hidden * 2.0),
            elementwise("head_softmax", logits, forward=forward, backward=backward, stored_bytes=logits * 4.0),
        ]

    def embedding_parameters(self) -> Array:
        """Embedding and, unless tied, head."""
        return self.vocab * self.hidden * (2 - self.tied_embeddings)

    def inner_parameters(self) -> Array:
        """Weights of all layers (norm vectors left out)."""
        layer = self.attention.parameters(self.hidden) + self.feed_forward.parameters(self.hidden, self.layers)
        return self.layers * layer

    def beside_parameters(self) -> Array | None:
        """Weights beside layers and vocabulary; none where there are none."""
        there = [part.parameters() for part in (self.vision, self.extra_embeddings) if part is not None]
        return sum(there[1:], there[0]) if there else None

    def parameters(self) -> Array:
        """All weights (norm vectors, and modules that predict tokens ahead, left out)."""
        beside = self.beside_parameters()
        inside = self.inner_parameters() + self.embedding_parameters()
        return inside if beside is None else inside + beside

    def ahead_parameters(self) -> Array:
        """Weights of the modules that predict tokens ahead; embedding and head are the model's own.

        Assumes: attention of an average layer, and the feed-forward network of a layer with experts where some have it.
        """
        parameters = self.feed_forward.parameters(self.hidden, self.layers)
        routed = getattr(self.feed_forward, "routed_parameters", None)
        layer = self.attention.parameters(self.hidden) + (parameters if routed is None else routed(self.hidden))
        return self.predicts_ahead * (layer + 2 * self.hidden**2)

    def ahead(self) -> "Transformer":
        """One module that predicts ahead, as a model of one layer; its product is `ahead_projection`.

        Assumes: as `ahead_parameters`.
        """
        routed = getattr(self.feed_forward, "routed_alone", None)
        network = self.feed_forward if routed is None else routed()
        return Transformer(
            self.name, self.hidden, jnp.asarray(1.0), self.attention, network, norm_vectors=self.norm_vectors
        )

    def ahead_projection(self, shard: Shard) -> BlockOp:
        """The product with which a module begins: hidden numbers and the embedding of the next token, to one width.

        Each tensor rank has all of it. Source: [deepseekv3] section 2.2; its layout [vllm_source].
        """
        return linear("ahead_projection", shard, shard.tokens, 2 * self.hidden, self.hidden)

    def weights_by_class(self) -> dict[str, Array]:
        """Class of weights -> how many; "" for what has no class (`number_formats.CLASSES`)."""
        result: dict[str, Array] = {"embedding": self.vocab * self.hidden}
        result["head"] = result["embedding"] * (1 - self.tied_embeddings)
        attention = self.attention.weights_by_class(self.hidden)
        for kind, count in (attention | self.feed_forward.weights_by_class(self.hidden, self.layers)).items():
            result[kind] = self.layers * count
        beside = self.beside_parameters()
        return result if beside is None else result | {"": result.get("", 0.0) + beside}

    def stored_bytes(self, precision: Precision) -> Array:
        """Bytes of all weights in the formats of a precision, scales included."""
        if precision.by_class is None:
            return self.parameters() * precision.bytes_of("weights")
        total = jnp.asarray(0.0)
        for kind, count in self.weights_by_class().items():
            each = WEIGHT_FORMATS[getattr(precision.by_class, kind)].nbytes if kind else precision.bytes_of("weights")
            total = total + count * each
        return total

    def active_parameters(self) -> Array:
        """Weights that one token multiplies: visited experts only, the head but not the embedding table."""
        layer = self.attention.parameters(self.hidden) + self.feed_forward.active_parameters(self.hidden, self.layers)
        return self.layers * layer + self.vocab * self.hidden

    def forward_flops_per_token(self, keys: Array) -> Array:
        """2 FLOPs a weight used, plus the attention core over `keys` attended tokens on average."""
        return 2 * self.active_parameters() + self.layers * self.attention.flops_per_token(keys)

    @classmethod
    def example(cls) -> "Transformer":
        """Four layers."""
        attention, forward = GroupedQueryAttention(8.0, 4.0, 64.0), DenseFeedForward(2048.0)
        return cls("small", 512.0, 4.0, attention, forward, 32000.0)
