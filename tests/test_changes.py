"""The changelog and the files that its next entry is made of."""

import re
import tomllib
from pathlib import Path

import pytest

import codesign

ROOT = Path(__file__).resolve().parent.parent
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
TYPES = {one["directory"] for one in TOWNCRIER["type"]}
FRAGMENTS = sorted(
    path for path in (ROOT / TOWNCRIER["directory"]).iterdir() if path.name not in (*TOWNCRIER["ignore"], ".gitignore")
)


def problem_of(name: str, text: str) -> str | None:
    """What keeps a fragment out of the changelog; None where nothing does."""
    named = re.fullmatch(r"[\w+-]+\.(\w+)\.md", name)
    if not named or named[1] not in TYPES:
        return f"{name}: NAME.TYPE.md with a type of {sorted(TYPES)}"
    if len(text.strip().splitlines()) != 1:
        return f"{name}: one line"
    if named[1] == "moved" and len(re.split(r"(?<!\\)\|", text.strip())) != 4:
        return f"{name}: what | before | after | why"
    return None


def test_every_fragment_can_be_read():
    assert [said for path in FRAGMENTS if (said := problem_of(path.name, path.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pool.md", "one"), ("pool.new.md", "one"), ("pool.added.txt", "one"), ("pool.added.md", ""),
        ("pool.added.md", "one\ntwo"), ("pool.moved.md", "step | 1 s | 2 s"),
        ("pool.moved.md", "step | 1 s | 2 s | why | else"),
    ],
)  # fmt: skip
def test_a_fragment_that_cannot_be_read_is_named(name: str, text: str):
    assert problem_of(name, text)


def test_the_newest_release_of_the_changelog_is_this_one():
    text = (ROOT / TOWNCRIER["filename"]).read_text(encoding="utf-8")
    assert "<!-- towncrier release notes start -->\n" in text
    releases = re.findall(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)$", text, re.MULTILINE)
    assert releases[0] == codesign.__version__
    assert releases == sorted(set(releases), key=lambda one: [int(part) for part in one.split(".")], reverse=True)


def test_an_entry_of_the_changelog_is_one_line_and_a_number_that_moved_has_four_cells():
    text = (ROOT / TOWNCRIER["filename"]).read_text(encoding="utf-8")
    _, entries = text.split("<!-- towncrier release notes start -->\n")
    kinds = {"heading": r"#{2,3} .*", "entry": r"- \S.*", "row": r"\|([^|]+\|){4}", "space": ""}
    assert [line for line in entries.splitlines() if not any(re.fullmatch(one, line) for one in kinds.values())] == []
    assert set(re.findall(r"^### (.*)$", entries, re.MULTILINE)) <= {one["name"] for one in TOWNCRIER["type"]}
