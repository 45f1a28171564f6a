"""Parts of a checkpoint beside the layers of its language model: a vision encoder, further embeddings."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import integer, quantity
from ...core.module import Module


class VisionEncoder(Module):
    """A transformer over the patches of an image, and the projection of its tokens to the language model.

    `heads` attend all patches of their image; feed-forward networks have `gated` + 2 matrices. `merge` patches become
    one token of the language model, through `projection` weights. `patches`: of an image as the file states it (its
    size, its tokens, or the grid of its positions), else 0: its work is then not determined. What a step with images
    does is in `vision_work`.

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
