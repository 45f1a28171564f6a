"""Docstrings say what a thing is: no first line that only answers a question nobody has asked."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VAGUE = re.compile(
    r'"""(Of|Whether|What|Who|The same|That|All that|As|Why|Anything|Something|Those|It|How|Which|Where|When'
    r"|Everything|These|In|Both)\b"
)


def test_first_lines_say_what_the_thing_is():
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "codesign").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if VAGUE.search(line)
    ]
    assert not wrong, "begin with a noun or a verb (`Seconds of a step`, `True if ...`):\n" + "\n".join(wrong)
