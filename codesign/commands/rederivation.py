"""Numbers that a run tells beside its proof, derived anew from its configuration and its designs, and compared.

Pricing is not the search: the frames are made here by what made them for the run, of designs read from the folder.
"""

import json
import math
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..config import Study, study_from_config
from ..core.earlier_names import SCHEMA, current_frame, current_path, migrated, migrated_config
from ..core.json_yaml import dumps, is_list, is_mapping, read_yaml, write_yaml
from ..core.untrusted_io import read_frame, read_json, written
from ..jaxprs.control_flow import LOOPS
from ..report.build import text_of_page, without_pictures
from ..report.run_folder import CHECKPOINT, MANIFEST, PAGE, PLAN_PREFIX, READ, RunFolder, noted_names
from ..search import Trace
from ..search.certificate import Certificate, columns_of
from ..search.results import Results, collect
from ..staging import base_of
from ..study.feasible_plans import Rules
from ..verification import Refuted
from .designs_table import add_devices
from .left_files import summary_of
from .optimize import add_intervals, some_design, trace_once
from .remarks import unusual_answer

__all__ = [
    "check_belongs", "check_files", "check_page", "closeness", "counted", "frames_anew", "results_anew", "same",
    "study_anew", "summary_anew",
]  # fmt: skip

SAME = 1e-10  # relative; how well what is told and what is derived must agree
LOOPED = 1e-8  # the same where the model has fixed points, which magnify the last digits in which machines differ
TINY = 1e-14  # absolute, of numbers of the summary: shares that are lost are differences
DIFFERENCE = 1e-13  # absolute; the same of shares and slopes, small where large numbers nearly cancel
BOX = 1e-8  # relative; how far outside its range a value may lie, for rounding
ONCE = "run it again to have it verified"
FRAMES = ("designs", "pareto", "ops", "elasticities", "links")


def check_files(path: Path) -> str:
    """Every file that a run is read from is there, and is what the run wrote.

    Raises:
        Refuted: naming the first that is not.
    """
    if not (path / MANIFEST).is_file():
        raise Refuted(f"{MANIFEST} is missing, so what the run wrote is not known: {ONCE}")
    noted = read_json(path / MANIFEST, f"{str(path / MANIFEST)!r}")
    if not is_mapping(noted) or not all(isinstance(text, str) for text in noted.values()):
        raise Refuted(f"{MANIFEST} should hold a mapping of files to checksums")
    if (path / "certificate").is_dir() and not any(name.startswith("certificate/") for name in noted):
        raise Refuted(f"{MANIFEST} tells nothing of certificate/, as an earlier release left it: {ONCE}")
    for name in noted:
        if not _inside(path, name) or not (path / name).is_file():
            raise Refuted(f"{name} is missing: {MANIFEST} has its checksum")
    for name in noted_names(path):
        if name not in noted and name != CHECKPOINT:
            raise Refuted(f"{name} is not a file that the run wrote: {MANIFEST} has no checksum of it")
    pages = {file.name for file in path.glob("*.htm*")} | {name for name in noted if Path(name).suffix not in READ}
    for name in sorted(pages - {PAGE}):
        raise Refuted(f"{name} is no file that a run writes: its page is {PAGE}")
    there = written(path, noted)
    for name, sum_ in noted.items():
        if there[name] != sum_:
            raise Refuted(f"{name} is not what the run wrote: its checksum differs from {MANIFEST}")
    return f"{len(noted)} files are what the run wrote, by their checksums"


def _inside(path: Path, name: str) -> bool:
    return ".." not in Path(name).parts and not Path(name).is_absolute() and (path / name).resolve().is_relative_to(
        path.resolve()
    )  # fmt: skip


def check_belongs(stored: tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]], folder: RunFolder) -> None:
    """A certificate is of this configuration, of as many designs, and numbers its nodes as they stand.

    Raises:
        Refuted: it is of another run, or of a release that did not say.
    """
    header, tables = stored
    if header.get("of") != written(folder.path, ["config.yaml"])["config.yaml"]:
        raise Refuted("certificate.json is of another configuration than config.yaml")
    if header.get("designs") != len(folder.designs):
        raise Refuted(f"certificate.json is of {header.get('designs')} designs, the frame has {len(folder.designs)}")
    if not is_mapping(header.get("sums")):
        raise Refuted("certificate.json has no checksums of its tables")
    number = tables["nodes"].get("number")
    if number is not None and not np.array_equal(number, np.arange(len(number))):
        raise Refuted("nodes.parquet: the nodes are not numbered as they stand")


def study_anew(folder: RunFolder) -> tuple[Study, str]:
    """The study that the overrides compose, which must be that of the configuration.

    Raises:
        Refuted: naming the first key that differs.
        ConfigError: overrides that compose nothing.
    """
    study = study_from_config(*folder.overrides, conf=folder.conf)
    result = migrated_config(read_yaml(write_yaml(study.resolved)), folder.schema)  # overrides may name earlier classes
    stated = folder.config if folder.schema >= SCHEMA else _with_later_keys(folder.config, result)
    same("config.yaml", stated, result, how="overrides.txt composes")
    later = _leaves(stated) - _leaves(folder.config)
    since = f", {later:,} of them under keys that came after it" if later else ""
    return study, f"config.yaml is what {len(folder.overrides)} overrides compose: {_leaves(result):,} values{since}"


def _with_later_keys(stated: Any, derived: Any) -> Any:
    """Summary of an earlier release with the keys that it lacked; frames and proof are checked as they are."""
    if not (is_mapping(stated) and is_mapping(derived)):
        return stated
    return {
        **stated,
        **{key: _with_later_keys(stated[key], value) if key in stated else value for key, value in derived.items()},
    }


def results_anew(study: Study, folder: RunFolder, raw: pd.DataFrame) -> Results:
    """All frames of the designs of a folder, priced again.

    Args:
        study: that the overrides compose.
        folder: tells whether there were intervals.
        raw: the designs as they stand in their file.

    Raises:
        Refuted: naming a design that the study does not have.
    """
    points, methods = _points(study, raw)
    trace_once(study)
    results = collect(study.problem, Trace(points, methods), study.seed, study.provenance)
    drawn = any(str(name).endswith("_low") for name in raw.columns)
    if drawn or folder.summary.get("regret") or folder.summary.get("errors"):
        add_intervals(study, results)
    add_devices(study, results)
    return results


def frames_anew(study: Study, folder: RunFolder) -> tuple[Results, list[str]]:
    """All frames, priced again, against those of the folder.

    Raises:
        Refuted: naming file, row and column of the first number that differs.
    """
    raw = _frame(folder, "designs")
    results = results_anew(study, folder, raw)
    checks, close = list[str](), closeness(study)
    for name in FRAMES:
        path = folder.path / f"{name}.parquet"
        if not path.is_file():
            raise Refuted(f"{name}.parquet is missing")
        result = _as_stored(getattr(results, name))
        stated = raw if name == "designs" else _frame(folder, name)
        if folder.schema < SCHEMA and {*stated} <= {*result}:  # new names stand elsewhere; metrics were fewer
            result = result[[column for column in result if column in stated]]
            stated = stated[[*result]]
        _same_frame(path.name, stated, result, close)
        if len(result):
            checks.append(f"{name} {len(result):,} x {result.shape[1]}")
    certificate = folder.certificate
    if certificate is not None and certificate.workloads:
        stored = _frame(folder, "workloads")
        _same_frame("workloads.parquet", stored, _as_stored(pd.DataFrame(columns_of(certificate.workloads))), close)
    return results, [f"frames priced anew, the same to {close:g}, rows x columns: {', '.join(checks)}"]


def summary_anew(study: Study, folder: RunFolder, results: Results, claim: str, certificate: Certificate) -> str:
    """All of the summary that follows from configuration, designs and proof; says how many values.

    Args:
        study: of the configuration.
        folder: has the summary.
        results: derived anew.
        claim: what the numbers of the certificate say in words.
        certificate: the summary's certificate, which is checked apart.

    Raises:
        Refuted: naming the first value that differs.
    """
    summary = folder.summary
    counts, seconds = summary.get("counts"), summary.get("seconds")
    for name, part in (("counts", counts), ("seconds", seconds)):
        if not is_mapping(part) or not all(_is_number(value) and value >= 0 for value in part.values()):
            raise Refuted(f"summary.json: {name} is no mapping of names to numbers")
    assert is_mapping(counts)
    assert is_mapping(seconds)
    trace = Trace({}, [], counts, seconds, claim, certificate)
    result = json.loads(dumps(summary_of(study, results, trace)))
    regret: Any = summary.get("regret")
    if folder.schema < SCHEMA and is_mapping(regret) and "text" in regret:  # said in other words, of the same numbers
        renewed: dict[str, Any] = result.get("regret") or {}
        summary = summary | {"regret": regret | {"text": renewed.get("text")}}
    same("summary.json", summary, result, close=closeness(study))
    warnings = [one.plain for one in (*study.unusual, *unusual_answer(study, results))]
    same("unusual.json", _json(folder, "unusual.json"), json.loads(dumps(warnings)))
    same("provenance.json", _json(folder, "provenance.json"), json.loads(dumps(study.provenance)))
    rest = {name: value for name, value in result.items() if name not in ("counts", "seconds", "certificate")}
    return (
        f"summary.json: {_leaves(rest):,} values beside its certificate; {_leaves(study.provenance):,} of"
        f" provenance.json, {_leaves(warnings):,} of unusual.json"
    )


def check_page(folder: RunFolder) -> str:
    """The page is what these files give; its pictures, which versions of the library draw anew, have a checksum.

    Raises:
        Refuted: it is another.
    """
    path = folder.path / PAGE
    if not path.is_file():
        return "report.html is not there: `codesign report` builds it"
    if without_pictures(path.read_text(encoding="utf-8", errors="replace")) != text_of_page(folder):
        raise Refuted(f"{PAGE} is not what the files of the run give: rebuild it with `codesign report {folder.path}`")
    return "report.html says what these files give, but for its pictures"


def closeness(study: Study) -> float:
    """Relative tolerance within which numbers of a study must agree."""
    equations = base_of(some_design(study)).program.equations
    return LOOPED if any(equation.name in LOOPS for equation in equations) else SAME


def same(file: str, stated: Any, derived: Any, where: str = "", how: str = "derived", close: float = SAME) -> None:
    """Compare two trees of plain values; `close` is how well numbers must agree, relatively.

    Raises:
        Refuted: naming the first place that differs.
    """
    location = f"{file}: {where}" if where else file
    if is_mapping(stated) and is_mapping(derived):
        for key in dict.fromkeys((*derived, *stated)):
            inner = f"{where}.{key}" if where else str(key)
            if key not in stated or key not in derived:
                side = f"{how} is one" if key not in stated else f"{how} is none"
                raise Refuted(f"{file}: {inner} is {'missing' if key not in stated else 'there'}, {side}")
            same(file, stated[key], derived[key], inner, how, close)
    elif is_list(stated) and is_list(derived):
        if len(stated) != len(derived):
            raise Refuted(f"{location} has {len(stated)} entries, {how} are {len(derived)}")
        for number, (one, other) in enumerate(zip(stated, derived, strict=True)):
            same(file, one, other, f"{where}[{number}]", how, close)
    elif not _alike(stated, derived, close):
        raise Refuted(f"{location} is {_short(stated)}, {how} is {_short(derived)}")


def _alike(stated: Any, derived: Any, close: float) -> bool:
    if _is_number(stated) and _is_number(derived):
        return stated == derived or math.isclose(stated, derived, rel_tol=close, abs_tol=TINY * close / SAME)
    return type(stated) is type(derived) and stated == derived


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: Any) -> str:
    text = f"{value:.12g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _leaves(value: Any) -> int:
    if is_mapping(value):
        return sum(map(_leaves, value.values()))
    return sum(map(_leaves, value)) if is_list(value) else 1


def _json(folder: RunFolder, name: str) -> Any:
    if not (folder.path / name).is_file():
        raise Refuted(f"{name} is missing")
    result = read_json(folder.path / name, name)
    if name == "provenance.json" and folder.schema < SCHEMA and is_mapping(result):
        return {current_path(path): entry for path, entry in result.items()}
    return migrated(result, folder.schema)


def _frame(folder: RunFolder, name: str) -> pd.DataFrame:
    return current_frame(read_frame(folder.path / f"{name}.parquet", f"{name}.parquet"), folder.schema)


def _points(study: Study, raw: pd.DataFrame) -> tuple[dict[str, np.ndarray], list[str]]:
    """Designs of a frame and how they were found: variables of the study, inside their ranges, plans that are legal.

    Raises:
        Refuted: naming the first that is not.
    """
    space, points = study.space, dict[str, np.ndarray]()
    fields = {*space.plan, *space.hardware} or {*study.scenario.plan.told()}
    names = [str(name) for name in raw.columns if str(name).removeprefix(PLAN_PREFIX) in fields]
    for name in (name for name in names if name.startswith(PLAN_PREFIX)):
        column = raw[name].to_numpy()
        if column.dtype.kind not in "fiu" or not np.isfinite(column).all():
            raise Refuted(f"designs.parquet: column {name} holds what is no number")
        points[name.removeprefix(PLAN_PREFIX)] = column.astype(float)
    absent = sorted({*space.plan, *space.hardware} - {*points})
    if absent:
        raise Refuted(f"designs.parquet has no column {PLAN_PREFIX}{absent[0]}")
    for name, values in space.lists.items():
        wrong = np.flatnonzero(~np.isin(points[name], values))
        if len(wrong):
            raise Refuted(f"designs.parquet: row {wrong[0]}: {name} {points[name][wrong[0]]:g} is not in space.plan")
    for name, variable in space.hardware.items():
        inside = (points[name] >= variable.low * (1 - BOX)) & (points[name] <= variable.high * (1 + BOX))
        if not inside.all():
            row = int(np.argmin(inside))
            raise Refuted(f"designs.parquet: row {row}: {name} {points[name][row]:g} is outside its range")
    if space.plan:
        legal, _ = Rules(space.lists, study.scenario)({name: points[name] for name in space.plan})
        if not np.all(legal):
            raise Refuted(f"designs.parquet: row {int(np.argmin(legal))}: its plan is not legal")
    if "method" not in raw:
        raise Refuted("designs.parquet has no column method")
    return points, [str(text) for text in raw["method"]]


def _as_stored(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame as it comes back from a file."""
    buffer = BytesIO()
    frame.to_parquet(buffer, index=False)
    return pd.read_parquet(buffer)


def _same_frame(file: str, stated: pd.DataFrame, frame: pd.DataFrame, close: float) -> None:
    """Compare every cell.

    Raises:
        Refuted: naming row and column of the first that differs.
    """
    names = [str(name) for name in frame.columns]
    other = [str(name) for name in stated.columns]
    if names != other:
        first = next((name for name in (*names, *other) if (name in names) != (name in other)), None)
        what = "columns in another order" if first is None else f"{'no' if first in names else 'a'} column {first}"
        raise Refuted(f"{file} has {what}, unlike what is derived")
    if len(stated) != len(frame):
        raise Refuted(f"{file} has {len(stated)} rows, derived are {len(frame)}")
    for name in names:
        wrong = _differ(stated[name], frame[name], close, _rounding(file, name, frame) * close / SAME)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise Refuted(
                f"{file}: row {row}: {name} is {_short(stated[name].iloc[row])}, derived is"
                f" {_short(frame[name].iloc[row])}"
            )


def _rounding(file: str, name: str, frame: pd.DataFrame) -> float:
    """Tolerance for rounding of a number of this column that is a difference."""
    if name == "excess" or (file == "elasticities.parquet" and name != "value"):
        return DIFFERENCE
    if name.startswith("breakdown_s."):  # what of a part is not hidden behind others
        return 1e-15 * float(frame["time_s"].max())
    return 0.0


def _differ(stated: pd.Series, derived: pd.Series, close: float, rounding: float) -> np.ndarray:
    """Mask of the cells in which two versions of a column differ."""
    one, other = stated.to_numpy(), derived.to_numpy()
    if other.dtype.kind in "fiu" and one.dtype.kind in "fiu":
        return ~np.isclose(one.astype(float), other.astype(float), rtol=close, atol=rounding, equal_nan=True)
    if one.dtype.kind != other.dtype.kind:
        return np.ones(len(other), dtype=bool)
    none = stated.isna().to_numpy() & derived.isna().to_numpy()
    return np.array([a != b for a, b in zip(one, other, strict=True)], dtype=bool) & ~none


def counted(summary: Mapping[str, Any], counts: Mapping[str, int]) -> list[str]:
    """Counts of the summary against those that are known; names of the others.

    Raises:
        Refuted: naming the first that differs.
    """
    for name, value in counts.items():
        if name in summary and summary[name] != value:
            raise Refuted(f"summary.json: counts.{name} is {summary[name]}, derived is {value}")
    return [f"counts.{name}" for name in summary if name not in counts]
