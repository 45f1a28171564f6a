"""Classes are put together, not inherited from: what is concrete is final; and one name means one thing."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "codesign"
ALLOWED = {"CodesignError", "Draft"}  # errors are caught by their family; drafts of programs wait for their own change


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Every class of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(PACKAGE), node


def bases_of(node: ast.ClassDef) -> list[str]:
    """Names of its bases, without what they are of."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


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
