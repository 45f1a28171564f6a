"""Claims and their verdicts, experiments by name, exit codes, and the pages that are committed."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from example_run import write_run

from codesign import reproduce as module
from codesign.cli import main
from codesign.errors import ConfigError
from codesign.report import write_experiment_report
from codesign.report.committed import write_run_report
from codesign.reproduce import Claim, agreement, available, experiments_folder, reproduce, write_reports

ROWS = {"experiment", "claim", "paper", "model", "error", "bar", "ok", "standing"}
CLAIMS = """
from codesign.reproduce import Claim

def claims():
    return [
        Claim("toy", "first: within its bar", 2.0, 2.1, {bar}, "published"),
        Claim("toy", "second: only told", 4.0, 3.0, None, "derived"),
        Claim("toy", "third: nothing said", None, None, None, "not determined"),
    ]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder of one experiment, whose bar is given."""

    def make(bar: float) -> Path:
        folder = tmp_path / "experiments" / "toy"
        folder.mkdir(parents=True)
        (folder / "claims.py").write_text(CLAIMS.format(bar=bar))
        (tmp_path / "experiments" / "no_claims").mkdir()
        monkeypatch.setattr(module, "experiments_folder", lambda: tmp_path / "experiments")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("paper", "model", "bar", "error", "expected_error", "ok"),
    [
        (10.0, 11.0, 0.2, None, 0.1, True), (10.0, 9.0, 0.05, None, 0.1, False), (10.0, 9.0, None, None, 0.1, None),
        (10.0, 9.0, 0.05, 0.01, 0.01, True), (None, 9.0, 0.05, None, None, None), (10.0, None, 0.05, None, None, None),
        (-2.0, -2.2, 0.2, None, 0.1, True), (10.0, math.nan, 0.05, None, math.nan, False),
    ],
)  # fmt: skip
def test_verdict_of_a_claim(paper, model, bar, error, expected_error, ok):
    row = Claim("toy", "a claim", paper, model, bar, "derived", error).row()
    assert set(row) == ROWS
    assert row["error"] == (expected_error if expected_error is None else pytest.approx(expected_error, nan_ok=True))
    assert row["ok"] is ok


def test_every_experiment_has_its_page():
    found = available()
    assert {"calculon_training", "megatron_training"} <= set(found)
    for name, folder in found.items():
        assert folder.parent == experiments_folder()
        finished = (experiments_folder().parent / "reports" / name).is_dir()
        assert not finished or (folder / "README.md").is_file(), name


def test_experiments_run_by_name(toy):
    toy(0.1)
    told: list[str] = []
    rows = reproduce(["all"], told.append)
    assert told == ["toy"]
    assert [row["ok"] for row in rows] == [True, None, None]
    assert reproduce(["toy"]) == rows
    with pytest.raises(ConfigError, match="experiment 'tyo' does not exist") as caught:
        reproduce(["tyo"])
    assert "toy" in str(caught.value)


@pytest.mark.parametrize(("bar", "code"), [(0.1, 0), (0.01, 1)])
def test_a_missed_bar_is_the_exit_code(toy, capsys, bar, code):
    toy(bar)
    assert main(["reproduce", "toy", "--json"]) == code
    rows = json.loads(capsys.readouterr().out)
    assert all(set(row) == ROWS for row in rows)
    assert rows[0]["error"] == pytest.approx(0.05)


def test_committed_pages_of_experiments(toy):
    folder = toy(0.01)
    (page,) = write_reports(reproduce(), folder / "reports")
    text = page.read_text(encoding="utf-8")
    assert page == folder / "reports" / "toy" / "README.md"
    assert "0 of 1 claims with a bar are met." in text
    assert "experiments/toy/README.md" in text
    table = pd.read_csv(page.parent / "claims.csv")
    assert table["claim"].str.startswith(("first", "second", "third")).all()
    assert (page.parent / "model_against_paper.png").read_bytes().startswith(b"\x89PNG")


def test_figure_shows_what_has_two_numbers_and_keeps_bars_when_crowded():
    few = pd.DataFrame([Claim("toy", f"{i}: x", 1.0, 1.0 + i / 10, 0.1, "derived").row() for i in range(3)])
    axes = agreement(few).axes[0]
    assert len(axes.get_yticks()) == 3
    assert axes.lines[1].get_xdata().tolist() == pytest.approx([1.2, 1.1, 1.0])
    many = [Claim("toy", f"{i}: x", 1.0, 1.0, 0.1 if i % 10 == 0 else None, "derived").row() for i in range(90)]
    assert len(agreement(pd.DataFrame(many)).axes[0].get_yticks()) == 9


def test_long_tables_are_linked_and_verdicts_fall_back_to_the_bar(tmp_path):
    claims = pd.DataFrame({"claim": ["a", "b"], "paper": [1.0, 1.0], "model": [1.1, 1.5], "error": [0.1, -0.5],
                           "bar": [0.2, 0.2], "standing": "derived"})  # fmt: skip
    long = pd.DataFrame({"n": range(41)})
    page = write_experiment_report(tmp_path, "Toy", {"Claims": claims, "Long table": long}, text="Why.\n")
    text = page.read_text(encoding="utf-8")
    assert "1 of 2 claims with a bar are met." in text
    assert "[41 rows as CSV](long_table.csv)" in text
    assert "| 40 |" not in text
    assert "\nWhy.\n" in text
    assert len(pd.read_csv(tmp_path / "long_table.csv")) == 41


def test_committed_page_of_a_run(tmp_path):
    run = write_run(tmp_path / "run")
    page = write_run_report(run, tmp_path / "reports")
    text = page.read_text(encoding="utf-8")
    assert page.parent.name == "train_example"
    for word in ("**Asked.**", "**Found.**", "**Design.**", "**How sure.**", "experiment=train_example"):
        assert word in text
    best = pd.read_csv(page.parent / "best_designs.csv")
    designs = pd.read_parquet(run / "designs.parquet")
    assert len(best) == min(10, len(designs))
    assert best["time_s"].tolist() == pytest.approx(designs["time_s"].head(10).tolist())
    assert not any(column.startswith("var.") for column in best)
    assert len(list(page.parent.glob("*.png"))) == text.count(".png)")
    (page.parent / "claims.csv").write_text("claim\n", encoding="utf-8")  # an experiment of the same name
    again = write_run_report(run, tmp_path / "reports")
    assert again.parent.name == f"{page.parent.name}_search"


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        write_run_report(tmp_path, tmp_path / "reports")
