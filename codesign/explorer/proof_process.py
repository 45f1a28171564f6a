"""The process that proves: `python -P -m codesign.explorer.proof_process NICE FOLDER [OVERRIDE ...]`."""

import os
import sys

from ..errors import CodesignError
from ..run.optimize import optimize


def main(words: list[str]) -> int:
    """Search, with lower priority, into a folder; what is wrong is one line."""
    os.nice(int(words[0]))
    try:
        return optimize(words[2:], words[1])
    except CodesignError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
