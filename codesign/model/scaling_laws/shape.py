"""Loss of effective model size to its shape: a correction of laws that know parameters alone."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...core.jax_typed import arrays
from .base import FittedRange, Number, TrainedModel


class Shapes(Module):
    """Least and most hidden sizes, layers, and hidden sizes over layers of the models a correction was fitted on."""

    least_width: Float[Array, "*b"] = quantity(low=1.0)
    most_width: Float[Array, "*b"] = quantity(low=1.0)
    least_depth: Float[Array, "*b"] = quantity(low=1.0)
    most_depth: Float[Array, "*b"] = quantity(low=1.0)
    least_aspect_ratio: Float[Array, "*b"] = quantity(low=0.01)
    most_aspect_ratio: Float[Array, "*b"] = quantity(low=0.01)

    def spans(self, width: Number, depth: Number) -> dict[str, FittedRange]:
        """Spans of hidden size m, layers l and m / l."""
        return {
            "widths": FittedRange(width, self.least_width, self.most_width),
            "layers": FittedRange(depth, self.least_depth, self.most_depth),
            "aspect_ratios": FittedRange(width / depth, self.least_aspect_ratio, self.most_aspect_ratio),
        }


class ShapeCorrection(Module):
    """The factor, 1 at the best shape, by which a shape raises what a law loses to finite size.

    Width and depth each leave a loss of their own, a m^-alpha + b l^-beta, beside that of finite data. At equal m^2 l,
    to which weights are proportional, their sum is least where alpha a m^-alpha = 2 beta b l^-beta, and the least is a
    power of m^2 l alone. The factor is the sum over that least: a posynomial over a monomial, log-convex in m and l.
    Laws that know parameters alone were fitted on shapes near the best one, so that they keep what they say there.

    Assumes: the factor holds for the size term of another law too; feed-forward width and heads follow the hidden size
    (shapes of these matter less: [kaplan2020] figure 5).
    Source: [liu2026depth] equation 3 and section 6, on the runs of [hoffmann2022].
    """

    width_scale: Float[Array, "*b"] = quantity(low=0.001)
    width_power: Float[Array, "*b"] = quantity(low=0.01, high=4.0)
    depth_scale: Float[Array, "*b"] = quantity(low=0.001)
    depth_power: Float[Array, "*b"] = quantity(low=0.01, high=4.0)
    ratio_error: Float[Array, "*b"] = quantity(doc="standard error of ln(depth_scale / width_scale)")
    fitted: Shapes = eqx.field(kw_only=True)

    def terms(self, model: TrainedModel) -> tuple[Array, Array]:
        """Nats a token lost to width and to depth."""
        return (
            self.width_scale * model.width**-self.width_power,
            self.depth_scale * model.depth**-self.depth_power,
        )

    def least(self, model: TrainedModel) -> Array:
        """Nats a token that the best shape of the same m^2 l loses."""
        over = self.width_power / (2 * self.depth_power)  # of the loss to depth over that to width, at the best shape
        across, along = 2 / self.width_power, 1 / self.depth_power
        wide, deep = across / (across + along), along / (across + along)  # scales enter by their shares: no overflow
        scales = self.width_scale**wide * (self.depth_scale / over) ** deep
        return (1 + over) * scales * (model.width**2 * model.depth) ** (-1 / (across + along))

    def factor(self, model: TrainedModel) -> Array:
        """At least 1."""
        of_width, of_depth = self.terms(model)
        return (of_width + of_depth) / self.least(model)

    def deviation(self, model: TrainedModel) -> Array:
        """Standard deviation of the factor, first order in `ratio_error`: its logarithm's slope in ln(b / a) times it.

        The slope is depth's share of the loss less that share at the best shape, where it is zero.
        """
        of_width, of_depth = self.terms(model)
        best = self.width_power / (self.width_power + 2 * self.depth_power)
        share = of_depth / (of_width + of_depth)
        return self.factor(model) * jnp.abs(share - best) * self.ratio_error

    def best_aspect_ratio(self, model: TrainedModel) -> Array:
        """Hidden size over layers of the best shape of the same m^2 l."""
        of_width = self.least(model) / (1 + self.width_power / (2 * self.depth_power))
        width = (self.width_scale / of_width) ** (1 / self.width_power)
        return width**3 / (model.width**2 * model.depth)

    @classmethod
    def example(cls) -> "ShapeCorrection":
        """Constants near those of the literature."""
        return cls(*arrays(340.0, 1.0, 5.0, 1.2, 0.1), fitted=Shapes(*arrays(128.0, 16384.0, 4.0, 200.0, 10.0, 400.0)))
