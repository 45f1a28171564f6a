"""A fleet of one's own against an API: price lists as they are written, break-even loads, the row of `codesign buy`."""

import math

import numpy as np
import pandas as pd
import pytest

from codesign.commands.api_prices import ApiPrices, SelfHostedFleet, api_prices, load_table, usd_per_request
from codesign.commands.buy import API, with_api
from codesign.commands.cli import main
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError


def test_a_list_is_read_and_a_request_paid():
    prices = api_prices("in=0.5, cached=0.1,out=$2")
    assert prices == ApiPrices(0.5, 0.1, 2.0)
    assert prices.usd(1000, 400, 100) == pytest.approx((600 * 0.5 + 400 * 0.1 + 100 * 2) / 1e6)
    assert api_prices("in=1,out=2").cached == 1.0


@pytest.mark.parametrize(("text", "expected"), [
    ("in=1", "in and out are needed"),
    ("", "in and out are needed"),
    ("in=1,out=-1", "no price of 0 or more"),
    ("in=1,out=nan", "no price of 0 or more"),
    ("in=1,out=1,in=2", "said twice"),
    ("input=1,out=1", "not one of in, cached, out"),
])  # fmt: skip
def test_wrong_lists_are_one_line(text, expected):
    with pytest.raises(ConfigError, match=expected) as result:
        api_prices(text)
    assert len(str(result.value).splitlines()) == 1


def test_an_api_needs_a_rate(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "llama31_8b", "--on", "h200", "--api", "in=1,out=1"]) == 2
    assert "add --rate" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_cached_prompts_of_a_scenario_are_paid_as_such():
    result = scenario_from_config("workload=continuous", "model=llama31_8b", "workload.cached_ratio=0.25")
    usd = usd_per_request(ApiPrices(1.0, 0.2, 4.0), result)
    assert usd == pytest.approx((0.75 * 2048 * 1.0 + 0.25 * 2048 * 0.2 + 512 * 4.0) / 1e6, rel=1e-6)


@pytest.mark.parametrize("price", [0.11, 0.13, 0.2, 0.35, 1.0])
def test_loads_from_which_owning_pays_are_those_of_all_loads_tried(price):
    """A replica of $0.3 a second serves three requests: dearer than the API's below $0.1 each."""
    fleet = SelfHostedFleet(0.3, 3.0)
    load = np.linspace(1e-3, 60, 600_000)
    cheaper = fleet.cost(load) <= price * load
    assert fleet.cheaper_from(price) == pytest.approx(load[cheaper][0], abs=2e-3)
    assert fleet.always_from(price) == pytest.approx(load[~cheaper][-1], abs=2e-3)


@pytest.mark.parametrize("price", [0.0, 0.05, 0.0999])
def test_an_api_below_a_full_replica_is_cheaper_at_every_load(price):
    fleet = SelfHostedFleet(0.3, 3.0)
    assert math.isinf(fleet.always_from(price))
    assert price == 0 or math.isinf(fleet.cheaper_from(price))
    table = load_table(fleet, price, 10.0, 1.0)
    assert (table["api_usd"] < table["own_usd"]).all()


def test_an_api_is_a_product_without_capital():
    own = pd.DataFrame([{
        "product": "a", "feasible": True, "why": "", "devices": 8.0, "devices_0": 8.0, "capex_usd": 1e5,
        "provisioned_power_w": 1e4, "usd_per_month": 5e3, "usd_over_horizon": 5e3 * 24,
    }])  # fmt: skip
    result = with_api(own, 1e-3, 2.0)
    assert list(result["product"]) == [API, "a"]
    assert result["capex_usd"].iloc[0] == 0
    assert result["usd_per_month"].iloc[0] == pytest.approx(1e-3 * 365.25 * 86400 / 12)
    unsold = with_api(own, math.nan, 2.0)
    assert list(unsold["product"]) == ["a", API]
    assert not unsold["feasible"].iloc[1]
