"""A channel between two devices."""

import equinox as eqx
from jaxtyping import Array, Float

from ..fields import quantity


class Link(eqx.Module):
    """A point-to-point channel under the alpha-beta (Hockney) model: t = alpha_s + beta_s_per_byte * nbytes.

    Bandwidth is payload, per direction, per endpoint; energy counts a byte once from sender to receiver.
    """

    alpha_s: Float[Array, "*b"] = quantity()
    beta_s_per_byte: Float[Array, "*b"] = quantity()
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0)
