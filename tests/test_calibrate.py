"""`calibrate` on a small made-up folder: constants recovered, unknown tables named, all or nothing, twice the same."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codesign.core.errors import CodesignError, DataError
from codesign.evidence.calibration import board_power, calibrate
from codesign.evidence.calibration.constants import load, publish

PEAK, BANDWIDTH, LIMIT = 989e12, 3.35e12, 700.0
T0, COMPUTE, MEMORY = 6e-6, 0.7, 0.8
IDLE, PER_FLOP, PER_BYTE = 200.0, 4e-13, 5e-11


def write_tables(folder: Path) -> Path:
    """A machine whose GEMMs follow a roofline with known constants, and whose board draws a known power."""
    folder.mkdir()
    shapes = [(m, n, k) for m in (1, 64, 512, 4096, 16384) for n in (1024, 4096, 16384) for k in (1024, 8192)]
    gemm = pd.DataFrame(shapes, columns=["m", "n", "k"]).assign(gpu="H100-SXM", framework="trtllm", dtype="bfloat16")
    m, n, k = (gemm[column].to_numpy(dtype=float) for column in "mnk")
    work, traffic = 2 * m * n * k / (COMPUTE * PEAK), 2 * (m * k + n * k + m * n) / (MEMORY * BANDWIDTH)
    gemm.assign(latency_us=1e6 * (T0 + np.maximum(work, traffic))).to_csv(folder / "gemm_mine.csv", index=False)

    flops, nbytes = (grid.ravel() for grid in np.meshgrid([0.0, 2e14, 4e14, 6e14], [0.0, 1e12, 2e12]))
    board = pd.DataFrame({"achieved_tflops": flops / 1e12, "achieved_tbytes_per_s": nbytes / 1e12})
    board["power_w"] = IDLE + PER_FLOP * flops + PER_BYTE * nbytes
    board = board.assign(gpu="H100-SXM", kernel="gemm", dtype="bfloat16", latency_us=100.0)
    board.to_csv(folder / "gpu_kernel_power_mine.csv", index=False)

    peaks = {"gpu": "H100-SXM", "dense_bf16_tflops": PEAK / 1e12, "dense_fp8_tflops": 2 * PEAK / 1e12,
             "dense_fp4_tflops": "", "hbm_tbytes_per_s": BANDWIDTH / 1e12, "tdp_w": LIMIT}  # fmt: skip
    pd.DataFrame([peaks]).to_csv(folder / "hardware_peaks.csv", index=False)
    pd.DataFrame({"a": [1]}).to_csv(folder / "riddle.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    return write_tables(tmp_path_factory.mktemp("machine") / "tables")


@pytest.fixture(scope="module")
def outcome(tables, tmp_path_factory) -> tuple[Path, list[str]]:
    """Folder of the constants and what was said."""
    out, said = tmp_path_factory.mktemp("out") / "conf" / "calibration", []
    calibrate(tables, out, said.append)
    return out, said


def test_roofline_constants_are_recovered(outcome):
    result = load(outcome[0] / "h100_sxm_roofline.yaml")["gemm"]["bf16"]
    assert result["t0_s"] == pytest.approx(T0, rel=0.02)
    assert result["compute_ratio"] == pytest.approx(COMPUTE, rel=0.02)
    assert result["memory_ratio"] == pytest.approx(MEMORY, rel=0.02)


def test_board_power_is_recovered(outcome):
    result = load(outcome[0] / "power" / "h100_sxm.yaml")
    assert result["idle_w"] == pytest.approx(IDLE, rel=0.02)
    assert result["energy_j_per_flop"]["bf16"] == pytest.approx(PER_FLOP, rel=0.02)
    assert result["hbm"]["energy_j_per_byte"] == pytest.approx(PER_BYTE, rel=0.02)
    assert set(result["provenance"]) == {"idle_w", "energy_j_per_flop", "hbm.energy_j_per_byte"}


def test_residuals_stand_beside_the_constants(outcome):
    table = pd.read_csv(outcome[0] / "residuals.csv").set_index("class")
    assert table.loc["gemm_roofline", "median"] < 0.01
    assert table.loc["board power", "median"] < 0.01


def test_unknown_tables_and_columns_are_named(outcome, tables, tmp_path):
    assert "riddle.csv: nothing is fitted on this table" in outcome[1]
    table = pd.read_csv(tables / "gpu_kernel_power_mine.csv")
    table.drop(columns="power_w").to_csv(tmp_path / "gpu_kernel_power_mine.csv", index=False)
    with pytest.raises(DataError, match=r"gpu_kernel_power_mine\.csv lacks column\(s\) power_w"):
        calibrate(tmp_path, tmp_path / "conf" / "calibration", lambda text: None)
    (tmp_path / "gpu_kernel_power_mine.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match="no table of kernels, collectives or board power"):
        calibrate(tmp_path, tmp_path / "conf" / "calibration", lambda text: None)


def test_power_without_a_limit_is_set_aside(tables, tmp_path):
    (tmp_path / "gpu_kernel_power_mine.csv").write_text((tables / "gpu_kernel_power_mine.csv").read_text())
    messages: list[str] = []
    assert board_power.fit_power(tmp_path, messages) == {}
    assert messages == ["board power: 12 rows of H100-SXM set aside, no tdp_w in a table of peaks"]


def test_twice_the_same_bytes(outcome, tables, tmp_path):
    again = tmp_path / "conf" / "calibration"
    written = calibrate(tables, again, lambda text: None)
    first = {path.relative_to(outcome[0].parent): path.read_bytes() for path in outcome[0].parent.rglob("*.*")}
    second = {path.relative_to(again.parent): path.read_bytes() for path in again.parent.rglob("*.*")}
    assert len(written) == len(second)
    assert first == second


def test_an_interrupted_calibration_leaves_nothing(tables, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "codesign.evidence.calibration.board_power.fit_loads", interrupted
    )  # kernels are fitted by then
    with pytest.raises(KeyboardInterrupt):
        calibrate(tables, tmp_path / "conf" / "calibration", lambda text: None)
    assert not (tmp_path / "conf").exists()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "a" / "b.yaml"
    assert publish({target: "old"}) == [target]

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises((OSError, CodesignError), match="no space"):
        publish({target: "new"})
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]
