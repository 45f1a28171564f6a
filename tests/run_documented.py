"""Run what README and documentation show, each page in an empty folder: `python tests/run_documented.py [PAGE ...]`.

A page is named by a part of its path. A command that needs what the page does not leave (a path of the reader's own) is
skipped and counted. `--tables` runs the commands of tables too (those of `docs/reference/cli.md`: half an hour), with
something in the place of what a reader fills in (`documented.STAND_INS`).
`--codesign PATH` runs an installed command, such as a wheel's, instead of this checkout's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from documented import PAGES, ROOT, Block, blocks, filled, is_pattern

MOST_S = 600.0  # that one command may take
LONG = ("train-amortised", "calibrate", "reproduce all", "FILE.csv")  # hours, constants of this checkout, a trace
NEEDS = {  # what the run must be of that a command takes; others take the newest
    "simulate": "serve_llama31_405b", "export": "serve_llama31_405b", "verify": "serve_llama31_405b",
    "autoscale": "serve_goodput",
}  # fmt: skip
CHECKOUT = ("sh", "python")  # words that begin a command of the repository, not of a user


def environment(home: Path) -> dict[str, str]:
    """An empty home, and this checkout where nothing is installed."""
    return os.environ | {"HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)), "COLUMNS": "160"}


def newest(folder: Path, study: str = "") -> str:
    """The run folder that was made last, of a study where one is named."""
    result = sorted(
        (path for path in (folder / "runs").glob(f"*{study}") if (path / "config.yaml").is_file()),
        key=os.path.getmtime,
    )
    return str(result[-1].relative_to(folder)) if result else "RUN"


def as_run(block: Block, folder: Path, command: list[str], python: str, *, tables: bool) -> list[str] | None:
    """Words to run; None for what is not."""
    if block.kind == "program":
        return None if "notest" in block.title else [python, "-c", block.text]
    if (
        (block.kind == "cell" and (not tables or "explore" in block.words))
        or block.words[0] in CHECKOUT
        or any(word in block.text for word in LONG)
    ):
        return None
    block = filled(block)
    study = NEEDS.get(block.words[1], "") if block.kind == "cell" and "RUN" in block.words else ""
    if study and newest(folder, study) == "RUN":
        asked = [*command, "optimize", f"experiment={study}"]
        subprocess.run(asked, cwd=folder, env=environment(folder), capture_output=True, timeout=MOST_S, check=True)
    words = [word.replace("RUN", newest(folder, study)) for word in block.words]
    return None if is_pattern(block) and "RUN" in words else [*command, *words[1:]]


def run_page(page: Path, command: list[str], python: str, home: Path, *, tables: bool) -> tuple[int, int, int]:
    """Commands run, failed and skipped of a page."""
    counts = [0, 0, 0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for block in blocks(page):
            if block.kind == "file":
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.text, encoding="utf-8")
                continue
            words = as_run(block, folder, command, python, tables=tables)
            if words is None:
                counts[2] += 1
                continue
            started = time.perf_counter()
            try:
                done = subprocess.run(
                    words, cwd=folder, env=environment(home), capture_output=True, text=True, timeout=MOST_S
                )
                code, said = done.returncode, (done.stderr or done.stdout).strip()
            except subprocess.TimeoutExpired:
                code, said = 124, f"more than {MOST_S:g} s"
            spent = time.perf_counter() - started
            counts[0] += 1
            counts[1] += code != 0
            shown = block.text.strip().splitlines()[0]
            print(f"{'ok  ' if code == 0 else 'FAIL'} {spent:5.1f} s  {shown}", flush=True)
            if code:
                print(f"     exit code {code}: {said[-600:]}", flush=True)
    return counts[0], counts[1], counts[2]


def main() -> int:
    """All pages, or those named; 1 where a command fails."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("pages", nargs="*", metavar="PAGE")
    asked.add_argument("--tables", action="store_true", help="commands of tables too")
    asked.add_argument("--codesign", default=None, metavar="PATH", help="an installed command")
    options = asked.parse_args()
    command = [options.codesign] if options.codesign else [sys.executable, "-m", "codesign"]
    python = str(Path(options.codesign).parent / "python") if options.codesign else sys.executable
    totals = [0, 0, 0]
    with tempfile.TemporaryDirectory() as home:
        for page in PAGES:
            name = page.relative_to(ROOT).as_posix()
            if options.pages and not any(part in name for part in options.pages):
                continue
            print(name, flush=True)
            totals = [
                total + one
                for total, one in zip(
                    totals, run_page(page, command, python, Path(home), tables=options.tables), strict=True
                )
            ]
    print(f"{totals[0]} run, {totals[1]} failed, {totals[2]} not run (tables of commands, patterns, of the checkout)")
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
