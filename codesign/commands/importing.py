"""`codesign import`: what benchmarks and trainers wrote, as a table of measured runs or of collectives."""

import argparse
import contextlib
import sys
from pathlib import Path

from ..core.atomic_files import write_text
from ..core.errors import ConfigError, suggestion
from ..evidence.importers import ImportedRow, as_csv, collective_rows, imported, is_collective
from ..evidence.measurements.folder import CHOICES, NUMBERS, metric_of, number_path


def import_runs(options: argparse.Namespace) -> int:
    """Read files, add what they do not say, write or print the table."""
    paths, added = [], dict[str, str]()
    for word in options.files:
        key, equals, value = word.partition("=")
        if equals and not Path(word).exists():
            added[key] = value
        else:
            paths.append(Path(word))
    if not paths:
        raise ConfigError("import: name at least one file; what it does not say follows as key=value (gpu=h100 tp=8)")
    rows = [row for path in paths for row in imported(path)]
    if is_collective(rows):
        text = as_csv(collective_rows(_of_known_devices(rows), added), {})
    else:
        for key in added:
            check_run_column(key, "import")
        if not any(CHOICES.get(name.lower()) == "accelerator" for name in (*added, *rows[0])):
            raise ConfigError("import: no file says on which device it ran; add gpu=NAME, such as gpu=h100_sxm")
        text = as_csv(rows, added)
    if options.out is None:
        print(text, end="")
        return 0
    out = Path(options.out)
    write_text(out, text)
    what = "row" if is_collective(rows) else "run"
    told = f"{len(rows)} {what}{'s' if len(rows) > 1 else ''} of {len(paths)} file{'s' if len(paths) > 1 else ''}"
    print(f"codesign: {told}; `codesign validate {out.parent}` compares them", file=sys.stderr)
    print(out)
    return 0


def _of_known_devices(rows: list[ImportedRow]) -> list[ImportedRow]:
    """The rows with devices as files of ours call them, where one does: drivers print `NVIDIA H100 80GB HBM3`."""
    from ..evidence.validation.row_overrides import accelerator_option  # which loads JAX

    known = dict[str, str]()
    for name in {row["gpu"] for row in rows if "gpu" in row}:
        with contextlib.suppress(ConfigError):
            known[name] = accelerator_option(name)
    return [row | ({"gpu": known[row["gpu"]]} if row.get("gpu") in known else {}) for row in rows]


def check_run_column(key: str, command: str) -> None:
    """Refuse a column that no table of runs knows.

    Raises:
        ConfigError: it knows no such.
    """
    if not (key.lower() in CHOICES or number_path(key) or metric_of(key)):
        raise ConfigError(f"{command}: {key} is no column of measured runs{suggestion(key, (*CHOICES, *NUMBERS))}")
