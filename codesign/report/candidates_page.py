"""The page of a comparison, and the frames beside it that it is made of."""

import base64
import dataclasses
import json
import math
from pathlib import Path

import pandas as pd

from ..core.atomic_files import frame_bytes, write_files
from ..core.errors import ConfigError
from ..core.json_yaml import dumps
from ..core.units import percent
from ..model.workloads.base import Words
from .labels import DASH, number, unit_of
from .pages import rendered
from .side_by_side import Comparison, columns, sentences, winners, without

PAGE, FRAME, FACTS = "report.html", "comparison.parquet", "comparison.json"
MORE = ("phases", "prices")
"""Frames beside the table, each a file where it has rows."""


def write(found: Comparison, folder: Path) -> Path:
    """The frames, the facts beside them and the page.

    Returns:
        The page.
    """
    files: dict[Path, str | bytes] = {folder / FRAME: frame_bytes(found.table)}
    for name in MORE:
        frame: pd.DataFrame = getattr(found, name)
        if not frame.empty:
            files[folder / f"{name}.parquet"] = frame_bytes(frame)
    facts = {
        "goal": found.goal, "maximised": found.maximised, "job": found.job, "along": found.along,
        "words": dataclasses.asdict(found.words), **found.facts,
    }  # fmt: skip
    write_files(files | {folder / FACTS: dumps(facts, indent=2)})
    return write_page(found, folder)


def read(folder: Path) -> Comparison:
    """Read a comparison that `write` left.

    Raises:
        ConfigError: a file that cannot be read.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        there = [name for name in MORE if (folder / f"{name}.parquet").is_file()]
        more = {name: pd.read_parquet(folder / f"{name}.parquet") for name in there}
        words = Words.from_json(facts.pop("words"))
        known = {name: facts.pop(name) for name in ("goal", "maximised", "job", "along")}
        return Comparison(pd.read_parquet(folder / FRAME), words=words, facts=facts, **more, **known)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{str(folder)!r} cannot be read as a comparison: {str(error).splitlines()[0]}") from error


def write_page(found: Comparison, folder: Path) -> Path:
    """`report.html` of a comparison."""
    from . import comparison_figures as drawn  # matplotlib is loaded for pages alone

    pictures = {
        name: (png, "data:image/png;base64," + base64.b64encode(png).decode("ascii"))
        for name, png in drawn.pictures(found).items()
    }
    page = folder / PAGE
    text = rendered(
        "comparison.html.j2",
        found=found,
        said=sentences(found),
        columns=columns(found),
        rows=[dict(row) for _, row in found.table.iterrows()],
        levels=_level_rows(found),
        pictures={name: uri for name, (_, uri) in pictures.items()},
        percent=lambda share: DASH if share is None or share != share else f"{share:.0%}",
        share=percent,
        without=without,
    )
    write_files({folder / f"{name}.png": png for name, (png, _) in pictures.items()} | {page: text})
    return page


def _level_rows(found: Comparison) -> list[tuple[str, str, list[str]]]:
    """(level, best candidate, goal of each candidate) along what was varied."""
    names = list(found.table["candidate"])
    rows = []
    for level, best in winners(found):
        here = found.phases[found.phases["level"] == level].set_index("candidate")
        cells = [found.text(found.goal, here["objective"].get(name, math.nan)) for name in names]
        value = here["value"].iloc[0]
        rows.append((number(value, unit_of(found.along)) if value == value else level, best, cells))
    return rows
