"""Dense models: a power law in parameters and tokens."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...core.jax_typed import arrays, asarray
from .base import AbstractLaw, FittedRange, Number, Ranges, TrainedModel, extrapolating
from .shape import ShapeCorrection


class FitErrors(Module):
    """Standard errors of the five constants of `DenseLaw`, as published with them."""

    entropy: Float[Array, "*b"] = quantity()
    parameters_scale: Float[Array, "*b"] = quantity()
    tokens_scale: Float[Array, "*b"] = quantity()
    parameters_power: Float[Array, "*b"] = quantity()
    tokens_power: Float[Array, "*b"] = quantity()


class DenseLaw(AbstractLaw):
    """L = E + A / N^alpha + B / D^beta.

    E is `entropy`, A `parameters_scale`, B `tokens_scale`, alpha and beta the powers; N counts all weights, the
    embedding among them. A sum of powers of N and D: log-convex in both. With `shape` the second term is what the best
    shape of N weights loses, and others more.

    Assumes: constants err independently of each other (their covariances are not published), which makes the interval
    too wide, since scale and power of a term err together; first order in the errors.
    Source: [hoffmann2022] equation 2; [besiroglu2024].
    """

    entropy: Float[Array, "*b"] = quantity()
    parameters_scale: Float[Array, "*b"] = quantity()
    tokens_scale: Float[Array, "*b"] = quantity()
    parameters_power: Float[Array, "*b"] = quantity(low=0.01, high=2.0)
    tokens_power: Float[Array, "*b"] = quantity(low=0.01, high=2.0)
    fitted: Ranges = eqx.field(kw_only=True)
    errors: FitErrors | None = None
    shape: ShapeCorrection | None = None
    extrapolate: Float[Array, "*b"] = extrapolating()

    def terms(self, parameters: Number, tokens: Number) -> tuple[Array, Array]:
        """Loss terms of finite size and of finite data, nats a token."""
        return (
            self.parameters_scale * parameters**-self.parameters_power,
            self.tokens_scale * tokens**-self.tokens_power,
        )

    def at(self, parameters: Number, tokens: Number) -> Array:
        """Loss of N and D alone."""
        of_size, of_data = self.terms(parameters, tokens)
        return self.entropy + of_size + of_data

    def least(self) -> Array:
        """Entropy of the text itself, nats a token."""
        return self.entropy

    def reducible(self, model: TrainedModel) -> Array:
        """By all weights and tokens."""
        of_size, of_data = self.terms(model.parameters, model.tokens)
        return of_size * (1.0 if self.shape is None else self.shape.factor(model)) + of_data

    def deviation(self, model: TrainedModel) -> Array | None:
        """dL/dA = N^-alpha, dL/dalpha = -A N^-alpha ln N, and so on; squares add up."""
        if self.errors is None:
            return None
        of_size, of_data = self.terms(model.parameters, model.tokens)
        factor, of_shape = (1.0, 0.0)
        if self.shape is not None:
            factor, of_shape = self.shape.factor(model), of_size * self.shape.deviation(model)
        parts = (
            self.errors.entropy,
            self.errors.parameters_scale * factor * model.parameters**-self.parameters_power,
            self.errors.tokens_scale * model.tokens**-self.tokens_power,
            self.errors.parameters_power * factor * of_size * jnp.log(model.parameters),
            self.errors.tokens_power * of_data * jnp.log(model.tokens),
            of_shape,
        )
        return sum((part * part for part in parts), asarray(1e-30)) ** 0.5  # a root of nothing has no slope

    def spans(self, model: TrainedModel) -> dict[str, FittedRange]:
        """Parameters and tokens, and the shape where it counts."""
        shapes = {} if self.shape is None else self.shape.fitted.spans(model.width, model.depth)
        return self.fitted.spans(model.parameters, model.tokens) | shapes

    def optimum(self, flops: Number) -> tuple[Array, Array]:
        """(parameters, tokens) of least loss for `flops` = 6 N D.

        N = G (C/6)^(beta/(alpha+beta)), D = (C/6) / N, G = (alpha A / (beta B))^(1/(alpha+beta)).
        Source: [hoffmann2022] equation 4.
        """
        both = self.parameters_power + self.tokens_power
        balance = self.parameters_power * self.parameters_scale / (self.tokens_power * self.tokens_scale)
        parameters = balance ** (1 / both) * (flops / 6) ** (self.tokens_power / both)
        return parameters, flops / 6 / parameters

    @classmethod
    def example(cls) -> "DenseLaw":
        """Constants near those of the literature."""
        return cls(
            *arrays(1.8, 480.0, 2000.0, 0.35, 0.37),
            fitted=Ranges(*arrays(1e7, 1e11, 1e9, 1e13)), errors=FitErrors(*arrays(*[0.01] * 5)),
        )  # fmt: skip
