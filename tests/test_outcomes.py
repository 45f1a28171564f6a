"""Every experiment of `conf/` has an outcome that was committed, whole, and whose pictures somebody can come upon."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
OUTCOMES = sorted(path.name for path in REPORTS.iterdir() if path.is_dir() and path.name != "validation")


def linked(text: str) -> set[str]:
    """Files that a page names, but for addresses of the network."""
    return {name.partition("#")[0] for name in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in name}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_a_committed_outcome(name):
    """A page that says what was found, by which command; numbers as a table; a picture."""
    page = (REPORTS / name / "README.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert "**Best design.**" in page or "\n## Claims\n" in page
    assert f"experiment={name}" in page or f"experiments/{name}/README.md" in page
    assert list((REPORTS / name).glob("*.csv"))
    assert list((REPORTS / name).glob("*.png"))


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_belongs_to_an_experiment_and_shows_all_that_lies_beside_it(name):
    assert name in EXPERIMENTS or (ROOT / "experiments" / name).is_dir()
    folder = REPORTS / name
    named = linked((folder / "README.md").read_text(encoding="utf-8"))
    assert [path for path in named if not (folder / path).exists()] == []
    pictures = {path.name for path in folder.glob("*.png")}
    assert pictures - named == set()


def test_pictures_beside_experiments_are_shown_too():
    for path in (ROOT / "experiments").glob("*/*.png"):
        assert path.name in linked((path.parent / "README.md").read_text(encoding="utf-8")), path
