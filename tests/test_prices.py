"""One file of purchase prices: what it puts in place of the catalogue's, and what it refuses."""

import pytest

from codesign.config import available, compose, conf_dir, scenario_from_config
from codesign.config.groups import read_yaml
from codesign.config.user_files import own_files
from codesign.core.errors import ConfigError

LISTED = read_yaml(conf_dir() / "prices" / "catalogue_2026.yaml")["usd_per_device"]
SMALL = "calibration=h100_sxm_roofline"


def whole(*overrides: str) -> float:
    """Price of an accelerator with its memory."""
    accelerator = scenario_from_config(SMALL, *overrides).cluster.accelerator
    return float(accelerator.capex_usd() + accelerator.hbm.price_usd())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_shipped_list_says_what_the_catalogue_says(name):
    assert whole(f"accelerator={name}") == pytest.approx(LISTED[name], rel=2e-3)
    assert whole(f"accelerator={name}", "prices=catalogue_2026") == pytest.approx(LISTED[name], rel=1e-12)


def test_whoever_has_a_price_is_listed():
    priced = {
        name for name in available("accelerator")
        if "price_usd" in read_yaml(conf_dir() / "accelerator" / f"{name}.yaml")["cluster"]["accelerator"]
    }  # fmt: skip
    assert priced == set(LISTED)


@pytest.fixture
def quotes(tmp_path):
    """A writer of a list of one's own."""

    def write(text: str) -> str:
        (tmp_path / "prices").mkdir(exist_ok=True)
        (tmp_path / "prices" / "quotes.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path)

    return write


@pytest.mark.slow
def test_a_list_of_ones_own_prices_the_whole_device_and_memory_that_varies_still_costs(quotes):
    with own_files(quotes("usd_per_device: {h200: $28k, b200: 42000}\n")):
        assert whole("accelerator=h200", "prices=quotes") == pytest.approx(28_000.0)
        assert whole("accelerator=b200", "prices=quotes") == pytest.approx(42_000.0)
        more = whole("accelerator=h200", "prices=quotes", "cluster.accelerator.hbm.capacity_bytes=302.796e9")
        assert more == pytest.approx(28_000.0 + 151.398e9 * 18e-9)
        typed = whole("accelerator=h200", "prices=quotes", "cluster.accelerator.price_usd=1000")
        assert typed == pytest.approx(1000.0 + 151.398e9 * 18e-9)
        told = compose(["accelerator=h200", "prices=quotes"]).cluster.accelerator.provenance.price_usd
    assert (told.kind, told.note) == ("assumed", "28,000 USD listed less memory, 2,725 USD")


@pytest.mark.slow
def test_a_pool_for_prompts_is_priced_by_the_same_list(quotes):
    asked = ("accelerator=h200", "prices=quotes", "workload=disaggregated", "prefill=other")
    with own_files(quotes("usd_per_device: {h200: 28000, b200: 42000}\n")):
        assert whole(*asked) == pytest.approx(28_000.0)
        pool = scenario_from_config(*asked).cluster.prefill.cluster.accelerator
    assert float(pool.capex_usd() + pool.hbm.price_usd()) == pytest.approx(42_000.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "asked", "words"),
    [
        ("usd_per_device: {h20: 9000}", (), "prices.usd_per_device has no price of 'h200' (did you mean 'h20'?)"),
        ("usd_per_device: {h200: cheap}", (), "prices.usd_per_device.h200 = 'cheap' is no price"),
        ("usd_per_device: {h200: -1}", (), "h200 = -1 is no price"),
        ("usd_per_device: {h200: .inf}", (), "h200 = inf is no price"),
        ("usd_per_device: {h200: true}", (), "h200 = True is no price"),
        ("usd_per_device: {h200: 28 GB}", (), "h200 = '28 GB' is measured in something else"),
        ("usd_per_device: {h200: 2000}", (), "2000 USD is not more than its memory costs, 2,725 USD"),
        ("usd_per_devise: {h200: 2000}", (), "prices: no key 'usd_per_devise' (did you mean 'usd_per_device'?)"),
        ("usd_per_device: {}", (), "prices: it lists no price"),
        ("{}", (), "prices: it lists no price"),
        ("usd_per_device: {h200: 28000}", ("memory=photonic_pool",), "with its own memory"),
    ],
)
def test_a_list_that_says_nothing_is_refused_in_one_line(quotes, text, asked, words):
    with own_files(quotes(f"{text}\n")), pytest.raises(ConfigError) as refused:
        compose(["accelerator=h200", "prices=quotes", *asked])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
