"""From which bandwidth inside a shared node on more of it hurts, by the step's slope; what moves that point."""

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign.config import scenario_from_config
from codesign.core import get_path
from codesign.evidence.reproduction import Claim
from codesign.report.findings import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Label,
    beside,
    headline,
    name_ends,
    panels,
    plain_ticks,
)
from codesign.staging import slopes_along

NAME = "busy_node"
SCALE_UP, SCALE_OUT = "cluster.network.scale_up.fabric", "cluster.network.scale_out.fabric"
INSIDE = f"{SCALE_UP}.inner.bandwidth_bytes_per_s"
OTHERS = (f"{SCALE_UP}.background_bytes_per_s", f"{SCALE_OUT}.background_bytes_per_s")
BEYOND = (f"{SCALE_UP}.beyond_ratio", f"{SCALE_OUT}.beyond_ratio")
LOWEST, HIGHEST, POINTS = 50e9, 3.6e12, 40
DOCUMENT = 0.2  # share of what others send that leaves the node: C1 of the document
CASES = {
    "as the document has it": (1.0, DOCUMENT),
    "a quarter of their share leaves": (1.0, DOCUMENT / 4),
    "twice their share leaves": (1.0, 2 * DOCUMENT),
    "half as much of theirs": (0.5, DOCUMENT),
    "nobody else": (0.0, DOCUMENT),
}  # what others offer over the experiment's, and how much of it leaves the node


@cache
def _base() -> Any:
    return scenario_from_config(f"experiment={NAME}", "plan.micro_batch=4")


@cache
def sweep(case: str, low: float = LOWEST, high: float = HIGHEST) -> pd.DataFrame:
    """Step time and its slope, both by logs, over the bandwidth inside; what others offer grows with it."""
    base, (offered, beyond) = _base(), CASES[case]
    inside = np.geomspace(low, high, POINTS)
    known = {path: get_path(base, path) / get_path(base, INSIDE) for path in OTHERS}
    moved = {INSIDE: inside} | {path: ratio * offered * inside for path, ratio in known.items()}
    (time,), (slope,) = slopes_along(
        base,
        lambda account: [jnp.log(account.metrics.time_s)],
        moved | dict.fromkeys(BEYOND, np.full(POINTS, beyond)),
        moved,  # along the log of the bandwidth everything moves by itself
    )
    return pd.DataFrame({"case": case, "inside_bytes_per_s": inside, "step_s": np.exp(time), "slope": slope})


def best(case: str) -> tuple[float, float]:
    """Bandwidth at which the step is shortest and that step: where the slope crosses zero, in two rounds of POINTS."""
    ends = LOWEST, HIGHEST
    for _ in range(2):
        result = sweep(case, *ends)
        inside, slope = result["inside_bytes_per_s"].to_numpy(), result["slope"].to_numpy()
        rising = int(np.argmax(slope > 0))
        if slope[rising] <= 0:
            return HIGHEST, float(result["step_s"].iloc[-1])
        ends = float(inside[rising - 1]), float(inside[rising])
    return float(np.exp(np.interp(0.0, slope, np.log(inside)))), float(result["step_s"].min())


def claims() -> list[Claim]:
    """The document's finding as orderings, then where it begins."""
    known = {case: best(case) for case in CASES}
    first, fewer, more, half, alone = (known[case][0] for case in CASES)
    slope = sweep("as the document has it")["slope"].to_numpy()

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("abstract: more bandwidth inside can hurt: the step has one least value inside the range",
                 slope[0] < 0 < slope[-1] and int((np.diff(np.sign(slope)) != 0).sum()) == 1),
        ordering("section 4.2.3: the less of the others' traffic leaves the node, the later", more < first < fewer),
        ordering("what leaves the node matters more than how much there is: a quarter of the one, half of the other",
                 fewer > half > first),
        ordering("with nobody else more bandwidth inside never hurts", alone == HIGHEST),
        *(Claim(NAME, f"bandwidth inside beyond which it hurts, {case}, GB/s", None, inside / 1e9, None, "derived")
          for case, (inside, _) in known.items()),
        *(Claim(NAME, f"step at it, {case}, ms", None, 1e3 * step, None, "derived")
          for case, (_, step) in known.items()),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """The curves behind the figure."""
    return {"Step over the bandwidth inside": pd.concat([sweep(case) for case in CASES], ignore_index=True)}


def figures() -> dict[str, Figure]:
    """Step time over the bandwidth inside, its least value marked."""
    figure, ((axes,),) = panels(3.7)
    most, ends = 3000.0, []
    axes.set(xscale="log", yscale="log", xlabel="bandwidth inside, GB/s an accelerator", ylabel="step, ms")
    axes.set(xlim=(LOWEST / 1e9, HIGHEST / 1e9), ylim=(200.0, most))  # beyond, what others offer no longer passes
    for case, colour in zip(CASES, (ORANGE, BLUE, PURPLE, GREEN, GREY), strict=True):
        result, (inside, step) = sweep(case), best(case)
        rates, times = result["inside_bytes_per_s"].to_numpy() / 1e9, 1e3 * result["step_s"].to_numpy()
        axes.plot(rates, times, color=colour, linewidth=1.4)
        axes.plot(inside / 1e9, 1e3 * step, "o", color=colour, markersize=4.5)
        if inside < HIGHEST:
            beside(
                axes, f"{inside / 1e9:.0f}", inside / 1e9, 1e3 * step, colour, (7, 3) if colour == ORANGE else (4, -5)
            )
        leaves = rates[(times > most) & (rates > inside / 1e9)]
        if len(leaves):
            beside(axes, case, float(leaves[0]), most, colour, (-4 if case.startswith("twice") else 4, 3))
        else:
            ends.append(Label(rates[-1], times[-1], case, colour))
    plain_ticks(axes, "x", (50, 100, 200, 500, 1000, 2000))
    plain_ticks(axes, "y", (200, 300, 500, 1000, 2000))
    name_ends(axes, ends)
    first, fewer, more = (best(case)[0] / 1e9 for case in list(CASES)[:3])
    headline(figure, f"Others' bursts decide from where on a faster inside hurts: {first:.0f} GB/s as the document has "
             f"it, {fewer:.0f} where a quarter of their share leaves the node, {more:.0f} where twice "
             f"does")  # fmt: skip
    return {"Where more bandwidth inside begins to hurt": figure}
