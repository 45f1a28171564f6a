"""Demand on an engine in an open loop, and the step times of that engine, traced."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module
from .quantiles import tailed

__all__ = ["BesideHost", "Demand", "LongerContexts", "RooflineTimes", "TableTimes", "Times"]


@runtime_checkable
class Times(Protocol):
    """Seconds of one step."""

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """Sequences with a mean context, and prompt tokens with mean keys."""
        ...


class RooflineTimes(Module):
    """Traced counterpart of `simulation.serving.RooflineSteps`."""

    fixed_s: Float[Array, "*b"] = quantity()
    weights_s: Float[Array, "*b"] = quantity()
    token_s: Float[Array, "*b"] = quantity()
    read_s: Float[Array, "*b"] = quantity()
    pair_s: Float[Array, "*b"] = quantity()

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        linear = self.fixed_s + jnp.maximum(self.weights_s, self.token_s * (decodes + prompt_tokens))
        return linear + self.read_s * decodes * context + self.pair_s * prompt_tokens * keys


class TableTimes(Module):
    """Traced counterpart of `simulation.serving.TabulatedSteps`: bilinear between listed numbers."""

    decodes: Float[Array, " n"]
    tokens: Float[Array, " c"]
    linear: Float[Array, "n c"]
    context: Float[Array, " n"]
    pair_s: Float[Array, ""]

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        rows = jax.vmap(lambda row: jnp.interp(prompt_tokens, self.tokens, row))(self.linear)
        reading = decodes * context * jnp.interp(decodes, self.decodes, self.context)
        return jnp.interp(decodes, self.decodes, rows) + reading + self.pair_s * prompt_tokens * keys


class BesideHost(Module):
    """Steps whose engine prepares one beside the one before: the longer of both times."""

    device: Times
    host_s: Float[Array, "*b"] = quantity()
    host_sequence_s: Float[Array, "*b"] = quantity(default=0.0)

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        own = self.host_s + self.host_sequence_s * decodes
        return jnp.maximum(self.device.step_s(decodes, context, prompt_tokens, keys), own)


class LongerContexts(Module):
    """Steps that read more than a demand says: of answers that it counts in steps, of prompts that a cache holds."""

    times: Times
    context: Float[Array, "*b"] = quantity(doc="tokens more of each decode")
    keys: Float[Array, "*b"] = quantity(doc="keys more of each prompt token")

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        return self.times.step_s(decodes, context + self.context, prompt_tokens, keys + self.keys)


class Demand(Module):
    """Requests of one engine: their rate (1/s), variation of gaps, lengths, and the tokens that a step takes at most.

    prompts, answers: lengths over their mean and shares, as `kinds` has them; without, lengths are lognormal.
    """

    rate: Float[Array, "*b"] = quantity()
    input_tokens: Float[Array, "*b"] = quantity(low=1.0)
    output_tokens: Float[Array, "*b"] = quantity(low=2.0)
    chunk: Float[Array, "*b"] = quantity(low=1.0)
    input_cv: Float[Array, "*b"] = quantity(default=0.0)
    output_cv: Float[Array, "*b"] = quantity(default=0.0)
    arrival_cv: Float[Array, "*b"] = quantity(default=1.0)
    most: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="sequences that can decode together")
    elsewhere: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of prompts that others compute")
    prompts: Float[Array, "*b kinds 3"] | None = eqx.field(default=None)
    answers: Float[Array, "*b kinds 3"] | None = eqx.field(default=None)

    def at(self, rate: Array) -> "Demand":
        """Copy at another rate."""
        return eqx.tree_at(lambda one: one.rate, self, rate)

    @property
    def computed(self) -> Array:
        """Tokens of a prompt that this engine computes; next to nothing where others do."""
        return self.input_tokens * jnp.maximum(1 - self.elsewhere, 1e-9)

    def prompt_lengths(self) -> tuple[Array, Array]:
        """Over their mean, and how likely each is."""
        return tailed(self.input_cv) if self.prompts is None else (self.prompts[..., 0], self.prompts[..., 1])

    @property
    def steps(self) -> Array:
        """Decode steps of an answer."""
        return self.output_tokens - 1

    @property
    def context(self) -> Array:
        """Mean context of a decode."""
        return self.input_tokens + 0.5 * self.output_tokens * (1 + self.output_cv**2)

    @property
    def keys(self) -> Array:
        """Mean keys of a prompt token."""
        return 0.5 * self.input_tokens * (1 + self.input_cv**2)
