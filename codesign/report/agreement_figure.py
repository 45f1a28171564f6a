"""Figure of a model's deviations from a paper, claim by claim."""

import re
import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .drawing import style
from .findings import BLUE, ORANGE, beside, headline, panels
from .labels import MINUS, signed

COPIED = ("input", "transcription")  # kinds of claims that agree by themselves
SAME_PER_CENT = 0.05  # that no figure shows
FAR = 12.0  # times what nine of ten rows are apart: beyond it the rest would be a column of dots
LETTERS, LINES = 62, 3  # of what a claim is called
LONGEST_FIGURE = 40  # claims that a figure shows; of more those farthest apart
HARD = "\N{NO-BREAK SPACE}"


def agreement(claims: pd.DataFrame) -> Figure | None:
    """Deviations of the model from the paper, in per cent, if predicted or fitted; the bar shaded; worst first.

    Rows that are the same are counted and not drawn. None where nothing is, or nothing differs: numbers that were put
    in, or formulas that were copied, agree anyhow.

    Args:
        claims: with columns claim, paper, model, error, tolerance; evidence and ok where they are known.
    """
    every = claims[claims["paper"].notna() & claims["model"].notna() & (claims["paper"] != 0)]
    if "evidence" in every:
        every = every[~every["evidence"].isin(COPIED)]
    every = every.assign(apart=100 * (every["model"].astype(float) / every["paper"].astype(float) - 1))
    every = every.loc[every["apart"].abs().sort_values(kind="stable").index]
    shown = every[every["apart"].abs() >= SAME_PER_CENT].tail(LONGEST_FIGURE)
    if shown.empty:
        return None
    names = [_called(str(text)) for text in shown["claim"]]
    with style():
        figure, ((axes,),) = panels(1.25 + 0.2 * len(shown) + 0.13 * sum(name.count("\n") for name in names))
        places = _places(names)
        far = _scale(axes, shown["apart"])
        _drawn(axes, shown, places)
        axes.set_yticks(places, names, fontsize=7, linespacing=1.1)
        axes.set_ylim(-0.9, places[-1] + 0.9)
        axes.grid(axis="y", visible=False)
        bars = "; shaded: the bar" if _bars(shown).notna().any() else ""
        axes.set_xlabel(f"model over paper, less 1 [%]{bars}{far}")
        headline(figure, _found(every, shown))
    return figure


def _bars(shown: pd.DataFrame) -> Any:
    """Bars (tolerances) of rows whose error is this one, and not of a kind of its own, such as points."""
    own = (100 * shown["error"] - shown["apart"].abs()).abs() > 1e-7
    return shown["tolerance"].astype(float).where(~own)


def _places(names: list[str]) -> list[float]:
    """Heights of rows, of which each has the room that its name needs."""
    result, at = list[float](), 0.0
    for name in names:
        at += 0.33 * name.count("\n")
        result.append(at)
        at += 1 + 0.33 * name.count("\n")
    return result


def _scale(axes: Axes, apart: Any) -> str:
    """Logarithmic beyond what nine of ten rows keep, where the farthest is far beyond; says so."""
    usual, most = float(apart.abs().quantile(0.9)), float(apart.abs().max())
    if most < FAR * usual:
        axes.margins(x=0.24)  # for the numbers of the farthest
        return ""
    end = max(float(f"{usual:.1g}"), 1.0)
    axes.set_xscale("symlog", linthresh=end, linscale=2.0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", MINUS))
    axes.margins(x=0.13)
    return f"; logarithmic beyond {end:g} %"


def _drawn(axes: Axes, shown: pd.DataFrame, places: list[float]) -> None:
    """Bars, marks and numbers, each on the far side of its mark."""
    axes.axvline(0.0, color="0.4", linewidth=1)
    for height, bar in zip(places, _bars(shown), strict=True):
        if bar == bar:
            axes.barh(height, 200 * bar, left=-100 * bar, height=0.8, color=BLUE, alpha=0.15)
    axes.plot(shown["apart"], places, "o", color=ORANGE, markersize=4.5)
    for height, value in zip(places, shown["apart"], strict=True):
        text = f"{signed(value, 1 if abs(value) >= 1 else 2)}{HARD}%"
        beside(axes, text, value, height, "0.2", (5 if value >= 0 else -5, 0))


def _found(every: pd.DataFrame, shown: pd.DataFrame) -> str:
    """The finding in a sentence."""
    missed = int((every["ok"].astype(str) == "False").sum()) if "ok" in every else 0
    apart = every["apart"].abs()
    near, far = (f"{v:.2g}" if v < 10 else f"{v:.0f}" for v in (max(float(apart.median()), 0.01), float(apart.max())))
    told = f", {missed} of {len(every)} miss their bar" if missed else ""
    same, rest = int((apart < SAME_PER_CENT).sum()), len(every) - len(shown)
    parts = [f"the farthest {len(shown)} are shown"] if rest > same else []
    parts += [f"{same} agree within {SAME_PER_CENT:g}{HARD}%"] if same and rest == same else []
    part = f" ({'; '.join(parts)})" if parts else ""
    return (
        f"Half of {len(every)} predicted or fitted numbers lie within {near}{HARD}% of the paper's, the farthest at"
        f" {far}{HARD}%{told}{part}"
    )


def _called(claim: str) -> str:
    """A claim without its remark on errors, in lines; of one that is longer than these its beginning and its end."""
    text = re.sub(r" \(error[^)]*\)", "", claim)
    most = LETTERS * LINES - 12
    text = text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2 - 5) :]}"
    return "\n".join(textwrap.wrap(text, LETTERS, break_long_words=False))
