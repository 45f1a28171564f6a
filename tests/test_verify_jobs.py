"""`codesign verify` of a comparison: every candidate's proof, and the table beside them."""

import json

import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.commands.verify_jobs import differences

SMALL = ("model=llama31_8b", "workload=continuous", "cluster.device_count=8", "space.plan.tp=[1,2]",
         "space.plan.micro_batch=[8,16]", "space.plan.token_budget=[256]")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("compared"))
        assert main(["compare", "accelerator=h100_sxm,h200", *SMALL]) == 0
    return next(tmp_path_factory.getbasetemp().glob("compared*/runs/*"))


@pytest.mark.slow
def test_every_candidate_of_a_comparison_is_verified_and_the_table_with_them(folder, capsys):
    assert main(["verify", str(folder), "--attack", "64"]) == 0
    told = capsys.readouterr().out
    assert told.count("verified: no usd_per_million_tokens below") == 2
    assert "verified: 2 of 2 jobs" in told
    assert main(["verify", str(folder), "--attack", "64", "--json"]) == 0
    assert json.JSONDecoder().raw_decode(capsys.readouterr().out)[0]["verified"]


@pytest.mark.slow
@pytest.mark.parametrize("column", ["objective", "bound", "usd_per_million_tokens_low", "capex_usd"])
def test_a_number_of_the_table_is_that_of_its_run(folder, column):
    path = folder / "comparison.parquet"
    kept, frame = path.read_bytes(), pd.read_parquet(path)
    frame.loc[0, column] *= 0.999
    frame.to_parquet(path)
    result = differences(folder, "comparison.parquet")
    path.write_bytes(kept)
    if column.endswith("_low"):  # of joint draws: no run has it
        assert result == []
    else:
        assert len(result) == 1
        assert column in result[0]
    assert differences(folder, "comparison.parquet") == []
