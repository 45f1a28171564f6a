"""`codesign sql`: SQL over the frames of a run, by a database in memory that can reach no file.

Frames are handed to it by name; then it is cut off from everything outside and takes one SELECT.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from rich.table import Table
from rich.text import Text

from ..core.atomic_files import is_replaceable, writing
from ..core.earlier_names import SCHEMA, current_frame, current_name, schema_of
from ..core.errors import ConfigError, is_text, one_line, suggestion
from ..core.json_yaml import is_list, is_mapping
from ..core.untrusted_io import UNREADABLE, read_frame, read_json, refuse_irregular
from .terminal import console

# Guard of queries: the run's frames and functions of their values; nothing of the database or the machine.
#
# A SELECT is looked at as the tree that the database parses it into. Tables are those that were handed over and what
# the query itself defines; rows come from a few functions that make them of values; settings, catalogues, logs and
# other queries as text are refused, whatever schema or alias they stand behind.


MAKE_ROWS = {"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"}
"""Functions that may stand where a table does."""

CLOSED = {
    "current_setting", "current_user", "session_user", "user", "current_database", "current_schema", "current_schemas",
    "current_catalog", "current_query", "version", "query", "query_table", "getenv", "getvariable", "set_config",
    "write_log", "parse_duckdb_log_message", "txid_current", "current_connection_id", "current_transaction_id",
    "current_query_id", "nextval", "currval", "setval", "sleep_ms", "which_secret", "get_block_size",
    "in_search_path", "json_serialize_plan",
}  # fmt: skip
"""Functions of values that tell of the database, its process or its machine, or that change something."""

CLOSED_BEGIN = ("duckdb_", "pragma_", "pg_", "inet_")


def refuse_others(serialised: str, tables: Iterable[str]) -> None:
    """Refuse a SELECT that names more than tables of the run and functions of their values.

    Args:
        serialised: the query as `json_serialize_sql` gives it.
        tables: that were handed over.

    Raises:
        ConfigError: no plain SELECT, or names the function or the table.
    """
    tree: Any = json.loads(serialised)
    if tree.get("error"):
        raise ConfigError("sql: must be one SELECT over the frames of the run")
    table_names = {name.lower() for name in tables}
    nodes = list(_nodes(tree))
    defined = {str(name).lower() for node in nodes for name in _defined(node)}
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            name, schema = str(node.get("table_name", "")), str(node.get("schema_name") or "")
            if schema or node.get("catalog_name") or name.lower() not in table_names | defined:
                full_name = ".".join(part for part in (str(node.get("catalog_name") or ""), schema, name) if part)
                raise ConfigError(f"sql: no table {full_name!r}{suggestion(name, sorted(table_names))}")
        elif kind == "TABLE_FUNCTION":
            function = str((node.get("function") or {}).get("function_name", "")).lower()
            if function not in MAKE_ROWS:
                raise ConfigError(f"sql: {function}() is closed here; rows come from {', '.join(sorted(MAKE_ROWS))}")
        elif kind == "SHOW_REF" and not node.get("query"):
            raise ConfigError("sql: must be one SELECT; without SQL the frames are listed")
        elif "function_name" in node:
            function = str(node["function_name"]).lower()
            if function in CLOSED or function.startswith(CLOSED_BEGIN):
                raise ConfigError(f"sql: {function}() is closed here: it tells of more than the frames of the run")


def _defined(node: dict[str, Any]) -> Iterator[str]:
    """Names that a WITH gives to queries."""
    defined = node.get("cte_map")
    for entry in (defined.get("map") or ()) if is_mapping(defined) else ():
        if is_mapping(entry) and "key" in entry:
            yield str(entry["key"])
    if node.get("type") == "RECURSIVE_CTE_NODE" and node.get("cte_name"):
        yield str(node["cte_name"])


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every mapping of a tree, without calling itself: a query may be nested deeply."""
    left = [tree]
    while left:
        node = left.pop()
        if is_mapping(node):
            yield cast(dict[str, Any], node)
            left += node.values()
        elif is_list(node):
            left += node


SHOWN = 40  # rows in the terminal
KINDS = {0: "best", 1: "nearest", 2: "front"}
"""Reasons for which a chunk keeps a design: see `search/exhaustive/chunks.py`."""

COUNTED = "first, blocks, points, feasible, seconds, keep, study"
NUMBERS = ("log_goal", "excess", "time_s", "usd_per_million_tokens")  # of some kinds: no number of the others
NOT_OF_DESIGNS = {"by_value", "edges", "histogram", "kind"}
DOTS = """ (a name with a dot stands in double quotes: "var.tp")"""


def query_run(run: str, sql: str | None, csv_file: str | None = None) -> int:
    """Answer one SELECT over a run's frames, or tell which there are.

    Raises:
        ConfigError: no run, a damaged frame, or what is no SELECT over these frames.
    """
    folder = Path(run)
    if not folder.is_dir():
        raise ConfigError(f"sql: {run!r} is not a run folder")
    database = Frames(folder)
    if not sql:
        _show(["table", "rows", "columns"], database.table_sizes(), "frames of the run")
        return 0
    names, rows = database.answer(sql)
    if csv_file:
        plain = is_replaceable(Path(csv_file))
        count = _write(Path(csv_file), names, rows)
        console(stderr=not plain).print(f"{count:,} rows: {csv_file}", highlight=False, soft_wrap=True)
        return 0
    _show(names, rows, "")
    return 0


class Frames:
    """The frames of a run as tables of a database.

    designs, pareto, ops, ...: the files of the run, those of all jobs of a multirun with the number of the `job`;
    certificate_nodes, ...: what a proof rests on. chunks: a row for each chunk of a grid; kept: a row for each design
    that a chunk keeps.

    Args:
        folder: of the run.

    Raises:
        ConfigError: no frame at all, or a damaged one.
    """

    def __init__(self, folder: Path):
        import duckdb

        self._errors = duckdb.Error
        self._database = database = duckdb.connect(":memory:", config={"python_enable_replacements": False})
        schema = _schema_of(folder)
        result = {path.stem: _frame(path, schema) for path in sorted(folder.glob("*.parquet"))}
        for path in sorted((folder / "certificate").glob("*.parquet")):
            result[f"certificate_{path.stem}"] = _frame(path, schema)
        for name, frame in (_of_jobs(folder) | result).items():
            if len(frame.columns):  # a study without links has a frame of nothing
                database.register(name, frame)
        chunks = sorted((folder / "chunks").glob("*.parquet"))
        if chunks:
            self._add_chunks(chunks, current_name if schema < SCHEMA else str)
        self._tables = [str(row[0]) for row in database.execute("show tables").fetchall()]
        self._tables = [name for name in self._tables if name != "chunk_files"]
        if not self._tables:
            raise ConfigError(f"sql: {str(folder)!r} holds no frames; name the folder of a run")
        database.execute("set enable_external_access=false; set lock_configuration=true")

    def _add_chunks(self, paths: list[Path], renamed: Callable[[str], str]) -> None:
        """Read as they are asked for, however many there are."""
        import pyarrow.dataset

        for path in paths:
            refuse_irregular(path, f"{str(path)!r}", most=2**30)
        try:
            files = pyarrow.dataset.dataset([str(path) for path in paths], format="parquet")
            columns = [name for name, kind in zip(files.schema.names, files.schema.types, strict=True)
                       if str(kind).startswith("list") and name not in NOT_OF_DESIGNS]  # fmt: skip
            kinds = " ".join(f"when {number} then '{word}'" for number, word in KINDS.items())
            listed = ", ".join(f'unnest("{name}") as "{renamed(name)}"' for name in columns)
            no_nans = ", ".join(f"nullif({name}, 'nan'::double) as {name}" for name in NUMBERS if name in columns)
            self._database.register("chunk_files", files)
            self._database.execute(f"create view chunks as select {COUNTED} from chunk_files")
            self._database.execute(
                f"create view kept as select case kind {kinds} end as kind, * exclude kind replace ({no_nans}) from "
                f"(select unnest(kind) as kind, first, {listed} from chunk_files)"
            )
        except (*UNREADABLE, self._errors) as error:
            raise ConfigError(f"sql: a chunk of {str(paths[0].parent)!r} is damaged: {_first_line(error)}") from error

    def table_sizes(self) -> list[tuple[str, int, str]]:
        """(table, rows, columns) of each."""
        result = []
        for name in self._tables:
            columns = [str(row[0]) for row in self._database.execute(f'describe "{name}"').fetchall()]
            _, ((count,),) = self.answer(f'select count(*) from "{name}"')
            result.append((name, count, ", ".join(columns)))
        return result

    def answer(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Names of the columns, and rows.

        Raises:
            ConfigError: not one SELECT, or one that these tables cannot answer.
        """
        import duckdb

        if not is_text(sql):
            raise ConfigError(f"sql: {sql!r} is no text of UTF-8")
        try:
            statements = duckdb.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise ConfigError(f"sql: {sql!r} must be one SELECT; tables: {', '.join(self._tables)}")
            tree = self._database.cursor().execute("select json_serialize_sql(?::varchar)", [sql]).fetchone()
            refuse_others(str(tree[0]) if tree else "{}", self._tables)
            cursor = self._database.execute(statements[0])
        except self._errors as error:
            said = _first_line(error)
            hint = DOTS if "Binder" in said else ""
            raise ConfigError(f"sql: {said}{hint}; tables: {', '.join(self._tables)}") from error
        return [str(column[0]) for column in cursor.description or []], self._rows(cursor)

    def _rows(self, cursor: Any) -> Iterator[tuple[Any, ...]]:
        try:
            while part := cursor.fetchmany(10_000):
                yield from part
        except (*UNREADABLE, self._errors) as error:
            raise ConfigError(f"sql: {_first_line(error)}") from error


def _of_jobs(folder: Path) -> dict[str, Any]:
    """Frames of the jobs of a multirun, one under the other."""
    import pandas as pd

    parts: dict[str, list[Any]] = {}
    jobs = sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for job in jobs:
        schema = _schema_of(job)
        for path in sorted(job.glob("*.parquet")):
            frame = _frame(path, schema)
            frame.insert(0, "job", int(job.name))
            parts.setdefault(path.stem, []).append(frame)
    return {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}


def _schema_of(folder: Path) -> int:
    """Schema of a run folder; of a folder that says none (of a multirun), this release's.

    Raises:
        ConfigError: it is of a later release, or no number.
    """
    path = folder / "versions.json"
    versions = read_json(path, f"{str(path)!r}") if path.is_file() else None
    return schema_of(versions, str(folder)) if is_mapping(versions) else SCHEMA


def _frame(path: Path, schema: int) -> Any:
    return current_frame(read_frame(path, f"{str(path)!r}"), schema)


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(lines[0] if lines else type(error).__name__)


def _show(names: list[str], rows: Any, title: str) -> None:
    """The first rows, and that there are more."""
    table, more = Table(header_style="bold", title=title or None), False
    for name in names:
        table.add_column(Text(one_line(name)), overflow="fold")
    for number, row in enumerate(rows):
        if number == SHOWN:
            more = True
            break
        table.add_row(*(Text(_cell(value)) for value in row))
    console().print(table)
    if more:
        console().print(f"the first {SHOWN} rows; --csv FILE writes all, `limit` and `order by` choose others")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else one_line(str(value))


def _write(path: Path, names: list[str], rows: Any) -> int:
    """All rows, whole or not at all; returns how many."""
    count = 0
    with writing(path) as binary:
        file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            writer.writerow(row)
            count += 1
        file.flush()
        file.detach()
    return count
