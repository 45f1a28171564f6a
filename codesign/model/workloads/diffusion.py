"""Images from noise by a diffusion transformer: the model, its plans, the job."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.cost import partly_hidden_s
from ...core.fields import Module, integer, quantity, static
from ..hardware import Work
from ..networks.fabrics import Group
from .base import AbstractWorkload, FamilyVocabulary
from .layer_operations import Precision
from .lowering import beyond, indivisible
from .plan import Layout
from .plan_fields import AbstractPlan
from .schedule import CommOp, ComputeOp, Op, Priced, Timeline, total

MATRICES = 12.0  # h x h, of a block: 4 of attention, 8 of a perceptron four times as wide
JOINT_WEIGHTS = 36.0  # of a block with weights of its own for image and text: twice 12, and twice 6 of modulation
LATENT_CHANNELS = 64.0  # of a token of the image: 16 latent channels of 2 x 2, at most


class DiffusionTransformer(Module):
    """`layers` blocks of width `hidden` on the tokens of image and text, `joint_layers` of them in two streams.

    A block multiplies every token by 12 h^2; a joint one has weights for image and text apart, which is memory and no
    arithmetic. What modulates the normalisations of a block are `modulation` vectors made of one by h x h each.

    Assumes: a perceptron four times as wide; embeddings, text encoder and decoder of latents left out.
    Source: [peebles2023dit] section 3 and table 1; [flux2024].
    """

    hidden: Float[Array, "*b"] = integer(low=1.0)
    layers: Float[Array, "*b"] = integer(low=1.0, doc="blocks, joint ones included")
    heads: Float[Array, "*b"] = integer(low=1.0)
    image_tokens: Float[Array, "*b"] = integer(low=1.0, doc="patches of an image")
    text_tokens: Float[Array, "*b"] = integer(default=0.0, doc="that attend beside them")
    joint_layers: Float[Array, "*b"] = integer(default=0.0, doc="blocks with weights for image and text apart")
    modulation: Float[Array, "*b"] = quantity(default=6.0, doc="vectors a block that is not joint")
    branches: Float[Array, "*b"] = integer(low=1.0, high=2.0, default=2.0, doc="2 with classifier-free guidance")
    name: str = static(default="diffusion_transformer")

    def tokens(self) -> Array:
        """Tokens of one image and one branch."""
        return self.image_tokens + self.text_tokens

    def parameters(self) -> Array:
        """Weights of all blocks."""
        single = (self.layers - self.joint_layers) * (MATRICES + self.modulation)
        return self.hidden**2 * (single + self.joint_layers * JOINT_WEIGHTS)

    def forward_flops(self) -> Array:
        """FLOP of one pass over one image, one branch: products, attention, modulation."""
        tokens, h = self.tokens(), self.hidden
        modulated = (self.layers - self.joint_layers) * self.modulation + self.joint_layers * 12.0
        return 2 * h * (self.layers * tokens * (MATRICES * h + 2 * tokens) + modulated * h)


class ImagePlan(AbstractPlan):
    """Ranks of a replica, from the inside out: tp cuts matrices, cut the image, guide the two branches of guidance."""

    axes: ClassVar[tuple[str, ...]] = ("tp", "cut", "guide")

    tp: Float[Array, "*b"] = integer(low=1.0, high=64.0, default=1.0)
    cut: Float[Array, "*b"] = integer(low=1.0, high=64.0, default=1.0, doc="parts of an image")
    guide: Float[Array, "*b"] = integer(low=1.0, high=2.0, default=1.0, doc="ranks for the branches of guidance")
    images: Float[Array, "*b"] = integer(low=1.0, high=1e6, default=1.0, doc="together on one replica")
    cut_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="hidden of what parts of an image send")
    device_count: Float[Array, "*b"] | None = integer(low=1.0, default=None)

    def ranks(self) -> Array:
        """All three."""
        return self.tp * self.cut * self.guide

    def members(self, axis: str, layout: Layout) -> Group:
        """tp innermost."""
        one = jnp.ones_like(self.tp)
        sizes = {"tp": (self.tp, one), "cut": (self.cut, self.tp), "guide": (self.guide, self.tp * self.cut)}
        return Group(*sizes[axis])


class ImageSampling(AbstractWorkload):
    """`plan.images` images from noise, `steps` passes each, two branches a pass where the model is guided.

    What reports call a token is an image.

    Assumes: parts of an image gather keys and values of all parts in every block; every step is computed whole; text
    is encoded and latents are decoded elsewhere.
    Source: [peebles2023dit].
    """

    plan_class: ClassVar[type[AbstractPlan]] = ImagePlan
    words: ClassVar[FamilyVocabulary] = FamilyVocabulary(
        "sampling", "batch of images", "image", ("time_s", "images_per_s", "denoising_step_s"),
        metrics={
            "time_s": ("Time to an image", "s"), "images_per_s": ("Images per second", "count"),
            "denoising_step_s": ("Denoising step", "s"),
        },
        parts={"denoise": "denoising", "cut": "parts of images sent", "guide": "branches joined"},
        memory={"latents": "latents and activations"},
        plan={"cut": "images in {:g} parts", "guide": "{:g} branches apart", "images": "{:g} images"},
    )  # fmt: skip

    model: DiffusionTransformer
    steps: Float[Array, "*b"] = integer(low=1.0, default=50.0)
    precision: Precision = Precision()

    @classmethod
    def example(cls) -> "ImageSampling":
        """An image of 256 patches in four steps."""
        return cls(DiffusionTransformer(1152.0, 28.0, 16.0, 256.0), 4.0)

    def number_format(self) -> str:
        """Format of the matrix products."""
        return self.precision.compute

    def rows(self, plan: ImagePlan) -> Array:
        """Tokens of one rank: its branches, its part of each image."""
        return plan.images * self.model.tokens() * self.model.branches / (plan.guide * plan.cut)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """One step: products, attention, and what the three axes send."""
        plan, model, act = layout.plan, self.model, self.precision.bytes_of("activations")
        rows, h, blocks = self.rows(plan), self.model.hidden, self.model.layers
        held = self.precision.bytes_of("weights") * model.parameters() / (blocks * plan.tp)
        products = Work(2 * rows * MATRICES * h * h / plan.tp, held + 8 * act * rows * h, rows, MATRICES * h / plan.tp,
                        h)  # fmt: skip
        images, heads, seen = rows * plan.cut / model.tokens(), model.heads / plan.tp, model.tokens()
        attended = Work(4 * rows * seen * h / plan.tp, 4 * act * rows * h / plan.tp, seen / plan.cut, seen,
                        h / model.heads, images * heads, images * heads)  # fmt: skip
        latents = act * model.branches * plan.images * model.image_tokens * LATENT_CHANNELS / plan.cut
        return (
            ComputeOp("products", "gemm", self.precision.compute, "step", products, blocks),
            ComputeOp("attention", "attention_prefill", self.precision.attention, "step", attended, blocks),
            CommOp("sums", "all_reduce", "tp", "step", act * rows * h, 2 * blocks),
            CommOp("keys", "all_gather", "cut", "step", 2 * act * images * seen * h / plan.tp, blocks),
            CommOp("branches", "all_gather", "guide", "step", latents, jnp.ones_like(blocks)),
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Steps, one after the other: products and sums, what parts send beside them as far as it hides, branches."""
        work = total(priced, "step", ComputeOp)
        sums, keys, joined = (total(priced, "step", CommOp, (axis,)) for axis in ("tp", "cut", "guide"))
        busy = work.time_s + sums.time_s
        longer = partly_hidden_s(busy, keys, layout.plan.cut_overlap)
        step = longer + joined.time_s
        seconds, images = self.steps * step, layout.plan.images * layout.dp
        parts = {"denoise": work.time_s, "tp": sums.time_s, "cut": longer - busy, "guide": joined.time_s}
        energy = self.steps * (work.energy_j + sums.energy_j + keys.energy_j + joined.energy_j)
        flops = images * self.steps * self.model.branches * self.model.forward_flops()
        extra = {"images_per_s": images / seconds, "denoising_step_s": step}
        return Timeline(
            seconds, {name: self.steps * part for name, part in parts.items()}, energy, images, flops, extra
        )

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Every step."""
        return {"step": self.steps}

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, and activations of one block: its input, three of attention, four of the perceptron, two spare."""
        weights = self.precision.bytes_of("weights") * self.model.parameters() / layout.plan.tp
        latents = 10 * self.precision.bytes_of("activations") * self.rows(layout.plan) * self.model.hidden
        return {"weights": (weights, weights / self.model.layers), "latents": (latents, latents)}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Whole replicas, whole heads, whole patches, no more branches than there are."""
        plan = layout.plan
        return {
            "devices": indivisible(layout.devices, plan.ranks()),
            "heads": indivisible(self.model.heads, plan.tp),
            "image_tokens": indivisible(self.model.image_tokens, plan.cut),
            "guide": beyond(plan.guide, self.model.branches),
            "joint_layers": beyond(self.model.joint_layers, self.model.layers),
        }

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Explanation of a broken rule in numbers; None for rules that are not its own."""
        plan, model = layout.plan, self.model
        texts = {
            "heads": f"plan.tp = {float(plan.tp):g} does not divide model.heads = {float(model.heads):g}",
            "image_tokens": f"plan.cut = {float(plan.cut):g} does not divide model.image_tokens ="
            f" {float(model.image_tokens):g}",
            "guide": f"plan.guide = {float(plan.guide):g} ranks for model.branches = {float(model.branches):g}",
            "joint_layers": f"model.joint_layers = {float(model.joint_layers):g} of model.layers ="
            f" {float(model.layers):g}",
        }
        return texts.get(rule)
