"""What README and documentation show can be typed: commands are parsed, studies composed, programs compiled.

`python tests/run_documented.py --tables` runs all of it; here run the commands of the reference that price one design,
list, write a skeleton or read a run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from documented import PAGES, ROOT, Block, blocks, filled, is_pattern
from example_run import write_run

from codesign.commands.cli import main
from codesign.commands.comparing import without_along
from codesign.commands.listing import TOPICS
from codesign.commands.parser import parser
from codesign.commands.skeletons import new, new_file
from codesign.config import own_files, scenario_from_config
from codesign.config.composition import admit, combinations
from codesign.config.starting import started

SHOWN = {page.relative_to(ROOT).as_posix(): blocks(page) for page in PAGES}


def parsed(block: Block):
    """The options of a `codesign` command, as `cli` reads them."""
    words = block.words[1:]
    known, unknown = parser().parse_known_args(words)
    if hasattr(known, "overrides"):
        known.overrides += [word for word in unknown if not word.startswith("-")]
        unknown = [word for word in unknown if word.startswith("-")]
    assert not unknown, block.text
    return known


def compose(known, folder: Path) -> None:
    """Whatever a command would look up in `conf/` exists and takes these values."""
    words = list(getattr(known, "overrides", ()))
    if known.command == "list" and known.group in TOPICS:
        words = [word for word in known.words if "=" in word]
    if known.command == "compare":
        words, _ = without_along(words)
    words = [word for word in words if not word.startswith(("hydra", "search.resume"))]
    for job in combinations(admit(words)):
        admit(started(job))


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name, result in SHOWN.items() if result])
def test_what_a_page_shows_can_be_typed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for block in SHOWN[page]:
        if block.kind == "file":
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "program":
            compile(block.text, page, "exec")
        elif block.words[0] == "codesign" and not (block.kind == "cell" and is_pattern(block)):
            known = parsed(block)
            if known.command == "scaffold":
                if known.into:
                    new_file(known.kind, known.name, known.into)
                else:
                    new(known.kind, known.name, known.package)
                continue
            with own_files(*getattr(known, "conf", ())):
                compose(known, tmp_path)
        elif block.kind == "command":
            assert block.words[0] in ("codesign", "sh", "python"), block.text
            if block.words[0] != "codesign":
                assert (ROOT / block.words[1]).is_file(), block.text


CELLS = [filled(block).text for block in SHOWN["docs/reference/cli.md"] if block.kind == "cell"]
QUICK = ("list", "scaffold", "sql", "report", "check-plugin", "validate --schema")
OF_CHUNKS = (" from chunks ", " from kept ")  # tables of a grid that was computed in chunks
EACH = """
import sys
from codesign.commands.cli import main
for words in {commands!r}:
    if main(words):
        sys.exit(" ".join(words))
"""


def is_quick(text: str) -> bool:
    return text.removeprefix("codesign ").startswith(QUICK) and not any(part in text for part in OF_CHUNKS)


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text in CELLS if is_quick(text)])
def test_a_command_of_a_table_does_what_it_says(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """In the process of the test: what remains, minutes of searching, is run by hand."""
    monkeypatch.chdir(tmp_path)
    words = Block(ROOT, "cell", text).words[1:]
    if "RUN" in words:
        folder = str(write_run(tmp_path / "run"))
        words = [folder if word == "RUN" else word for word in words]
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_designs_of_tables_are_priced(tmp_path: Path):
    """In one process of its own, as a user's: its numbers are NumPy's, which the types checked here are not."""
    commands = [Block(ROOT, "cell", text).words[1:] for text in CELLS if text.startswith("codesign evaluate")]
    assert len(commands) >= 5
    done = subprocess.run(
        [sys.executable, "-c", EACH.format(commands=commands)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1000:]


def test_a_file_of_the_documentation_does_what_its_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for block in SHOWN["docs/how-to/accelerator.md"]:
        if block.kind == "file":
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
    chip = scenario_from_config("accelerator=my_chip_2", "model=llama31_8b", conf="mine").cluster.accelerator
    assert chip.name == "my_chip_2"
    assert float(chip.hbm.capacity_bytes) == 160e9


def test_the_site_is_built_without_a_warning_and_asks_nothing_of_a_network(tmp_path: Path):
    """Of a few pages: the whole is a step of `run.sh test`."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'codesign[docs]'")
    import yaml

    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["font"] is False
    named: list[str] = []

    def walk(node) -> None:
        if isinstance(node, str):
            named.append(node)
        for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(one)

    walk(settings["nav"])
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert set(named) == pages
    for text in [*(page.read_text(encoding="utf-8") for page in PAGES), (ROOT / "docs/files/site.css").read_text()]:
        assert not any(word in text for word in ("<script", "<link", "<iframe", "@import"))


def test_notebooks_are_whole_compile_and_have_no_outputs():
    paths = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert len(paths) == 5
    for path in paths:
        result = json.loads(path.read_text(encoding="utf-8"))
        for cell in result["cells"]:
            assert not cell.get("outputs"), path.name
            if cell["cell_type"] == "code":
                compile("".join(cell["source"]), path.name, "exec")
