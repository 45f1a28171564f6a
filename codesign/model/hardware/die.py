"""The compute dies of a package as a design: area and clock of their engines, and what they cost in power and money."""

from jaxtyping import Array, Float

from ...core.fields import Module, quantities, quantity
from ...core.jax_typed import asarray
from ...core.smooth import used_share

# The edge of the die as a resource that memory stacks, links and photonic ports compete for.


class Shoreline(Module):
    """`edge_mm` of edge of each die, and the bandwidth that a millimetre of each technology carries.

    used = sum over technologies of bandwidth / density. HBM is counted by its PHY: bandwidth of a stack over the
    millimetres of its PHY. A technology without a density needs no edge (memory of the host).

    Log-convex in bandwidths, densities and edge: a posynomial over a monomial.
    Source: [ding2025pfa] section 3.4, the beachfront argument.
    """

    edge_mm: Float[Array, "*b"] = quantity(low=1e-3, doc="die edge that may carry signals", usual=(72.0, 72.0))
    bytes_per_s_per_mm: dict[str, Float[Array, "*b"]] = quantities(low=1.0, usual=(6e10, 5e11))

    def used_mm(self, bytes_per_s: dict[str, Array]) -> Array:
        """Millimetres that these bandwidths take."""
        total = asarray(0.0)
        for technology, rate in bytes_per_s.items():
            if technology in self.bytes_per_s_per_mm:
                total = total + rate / self.bytes_per_s_per_mm[technology]
        return total

    def used_share(self, bytes_per_s: dict[str, Array], dies: Array | float = 1.0) -> Array:
        """Part of the edge of so many dies that is taken; a design can be built up to one."""
        return used_share(self.used_mm(bytes_per_s), dies * self.edge_mm)


class Die(Module):
    """Engines of `engines_mm2` at `clock_hz` on `dies` dies; an accelerator's numbers are those of one nominal die.

        peak         = peak0 a f              a = engines_mm2 / nominal_engines_mm2, f = clock_hz / nominal_clock_hz
        energy/FLOP  = energy0 f^(2 v)        supply voltage ~ f^v, switching energy ~ voltage squared
        board power  = power0 (1 - s + s a f^(1 + 2 v))         s = engine_power_share, of rated and of idle power
        good silicon = n A (1 + A defects / k)^k (1 + j (n - 1))        n = dies, A = engines_mm2 / n + other_mm2
        price        = price0 (1 - q + q silicon / silicon0)    q = silicon_price_share

    Silicon is area over yield; j is what is lost in joining a further die. Used shares (`limits`, feasible up to 1):
    area of a die A / reticle_mm2, package power / package_w. The edge of a die comes with each (`Shoreline`).

    Log-convex in area, clock and dies: posynomials, products of them and powers of at least one.

    Assumes: other circuits (cache, memory and link interfaces, schedulers) are on each die and keep their area; dies
    stand in a row and join along sides that carry nothing else, at the speed and energy of one die; launch times and
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
    dies: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0, doc="of a package, that share the engines")
    joining_loss: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="of a package, by joining one more die")

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
        nominal = self._good_mm2(self.nominal_engines_mm2 + self.other_mm2)
        return 1 - self.silicon_price_share + self.silicon_price_share * self.good_mm2() / nominal

    def good_mm2(self) -> Array:
        """Silicon that a good package takes."""
        joined = 1 - self.joining_loss + self.joining_loss * self.dies
        return self.dies * self._good_mm2(self._area_mm2()) * joined

    def _area_mm2(self) -> Array:
        """Area of one die, mm²."""
        return self.engines_mm2 / self.dies + self.other_mm2

    def _good_mm2(self, area: Array) -> Array:
        """Silicon that a good die of this area takes: over the negative-binomial yield."""
        return area * (1 + area * self.defects_per_mm2 / self.clustering) ** self.clustering

    def limits(self, package_w: Array) -> dict[str, Array]:
        """Used shares of what bounds the die and its package."""
        return {
            "area": used_share(self._area_mm2(), self.reticle_mm2),
            "package_power": used_share(package_w, self.package_w),
        }
