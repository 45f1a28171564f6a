"""One package for training and serving: how many dies, which stacks; what sharing it costs, how far it is proven."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Certificate, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, ORANGE, beside, headline, panels
from codesign.search import Shared

NAME = "chip_mix"
PACKAGES = ((1, "hbm3e"), (2, "hbm3"), (2, "hbm3e"), (2, "hbm4"), (4, "hbm3e"))  # dies, stacks
RETICLE_MM2, OTHER_MM2 = 858.0, 407.0
SHOWN = {
    "engine_area": ("engines, mm2", 1.0), "clock": ("clock, GHz", 1e9), "hbm": ("HBM, GB", 1e9),
    "scale_up_bandwidth": ("scale-up, GB/s", 1e9), "scale_out_bandwidth": ("scale-out, GB/s", 1e9),
}  # fmt: skip


@cache
def proof(dies: int, stack: str) -> Certificate:
    """What is proven of the mix on packages of so many dies."""
    study = study_from_config(f"experiment={NAME}", f"cluster.accelerator.die.dies={dies}", f"stack={stack}")
    return study.search.run(study.problem, study.seed).certificate or Certificate()


def workloads(dies: int, stack: str) -> Sequence[Shared]:
    """Training and serving."""
    return proof(dies, stack).workloads or ()


def mean(dies: int, stack: str) -> float:
    """Geometric mean of what a million tokens cost, USD."""
    return float(np.exp(np.mean([np.log(entry.value) for entry in workloads(dies, stack)])))


def told(dies: int, stack: str) -> str:
    """A package in words."""
    return f"{dies} {'die' if dies == 1 else 'dies'}, {stack}"


def claims() -> list[Claim]:
    """Each package is proven to 2 % and can be made; a second die pays; what newer stacks bring is told."""
    result = []
    for package in PACKAGES:
        gap = proof(*package).gap or 0.0
        result.append(Claim(NAME, f"proven gap, {told(*package)}", None, gap, 0.02, "certified", error=gap))
        area = float(workloads(*package)[0].design["engine_area"]) / package[0] + OTHER_MM2
        over = max(area / RETICLE_MM2 - 1, 0.0)
        result.append(Claim(NAME, f"area of a die, {told(*package)}, mm2", None, area, 1e-6, "at most a reticle",
                           error=over))  # fmt: skip
        for entry in workloads(*package):
            what = f"{entry.workload}, {told(*package)}"
            result.append(Claim(NAME, f"what sharing costs, {what}", None, entry.costs, None, "note"))
    for better, worse in (((2, "hbm3e"), (1, "hbm3e")), ((2, "hbm3e"), (2, "hbm3")), ((2, "hbm4"), (2, "hbm3"))):
        more, pays = mean(*better) / mean(*worse) - 1, worse[0] == 1
        result.append(Claim(
            NAME, f"{told(*better)} over {told(*worse)}, mean cost", None, more, 0.0 if pays else None,
            "predicted: a second die pays" if pays else "note", error=max(more, 0.0) if pays else None,
        ))  # fmt: skip
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The best package of each kind, and what a million tokens cost on it."""
    rows = []
    for package in PACKAGES:
        design = workloads(*package)[0].design
        row = {"dies": package[0], "stacks": package[1]}
        row |= {label: float(design[name]) / unit for name, (label, unit) in SHOWN.items()}
        rows.append(row | {f"{one.workload}, USD per 1e6 tokens": one.value for one in workloads(*package)})
    plans = [
        {"package": told(*package), "workload": one.workload}
        | {name: value for name, value in one.design.items() if name not in SHOWN}
        for package in PACKAGES for one in workloads(*package)
    ]  # fmt: skip
    return {"packages": pd.DataFrame(rows), "plans": pd.DataFrame(plans)}


def figures() -> dict[str, Figure]:
    """What a million tokens of each cost, by package; the line ends where the proof does not exclude a better one."""
    figure, (row,) = panels(2.9, 1, 2)
    for at, axes in enumerate(row):
        entries = [workloads(*package)[at] for package in PACKAGES]
        values = np.array([one.value for one in entries])
        gaps = np.array([proof(*package).gap or 0.0 for package in PACKAGES])
        colours = [ORANGE if value == values.min() else BLUE for value in values]
        axes.barh(range(len(values)), values, color=colours, height=0.6)
        axes.errorbar(values, range(len(values)), xerr=[values * gaps, 0 * values], fmt="none", ecolor="0.2", capsize=2)
        for index, value in enumerate(values):
            beside(axes, f"${value:.3g}", value, index, colours[index])
        axes.set_yticks(range(len(values)), [told(*package) for package in PACKAGES] if at == 0 else [""] * len(values))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.2 * values.max())
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("USD per million tokens")
        axes.set_title({"train_13b": "training 13 B", "serve_70b": "serving 70 B"}[entries[0].workload])
    one, two, four = (mean(dies, "hbm3e") for dies in (1, 2, 4))
    worst = max(proof(*package).gap or 0.0 for package in PACKAGES)
    headline(figure, f"A second die saves {1 - two / one:.0%} of what tokens cost, a fourth gives {four / two - 1:.0%} "
             f"back; newer stacks hardly matter (thin lines: what the proofs leave, at most {worst:.0%})")  # fmt: skip
    return {"cost by package": figure}
