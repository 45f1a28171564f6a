"""Mixtures of experts: how many there are, how fine they are."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import arrays, asarray
from .base import AbstractLaw, FittedRange, Number, Ranges, TrainedModel, extrapolating


class JointLaw(AbstractLaw):
    """L = a E'^delta N^(alpha + gamma ln E') + b E'^omega D^(beta + zeta ln E') + c.

    1/E' = 1 / (E - 1 + 1 / (1/E_start - 1/E_max)) + 1/E_max; N counts the weights that a token uses, embedding and head
    among them; E = `Trained.expansion`, 1 where dense. For a number of experts a sum of powers of N and D: log-convex.

    Assumes: experts as wide as the dense layer they replace, one visited by each token.
    Source: [ludziejewski2025] equation 6 and table 3.
    """

    constant: Float[Array, "*b"] = quantity()
    parameters_scale: Float[Array, "*b"] = quantity()
    parameters_power: Float[Array, "*b"] = quantity(low=-2.0, high=0.0)
    parameters_scale_power: Float[Array, "*b"] = quantity(low=-2.0, high=2.0)
    parameters_slope: Float[Array, "*b"] = quantity(low=-0.1, high=0.1)
    tokens_scale: Float[Array, "*b"] = quantity()
    tokens_power: Float[Array, "*b"] = quantity(low=-2.0, high=0.0)
    tokens_scale_power: Float[Array, "*b"] = quantity(low=-2.0, high=2.0)
    tokens_slope: Float[Array, "*b"] = quantity(low=-0.1, high=0.1)
    experts_start: Float[Array, "*b"] = quantity(low=1.0, high=10.0)
    experts_most: Float[Array, "*b"] = quantity(low=20.0)
    fitted: Ranges = eqx.field(kw_only=True)
    most_experts: Float[Array, "*b"] = quantity(low=1.0, default=32.0, doc="over visited ones, in the fit")
    extrapolate: Float[Array, "*b"] = extrapolating()

    def effective(self, experts: Number) -> Array:
        """E': experts that saturate at both ends."""
        start = 1 / (1 / self.experts_start - 1 / self.experts_most)
        return 1 / (1 / (experts - 1 + start) + 1 / self.experts_most)

    def reduced(self, experts: Number) -> tuple[Array, Array, Array, Array]:
        """(m, mu, n, nu) of L = m N^mu + n D^nu + c for a number of experts."""
        effective = self.effective(experts)
        log = jnp.log(effective)
        return (
            self.parameters_scale * effective**self.parameters_scale_power,
            self.parameters_power + self.parameters_slope * log,
            self.tokens_scale * effective**self.tokens_scale_power,
            self.tokens_power + self.tokens_slope * log,
        )

    def at(self, active: Number, tokens: Number, experts: Number) -> Array:
        """Loss of active weights, tokens and experts."""
        return self.constant + self.above(active, tokens, experts)

    def above(self, active: Number, tokens: Number, experts: Number) -> Array:
        """Reducible loss: what a larger run would take off."""
        m, mu, n, nu = self.reduced(experts)
        return m * active**mu + n * tokens**nu

    def least(self) -> Array:
        """c."""
        return self.constant

    def reducible(self, model: TrainedModel) -> Array:
        """By weights in use."""
        return self.above(model.active, model.tokens, model.expansion)

    def spans(self, model: TrainedModel) -> dict[str, FittedRange]:
        """Weights in use, tokens, experts."""
        experts = {"experts": FittedRange(model.expansion, asarray(1.0), self.most_experts)}
        return self.fitted.spans(model.active, model.tokens) | experts

    def optimum(self, flops: Number, experts: Number) -> tuple[Array, Array]:
        """(active weights, tokens) of least loss for `flops` = 6 N D. Source: [ludziejewski2025] equation 7."""
        m, mu, n, nu = self.reduced(experts)
        active = (mu * m / (nu * n)) ** (-1 / (mu + nu)) * (flops / 6) ** (nu / (mu + nu))
        return active, flops / 6 / active

    @classmethod
    def example(cls) -> "JointLaw":
        """Constants near those of the literature."""
        return cls(
            *arrays(1.4, 36.0, -0.19, -0.23, 0.01, 36.0, -0.18, 0.55, -0.026, 2.07, 290.0),
            fitted=Ranges(*arrays(1e7, 1e10, 1e8, 1e12)),
        )


class FineGrainedLaw(AbstractLaw):
    """L = c + (g / G^gamma + a) / N^alpha + b / D^beta.

    N counts all weights but embedding and head, G = `Trained.granularity`: into how many experts a dense layer is cut,
    of which as many are visited. A sum of powers of N and D, and of G: log-convex in all three.

    Assumes: the number of experts over those visited that the law was fitted at (64).
    Source: [krajewski2024] equation 9 and table 1.
    """

    constant: Float[Array, "*b"] = quantity()
    parameters_scale: Float[Array, "*b"] = quantity()
    parameters_power: Float[Array, "*b"] = quantity(low=0.01, high=2.0)
    granularity_scale: Float[Array, "*b"] = quantity()
    granularity_power: Float[Array, "*b"] = quantity(high=2.0)
    tokens_scale: Float[Array, "*b"] = quantity()
    tokens_power: Float[Array, "*b"] = quantity(low=0.01, high=2.0)
    fitted: Ranges = eqx.field(kw_only=True)
    expansion: Float[Array, "*b"] = quantity(low=1.0, default=64.0, doc="experts over visited ones, in the fit")
    most_granularity: Float[Array, "*b"] = quantity(low=1.0, default=16.0)
    extrapolate: Float[Array, "*b"] = extrapolating()

    def at(self, parameters: Number, tokens: Number, granularity: Number) -> Array:
        """Loss of weights, tokens and granularity."""
        return self.constant + self.above(parameters, tokens, granularity)

    def above(self, parameters: Number, tokens: Number, granularity: Number) -> Array:
        """Reducible loss: what a larger run would take off."""
        scale = self.granularity_scale * granularity**-self.granularity_power + self.parameters_scale
        return scale * parameters**-self.parameters_power + self.tokens_scale * tokens**-self.tokens_power

    def least(self) -> Array:
        """c."""
        return self.constant

    def reducible(self, model: TrainedModel) -> Array:
        """By weights but embedding and head."""
        return self.above(model.inner, model.tokens, model.granularity)

    def spans(self, model: TrainedModel) -> dict[str, FittedRange]:
        """Weights, tokens, granularity, and the one expansion rate there was, give or take a per cent."""
        return self.fitted.spans(model.inner, model.tokens) | {
            "granularity": FittedRange(model.granularity, asarray(1.0), self.most_granularity),
            "expansion": FittedRange(model.expansion, 0.99 * self.expansion, 1.01 * self.expansion),
        }

    @classmethod
    def example(cls) -> "FineGrainedLaw":
        """Constants near those of the literature."""
        return cls(*arrays(0.5, 18.0, 0.115, 2.0, 0.58, 31.0, 0.147), fitted=Ranges(*arrays(1e7, 1e10, 1e9, 1e12)))
