"""One picture of what lies in a device's memory when: stacked bars over the moments of a job against what there is."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .drawing import INK, canvas, render, style
from .labels import MEMORY_CLASSES, OTHER_COLOUR

__all__ = ["memory_picture"]

GIB = 2**30


def memory_picture(moments: Mapping[str, Mapping[str, float]], lines: Mapping[str, float], title: str) -> bytes:
    """PNG of stacked bars, a moment each.

    Args:
        moments: moment -> class of data -> bytes of a device.
        lines: what bounds them -> bytes, drawn as lines.
        title: above the bars.
    """
    with style():
        return render(_drawn(moments, lines, title))


def _drawn(moments: Mapping[str, Mapping[str, float]], lines: Mapping[str, float], title: str) -> Figure:
    figure, (axes,) = canvas(1.5 + 0.36 * len(moments))
    classes = [name for name in MEMORY_CLASSES if any(parts.get(name) for parts in moments.values())]
    classes += sorted({name for parts in moments.values() for name in parts} - set(MEMORY_CLASSES))
    left = [0.0] * len(moments)
    for name in classes:
        label, colour = MEMORY_CLASSES.get(name, (name.replace("_", " "), OTHER_COLOUR))
        widths = [parts.get(name, 0.0) / GIB for parts in moments.values()]
        axes.barh(range(len(moments)), widths, left=left, height=0.7, color=colour, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    handles, labels = axes.get_legend_handles_labels()
    for index, (what, nbytes) in enumerate(lines.items()):
        dashes = "-" if index == 0 else "--"
        axes.axvline(nbytes / GIB, color=INK, linewidth=1.8, linestyle=dashes)
        handles.append(Line2D([], [], color=INK, linewidth=1.8, linestyle=dashes))
        labels.append(what)
    axes.set_yticks(range(len(moments)), list(moments))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.06 * max([*left, *(nbytes / GIB for nbytes in lines.values())]))
    axes.set_xlabel("Memory of a device [GiB]")
    axes.set_title(title)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), handlelength=1.3)
    return figure
