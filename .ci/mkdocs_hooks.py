"""What the site needs beyond Markdown: experiments and reports as pages, other links as plain words, tables of leaves.

Files below `experiments/` and `reports/` join the site under the same name, so that a link from `docs/` works in the
repository and in the site; they are not searched.

`<!-- leaves: codesign.model.hardware -->` stands for a table of every class of that menu: its numbers with shape, unit,
legal range and meaning, read from the classes themselves.
"""

import dataclasses
import importlib
import inspect
import math
import os
import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
JOINED = ("experiments/", "reports/")
SHOWN = {".md", ".png", ".svg", ".csv"}
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
SOURCE = re.compile(r"(!\[[^\]]*\]\(|<img [^>]*src=\")(?!https?:|data:)([^)\"\s]+)")
MARKER = re.compile(r"<!-- leaves: ([\w.]+) -->")
SHIM = "https://unpkg.com/iframe-worker/shim"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """The files of the site, with those of experiments and reports."""
    for folder in JOINED:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SHOWN:
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page before it is rendered."""
    uri = page.file.src_uri
    if uri.startswith(JOINED):
        page.meta["search"] = {"exclude": True}

    def link(match: re.Match[str]) -> str:
        found = in_site(uri, match[2])
        return match[1] if found is None else f"[{match[1]}]({found}{match[3] or ''})"

    def source(match: re.Match[str]) -> str:
        return match[1] + (in_site(uri, match[2]) or match[2])

    return MARKER.sub(lambda match: leaves_of(match[1]), SOURCE.sub(source, LINK.sub(link, markdown)))


def in_site(uri: str, target: str) -> str | None:
    """A link of the repository as one of the site, relative to the page; None where the site lacks the file."""
    folder = posixpath.dirname(uri if uri.startswith(JOINED) else f"docs/{uri}")
    path = posixpath.normpath(posixpath.join(folder, target))
    inside = path.startswith("docs/") or (path.startswith(JOINED) and Path(path).suffix in SHOWN)
    return posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(uri) or ".") if inside else None


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """A page that asks nobody: what makes search work from a folder is ours, not of a network."""
    up = "../" * (len(PurePosixPath(page.file.dest_uri).parts) - 1)
    return output.replace(SHIM, f"{up}files/worker_in_a_frame.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same of the page for what is not there."""
    return output_content.replace(SHIM, "/files/worker_in_a_frame.js")


def leaves_of(name: str) -> str:
    """Tables of the numbers of all classes in a menu."""
    from codesign.core.fields import as_leaf, as_leaves
    from codesign.core.units import unit_of

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
