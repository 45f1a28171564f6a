"""Sampling from a diffusion transformer: its model, its plans, its rules and its words, in one file."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from codesign.core import at_least, partly_hidden_s, quantity, static
from codesign.model.hardware import Work
from codesign.model.networks.fabrics import Group
from codesign.model.workloads import (
    AbstractPlan,
    AbstractWorkload,
    CommOp,
    ComputeOp,
    FamilyVocabulary,
    Layout,
    Op,
    Precision,
    Priced,
    Timeline,
    indivisible,
    total,
)

BRANCHES = 2.0  # with and without the condition: classifier-free guidance


class DiffusionTransformer(eqx.Module):
    """`layers` blocks of width `hidden` on `patches` tokens of an image; adaLN modulates six vectors a block.

    Source: [peebles2023dit].
    """

    hidden: Float[Array, "*b"] = quantity(low=1.0)
    layers: Float[Array, "*b"] = quantity(low=1.0)
    heads: Float[Array, "*b"] = quantity(low=1.0)
    patches: Float[Array, "*b"] = quantity(low=1.0, doc="tokens of an image")
    name: str = static(default="dit")

    def weights(self) -> Array:
        """Attention 4 h^2, perceptron 8 h^2, modulation 6 h^2, a block."""
        return 18.0 * self.hidden**2 * self.layers


class SamplingPlan(AbstractPlan):
    """Ranks of a replica, from the inside out: tp cuts matrices, cut the image, guide the two branches of guidance.

    Each `reuse`-th step is computed whole; in the others the deeper part of the network answers from a cache.
    """

    axes: ClassVar[tuple[str, ...]] = ("tp", "cut", "guide")

    tp: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0)
    cut: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0, doc="parts of an image")
    guide: Float[Array, "*b"] = quantity(low=1.0, high=2.0, default=1.0, doc="ranks for the branches of guidance")
    images: Float[Array, "*b"] = quantity(low=1.0, high=1e6, default=1.0, doc="together on one replica")
    reuse: Float[Array, "*b"] = quantity(low=1.0, high=10.0, default=1.0, doc="steps from one whole one to the next")
    cut_overlap: Float[Array, "*b"] = quantity(high=1.0, default=0.9, doc="of the keys and values of other parts")
    device_count: Float[Array, "*b"] | None = quantity(low=1.0, default=None)

    def ranks(self) -> Array:
        """All three."""
        return self.tp * self.cut * self.guide

    def members(self, axis: str, layout: Layout) -> Group:
        """tp innermost."""
        one = jnp.ones_like(self.tp)
        sizes = {"tp": (self.tp, one), "cut": (self.cut, self.tp), "guide": (self.guide, self.tp * self.cut)}
        return Group(*sizes[axis])


class Sampling(AbstractWorkload):
    """`plan.images` images from noise in `steps` steps with classifier-free guidance.

    Assumes: a step that reuses computes `shallow_ratio` of the blocks; what other parts of the image sent in the last
    step stands for what they have now, so that its exchange hides behind the work.
    """

    plan_class: ClassVar[type[AbstractPlan]] = SamplingPlan
    words: ClassVar[FamilyVocabulary] = FamilyVocabulary(
        "sampling", "batch of images", "image", ("time_s", "images_per_s", "denoising_step_s"),
        metrics={
            "time_s": ("Time to an image", "s"), "images_per_s": ("Images per second", "count"),
            "denoising_step_s": ("Denoising step", "s"),
        },
        parts={"denoise": "denoising", "cut": "parts of images sent", "guide": "branches joined"},
        memory={"latents": "latents and activations"},
        plan={"cut": "images in {:g} parts", "guide": "{:g} branches apart", "images": "{:g} images",
              "reuse": "every step in {:g} whole"},
    )  # fmt: skip

    model: DiffusionTransformer
    steps: Float[Array, "*b"] = quantity(low=1.0)
    shallow_ratio: Float[Array, "*b"] = quantity(low=0.01, high=1.0, default=0.25)
    precision: Precision = Precision()

    @classmethod
    def example(cls) -> "Sampling":
        """An image of 256 patches in four steps."""
        return cls(DiffusionTransformer(1152.0, 28.0, 16.0, 256.0), 4.0)

    def number_format(self) -> str:
        """Of the matrix products."""
        return self.precision.compute

    def tokens(self, plan: SamplingPlan) -> Array:
        """Rows of one rank: its branches, its part of each image."""
        return plan.images * self.model.patches * BRANCHES / (plan.guide * plan.cut)

    def blocks(self, plan: SamplingPlan) -> Array:
        """Computed in a mean step."""
        return self.model.layers * (1 + (plan.reuse - 1) * self.shallow_ratio) / plan.reuse

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """One step: products, attention, and what the three axes send."""
        plan, model, act = layout.plan, self.model, self.precision.bytes_of("activations")
        rows, h, blocks = self.tokens(plan), self.model.hidden, self.blocks(layout.plan)
        matrix = 12 * h * h / plan.tp
        products = Work(2 * rows * matrix, self.precision.bytes_of("weights") * matrix + 8 * act * rows * h, rows,
                        12 * h / plan.tp, h)  # fmt: skip
        images, heads = rows * plan.cut / model.patches, model.heads / plan.tp
        attended = Work(4 * rows * model.patches * h / plan.tp, 4 * act * rows * h / plan.tp, model.patches / plan.cut,
                        model.patches, h / model.heads, images * heads, images * heads)  # fmt: skip
        keys = 2 * act * images * model.patches * h / plan.tp
        return (
            ComputeOp("products", "gemm", self.precision.compute, "step", products, blocks),
            ComputeOp("attention", "attention_prefill", self.precision.attention, "step", attended, blocks),
            CommOp("sums", "all_reduce", "tp", "step", act * rows * h, 2 * blocks),
            CommOp("keys", "all_gather", "cut", "step", keys, blocks),
            CommOp("branches", "all_gather", "guide", "step", act * BRANCHES * rows * 16, jnp.ones_like(blocks)),
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Steps, one after the other: products and sums, the parts' exchange hidden, the branches joined."""
        work = total(priced, "step", ComputeOp)
        sums, keys, joined = (total(priced, "step", CommOp, (axis,)) for axis in ("tp", "cut", "guide"))
        busy = work.time_s + sums.time_s
        longer = partly_hidden_s(busy, keys, layout.plan.cut_overlap)
        step = longer + joined.time_s
        seconds, images = self.steps * step, layout.plan.images * layout.dp
        parts = {"denoise": work.time_s, "tp": sums.time_s, "cut": longer - busy, "guide": joined.time_s}
        energy = self.steps * (work.energy_j + sums.energy_j + keys.energy_j + joined.energy_j)
        per_image = BRANCHES * self.model.patches * (24 * self.model.hidden + 4 * self.model.patches)
        flops = images * self.steps * per_image * self.model.hidden * self.model.layers
        extra = {"images_per_s": images / seconds, "denoising_step_s": step}
        return Timeline(
            seconds, {name: self.steps * part for name, part in parts.items()}, energy, images, flops, extra
        )

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Every step."""
        return {"step": self.steps}

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, and activations of one block with the cache of a reused step."""
        weights = self.precision.bytes_of("weights") * self.model.weights() / layout.plan.tp
        latents = 10 * self.precision.bytes_of("activations") * self.tokens(layout.plan) * self.model.hidden
        return {"weights": (weights, weights / self.model.layers), "latents": (latents, latents)}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Whole replicas, whole heads, whole patches."""
        plan = layout.plan
        return {
            "devices": indivisible(layout.devices, plan.ranks()),
            "heads": indivisible(self.model.heads, plan.tp),
            "patches": indivisible(self.model.patches, plan.cut),
            "steps": at_least(plan.reuse / self.steps - 1, 0.0),
        }

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """In numbers."""
        plan = layout.plan
        texts = {
            "heads": f"plan.tp = {float(plan.tp):g} does not divide model.heads = {float(self.model.heads):g}",
            "patches": f"plan.cut = {float(plan.cut):g} does not divide model.patches = {float(self.model.patches):g}",
        }
        return texts.get(rule)
