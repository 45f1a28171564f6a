"""Links of the documentation work in the repository and in the site."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'codesign[docs]'")
ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("mkdocs_hooks", ROOT / ".ci" / "mkdocs_hooks.py")
assert SPEC
assert SPEC.loader
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)


def shown(uri: str, text: str) -> str:
    return hooks.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=uri), meta={}))


@pytest.mark.parametrize(
    ("uri", "text", "expected"),
    [
        ("index.md", "[a](errors.md)", "[a](errors.md)"),
        ("index.md", "[a](../reports/one/README.md#b)", "[a](reports/one/README.md#b)"),
        ("how-to/sweep.md", "[a](../errors.md#b)", "[a](../errors.md#b)"),
        ("how-to/recipes/buy.md", "[a](../../../experiments/one/README.md)", "[a](../../experiments/one/README.md)"),
        ("index.md", "[a](../CONTRIBUTING.md)", "a"),
        ("index.md", "[a](../experiments/one/claims.py)", "a"),
        ("index.md", "[a](https://example.org/b.md)", "[a](https://example.org/b.md)"),
        ("index.md", "![a](../reports/one/b.png)", "![a](reports/one/b.png)"),
        ("index.md", "[![a](../reports/b.png)](../reports/README.md)", "[![a](reports/b.png)](reports/README.md)"),
        ("guide/faq.md", '<img src="../../reports/b.png" width="1">', '<img src="../reports/b.png" width="1">'),
        ("reports/one/README.md", "[a](../../docs/errors.md)", "[a](../../errors.md)"),
        ("reports/one/README.md", "[a](claims.csv) ![b](b.png)", "[a](claims.csv) ![b](b.png)"),
        ("reports/one/README.md", "[a](../../README.md)", "a"),
    ],
)
def test_a_link_is_that_of_the_site_or_words(uri: str, text: str, expected: str):
    assert shown(uri, text) == expected


def test_reports_join_the_site_and_are_not_searched():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reports/validation/README.md"), meta={})
    hooks.on_page_markdown("words", page)
    assert page.meta == {"search": {"exclude": True}}
