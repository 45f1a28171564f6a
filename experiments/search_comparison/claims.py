"""The certified search against black-box searches at equal wall time, and its fronts against NSGA-II's."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _lib.comparison import CERTIFIED, compare, proven
from codesign import Blackbox, Objective, Pareto, Problem, prepare_jax, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREY, ORANGE, headline, panels, plain_ticks
from codesign.search import Nsga2
from codesign.search.blackbox import Box, Evaluator, Trial, rows_with
from codesign.search.branch_and_bound import GOAL
from codesign.search.front import hypervolume

NAME = "search_comparison"
STUDY = "train_gpt3_175b"
SECONDS = 3.0  # of each black-box search
SEEDS = (0, 1, 2)
FRONT, LEVELS = ("time_s", "capex_usd"), 6
GAP, FRONT_GAP, VOLUME = 1e-3, 5e-3, 1.05  # what was asked: proven gap, gap of each design of a front, hypervolume
SIX_SECONDS = 5.0  # of each black-box search on the six instances
MEASURED = Path(__file__).parent / "six_instances.csv"
MEASURED_FRONTS = {
    "two metrics": Path(__file__).parent / "six_fronts.csv",
    "three metrics": Path(__file__).parent / "six_fronts_of_three.csv",
}
MEASURED_MIX = Path(__file__).parent / "mix_seeds.csv"
FASTER = 30.0  # times sooner than differential evolution, asked of the mix
LABELS = {
    CERTIFIED: "certified", "differential evolution": "DE", "cma-es": "CMA-ES", "nsga-ii": "NSGA-II",
    "optuna tpe": "TPE", "random": "random",
}  # fmt: skip


@functools.cache
def problem() -> Problem:
    """The fastest step of the study under its budgets."""
    prepare_jax()
    study = study_from_config(f"experiment={STUDY}")
    return dataclasses.replace(study.problem, objective=Objective("time_s", limits=study.objective.limits))


@functools.cache
def runs() -> pd.DataFrame:
    """One row a search and seed."""
    return pd.DataFrame(compare(problem(), SECONDS, SEEDS))


@functools.cache
def bound() -> float:
    """What no design of the study can beat."""
    return float(np.exp(proven(problem(), 0, GAP).outcome.lower))


@functools.cache
def fronts() -> dict[str, Any]:
    """The certified front and, in the wall time it took, NSGA-II's: every design it priced, not its last population.

    Hypervolumes are of logs, up to a tenth of each range beyond the worst of the certified front; `ratio` is to the
    median seed's.
    """
    trace = Pareto(FRONT, levels=LEVELS).run(problem(), 0)
    result = trace.certificate.front
    points = result.points
    asked = problem()
    evaluator = Evaluator(Box(asked), rows_with(asked, FRONT[1:]), (GOAL, *FRONT[1:]))
    theirs = []
    for seed in SEEDS:
        trial = Trial(evaluator, trace.seconds["pareto"], math.inf)
        Blackbox(Nsga2()).ask(trial, seed)
        theirs.append(np.exp([point[0] for point in trial.front]))
    ours = np.array([[row.values[name] for name in FRONT] for row in points])
    reference = np.log([result.reference[name] for name in FRONT])
    volumes = [hypervolume(np.log(front), reference) for front in theirs]
    worst = max(row.gap if row.certified else math.inf for row in points)
    return {
        "ours": ours, "theirs": theirs[0], "ratio": result.hypervolume / float(np.median(volumes)),
        "share": result.hypervolume / result.hypervolume_at_most,
        "their_share": float(np.median(volumes)) / result.hypervolume_at_most, "worst_gap": worst,
    }  # fmt: skip


def six_fronts(measured: Path) -> pd.DataFrame:
    """Fronts of the six instances as `benchmarks/peers.py --front` measured them, one line an instance."""
    frame = pd.read_csv(measured)
    rows = []
    for (name, front), part in frame.groupby(["instance", "front"], sort=False):
        own, peer = part[part["method"] == "certified"].iloc[0], part[part["method"] != "certified"]
        rows.append(
            {"instance": name, "front": front, "designs": int(own["designs"]),
             "largest gap [%]": 100 * own["worst_gap"], "seconds": own["seconds"],
             "CPU s": own["cpu_s"], "share of the bound": own["share"], "NSGA-II, seeds": len(peer),
             "its CPU s, median": peer["cpu_s"].median(),
             "its share, worst": peer["share"].min(), "its share, best": peer["share"].max()}
            | {f"ratio, {kind}": getattr(peer["ratio"], kind)() for kind in ("min", "median", "max")}
            | {f"ratio to 10 % beyond, {kind}": getattr(peer["ratio_far"], kind)() for kind in ("min", "median", "max")}
        )  # fmt: skip
    return pd.DataFrame(rows)


def volume_claims(kind: str, measured: pd.DataFrame) -> list[Claim]:
    """Hypervolumes of the six instances against NSGA-II's, and against what the proof says any front can have.

    Where NSGA-II has more than 1 / 1.05 of that, no front can have 1.05 of NSGA-II's.
    """
    peer = measured[measured["method"] != "certified"]
    ratio, room = float(peer["ratio"].median()), peer["share"] <= 1 / VOLUME
    text = f"named instances, {kind}: hypervolume over NSGA-II's at equal CPU time"
    rows = [
        Claim(NAME, f"{text}, median of {len(peer)} runs, at least", VOLUME, ratio, 0.0, "measured",
              max(0.0, VOLUME / ratio - 1)),
        Claim(NAME, f"named instances, {kind}: share of runs in which the proof leaves room for that", None,
              float(room.mean()), None, "measured"),
    ]  # fmt: skip
    if room.any():
        least = float(peer["ratio"][room].min())
        text = f"{text}, least of the {int(room.sum())} runs in which the proof leaves room for it, at least"
        rows.append(Claim(NAME, text, VOLUME, least, 0.0, "measured", max(0.0, VOLUME / least - 1)))
    return rows


def claims() -> list[Claim]:
    """What was asked of the searches."""
    frame, front = runs(), fronts()
    best = frame.groupby("method")["best"].min()
    own = frame[frame["method"] == CERTIFIED]
    beaten = max(0.0, float(bound() / best.min() - 1))
    rows = [
        Claim(NAME, "certified: largest proven gap", 0.0, float(own["proven_gap"].max()), GAP * 1.001, "derived",
              float(own["proven_gap"].max())),
        Claim(NAME, "certified: no search found a design below its bound (excess)", 0.0, beaten, 1e-9, "derived",
              beaten),
        Claim(NAME, "front: largest gap of its designs", 0.0, front["worst_gap"], FRONT_GAP * 1.001, "derived",
              front["worst_gap"]),
        Claim(NAME, "front: hypervolume over NSGA-II's at equal time, at least", VOLUME, front["ratio"], 0.0,
              "derived", max(0.0, VOLUME / front["ratio"] - 1)),
        Claim(NAME, "front: hypervolume over the bound of any front's", None, front["share"], None, "derived"),
        Claim(NAME, "front: NSGA-II's hypervolume over that bound", None, front["their_share"], None, "derived"),
    ]  # fmt: skip
    for kind, measured in MEASURED_FRONTS.items():
        if measured.is_file():
            rows += volume_claims(kind, pd.read_csv(measured))
    for method, part in frame[frame["method"] != CERTIFIED].groupby("method", sort=False):
        text = f"{LABELS[str(method)]} after {SECONDS:g} s: median gap over {len(part)} seeds"
        rows.append(Claim(NAME, text, 0.0, float(part["gap"].median()), None, "derived", float(part["gap"].median())))
    text = "mix of workloads, 60 dimensions and more: time of DE to the same quality over ours"
    if MEASURED_MIX.is_file():
        seeds = pd.read_csv(MEASURED_MIX)
        ratio, text = float(seeds["ratio_cpu"].min()), f"{text}, least of {len(seeds)} seeds, at least"
        rows.append(Claim(NAME, text, FASTER, ratio, 0.0, "measured", max(0.0, FASTER / ratio - 1)))
    else:
        rows.append(Claim(NAME, text, FASTER, None, 0.0, "not determined: benchmarks/mix.py measures it"))
    return rows


def summary(frame: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """One line a search. What the black-box searches had is `seconds`; the certified one goes on to its proof."""
    frame = frame.assign(soon=frame["seconds_to_hit"] <= seconds)
    parts = frame.groupby("method", sort=False)
    table = pd.DataFrame(
        {"search": [LABELS.get(str(name), str(name)) for name in parts.groups], "runs": parts.size().to_numpy(),
         "median gap [%]": 100 * parts["gap"].median().to_numpy(),
         "worst gap [%]": 100 * parts["gap"].max().to_numpy(),
         f"share within 1 % after {seconds:g} s": parts["soon"].mean().to_numpy(),
         "median s to 1 % where hit": parts["seconds_to_hit"].median().to_numpy(),
         "median s": parts["seconds"].median().to_numpy(), "median points": parts["points"].median().to_numpy()}
    )  # fmt: skip
    return table.sort_values("median gap [%]", kind="stable")


def tables() -> dict[str, pd.DataFrame]:
    """This study, and the six named instances as `benchmarks/peers.py` measured them."""
    result = {f"{STUDY}, each search {SECONDS:g} s": summary(runs(), SECONDS)}
    if MEASURED.is_file():
        frame = pd.read_csv(MEASURED)
        result["Six instances, measured once"] = summary(frame, SIX_SECONDS)
        result["Six instances, run by run"] = frame
    for kind, measured in MEASURED_FRONTS.items():
        if measured.is_file():
            result[f"Fronts of the named instances, {kind}, measured once"] = six_fronts(measured)
    return result


def figures() -> dict[str, Any]:
    """Hypervolume of NSGA-II's fronts, and distances of all runs on the six instances."""
    figure, ((left, right),) = panels(3.6, 1, 2)
    told = "not measured"
    if MEASURED_FRONTS["two metrics"].is_file():
        told = _volumes(left, pd.read_csv(MEASURED_FRONTS["two metrics"]))
    frame = pd.read_csv(MEASURED) if MEASURED.is_file() else runs()
    table = summary(frame, SIX_SECONDS)
    for index, name in enumerate(table["search"]):
        part = frame[[LABELS.get(str(method), str(method)) == name for method in frame["method"]]]
        gaps = 100 * part["gap"].clip(lower=1e-4)
        colour = BLUE if name == LABELS[CERTIFIED] else ORANGE
        right.plot(gaps, [index] * len(gaps), "o", color=colour, alpha=0.6, markersize=5, markeredgewidth=0)
        near = int((part["gap"] <= 0.01).sum())
        right.annotate(f"{near} of {len(part)}", (1, index), (1.02, index), xycoords=("axes fraction", "data"),
                       textcoords=("axes fraction", "data"), va="center", fontsize=7.5, color=colour)  # fmt: skip
    right.annotate("within 1 %", (1.0, 1.0), (1.0, 1.02), textcoords="axes fraction", fontsize=7, color=GREY)
    right.axvline(1.0, color="0.4", linewidth=1, linestyle="--")
    right.set_yticks(range(len(table)), list(table["search"]))
    right.set(xscale="log", xlabel="distance from the certified optimum, %", ylim=(len(table) - 0.5, -0.5))
    plain_ticks(right, "x", (0.01, 0.1, 1, 10, 100), ("0.01", "0.1", "1", "10", "100"))
    right.set_title("every run of the six instances")
    right.grid(axis="y", visible=False)
    headline(
        figure, f"Only the proven search is near the optimum in every run, and only it knows; NSGA-II's fronts {told}"
    )
    return {"Fronts and distances": figure}


def _volumes(axes: Any, measured: pd.DataFrame) -> str:
    """Ratio of hypervolumes of every run, and up to where any front's could be."""
    peer = measured[measured["method"] != "certified"]
    names = list(dict.fromkeys(peer["instance"]))
    for index, name in enumerate(names):
        part = peer[peer["instance"] == name]
        axes.plot(part["ratio"], [index] * len(part), "o", color=ORANGE, alpha=0.7, markersize=5, markeredgewidth=0)
        for room in 1 / part["share"][part["share"] > 0]:
            axes.plot([room, room], [index - 0.3, index + 0.3], color=GREY, linewidth=1)
    axes.axvline(1.0, color="0.4", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set(xscale="log", ylim=(len(names) - 0.5, -0.5), xlabel="certified front's hypervolume over NSGA-II's")
    plain_ticks(axes, "x", (1, 1.2, 1.5, 2))
    axes.set_title("fronts; grey: what no front exceeds")
    axes.grid(axis="y", visible=False)
    few = int((peer["ratio"] > VOLUME).sum())
    worst = peer["ratio"][np.isfinite(peer["ratio"])].max()
    return f"are smaller by more than 5 % in {few} of {len(peer)} runs, by a factor of {worst:.1f} and more at worst"
