"""Claims and their verdicts, experiments by name, exit codes, and the pages that are committed."""

import json
import math
import sys
from pathlib import Path

import pandas as pd
import pytest
from example_run import write_run

from codesign.commands.cli import main
from codesign.core.earlier_names import CLAIM_COLUMNS
from codesign.core.errors import ConfigError
from codesign.evidence import reproduction as module
from codesign.evidence.reproduction import (
    Claim,
    available,
    experiments_folder,
    reproduce,
    summary,
    summary_rows,
    write_reports,
)
from codesign.report import write_experiment_report
from codesign.report.committed import write_run_report
from codesign.report.findings import agreement

ROWS = {"experiment", "claim", "paper", "model", "error", "tolerance", "ok", "provenance", "evidence"}
CLAIMS = """
from codesign.evidence.reproduction import Claim

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


@pytest.mark.parametrize(
    ("standing", "paper", "bar", "kind"),
    [
        ("published: an input", 1.0, 0.0, "input"), ("fitted 2 on 3", 1.0, 0.1, "fitted"),
        ("not determined: no figure", 1.0, None, "note"), ("derived", None, None, "note"),
        ("derived", None, 0.1, "predicted"), ("derived", 1.0, None, "predicted"), ("published", 1.0, 0.1, "predicted"),
    ],
)  # fmt: skip
def test_a_standing_tells_the_kind_and_only_what_can_fail_is_judged(standing, paper, bar, kind):
    row = Claim("toy", "a claim", paper, 1.0, bar, standing, error=0.0).row()
    assert row["evidence"] == kind
    assert (row["ok"] is None) == (bar is None or kind not in ("fitted", "predicted"))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="kind = 'guess' is not one of input, transcription"):
        Claim("toy", "a claim", 1.0, 1.0, None, "derived", kind="guess")


def test_a_module_says_the_kind_of_claims_by_their_words(toy):
    folder = toy(0.1) / "experiments" / "toy"
    text = (folder / "claims.py").read_text()
    (folder / "claims.py").write_text(text + 'KINDS = {"transcription": "^second", "input": "within its bar$"}\n')
    module.load.cache_clear()
    rows = reproduce(["toy"])
    assert [row["evidence"] for row in rows] == ["input", "transcription", "note"]
    assert [row["ok"] for row in rows] == [None] * 3
    assert summary(rows)["all"]["median_error"] is None


def test_the_median_is_of_predictions_with_two_numbers(toy):
    toy(0.1)
    assert summary(reproduce(["toy"]))["all"]["median_error"] == pytest.approx((0.05 + 0.25) / 2)
    assert [row["predicted"] for row in summary_rows(summary(reproduce(["toy"])))] == ["2 (1 of 1 met)"]


def test_every_experiment_has_its_page():
    result = available()
    assert {"calculon_training", "megatron_training"} <= set(result)
    for name, folder in result.items():
        assert folder.parent == experiments_folder()
        finished = (experiments_folder().parent / "reports" / name).is_dir()
        assert not finished or (folder / "README.md").is_file(), name


def test_experiments_import_what_they_share(toy, monkeypatch):
    """From `_lib` beside them, which is no experiment."""
    folder = toy(0.1) / "experiments"
    (folder / "_lib").mkdir()
    (folder / "_lib" / "__init__.py").touch()
    (folder / "_lib" / "numbers_of_toys.py").write_text("BAR = 0.2\n")
    claims = folder / "toy" / "claims.py"
    claims.write_text("from _lib.numbers_of_toys import BAR\n" + claims.read_text().replace(", 0.1,", ", BAR,"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.split(".")[0] == "_lib"]:
        monkeypatch.delitem(sys.modules, name)
    module.load.cache_clear()
    assert list(available()) == ["toy"]
    assert [row["tolerance"] for row in reproduce(["all"])] == [0.2, None, None]
    for name in ("_lib", "_lib.numbers_of_toys"):
        monkeypatch.delitem(sys.modules, name)


def test_experiments_run_by_name(toy):
    toy(0.1)
    told: list[tuple[str, int]] = []
    rows = reproduce(["all"], lambda name, found: told.append((name, len(found))))
    assert told == [("toy", 0), ("toy", 3)]
    assert [row["ok"] for row in rows] == [True, None, None]
    assert reproduce(["toy"]) == rows
    with pytest.raises(ConfigError, match="experiment 'tyo' does not exist") as caught:
        reproduce(["tyo"])
    assert "toy" in str(caught.value)


def test_an_experiment_that_fails_is_named_and_the_others_go_on(toy, capsys):
    folder = toy(0.1) / "experiments" / "broken"
    folder.mkdir()
    (folder / "claims.py").write_text("def claims():\n    return [1 / 0]\n")
    module.load.cache_clear()
    assert main(["reproduce", "all", "--json"]) == 1
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert len(result["claims"]) == 3
    line = "broken: ZeroDivisionError: division by zero (claims.py, line 2)"
    assert result["failed"] == [line]
    assert f"codesign: experiment {line}" in printed.err
    assert "Traceback" not in printed.err
    with pytest.raises(ZeroDivisionError):
        reproduce(["broken"])


def test_each_page_is_written_before_the_next_experiment_runs(toy, capsys, tmp_path):
    folder, page = toy(0.1) / "experiments", tmp_path / "pages" / "toy" / "README.md"
    (folder / "zebra").mkdir()  # after `toy`
    (folder / "zebra" / "claims.py").write_text(
        f"from pathlib import Path\ndef claims():\n    assert Path({str(page)!r}).is_file()\n    return [1 / 0]\n"
    )
    module.load.cache_clear()
    assert main(["reproduce", "all", "--reports", str(tmp_path / "pages")]) == 1
    told = capsys.readouterr().err
    assert "toy ... (1 of 2)" in told
    assert "zebra: ZeroDivisionError" in told
    assert page.is_file()


@pytest.mark.parametrize(("bar", "code"), [(0.1, 0), (0.01, 1)])
def test_a_missed_bar_is_the_exit_code(toy, capsys, bar, code):
    toy(bar)
    assert main(["reproduce", "toy", "--json"]) == code
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    rows = result["claims"]
    assert "toy: 3 claims, " in printed.err
    assert result["summary"]["all"]["predicted"] == {"claims": 2, "with_bar": 1, "met": int(code == 0)}
    assert result["summary"]["all"]["note"] == {"claims": 1}
    assert all(set(row) == ROWS | {*CLAIM_COLUMNS} for row in rows)
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


def test_figure_says_how_far_the_model_is_and_shows_the_farthest():
    few = pd.DataFrame([Claim("toy", f"{i}: x", 1.0, 1.0 + i / 10, 0.15, "derived").row() for i in range(3)])
    axes = agreement(few).axes[0]
    assert len(axes.get_yticks()) == 2  # one agrees
    assert axes.lines[1].get_xdata().tolist() == pytest.approx([10.0, 20.0])
    told = axes.figure.get_suptitle().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")
    assert told.startswith("Half of 3 predicted or fitted numbers lie within 10 % of the paper's, the farthest at 20 %")
    assert told.endswith("1 of 3 miss their bar (1 agree within 0.05 %)")
    many = [Claim("toy", f"{i}: x", 1.0, 1.0 + i / 1000, None, "derived").row() for i in range(90)]
    axes = agreement(pd.DataFrame(many)).axes[0]
    assert len(axes.get_yticks()) == 40
    assert axes.lines[1].get_xdata()[-1] == pytest.approx(8.9)
    same = pd.DataFrame([Claim("toy", "x", 1.0, 1.0, 0.1, "derived").row()])
    assert agreement(same) is None
    long = pd.DataFrame([Claim("toy", f"{i}: {'word ' * 30}", 1.0, 1.2 + i, None, "derived").row() for i in range(2)])
    names = [name.get_text() for name in agreement(long).axes[0].get_yticklabels()]
    assert len(set(names)) == 2
    assert max(len(line) for name in names for line in name.split("\n")) <= 62  # in lines, so that none is cut
    alone = pd.DataFrame([Claim("toy", f"{i}", 1.0, 1.01, None, "derived").row() for i in range(20)]
                         + [Claim("toy", "far", 1.0, 6.0, None, "derived").row()])  # fmt: skip
    axes = agreement(alone).axes[0]
    assert axes.get_xscale() == "symlog"  # or the others would be a column of dots
    assert "logarithmic beyond 1 %" in axes.get_xlabel()
    assert agreement(few.assign(evidence="transcription")) is None


def test_long_tables_are_linked_and_verdicts_fall_back_to_the_bar(tmp_path):
    claims = pd.DataFrame({"claim": ["a", "b"], "paper": [1.0, 1.0], "model": [1.1, 1.5], "error": [0.1, -0.5],
                           "tolerance": [0.2, 0.2], "provenance": "derived"})  # fmt: skip
    long = pd.DataFrame({"n": range(41)})
    page = write_experiment_report(tmp_path, "Toy", {"Claims": claims, "Long table": long}, text="Why.\n")
    text = page.read_text(encoding="utf-8")
    assert "1 of 2 claims with a bar are met." in text
    assert "[41 rows as CSV](long_table.csv)" in text
    assert "| 40 |" not in text
    assert "\nWhy.\n" in text
    assert len(pd.read_csv(tmp_path / "long_table.csv")) == 41


@pytest.mark.slow
def test_committed_page_of_a_run(tmp_path):
    run = write_run(tmp_path / "run")
    page = write_run_report(run, tmp_path / "reports")
    text = page.read_text(encoding="utf-8")
    assert page.parent.name == "train_example"
    for word in ("**Objective.**", "**Best design.**", "**Design.**", "**Confidence.**", "experiment=train_example"):
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
