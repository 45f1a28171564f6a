"""Commands that README and documentation show: one reader of their fenced blocks, for a quick test and a whole run.

`sh` and `console` blocks hold commands, one a line; `python` and `py` blocks programs; a block with a `title` a file of
the reader's own, of that name. What cannot be run (installing) stands in blocks without a language; a program marked
`notest` needs what an earlier command of its page leaves. In a command RUN stands for the run folder made last.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
CELL = re.compile(r"^\| `(codesign [^`]*)` \|", re.MULTILINE)


class Block(NamedTuple):
    """Something that a page shows. kind: `command`, `program` or `file` (whose name is `title`)."""

    page: Path
    kind: str
    text: str
    title: str = ""

    @property
    def words(self) -> list[str]:
        """Of a command."""
        return shlex.split(self.text, comments=True)


def blocks(page: Path) -> list[Block]:
    """All that a page shows, in its order; commands in the first column of a table count too."""
    text = page.read_text(encoding="utf-8")
    result: list[tuple[int, Block]] = []
    for match in FENCE.finditer(text):
        language, more, body = match.groups()
        title = TITLE.search(more)
        if title:
            result.append((match.start(), Block(page, "file", body, title[1])))
        elif language in ("sh", "console"):
            for line in body.replace("\\\n", " ").splitlines():
                line = line.removeprefix("$ ").strip()
                if line and not line.startswith("#"):
                    result.append((match.start(), Block(page, "command", line)))
        elif language in ("python", "py"):
            result.append((match.start(), Block(page, "program", body, more.strip())))
    for match in CELL.finditer(text):
        line = match[1].replace("\\|", "|")
        result.append((match.start(), Block(page, "cell", line)))
    return [block for _, block in sorted(result, key=lambda one: one[0])]


STAND_INS = (  # what a reader fills in, and what is filled in here
    ("fabric NAME", "fabric my_fabric"),
    ("accelerator NAME --conf DIR", "accelerator my_chip --conf mine"),
    ("validate DIR", f"validate {ROOT / 'tests/data/tables'}"),
    ("path=config.json", f"path={ROOT / 'tests/data/hub/llama31_8b.json'}"),
    ("--load FILE", f"--load {ROOT / 'experiments/serve_by_the_hour/load.csv'}"),
)


def filled(block: Block) -> Block:
    """A command of a table with something in the place of what a reader fills in; RUN stays."""
    text = block.text
    for pattern, instead in STAND_INS if block.kind == "cell" else ():
        text = text.replace(pattern, instead)
    return block._replace(text=text)


def is_pattern(block: Block) -> bool:
    """Whether a command of a table stands for many: it has words in capitals or brackets that a reader fills in."""
    return bool(re.search(r"\[[A-Z]|\b(RUN|DIR|NAME|FAMILY|GROUP|HOST|URL)\b", block.text))
