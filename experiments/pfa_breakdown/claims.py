"""Where the time of a decode step and of a prefill goes: eight H100 against the appliance, and what tensor ranks add.

Overhead of tensor parallelism, as the document defines it, is T(t) - T(1)/t: the all-reduces, and what every rank does
in full, c (1 - 1/t). The printed shares of the all-reduces are fitted with the latency of a ring and compared with
what kernels and collectives measured on an H100 say without a fit.
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from _lib.celestisim_inference import APPLIANCE, DGX, PATHS, reference, untuned
from codesign import Scenario, replace
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import Link
from codesign.model.metrics import priced_ops
from codesign.model.networks.collectives import RingAllReduce, Tuned
from codesign.model.networks.fabrics import Group
from codesign.model.workloads import CommOp, ComputeOp
from codesign.report.findings import BLUE, GREY, ORANGE, YELLOW, Label, beside, headline, name_ends, panels
from codesign.staging import at_many

NAME = "pfa_breakdown"
KINDS = {  # of claims whose standing alone does not say it
    "note": r"^figure 11: appliance over DGX, (all-reduce|attention, constants measured)",  # none, and equal rates
}
PAPER = {2: 0.3768, 4: 0.4010, 8: 0.5002}  # section 6.3
BATCH, INPUT, OUTPUT = 16.0, 128.0, 128.0  # section 6.3
BAR = 0.01  # one point
CLASSES = ("linear", "attention", "all-reduce", "other")
LLAMA_70B = {"layers": 80.0, "hidden": 8192.0, "attention.heads": 64.0, "feed_forward.width": 28672.0}
CONSTANTS = {"fitted to the headlines": reference, "measured on an H100": untuned}


def class_of(op: Any) -> str:
    """The document's categories; what it calls other is normalisation, residuals and activation."""
    if isinstance(op, CommOp):
        return "all-reduce" if op.axis == "tp" else "other"
    if isinstance(op, ComputeOp) and op.kernel == "gemm":
        return "linear"
    return "attention" if op.name == "attention_core" else "other"


@functools.cache
def stepper(phase: str) -> Any:
    """(scenario, values) -> seconds of one prefill or decode step by class, for many values in one call."""

    def one(base: Scenario, values: dict[str, Any]) -> Any:
        scenario, seconds = replace(base, values), dict.fromkeys(CLASSES, jnp.asarray(0.0))
        for op, cost in priced_ops(scenario):
            if op.phase == phase:
                seconds[class_of(op)] = seconds[class_of(op)] + cost.time_s
        return jnp.stack([seconds[name] for name in CLASSES])

    return at_many(one, (None, 0))


def step(
    scenario: Scenario, rows: list[dict[str, float]], model: dict[str, float], phase: str = "decode"
) -> pd.DataFrame:
    """Seconds by class, one row a case; keys of the rows as in `PATHS`, of the model below `workload.model`."""
    columns = {path: [float(row[name]) for row in rows] for name, paths in PATHS.items() for path in paths}
    columns |= {f"workload.model.{path}": [value] * len(rows) for path, value in model.items()}
    result = stepper(phase)(scenario, {path: jnp.asarray(values) for path, values in columns.items()})
    return pd.DataFrame(np.asarray(result), columns=list(CLASSES))


@functools.cache
def figure_11(constants: str, phase: str = "decode") -> pd.DataFrame:
    """A decode step (or the prefill) of Llama 3.1 405B at batch 1 on both systems."""
    rows = [s | {"batch": 1.0, "input": INPUT, "output": OUTPUT, "layers": 126.0} for s in (DGX, APPLIANCE)]
    frame = step(CONSTANTS[constants](), rows, {}, phase)
    return frame.set_axis(["DGX-H100", "appliance"])


@functools.cache
def overhead(constants: str) -> pd.DataFrame:
    """Of a decode step of Llama 3.1 70B, what more than one rank adds to a perfect division: seconds by class."""
    ranks = (1, *PAPER)
    lengths = {"batch": BATCH, "input": INPUT, "output": OUTPUT, "layers": LLAMA_70B["layers"]}
    rows = [DGX | lengths | {"tp": float(t), "devices": float(t)} for t in ranks]
    frame = step(CONSTANTS[constants](), rows, LLAMA_70B).set_axis(list(ranks))
    over = frame - frame.loc[1].to_numpy()[None, :] / np.array(ranks)[:, None]
    return over.loc[list(PAPER)]


def figure_12(constants: str) -> pd.DataFrame:
    """The overhead's shares, and its seconds."""
    over = overhead(constants)
    return over.div(over.sum(axis=1), axis=0).assign(overhead_s=over.sum(axis=1))


def ring_share(start: float, step: float, ranks: tuple[int, ...]) -> np.ndarray:
    """Share of the all-reduces when a ring of latency alone takes start + step (t - 1), in units of c."""
    ring = Tuned(RingAllReduce(), launch_s=start)
    busy = [float(ring.cost(jnp.asarray(1.0), Group(float(t)), Link(step / 2, 0.0)).time_s) for t in ranks]
    full = np.array([1 - 1 / t for t in ranks])
    return np.array(busy) / (np.array(busy) + full)


@functools.cache
def fitted(ranks: tuple[int, ...]) -> tuple[float, float]:
    """(start, step) of the ring that meets the printed shares of these ranks best."""
    printed = np.array([PAPER[t] for t in ranks])
    result = least_squares(lambda x: ring_share(x[0], x[1], ranks) - printed, (0.2, 0.1), xtol=1e-12, ftol=1e-12)
    return float(result.x[0]), float(result.x[1])


def share(text: str, ranks: int, model: float, bar: float | None, standing: str) -> Claim:
    """A share of the overhead; its error in points of a hundred."""
    return Claim(NAME, text, PAPER[ranks], model, bar, standing, abs(model - PAPER[ranks]))


def rising(text: str, values: np.ndarray, bar: float | None) -> Claim:
    """Shares that should grow with the ranks: smallest step, and by how much it falls short of zero."""
    least = float(np.diff(values).min())
    return Claim(NAME, text, None, least, bar, "derived", max(0.0, -least))


def claims() -> list[Claim]:
    """Section 6.3."""
    ranks = tuple(PAPER)
    both = ring_share(*fitted(ranks), ranks)
    rows = [
        share(
            f"PFA-06{index}: all-reduce in the overhead of TP {t} (error in points)",
            t,
            float(both[index]),
            BAR,
            "fitted 2 on 3",
        )
        for index, t in enumerate(ranks)
    ]
    ends = float(ring_share(*fitted((2, 8)), (4,))[0])
    rows.append(share("PFA-061: TP 4 from a fit on TP 2 and 8 alone", 4, ends, BAR, "derived: fitted 2 on the other 2"))
    rows.append(rising("the fitted share rises with the ranks: smallest step", both, 0.0))
    for constants in CONSTANTS:
        ours = figure_12(constants)["all-reduce"].to_numpy()
        rows += [
            share(f"PFA-06{index}: TP {t}, constants {constants}", t, float(ours[index]), None, "derived")
            for index, t in enumerate(ranks)
        ]
        rows.append(rising(f"share rises with the ranks, constants {constants}: smallest step", ours, None))
    return rows + categories() + asked_of_an_all_reduce()


def asked_of_an_all_reduce() -> list[Claim]:
    """Figure 12 against the headlines: microseconds an all-reduce may take for the printed shares, and does take.

    The constants that meet the headlines let one take 12 us and more on any number of ranks; beside the work that they
    repeat on every rank, the printed shares leave it less on few ranks. No one latency meets both.
    """
    rows, calls = [], 2 * LLAMA_70B["layers"]
    for constants in CONSTANTS:
        over = overhead(constants)
        rest = over.drop(columns="all-reduce").sum(axis=1)
        for t, printed in PAPER.items():
            asked, taken = rest[t] * printed / (1 - printed) / calls, over["all-reduce"][t] / calls
            text = f"figure 12, TP {t}, constants {constants}: us an all-reduce may take for the printed share"
            rows.append(Claim(NAME, text, None, 1e6 * asked, None, "derived"))
            rows.append(Claim(NAME, f"figure 12, TP {t}, constants {constants}: us it takes", None, 1e6 * taken, None,
                              "derived"))  # fmt: skip
    return rows


def categories() -> list[Claim]:
    """Figure 11: the appliance is faster in every category; the ratio, and by how much it is not."""
    rows = []
    for constants in CONSTANTS:
        decode = figure_11(constants)
        for name in CLASSES:
            dgx, appliance = (float(decode[name][system]) for system in decode.index)
            ratio = appliance / dgx
            text = f"figure 11: appliance over DGX, {name}, constants {constants} (below 1)"
            rows.append(Claim(NAME, text, None, ratio, 0.0, "derived", max(0.0, ratio - 1)))
        whole = figure_11(constants, "prefill")
        for name in CLASSES:
            ratio = float(whole[name].iloc[1] / whole[name].iloc[0])
            rows.append(Claim(NAME, f"prefill: appliance over DGX, {name}, constants {constants}", None, ratio, None,
                              "derived"))  # fmt: skip
    return rows


def tables() -> dict[str, pd.DataFrame]:
    """Both figures as numbers, and the constants of the ring."""

    def at_batch_1(phase: str) -> pd.DataFrame:
        parts = [figure_11(c, phase).mul(1e6).round(2).rename_axis("system").reset_index() for c in CONSTANTS]
        return pd.concat([part.assign(constants=c) for part, c in zip(parts, CONSTANTS, strict=True)])

    shares = [figure_12(c).round(4).rename_axis("tp").reset_index().assign(constants=c) for c in CONSTANTS]
    rings = [
        {"fitted on TP": " ".join(map(str, r)), "start / c": fitted(r)[0], "step / c": fitted(r)[1]}
        for r in (tuple(PAPER), (2, 8))
    ]
    return {
        "Decode step at batch 1, microseconds": at_batch_1("decode"),
        "Prefill of 128 tokens at batch 1, microseconds": at_batch_1("prefill"),
        "Shares of the overhead of tensor parallelism": pd.concat(shares),
        "Ring, in units of the work that every rank repeats": pd.DataFrame(rings),
    }


def figures() -> dict[str, Any]:
    """Figures 11 and 12."""
    figure, ((left, right),) = panels(3.6, 1, 2)
    colours = dict(zip(CLASSES, (BLUE, YELLOW, ORANGE, GREY), strict=True))
    labels, places, totals = [], (0, 1, 2.4, 3.4), {}
    rows = [(system, constants, row) for constants in CONSTANTS for system, row in figure_11(constants).iterrows()]
    for place, (system, constants, row) in zip(places, rows, strict=True):
        bottom = 0.0
        for name in CLASSES:
            value = 1e3 * float(row[name])
            left.bar(place, value, bottom=bottom, color=colours[name], width=0.8)
            if place == places[0] and value > 1:
                left.text(place, bottom + value / 2, name, color="white", ha="center", va="center", fontsize=6.3)
            bottom += value
        beside(left, f"{bottom:.0f} ms", place, bottom, "0.3", (0, 2))
        labels.append("DGX-H100" if "DGX" in str(system) else f"appliance\n{constants}")
        totals[constants, "DGX" in str(system)] = bottom
    left.set_xticks(places, labels, fontsize=7)
    left.grid(axis="x", visible=False)
    left.margins(y=0.1)
    left.set_title("decode step of 405B at batch 1, ms")
    ranks = list(PAPER)
    right.plot(ranks, list(PAPER.values()), "o", color="0.1", zorder=4)
    shares = {"ring, two constants fitted": (ring_share(*fitted(tuple(ranks)), tuple(ranks)), "-", ORANGE)}
    for constants, style in zip(CONSTANTS, ("--", ":"), strict=True):
        shares[f"70B, {constants.split()[0]}"] = (figure_12(constants)["all-reduce"].to_numpy(), style, BLUE)
    right.set(xlabel="tensor ranks", ylim=(0, 1))
    for values, style, colour in shares.values():
        right.plot(ranks, values, style, color=colour, linewidth=1.4)
    beside(right, "printed", ranks[1], PAPER[ranks[1]], "0.1", (0, 6))
    right.set_xticks(ranks)
    right.set_title("all-reduce's share of the overhead")
    name_ends(right, [Label(ranks[-1], float(v[-1]), name, colour) for name, (v, _, colour) in shares.items()])
    gains = [totals[constants, True] / totals[constants, False] for constants in CONSTANTS]
    headline(figure, f"The appliance decodes {min(gains):.2f} to {max(gains):.2f} times as fast, as collectives start "
             "sooner; no one latency gives both its headlines and the printed shares")  # fmt: skip
    return {"Decode step and overhead": figure}
