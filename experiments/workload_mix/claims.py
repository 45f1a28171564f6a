"""What one cluster design costs three workloads, against a design of its own for each; how far it is proven."""

from collections.abc import Sequence
from functools import cache

import pandas as pd
from matplotlib.figure import Figure

from codesign import Certificate, Trace, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report import sharing, style
from codesign.report.findings import headline
from codesign.search import Shared

NAME = "workload_mix"
STANDING = "derived"
HARDWARE = {
    "compute": ("peak bf16, TFLOP/s", 1e12), "hbm": ("HBM, GB", 1e9), "scale_up": ("scale-up, GB/s", 1e9),
    "scale_out": ("scale-out, GB/s", 1e9),
}  # fmt: skip


@cache
def found() -> Trace:
    """The mix of the experiment."""
    study = study_from_config(f"experiment={NAME}")
    return study.search.run(study.problem, study.seed)


def proof() -> Certificate:
    """What is proven of it."""
    return found().certificate or Certificate()


def workloads() -> Sequence[Shared]:
    """One entry per workload."""
    return proof().workloads or ()


def claims() -> list[Claim]:
    """The proven gap has a bar of 2 %; what sharing costs is told."""
    told = proof()
    assert told.best is not None
    assert told.bound_of_own_hardware is not None
    gap, loose = told.gap, told.best / told.bound_of_own_hardware - 1
    rows = [
        Claim(NAME, "proven gap of the common design", None, gap, 0.02, STANDING, error=gap),
        Claim(NAME, "gap of the plain bound, each workload on hardware of its own", None, loose, None, STANDING),
    ]
    for entry in workloads():
        name = entry.workload
        rows.append(Claim(NAME, f"{name}: USD per million tokens, common", None, entry.value, None, STANDING))
        rows.append(Claim(NAME, f"{name}: USD per million tokens, own", None, entry.own_best, None, STANDING))
        rows.append(Claim(NAME, f"{name}: what sharing costs", None, entry.costs, None, STANDING))
    return rows


def tables() -> dict[str, pd.DataFrame]:
    """Hardware: the common design beside each workload's own."""
    designs = {"common": workloads()[0].design} | {e.workload: e.own_design for e in workloads()}
    rows = [
        {"design": name} | {label: design[key] / unit for key, (label, unit) in HARDWARE.items()}
        for name, design in designs.items()
    ]
    plans = [{"workload": e.workload} | {k: v for k, v in e.design.items() if k not in HARDWARE} for e in workloads()]
    return {"Hardware": pd.DataFrame(rows), "Plans on the common hardware": pd.DataFrame(plans)}


def figures() -> dict[str, Figure]:
    """Cost of sharing, and the hardware that each would have had."""
    with style():
        figure = sharing(workloads())
        figure.set_figheight(figure.get_figheight() + 0.45)
        costs = {entry.workload: entry.costs or 0.0 for entry in workloads()}
        dear, cheap = max(costs, key=lambda name: costs[name]), min(costs, key=lambda name: costs[name])
        headline(figure, f"Sharing one hardware costs {dear} {costs[dear]:.0%} and {cheap} {costs[cheap]:.1%}: serving "
                 "would have had far less bandwidth between nodes")  # fmt: skip
        return {"Cost of sharing": figure}
