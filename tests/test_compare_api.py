"""`codesign compare --api`: a price list among the candidates, by hand, in draws and along what is varied."""

import pytest

from codesign.commands.api_prices import ApiPrices, usd_per_million_output
from codesign.commands.candidates import listed
from codesign.commands.cli import main
from codesign.commands.comparing import beside_each_other, phases, refuse_api, solved
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError

SMALL = (
    "model=llama31_8b", "workload=continuous", "calibration=h100_sxm_roofline", "framework=none",
    "cluster.device_count=8", "workload.input_tokens=2048", "workload.output_tokens=512", "space.plan.tp=[1]",
    "space.plan.pp=[1]", "space.plan.attention_dp=[1]", "space.plan.micro_batch=[64]", "space.plan.token_budget=[1024]",
)  # fmt: skip


def test_a_price_list_by_hand():
    """Four prompt tokens an output token, half of a prompt from the cache."""
    scenario = scenario_from_config(*SMALL[:7], "workload.cached_ratio=0.5", "plan.tp=1")
    assert usd_per_million_output(ApiPrices(0.3, 0.1, 1.0), scenario) == pytest.approx(2 * 0.3 + 2 * 0.1 + 1.0)


@pytest.mark.slow
def test_a_list_stands_among_the_candidates_where_it_costs():
    candidates = listed([*SMALL, "accelerator=h100_sxm"], one_is_enough=True)
    result = [solved(candidate) for candidate in candidates]
    own = float(result[0].best["objective"])
    dear, cheap = (ApiPrices(0.0, 0.0, factor * own) for factor in (4.0, 0.5))
    joint = beside_each_other(result, api=dear)
    assert joint.table["candidate"].tolist() == ["own fleet", "API"]
    assert joint.table["wins"].tolist() == [1.0, 0.0]
    assert joint.table["objective"].tolist() == pytest.approx([own, 4 * own])
    assert "the API is cheaper" not in repr(joint)
    assert joint.prices.iloc[-1]["best"] == "API"
    other = beside_each_other(result, api=cheap)
    assert other.table["candidate"].tolist() == ["API", "own fleet"]
    assert other.table["wins"].iloc[0] > 0.9
    rows = phases(candidates, ("workload.output_tokens", ("256", "512")), api=ApiPrices(0.1, 0.1, 0.2))
    api = rows[rows["candidate"] == "API"]["objective"].tolist()
    assert api == pytest.approx([0.1 * 8 + 0.2, 0.1 * 4 + 0.2])


@pytest.mark.slow
def test_the_command_writes_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *SMALL, "accelerator=h100_sxm", "--api", "in=0.05,out=0.2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "own fleet has the least cost per million output tokens" in told
    assert "of the load that own fleet serves here the API is cheaper" in told
    page = next(tmp_path.glob("runs/*/report.html")).read_text(encoding="utf-8")
    assert "in $0.05, cached $0.05, out $0.2 a million tokens" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["objective.minimise=ttft_s"], "take the goal usd_per_million_tokens"),
        (["workload.output_tokens=128,512"], "candidates serve different requests"),
    ],
)
def test_what_no_list_says_is_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        refuse_api(
            listed([*(one for one in SMALL if "output" not in one), "accelerator=h100_sxm", *words], one_is_enough=True)
        )


def test_wrong_lists_are_one_line(capsys):
    assert main(["compare", *SMALL, "accelerator=h100_sxm", "--api", "in=1"]) == 2
    assert "in and out are needed" in capsys.readouterr().err
