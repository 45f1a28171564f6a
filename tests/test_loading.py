"""Commands load their modules late: each name that they ask for is there."""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "codesign"


def asked() -> list[tuple[str, str]]:
    """(module, name) of every call of `later`."""
    result = set()
    for path in sorted((PACKAGE / "commands").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "later":
                result.add(tuple(ast.literal_eval(word) for word in node.args))
    return sorted(result)


def test_calls_are_found():
    assert len(asked()) > 15


@pytest.mark.parametrize(("module", "name"), asked())
def test_what_a_command_asks_for_is_there(module, name):
    assert callable(getattr(importlib.import_module(f"codesign.{module}"), name))
