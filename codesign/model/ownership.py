"""Ownership of a cluster, and its cost beside electricity: bought with money that costs interest, or rented.

A facility without an owner writes the price off evenly, which is what comparisons of hardware are usually made with.
"""

import abc

from jaxtyping import Array, Float

from ..core.errors import ConfigError, suggestion
from ..core.fields import Module, quantities, quantity, static
from ..core.short_names import option_name
from ..core.units import HOUR_S, YEAR_S


class AbstractOwnership(Module):
    """Cost of a cluster for each second of its life."""

    @abc.abstractmethod
    def usd_per_s(self, capex_usd: Array, devices: Array, amortisation_s: Array) -> Array:
        """Dollars per second of the calendar, whether or not anything runs.

        Args:
            capex_usd: of the whole cluster.
            devices: accelerators.
            amortisation_s: over which it is written off.
        """

    @abc.abstractmethod
    def energy_share(self) -> float:
        """Share of the electricity that is paid apart."""


class OnPremises(AbstractOwnership):
    """Price less what it is sold for, interest on the money tied up, upkeep and staff.

        usd/s = capex ((1 - residual) / life + (interest (1 + residual) / 2 + upkeep) / year) + devices staff / year

    Log-convex in prices, counts, interest and 1 / life.

    Assumes: straight-line write-off to the residual value, so that on average (1 + residual) / 2 of the price is tied
    up; simple interest; no tax.
    """

    interest_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="cost of capital, a year")
    residual_ratio: Float[Array, "*b"] = quantity(high=0.99, default=0.0, doc="share of the price that a sale brings")
    maintenance_ratio: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="repair and spares, share of the price a year"
    )
    staff_usd: Float[Array, "*b"] = quantity(default=0.0, doc="people, dollars per accelerator and year")

    def usd_per_s(self, capex_usd: Array, devices: Array, amortisation_s: Array) -> Array:
        """See the class."""
        tied = self.interest_ratio * (1 + self.residual_ratio) / 2
        share = (1 - self.residual_ratio) / amortisation_s + (tied + self.maintenance_ratio) / YEAR_S
        return capex_usd * share + devices * self.staff_usd / YEAR_S

    def energy_share(self) -> float:
        """The owner pays for it."""
        return 1.0

    @classmethod
    def example(cls) -> "OnPremises":
        """Money at 8 %, a tenth of the price at the end."""
        return cls(0.08, 0.1, 0.02, 100.0)


class Cloud(AbstractOwnership):
    """An hourly price per accelerator that includes host, network, building and electricity.

        usd/s = devices usd_per_device_h region_ratio / 3600

    The price of the cluster (`capex_usd`) is then the landlord's affair, and told all the same.

    Args:
        usd_per_device_h: device -> rent where no region is named.
        device: the one that is rented.
        region: where, in the provider's spelling, hyphens and underscores alike; none: where the list holds.
        region_ratio: region -> its rent over that of the list.

    Assumes: rented by the hour of the calendar, so that hours in which nothing runs are paid too (`utilisation`); every
    device costs more in a region by the same ratio.
    """

    usd_per_device_h: dict[str, Float[Array, "*b"]] = quantities(low=1e-3)
    device: str = static(default="")
    region: str = static(default="", converter=option_name)
    region_ratio: dict[str, Float[Array, "*b"]] = quantities(low=0.1, high=10.0, optional=True)

    def __check_init__(self) -> None:
        """There must be a price for the device, and a ratio for the region."""
        if self.device not in self.usd_per_device_h:
            hint = suggestion(self.device, self.usd_per_device_h)
            raise ConfigError(f"usd_per_device_h has no price for {self.device!r}{hint}; give one under that name")
        if self.region and self.region not in self.region_ratio:
            hint = suggestion(self.region, self.region_ratio)
            raise ConfigError(f"region_ratio has no region {self.region!r}{hint}; give its ratio under that name")

    def usd_per_s(self, capex_usd: Array, devices: Array, amortisation_s: Array) -> Array:
        """See the class."""
        del capex_usd, amortisation_s
        rent = devices * self.usd_per_device_h[self.device] / HOUR_S
        return rent * self.region_ratio[self.region] if self.region else rent

    def energy_share(self) -> float:
        """None: it is in the price."""
        return 0.0

    @classmethod
    def example(cls) -> "Cloud":
        """At three dollars an hour, and a fifth more where it is rented."""
        return cls({"h100_sxm": 3.0}, "h100_sxm", "europe_west4", {"europe_west4": 1.2})
