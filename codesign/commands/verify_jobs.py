"""`codesign verify` of a multirun or a comparison: the proof of every job, and the joint table against its jobs."""

import shlex
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..core.errors import ConfigError
from ..core.free_memory import give_back
from ..core.json_yaml import dumps
from ..core.untrusted_io import read_frame, read_json
from ..report.run_folder import read_run
from .buy import API, FRAME, QUESTION_FILE, costs, jobs_of, names_of, years_of
from .candidates import Candidate, listed
from .fleet_classes import FLEET_FILE
from .plain_values import accelerators
from .questions import serving_question, training_question
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
    if (root / QUESTION_FILE).is_file():
        return _verify_purchase(root, attack, seed, parsed, as_json=as_json)
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
    candidates = _candidates_of_command(root, parsed)
    wrong += _other_question(candidates, root) if candidates else []
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
                f"not checked: {'' if candidates else 'the command, '}chances to win, prices, the joint page, the slide"
            )
        print(line)
    return 1 if wrong else worst


def _verify_purchase(root: Path, attack: int | None, seed: int, parsed: Parsed, *, as_json: bool) -> int:
    """Verify each job of `codesign buy`, which lies beside its folder, that it is what was asked, and the sums."""
    said = read_json(root / QUESTION_FILE, repr(str(root / QUESTION_FILE)))
    try:
        options = parsed(shlex.split(str(said["command"])))
        jobs, names = jobs_of(options, parsed), [str(name) for name in said["jobs"]]
        if len(names) != len(jobs) or any(Path(name).name != name for name in names):
            raise ConfigError(f"{QUESTION_FILE}: {len(jobs)} jobs are asked for, {len(names)} folders named")
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError, SystemExit) as error:
        raise ConfigError(f"{str(root / QUESTION_FILE)!r} cannot be read: {error}") from error
    folders, wrong = [root.resolve().parent / name for name in names], list[str]()
    for job, folder in zip(jobs, folders, strict=True):
        if not folder.is_dir():
            raise ConfigError(f"{str(folder)!r} is missing: the jobs of {root.name} lie beside it")
        wrong += _other_question(job.question.candidates, folder)
    tables = [read_frame(folder / "comparison.parquet", repr(str(folder))) for folder in folders]
    wrong = wrong or _other_sums(root, costs(accelerators(options.on), names_of(jobs), tables, years_of(options)))
    worst = 0
    for job, folder in zip(jobs, folders, strict=True) if not wrong else ():
        if not as_json:
            print(f"{shlex.join(job.words)}: {folder.name}", flush=True)
        worst = max(worst, verify_folder(str(folder), attack, seed, parsed, as_json=as_json))
    line = "not verified: one of its jobs is not" if worst else "verified: all jobs, and the sums of every product"
    line = f"not verified: {wrong[0]}" if wrong else line
    if as_json:
        print(dumps({"verified": not (wrong or worst), "answer": line}, indent=2))
    else:
        print(f"- {FRAME} as the designs of its jobs" + "; not checked: the row of the API" * bool(options.api))
        print(line)
    return 1 if wrong else worst


def _other_question(candidates: Sequence[Candidate], folder: Path) -> list[str]:
    """Parts of a command's question that the runs of a comparison lack, a line each; a margin may add to a limit."""
    table = read_frame(folder / "comparison.parquet", repr(str(folder)))
    runs = {str(row["candidate"]): str(row["run"]) for row in table.to_dict("records") if row["candidate"] != API}
    if runs.keys() != {one.label for one in candidates}:
        labels = ", ".join(one.label for one in candidates)
        return [f"comparison.parquet: candidates are {', '.join(runs)}, asked for are {labels}"]
    result = list[str]()
    for one in candidates:
        path = folder / runs[one.label] / "overrides.txt"
        if not path.is_file():
            continue  # it could not be run, as the table says
        texts = path.read_text(encoding="utf-8").splitlines()
        for text in one.overrides:
            key, _, value = text.lstrip("+").partition("=")
            if key.startswith("objective.limits."):
                limits = [other.partition("=")[2] for other in texts if other.lstrip("+").startswith(f"{key}=")]
                if not limits or not float(limits[-1]) <= float(value) * (1 + SAME):
                    limit = limits[-1] if limits else "not there"
                    result.append(f"{one.label}: {key} is {limit}, asked for is {value}")
            elif not key.startswith("search") and text not in texts:
                result.append(f"{one.label}: its run lacks {text!r}, which the command asks for")
    return result


def _candidates_of_command(folder: Path, parsed: Parsed) -> Sequence[Candidate]:
    """Candidates that the command of a comparison asks for; none where there is no such command that can be read."""
    path = folder / "comparison.json"
    summary: dict[str, Any] = read_json(path, repr(str(path))) if path.is_file() else {}
    words = shlex.split(str(summary.get("command", "")))[1:]
    if not words or words[0] not in ("serve", "train", "compare"):
        return ()
    try:
        options = parsed(words)
        if words[0] == "compare":
            return listed(options.overrides, one_is_enough=bool(options.api))
        return (serving_question if words[0] == "serve" else training_question)(options).candidates
    except (ConfigError, SystemExit):
        return ()


def _other_sums(root: Path, table: pd.DataFrame) -> list[str]:
    """Numbers of the table of products that are not those of the jobs, a line each."""
    shown = read_frame(root / FRAME, repr(str(root / FRAME)))
    products = shown[shown["product"] != API]
    if list(products["product"]) != list(table["product"]):
        return [f"{FRAME}: products are {', '.join(map(str, products['product']))}, not {', '.join(table['product'])}"]
    return [
        f"{FRAME}: {row['product']}: {key} is {written.get(key)!r}, its jobs have {value!r}"
        for written, row in zip(products.to_dict("records"), table.to_dict("records"), strict=True)
        for key, value in row.items()
        if not _same(written.get(key), value)
    ]


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
        derived |= {"space": run.summary.get("space", ""), "claim": run.summary.get("claim")}
        if row.get("feasible") and name == "comparison.parquet":
            derived["devices"] = run.device_count
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
