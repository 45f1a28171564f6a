"""Llama 3.1 405B served on 64 H100: cheapest tokens under limits on TTFT and TPOT, and how the design moves."""

import functools
import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, ORANGE, beside, headline, panels, plain_ticks
from codesign.search.branch_and_bound import (
    BranchAndBound,
    Oracle,
    Outcome,
    Programme,
    SearchEffort,
    Verdict,
    check_convexity,
    rows_of,
)
from codesign.search.exhaustive import screen

NAME = "codesign_405b_serving"
SEED, GAP = 0, 1e-3
TPOT_S = (0.025, 0.026, 0.027, 0.028, 0.029, 0.03, 0.04, 0.05, 0.1)
CROWDED = (26.0, 27.0, 28.0, 29.0)  # ms; ticks without a number
TTFT_S = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)


@functools.cache
def study():
    """The study of `experiment=codesign_405b_serving`."""
    return study_from_config(f"experiment={NAME}")


@functools.cache
def oracle() -> tuple[Oracle, Verdict]:
    """Rows and tangents of all plans, and whether they are convex."""
    made = Oracle(study().problem, rows_of(study().problem), block=128)
    return made, check_convexity(made, SEED, 256)


@functools.cache
def solve(tpot_s: float, ttft_s: float) -> Outcome:
    """Cheapest tokens under these latencies."""
    limits = study().objective.limits
    moved = {"tpot_s": math.log(tpot_s / limits["tpot_s"]), "ttft_s": math.log(ttft_s / limits["ttft_s"])}
    return BranchAndBound(Programme(oracle()[0], allowed=moved), SearchEffort(gap=GAP, seconds=120.0), SEED).run()


def base() -> Outcome:
    """At the limits of the experiment."""
    limits = study().objective.limits
    return solve(limits["tpot_s"], limits["ttft_s"])


def _standing(outcome: Outcome) -> str:
    verdict = oracle()[1]
    if not verdict.convex:
        return f"derived: heuristic solution, no certificate ({verdict.reason})"
    if not math.isfinite(outcome.upper) and not outcome.stopped:
        return "derived: certified that no design keeps all limits"
    return f"derived: certified within {math.expm1(outcome.gap):.1g}" if not outcome.stopped else outcome.stopped


def _row(outcome: Outcome) -> dict:
    made = oracle()[0]
    if not math.isfinite(outcome.upper):
        proven = oracle()[1].convex and not outcome.stopped
        return {
            "usd_per_million_tokens": None,
            "active_constraints": "no design, certified" if proven else "none found",
        }
    exact = made.tangents(np.array([outcome.bounding.plan]), outcome.bounding.u[None], 1e6).exact[0]
    shift = outcome.bounding.programme.allowed
    used = {n: math.exp(exact[i] - shift.get(n, 0.0)) for i, n in enumerate(made.names) if i}
    row = {"usd_per_million_tokens": math.exp(outcome.upper), "gap": math.expm1(outcome.gap)}
    row |= made.point(outcome.bounding.plan, outcome.bounding.u)
    return row | {"active_constraints": ", ".join(name for name, share in used.items() if share > 0.999)}


def claims() -> list[Claim]:
    """The optimum with its gap, the exhaustive grid beside it, and the price of the limits."""
    best = base()
    value, proven = math.exp(best.upper), oracle()[1].convex
    gap = math.expm1(best.gap)
    grid = math.exp(float(screen(study().problem).top.best[0]))
    text = "cheapest USD per million tokens with TTFT 10 s and TPOT 50 ms (error: proven gap)"
    result = [Claim(NAME, text, None, value, GAP if proven else None, _standing(best), error=gap if proven else None)]
    text = "the same by an exhaustive grid of 6 levels a variable (error: by how much the grid is cheaper)"
    result.append(Claim(NAME, text, None, grid, 1e-5, "derived: exhaustive", error=max(0.0, value / grid - 1)))
    for tpot in (0.026, 0.028):
        outcome = solve(tpot, 10.0)
        found = math.exp(outcome.upper) if math.isfinite(outcome.upper) else None
        text = f"cheapest USD per million tokens with TPOT {1e3 * tpot:g} ms"
        result.append(Claim(NAME, text, None, found, None, _standing(outcome)))
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The best design along each limit."""
    tpot = pd.DataFrame([{"tpot_ms": round(1e3 * t, 3)} | _row(solve(t, 10.0)) for t in TPOT_S])
    ttft = pd.DataFrame([{"ttft_s": t} | _row(solve(0.05, t)) for t in TTFT_S])
    return {"Along the limit of TPOT": tpot, "Along the limit of TTFT": ttft}


def figures() -> dict[str, Figure]:
    """Cost along each limit; a name where the plan changes."""
    figure, (row,) = panels(3.2, 1, 2)
    frames, places = tables(), (("tpot_ms", "limit of TPOT, ms"), ("ttft_s", "limit of TTFT, s"))
    for axes, (frame, (x, label)) in zip(row, zip(frames.values(), places, strict=True), strict=True):
        known = frame.dropna(subset=["usd_per_million_tokens"])
        axes.plot(known[x], known["usd_per_million_tokens"], "o-", color=BLUE, linewidth=1.4)
        before = None
        for line in known.to_dict(orient="records"):
            if line["micro_batch"] != before:
                words = f"${line['usd_per_million_tokens']:.1f}, batch {line['micro_batch']:g}"
                beside(axes, words, line[x], line["usd_per_million_tokens"], BLUE, (6, 3))
            before = line["micro_batch"]
        none = frame[frame["usd_per_million_tokens"].isna()][x]
        axes.set(xscale="log", yscale="log", xlabel=label, xlim=(frame[x].min() / 1.08, 1.5 * frame[x].max()))
        axes.set_ylim(4, 70)
        if len(none):
            axes.axvspan(frame[x].min() / 1.08, none.max(), color=ORANGE, alpha=0.12, linewidth=0)
            beside(axes, "shaded: no design keeps it, proven", none.max(), 40, ORANGE, (6, 0))
        plain_ticks(axes, "x", [value for value in frame[x] if value not in CROWDED])
        plain_ticks(axes, "y", (5, 10, 20, 50))
    row[0].set_ylabel("USD per million tokens")
    tpot, ttft = (frame.dropna(subset=["usd_per_million_tokens"]) for frame in frames.values())
    late, soon = (float(tpot["usd_per_million_tokens"].iloc[at]) for at in (-1, 0))
    first, last = (float(ttft["usd_per_million_tokens"].iloc[at]) for at in (0, -1))
    headline(figure, f"The first token is what costs: {first / last:.0f} times as much at {ttft['ttft_s'].iloc[0]:g} s "
             f"as at {ttft['ttft_s'].iloc[-1]:g} s; a token may take {tpot['tpot_ms'].iloc[2]:g} ms for hardly more "
             f"than "
             f"the least, and {tpot['tpot_ms'].iloc[0]:g} ms for {soon / late:.1f} times it")  # fmt: skip
    return {"Cost along the limits": figure}
