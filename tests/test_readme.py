"""What the README shows works as shown."""

import contextlib
import io
import re
from pathlib import Path

from codesign.cli import parser

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_a_study_is_solved_as_shown(capsys):
    """On a tenth of the plans, which is what differs from the text."""
    code = EXAMPLES[1].replace(
        '"objective.limits', '"~space.plan", "+space.plan={tp: [4, 8], pp: [8]}", "objective.limits'
    )
    exec(compile(code, "README.md", "exec"), {"__name__": "example"})
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("Solution(time_s ")
    best, bound, certified = second.split()
    assert float(bound) <= float(best)
    assert certified == "True"


def test_opening_example_runs():
    code, _ = EXAMPLES
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "example"})
    seconds, slopes = re.findall(r"\[([^\]]*)\]", printed.getvalue())
    assert re.match(r"step \d+\.\d\d s, MFU \d+\.\d%, \$\d", printed.getvalue())
    times = [float(text) for text in seconds.split(",")]
    assert sorted(times, reverse=True) == times
    assert times[0] > times[-1], "more bandwidth inside a node shortens this step"
    assert all(float(text) <= 0 for text in slopes.split(","))


def test_every_command_is_named():
    commands = re.findall(r"^    ([a-z-]+)(?: |$)", parser().format_help(), flags=re.MULTILINE)
    assert "optimize" in commands
    assert [name for name in commands if f"`codesign {name}" not in README] == []
