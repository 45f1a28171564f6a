"""Guard of queries: the run's frames and functions of their values; nothing of the database or the machine.

A SELECT is looked at as the tree that the database parses it into. Tables are those that were handed over and what the
query itself defines; rows come from a few functions that make them of values; settings, catalogues, logs and other
queries as text are refused, whatever schema or alias they stand behind.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from ..core.errors import ConfigError, suggestion
from ..core.yaml_io import is_list, is_mapping

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
    known = {name.lower() for name in tables}
    nodes = list(_nodes(tree))
    defined = {str(name).lower() for node in nodes for name in _defined(node)}
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            name, schema = str(node.get("table_name", "")), str(node.get("schema_name") or "")
            if schema or node.get("catalog_name") or name.lower() not in known | defined:
                whole = ".".join(part for part in (str(node.get("catalog_name") or ""), schema, name) if part)
                raise ConfigError(f"sql: no table {whole!r}{suggestion(name, sorted(known))}")
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
