"""The compute die as a design: area and clock of its engines, and what they cost in power and money."""

import equinox as eqx
from jaxtyping import Array, Float

from ..fields import quantity
from ..smooth import used_share


class Die(eqx.Module):
    """Engines of `engines_mm2` at `clock_hz`; an accelerator's numbers are those at the nominal area and clock.

        peak         = peak0 a f              a = engines_mm2 / nominal_engines_mm2, f = clock_hz / nominal_clock_hz
        energy/FLOP  = energy0 f^(2 v)        supply voltage ~ f^v, switching energy ~ voltage squared
        board power  = power0 (1 - s + s a f^(1 + 2 v))         s = engine_power_share, of rated and of idle power
        good silicon = A (1 + A defects / k)^k                  A = engines_mm2 + other_mm2; area over yield
        price        = price0 (1 - q + q silicon / silicon0)    q = silicon_price_share

    Used shares (`limits`, feasible up to 1): area A / reticle_mm2, package power / package_w.

    Log-convex in area and clock: posynomials, products of them and powers of at least one.

    Assumes: one die; other circuits (cache, memory and link interfaces, schedulers) keep their area; launch times and
    caches do not follow the clock; the law of voltage holds around the nominal clock, not near the lowest voltage.
    Source: [stapper1983] for the yield; the rest is what the words say.
    """

    engines_mm2: Float[Array, "*b"] = quantity(low=1.0, high=5000.0, doc="area of what computes")
    clock_hz: Float[Array, "*b"] = quantity(low=1e8, high=1e10)
    nominal_engines_mm2: Float[Array, "*b"] = quantity(low=1.0, high=5000.0)
    nominal_clock_hz: Float[Array, "*b"] = quantity(low=1e8, high=1e10)
    other_mm2: Float[Array, "*b"] = quantity(high=5000.0, default=0.0, doc="cache, interfaces, everything else")
    reticle_mm2: Float[Array, "*b"] = quantity(low=1.0, default=858.0, doc="largest die that one exposure prints")
    package_w: Float[Array, "*b"] = quantity(
        low=1.0, default=1e6, doc="heat that the package can lose, memory included"
    )
    voltage_exponent: Float[Array, "*b"] = quantity(high=3.0, default=0.5)
    engine_power_share: Float[Array, "*b"] = quantity(high=1.0, default=1.0)
    silicon_price_share: Float[Array, "*b"] = quantity(high=1.0, default=1.0)
    defects_per_mm2: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    clustering: Float[Array, "*b"] = quantity(low=1.0, high=100.0, default=3.0, doc="of defects, k")

    def engines(self) -> Array:
        """Engine area over the nominal one."""
        return self.engines_mm2 / self.nominal_engines_mm2

    def clock(self) -> Array:
        """Clock over the nominal one."""
        return self.clock_hz / self.nominal_clock_hz

    def peak_ratio(self) -> Array:
        """Peaks over the nominal ones."""
        return self.engines() * self.clock()

    def energy_ratio(self) -> Array:
        """Energy of an operation over the nominal one."""
        return self.clock() ** (2 * self.voltage_exponent)

    def power_ratio(self) -> Array:
        """Board power over the nominal one."""
        share = self.engine_power_share
        return 1 - share + share * self.peak_ratio() * self.energy_ratio()

    def price_ratio(self) -> Array:
        """Price over the nominal one."""
        nominal = self._good_mm2(self.nominal_engines_mm2)
        return 1 - self.silicon_price_share + self.silicon_price_share * self._good_mm2(self.engines_mm2) / nominal

    def good_mm2(self) -> Array:
        """Silicon that a good die takes."""
        return self._good_mm2(self.engines_mm2)

    def _good_mm2(self, engines_mm2: Array) -> Array:
        """Silicon that a good die takes: its area over the negative-binomial yield."""
        area = engines_mm2 + self.other_mm2
        return area * (1 + area * self.defects_per_mm2 / self.clustering) ** self.clustering

    def limits(self, package_w: Array) -> dict[str, Array]:
        """Used shares of what bounds the die and its package."""
        return {
            "area": used_share(self.engines_mm2 + self.other_mm2, self.reticle_mm2),
            "package_power": used_share(package_w, self.package_w),
        }
