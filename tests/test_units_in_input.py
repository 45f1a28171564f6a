"""Numbers written with a unit: read in the leaf's own, refused where they measure something else."""

import pytest

from codesign import study_from_config
from codesign.config import compose, plain
from codesign.config.written import in_unit
from codesign.core.errors import ConfigError
from codesign.report.labels import number

WRITTEN = (
    ("50ms", "s", 0.05), ("4 years", "s", 4 * 365.25 * 86400), ("450GB/s", "B/s", 4.5e11), ("400 Gbps", "B/s", 5e10),
    ("112Gb/s", "b/s", 1.12e11), ("80GiB", "B", 80 * 2**30), ("80GB", "B", 8e10), ("$55M", "$", 5.5e7),
    ("55M", "$", 5.5e7), ("0.08 $/kWh", "$/J", 0.08 / 3.6e6), ("$0.08/kWh", "$/J", 0.08 / 3.6e6),
    ("5 pJ/bit", "J/B", 4e-11), ("989TFLOP/s", "FLOP/s", 9.89e14), ("814mm2", "mm²", 814.0),
    ("10/cm²", "/mm²", 0.1), ("900GB/s", "s/B", 1 / 9e11), ("4 $/GB", "$/B", 4e-9), ("5 $/(GB/s)", "$/(B/s)", 5e-9),
    ("5 pJ/bit", "W/(B/s)", 4e-11), ("90%", "", 0.9), ("40%", "%", 0.4), ("1.8GHz", "Hz", 1.8e9),
    ("3 dB/m", "dB/m", 3.0), ("0.7kW", "W", 700.0),
)  # fmt: skip


@pytest.mark.parametrize(("text", "unit", "value"), WRITTEN)
def test_a_number_with_a_unit_is_the_plain_one_of_its_leaf(text, unit, value):
    assert in_unit(text, unit, "key") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(("text", "unit"), [("50GB", "s"), ("450GB", "B/s"), ("3W", "J"), ("1 pJ/bit", "$/J")])
def test_a_unit_of_something_else_is_refused_with_what_is_allowed(text, unit):
    with pytest.raises(ConfigError, match=r"key = .* is measured in something else: it takes .*such as"):
        in_unit(text, unit, "key")


@pytest.mark.parametrize("text", ["none", "fast", "h100_sxm", "1e12", "8 apples", ""])
def test_other_words_are_left_alone(text):
    assert in_unit(text, "s", "key") is None


def test_units_are_taken_wherever_a_configuration_has_numbers():
    result = plain(compose([
        "experiment=train_gpt3_175b", "fabric.bandwidth_bytes_per_s=900GB/s", "facility.usd_per_j=0.1 $/kWh",
        "facility.utilisation=85%", "objective.limits.time_s=8000ms", "objective.limits.capex_usd=$60M",
        "space.hardware.scale_up_bandwidth.low=100GB/s", "search.proof.seconds=2min",
    ]))  # fmt: skip
    assert result["cluster"]["network"]["scale_up"]["fabric"]["bandwidth_bytes_per_s"] == 9e11
    assert result["cluster"]["facility"]["usd_per_j"] == pytest.approx(0.1 / 3.6e6)
    assert result["cluster"]["facility"]["utilisation"] == pytest.approx(0.85)
    assert result["objective"]["limits"] == {"time_s": 8.0, "capex_usd": 6e7, "provisioned_power_w": 1.4e6}
    assert result["space"]["hardware"]["scale_up_bandwidth"]["low"] == 1e11
    assert result["search"]["proof"]["seconds"] == 120.0


def test_names_and_words_stay_what_they_are():
    result = plain(compose(["model=llama2_7b", "name=50ms"]))
    assert result["name"] == "50ms"
    assert result["cluster"]["accelerator"]["name"] == "h100_sxm"


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("fabric.latency_s=3GB", "latency_s = '3GB'"),
        ("objective.limits.capex_usd=3ms", r"capex_usd = '3ms' .* takes \$"),
    ],
)
def test_a_wrong_unit_names_its_key(override, part):
    with pytest.raises(ConfigError, match=part):
        plain(compose(["experiment=train_gpt3_175b", override]))


def test_tables_show_what_people_quote():
    assert number(0.08 / 3.6e6, "$/J") == "$0.0800 per kWh"
    assert number(8.8e-11, "W/(B/s)").replace("\u202f", " ") == "11 pJ/bit"


def test_a_metric_that_does_not_exist_is_not_answered_with_a_number():
    with pytest.raises(ConfigError, match=r"tpot_z must be a number.*no unit is known of this name: is it a metric\?"):
        study_from_config("experiment=shape_on_machine", "objective.limits.tpot_z=5ms")
