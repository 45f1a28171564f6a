"""The page of errors says what the committed tables say, and the tables agree with each other."""

import importlib.util
import re
from pathlib import Path

import pytest

from codesign.evidence.validation.page import COLUMNS, file_of, fitted_on

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "reports" / "validation"
MAKER = importlib.util.spec_from_file_location("make_errors", ROOT / "docs" / "make_errors.py")
assert MAKER
assert MAKER.loader
make_errors = importlib.util.module_from_spec(MAKER)
MAKER.loader.exec_module(make_errors)
STRATA = make_errors.read()


def test_the_committed_page_and_figure_are_what_the_tables_say():
    files = make_errors.files_of(STRATA)
    assert {path.name for path in files} == {"errors.md", "errors.svg"}
    assert [path.name for path, text in files.items() if path.read_text(encoding="utf-8") != text] == []


def test_the_page_and_the_figure_move_with_a_number():
    key = make_errors.LINES[0].fitted
    moved = {**STRATA, key: {**STRATA[key], "median": "0.4321"}}
    before, after = make_errors.files_of(STRATA), make_errors.files_of(moved)
    assert "43.2 %" in after[ROOT / "docs" / "errors.md"]
    assert all(before[path] != text for path, text in after.items())


def test_a_stratum_that_is_not_in_the_tables_is_an_error():
    missing = {key: row for key, row in STRATA.items() if key != make_errors.LINES[0].held_out}
    with pytest.raises(KeyError):
        make_errors.files_of(missing)


def test_the_page_has_twenty_lines_and_links_every_table():
    page = make_errors.page_of(STRATA)
    assert len(make_errors.LINES) == 20
    linked = set(re.findall(r"reports/validation/(\w+)\.md", page))
    assert linked == {path.stem for path in TABLES.glob("*.md")}


@pytest.mark.parametrize("suite", sorted({suite for suite, _, _ in STRATA}))
def test_the_table_of_a_suite_holds_the_numbers_of_its_strata(suite: str):
    text = (TABLES / file_of(suite)).read_text(encoding="utf-8").split("By device and source")[0]
    shown = {tuple(line.strip("| ").split(" | ")[:2]): line for line in text.splitlines() if line.startswith("| ")}
    mine = {key: row for key, row in STRATA.items() if key[0] == suite}
    assert len(shown) == len(mine) + 1  # and the head
    for (_, stratum, quantity), row in mine.items():
        cells = [cell.strip() for cell in shown[stratum, quantity].split("|")[1:-1]]
        assert row["fitted"] == fitted_on(row) == cells[2]
        numbers = dict(zip(COLUMNS, cells[3:], strict=True))
        assert numbers["rows"] == f"{float(row['n']):.0f}"
        assert float(numbers["median %"]) == pytest.approx(100 * float(row["median"]), abs=0.051)
        assert float(numbers["p90 %"]) == pytest.approx(100 * float(row["p90"]), abs=0.051)
