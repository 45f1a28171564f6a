"""The documentation as readers open it: a folder of pages, in a browser that reaches nothing else."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed"),
]
ROOT = Path(__file__).resolve().parent.parent
ASKED = {  # what a reader types -> a page that must be among those found
    "certificate": "guide/concepts.html",
    "tensor parallel": "guide/glossary.html",
    "own accelerator": "how-to/accelerator.html",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The site, built strictly."""
    path = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(path)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return path


@pytest.fixture(scope="module")
def chromium():
    alone = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    with playwright.sync_playwright() as started:
        shown = started.chromium.launch(executable_path=CHROMIUM, args=alone)
        yield shown
        shown.close()


@pytest.mark.parametrize("start", ["index.html", "tutorials/architect.html"])
def test_search_finds_pages_of_a_site_that_is_opened_from_its_folder(chromium, folder, start):
    tab, wrong = chromium.new_page(viewport={"width": 1400, "height": 900}), []
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda one: None if re.match("file:|data:|blob:|about:", one.url) else wrong.append(one.url))
    tab.goto((folder / start).as_uri())
    box, links = tab.get_by_role("textbox", name="Search"), tab.locator("a.md-search-result__link")
    for asked, page in ASKED.items():
        box.fill("")
        box.press_sequentially(asked)  # it listens to keys
        tab.locator(f"a.md-search-result__link[href*='{page}']").first.wait_for(timeout=20_000)
    with tab.expect_navigation():
        links.first.click()
    assert tab.url.startswith(folder.as_uri())
    assert wrong == []
    tab.close()
