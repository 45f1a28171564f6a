"""`codesign verify` of a multirun or a comparison: the proof of every job, and the joint table against its jobs."""

from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import ConfigError
from ..core.free_memory import give_back
from ..core.json_yaml import dumps
from ..core.untrusted_io import read_frame
from ..report.run_folder import read_run
from .fleet_classes import FLEET_FILE
from .rederivation import SAME
from .verify import verify_run
from .verify_fleet import Parsed, verify_fleet

__all__ = ["differences"]


TABLES = {"comparison.parquet": "run", "collected.parquet": "job"}
"""Joint table -> its column with the number of the job."""
CONFIG, FAILED = "config.yaml", "error.txt"


def verify_folder(run: str, attack: int | None, seed: int, parsed: Parsed, *, as_json: bool = False) -> int:
    """Verify a run folder, or every job of a multirun or of a comparison.

    Args:
        run: the folder.
        attack: designs to try of each job; None: as many as the time of its search allows.
        seed: of these.
        parsed: words of a command -> its options.
        as_json: print the answers as JSON: a document a job, then one of the whole.

    Returns:
        Exit code: 0 where nothing that is claimed is false, 1 where something is.

    Raises:
        ConfigError: see `verify_run`; or no job has a design.
    """
    root = Path(run)
    if (root / FLEET_FILE).is_file():
        return verify_fleet(root, attack, seed, parsed, as_json=as_json)
    if (root / CONFIG).is_file() or not (root / "0").is_dir():
        return verify_run(run, attack, seed, as_json=as_json)
    folders = sorted((path for path in root.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    jobs = [folder for folder in folders if (folder / CONFIG).is_file()]
    if not jobs:
        raise ConfigError(f"{run!r} has no job with a design: each says why in its {FAILED}")
    worst, refused = 0, 0
    for folder in jobs:
        if not as_json:
            print(f"job {folder.name}: {(folder / 'job.txt').read_text(encoding='utf-8').strip()}", flush=True)
        code = verify_run(str(folder), attack, seed, as_json=as_json)
        give_back(cycles=True)
        worst, refused = max(worst, code), refused + (code > 0)
    wrong = [text for name in TABLES for text in differences(root, name)]
    line = f"verified: {len(jobs) - refused} of {len(jobs)} jobs"
    if wrong:
        line = f"not verified: {wrong[0]}"
    elif refused:
        line = f"not {line}"
    checked = [name for name in TABLES if (root / name).is_file()]
    if as_json:
        print(dumps({"verified": not (wrong or worst), "answer": line, "tables": checked}, indent=2))
    else:
        if checked:
            print(
                f"- {' and '.join(checked)} as the jobs' designs; "
                "not checked: chances to win, prices, the joint page, the slide"
            )
        print(line)
    return 1 if wrong else worst


def differences(root: Path, name: str) -> list[str]:
    """Numbers of a joint table that are not those of a job's best design or proof, a line each."""
    if not (root / name).is_file():
        return []
    result: list[str] = []
    for row in read_frame(root / name, repr(str(root / name))).to_dict("records"):
        number = row.get(TABLES[name])
        if not str(number).isdigit():
            if row.get("feasible"):
                result.append(f"{name}: a design of no job, run {number!r}")
            continue
        folder = root / str(number)
        if not (folder / CONFIG).is_file():
            result.append(f"{name}: job {number} has no run")
            continue
        run = read_run(folder)
        derived: dict[str, Any] = {**run.best, "overrides": (folder / "job.txt").read_text(encoding="utf-8").strip()}
        if run.certificate is not None:
            derived |= {
                "bound": run.certificate.bound,
                "certified": run.certificate.certified,
                "gap": run.certificate.gap,
            }
        for key, value in row.items():
            if key in derived and not _same(value, derived[str(key)]):
                result.append(f"{name}: job {number}: {key} is {value!r}, its run has {derived[str(key)]!r}")
    return result


def _same(value: object, derived: object) -> bool:
    """True if two entries are equal: numbers up to rounding, an absent one as None or not a number."""
    if isinstance(value, Real) and isinstance(derived, Real):
        return bool(np.isclose(float(value), float(derived), rtol=SAME, atol=0.0, equal_nan=True))
    if value is None or derived is None:
        return all(one is None or one != one for one in (value, derived))
    if any(isinstance(one, np.ndarray) for one in (value, derived)):
        return bool(np.array_equal(np.asarray(value), np.asarray(derived)))
    return dumps(value) == dumps(derived)
