"""How long a slider of `codesign explore` takes on the server, and what the page weighs.

`python benchmarks/explorer.py [EXPERIMENT ...]`: of each study the time from a slider's new value to the page's new
pieces (median and worst of random moves, and the processor time of one, which other work on the machine does not
change), how long the server needs before its first page, and the bytes of a page with its scripts. The bar is 150 ms a
move and 5 MB.
"""

import statistics
import sys
import time
from pathlib import Path

import bokeh
import jax
import numpy as np
from bokeh.document import Document

from codesign.explorer import Answerer, Page, given

STUDIES = ("train_gpt3_175b", "serve_llama31_405b", "serve_deepseek_v3", "codesign_175b", "chip_175b")
MOVES = 20
SCRIPTS = ("bokeh.min.js", "bokeh-widgets.min.js")


def measured(name: str) -> str:
    """One line about one study."""
    started = time.perf_counter()
    result = given([f"experiment={name}"])
    answerer = Answerer(result)
    ready = time.perf_counter() - started
    started, busy = time.perf_counter(), time.thread_time()
    page = Page(result, answerer, Document(), "http://127.0.0.1/", {})
    made, alone, rng = time.perf_counter() - started, time.thread_time() - busy, np.random.default_rng(0)
    moves: list[float] = []
    work: list[float] = []
    try:
        for _ in range(MOVES):
            slider = list(page.sliders.values())[rng.integers(len(page.sliders))]
            started, busy = time.perf_counter(), time.thread_time()
            slider.value = float(rng.integers(slider.end + 1))
            page.follow()
            moves.append(1e3 * (time.perf_counter() - started))
            work.append(1e3 * (time.thread_time() - busy))
    finally:
        page.close()
    scripts = Path(bokeh.__file__).parent / "server" / "static" / "js"
    weight = sum((scripts / script).stat().st_size for script in SCRIPTS) + len(str(page.document.to_json()))
    told = f"{statistics.median(moves):.0f} ms a move ({max(moves):.0f} at worst; CPU {statistics.median(work):.0f})"
    shown = f"page {made:.2f} s (CPU {alone:.2f}) and {weight / 1e6:.2f} MB, ready after {ready:.1f} s"
    return f"{name}: {told}, {shown}; {answerer.how}"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for study in sys.argv[1:] or STUDIES:
        print(measured(study), flush=True)
