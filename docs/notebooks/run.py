"""Execute the notebooks, each from top to bottom in a process of its own: `python docs/notebooks/run.py [NAME ...]`."""

import sys
import time
from pathlib import Path

import nbclient
import nbformat

HERE = Path(__file__).resolve().parent
MOST_S = 60.0  # that a notebook may take on an idle machine


def executed(path: Path, timeout_s: float = 600.0) -> float:
    """Run all cells and return the seconds that it took.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell that fails, with what it said.
    """
    started = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=timeout_s, kernel_name="python3").execute()
    return time.perf_counter() - started


def main(names: list[str]) -> int:
    """All, or those that are named; 1 where one fails."""
    failed = 0
    for path in sorted(HERE.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        try:
            seconds = executed(path)
            print(f"{path.stem}: {seconds:.0f} s{'' if seconds <= MOST_S else f', more than {MOST_S:g}'}", flush=True)
        except nbclient.exceptions.CellExecutionError as error:
            failed += 1
            print(f"{path.stem}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
