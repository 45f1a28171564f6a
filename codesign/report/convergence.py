"""Convergence of the optimality gap as a picture, for pages that cannot draw their own."""

import math
import textwrap

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from . import proof
from .drawing import ACCENT, INK, SOFT, canvas
from .labels import number
from .run_folder import RunFolder

WIDE = 1.0  # of logarithms: names of all lines of a decade would lie upon each other


def convergence(run: RunFolder) -> Figure:
    """Best design and bound over the time of the search.

    Raises:
        MissingPart: there is too little to follow.
    """
    points = proof.closing(run)
    values = [value for _, best, bound in points for value in (best, bound) if value is not None]
    span = math.log(max(values) / min(values))
    figure, (axes,) = canvas(2.4)
    seconds = [point[0] for point in points]
    axes.step(seconds, [point[1] for point in points], where="post", color=INK, label="best design")
    bounds = [(s, bound) for s, _, bound in points if bound is not None]
    if bounds:
        axes.step(*zip(*bounds, strict=True), where="post", color=ACCENT, label="bound on every design")
    axes.set_xlabel("seconds")
    known = proof.goal(run)
    axes.set_ylabel(textwrap.fill(known.label, 28))
    axes.set_yscale("log")
    if span > WIDE:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    for axis_text in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_text(FuncFormatter(lambda value, _: number(value, known.unit, 3 if span > 0.1 else 5)))
    axes.tick_params(axis="both", which="both", colors=SOFT)
    axes.legend(loc="best")
    return figure
