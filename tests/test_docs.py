"""What documents and docstrings say exists: files, sources, rooms."""

import re
from pathlib import Path

import pytest

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
    rooms = [ROOT, SEARCH, *(folder for folder in SEARCH.iterdir() if folder.is_dir())]
    absent = [name for name in files if not any((room / name).is_file() for room in rooms)]
    assert not absent
    assert len(files) >= least_files


def test_every_file_of_the_search_is_in_the_table_of_rooms():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text[text.index("| room of `search/`") : text.index("Rooms import one way")]
    named = set(re.findall(r"`(\w+)`", table))
    files = {path.stem for path in SEARCH.rglob("*.py")} - {"__init__"}
    assert files <= named, f"not in ARCHITECTURE.md: {sorted(files - named)}"
    assert named - {"search"} <= files


def test_sources_of_docstrings_are_in_the_bibliography():
    cited = set()
    for path in (ROOT / "codesign").rglob("*.py"):
        for line in re.findall(r"Sources?: (.*)", path.read_text(encoding="utf-8")):
            cited |= set(re.findall(r"\[([a-z]+[a-z_]*\d{4}\w*)\]", line))
    assert len(cited) > 5
    assert cited <= KEYS, f"not in references.bib: {sorted(cited - KEYS)}"
