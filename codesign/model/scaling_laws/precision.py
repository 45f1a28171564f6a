"""Models trained in few bits: a model of fewer parameters."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import arrays, asarray
from .base import AbstractLaw, BitWidths, FittedRange, Ranges, TrainedModel, extrapolating
from .shape import ShapeCorrection


class PrecisionLaw(AbstractLaw):
    """L = A / N_eff^alpha + B / D^beta + E, N_eff = N prod (1 - exp(-P_x / gamma_x)).

    N counts all weights but embedding and head; P are bits of weights, activations and KV cache in training. Weights
    that are served in fewer bits are rounded once more after training, which adds
    C_T D^gamma_D / N^gamma_N exp(-P / gamma): more tokens then also hurt. Sums of powers of N and D:
    log-convex in both.

    Assumes: the form of the main text; the fit's table also has offsets of P, with which its constants were found.
    Source: [kumar2024] equations 2 to 4 and table 2.
    """

    entropy: Float[Array, "*b"] = quantity()
    parameters_scale: Float[Array, "*b"] = quantity()
    tokens_scale: Float[Array, "*b"] = quantity()
    parameters_power: Float[Array, "*b"] = quantity(low=0.01, high=2.0)
    tokens_power: Float[Array, "*b"] = quantity(low=0.01, high=2.0)
    weights_bits: Float[Array, "*b"] = quantity(low=0.01, high=100.0)
    activations_bits: Float[Array, "*b"] = quantity(low=0.01, high=100.0)
    kv_cache_bits: Float[Array, "*b"] = quantity(low=0.01, high=100.0)
    rounding_scale: Float[Array, "*b"] = quantity()
    rounding_tokens_power: Float[Array, "*b"] = quantity(high=2.0)
    rounding_parameters_power: Float[Array, "*b"] = quantity(high=2.0)
    rounding_bits: Float[Array, "*b"] = quantity(low=0.01, high=100.0)
    fitted: Ranges = eqx.field(kw_only=True)
    shape: ShapeCorrection | None = None
    extrapolate: Float[Array, "*b"] = extrapolating()

    def kept(self, bits: BitWidths) -> Array:
        """N_eff over N."""
        scales = (self.weights_bits, self.activations_bits, self.kv_cache_bits)
        share = asarray(1.0)
        for count, scale in zip(bits, scales, strict=True):
            share = share * (1 - jnp.exp(-count / scale))
        return share

    def least(self) -> Array:
        """E."""
        return self.entropy

    def reducible(self, model: TrainedModel) -> Array:
        """By weights but embedding and head, bits of training and of serving."""
        parameters = model.inner
        of_size = self.parameters_scale * (parameters * self.kept(model.bits)) ** -self.parameters_power
        of_size = of_size * (1.0 if self.shape is None else self.shape.factor(model))
        of_data = self.tokens_scale * model.tokens**-self.tokens_power
        rounded = self.rounding_scale * model.tokens**self.rounding_tokens_power
        rounded = (
            rounded * parameters**-self.rounding_parameters_power * jnp.exp(-model.served_bits / self.rounding_bits)
        )
        return of_size + of_data + rounded

    def spans(self, model: TrainedModel) -> dict[str, FittedRange]:
        """Weights, tokens and the fewest bits, and the shape where it counts."""
        fewest = asarray(min(model.bits))
        bits = {"bits": FittedRange(fewest, asarray(3.0), asarray(16.0))}
        shapes = {} if self.shape is None else self.shape.fitted.spans(model.width, model.depth)
        return self.fitted.spans(model.inner, model.tokens) | bits | shapes

    @classmethod
    def example(cls) -> "PrecisionLaw":
        """Constants near those of the literature."""
        numbers = (2.8, 4300.0, 18000.0, 0.5, 0.5, 2.7, 2.2, 1.0, 0.06, 0.5, 0.34, 0.6)
        return cls(*arrays(*numbers), fitted=Ranges(*arrays(1e7, 1e10, 1e9, 1e12)))
