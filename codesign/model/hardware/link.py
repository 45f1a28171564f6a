"""A channel between two devices."""

from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module


class Link(Module):
    """A point-to-point channel under the alpha-beta (Hockney) model: t = alpha_s + beta_s_per_byte * nbytes.

    Bandwidth is payload, per direction, per endpoint; energy counts a byte once from sender to receiver.

    A channel that is a circuit must be pointed at a new partner before it carries a byte: an algorithm that changes
    partners pays `reconfiguration_s` for it (0 on packet switches), one that keeps them does not. `lanes` is into how
    many equal parts the channel can be divided among partners served at once (0: any share).
    """

    alpha_s: Float[Array, "*b"] = quantity(usual=(5e-7, 1e-5))
    beta_s_per_byte: Float[Array, "*b"] = quantity(low=1e-18, usual=(2e-13, 4e-11), doc="1 / payload bytes per second")
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(1e-11, 8.8e-11))
    reconfiguration_s: Float[Array, "*b"] = quantity(default=0.0, doc="to point the channel at another partner")
    lanes: Float[Array, "*b"] = quantity(default=0.0, doc="equal parts of the channel, 0 for any share")
