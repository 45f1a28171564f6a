"""Calibration recovers what it is given, writes what configurations read, and validation says what it sets aside."""

import io
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from codesign.config.groups import conf_dir
from codesign.core.errors import DataError
from codesign.evidence.calibration import calibrate, score
from codesign.evidence.calibration.collectives import (
    CollectiveGroup,
    fit_collective,
    predict_collective,
    scale_up_groups,
)
from codesign.evidence.calibration.constants import build, load
from codesign.evidence.calibration.gpus import Peaks, accelerator_of, device, nearest
from codesign.evidence.calibration.kernels import TABLES, kernel_groups
from codesign.evidence.validation import validate
from codesign.evidence.validation.intervals import renewed
from codesign.evidence.validation.measured_kernels import COLLECTIVES, KERNELS, kernel_seconds, on_device
from codesign.evidence.validation.served_suites import contradicted
from codesign.model.hardware import AbstractKernel, Gemm, Link
from codesign.model.networks.collectives import Collectives, Measured
from codesign.model.networks.fabrics import Group
from codesign.uncertainty.spreads import FILE

TRUTH = Gemm(t0_s=3e-6, compute_ratio=0.75, memory_ratio=0.9)


def write_gemms(folder: Path, gpu: str = "H100-SXM", framework: str = "trtllm", **extra) -> None:
    """A made-up machine whose GEMMs take exactly what `TRUTH` says."""
    shapes = [(m, n, k) for m in (16, 256, 2048, 8192) for n in (1024, 4096, 8192) for k in (512, 2048, 8192)]
    rows = pd.DataFrame(shapes, columns=["m", "n", "k"]).assign(gpu=gpu, framework=framework, dtype="bfloat16", **extra)
    rows["latency_us"] = 1.0
    folder.mkdir(parents=True, exist_ok=True)
    rows.to_csv(folder / "gemm_test.csv", index=False)
    group = next(kernel_groups(folder, []))
    rows["latency_us"] = 1e6 * kernel_seconds(on_device_truth(group), group)
    rows.to_csv(folder / "gemm_test.csv", index=False)


def on_device_truth(group):
    node = {"_target_": "codesign.model.hardware.Gemm", "t0_s": 3e-6, "compute_ratio": 0.75, "memory_ratio": 0.9}
    return on_device(node, group.device, group.peak_flops_per_s)


def test_score_by_hand():
    result = score(np.array([1.1, 1.8, 3.0]), np.array([1.0, 2.0, 3.0]))
    assert result.n == 3
    assert result.median == pytest.approx(0.1)
    assert result.mean == pytest.approx(0.2 / 3)
    assert result.bias == pytest.approx(0.0)
    assert result.rank == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "relative"),
    [("H100-SXM", "h100_sxm"), ("H200", "h200"), ("H800", "h100_sxm"), ("A100-40GB", "a100_80gb"),
     ("A30", "a100_80gb"), ("MI325X", "mi300x"), ("L40", "l40s"), ("RTX-4090", "l40s"), ("TPUv5", None)],
)  # fmt: skip
def test_relatives_by_name(name, relative):
    assert accelerator_of(name) == relative


def test_unknown_device_takes_the_nearest_by_ratio():
    like_h100 = Peaks(500e12, 1000e12, float("nan"), 1.7e12, 100e9)
    assert nearest(like_h100) in ("h100_sxm", "b200", "gb200", "b300", "gb300", "rtx_pro_6000")
    who = device("Newcomer-1", {"Newcomer-1": like_h100})
    assert not who.exact
    assert who.peaks == like_h100
    with pytest.raises(DataError, match="Newcomer-2"):
        device("Newcomer-2", {})


def test_device_keeps_its_own_peaks():
    h200, h100 = device("H200", {}), device("H100-SXM", {})
    assert h200.peaks.memory == pytest.approx(4.8e12)
    assert h100.peaks.memory == pytest.approx(3.35e12)


OTHER_CONSTANTS = ("power", "training", "serving", "sampled")  # board power; what frameworks add
KERNEL_FILES = sorted(
    path for path in (conf_dir() / "calibration").rglob("*.yaml")
    if path.stem not in OTHER_CONSTANTS and path.parent.name not in OTHER_CONSTANTS
)  # fmt: skip


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda p: p.stem)
def test_every_file_builds_kernels_with_provenance(path):
    data = load(path)
    kernels = build(data)
    assert path.read_text().startswith("# @package cluster.accelerator.kernels")
    for kind, formats in kernels.items():
        for number_format, kernel in formats.items():
            assert isinstance(kernel, AbstractKernel)
            origin = data["provenance"][f"{kind}.{number_format}"]
            assert origin["kind"] in ("fitted", "derived", "assumed")
            assert (origin["kind"] == "derived") == ("inherited from" in origin["note"])
            assert (origin["kind"] == "assumed") == ("not measured on this class of chip" in origin["note"])


@pytest.mark.parametrize("path", sorted((conf_dir() / "collective").glob("nccl_*.yaml")), ids=lambda p: p.stem)
def test_every_collective_file_builds_and_grows_with_bytes(path):
    data = load(path)
    collectives = build(data)
    assert isinstance(collectives, Collectives)
    link = Link(1e-6, 1 / 450e9)
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"):
        algorithm = getattr(collectives, operation)
        assert operation in data["provenance"]
        assert float(algorithm.cost(jnp.asarray(1e6), Group(1.0), link).time_s) == 0.0
        times = [float(algorithm.cost(jnp.asarray(b), Group(8.0), link).time_s) for b in (1e3, 1e5, 1e7, 1e9)]
        assert times == sorted(times)


def test_measured_collective_by_hand():
    curve = Measured(base_2_s=5e-6, base_4_s=5e-6, ratio_2=0.5, ratio_4=0.5, ramp=0.0, rounds=2.0)
    seconds = curve.cost(jnp.asarray(1e9), Group(2.0), Link(1e-6, 1 / 100e9)).time_s
    assert float(seconds) == pytest.approx(5e-6 + 2 * 1e-6 + 2 * 0.5 * 1e9 / 50e9)


def test_measured_collective_is_log_convex_in_the_link():
    curve = Measured()

    def log_seconds(a, b):
        link = Link(1e-6 * np.exp(a), np.exp(b) / 450e9)
        return float(jnp.log(curve.cost(jnp.asarray(2e7), Group(8.0), link).time_s))

    for a, b, c, d in np.random.default_rng(0).uniform(-3, 3, (20, 4)):
        assert log_seconds((a + c) / 2, (b + d) / 2) <= (log_seconds(a, b) + log_seconds(c, d)) / 2 + 1e-9


def test_collective_fit_recovers_a_curve():
    sizes, members = np.meshgrid(2.0 ** np.arange(10, 31, 2), [2.0, 4.0, 8.0])
    who = device("H100-SXM", {})
    empty = CollectiveGroup("scale_up", "all_reduce", who, "nccl", 450e9, members.ravel(), sizes.ravel(), sizes.ravel())
    truth = dict(base_2_s=6e-6, base_4_s=9e-6, base_8_s=15e-6, base_16_s=15e-6, base_64_s=15e-6, ratio_2=0.6,
                 ratio_4=0.7, ratio_8=0.9, ratio_16=0.9, ratio_64=0.9, ramp=1.5, ramp_power=0.4,
                 switch_bytes=2e5)  # fmt: skip
    group = empty._replace(measured_s=predict_collective(truth, empty))
    again = predict_collective(fit_collective(group), group)
    np.testing.assert_allclose(again, group.measured_s, rtol=0.03)


@pytest.mark.parametrize(("operation", "beats_the_wire"), [("all_reduce", True), ("all_to_all", False)])
def test_fit_lets_only_an_all_reduce_beat_the_wire(operation, beats_the_wire):
    sizes, members = (grid.ravel() for grid in np.meshgrid(2.0 ** np.arange(10, 31, 2), [2.0, 4.0, 8.0]))
    turns = 2 if operation == "all_reduce" else 1
    seconds = 1e-5 + turns * (members - 1) / members * sizes / (1.5 * 450e9)  # half as fast again as the link
    group = CollectiveGroup("scale_up", operation, device("H100-SXM", {}), "nccl", 450e9, members, sizes, seconds)
    fastest = max(value for name, value in fit_collective(group).items() if name.startswith("ratio_"))
    assert (fastest > 1.2) if beats_the_wire else (fastest <= 1)


def test_calibration_round_trip(tmp_path):
    """A made-up machine: its constants explain it, and its relatives inherit them on their own chips."""
    write_gemms(tmp_path / "data")
    said = []
    written = calibrate(tmp_path / "data", tmp_path / "conf" / "calibration", said.append)
    assert said
    own = load(tmp_path / "conf" / "calibration" / "h100_sxm.yaml")
    assert own["provenance"]["gemm.bf16"]["kind"] == "fitted"
    group = next(kernel_groups(tmp_path / "data", []))
    predicted = kernel_seconds(on_device(own["gemm"]["bf16"], group.device, group.peak_flops_per_s), group)
    assert np.median(np.abs(predicted / group.measured_s - 1)) < 0.01
    heir = load(tmp_path / "conf" / "calibration" / "h200.yaml")
    assert "inherited from h100_sxm" in heir["provenance"]["gemm.bf16"]["note"]
    assert heir["gemm"]["bf16"]["chip"]["bandwidth_bytes_per_s"] == pytest.approx(4.8e12)
    residuals = pd.read_csv(tmp_path / "conf" / "calibration" / "residuals.csv")
    assert residuals["median"].max() < 0.3
    assert all(path.exists() for path in written)


def test_validation_names_what_it_sets_aside(tmp_path):
    write_gemms(tmp_path, gpu="H800", framework="newengine", colour="blue")
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "riddle.csv", index=False)
    notes = [row["quantity"] for row in validate(tmp_path) if row["suite"] == "note"]
    assert any("riddle.csv" in text for text in notes)
    assert any("colour" in text for text in notes)
    assert any("inherited from h100_sxm" in text for text in notes)
    assert any("trtllm" in text for text in notes)


def test_validation_rows(tmp_path):
    write_gemms(tmp_path)
    rows = [row for row in validate(tmp_path) if row["stratum"] == "gemm bf16"]
    assert [row["group"] for row in rows] == ["all", "H100-SXM trtllm"]
    assert rows[0]["n"] == rows[1]["n"]
    assert 0 < rows[1]["median"] < 1
    assert rows[1]["rank"] > 0.9


def test_bad_tables_are_refused_in_one_line(tmp_path):
    with pytest.raises(DataError, match="is no folder"):
        validate(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no table that a suite understands"):
        validate(tmp_path)
    pd.DataFrame({"gpu": ["H100-SXM"], "m": [1], "n": [1]}).to_csv(tmp_path / "gemm_bad.csv", index=False)
    with pytest.raises(DataError, match=r"gemm_bad\.csv: .*\(gemm\) lacks framework, dtype") as caught:
        validate(tmp_path)
    assert "\n" not in str(caught.value)


MEASURED = "measured"
BARS = {
    "gemm bf16": 0.08, "gemm fp8": 0.10, "attention prefill": 0.08, "attention decode": 0.08,
    "collectives from 1 MiB": 0.06, "MLA prefill": 0.08, "elementwise": 0.06,
}  # fmt: skip


@pytest.mark.slow
def test_reference_measurements(reference_dir):
    """Medians over all devices and frameworks stay below the bars of the task."""
    rows = validate(reference_dir / MEASURED, (KERNELS, COLLECTIVES))
    whole = {
        row["stratum"]: row for row in rows if row["group"] == "all" and row["suite"] in ("kernels", "collectives")
    }
    for stratum, bar in BARS.items():
        assert whole[stratum]["median"] < bar, stratum
        assert abs(whole[stratum]["bias"]) < 0.03, stratum
        assert whole[stratum]["rank"] > 0.9, stratum


@pytest.mark.slow
def test_tables_cover_the_reference(reference_dir):
    messages = []
    seen = {(group.table.name, group.device.accelerator) for group in kernel_groups(reference_dir / MEASURED, messages)}
    assert not messages
    assert {name for name, _ in seen} == {table.name for table in TABLES}
    assert len(list(scale_up_groups(reference_dir / MEASURED, messages))) == 32


def test_renewed_intervals_keep_sources_that_rest_on_more_rows():
    """`--only` validates some suites again: a source whose errors come from others, too, is not of these alone."""
    old = (conf_dir() / "calibration" / FILE).read_text(encoding="utf-8")
    whole = pd.read_csv(io.StringIO(old), dtype=str, keep_default_na=False)
    part = whole[(whole["kind"] == "source") & whole["name"].isin(["ttft", "tpot"])].assign(p50="9")
    part.loc[part["name"] == "ttft", "rows"] = "1"
    result = pd.read_csv(io.StringIO(renewed(old, part.to_csv(index=False), ["none of them"])), dtype=str)
    middle = result[result["kind"] == "source"].set_index("name")["p50"]
    assert middle["tpot"] == "9"
    assert middle["ttft"] == whole[whole["kind"] == "source"].set_index("name")["p50"]["ttft"]
    assert len(result) == len(whole)


def test_rows_that_contradict_themselves_are_told():
    rows = pd.DataFrame({
        "model": ["one", "two"], "ttft_mean_ms": [50.0, 50.0], "itl_mean_ms": [10.0, 10.0], "output_tokens": [101, 101],
        "e2e_mean_ms": [1050.0, 800.0],
    })  # fmt: skip
    (line,) = contradicted("served.csv", rows)
    assert line.startswith(
        "served.csv: 1 rows (two) contradict themselves: first token and intervals add up to 131% of"
    )
    assert contradicted("served.csv", rows[:1]) == []
    assert contradicted("served.csv", rows.drop(columns="e2e_mean_ms")) == []
