"""Interface of scaling laws: the loss of a trained model, how sure that is, and where the law was fitted."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, quantity, switch
from ...core.jax_typed import asarray
from ...core.smooth import maximum, used_share

Number = Array | float
SIGMAS = 1.6448536269514722  # of a normal distribution: 5 % lie beyond on each side
AS_TRAINED = 1000.0  # bits beyond which nothing is rounded: exp(-1000 / scale) is 0 in double precision


class TrainedModel(NamedTuple):
    """A model and its training as laws see them.

    parameters: all weights; active: those one token uses, embedding table and head among them; inner: all but embedding
    table and head; tokens: trained on; expansion: experts over the experts that a token visits, 1 where dense;
    granularity: experts that a token visits, 1 where dense; bits: of weights, activations and KV cache;
    served_bits: of weights that are rounded once more; width, depth: hidden size and layers.
    """

    parameters: Array
    active: Array
    inner: Array
    tokens: Array
    expansion: Array
    granularity: Array
    bits: "BitWidths"
    served_bits: float = AS_TRAINED  # of weights rounded once more, after training
    width: Number = 1.0
    depth: Number = 1.0


class BitWidths(NamedTuple):
    """Bits of the numbers that a model is trained with."""

    weights: float = 16.0
    activations: float = 16.0
    kv_cache: float = 16.0


class FittedRange(NamedTuple):
    """A number and the range in which a law was fitted."""

    value: Number
    low: Array
    high: Array

    def used(self) -> Array:
        """At most 1 inside: value / high above, low / value below."""
        return maximum(used_share(self.value, self.high), used_share(self.low, self.value))


class AbstractLaw(Module):
    """The loss of a trained model, in nats a token of the text that the law was fitted on.

    Outside the range of its fit a design is refused (`usage.scaling_law.parameters` and the like are above 1), unless
    `extrapolate` says that it is wanted; the metric `loss_beyond` then says by what factor it lies outside.

    Assumes: losses of different laws are on different texts and tokenisers, and are not compared with each other.
    """

    extrapolate: eqx.AbstractVar[Float[Array, "*b"]]

    @abc.abstractmethod
    def least(self) -> Array:
        """The loss that no model of any size is below."""

    @abc.abstractmethod
    def reducible(self, model: TrainedModel) -> Array:
        """Nats a token above `least`."""

    def loss(self, model: TrainedModel) -> Array:
        """Nats a token."""
        return self.least() + self.reducible(model)

    @abc.abstractmethod
    def spans(self, model: TrainedModel) -> dict[str, FittedRange]:
        """Quantities that were varied when the law was fitted, with the ends."""

    def deviation(self, model: TrainedModel) -> Array | None:
        """Standard deviation of the loss from the errors of the fit; None where none were published."""
        del model
        return None

    def metrics(self, model: TrainedModel) -> dict[str, Array]:
        """`loss`, what a larger model takes off, ends of the 90 % interval where known, how far outside it lies."""
        loss, deviation = self.loss(model), self.deviation(model)
        metrics = {"loss": loss, "loss_reducible": self.reducible(model), "loss_beyond": self.beyond(model)}
        if deviation is not None:
            share = SIGMAS * deviation / loss
            metrics |= {"loss_low": loss / (1 + share), "loss_high": loss * (1 + share)}  # never below zero
        return metrics

    def beyond(self, model: TrainedModel) -> Array:
        """Factor by which the model lies outside the range of the fit, 1 inside."""
        worst = asarray(1.0)
        for span in self.spans(model).values():
            worst = maximum(worst, span.used())
        return worst

    def limits(self, model: TrainedModel) -> dict[str, Array]:
        """Used shares of the range of the fit; none is used where extrapolation is wanted."""
        wanted = self.extrapolate > 0
        return {f"scaling_law.{name}": jnp.where(wanted, 0.0, span.used()) for name, span in self.spans(model).items()}


class Ranges(Module):
    """Least and most parameters and tokens that a law was fitted on."""

    least_parameters: Float[Array, "*b"] = quantity(low=1.0)
    most_parameters: Float[Array, "*b"] = quantity(low=1.0)
    least_tokens: Float[Array, "*b"] = quantity(low=1.0)
    most_tokens: Float[Array, "*b"] = quantity(low=1.0)

    def spans(self, parameters: Array, tokens: Array) -> dict[str, FittedRange]:
        """Spans of parameters, as the law counts them, and tokens."""
        return {
            "parameters": FittedRange(parameters, self.least_parameters, self.most_parameters),
            "tokens": FittedRange(tokens, self.least_tokens, self.most_tokens),
        }


def extrapolating() -> Any:
    """The switch that every law has."""
    return switch(default=0.0, doc="1: designs outside the range of the fit are wanted all the same")
