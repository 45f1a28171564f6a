"""Classes are put together, not inherited from: what is concrete is final; and one name means one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codesign.search.branch_and_bound.bounding_state import BoundsTable

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, SHARED = ROOT / "codesign", ROOT / "experiments" / "_lib"
ROLES = {"__init__.py", "base.py"}  # the menu of a package, and what each member of its family is: one thing in each
ALLOWED = {"CodesignError", "Module"}  # errors are caught by their family; the base of all pytrees


def files() -> list[Path]:
    """Modules of the package, and those that experiments share."""
    return sorted([*PACKAGE.rglob("*.py"), *SHARED.rglob("*.py")])


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Every class of them."""
    for path in files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(ROOT), node


def bases_of(node: ast.ClassDef) -> list[str]:
    """Names of its bases, without what they are of."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


@pytest.mark.slow
def test_no_concrete_class_has_a_subclass():
    """What is subclassed is named Abstract; a base of somebody else's is theirs to judge."""
    ours = {node.name for _, node in classes()}
    wrong = [
        f"{path}: {node.name} is a subclass of {base}"
        for path, node in classes()
        for base in bases_of(node)
        if base in ours - ALLOWED and not base.lstrip("_").startswith("Abstract")
    ]
    assert not wrong, "\n".join(wrong)


def test_one_name_is_one_class():
    """A reader who meets a name knows which class it is, wherever that is."""
    places = defaultdict(list)
    for path in files():
        for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(str(path.relative_to(ROOT)))
    wrong = {name: result for name, result in places.items() if len(result) > 1}
    assert not wrong, "\n".join(f"{name}: {', '.join(result)}" for name, result in wrong.items())


def test_one_name_is_one_file():
    """Whoever is told the name of a file finds it, and what it is of stands in its name."""
    places = defaultdict(list)
    for path in files():
        places[path.name].append(str(path.relative_to(ROOT)))
    wrong = {name: result for name, result in places.items() if len(result) > 1 and name not in ROLES}
    assert not wrong, "\n".join(f"{name}: {', '.join(result)}" for name, result in wrong.items())


@pytest.mark.slow
def test_certificates_are_made_in_one_place():
    """Nobody else says `certified`: `certify` and `certify_front` do, of what they are told."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "Certificate"
        and (node.args or node.keywords)
        and path.name != "certificate.py"
    ]
    assert not wrong


def test_bounds_only_rise_and_are_written_by_their_table_alone():
    """Arrays of the table cannot be written to from outside; a lower bound, or none, raises nothing."""
    table = BoundsTable(3, np.arange(3))
    assert table.raise_(np.array([0, 1]), np.array([1.0, -2.0])).tolist() == [True, True]
    assert table.raise_(np.array([0, 1]), np.array([0.5, np.nan])).tolist() == [False, False]
    assert table.lower.tolist() == [1.0, -2.0, -np.inf]
    table.grow(5)
    table.split(np.array([2]), np.array([3, 4]))
    assert table.leaf.tolist() == [True, True, False, True, True]
    for array in (table.lower, table.leaf, table.rounds):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
