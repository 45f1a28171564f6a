"""An empty figure of the page, its look, and its bytes. The same data give the same bytes."""

import io
from contextlib import AbstractContextManager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine, LayoutEngine

from .room_for_words import PAD_IN, MeasuredPlace

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
