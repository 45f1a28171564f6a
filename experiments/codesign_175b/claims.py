"""The fastest GPT-3 175B step for a budget: certified answer, what binds, next-best designs, a sweep of the budget."""

import functools
import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Certificate, Certified, Problem, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report import phase_diagram
from codesign.search import GoalQuantity
from codesign.search.branch_and_bound import (
    Bounding,
    BranchAndBound,
    Oracle,
    Outcome,
    Programme,
    SearchEffort,
    check_convexity,
    polish,
    rows_of,
)
from codesign.study import shown

NAME = "codesign_175b"
BUDGETS = (0.65, 0.8, 1.0, 1.25, 1.6, 2.0, 2.6)  # of both capex and power, relative to the study's
EFFORT = SearchEffort(gap=math.log1p(2e-3), seconds=300.0)  # of one budget of the sweep
STEP = 1e-3  # log by which a constraint is moved
RECORD = ("tp", "pp", "virtual_stages", "micro_batch", "recompute", "zero", "offload_activations", "offload_optimizer")
UNITS = {"compute": 1e12, "hbm_capacity": 1e9, "hbm_bandwidth": 1e12, "scale_up_bandwidth": 1e9,
         "scale_out_bandwidth": 1e9, "ddr_capacity": 1e9}  # fmt: skip
LABELS = {"compute": "TFLOP/s", "hbm_capacity": "HBM, GB", "hbm_bandwidth": "HBM, TB/s",
          "scale_up_bandwidth": "scale-up, GB/s", "scale_out_bandwidth": "scale-out, GB/s",
          "ddr_capacity": "DDR, GB"}  # fmt: skip


@functools.cache
def problem() -> Problem:
    """The study `experiment=codesign_175b`."""
    return study_from_config(f"experiment={NAME}").problem


@functools.cache
def oracle() -> Oracle:
    """Its rows, compiled once for all questions."""
    return Oracle(problem(), rows_of(problem()))


@functools.cache
def solved() -> tuple[Certificate, Outcome]:
    """Certificate of the study, and what is known of its plans."""
    search = Certified()
    verdict = check_convexity(oracle(), 0)
    outcome = BranchAndBound(Programme(oracle()), search.effort, 0).run()
    wanted = GoalQuantity(problem().objective.goal)
    return search.traced(oracle(), wanted, verdict, outcome, 0).certificate or Certificate(), outcome


def alone(plan: int, allowed: dict[str, float]) -> float:
    """Log of one plan's optimum under moved constraints, from nothing but the model."""
    bounding = Bounding(Programme(oracle(), allowed=allowed), 1e-8)
    bounding.learn(np.array([plan]), np.full((1, bounding.width), 0.5), 50.0)
    polish(bounding, plan, 1e-8, rounds=60)
    return 0.5 * (bounding.upper + float(bounding.lower[plan]))


def claims() -> list[Claim]:
    """The answer with its proof, and the elasticities held against solving the plan again."""
    certificate, outcome = solved()
    standing = "certified" if certificate.certified else f"not certified: {certificate.reason}"
    result = [
        Claim(NAME, f"fastest step over {oracle().count:,} plans and six numbers of hardware, s", None,
              certificate.best, 1e-3, standing, error=certificate.gap),
    ]  # fmt: skip
    plan = outcome.bounding.plan
    middle = alone(plan, {})
    for row in certificate.constraints or ():
        if row.used < 0.999:
            continue
        name = row.constraint
        for side, sign in (("fewer", -1), ("more", 1)):
            again = sign * (alone(plan, {name: sign * STEP}) - middle) / STEP
            told = getattr(row, f"elasticity_{side}")
            words = f"d log time / d log {name}, {'taken away' if sign < 0 else 'added'}; against solving again"
            result.append(Claim(NAME, words, None, told, 1e-4, "derived", error=abs(again - told)))
    return result


@functools.cache
def sweep() -> tuple[tuple[float, Outcome], ...]:
    """The study at other budgets."""
    result = []
    for share in BUDGETS:
        allowed = {"capex_usd": math.log(share), "provisioned_power_w": math.log(share)}
        result.append((share, BranchAndBound(Programme(oracle(), allowed=allowed), EFFORT, 0).run()))
    return tuple(result)


def design(bounding: Bounding, plan: int, u: np.ndarray) -> dict[str, object]:
    """Plan and hardware of a design, in the units of `LABELS`."""
    point = oracle().point(plan, u)
    words = {name: shown(name, point[name]) for name in RECORD if name in point}
    return words | {LABELS[name]: float(f"{point[name] / unit:.3g}") for name, unit in UNITS.items()}


def tables() -> dict[str, pd.DataFrame]:
    """What binds, the next-best designs, the sweep."""
    certificate, outcome = solved()
    bounding = outcome.bounding
    binding = pd.DataFrame(certificate.constraints or ())[
        ["constraint", "used", "elasticity_fewer", "elasticity_more", "tenth_more", "changes_plan"]
    ]
    best = bounding.incumbent.ranked(8)
    rivals = [
        {"time_s": math.exp(log), "bound_s": math.exp(min(bounding.lower[p], log))} | design(bounding, p, u)
        for p, (log, u) in ((p, bounding.feasible[p]) for p in best)
    ]
    swept = [
        {"budget": share, "time_s": math.exp(o.upper), "bound_s": math.exp(o.lower)}
        | design(o.bounding, o.bounding.plan, o.bounding.u)
        for share, o in sweep()
    ]
    return {
        "What binds and what a tenth more brings": binding,
        "Best designs with distinct plans": pd.DataFrame(rivals),
        "Sweep of the budget": pd.DataFrame(swept),
    }


def figures() -> dict[str, Figure]:
    """How step time, plan and hardware change with the budget."""
    frame = tables()["Sweep of the budget"]
    rows = [name for name in [*RECORD, *LABELS.values()] if name in frame]
    first, last = frame.iloc[0], frame.iloc[-1]
    gap = float((frame["time_s"] / frame["bound_s"] - 1).max())
    figure = phase_diagram(
        [f"{share:g}" for share in frame["budget"]], frame["time_s"], frame[rows],
        along="capex and power, relative to 55 M USD and 1.4 MW", label="step, s", bound=frame["bound_s"],
        found=f"{last['budget'] / first['budget']:.0f} times the budget makes the step "
        f"{first['time_s'] / last['time_s']:.1f} times as fast: it buys arithmetic and bandwidth in step, and "
        f"activations stay where they are made (each within {gap:.1%} of what is possible)",
    )  # fmt: skip
    return {"How the best design changes with the budget": figure}
