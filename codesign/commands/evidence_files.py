"""Evidence of a proof in the run folder: `certificate/` with numbers only, written by a search, read to verify."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..core.atomic_files import frame_bytes, write_files
from ..core.earlier_names import SCHEMA, current_name, migrated
from ..core.errors import ConfigError
from ..core.json_io import dumps
from ..core.untrusted_io import checksum, read_frame, read_json
from ..search import Evidence

FOLDER, HEADER = "certificate", "certificate.json"
TABLES = ("nodes", "points", "cuts")  # of every certificate; some have more


def write_evidence(evidence: Evidence, folder: Path) -> None:
    """Tables as compressed Parquet, the header last: with it the certificate is whole."""
    target = folder / FOLDER
    header, files = evidence.header | {"counts": {}, "sums": {}}, dict[Path, str | bytes]()
    for name, columns in evidence.tables.items():
        frame = pd.DataFrame(columns)
        header["counts"][name] = len(frame)
        header["sums"][name] = checksum({str(column): frame[column].to_numpy() for column in frame})
        split = [column for column in frame if frame[column].dtype == float]  # weights of few digits compress so
        how = {"compression": "zstd", "use_dictionary": False, "use_byte_stream_split": split or False}
        files[target / f"{name}.parquet"] = frame_bytes(frame, **how)
    write_files(files | {target / HEADER: dumps(header, indent=1)})


def read_evidence(folder: Path, schema: int = SCHEMA) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]] | None:
    """(header, tables) as they stand; None where the folder has none.

    Raises:
        ConfigError: a file that cannot be read.
    """
    target = folder / FOLDER
    if not (target / HEADER).is_file():
        return None
    header = read_json(target / HEADER, f"{str(target / HEADER)!r}")
    if not isinstance(header, dict):
        raise ConfigError(f"{str(target / HEADER)!r} should hold a mapping of names to values")
    tables, counts, noted = {}, header.get("counts"), header.get("sums")
    if noted is not None and not isinstance(noted, dict):
        raise ConfigError(f"{str(target / HEADER)!r}: sums should be a mapping of tables to checksums")
    for name in dict.fromkeys((*TABLES, *(counts if isinstance(counts, dict) else ()))):
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
