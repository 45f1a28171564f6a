"""An empty figure of the page, its look, and its bytes. The same data give the same bytes."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine, LayoutEngine

# Room for the words of a figure: measured once, where matplotlib's constrained layout measures every mark twice.


PAD_IN, BETWEEN_IN = 0.09, 0.3  # at the edges of a figure; between two axes, words included, at least
LEAST = 0.15  # of the width or height that the axes of a figure keep, however long their words are
CLOSE = 0.2  # relative change of an axis's length that leaves its ticks about as they are
WIDE, TALL = 0.75, 0.8  # shares of a figure that axes have before anything is measured


class MeasuredPlace(LayoutEngine):
    """Axes side by side, equally wide, with room for their words, a headline above and a legend below them.

    Only what may reach beyond its axes is measured: ticks, labels, titles and free texts. Bars, lines and marks end
    where their axes end. Which ticks there are depends on the room they have, so words are measured where they will
    about be, and again where that was a poor guess.
    """

    _adjust_compatible = False
    _colorbar_gridspec = False

    def execute(self, fig: Any) -> None:
        """Place the axes of a figure."""
        axes = [one for one in fig.axes if one.get_visible()]
        for index, one in enumerate(axes):
            one.set_position((0.2 + index * WIDE / len(axes), 0.15, WIDE / len(axes), TALL))
        for _ in range(2):
            before = np.array([one.bbox.size for one in axes])
            _fit_layout(fig, axes)
            if (np.abs(np.array([one.bbox.size for one in axes]) / before - 1) < CLOSE).all():
                break


def _fit_layout(figure: Figure, axes: Sequence[Axes]) -> None:
    """Axes where their words, as they are now, leave room."""
    renderer = figure._get_renderer()  # pyright: ignore[reportAttributeAccessIssue]  # as matplotlib's own layouts
    width, height = figure.bbox.width, figure.bbox.height
    pad, between = PAD_IN * figure.dpi, BETWEEN_IN * figure.dpi
    beyond = np.array([_beyond(one, renderer) for one in axes])
    left, bottom, right, top = beyond.T
    legends = [legend.get_window_extent(renderer).height + pad for legend in figure.legends]
    low = max(bottom) + pad + sum(legends)
    head = _head(figure, renderer, pad)
    tall = max(height - low - max(top) - pad - head, LEAST * height)
    gaps = np.maximum(right[:-1] + left[1:] + pad, between)
    wide = max(width - left[0] - right[-1] - 2 * pad - gaps.sum(), LEAST * width) / len(axes)
    start = left[0] + pad
    for one, gap in zip(axes, (*gaps, 0.0), strict=True):
        one.set_position((start / width, low / height, wide / width, tall / height))
        start += wide + gap


def _head(figure: Figure, renderer: Any, pad: float) -> float:
    """Pixels of the headline, which is put at the upper edge; none without one."""
    headline = figure._suptitle  # pyright: ignore[reportAttributeAccessIssue]  # as matplotlib's own layouts
    if headline is None:
        return 0.0
    headline.set_y(1 - pad / figure.bbox.height)
    return headline.get_window_extent(renderer).height + pad


def _beyond(axes: Axes, renderer: Any) -> tuple[float, float, float, float]:
    """Pixels that words reach beyond their axes: left, below, right, above."""
    bounds = axes.get_tightbbox(renderer, bbox_extra_artists=axes.texts, for_layout_only=True)
    if bounds is None:
        return (0.0, 0.0, 0.0, 0.0)
    inside = axes.bbox
    return (inside.x0 - bounds.x0, inside.y0 - bounds.y0, bounds.x1 - inside.x1, bounds.y1 - inside.y1)


WIDTH_IN, DPI = 7.6, 130
INK, SOFT, ACCENT = "#1c2733", "#5c6875", "#d55e00"
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters everywhere
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#aab2bb",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ed",
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def style() -> AbstractContextManager[None]:
    """The look of every figure; figures are drawn and rendered inside it."""
    return matplotlib.rc_context(STYLE)


def canvas(
    height_in: float, columns: int = 1, *, sharey: bool = False, layout: LayoutEngine | None = None
) -> tuple[Figure, list[Axes]]:
    """An empty figure of the page's width, and its axes side by side.

    Args:
        height_in: of the figure.
        columns: how many axes.
        sharey: whether they have one vertical axis.
        layout: `constrained()` for what is more than axes side by side, such as a bar of colours.
    """
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout=layout or MeasuredPlace())
    axes = figure.subplots(1, columns, squeeze=False, sharey=sharey)
    return figure, list(axes[0])


def constrained() -> LayoutEngine:
    """Matplotlib's own, which makes room for anything and takes its time."""
    return ConstrainedLayoutEngine(w_pad=PAD_IN, h_pad=PAD_IN)


def render(figure: Figure) -> bytes:
    """PNG without date or software version."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()
