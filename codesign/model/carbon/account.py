"""Carbon of a cluster: of making it, by die area and bytes of memory; of running it, by region and hour."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, quantities, quantity
from ...core.jax_typed import arrays, asarray
from ...core.smooth import at_least, at_most
from ...core.units import KWH

HOURS = 24
SURVEYS = "life-cycle assessments of parts"


class PowerGrid(Module):
    """Grams of CO2-equivalent for a kilowatt-hour, on average and by the hour of the day.

    `by_hour` are ratios to the mean (keys `h00` to `h23`, none left out, or none at all). A job that may move in time
    runs in the `hours_a_day` hours of the lowest intensity; elapsed time, and what the cluster costs while it waits,
    grow by 24 / `hours_a_day`.

    Assumes: the mean intensity of supply, not that of the plant which answers one more watt; a day like every other;
    stopping and starting take no time.
    """

    g_per_kwh: Float[Array, "*b"] = quantity(usual=(10.0, 1000.0, "grids of countries"))
    by_hour: dict[str, Float[Array, "*b"]] = quantities(high=10.0)
    hours_a_day: Float[Array, "*b"] = quantity(
        low=1.0, high=24.0, default=24.0, doc="in which a job runs that may wait"
    )

    def waits(self) -> Array:
        """Elapsed time over time at work."""
        return HOURS / self.hours_a_day

    def kg_per_j(self) -> Array:
        """Carbon of energy in the hours in which the job runs, kg/J.

        The k lowest hours weigh 1 each, the next one what is left of k.
        """
        mean = self.g_per_kwh / 1e3 / KWH
        if not self.by_hour:
            return mean
        hours = list(self.by_hour.values())
        total = asarray(0.0)
        for index, hour in enumerate(hours):
            before = asarray(0.0)
            for other, value in enumerate(hours):
                before = before + jnp.where((value < hour) | ((value == hour) & (other < index)), 1.0, 0.0)
            total = total + hour * at_most(at_least(self.hours_a_day - before, 0.0), 1.0)
        return mean * total / self.hours_a_day

    def __check_init__(self) -> None:
        """All hours, or none."""
        wanted = {f"h{hour:02d}" for hour in range(HOURS)}
        if self.by_hour and set(self.by_hour) != wanted:
            missing = ", ".join(sorted(wanted ^ set(self.by_hour))[:3])
            raise ConfigError(f"by_hour must have the keys h00 to h23, or none: {missing} ...")


class Carbon(Module):
    """Carbon of making a cluster and of running it.

        made of a device = die area * kg per cm2 / yield + HBM * kg per byte + DDR * kg per byte + the rest of its node
        of a step        = made * time / (life * in use) + energy * grid

    Log-convex where time, energy and memory are: a sum of products. Die area is the accelerator's own where its die is
    a design (`cluster.accelerator.die`).

    Assumes: emissions in proportion to area and bytes; every tier of an accelerator's memory is made as HBM is; network
    and building are part of `other_kg` or left out; transport and end of life are left out.
    Source: [gupta2022act] equations 3 to 6.
    """

    grid: PowerGrid
    die_mm2: Float[Array, "*b"] = quantity(low=1.0, high=1e5, doc="logic of one device", usual=(100.0, 3000.0, SURVEYS))
    kg_per_cm2: Float[Array, "*b"] = quantity(doc="of logic, before yield", usual=(0.5, 5.0, SURVEYS))
    hbm_kg_per_byte: Float[Array, "*b"] = quantity(usual=(1e-11, 1e-9, SURVEYS))
    ddr_kg_per_byte: Float[Array, "*b"] = quantity(usual=(1e-11, 1e-9, SURVEYS))
    die_yield: Float[Array, "*b"] = quantity(low=0.01, high=1.0, default=0.875)
    other_kg: Float[Array, "*b"] = quantity(
        default=0.0, doc="of the node's rest, for each device", usual=(10.0, 1000.0, SURVEYS)
    )

    def made_kg(self, hbm_bytes: Array, ddr_bytes: Array, die_mm2: Array | None = None) -> dict[str, Array]:
        """Carbon of making one device, by part, kg."""
        area = self.die_mm2 if die_mm2 is None else die_mm2
        return {
            "die": area / 100 * self.kg_per_cm2 / self.die_yield,
            "hbm": hbm_bytes * self.hbm_kg_per_byte,
            "ddr": ddr_bytes * self.ddr_kg_per_byte,
            "other": self.other_kg,
        }

    @classmethod
    def example(cls) -> "Carbon":
        """A grid without hours."""
        return cls(PowerGrid(asarray(400.0), {}), *arrays(800.0, 2.5, 2e-10, 6.5e-11))
