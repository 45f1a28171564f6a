"""The peer model through configuration: its 32 published runs within the bar, its table read strictly."""

import pandas as pd
import pytest

from codesign.core.errors import DataError
from codesign.evidence import calculon

pytestmark = pytest.mark.slow

BARS = {"total_time": (0.001, 0.004), "first_tier_memory": (1e-5, 1e-5)}


@pytest.fixture(scope="module")
def rows(reference_dir):
    return calculon.run(reference_dir / "calculon")


def test_runs_agree(rows):
    result = {row["quantity"]: row for row in rows if row["group"] == "all"}
    assert set(result) == set(calculon.QUANTITIES)
    for quantity, (median, p90) in BARS.items():
        assert result[quantity]["n"] == 32
        assert result[quantity]["median"] <= median
        assert result[quantity]["p90"] <= p90
    for quantity in ("fw_time", "bw_time", "recompute_time", "pp_comm_time", "optimizer_time"):
        assert result[quantity]["median"] < 1e-4, quantity  # the same operations, counted the same


def test_rows_have_the_schema(rows):
    keys = {
        "suite",
        "stratum",
        "quantity",
        "group",
        "n",
        "median",
        "mean",
        "p90",
        "bias",
        "rank",
        "coverage",
        "left_out",
        "width",
    }
    assert all(set(row) == keys for row in rows)
    assert {row["group"] for row in rows} == {"all", "a100_80g", "h100_80g_nvl8"}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("system", "b200", "system = 'b200' is unknown"),
        ("exe_datatype", "float17", "did you mean 'float16'"),
        ("exe_tensor_paralel", 8, "exe_tensor_paralel is no input of Calculon (did you mean 'exe_tensor_par'?)"),
    ],
)
def test_unknown_inputs_are_named(reference_dir, tmp_path, column, value, message):
    frame = pd.read_csv(reference_dir / "calculon/runs.csv").head(2)
    frame[column] = value
    frame.to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(DataError) as error:
        calculon.read(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_table_and_column_are_named(reference_dir, tmp_path):
    with pytest.raises(DataError, match="no such table"):
        calculon.read(tmp_path)
    frame = pd.read_csv(reference_dir / "calculon/runs.csv").drop(columns="exe_batch_size")
    frame.to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(DataError, match="exe_batch_size is missing"):
        calculon.read(tmp_path)
