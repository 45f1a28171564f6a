"""What owning or renting a cluster costs, in numbers that a reader can redo by hand."""

import jax
import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.ownership import Cloud, OnPremises
from codesign.model.scenario import Facility

YEAR = 365.25 * 86400.0


def test_without_interest_resale_and_staff_a_price_is_written_off_evenly():
    held = OnPremises().usd_per_s(jnp.asarray(1e6), jnp.asarray(8.0), jnp.asarray(4 * YEAR))
    assert float(held) == pytest.approx(1e6 / (4 * YEAR))


def test_interest_is_paid_on_what_is_tied_up_on_average():
    """A million over 4 years, a tenth left: 225,000 a year, 8 % of 550,000, 2 % upkeep, 8 x 100 of staff."""
    owned = OnPremises(0.08, 0.1, 0.02, 100.0)
    held = owned.usd_per_s(jnp.asarray(1e6), jnp.asarray(8.0), jnp.asarray(4 * YEAR))
    assert float(held) * YEAR == pytest.approx(225_000 + 44_000 + 20_000 + 800)


def test_rent_is_by_the_hour_and_includes_electricity():
    site = Facility(utilisation=0.5, ownership=Cloud({"h100_sxm": 3.0}, "h100_sxm"))
    usd = site.usd(jnp.asarray(1e9), jnp.asarray(10.0), jnp.asarray(3600.0), jnp.asarray(1e12))
    assert float(usd) == pytest.approx(10 * 3.0 / 0.5)


def test_without_an_owner_nothing_moves():
    site = Facility(utilisation=0.9)
    usd = site.usd(jnp.asarray(1e6), jnp.asarray(8.0), jnp.asarray(60.0), jnp.asarray(1e6))
    assert float(usd) == float(1e6 * 60.0 / (site.amortisation_s * site.utilisation) + 1e6 * site.usd_per_j)


def test_the_charge_is_log_convex_and_its_slopes_are_right():
    """Along the logarithms of price and interest; at the middle of a pair it is at most the geometric mean."""

    def charge(logs):
        capex, interest = jnp.exp(logs)
        return OnPremises(interest, 0.1, 0.02, 100.0).usd_per_s(capex, jnp.asarray(8.0), jnp.asarray(4 * YEAR))

    one, other = jnp.log(jnp.array([1e5, 0.01])), jnp.log(jnp.array([1e8, 0.5]))
    assert charge((one + other) / 2) <= jnp.sqrt(charge(one) * charge(other))
    step = 1e-6
    numeric = (charge(one + jnp.array([0.0, step])) - charge(one - jnp.array([0.0, step]))) / (2 * step)
    assert float(jax.grad(charge)(one)[1]) == pytest.approx(float(numeric), rel=1e-6)


def test_a_device_without_a_price_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"no price for 'mi355x'.*give one under that name"):
        scenario_from_config("accelerator=mi355x", "ownership=cloud")
    priced = scenario_from_config("accelerator=mi355x", "ownership=cloud", "+ownership.usd_per_device_h.mi355x=3.5")
    assert isinstance(priced.cluster.facility.ownership, Cloud)
