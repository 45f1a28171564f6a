"""Write the page of renamed things, `docs/reference/renamed.md`, from the aliases: `python docs/make_renamed.py`."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from codesign.core import earlier_names as names

PAGE = Path(__file__).resolve().parent / "reference" / "renamed.md"
OPENING = """# Renamed in 0.2

`python docs/make_renamed.py` writes this page from `codesign/core/earlier_names.py`.

Release 0.2 takes the earlier name and prints one line; release 0.3 will not. Run folders, files of `--conf` and command
lines of release 0.1 work as they are. In Python only the new names exist. JSON of `codesign reproduce` has both names
of a claim's columns.
"""


def page() -> str:
    """The text of the page."""
    keys = {
        f"`{old}` of `{begun.rpartition('.')[2] or begun.rstrip('.')}`": f"`{new}`"
        for begun, renamed in names.KEYS.items()
        if renamed is not names.PLAN
        for old, new in renamed.items()
    }
    groups = {f"`{old}=`": f"`{new}=`" for old, new in names.GROUPS.items()}
    before = {new: old for old, new in names.GROUPS.items()}
    options = {f"`{before.get(group, group)}={old}`": f"`{group}={new}`" for (group, old), new in names.OPTIONS.items()}
    columns = {**names.PARTS, **names.CLAIM_COLUMNS}
    sections: dict[str, Mapping[str, str]] = {
        "Commands": _code(names.COMMANDS)
        | {"`along=` of `compare`": "`sweep=`", "`--few` of `calibrate`": "`--few-shot`"},
        "Config groups and options": groups | options,
        "Fields of plans": _code(names.PLAN),
        "Metrics": _code(names.METRICS),
        "Arguments of classes": keys,
        "Columns and parts of metrics": _code(columns),
    }
    lines = [line for title, rows in sections.items() for line in _section(title, rows)]
    return "\n".join([OPENING, *lines])


def _code(rows: Mapping[str, str]) -> dict[str, str]:
    return {f"`{old}`": f"`{new}`" for old, new in rows.items()}


def _section(title: str, rows: Mapping[str, str]) -> Iterable[str]:
    yield from (f"## {title}", "", "| before | now |", "|---|---|")
    yield from (f"| {old} | {new} |" for old, new in rows.items())
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
