"""A model that is trained once and then served: its shape may be the plan's, its loss is what a law says."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ...core.fields import quantity, static
from ..scaling_laws import AbstractLaw, BitWidths, TrainedModel
from ..scaling_laws.base import AS_TRAINED
from .base import SERVING, FamilyVocabulary, Moments
from .continuous import AbstractContinuousServing, ContinuousServing
from .mixed_step import MixedStep
from .plan import Layout
from .schedule import Op, Priced, Timeline
from .shaped_plan import ShapedPlan, broken_shapes, seen_by_laws
from .steady_state import Lockstep, Rhythm
from .transformer import Transformer

LIFE = FamilyVocabulary(
    "serving",
    "batch of requests",
    headline=("loss", "ttft_s", "tpot_s", "tokens_per_s", "training_flops"),
    metrics={
        **SERVING.metrics,
        "loss": ("Loss, nats a token", ""),
        "training_flops": ("FLOP of training, 6 N D", "FLOP"),
    },
    plan={
        "hidden": "hidden {:g}",
        "layers": "{:g} layers",
        "heads": "{:g} heads",
        "kv_heads": "{:g} KV heads",
        "kv_rank": "KV rank {:g}",
        "full_every": "full attention every {:g}",
        "window": "window {:g}",
        "tokens": "{:.3g} tokens",
    },
)


class ServedRun(AbstractContinuousServing):
    """`ContinuousServing` of a model that was trained on `tokens` tokens; a `ShapedPlan` may choose its shape.

        training_flops = 6 N D        N weights that a token uses, D tokens

    Loss and range are those of `quality`, a law of models trained in `trained_bits`; weights of a format of fewer bits
    (`precision.weights`) are rounded afterwards, where the law knows of it. Times, memory and money are those of
    serving the model in the plan's shape: what its training cost is limited by `training_flops`, on whatever machine it
    was.

    Assumes: loss depends on shape through the counts that the law knows alone.
    """

    words: ClassVar[FamilyVocabulary] = LIFE

    tokens: Float[Array, "*b"] = quantity(low=1.0, high=1e18, default=3e11, doc="trained on, in all")
    trained_bits: float = static(default=16.0)
    scaling_law: AbstractLaw | None = None
    clients: Lockstep = eqx.field(default_factory=Lockstep)

    def at(self, layout: Layout) -> ContinuousServing:
        """The model in the plan's shape."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in OWN}
        if isinstance(layout.plan, ShapedPlan):
            fields["model"] = layout.plan.shaped(self.model)
        return ContinuousServing(**fields)

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Operations of the model in the plan's shape."""
        return self.at(layout).lower(layout)

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """With size and loss of the model."""
        served = self.at(layout)
        result, model = served.timeline(priced, layout), served.model
        tokens = self._tokens(layout)
        metrics = {
            "parameters": model.parameters(),
            "active_parameters": model.active_parameters(),
            "run_tokens": tokens,
        }
        seen = self._seen(model, tokens)
        metrics["training_flops"] = 6 * seen.active * tokens
        if self.scaling_law is not None:
            metrics |= self.scaling_law.metrics(seen)
        return dataclasses.replace(result, extra=result.extra | metrics)

    def limits(self, layout: Layout) -> dict[str, Array]:
        """The range of the law's fit."""
        if self.scaling_law is None:
            return {}
        return self.scaling_law.limits(self._seen(self.at(layout).model, self._tokens(layout)))

    def rhythm(self, layout: Layout) -> Rhythm:
        """Rhythm of the model in the plan's shape."""
        return self.at(layout).rhythm(layout)

    def mixed_step(self, layout: Layout) -> MixedStep:
        """Step with prompts of the model in the plan's shape."""
        return self.at(layout).mixed_step(layout)

    def decode_step(self, layout: Layout) -> MixedStep:
        """Step without prompts of the model in the plan's shape."""
        return self.at(layout).decode_step(layout)

    def kv_bytes(self, layout: Layout, tokens: Array) -> Array:
        """Cache bytes of the model in the plan's shape."""
        return self.at(layout).kv_bytes(layout, tokens)

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Footprint of the model in the plan's shape."""
        return self.at(layout).footprint(layout)

    def held_weights(self, layout: Layout) -> dict[str, Array]:
        """Weights of the model in the plan's shape."""
        return self.at(layout).held_weights(layout)

    def memory_moments(self, layout: Layout) -> Moments:
        """Memory moments of the model in the plan's shape."""
        return self.at(layout).memory_moments(layout)

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Violations of serving the model, and of its shape."""
        served = self.at(layout)
        return served.violations(layout) | broken_shapes(served.model, layout)

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Serving's, by the shape that was chosen."""
        return self.at(layout).broken_rule(rule, layout)

    def hopeless(self, layout: Layout, capacity: dict[str, float]) -> str | None:
        """One request that does not fit, by the shape that was chosen."""
        return self.at(layout).hopeless(layout, capacity)

    def _tokens(self, layout: Layout) -> Array:
        chosen = getattr(layout.plan, "tokens", None)
        return self.tokens if chosen is None else chosen

    def _seen(self, model: Transformer, tokens: Array) -> TrainedModel:
        trained, weights = self.trained_bits, 8 * self.precision.bytes_of("weights")
        served = weights if weights < trained else AS_TRAINED
        return seen_by_laws(model, tokens, BitWidths(trained, trained, trained), served)


OWN = tuple(field.name for field in dataclasses.fields(ContinuousServing))
