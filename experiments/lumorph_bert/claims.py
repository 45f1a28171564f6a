"""LUMORPH's 1.7x for BERT: one anchor at 256 GPUs, the other two rack sizes predicted.

speedup(n) = (C + N T_ring(n)) / (C + N T_lumorph(n)) with small messages, so that one unknown, C / N, is left: the
compute time beside each all-reduce. It is read off the largest rack and kept.
"""

import jax.numpy as jnp
import numpy as np
import pandas as pd

from codesign.evidence.reproduction import Claim
from codesign.model.hardware import Link
from codesign.model.networks.collectives import DoubleBinaryTreeAllReduce, RadixAllReduce, RingAllReduce, SipacAllReduce
from codesign.model.networks.fabrics import Group
from codesign.report.findings import BLUE, GREEN, ORANGE, PURPLE, SKY, Label, headline, name_ends, panels, plain_ticks

NAME = "lumorph_bert"
KINDS = {  # of claims whose standing alone does not say it
    "note": r"predicted from the anchor|^LUM-24",  # the anchor is what it is fitted on
}
CIRCUIT, SWITCH = Link(0.7e-6, 1 / 300e9, 0.0, 3.7e-6), Link(0.7e-6, 1 / 300e9)
ANCHOR, STATED = 256, 1.7
RADICES = {"L4": RadixAllReduce(radix=4.0), "L2": RadixAllReduce(radix=2.0)}
PREDICTED = {"L4": {64: 1.14, 128: 1.31}, "L2": {64: 1.09, 128: 1.29}}  # of the notes
SMALL = 1.0  # bytes
OTHERS = {
    "halving/doubling on the ideal switch": (RadixAllReduce(radix=2.0), SWITCH),
    "pipelined tree on the ideal switch": (DoubleBinaryTreeAllReduce(), SWITCH),
    "SiPAC(4) on standing circuits": (SipacAllReduce(radix=4.0), CIRCUIT),
}


def time_s(algorithm, size: int, nbytes: float = SMALL, link: Link = CIRCUIT) -> float:
    """Of one all-reduce."""
    return float(algorithm.cost(jnp.asarray(nbytes), Group(float(size)), link).time_s)


def compute_s(algorithm, nbytes: float = SMALL) -> float:
    """C / N that makes the anchor exact: (T_ring - s T) / (s - 1); negative where no compute time can."""
    ring = time_s(RingAllReduce(), ANCHOR, nbytes, SWITCH)
    return (ring - STATED * time_s(algorithm, ANCHOR, nbytes)) / (STATED - 1)


def speedup(beside_s: float, size: int, algorithm, nbytes: float = SMALL, link: Link = CIRCUIT) -> float:
    """Throughput over that of the ring on the ideal switch."""
    ring = time_s(RingAllReduce(), size, nbytes, SWITCH)
    return (beside_s + ring) / (beside_s + time_s(algorithm, size, nbytes, link))


def claims() -> list[Claim]:
    """The anchor, what follows from it, and the same job over strong baselines."""
    result = []
    for name, algorithm in RADICES.items():
        beside = compute_s(algorithm)
        text = (
            f"LUM-24, LUM-02: BERT over the ring, {name}, {ANCHOR} GPUs (anchor: compute a call {beside * 1e6:.0f} us)"
        )
        result.append(Claim(NAME, text, STATED, speedup(beside, ANCHOR, algorithm), 1e-6, "fitted 1 on 1"))
        for size, value in PREDICTED[name].items():
            model = speedup(beside, size, algorithm)
            text = f"BERT over the ring, {name}, {size} GPUs, predicted from the anchor (error: difference)"
            result.append(Claim(NAME, text, value, model, 0.02, "derived", error=abs(model - value)))
        for other, (baseline, link) in OTHERS.items():
            ratio = speedup(beside, ANCHOR, algorithm) / speedup(beside, ANCHOR, baseline, SMALL, link)
            text = f"same job, {name}, {ANCHOR} GPUs: throughput over {other} (strong baseline)"
            result.append(Claim(NAME, text, None, ratio, None, "derived"))
    largest = max(m for m in np.geomspace(1e6, 1e9, 301) if compute_s(RADICES["L4"], float(m)) > 0) / 1e6
    reason = (
        f"FlexFlow's strategy and Fig. 4(a) are not printed; L4 can reach 1.7 only with buffers below {largest:.0f} MB"
    )
    result.append(Claim(NAME, "LUM-02: model and GPU count of the 1.7", None, None, None, f"not determined: {reason}"))
    return result


def tables() -> dict[str, pd.DataFrame]:
    """How the prediction depends on the message size that the anchor assumes."""
    rows = []
    for nbytes in (1.0, 1e4, 1e5, 1e6, 3e6):
        for name, algorithm in RADICES.items():
            beside = compute_s(algorithm, nbytes)
            sizes = {f"{n} GPUs": speedup(beside, n, algorithm, nbytes) for n in (64, 128, 256)}
            rows.append({"buffer, bytes": nbytes, "radix": name, "compute a call, us": beside * 1e6, **sizes})
    return {"Speedup by assumed buffer": pd.DataFrame(rows)}


def figures() -> dict:
    """Speedup over ranks, anchored at the largest rack; strong baselines dotted."""
    figure, ((axes,),) = panels(3.3)
    sizes, ends = (8, 16, 32, 64, 128, 256), []
    beside = compute_s(RADICES["L4"])
    axes.axhline(1, color="0.5", linewidth=1)
    lines = {
        f"LUMORPH-{name[1]}, as stated at {ANCHOR}": (compute_s(one), one, CIRCUIT) for name, one in RADICES.items()
    }
    lines |= {name: (beside, *other) for name, other in OTHERS.items()}
    for (name, (own, algorithm, link)), colour in zip(lines.items(), (BLUE, SKY, ORANGE, GREEN, PURPLE), strict=True):
        values = [speedup(own, size, algorithm, SMALL, link) for size in sizes]
        axes.plot(sizes, values, ":" if name in OTHERS else "o-", color=colour, linewidth=1.4, markersize=4)
        ends.append(Label(sizes[-1], values[-1], name, colour))
    for name, values in PREDICTED.items():
        axes.plot(list(values), list(values.values()), "x", color="0.2", markersize=5, zorder=4)
        for size, value in list(values.items())[:1] if name == "L4" else ():
            axes.annotate("x: the notes", (size, value), (-6, 8), textcoords="offset points", ha="right", fontsize=7.5)
    axes.set(xscale="log", xlabel="GPUs", ylabel="throughput over a ring on an ideal switch")
    plain_ticks(axes, "x", sizes)
    name_ends(axes, ends)
    other = max(speedup(beside, ANCHOR, one, SMALL, link) for one, link in OTHERS.values())
    headline(figure, f"The stated {STATED:g} is against a ring: on {sizes[1]} GPUs circuits gain nothing, and at "
             f"{ANCHOR} the best other algorithm gains {other:.2f}")  # fmt: skip
    return {"Speedup": figure}
