"""The document on the switch-centric architecture: its committed outcomes, and the quick ones anew."""

import pandas as pd
import pytest

from codesign.evidence.reproduction import experiments_folder, reproduce

EXPERIMENTS = ("scin_allreduce", "scin_waves", "scin_inference", "scin_quantisation")


@pytest.fixture(scope="module")
def committed() -> pd.DataFrame:
    """The rows of all four committed reports."""
    reports = experiments_folder().parent / "reports"
    if not reports.is_dir():
        pytest.skip("the committed reports lie in a checkout only")
    return pd.concat([pd.read_csv(reports / name / "claims.csv") for name in EXPERIMENTS])


def test_what_is_not_determined_says_why_and_shows_no_number(committed):
    left_open = committed[committed["provenance"] == "not determined"]
    assert len(left_open) > 0
    assert left_open["model"].isna().all()
    assert left_open["claim"].str.contains(": ").all()


def test_committed_outcomes_meet_their_bars(committed):
    missed = committed[committed["ok"].astype(str) == "False"]
    assert missed.empty, missed["claim"].tolist()


@pytest.mark.slow
def test_quantisation_is_reproduced():
    rows = reproduce(["scin_quantisation"])
    assert [row["claim"] for row in rows if row["ok"] is False] == []
    assert sum(row["ok"] is True for row in rows) > 20  # what compares the document with itself has no verdict
