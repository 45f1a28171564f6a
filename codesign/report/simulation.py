"""What an engine does over time: decodes, prompts, who waits, and the cache."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ..simulation.serving import TIMELINE
from .drawing import canvas, constrained

SHOWN = 400  # steps in the middle of a simulation, enough to see single prompts
COLOURS = ("#2f6fb0", "#e69f00", "#d55e00", "#009e73")
PARTS = (
    ("decodes", "Sequences decoded together"),
    ("prompt_tokens", "Prompt tokens in a step"),
    ("waiting", "Requests that wait"),
    ("blocks", "Blocks of the cache in use"),
)


def timeline_figure(timeline: Sequence[tuple[float, ...]], shown: int = SHOWN) -> Figure:
    """The whole simulation on the left, some steps of its middle on the right; one row a quantity."""
    table = dict(zip(TIMELINE, np.array(timeline, dtype=float).T, strict=True))
    start = table["start_s"]
    middle = len(start) // 2
    near = slice(max(middle - shown // 2, 0), middle + shown // 2)
    figure, first = canvas(6.2, layout=constrained())
    first[0].remove()
    axes = figure.subplots(len(PARTS), 2, sharex="col", width_ratios=(1, 1))
    for row, ((name, label), colour) in enumerate(zip(PARTS, COLOURS, strict=True)):
        whole, part = axes[row]
        thin = slice(None, None, max(len(start) // 4000, 1))
        whole.plot(start[thin], table[name][thin], lw=0.5, color=colour)
        part.step(start[near], table[name][near], where="post", lw=0.9, color=colour)
        whole.set_title(label, fontsize=8, loc="left")
        for one in (whole, part):
            one.set_ylim(bottom=0)
    axes[-1][0].set_xlabel("seconds, all of the simulation")
    axes[-1][1].set_xlabel(f"seconds, {min(shown, len(start))} events of its middle")
    return figure
