"""One slide for whoever pays: the choice, why, what it costs, how sure it is, what would change it.

`slide.html` prints on one landscape page; `slide.png` is the same as a picture for other documents.
"""

import base64
import functools
import textwrap
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..core.atomic_files import write_files
from .comparison_figures import draw_candidates
from .drawing import ACCENT, DPI, INK, SOFT, render, style
from .pages import rendered
from .side_by_side import Comparison

PAGE, PICTURE = "slide.html", "slide.png"
WIDTH_IN, HEIGHT_IN = 13.333, 7.5  # 16:9
SIZES = (13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0)  # points of the text, the first that fits
TEXT_IN = (7.1, 4.45)  # width and height of the text
LETTER = 0.53  # width of a letter in the size of its line
APART = 0.4  # of a line, between sentences
SHOWN = 8  # candidates in the chart: all that a slide has room for


@dataclass(frozen=True)
class AnswerSlide:
    """Content of the slide.

    question: what was asked; choice: the answer in one line; facts: pairs of (number with its unit, what it is), the
    largest first; why, risk, changes: sentences on why it is chosen, how sure that is, and what would change the
    answer; assumed: what nobody said; made: command and date.
    """

    question: str
    choice: str
    facts: tuple[tuple[str, str], ...]
    why: tuple[str, ...]
    risk: tuple[str, ...]
    changes: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    made: str = ""

    @property
    def sections(self) -> list[tuple[str, tuple[str, ...]]]:
        """(heading, sentences) of what has any."""
        named = (("Why", self.why), ("Risk", self.risk), ("What would change the answer", self.changes))
        return [(head, lines) for head, lines in named if lines]


def write_slide(slide: AnswerSlide, found: Comparison, folder: Path) -> Path:
    """`slide.html` and `slide.png` in a folder; the page's path."""
    page = folder / PAGE
    with style():
        chart, whole = _chart(found), _picture(slide, found)
    uri = "data:image/png;base64," + base64.b64encode(chart).decode("ascii")
    write_files({page: rendered("slide.html.j2", slide=slide, chart=uri), folder / PICTURE: whole})
    return page


def _chart(found: Comparison) -> bytes:
    """The candidates alone, as the page shows them beside its text."""
    figure = Figure(figsize=(6.2, _height(found)), dpi=2 * DPI, layout="constrained")
    draw_candidates(found, figure.subplots(), SHOWN)
    return render(figure)


def _height(found: Comparison) -> float:
    return 1.0 + 0.4 * min(len(found.feasible), SHOWN)


def _fitted(slide: AnswerSlide) -> tuple[float, list[tuple[str, list[list[str]]]]]:
    """The largest size in which all sections fit, and their wrapped sentences."""
    for size in SIZES:
        letters = int(72 * TEXT_IN[0] / (LETTER * size))
        lines = [(head, [textwrap.wrap(text, letters) for text in texts]) for head, texts in slide.sections]
        rows = sum(1.4 + APART + sum(len(wrapped) + APART for wrapped in texts) for _, texts in lines)
        if rows * 1.3 * size / 72 <= TEXT_IN[1]:
            break
    return size, lines


def _picture(slide: AnswerSlide, found: Comparison) -> bytes:
    """The whole slide drawn; text that does not fit is set smaller."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI)
    FigureCanvasAgg(figure)
    written = functools.partial(figure.text, parse_math=False)  # two prices in a line are no formula
    written(0.04, 0.945, textwrap.fill(slide.question, 150), fontsize=11, color=SOFT, va="center")
    written(0.04, 0.88, textwrap.fill(slide.choice, 78), fontsize=21, weight="bold", va="center")
    step = 0.92 / max(len(slide.facts), 1)
    for at, (value, what) in enumerate(slide.facts):
        written(0.04 + at * step, 0.775, value, fontsize=17, color=ACCENT, weight="bold", va="center")
        written(0.04 + at * step, 0.725, what, fontsize=10, color=SOFT, va="center")
    size, lines = _fitted(slide)
    line, y = 1.3 * size / 72 / HEIGHT_IN, 0.67
    for head, texts in lines:
        written(0.04, y, head, fontsize=1.1 * size, weight="bold", color=INK, va="top")
        y -= 1.4 * line
        for wrapped in texts:
            written(0.04, y, "\n".join(wrapped), fontsize=size, color=INK, va="top", linespacing=1.2)
            y -= (len(wrapped) + APART) * line
        y -= APART * line
    tall = min(0.52, _height(found) / HEIGHT_IN)
    draw_candidates(found, figure.add_axes((0.66, 0.67 - tall, 0.31, tall - 0.06)), SHOWN)
    small = [f"Assumed: {'; '.join(slide.assumed)}."] if slide.assumed else []
    small += [slide.made] if slide.made else []
    written(0.04, 0.03, "\n".join(textwrap.fill(text, 215) for text in small), fontsize=7.5, color=SOFT)
    return render(figure)
