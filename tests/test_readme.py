"""What the README and the page on Python show works as shown; the README's figures are those of committed files."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ON_PYTHON = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
MOST_WORDS = 800
FIVE = ("serve", "optimize", "evaluate", "verify", "explore")


def programs(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def printed(code: str, where: str) -> str:
    """What a program prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec"), {"__name__": "example"})
    return out.getvalue()


@pytest.mark.slow
def test_the_example_prints_what_stands_below_it():
    (code,) = programs(README)
    (shown,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    assert printed(code, "README.md") == shown


def test_the_readme_is_one_page_with_five_commands_and_a_figure():
    assert len(README.split()) <= MOST_WORDS
    assert re.findall(r"^\| `codesign (\w+)", README, flags=re.MULTILINE) == list(FIVE)
    (figure,) = re.findall(r'<img src="([^"]+)"', README)
    assert (ROOT / figure).is_file()
    top = README[: README.index("## Example")]
    assert "sh run.sh demo" in top
    assert "sh run.sh test" in top


def test_links_of_the_readme_lead_somewhere():
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(linked) > 10
    assert [path for path in linked if not (ROOT / path).exists()] == []


def strata() -> dict[str, tuple[str, str, str]]:
    """`stratum (quantity)` -> (rows, median, 90th percentile), in per cent, of every committed table of errors."""
    result: dict[str, tuple[str, str, str]] = {}
    for page in (ROOT / "docs" / "errors.md", *sorted((ROOT / "reports" / "validation").glob("*.md"))):
        heads: list[str] = []
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            if cells[:2] == ["stratum", "quantity"]:
                heads = cells
            elif not cells:
                heads = []
            elif heads and len(cells) == len(heads) and not cells[0].startswith("---"):
                row = dict(zip(heads, cells, strict=True))
                result[f"{row['stratum']} ({row['quantity']})"] = row["rows"], row["median %"], row["p90 %"]
    return result


def test_errors_of_the_readme_are_those_of_the_tables():
    known = strata()
    table = README[README.index("## How accurate") : README.index("## What is modelled")]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \|$", table, flags=re.MULTILINE)
    assert len(rows) == 5
    for stratum, *numbers in rows:
        assert "left out" in stratum, "errors on rows of the fit say little"
        assert known[stratum] == tuple(numbers), stratum


@pytest.mark.slow
def test_a_study_is_solved_as_shown(capsys: pytest.CaptureFixture[str]):
    """On a tenth of the plans, which is what differs from the text."""
    code = programs(ON_PYTHON)[1].replace(
        '"objective.limits', '"~space.plan", "+space.plan={tp: [4, 8], pp: [8]}", "objective.limits'
    )
    lines = printed(code, "docs/how-to/python.md").splitlines()
    assert "time_s" in lines[0]
    (numbers,) = (line.split() for line in lines if re.fullmatch(r"[\d.]+ [\d.]+ (True|False)", line))
    best, bound, certified = numbers
    assert float(bound) <= float(best)
    assert certified == "True"


@pytest.mark.slow
def test_a_grid_of_slopes_is_computed_as_shown():
    code, _ = programs(ON_PYTHON)
    text = printed(code, "docs/how-to/python.md")
    seconds, slopes = re.findall(r"\[([^\]]*)\]", text)
    assert re.match(r"step \d+\.\d\d s, MFU \d+\.\d%, \$\d", text)
    times = [float(text) for text in seconds.split(",")]
    assert sorted(times, reverse=True) == times
    assert times[0] > times[-1], "more bandwidth inside a node shortens this step"
    assert all(float(text) <= 0 for text in slopes.split(","))
