"""The process that proves: `python -P -m codesign.explorer.proof_process NICE FOLDER [--conf DIR] [OVERRIDE ...]`."""

import os
import sys

from ..commands.optimize import optimize
from ..config import own_files
from ..core.errors import CodesignError
from ..core.terminal_encoding import lenient_output


def main(words: list[str]) -> int:
    """Search, with lower priority, into a folder; what is wrong is one line."""
    with lenient_output(restore=False):
        return _prove(words)


def _prove(words: list[str]) -> int:
    os.nice(int(words[0]))
    folders, asked = list[str](), words[2:]
    while asked[:1] == ["--conf"]:
        folders, asked = [*folders, asked[1]], asked[2:]
    try:
        with own_files(*folders):
            return optimize(asked, words[1])
    except CodesignError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
