"""Chips of which nothing was measured here: what their files say, how sure the model is of them, what they lack."""

import dataclasses

import numpy as np
import pytest

from codesign.config import available, compose, conf_dir, scenario_from_config
from codesign.config.composition import chosen_options
from codesign.config.groups import read_yaml
from codesign.config.parts_built import plain
from codesign.core.errors import ConfigError
from codesign.evidence.calibration.constants import load
from codesign.model.networks.fabrics import Group
from codesign.uncertainty.draws import among, named_so, regime
from codesign.uncertainty.spreads import ANY, MEASURED, NEW, PHYSICS, RELATIVE, find

NEW_CHIPS = ("tpu_v5p", "tpu_v6e", "tpu7x", "trainium2", "trainium3", "gaudi3", "rubin", "h100_nvl")
BUILT = ("tpu_v6e", "gaudi3", "rubin")
"""Rooflines of the mean GPU (on a torus and a mesh where 8-bit floats are no faster), a relative's constants."""


def chip(name: str):
    return scenario_from_config(f"accelerator={name}").cluster


@pytest.fixture(scope="module")
def chips():
    return {name: chip(name) for name in BUILT}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_errors_are_those_of_a_chip_that_nobody_measured(chips, name):
    """Of kernels and of wires; where constants are of no chip at all, those of any class, which are wider."""
    cluster = chips[name]
    assert regime(cluster, "gemm", "fp8") == NEW
    assert among(cluster.accelerator, find("collective", (ANY,), PHYSICS, MEASURED)) == NEW
    names = named_so(cluster, "gemm", "fp8", NEW)
    assert names == (("gemm fp8", "gemm", ANY) if name == "rubin" else (ANY,))


def test_any_class_is_wider_than_one():
    result = [find("kernel", (name,), PHYSICS, NEW) for name in (ANY, "gemm fp8", "attention_decode")]
    widths = [0.0 if spread is None else spread.half_width() for spread in result]
    assert widths[0] > max(widths[1:]) > min(widths[1:]) > 0


@pytest.mark.slow
def test_a_relative_of_a_measured_chip_keeps_its_classes(chips):
    cluster = chip("h100_nvl")
    assert regime(cluster, "gemm", "fp8") == RELATIVE
    assert named_so(cluster, "gemm", "fp8", RELATIVE) == ("gemm fp8", "gemm", ANY)
    nameless = dataclasses.replace(chips["tpu_v6e"].accelerator, generation="")  # no family: its file says no more
    assert named_so(dataclasses.replace(cluster, accelerator=nameless), "gemm", "fp8", NEW)[0] == "gemm fp8"


@pytest.mark.parametrize("name", ["matrix_units_roofline", "matrix_units_bf16_roofline"])
def test_assumed_rooflines_are_the_mean_of_what_was_fitted(name):
    """Of the GPUs that the note names, each fitted on its own rows; without formats that hang on their peaks."""
    written = load(conf_dir() / "calibration" / f"{name}.yaml")
    for key, origin in written["provenance"].items():
        kind, number_format = key.split(".")
        result = []
        for gpu in origin["note"].removeprefix("geometric mean over ").split(";")[0].split(", "):
            own = load(conf_dir() / "calibration" / f"{gpu}_roofline.yaml")
            assert own["provenance"][key]["kind"] == "fitted"
            result.append(own[kind][number_format])
        for number in ("t0_s", "compute_ratio", "memory_ratio"):
            mean = np.exp(np.mean([np.log(one[number]) for one in result]))
            assert written[kind][number_format][number] == pytest.approx(mean, rel=1e-3)
    assert not [kind for kind, formats in written.items() if kind != "provenance" and "fp4" in formats]


@pytest.mark.parametrize("name", ["tpu_v6e", "gaudi3"])
def test_eight_bits_run_at_the_rate_of_sixteen(chips, name):
    own = chips[name].accelerator
    assert float(own.peak("fp8")) == float(own.peak("bf16"))
    assert own.kernel("gemm", "fp8") is own.kernel("gemm", "bf16")


@pytest.mark.slow
def test_a_format_that_a_chip_lacks_is_refused_in_one_line():
    with pytest.raises(ConfigError, match=r"'fp4': accelerator tpu_v5p has no peak for it \(it has bf16, fp8, int8\)"):
        scenario_from_config("accelerator=tpu_v5p", "workload=continuous", "workload.precision.compute=fp4")


def scale_out(*overrides: str) -> float:
    """Rate of the network beyond, bytes per second."""
    return plain(compose(list(overrides)))["cluster"]["network"]["scale_out"]["fabric"]["bandwidth_bytes_per_s"]


def test_a_chip_brings_the_network_that_it_is_sold_with():
    """A choice, or an experiment's, goes before it."""
    assert scale_out("accelerator=tpu_v6e") == 12.5e9
    assert scale_out("accelerator=tpu_v6e", "scale_out=infiniband_xdr") == 100e9
    assert scale_out("accelerator=tpu_v6e", "experiment=folded_clos") == 50e9


@pytest.mark.parametrize(("name", "both_ways"), [("ici_2d", 800e9), ("ici_3d", 1200e9), ("neuronlink_v3", 1024e9)])
def test_the_links_of_a_torus_are_what_a_chip_has_in_all(name, both_ways):
    torus = read_yaml(conf_dir() / "fabric" / f"{name}.yaml")
    assert 2 * 2 * len(torus["shape"]["extents"]) * torus["links"]["link"]["bandwidth_bytes_per_s"] == both_ways


def test_a_closed_ring_goes_both_ways_along_its_axis(chips):
    fabric = chips["tpu_v6e"].network["scale_up"].fabric
    assert float(fabric.cables[0]) == 2.0
    assert 1 / float(fabric.link(Group(16.0)).beta_s_per_byte) == pytest.approx(200e9)


def test_prices_of_one_kind_stand_beside_each_other():
    """Production of TPUs times the ratio at which TPU7x is sold; memory apart."""
    paid = {}
    for name, produced in (("tpu_v5p", (2300, 2900)), ("tpu_v6e", (1600, 1900)), ("tpu7x", (4600, 5500))):
        own = read_yaml(conf_dir() / "accelerator" / f"{name}.yaml")["cluster"]["accelerator"]
        paid[name] = (own["price_usd"] + own["hbm"]["capacity_bytes"] * own["hbm"]["usd_per_byte"]) / np.mean(produced)
    assert max(paid.values()) / min(paid.values()) < 1.01


def test_each_has_a_price_by_the_hour_and_can_be_chosen():
    hourly = read_yaml(conf_dir() / "ownership" / "cloud.yaml")["usd_per_device_h"]
    assert set(NEW_CHIPS) <= set(hourly)
    assert set(hourly) <= set(available("accelerator"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tpu", "'tpu7x', 'tpu_8i', 'tpu_8t', 'tpu_v5e', 'tpu_v5p' or 'tpu_v6e'"),
        ("gaudi", "'gaudi3'"),
    ],
)  # fmt: skip
def test_names_that_people_use_are_understood(written, meant):
    with pytest.raises(ConfigError, match=f"accelerator = {written} does not exist .did you mean {meant}"):
        compose([f"accelerator={written}"])


@pytest.mark.parametrize(
    ("written", "option"),
    [("H100", "h100_sxm"), ("h100", "h100_sxm"), ("NVIDIA-H100", "h100_sxm"), ("ironwood", "tpu7x"),
     ("trn2", "trainium2")],
)  # fmt: skip
def test_names_of_tables_and_sellers_are_taken(written, option):
    assert chosen_options([f"accelerator={written}"])["accelerator"] == option
