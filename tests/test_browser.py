"""The explorer and the report as a browser shows them: one server and one browser for all that is asserted."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from example_run import write_run

from codesign.report import build_report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

SMALL = ("space.plan.tp=[4,8]", "space.plan.pp=[8,16]", "space.plan.micro_batch=[1]", "space.plan.virtual_stages=[1]",
         "space.plan.zero=[1]", "space.plan.sequence_parallel=[true]", "space.plan.recompute=[none]",
         "space.plan.offload_optimizer=[0]")  # fmt: skip
HOSTILE = '<script>document.title="taken"</script>"\'><img src=x onerror=document.title="taken">'
ALONE = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
WIDE = {"width": 1400, "height": 900}
ROOT = Path(__file__).resolve().parent.parent
MONEY = re.compile(r"Cost per million tokens\s*(\$[\d.]+)")


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        shown = started.chromium.launch(executable_path=CHROMIUM, args=ALONE)
        yield shown
        shown.close()


@pytest.fixture(scope="module")
def address():
    """Of a page with a hostile name, served by a process of its own that Ctrl-C ends."""
    name = f"name='{HOSTILE.replace(chr(39), '')}'"
    serving = subprocess.Popen(
        [sys.executable, "-m", "codesign", "explore", *SMALL, name], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert serving.stdout is not None
    yield serving.stdout.readline().strip()
    serving.send_signal(signal.SIGINT)
    assert serving.wait(20) == 0
    serving.stdout.close()


class Tab:
    """A tab, and what went wrong in it: errors, and requests that leave this machine."""

    LOCAL = re.compile(r"(http|ws)://127\.0\.0\.1:|data:|file://|blob:")

    def __init__(self, chromium, address, size=WIDE):
        self.shown, self.wrong = chromium.new_page(viewport=size), []
        self.shown.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.shown.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.shown.on("request", lambda r: None if self.LOCAL.match(r.url) else self.wrong.append(r.url))
        self.shown.goto(address)

    def fits(self, width, scheme):
        """Whether nothing stands out to the right at this width."""
        self.shown.emulate_media(color_scheme=scheme)
        self.shown.set_viewport_size({"width": width, "height": 800})
        self.shown.wait_for_timeout(150)
        return self.shown.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.fixture(scope="module")
def explorer(chromium, address):
    tab = Tab(chromium, address)
    tab.shown.get_by_text("facility.pue").wait_for()  # elasticities come last
    return tab


def money(explorer):
    result = MONEY.search(explorer.shown.locator("div.figures").first.inner_text())
    return result[1] if result else ""


def test_explorer_shows_every_piece(explorer, address):
    tab = explorer.shown
    assert tab.locator("h1").inner_text() == "gpt3_175b training on h100_sxm"
    told = " ".join(tab.locator(".bk-clearfix").all_inner_texts() + tab.locator("h2").all_inner_texts())
    words = ("Within all limits.", "Limits and memory", "Where the time goes", "forward", "HBM per accelerator",
             "weights", "Purchase price", "TP", "codesign explore", "Best plans here")  # fmt: skip
    assert [word for word in words if word not in told] == []
    assert tab.locator("canvas").count() >= 2  # the front and the roofline
    assert re.search("Not proven yet|Proven", told)
    assert re.search(r"\$[\d.]+ to \$[\d.]+", told)  # an interval
    assert "<script>" in tab.title()
    assert not tab.title().startswith("taken")
    assert tab.get_by_role("slider").nth(0).get_attribute("aria-valuetext")


def moved(explorer):
    """A slider moved by the keyboard, and the answer waited for: the money before and after."""
    tab, before = explorer.shown, money(explorer)
    tab.get_by_role("slider").nth(2).focus()
    for _ in range(12):
        tab.keyboard.press("ArrowUp")
    for _ in range(100):
        if money(explorer) != before:
            break
        tab.wait_for_timeout(50)
    return before, money(explorer)


def test_explorer_answers_a_slider_that_the_keyboard_moves(explorer):
    tab, (before, after) = explorer.shown, moved(explorer)
    assert after != before
    tab.get_by_role("heading", name="on h100_sxm (modified)").wait_for()
    assert "fabric.bandwidth_bytes_per_s=" in tab.locator("pre").first.inner_text()


def test_a_link_brings_the_explorer_back(chromium, explorer):
    told = explorer.shown.locator("a[href*=scale_up]")
    if not told.count():  # nobody moved it before, in this process
        moved(explorer)
    told.wait_for()  # at rest
    after, link = money(explorer), explorer.shown.get_by_role("link", name="Link to this page").get_attribute("href")
    again = Tab(chromium, link)
    again.shown.get_by_text("Within all limits.").wait_for()
    assert money(again) == after
    assert again.wrong == []
    again.shown.close()


@pytest.fixture(scope="module")
def report(chromium, tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("runs") / "run")
    tab = Tab(chromium, build_report(folder).as_uri())
    tab.shown.wait_for_function("(document.body.dataset.drawn || '').includes('roofline')")
    return tab


def test_report_sorts_and_filters_by_keyboard(report):
    tab = report.shown

    def ranks():
        return [int(text) for text in tab.locator("#designs tbody tr:visible td:first-child").all_inner_texts()]

    assert ranks() == list(range(1, 11))
    tab.locator("#designs thead button", has_text="Step time").focus()
    tab.keyboard.press("Enter")
    times = tab.eval_on_selector_all("#designs tbody tr:not([hidden]) td:nth-child(5)", "c => c.map(x => +x.dataset.v)")
    assert times == sorted(times)
    assert ranks() != list(range(1, 11))
    tab.get_by_role("searchbox").fill("PP 16, TP")
    shown = tab.locator("#designs tbody tr:visible").all_inner_texts()
    assert shown
    assert all("PP\u202f16" in text for text in shown)
    assert "shown" in tab.locator("output").first.inner_text()
    tab.get_by_role("searchbox").fill("")


def test_report_links_the_picture_and_the_table(report):
    tab = report.shown
    source = "Bokeh.documents.map(d => d.get_model_by_name('dots')).find(Boolean)"
    tab.locator("#designs tbody tr:visible").nth(2).focus()
    design = tab.locator("#designs tbody tr:visible").nth(2).get_attribute("data-design")
    assert tab.evaluate(f"{source}.data.design[{source}.selected.indices[0]]") == design
    tab.evaluate(f"{source}.selected.indices = [4, 7]")
    assert tab.locator("#designs tbody tr:visible").count() == 2
    tab.evaluate(f"{source}.selected.indices = []")
    assert tab.locator("#designs tbody tr:visible").count() == 10


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_report_fits_and_asks_nobody(report, width, scheme):
    assert report.fits(width, scheme)
    assert report.wrong == []


def test_explorer_is_refused_without_its_token(chromium, address):
    tab = chromium.new_page()
    assert tab.goto(address.rsplit("/", 2)[0] + "/").status == 403
    tab.close()


@pytest.mark.parametrize(("width", "scheme"), [(700, "dark"), (400, "light"), (1400, "dark")])
def test_explorer_fits_at_twice_the_size_and_on_a_telephone(explorer, width, scheme):
    assert explorer.fits(width, scheme)
    assert explorer.wrong == []
