"""What the site needs beyond Markdown: links that leave `docs/` become plain words, markers become tables of leaves.

`<!-- leaves: codesign.hardware -->` stands for a table of every class of that menu: its numbers with shape, unit, legal
range and meaning, read from the classes themselves.
"""

import dataclasses
import importlib
import inspect
import math
import os
import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
MARKER = re.compile(r"<!-- leaves: ([\w.]+) -->")
SHIM = "https://unpkg.com/iframe-worker/shim"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page before it is rendered."""
    here = PurePosixPath(page.file.src_uri).parent

    def inside(match: re.Match[str]) -> str:
        parts = list[str]()
        for part in (*here.parts, *PurePosixPath(match[2]).parts):
            if part == ".." and not parts:
                return match[1]  # of the repository, not of the site
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        return match[0]

    return MARKER.sub(lambda match: leaves_of(match[1]), LINK.sub(inside, markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """A page that asks nobody: what makes search work from a folder is ours, not of a network."""
    up = "../" * (len(PurePosixPath(page.file.dest_uri).parts) - 1)
    return output.replace(SHIM, f"{up}files/worker_in_a_frame.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same of the page for what is not there."""
    return output_content.replace(SHIM, "/files/worker_in_a_frame.js")


def leaves_of(name: str) -> str:
    """Tables of the numbers of all classes in a menu."""
    from codesign.fields import as_leaf, as_leaves
    from codesign.units import unit_of

    menu = importlib.import_module(name)
    found = []
    for word in sorted(vars(menu)):
        cls = vars(menu)[word]
        if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls)) or word.startswith("_"):
            continue
        if not str(cls.__module__).startswith(name) or inspect.isabstract(cls):
            continue
        fields = [one for one in dataclasses.fields(cls) if one.metadata.get("converter") in (as_leaf, as_leaves)]
        if not fields:
            continue
        said = (inspect.getdoc(cls) or "").splitlines()[0]
        found += [
            f"### {word}",
            "",
            said,
            "",
            "| number | shape | unit | legal | default | meaning |",
            "|---|---|---|---|---|---|",
        ]
        for one in fields:
            several = one.metadata.get("converter") is as_leaves
            shape = "a mapping of names to numbers" if several else "scalar, or a batch `*b`"
            doc = str(one.metadata.get("doc") or "").replace("|", "\\|")
            unit = unit_of(f"x.{one.name}") or "1"
            found.append(f"| `{one.name}` | {shape} | {unit} | {_range(one)} | {_default(one)} | {doc} |")
        found.append("")
    return "\n".join(found)


def _range(field: dataclasses.Field) -> str:
    low, high = field.metadata.get("low", 0.0), field.metadata.get("high", math.inf)
    return f"{low:g} to {high:g}" if high < math.inf else f"from {low:g}"


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return "none" if field.default_factory is dataclasses.MISSING else ""
    return f"{float(value):g}" if isinstance(value, int | float) or hasattr(value, "dtype") else str(value)
