"""The page of findings says what the pages of experiments and their reports say."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAKER = importlib.util.spec_from_file_location("make_findings", ROOT / "docs" / "make_findings.py")
assert MAKER
assert MAKER.loader
make_findings = importlib.util.module_from_spec(MAKER)
MAKER.loader.exec_module(make_findings)
PAGE = make_findings.PAGE.read_text(encoding="utf-8")


def test_the_committed_page_is_what_the_experiments_say():
    assert make_findings.page() == PAGE


def test_every_experiment_stands_on_the_page_once():
    named = [name for names in make_findings.GROUPS.values() for name in names]
    assert sorted(named) == sorted(make_findings.experiments())


def test_every_link_and_picture_of_the_page_exists():
    named = re.findall(r'(?:\]\(|src=")([^)"]+)', PAGE)
    assert len(named) > len(make_findings.experiments())
    assert [name for name in named if not (ROOT / "docs" / name).is_file()] == []


def test_all_but_one_have_a_picture():
    assert [name for name in make_findings.experiments() if make_findings.picture_of(name) is None] == ["compositions"]


def test_a_page_without_a_finding_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "experiments" / "one" / "README.md"
    page.parent.mkdir(parents=True)
    page.write_text("# One\n\n**Question.** Which?\n", encoding="utf-8")
    monkeypatch.setattr(make_findings, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"no paragraph begins with \*\*Finding"):
        make_findings.finding_of("one")
    page.write_text("# One\n\n**Finding.** Two lines\nof it.\n\n**Question.** Which?\n", encoding="utf-8")
    assert make_findings.finding_of("one") == ("Two lines of it.", "../experiments/one/README.md")
