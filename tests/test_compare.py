"""Candidates side by side: their order, why one has no design, who wins in joint draws, where the best one changes."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

from codesign import compare
from codesign.commands.candidates import listed
from codesign.commands.cli import main
from codesign.config import study_from_config
from codesign.config.as_sold import device_name, differences
from codesign.core.errors import ConfigError
from codesign.report import build_report
from codesign.report.comparison_pages import read, write
from codesign.report.side_by_side import sentences
from codesign.search.results import placed

pytestmark = pytest.mark.slow

JOB = (
    "model=llama31_405b", "workload=static_batch_fp8", "cluster.device_count=64", "space.plan.tp=[8]",
    "space.plan.pp=[1]", "space.plan.micro_batch=[32,64]",
)  # fmt: skip


@pytest.fixture(scope="module")
def products():
    return compare(
        "accelerator=h100_sxm,h200,b200,a100_40gb",
        *JOB,
        "sweep=objective.limits.tpot_s:0.03,0.045",
        "search=grid",
    )


def test_products_rank_as_they_do_where_nothing_of_another_study_is_inherited(products):
    assert list(products.feasible["candidate"]) == ["b200", "h200", "h100_sxm"]
    assert products.feasible["objective"].is_monotonic_increasing
    assert (products.feasible["device"] == products.feasible["candidate"]).all()


def test_a_candidate_without_a_design_is_a_row_that_says_why(products):
    out = products.table[~products.table["feasible"]]
    assert list(out["candidate"]) == ["a100_40gb"]
    assert "no peak" in out["why"].iloc[0]
    assert "a100_40gb" in sentences(products)[2]


def test_shares_of_draws_add_up_and_intervals_hold_the_value(products):
    ranked = products.feasible
    assert ranked["wins"].sum() == pytest.approx(1)
    for name in ("objective", "tpot_s", "joules_per_token"):
        assert (ranked[f"{name}_low"] < ranked[f"{name}_high"]).all()
    assert ((ranked["keeps"] >= 0) & (ranked["keeps"] <= 1)).all()


def test_capital_is_not_told_of_what_is_rented():
    result = compare("accelerator=h200", "ownership=on_premises,cloud", *JOB, "search=grid").table.set_index(
        "candidate"
    )
    assert result.loc["on_premises", "capex_usd"] > 1e6
    assert np.isnan(result.loc["cloud", "capex_usd"])
    asked = compare("accelerator=h200,b200", "ownership=cloud", *JOB, "search=grid", "objective.limits.capex_usd=1e8")
    assert (asked.table["capex_usd"] > 1e6).all()


def test_what_other_prices_would_change_is_told(products):
    """A price so many times what it is makes the next one as good: half of a price that is linear in it."""
    prices = products.prices
    assert set(prices["factor"][:-1]) == {0.5, 2.0}
    assert prices["best"].isin(products.feasible["candidate"]).all()
    last, ranked = prices.iloc[-1], products.feasible
    assert last["path"].endswith("price_usd")
    assert 1 < last["factor"] < 10
    assert last["goal"] == pytest.approx(ranked["objective"].iloc[1])
    assert any(f"{last['factor']:.2f} times what it is" in line for line in sentences(products))


def test_what_is_rented_turns_at_a_rent_and_not_at_the_price_of_electricity():
    """All of the cost is rent, so the next one is as good at the ratio of the two goals."""
    result = compare("accelerator=h200,b200", "ownership=cloud", *JOB, "search=grid")
    ranked, last = result.feasible, result.prices.iloc[-1]
    assert set(result.prices["what"][:-1]) == {"the share of its life in use"}
    assert last["path"].endswith(f"usd_per_device_h.{ranked['candidate'].iloc[0]}")
    assert last["factor"] == pytest.approx(ranked["objective"].iloc[1] / ranked["objective"].iloc[0], rel=1e-6)
    assert f"the rent of {ranked['candidate'].iloc[0]}'s accelerators" in sentences(result)[-1]


def test_the_best_one_along_a_limit_is_told(products):
    assert set(products.phases["level"]) == {"0.03", "0.045"}
    assert products.phases["value"].unique() == pytest.approx([0.03, 0.045])
    told = sentences(products)[-1]
    assert told.startswith("Along objective.limits.tpot_s:")
    tight = products.phases[(products.phases["level"] == "0.03") & (products.phases["candidate"] == "h100_sxm")]
    loose = products.phases[(products.phases["level"] == "0.045") & (products.phases["candidate"] == "h100_sxm")]
    assert not tight["feasible"].iloc[0] or tight["objective"].iloc[0] >= loose["objective"].iloc[0]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("accelerator=h200",), "name at least two options"),
        (("accelerator=h200,h2000",), "h2000 does not exist"),
        (("accelerator=h200,b200", "sweep=tpot_s"), "one key and its values"),
        (("accelerator=h200,b200", "plan.tpp=8"), "no key 'tpp'"),
        (("accelerator=h200,b200", "objective.limits.ttft_s=1s"), "ttft_s exists for serving"),
    ],
)
def test_what_no_candidate_could_take_is_refused(arguments, part):
    with pytest.raises(ConfigError, match=part):
        compare(*arguments, "model=llama2_7b")


def test_a_page_is_made_anew_from_its_frames(products, tmp_path):
    page = write(products, tmp_path).read_text(encoding="utf-8")
    assert "a100_40gb" in page
    assert "Along objective.limits.tpot_s" in page
    assert "nan" not in re.sub(r"base64,[^\"]*", "", page)
    (tmp_path / "report.html").unlink()
    assert sentences(read(tmp_path)) == sentences(products)
    assert build_report(tmp_path).read_text(encoding="utf-8") == page


def test_a_proof_without_a_gap_is_none_on_the_page(products, tmp_path):
    """A robust search whose best design holds at the centre alone bounds nothing."""
    table = products.table.assign(gap=None, certified=True)
    assert "within" not in write(dataclasses.replace(products, table=table), tmp_path).read_text(encoding="utf-8")


def test_every_candidate_has_a_run_folder_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "accelerator=h200", *JOB[:2], "cluster.device_count=8,16", *JOB[3:], "search=grid"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert "comes next" in capsys.readouterr().out
    assert (folder / "1" / "designs.parquet").is_file()
    assert pd.read_parquet(folder / "comparison.parquet")["feasible"].all()
    assert "codesign compare accelerator=h200" in (folder / "report.html").read_text(encoding="utf-8")


def test_what_differs_from_the_catalogue_is_told_in_absolute_numbers():
    study = study_from_config("accelerator=h200", "accelerator.hbm.capacity_bytes=2e11", "accelerator.price_usd=2e4")
    result = differences(study, study.scenario)
    assert [one.text for one in result if not one.is_price] == ["HBM capacity 200 GB (catalogue: 151 GB)"]
    assert device_name(study.scenario, result) == "h200 (modified)"
    priced = study_from_config("accelerator=h200", "accelerator.price_usd=2e4")
    assert device_name(priced.scenario, differences(priced, priced.scenario)) == "h200"


SERVED = {
    "two pools": ("experiment=disaggregation", "framework=sglang"),
    "experts": ("experiment=serve_deepseek_v3", "framework=vllm"),
    "dense": ("experiment=serve_llama31_405b", "framework=trtllm"),
}


@pytest.mark.parametrize("name", SERVED)
def test_kernels_of_an_engine_are_not_another_machine(name: str):
    """The catalogue's hardware under the same framework: hundreds of constants were listed as not sold."""
    study = study_from_config(*SERVED[name])
    plainly = study_from_config(SERVED[name][0])
    told = [{one.path for one in differences(each, each.scenario)} for each in (study, plainly)]
    assert told[0] == told[1]


def test_a_variable_away_from_the_catalogue_makes_another_device():
    study = study_from_config("experiment=train_gpt3_175b")
    assert not differences(study, study.scenario)
    row = pd.Series({f"var.{name}": float(values[0]) for name, values in study.space.lists.items()})
    wide = {"scale_up_bandwidth": 9e11, "scale_out_bandwidth": 5e10, "hbm_to_ddr": 0.64}
    design = placed(study.problem, pd.concat([row, pd.Series({f"var.{name}": value for name, value in wide.items()})]))
    result = {one.name: one for one in differences(study, design)}
    assert result["scale-up bandwidth"].value == pytest.approx(9e11)
    assert result["HBM capacity"].value > 1.1 * result["HBM capacity"].catalogue
    assert device_name(design, tuple(result.values())) == "h100_sxm (modified)"
    assert np.isclose(result["HBM bandwidth"].value / result["HBM bandwidth"].catalogue,
                      result["HBM capacity"].value / result["HBM capacity"].catalogue)  # fmt: skip


def test_what_a_diagram_cannot_be_drawn_along_is_refused_before_a_search(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    listed = ["accelerator=h100_sxm,h200", "model=llama31_8b", "workload=static_batch"]
    assert main(["compare", *listed, "sweep=objective.limits.tpot:0.1"]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "metric 'tpot' does not exist (did you mean 'tpot_s'?)" in told
    assert not list(tmp_path.iterdir())


def test_accelerators_for_prompts_count():
    apart = compare(
        "accelerator=h200,b200", "experiment=disaggregation", "search=grid", "~space.hardware",
        "space.plan.device_count=[16]", "space.plan.prefill_devices=[32]", "objective.limits={}", "objective.floors={}",
    ).feasible  # fmt: skip
    assert (apart["devices"] == 48).all()
    each = apart["tokens_per_s_per_device"] * apart["devices"] / apart["tokens_per_s"]
    assert each.to_numpy() == pytest.approx(1.0, rel=1e-12)


def test_a_key_that_stands_twice_is_refused():
    with pytest.raises(ConfigError, match="accelerator stands twice"):
        listed(["accelerator=h100_sxm", "accelerator=h200,b200"])
