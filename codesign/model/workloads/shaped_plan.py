"""A plan that also chooses the shape of the model: layers, widths, heads, experts, context, tokens."""

import dataclasses
from typing import TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import integer
from ...core.jax_typed import asarray
from ...core.smooth import at_least, ceil
from ..scaling_laws import BitWidths, TrainedModel
from ..scaling_laws.base import AS_TRAINED
from .attention import AbstractAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward, MixtureOfExperts
from .linear_attention import AlternatingAttention
from .lowering import indivisible
from .plan import MOST, AbstractModelPlan, Layout
from .sparse_attention import LocalAttention
from .transformer import Transformer

# Transformer as laws of quality see it.


def seen_by_laws(model: Transformer, tokens: Array, bits: BitWidths, served_bits: float = AS_TRAINED) -> TrainedModel:
    """Counts of a model trained on so many tokens in numbers of so many bits, its weights rounded to `served_bits`."""
    one, forward = asarray(1.0), model.feed_forward
    sparse = isinstance(forward, MixtureOfExperts)
    return TrainedModel(
        parameters=model.parameters(),
        active=model.active_parameters() + model.vocab * model.hidden * (1 - model.tied_embeddings),
        inner=model.inner_parameters(),
        tokens=tokens,
        expansion=forward.experts / forward.top_k if sparse else one,
        granularity=forward.top_k if sparse else one,
        bits=bits,
        served_bits=served_bits,
        width=model.hidden,
        depth=model.layers,
    )


SHAPE = (
    *("layers", "hidden", "width", "heads", "kv_heads", "experts", "top_k", "expert_width", "vocab"),
    *("kv_rank", "full_every", "window", "context", "tokens"),
)
"""Fields that change the model or its training; one that is not given leaves it as it is."""

Part = TypeVar("Part", AbstractAttention, AbstractFeedForward)
TILE = 128.0  # widths that follow are rounded up to whole tiles of matrix engines


class ShapedPlan(AbstractModelPlan):
    """A `Plan` whose further fields, where given, take the place of the model's own numbers.

    Listed in `space.plan` they are enumerated, bounded and proven like degrees of parallelism; `search=gradient`
    relaxes them in their logarithms and rounds. What is not given follows `hidden` as in the model that is configured:
    heads of the same size, feed-forward widths in proportion, rounded up to whole tiles of 128; KV heads stay. A model
    with two kinds of attention may have the full one in every layer, every fourth, ...; no law of quality knows of it.
    """

    layers: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of the model")
    hidden: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="numbers that a token is")
    width: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of dense feed-forward networks")
    heads: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of attention")
    kv_heads: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of keys and values")
    experts: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of a layer")
    top_k: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="experts that a token visits")
    expert_width: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of one expert")
    vocab: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="words")
    kv_rank: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="of latent attention")
    full_every: Float[Array, "*b"] | None = integer(
        low=1.0, high=MOST, default=None, doc="layers, of which one has full attention: the others windows or states"
    )
    window: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="tokens that such a layer sees")
    context: Float[Array, "*b"] | None = integer(low=1.0, high=MOST, default=None, doc="tokens of a sequence")
    tokens: Float[Array, "*b"] | None = integer(low=1.0, high=1e18, default=None, doc="trained on")

    def shape(self) -> dict[str, Array]:
        """Fields of the shape that are given."""
        return {name: getattr(self, name) for name in SHAPE if getattr(self, name) is not None}

    def told(self) -> dict[str, Array]:
        """The shape with the rest."""
        return super().told() | self.shape()

    def shaped(self, model: Transformer) -> Transformer:
        """The model in this shape."""
        hidden = model.hidden if self.hidden is None else self.hidden
        wider = hidden / model.hidden
        return dataclasses.replace(
            model,
            hidden=hidden,
            layers=model.layers if self.layers is None else self.layers,
            vocab=model.vocab if self.vocab is None else self.vocab,
            attention=self._attention(model.attention, wider),
            feed_forward=self._feed_forward(model.feed_forward, wider),
        )

    def _attention(self, attention: AbstractAttention, wider: Array) -> AbstractAttention:
        heads = attention.heads * wider if self.hidden is not None and self.heads is None else self.heads
        if not isinstance(attention, LocalAttention | AlternatingAttention):
            kinds = {"kv_rank": self.kv_rank, "full_every": self.full_every, "window": self.window}
            return self._given(attention, {"heads": heads, "kv_heads": self.kv_heads} | kinds)
        first = self._given(attention.attention, {"heads": heads, "kv_heads": self.kv_heads, "kv_rank": self.kv_rank})
        changed = {"share": None if self.full_every is None else 1 - 1 / self.full_every}
        if isinstance(attention, LocalAttention):
            return self._given(dataclasses.replace(attention, attention=first), changed | {"window": self.window})
        grown = first.heads / attention.attention.heads
        other = dataclasses.replace(attention.other, heads=attention.other.heads * grown)
        mixed = dataclasses.replace(attention, attention=first, other=other)
        return self._given(mixed, changed | {"window": self.window})

    def _feed_forward(self, feed_forward: AbstractFeedForward, wider: Array) -> AbstractFeedForward:
        if isinstance(feed_forward, MixtureOfExperts):
            if feed_forward.load is not None and self.experts is not None:
                raise ConfigError(
                    f"plan.experts: workload.expert_load is of {feed_forward.load.experts} experts, not of others"
                )
            expert, dense = feed_forward.expert_width, feed_forward.dense_width
            followed = {
                "expert_width": self._followed(expert, self.expert_width, wider),
                "dense_width": self._followed(dense, self.width, wider),
            }
            return self._given(feed_forward, {"experts": self.experts, "top_k": self.top_k} | followed)
        followed = (
            {"width": self._followed(feed_forward.width, self.width, wider)}
            if isinstance(feed_forward, DenseFeedForward)
            else {}
        )
        others = {"experts": self.experts, "top_k": self.top_k, "expert_width": self.expert_width}
        return self._given(feed_forward, others | followed)

    def _given(self, part: Part, numbers: dict[str, Array | None]) -> Part:
        """A part of the model with these of its numbers where they are given.

        Raises:
            ConfigError: it has no such number.
        """
        names = {field.name for field in dataclasses.fields(part)}
        given = {name: value for name, value in numbers.items() if value is not None}
        for name in given:
            if name not in names:
                raise ConfigError(f"plan.{name}: the model's {type(part).__name__} has no {name} that could be chosen")
        return dataclasses.replace(part, **given)

    def _followed(self, value: Array, given: Array | None, wider: Array) -> Array:
        """A width that is given, else in proportion to the hidden size."""
        if given is not None or self.hidden is None:
            return value if given is None else given
        return TILE * ceil(value * wider / TILE)


def broken_shapes(model: Transformer, layout: Layout) -> dict[str, Array]:
    """Rules of a shape -> relative violation.

    Whole heads that share whole KV heads; tensor ranks with whole KV heads or whole copies of one; no more experts
    visited than there are.
    """
    heads: Array = model.attention.heads
    kv_heads, tp = getattr(model.attention, "kv_heads", heads), layout.plan.tp
    visited = getattr(model.feed_forward, "top_k", asarray(0.0))
    there = getattr(model.feed_forward, "experts", asarray(1.0))
    spread = jnp.where(kv_heads >= tp, indivisible(kv_heads, tp), indivisible(tp, kv_heads))
    return {
        "whole heads": indivisible(heads, kv_heads) + indivisible(heads, asarray(1.0)),
        "KV heads": spread,
        "visited experts": at_least(visited / there - 1, 0.0),
    }
