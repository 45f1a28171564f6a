"""When a browser first shows a page, and what the page weighs: `python benchmarks/first_paint.py RUN [RUN]`.

Of the report of a run and, with the same run, of the page of `codesign explore`: milliseconds from asking to the first
contentful paint and to the last of the page's own requests, median of five fresh browser contexts, and bytes. The bars
are 1 s and 5 MB. Needs Chromium and playwright.
"""

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

LOADS = 5
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"


def painted(browser: Browser, address: str) -> str:
    """One line about one address."""
    paints, loads, weight = [], [], 0
    for _ in range(LOADS):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        page, sizes = context.new_page(), []
        page.on("response", lambda answer, into=sizes: into.append(answer))
        page.goto(address, wait_until="load")
        page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
        paints.append(page.evaluate(PAINT))
        loads.append(page.evaluate("() => performance.timing.loadEventEnd - performance.timing.navigationStart"))
        weight = sum(len(answer.body()) for answer in sizes if answer.ok)
        context.close()
    first = f"first paint {statistics.median(paints):.0f} ms ({max(paints):.0f} at worst)"
    return f"{first}, loaded after {statistics.median(loads):.0f} ms, {weight / 1e6:.2f} MB"


@contextmanager
def explored(run: str) -> Iterator[str]:
    """The address of an explorer of a run."""
    command = [sys.executable, "-m", "codesign", "explore", run]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        for line in server.stdout:
            result = re.search(r"http://127\.0\.0\.1:\S+", line)
            if result:
                yield result[0]
                break
    finally:
        server.send_signal(signal.SIGINT)  # Ctrl-C
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def main(runs: list[str]) -> None:
    """Both pages of each run."""
    chromium = shutil.which("chromium") or os.environ.get("CHROMIUM")
    with sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for run in runs:
            report = Path(run, "report.html").resolve()
            print(f"{Path(run).name}, report: {painted(browser, report.as_uri())}", flush=True)
            with explored(run) as address:
                print(f"{Path(run).name}, explorer: {painted(browser, address)}", flush=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
