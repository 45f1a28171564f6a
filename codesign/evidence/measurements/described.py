"""The kinds of tables as text and as data: what `codesign validate --schema` prints."""

from typing import Any

from .catalogue import SCHEMAS
from .schema import RULE, Column, Schema


def _column(column: Column) -> dict[str, Any]:
    result = {
        "name": column.name, "kind": column.kind, "required": not column.optional, "meaning": column.meaning,
        "allowed": column.allowed,
    }  # fmt: skip
    if column.kind in ("number", "whole"):
        result |= {"unit": column.unit, "most": column.most, "zero": column.zero}
    if column.options:
        result |= {"options": list(column.options)}
    return result | ({"blank": column.blank} if column.blank else {})


def _kind(schema: Schema) -> dict[str, Any]:
    return {
        "name": schema.name, "title": schema.title, "suite": schema.suite or None, "why_not": schema.why or None,
        "fitted": schema.fitted, "columns": [_column(column) for column in schema.columns],
        "without": list(schema.without), "not_read": list(schema.carried),
        "checks": [{"columns": list(check.columns), "allowed": check.says} for check in schema.checks],
    }  # fmt: skip


def as_data() -> dict[str, Any]:
    """The rule of choice and every kind."""
    return {"rule": RULE, "kinds": [_kind(schema) for schema in SCHEMAS]}


def as_text() -> str:
    """Text of the rule of choice and every kind, for reading."""
    lines = [RULE, ""]
    for schema in SCHEMAS:
        used = [f"scored by {schema.suite}"] if schema.suite else [f"not scored: {schema.why}"]
        used += ["fitted by calibrate"] if schema.fitted else []
        lines.append(f"{schema.name}: {schema.title} ({'; '.join(used)})")
        width = max(len(column.name) for column in schema.columns)
        for column in schema.columns:
            optional = " (may be missing)" if column.optional else ""
            lines.append(f"    {column.name:{width}}  {column.meaning} ({column.allowed}){optional}")
        lines += [f"    together: {check.says}" for check in schema.checks]
        lines += [f"    never with: {', '.join(schema.without)}"] if schema.without else []
        lines.append("")
    return "\n".join(lines).rstrip()
