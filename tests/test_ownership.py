"""What owning or renting a cluster costs, in numbers that a reader can redo by hand."""

import jax
import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.short_names import full_names
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


def test_a_region_costs_its_ratio_of_the_list():
    """Two H100 are 28.1351 USD/h in europe-west4 and 22.1225 in us-central1: 3 USD/h become 3.8154."""
    told = ("accelerator=h100_sxm", "model=llama31_8b", "workload=serving", "framework=none")
    there = scenario_from_config(*told, "region=europe-west4").cluster.facility.ownership
    listed = scenario_from_config(*told, "ownership=cloud").cluster.facility.ownership
    nothing, count = jnp.asarray(0.0), jnp.asarray(10.0)
    assert float(listed.usd_per_s(nothing, count, nothing)) * 3600 == pytest.approx(30.0)
    assert float(there.usd_per_s(nothing, count, nothing)) * 3600 == pytest.approx(30 * 28.1351 / 22.1225, rel=1e-4)
    same = scenario_from_config(*told, "ownership=cloud", "ownership.region=Europe_West4").cluster.facility.ownership
    assert float(same.usd_per_s(nothing, count, nothing)) == float(there.usd_per_s(nothing, count, nothing))
    base = scenario_from_config(*told, "region=us-central1").cluster.facility.ownership
    assert float(base.usd_per_s(nothing, count, nothing)) == float(listed.usd_per_s(nothing, count, nothing))


def test_a_rent_is_the_product_of_the_list_and_the_region():
    """Slopes of the logarithm along rent and ratio are one; the plain call, `jit` and `vmap` agree."""

    def log_rent(logs):
        rent, ratio = jnp.exp(logs)
        place = Cloud({"h100_sxm": rent}, "h100_sxm", "europe_west4", {"europe_west4": ratio, "us_east1": 1.0})
        return jnp.log(place.usd_per_s(jnp.asarray(0.0), jnp.asarray(8.0), jnp.asarray(1.0)))

    at = jnp.log(jnp.array([3.0, 1.27]))
    slopes = jax.grad(log_rent)(at)
    step = 1e-6
    for axis in range(2):
        along = step * jnp.eye(2)[axis]
        numeric = (log_rent(at + along) - log_rent(at - along)) / (2 * step)
        assert float(slopes[axis]) == pytest.approx(float(numeric), rel=1e-6)
        assert float(slopes[axis]) == pytest.approx(1.0)
    assert float(jax.jit(log_rent)(at)) == pytest.approx(float(log_rent(at)), rel=1e-12)
    assert float(jax.vmap(log_rent)(at[None])[0]) == pytest.approx(float(log_rent(at)), rel=1e-12)


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ("europe-wst4", r"no region 'europe_wst4' \(did you mean 'europe_west4'\?\); give its ratio"),
        ("mars", r"no region 'mars' \(known: africa_south1, asia_east1"),
    ],
)
def test_an_unknown_region_is_refused_with_those_that_are_known(region: str, said: str):
    with pytest.raises(ConfigError, match=said):
        scenario_from_config("accelerator=h200", "model=llama31_8b", "workload=serving", f"region={region}")


def test_a_region_of_ones_own_is_a_ratio_under_its_name():
    here = scenario_from_config("accelerator=h200", "region=basement", "ownership.region_ratio.basement=0.5")
    usd = here.cluster.facility.ownership.usd_per_s(jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(1.0))
    assert float(usd) * 3600 == pytest.approx(4.0 * 0.5)


def test_a_region_means_a_cloud_unless_ownership_is_chosen():
    assert full_names(["region=europe-west4", "tp=8"]) == [
        "ownership=cloud", "cluster.facility.ownership.region=europe-west4", "plan.tp=8",
    ]  # fmt: skip
    assert full_names(["ownership=mine", "region=here"]) == [
        "ownership=mine", "cluster.facility.ownership.region=here",
    ]  # fmt: skip
