"""A whole training run: so many tokens, by a model whose shape the plan may choose, to a loss that a law says."""

import dataclasses
from typing import Any, ClassVar

from jaxtyping import Array, Float

from ...core.fields import quantity
from ..scaling_laws import AbstractLaw, BitWidths, TrainedModel
from .base import FamilyVocabulary
from .plan import Layout
from .schedule import Op, Priced, Timeline
from .shaped_plan import ShapedPlan, broken_shapes, seen_by_laws
from .training import AbstractTraining, Training
from .transformer import Transformer

RUN = FamilyVocabulary(
    "a training run",
    "training step",
    headline=("loss", "usd_to_train", "time_to_train_s", "time_s", "mfu"),
    metrics={
        "loss": ("Loss, nats a token", ""),
        "usd_to_train": ("Cost of the run", "$"),
        "time_to_train_s": ("Time of the run", "s"),
        "run_tokens": ("Tokens trained on", "tokens"),
    },
    plan={
        "hidden": "hidden {:g}",
        "layers": "{:g} layers",
        "width": "width {:g}",
        "heads": "{:g} heads",
        "kv_heads": "{:g} KV heads",
        "experts": "{:g} experts",
        "top_k": "{:g} visited",
        "expert_width": "experts of {:g}",
        "vocab": "vocabulary {:g}",
        "kv_rank": "KV rank {:g}",
        "full_every": "full attention every {:g}",
        "window": "window {:g}",
        "context": "context {:g}",
        "tokens": "{:.3g} tokens",
    },
)


class TrainingRun(AbstractTraining):
    """`Training` on `tokens` tokens in all, with what the run comes to: time, money, energy, loss.

    A `ShapedPlan` may choose the model's shape; any other plan of a transformer leaves it as it is.

    Times, tokens and memory of a step are those of `Training` with the model in the plan's shape.

    Assumes: every step is like the others; data are never repeated.
    """

    words: ClassVar[FamilyVocabulary] = RUN

    tokens: Float[Array, "*b"] = quantity(low=1.0, high=1e18, default=3e11, doc="trained on, in all")
    scaling_law: AbstractLaw | None = None

    def at(self, layout: Layout) -> Training:
        """One step of the model in the plan's shape."""
        fields: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(Training)}
        if isinstance(layout.plan, ShapedPlan):
            fields["model"] = layout.plan.shaped(self.model)
            fields["sequence"] = self.sequence if layout.plan.context is None else layout.plan.context
        return Training(**fields)

    def run_tokens(self, layout: Layout) -> Array:
        """The plan's number of tokens, else the job's."""
        chosen = getattr(layout.plan, "tokens", None)
        return self.tokens if chosen is None else chosen

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Operations of one step."""
        return self.at(layout).lower(layout)

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Repeats of one step."""
        return self.at(layout).repeats(layout)

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Timeline of one step, with size and loss of the model."""
        step = self.at(layout)
        result, model = step.timeline(priced, layout), step.model
        metrics = {"parameters": model.parameters(), "active_parameters": model.active_parameters()}
        metrics |= {"run_tokens": self.run_tokens(layout), "run_flops": result.model_flops * self.steps(layout)}
        if self.scaling_law is not None:
            metrics |= self.scaling_law.metrics(self.trained(model, layout))
        return dataclasses.replace(result, extra=result.extra | metrics)

    def steps(self, layout: Layout) -> Array:
        """Number of steps of the run."""
        return self.run_tokens(layout) / self.at(layout).tokens_per_step()

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Footprint of one step."""
        return self.at(layout).footprint(layout)

    def afar_bytes(self, layout: Layout) -> dict[str, Array]:
        """Bytes of offloaded classes in one step."""
        return self.at(layout).afar_bytes(layout)

    def saved_bytes(self, layout: Layout) -> Array | None:
        """Checkpoint bytes of the job."""
        return self.at(layout).saved_bytes(layout)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Violations of the step, and of the shape."""
        step = self.at(layout)
        return step.violations(layout) | broken_shapes(step.model, layout)

    def limits(self, layout: Layout) -> dict[str, Array]:
        """The range of the law's fit."""
        if self.scaling_law is None:
            return {}
        return self.scaling_law.limits(self.trained(self.at(layout).model, layout))

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """The step's, by the shape that was chosen."""
        return self.at(layout).broken_rule(rule, layout)

    def trained(self, model: Transformer, layout: Layout) -> TrainedModel:
        """Trained model as laws of quality see it."""
        bits = BitWidths(*(8 * self.precision.bytes_of(name) for name in ("compute", "compute", "kv_cache")))
        return seen_by_laws(model, self.run_tokens(layout), bits)

    @classmethod
    def example(cls) -> "TrainingRun":
        """Eight sequences of 512 tokens a step."""
        return cls(Transformer.example(), 512.0, 8.0)
