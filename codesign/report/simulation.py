"""Timeline of engines: decodes, prompts, who waits, and the cache; of two pools also what is on its way."""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure

from ..simulation.serving import TIMELINE, Handed
from .drawing import canvas, constrained

SHOWN = 400  # steps in the middle of a simulation, enough to see single prompts
THIN = 4000  # points of a line over the whole simulation
COLOURS = ("#2f6fb0", "#e69f00", "#d55e00", "#009e73", "#56b4e9")
PARTS = (
    ("decodes", "Sequences decoded together"),
    ("prompt_tokens", "Prompt tokens in a step"),
    ("waiting", "Requests that wait"),
    ("blocks", "Blocks of the cache in use"),
)
STAYS = (
    ("came", "began", "Prompts that wait, all engines"),
    ("began", "first", "Prompts that are computed, all engines"),
    ("first", "ready", "Caches on their way"),
)
APART = (("decodes", "Sequences decoded together, first engine"), ("blocks", "Blocks of its cache in use"))
Line = tuple[str, np.ndarray, np.ndarray]  # title, seconds, what holds from then on


def timeline_figure(timeline: Sequence[tuple[float, ...]], shown: int = SHOWN) -> Figure:
    """The whole simulation on the left, some steps of its middle on the right; one row a quantity."""
    table = _columns(timeline)
    near = _middle(table["start_s"], shown)
    return _drawn([(label, table["start_s"], table[name]) for name, label in PARTS], near)


def pools_figure(timeline: Sequence[tuple[float, ...]], handed: Handed, shown: int = SHOWN) -> Figure:
    """Draw the timeline of two pools: prompts by where they are, then the steps of the first engine that decodes."""
    table = _columns(timeline)
    lines = [(label, *under_way(getattr(handed, enter), getattr(handed, leave))) for enter, leave, label in STAYS]
    lines += [(label, table["start_s"], table[name]) for name, label in APART]
    return _drawn(lines, _middle(table["start_s"], shown))


def under_way(enter: np.ndarray, leave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times at which the number that have entered and not left changes, and the number from then on."""
    stays = leave > enter
    times = np.concatenate([leave[stays], enter[stays]])
    order = np.argsort(times, kind="stable")  # at one time who leaves makes room for who enters
    change = np.repeat([-1.0, 1.0], int(stays.sum()))
    return times[order], np.cumsum(change[order])


def _columns(timeline: Sequence[tuple[float, ...]]) -> dict[str, np.ndarray]:
    return dict(zip(TIMELINE, np.array(timeline, dtype=float).T, strict=True))


def _middle(start: np.ndarray, shown: int) -> tuple[float, float]:
    """From when to when so many steps of the middle are."""
    middle = len(start) // 2
    return float(start[max(middle - shown // 2, 0)]), float(start[min(middle + shown // 2, len(start) - 1)])


def _drawn(lines: Iterable[Line], near: tuple[float, float]) -> Figure:
    rows = list(lines)
    figure, first = canvas(1.55 * len(rows), layout=constrained())
    first[0].remove()
    axes = figure.subplots(len(rows), 2, sharex="col", width_ratios=(1, 1))
    for (whole, part), (label, times, values), colour in zip(axes, rows, COLOURS, strict=False):
        thin = slice(None, None, len(times) // THIN | 1)  # odd: entering and leaving alternate
        inside = slice(max(int(np.searchsorted(times, near[0])) - 1, 0), int(np.searchsorted(times, near[1])) + 1)
        whole.plot(times[thin], values[thin], lw=0.5, color=colour)
        part.step(times[inside], values[inside], where="post", lw=0.9, color=colour)
        part.set_xlim(*near)
        whole.set_title(label, fontsize=8, loc="left")
        for one in (whole, part):
            one.set_ylim(bottom=0)
    axes[-1][0].set_xlabel("seconds, all of the simulation")
    axes[-1][1].set_xlabel("seconds, of its middle")
    return figure
