"""Legal numbers that no product or paper has are told in one line; nothing that is shipped is."""

import dataclasses
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from example_run import write_run

from codesign.config import conf_dir, study_from_config
from codesign.config.construct import targets
from codesign.config.plausibility import _judged, readable, unusual
from codesign.config.study import documented_scenario
from codesign.core.fields import Usual
from codesign.core.units import percent
from codesign.report import build_report, read_run

FABRIC = "cluster.network.scale_up.fabric"
HBM = "cluster.accelerator.hbm"
KEEP = ("calibration=h100_sxm_roofline",)


def told(*overrides: str) -> list[str]:
    """Texts about a study."""
    return [one.text for one in study_from_config(*KEEP, *overrides).unusual]


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        (f"{FABRIC}.bandwidth_bytes_per_s=900", ("900 B/s", "7.7 GB/s to 3.6 TB/s", "for 900 GB/s write 9e+11")),
        ("cluster.accelerator.peak_flops_per_s.bf16=2500", ("2.5 kFLOP/s", "for 2.5 PFLOP/s write 2.5e+15")),
        ("facility.usd_per_j=0.08", ("$288 k per kWh", "for $0.0800 per kWh write 2.22222e-08")),
        (f"{HBM}.capacity_bytes=80", ("80 B", "for 80 GB write 8e+10")),
        (f"{HBM}.bandwidth_bytes_per_s=3.35", ("3.35 B/s", "for 3.35 TB/s write 3.35e+12")),
        ("cluster.accelerator.price_usd=1e9", ("$1 bn", "$7,700 to $41 k (parts in conf/)")),
        ("cluster.host.link.alpha_s=5", ("5 s", "500 ns to 10 µs", "for 5 µs write 5e-06")),
        (f"{FABRIC}.energy_j_per_byte=3", ("pJ/bit", "for 3 pJ/bit write 2.4e-11")),
        ("host.link.beta_s_per_byte=64e9", ("25 GB/s to 5 TB/s", "for 64 GB/s write 1.5625e-11")),
        ("facility.amortisation_s=4", ("3.8 years to 5.1 years", "for 4 years write 1.2623e+08")),
        ("cluster.device_count=1e9", ("the largest clusters that were announced",)),
    ],
)
def test_what_no_product_has_is_told_with_what_is_usual_and_what_was_meant(override, parts):
    (text,) = told(override)
    key = override.split("=")[0]
    assert key.removeprefix("facility.").removeprefix("host.") in text
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("overrides", "start", "part"),
    [
        (("space.hardware.scale_up_bandwidth.high=1.8e15",), "space.hardware.scale_up_bandwidth.high =", "1.8 TB/s"),
        (("space.hardware.hbm_to_ddr.high=1e6",), "space.hardware.hbm_to_ddr.high = 1e+06: ", "275 PB"),
        (
            ("fabric=lightpath", "collective=lumorph", "space.hardware.scale_up_bandwidth.high=2.8e12"),
            "space.hardware.scale_up_bandwidth.high = 2.8e+12: ", "1.4 Tb/s",
        ),
        (
            ("fabric=lightpath", "collective=lumorph", "fabric.bandwidth_bytes_per_s=2.8e12"),
            f"{FABRIC}.bits_per_s_per_wavelength", "one carrier of a coherent pluggable module",
        ),
    ],
)  # fmt: skip
def test_ranges_and_what_follows_from_several_numbers_are_told_once(overrides, start, part):
    (text,) = told(*overrides)
    assert text.startswith(start)
    assert part in text


def test_zero_says_that_something_is_not_counted():
    assert not told("cluster.accelerator.price_usd=0", f"{FABRIC}.latency_s=0")


def test_a_file_that_means_what_nobody_builds_says_so():
    endless = ("accelerator=calculon_a100_80e", "workload.precision.compute=fp16", "workload.precision.attention=fp16")
    scenario, provenance = documented_scenario(*endless)
    assert not unusual(scenario, provenance=provenance)
    scenario, provenance = documented_scenario(*endless, f"{HBM}.capacity_bytes=8e19")
    assert [one.key for one in unusual(scenario, provenance=provenance)] == [f"{HBM}.capacity_bytes"]


def numbers(node: Any, key: str, parent: str, found: dict[str, list[float]]) -> None:
    """Name of a leaf -> its numbers other than zero below a node, the ranges of variables among them."""
    if isinstance(node, dict):
        if "path" in node and "low" in node:
            for name in str(node["path"]).split(".")[-2:]:
                found[name] += [float(node["low"]), float(node["high"])]
        for name, entry in node.items():
            if name != "provenance":
                numbers(entry, str(name), key, found)
    elif isinstance(node, list):
        for entry in node:
            numbers(entry, key, parent, found)
    elif isinstance(node, int | float) and not isinstance(node, bool) and node > 0:
        found[key].append(float(node))
        found[parent].append(float(node))


def declared() -> list[tuple[str, Usual]]:
    """(leaf, what it says is usual) of every class that a configuration may name."""
    classes = [value for value in targets().values() if dataclasses.is_dataclass(value)]
    fields = [field for cls in classes for field in dataclasses.fields(cls)]
    return [(field.name, field.metadata["usual"]) for field in fields if field.metadata.get("usual")]


def test_what_is_said_of_the_catalogue_is_true_of_it():
    """No leaf calls usual what lies beyond its name's numbers in conf/, rounding aside."""
    result: dict[str, list[float]] = defaultdict(list)
    for path in conf_dir().rglob("*.yaml"):
        if "calibration" not in path.parts:
            text = path.read_text(encoding="utf-8")
            numbers(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), "", "", result)
    catalogue = {name for name, usual in declared() if len(usual) == 2}
    assert len(catalogue) > 30
    wrong = [
        (name, usual)
        for name, usual in declared()
        if len(usual) == 2
        and not (
            min(result[name], default=math.inf) / 1.5 <= usual[0] <= usual[1] <= 1.5 * max(result[name], default=0)
        )
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (8e-12, "J/B", "1 pJ/bit"), (1.57e-8, "$/B", "$15.7 per GB"), (2e-12, "s/B", "500 GB/s"),
        (0.3 / 3.6e6, "$/J", "$0.300 per kWh"), (4e-9, "$/(B/s)", "$4 per GB/s"),
    ],
)  # fmt: skip
def test_units_are_those_that_people_quote(value, unit, shown):
    assert readable(value, unit) == shown


@pytest.mark.parametrize(
    ("share", "told"),
    [(1e-9, "0.0001 %"), (5.6e-4, "0.056 %"), (0.11, "11 %"), (0.994, "99 %"), (2.77, "277 %"), (123.4, "12,340 %")],
)
def test_gaps_have_no_exponents(share, told):
    assert percent(share, 1e-6) == told


def test_an_origin_of_its_own_is_taken_as_it_is():
    usual = (2.5e9, 1.28e11, "PCIe 1.0 to 7.0")
    assert _judged("a.transfers_per_s", 1.28e11, usual, "a.transfers_per_s") is None
    result = _judged("a.transfers_per_s", 16.0, usual, "a.transfers_per_s")
    assert result is not None
    assert result.text.endswith("usual is about 2.5 GT/s to 128 GT/s (PCIe 1.0 to 7.0); for 16 GT/s write 1.6e+10")


@pytest.mark.slow
def test_the_report_shows_them_in_a_box_of_their_own(tmp_path: Path):
    run = write_run(tmp_path / "run")
    assert "Unusual inputs" not in build_report(run).read_text(encoding="utf-8")
    entry = {"key": "a", "value": 1.0, "usual": [2.0, 3.0], "text": "a = 1 is unusual <b>"}
    (run / "unusual.json").write_text(json.dumps([entry]), encoding="utf-8")
    assert read_run(run).unusual == ("a = 1 is unusual <b>",)
    page = build_report(run).read_text(encoding="utf-8")
    assert "Unusual inputs" in page
    assert "a = 1 is unusual &lt;b&gt;" in page
