"""Intervals whose upper end is no number: where a load is not sustained, in words, frames, JSON, pages and figures."""

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.commands.comparing import _wins
from codesign.commands.terminal import intervals_text
from codesign.config import scenario_from_config
from codesign.core.fields import as_leaf
from codesign.core.interval_text import (  # fmt: skip
    AGREED,
    RATIO,
    UNBOUNDED,
    between_text,
    crowded_text,
    early_text,
    load_text,
    remarks_text,
    unsustained_text,
)
from codesign.core.json_yaml import dumps
from codesign.report.comparison_figures import pictures
from codesign.report.side_by_side import Comparison, sentences
from codesign.search.results import numbers_of
from codesign.study.objective import Objective
from codesign.uncertainty import metrics_under_draws, of_designs, uncertain, wins
from codesign.uncertainty.draws import no_doubts
from codesign.uncertainty.metrics import LOAD, ends, quantile, without_ends, without_goals, without_numbers

GROUPS = "workload.layouts.dense_groups=true"  # attention groups of a dense model, as no engine of the catalogue runs
SERVED = (
    GROUPS, "model=llama31_70b", "accelerator=h100_sxm", "cluster.device_count=8", "plan.tp=4", "plan.pp=2",
    "plan.attention_dp=4", "plan.micro_batch=512", "plan.token_budget=2048",
)  # fmt: skip
KERNELS = "calibration=h100_sxm_roofline"


@pytest.fixture(scope="module")
def at_rate():
    return scenario_from_config("workload=at_rate", *SERVED, "workload.arrivals_per_s=8")


def moved(scenario, rate):
    """Scenario at another rate."""
    work = dataclasses.replace(scenario.workload, arrivals_per_s=as_leaf(rate))
    return dataclasses.replace(scenario, workload=work)


@pytest.mark.parametrize("endless", [0, 19, 20, 21, 200, 380, 381, 400])
def test_ends_of_400_draws_of_which_some_have_none(endless):
    """The 95th percentile has no end from the 21st of 400 on, the 5th from the 381st on."""
    values = np.concatenate([np.linspace(1.0, 2.0, 400 - endless), np.full(endless, np.inf)])
    low, high = ends(np.random.default_rng(3).permutation(values))
    assert (high == math.inf) == (endless > 20)
    assert (low == math.inf) == (endless > 380)
    if endless <= 20:
        assert 1.8 < high <= 2
    if endless == 0:
        assert (low, high) == pytest.approx(tuple(np.quantile(values, (0.05, 0.95))))


def test_only_what_grows_without_end_is_infinite():
    values = {name: np.array([1.0, 2.0]) for name in ("ttft_s", "tokens_per_s", "mfu", "power_w")}
    same, kept = without_ends(values)
    assert kept is None
    assert all(np.array_equal(same[name], values[name]) for name in values)
    at_a_rate, kept = without_ends(values | {LOAD: np.array([0.9, 1.1])})
    assert kept is not None
    assert kept.tolist() == [True, False]
    assert at_a_rate["ttft_s"].tolist() == [1.0, math.inf]
    assert at_a_rate["tokens_per_s"].tolist() == [1.0, 2.0]  # what is still answered
    agreed, _ = without_ends(values | {LOAD: np.array([0.9, 1.1]), AGREED: np.array([0.9, 1.1])})
    assert agreed["tokens_per_s"].tolist() == agreed["mfu"].tolist() == [1.0, 0.0]  # nothing meets the SLO
    assert agreed["power_w"].tolist() == [1.0, 2.0]


def test_goals_in_draws_that_are_not_sustained_are_the_worst():
    goals, kept = np.array([[1.0, 2.0]]), np.array([[True, False]])
    assert without_goals(goals, kept, maximised=False).tolist() == [[1.0, math.inf]]
    assert without_goals(goals, kept, maximised=True).tolist() == [[1.0, 0.0]]
    assert without_goals(-goals, kept, maximised=True).tolist() == [[-1.0, -2.0]]


def test_nobody_wins_a_draw_that_nobody_sustains():
    goals = np.array([[1.0, math.inf, 2.0, math.inf], [2.0, 1.0, 2.0, math.inf]])
    assert _wins(goals, maximised=False).tolist() == [0.375, 0.375]
    assert _wins(np.array([[1.0, 0.0], [2.0, 0.0]]), maximised=True).tolist() == [0.0, 0.5]
    assert len(_wins(np.zeros((0,)), maximised=False)) == 0


@pytest.mark.slow
def test_more_load_takes_ends_away_one_after_the_other(at_rate):
    """With a value that is sustained, then near the edge, then with one that is not: shares rise, ends go."""
    shares = []
    for rate in (1.0, 8.0, 40.0):
        result = uncertain(moved(at_rate, rate))
        low, high = result.intervals["ttft_s"]
        share = result.unsustained
        assert share is not None
        shares.append(share)
        assert (high == math.inf) == (share > 0.05)
        assert (low == math.inf) == (share > 0.95)
        assert all(math.isfinite(end) for name in ("tokens_per_s", "power_w") for end in result.intervals[name])
    assert shares[0] == 0 < shares[1] < shares[2] == 1


@pytest.mark.slow
def test_a_job_without_a_load_has_no_such_column():
    result = uncertain(scenario_from_config("workload=continuous", *SERVED))
    assert result.unsustained is None
    assert RATIO not in result.columns()
    assert all(math.isfinite(end) for pair in result.intervals.values() for end in pair)


@pytest.mark.slow
def test_designs_that_pile_up_lose_to_those_that_do_not(at_rate):
    """What is lost where only another design sustains the load has no end; where none does nothing is lost."""
    idle = moved(at_rate, 1.0)
    result = of_designs(Objective(minimise="ttft_s"), [at_rate, idle])
    assert result is not None
    assert (result.designs[0].unsustained or 0.0) > 0.1
    assert result.regret.high == math.inf
    assert "is unbounded in more than" in result.regret.text()
    full = moved(at_rate, 40.0)
    none = of_designs(Objective(minimise="ttft_s"), [full, full])
    assert none is not None
    assert (none.regret.stays, none.regret.high) == (0, 0)
    assert wins(full, full, "ttft_s") == (0.0, (1.0, 1.0))
    assert wins(idle, full, "ttft_s") == (1.0, (0.0, 0.0))
    assert np.isinf(metrics_under_draws(full)["ttft_s"]).all()


def test_a_value_that_is_not_sustained_is_no_number_either():
    used = {"usage.engine.prompts": np.array([0.5, 0.5, 1.5]), "usage.engine.decodes": np.array([0.9, 1.1, 0.5])}
    rows = {"ttft_s": np.ones(3), "e2e_p99_s": np.ones(3), "usd_per_million_tokens": np.ones(3), "tpot_s": np.ones(3)}
    result = without_numbers(rows | used)
    assert result["ttft_s"].tolist() == result["e2e_p99_s"].tolist() == [1.0, math.inf, math.inf]
    assert result["usd_per_million_tokens"].tolist() == result["tpot_s"].tolist() == [1.0] * 3
    agreed = without_numbers(rows | used | {AGREED: np.array([1.0, 1.0, 1.0])})
    assert agreed["usd_per_million_tokens"].tolist() == [1.0, math.inf, math.inf]
    assert without_numbers(rows) == rows


def test_median_and_nine_of_ten_may_have_no_end():
    assert quantile(np.array([1.0] * 9 + [math.inf]), 0.9) == 1.0
    assert quantile(np.array([1.0] * 8 + [math.inf] * 2), 0.9) == math.inf


def test_words():
    assert between_text(1.0, math.inf, str) == f"1.0 to {UNBOUNDED}"
    assert between_text(math.inf, math.inf, str) == UNBOUNDED
    assert between_text(1.0, 2.0, str, "[{}, {}]") == "[1.0, 2.0]"
    assert between_text(math.nan, 2.0, str) == between_text(None, None, str) == ""
    assert unsustained_text({}) == unsustained_text({RATIO: 0.0}) == unsustained_text({RATIO: math.nan}) == ""
    seldom = unsustained_text({RATIO: 0.03})
    assert seldom.startswith("In 3.0% of the draws")
    assert "all intervals are bounded" in seldom
    assert "no rate meets the SLO" in unsustained_text({RATIO: 0.3, AGREED: 1.0})
    often = unsustained_text({RATIO: 0.3, AGREED: math.nan})
    assert "do not sustain the load" in often
    assert UNBOUNDED in often


def test_a_frame_keeps_infinity_and_json_has_null(tmp_path):
    frame = pd.DataFrame({"ttft_s_high": [math.inf], RATIO: [0.3]})
    frame.to_parquet(tmp_path / "a.parquet")
    assert pd.read_parquet(tmp_path / "a.parquet")["ttft_s_high"].iloc[0] == math.inf
    assert json.loads(dumps(frame.to_dict("records"))) == [{"ttft_s_high": None, RATIO: 0.3}]


def test_a_design_is_told_with_its_draws():
    row = {"ttft_s": 0.3, "tpot_s": 0.1, "ttft_s_low": 0.2, "ttft_s_high": math.inf, RATIO: 0.62}
    told = intervals_text(row)
    assert "TTFT 200 ms to unbounded. In 62.0% of the draws" in told


@pytest.mark.slow
def test_evaluate_says_it(capsys):
    arguments = ["evaluate", "workload=at_rate", *SERVED, "workload.arrivals_per_s=7.5", KERNELS]
    assert main(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "unbounded]" in out
    assert "the engines do not sustain the load" in out
    assert main([*arguments, "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["ttft_s_high"] is None
    assert numbers[RATIO] > 0.05


def test_a_comparison_draws_and_says_it():
    table = pd.DataFrame({
        "candidate": ["a", "b"], "feasible": True, "objective": [1.0, 2.0], "objective_low": [0.5, 1.5],
        "objective_high": [math.inf, 2.5], "ttft_s_low": 0.1, "ttft_s_high": math.inf, RATIO: [0.3, 0.0], "wins": 0.5,
    })  # fmt: skip
    result = Comparison(table, "usd_per_million_tokens")
    assert any(line.startswith("a: In 30.0% of the draws") for line in sentences(result))
    assert not any(line.startswith("b: In") for line in sentences(result))
    assert result.interval(table.iloc[0], "ttft_s") == "100 ms to unbounded"
    assert pictures(result)["comparison"].startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_run_keeps_it_in_frames_page_and_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fixed = [f"space.plan.{name}=[{value}]" for name, value in (("tp", 4), ("pp", 2), ("attention_dp", 4))]
    asked = ["model=llama31_70b", "accelerator=h100_sxm", "workload=at_rate", "cluster.device_count=8", KERNELS, GROUPS]
    asked += [*fixed, "space.plan.micro_batch=[512]", "space.plan.token_budget=[1024,4096]", "search=grid"]
    assert main(["optimize", *asked, "workload.arrivals_per_s=8"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "to unbounded" in out
    assert "the engines do not sustain the load" in out
    (run,) = (tmp_path / "runs").iterdir()
    designs = pd.read_parquet(run / "designs.parquet")
    assert designs["ttft_s_high"].iloc[0] == math.inf
    assert designs[RATIO].iloc[0] > 0.05
    page = (run / "report.html").read_text(encoding="utf-8")
    assert UNBOUNDED in page
    assert "do not sustain the load" in page


def test_waiting_for_places_is_said_where_requests_do():
    waits = {"slot_utilisation": 0.9, "queued_share": 0.4, "queue_wait_s": 0.5}
    assert crowded_text({}) == crowded_text(waits | {"queued_share": 0.01}) == ""
    assert crowded_text(waits | {"queue_wait_s": None}) == crowded_text(waits | {"queued_share": math.nan}) == ""
    assert crowded_text(waits | {"slot_utilisation": 1.2}) == ""  # the load is not sustained, which is said
    told = crowded_text(waits)
    assert "40% of the requests" in told
    assert "1.25 s" in told
    assert load_text(waits) == told
    both = load_text(waits | {RATIO: 0.3})
    assert both.startswith("In 30.0% of the draws")
    assert both.endswith(told)


def test_first_tokens_below_their_interval_are_said():
    for numbers in ({}, {"ttft_s": 1.0}, {"ttft_s": 1.0, "ttft_s_low": 0.9}, {"ttft_s": 1.0, "ttft_s_low": math.nan}):
        assert early_text(numbers) == ""
    assert "framework=vllm" in early_text({"ttft_s": 1.0, "ttft_s_low": 1.1})
    assert remarks_text({"ttft_s": 1.0, "ttft_s_low": 1.1}) == early_text({"ttft_s": 1.0, "ttft_s_low": 1.1})
    assert load_text({"ttft_s": 1.0, "ttft_s_low": 1.1}) == ""  # beside others it would stand under each


@pytest.mark.slow
def test_first_tokens_of_a_draw_count_in_an_agreement():
    """Three times later: the rate at which a third of the limit is kept, and what is then seen is within the limit."""
    asked = ("workload=goodput", *SERVED, "workload.slo.tpot_s=0.2")
    scenario, tight = (scenario_from_config(*asked, f"workload.slo.ttft_s={limit}") for limit in (1.2, 0.4))
    late = dataclasses.replace(no_doubts(), first_token=as_leaf(3.0))
    cluster = dataclasses.replace(scenario.cluster, doubts=late)
    result, same = numbers_of(dataclasses.replace(scenario, cluster=cluster)), numbers_of(tight)
    assert numbers_of(scenario)["requests_per_s"] > 1.02 * same["requests_per_s"]
    assert result["requests_per_s"] == pytest.approx(same["requests_per_s"], rel=1e-6)
    assert result["ttft_p99_s"] == pytest.approx(3 * same["ttft_p99_s"], rel=1e-6)
    assert result["ttft_p99_s"] <= 1.2 * (1 + 1e-6)
