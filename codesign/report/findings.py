"""Figures that state what was found: a headline, panels of one size, names beside what they name."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .drawing import DPI, WIDTH_IN, constrained
from .room_for_words import PAD_IN

__all__ = [
    "BLUE", "CLEAR", "GREEN", "GREY", "ORANGE", "PURPLE", "SKY", "YELLOW", "Named", "beside", "headline", "name_ends",
    "panels", "plain_ticks",
]  # fmt: skip

BLUE, ORANGE, GREEN, SKY, GREY = "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#8a939c"
PURPLE, YELLOW = "#b0609b", "#b07d00"
APART_IN = 0.13  # between the middles of two names, at least
LETTERS = 94  # of a headline that fit into a line


CLEAR = [withStroke(linewidth=2.4, foreground="white")]
"""Halo of words that may stand on lines and marks."""


class Named(NamedTuple):
    """A line's end and what is written there."""

    x: float
    y: float
    text: str
    colour: str = GREY


def panels(height_in: float, rows: int = 1, columns: int = 1, *, sharex: bool = False, sharey: bool = False):
    """A figure of the page's width, and its axes in rows.

    Args:
        height_in: of the figure, headline included.
        rows, columns: of axes.
        sharex, sharey: whether all axes have the same ones.
    """
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout=constrained())
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, [list(row) for row in axes]


def headline(figure: Figure, found: str) -> None:
    """The finding in a sentence or two above everything, broken into lines by its words."""
    lines = [""]
    for word in found.split(" "):  # a hard space holds a number and its unit together
        if len(lines[-1]) + len(word) >= LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    figure.suptitle("\n".join(lines), x=PAD_IN / WIDTH_IN, ha="left", fontsize=9.5, fontweight="bold")


def name_ends(axes: Axes, ends: Sequence[Named], where: float = 1.015) -> None:
    """Names of lines to the right of the axes, moved apart where lines end close to each other.

    Scales of the axes, and limits where they are set, must be as they will be.

    Args:
        axes: that the lines are in.
        ends: where each line ends.
        where: left end of the names, as a share of the axes.
    """
    height = axes.get_window_extent().height / axes.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]
    axes.get_ylim()  # limits that follow the lines are worked out now
    least = APART_IN / max(0.75 * height, APART_IN)
    to_share = axes.transData + axes.transAxes.inverted()
    wanted = np.array([to_share.transform((one.x, one.y))[1] for one in ends])
    order = np.argsort(wanted, kind="stable")
    heights = wanted[order].copy()
    for at in range(1, len(heights)):
        heights[at] = max(heights[at], heights[at - 1] + least)
    heights -= (heights - wanted[order]).mean()
    for place, height in zip(order, heights, strict=True):
        one = ends[place]
        axes.annotate(
            one.text, (one.x, one.y), (where, height), textcoords="axes fraction", color=one.colour, va="center",
            ha="left", fontsize=7.5, annotation_clip=False, path_effects=CLEAR, zorder=6,
        )  # fmt: skip


def beside(axes: Axes, text: str, x: float, y: float, colour: str = GREY, shift: tuple[float, float] = (5, 0)) -> None:
    """Words beside a place: to its right, or to its left or middle where the shift goes there.

    Args:
        axes: that the place is in.
        text: what is written.
        x, y: the place.
        colour: of the words.
        shift: points to the right and up; words end there where it is negative, and are centred where it is 0.
    """
    side = "left" if shift[0] > 0 else "right" if shift[0] < 0 else "center"
    height = "bottom" if shift[1] > 0 else "top" if shift[1] < 0 else "center"
    axes.annotate(
        text, (x, y), shift, textcoords="offset points", color=colour, ha=side, va=height, fontsize=7.5,
        annotation_clip=False, path_effects=CLEAR, zorder=6,
    )  # fmt: skip


def plain_ticks(axes: Axes, which: str, places: Sequence[float], texts: Sequence[str] | None = None) -> None:
    """A logarithmic axis that carries these numbers, written out, and no others."""
    axis = getattr(axes, f"{which}axis")
    known = dict(zip(places, texts or [f"{place:g}" for place in places], strict=True))
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: known.get(value, f"{value:g}")))
