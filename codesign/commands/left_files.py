"""The folder of a run: made, and filled with what was asked, what was found and what made it."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..config import Study, own_files
from ..config.plausibility import UnusualValue
from ..config.user_files import texts as user_texts
from ..core.atomic_files import frame_bytes, make_folder, write_files, write_frame, write_text
from ..core.earlier_names import SCHEMA, current_name, migrated
from ..core.errors import ConfigError
from ..core.json_yaml import dumps, is_mapping, write_yaml
from ..core.untrusted_io import checksum, read_frame, read_json, written
from ..report.run_folder import CONF
from ..search import Evidence, Trace
from ..search.exhaustive.chunks import FOLDER as CHUNKS
from ..search.exhaustive.grid import CHECKPOINT
from ..search.results import Results

# Evidence of a proof in the run folder: `certificate/` with numbers only, written by a search, read to verify.


FOLDER, HEADER = "certificate", "certificate.json"
TABLES = ("nodes", "points", "cuts")  # of every certificate; some have more


def write_evidence(evidence: Evidence, folder: Path) -> None:
    """Tables as compressed Parquet, the header last: with it the certificate is whole."""
    target = folder / FOLDER
    counts, sums, files = dict[str, int](), dict[str, str](), dict[Path, str | bytes]()
    for name, columns in evidence.tables.items():
        frame = pd.DataFrame(columns)
        counts[name] = len(frame)
        sums[name] = checksum({str(column): frame[column].to_numpy() for column in frame})
        split = [column for column in frame if frame[column].dtype == float]  # weights of few digits compress so
        how = {"compression": "zstd", "use_dictionary": False, "use_byte_stream_split": split or False}
        files[target / f"{name}.parquet"] = frame_bytes(frame, **how)
    write_files(files | {target / HEADER: dumps({**evidence.header, "counts": counts, "sums": sums}, indent=1)})


def read_evidence(folder: Path, schema: int = SCHEMA) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]] | None:
    """(header, tables) as they stand; None where the folder has none.

    Raises:
        ConfigError: a file that cannot be read.
    """
    target = folder / FOLDER
    if not (target / HEADER).is_file():
        return None
    header = read_json(target / HEADER, f"{str(target / HEADER)!r}")
    if not is_mapping(header):
        raise ConfigError(f"{str(target / HEADER)!r} should hold a mapping of names to values")
    tables: dict[str, dict[str, np.ndarray]] = {}
    counts, noted = header.get("counts"), header.get("sums")
    if noted is not None and not is_mapping(noted):
        raise ConfigError(f"{str(target / HEADER)!r}: sums should be a mapping of tables to checksums")
    for name in dict.fromkeys((*TABLES, *(counts if is_mapping(counts) else ()))):
        path = target / f"{name}.parquet"
        frame = read_frame(path, f"{str(path)!r}")
        tables[name] = {str(column): frame[column].to_numpy() for column in frame}
        if noted is not None and not _is_noted(tables[name], noted.get(name)):
            raise ConfigError(f"{str(path)!r} is not the table that {HEADER} tells of")
    if schema < SCHEMA:
        tables = {name: {current_name(key): value for key, value in table.items()} for name, table in tables.items()}
    return migrated(header, schema), tables


def _is_noted(table: dict[str, np.ndarray], noted: Any) -> bool:
    """True if a table is the one of which this checksum was kept."""
    return all(column.dtype != object for column in table.values()) and checksum(table) == noted


PACKAGES = ("codesign", "jax", "jaxlib", "optax", "equinox", "numpy", "pandas", "hydra-core")


def new_folder(root: Path, name: str) -> Path:
    """`root/<date>_<time>_<name>`, made; a counter is added where it exists already."""
    stamp = f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}_{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"
    for candidate in (stamp, *(f"{stamp}_{i}" for i in range(2, 100))):
        try:
            (root / candidate).mkdir(parents=True)
        except FileExistsError as error:
            if not os.path.lexists(root / candidate):  # something above it is no folder: a link that leads nowhere
                raise ConfigError(f"cannot make the run folder {str(root / candidate)!r}: {error.strerror}") from error
            continue
        except OSError as error:
            raise ConfigError(f"cannot make the run folder {str(root / candidate)!r}: {error.strerror}") from error
        return root / candidate
    raise ConfigError(f"cannot make a run folder: {str(root / stamp)!r} and 98 more exist")


def discard_run(folder: Path) -> None:
    """Remove what a run wrote before its disk was full, but for the state that a search can be continued from."""
    resumable = {CHECKPOINT, CHUNKS}
    for path in folder.iterdir():
        if path.name not in resumable:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        elif path.is_dir():
            with contextlib.suppress(OSError):  # it holds chunks
                path.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def write_inputs(study: Study, folder: Path) -> None:
    """Resolved configuration, overrides, own files, versions and what is unusual, before the search starts."""
    write_text(folder / "config.yaml", write_yaml(study.resolved))
    write_text(folder / "overrides.txt", "".join(f"{text}\n" for text in study.overrides))
    write_text(folder / "versions.json", dumps(versions(), indent=2))
    write_text(folder / "provenance.json", dumps(study.provenance, indent=2))
    write_unusual(study.unusual, folder)
    with own_files(*study.conf):
        for path, text in user_texts().items():
            make_folder((folder / CONF / path).parent)
            write_text(folder / CONF / path, text)


def write_unusual(numbers: Iterable[UnusualValue], folder: Path) -> None:
    """Numbers that are legal, but that no product or paper has."""
    write_text(folder / "unusual.json", dumps([one.plain for one in numbers], indent=2))


def write_results(study: Study, results: Results, trace: Trace, folder: Path) -> None:
    """The frames, and how the search went."""
    for name in ("pareto", "ops", "elasticities", "links"):
        write_frame(folder / f"{name}.parquet", getattr(results, name))
    for name, columns in trace.tables.items():
        write_frame(folder / f"{name}.parquet", pd.DataFrame(columns))
    if trace.evidence is not None:
        trace.evidence.header["of"] = written(folder, ["config.yaml"]).get("config.yaml", "")
        trace.evidence.header["designs"] = len(results.designs)
        write_evidence(trace.evidence, folder)
    write_text(folder / "summary.json", dumps(summary_of(study, results, trace), indent=2))
    write_frame(folder / "designs.parquet", results.designs)  # last: with it the folder is a run


def summary_of(study: Study, results: Results, trace: Trace) -> dict[str, Any]:
    """Summary of a search: counts, seconds, objective, certificate and claim."""
    objective, proof = study.objective, trace.certificate
    return {
        "experiment": study.name, "seed": study.seed, "claim": trace.claim, "counts": trace.counts,
        "space": study.space.text(study.scenario),
        "seconds": trace.seconds, "feasible": bool(results.best["feasible"]),
        "objective": {"minimise": objective.minimise, "maximise": objective.maximise},
        "limits": dict(objective.limits), "floors": dict(objective.floors),
        "certificate": proof.as_plain() if proof else {}, "cables": results.cables,
        "words": dataclasses.asdict(study.scenario.workload.words),
        "regret": results.regret, "catalogue": results.catalogue, "errors": results.errors,
    }  # fmt: skip


def versions() -> dict[str, Any]:
    """Versions that made the numbers: packages, Python, commit, date."""
    result: dict[str, Any] = {"schema": SCHEMA}
    result |= {"date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", "python": platform.python_version()}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit()
    return result | ({"commit": commit} if commit else {})


def _commit() -> str:
    """The commit of the package's own source tree; empty where it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
