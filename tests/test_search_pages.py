"""Committed pages of searches: their best designs, priced again by the model as it is now."""

from pathlib import Path

import pandas as pd
import pytest

from codesign import evaluate, study_from_config

REPORTS = Path(__file__).resolve().parent.parent / "reports"
PAGES = sorted(path.parent.name for path in REPORTS.glob("*/best_designs.csv"))
METRICS = ("time_s", "ttft_s", "tpot_s", "tokens_per_s", "joules_per_token", "usd_per_million_tokens", "capex_usd")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_best_design_of_a_page_costs_what_the_page_says(name: str):
    """`codesign optimize experiment=NAME`, then `codesign report RUN --reports reports`, writes a page anew."""
    study, row = study_from_config(f"experiment={name}"), pd.read_csv(REPORTS / name / "best_designs.csv").iloc[0]
    chosen = [*study.space.plan, *study.space.hardware]
    assert set(chosen) <= set(row.index)
    metrics = evaluate(study.space.place(study.scenario, {each: float(row[each]) for each in chosen})).flat()
    told = {each: float(row[each]) for each in METRICS if each in row.index and each in metrics}
    assert told
    assert {each: float(metrics[each]) for each in told} == pytest.approx(told, rel=1e-6)
