"""What documents and docstrings say exists: files, sources, rooms."""

import itertools
import re
from pathlib import Path

import pytest
from test_imports import RANK

ROOT = Path(__file__).resolve().parent.parent
SEARCH = ROOT / "codesign" / "search"
KEYS = set(
    re.findall(r"^@\w+\{(\w+)", (ROOT / "codesign" / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
)
# sources and files that a document names: one of commands needs few
LEAST = {
    "index.md": (0, 0),
    "measurements.md": (0, 1),
    "api.md": (0, 1),
    "errors.md": (0, 0),
    "findings.md": (0, 0),
    "scaling.md": (0, 2),
    "internals.md": (3, 21),
}
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_citations_and_files_of_a_document_exist(path: Path):
    text = path.read_text(encoding="utf-8")
    cited = {key.strip() for group in re.findall(r"\[([\w, .]+\d{4}\w*[\w, .]*)\]", text) for key in group.split(",")}
    cited = {key for key in cited if re.fullmatch(r"[a-z]+\d{4}\w*", key)}
    least_cited, least_files = LEAST.get(path.name, (11, 21))
    assert len(cited) >= least_cited
    assert cited <= KEYS, f"not in references.bib: {sorted(cited - KEYS)}"
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    rooms = [ROOT, ROOT / "codesign", SEARCH, *(folder for folder in SEARCH.iterdir() if folder.is_dir())]
    absent = [name for name in files if not any((room / name).is_file() for room in rooms)]
    assert not absent
    assert len(files) >= least_files


def test_every_file_of_the_search_is_in_the_table_of_rooms():
    text = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
    table = text[text.index("| room of `search/`") : text.index("Rooms import one way")]
    named = set(re.findall(r"`(\w+)`", table))
    files = {path.stem for path in SEARCH.rglob("*.py")} - {"__init__"}
    assert files <= named, f"not in docs/internals.md: {sorted(files - named)}"
    assert named - {"search"} <= files


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_paths_of_a_page_for_contributors_exist(name: str):
    """Files and folders, from the root of the repository or of the package; NAME stands for one to be written."""
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:[\w.]+/)+[\w.]*|[\w/]+\.(?:py|md|yml|toml))`", text))
    homes = [ROOT, ROOT / "codesign"]
    absent = sorted(path for path in paths if "NAME" not in path and not any((home / path).exists() for home in homes))
    assert not absent
    assert len(paths) >= 4


def test_the_architecture_is_one_page_and_names_every_room():
    """The table of rooms has those of the package, low to high as `tests/test_imports.py` holds them."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    table = text[text.index("| rooms of `codesign/`") : text.index("`model` has an order")]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:] if line]
    rooms = [path.parent.name for path in (ROOT / "codesign").glob("*/__init__.py")]
    assert sorted(room for row in rows for room in row) == sorted(rooms)
    heights = [{RANK[room] for room in row} for row in rows]
    assert all(max(low) <= min(high) for low, high in itertools.pairwise(heights))


def test_sources_of_docstrings_are_in_the_bibliography():
    cited = set()
    for path in [*(ROOT / "codesign").rglob("*.py"), *(ROOT / "experiments" / "_lib").rglob("*.py")]:
        for line in re.findall(r"Sources?: (.*)", path.read_text(encoding="utf-8")):
            cited |= set(re.findall(r"\[([a-z]+[a-z_]*\d{4}\w*)\]", line))
    assert len(cited) > 5
    assert cited <= KEYS, f"not in references.bib: {sorted(cited - KEYS)}"
