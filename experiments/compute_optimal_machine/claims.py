"""The best model and machine for a budget: the law's own optimum found again; what choosing both at once is worth."""

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import pandas as pd
from matplotlib.figure import Figure

from codesign import Certified, Problem, Solution, Study, solve, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.scaling_laws import BitWidths, DenseLaw, TrainedModel
from codesign.model.workloads import TrainingRun
from codesign.report.findings import BLUE, GREY, ORANGE, Label, headline, name_ends, panels, plain_ticks

NAME = "compute_optimal_machine"
BUDGETS = (1e3, 3e3, 1e4)  # USD
COMPUTE = {1e20: (512, 2560), 1e21: (1024, 4096), 5.76e23: (6144, 10240)}  # FLOP -> least and largest hidden size
CHINCHILLA = 5.76e23  # of Gopher and Chinchilla
SHAPE = ("hidden", "layers")
MACHINE = ("compute", "hbm", "scale_out_bandwidth")
LAYOUT = ("tp", "pp", "micro_batch", "recompute", "zero", "device_count")
FIXED = tuple(f"~space.hardware.{name}" for name in MACHINE)
ONES = (jnp.asarray(1.0), jnp.asarray(1.0))  # a dense model's expansion and granularity
MFU = 0.4  # that who sizes a model before there is a machine expects of it


class Found(NamedTuple):
    """A design and its certificate in short."""

    loss: float
    reducible: float
    gap: float
    row: pd.Series


def _found(solution: Solution) -> Found:
    best = solution.best
    gap = solution.gap if solution.certified and solution.gap is not None else math.nan
    return Found(float(best["loss"]), float(best["loss_reducible"]), gap, best)


@functools.cache
def law() -> DenseLaw:
    """The law of the study."""
    job = study_from_config(f"experiment={NAME}").problem.scenario.workload
    assert isinstance(job, TrainingRun)
    assert isinstance(job.scaling_law, DenseLaw)
    return job.scaling_law


@functools.cache
def given_flops(flops: float) -> Found:
    """The best shape and tokens for 6 N D = flops on the machine as it is: nothing but arithmetic is limited."""
    low, high = COMPUTE[flops]
    step, far = (128, 0) if flops < CHINCHILLA else (256, 1)
    hidden, layers = list(range(low, high + 1, step)), list(range(8, 121, 4) if far else range(6, 61, 2))
    study = study_from_config(
        f"experiment={NAME}", "scaling_law=besiroglu", "workload.model.attention.kv_heads=1",
        "plan.tp=8", "plan.zero=3",
        f"plan.device_count={1024 if far else 64}", f"workload.scaling_law.extrapolate={far}",
        *(f"~space.plan.{name}" for name in LAYOUT), f"space.plan.hidden={hidden}", f"space.plan.layers={layers}",
        *FIXED,
        f"space.hardware.trained_tokens.high={5e12 if far else 5e11}", "space.hardware.trained_tokens.low=1e9",
        "~objective.limits.usd_to_train", "~objective.limits.time_to_train_s",
        f"+objective.limits={{6 * parameters * run_tokens: {flops}}}",
    )  # fmt: skip
    return _found(solve(study, Certified(gap=1e-6)))


def study(budget: float, *overrides: str) -> Study:
    """The study at a budget."""
    return study_from_config(
        f"experiment={NAME}", f"objective.limits.usd_to_train={budget}", "search.gap=1e-5", *overrides
    )


@functools.cache
def joint(budget: float) -> Found:
    """Shape, tokens, machine and plan at once."""
    return _found(solve(study(budget)))


@functools.cache
def model_first(budget: float) -> Found:
    """The shape is the law's optimum for what the money buys on the H100; then machine, plan and tokens."""
    reference = _found(solve(study(budget, *FIXED)))  # what a dollar buys on the machine as it is
    flops = MFU / float(reference.row["mfu"]) * float(reference.row["run_flops"])
    shapes = study(budget).problem.space.plan
    losses = {
        (hidden, layers): loss_of(hidden, layers, flops) for hidden in shapes["hidden"] for layers in shapes["layers"]
    }
    hidden, layers = min(losses, key=lambda shape: losses[shape])
    return _found(solve(study(budget, f"space.plan.hidden=[{hidden}]", f"space.plan.layers=[{layers}]")))


@functools.cache
def machine_first(budget: float) -> Found:
    """The machine, its size too, is the best for the model of the configuration; then shape, plan and tokens."""
    # 32 layers of 4,096 are wider than the shapes that were trained, and one shape needs no correction
    best = solve(study(budget, "scaling_law=besiroglu", "~space.plan.hidden", "~space.plan.layers")).best
    problem = study(budget, f"space.plan.device_count=[{best['var.device_count']:g}]").problem
    kept = {name: value for name, value in problem.space.hardware.items() if name not in MACHINE}
    point = {name: float(best[f"var.{name}"]) for name in MACHINE}
    machine = problem.space.place(problem.scenario, point)
    held = replace(problem, scenario=machine, space=replace(problem.space, hardware=kept))
    return _found(solve(held, Certified(gap=1e-5)))


@functools.cache
def smallest() -> Problem:
    """The problem at the smallest budget."""
    return study(BUDGETS[0]).problem


@functools.cache
def parameters_of(hidden: float, layers: float) -> float:
    """Weights of a shape."""
    scenario = smallest().scenario
    plan = replace(scenario.plan, hidden=jnp.asarray(float(hidden)), layers=jnp.asarray(float(layers)))
    return float(plan.shaped(scenario.workload.model).parameters())


def loss_of(hidden: float, layers: float, flops: float) -> float:
    """By the law, of a shape that so many FLOP = 6 N D train; infinite outside its range."""
    one, parameters = law(), jnp.asarray(parameters_of(hidden, layers))
    shape = {"width": jnp.asarray(float(hidden)), "depth": jnp.asarray(float(layers))}
    model = TrainedModel(parameters, parameters, parameters, flops / 6 / parameters, *ONES, BitWidths(), **shape)
    return float(one.loss(model)) if float(one.beyond(model)) <= 1 else math.inf


def money_worth(budget: float, reducible: float) -> float:
    """By how much less money the joint design reaches a loss: along the certified losses of the budgets, log-linear."""
    low, high = joint(BUDGETS[0]), joint(BUDGETS[-1])
    slope = math.log(high.reducible / low.reducible) / math.log(BUDGETS[-1] / BUDGETS[0])
    return 1 - math.exp(math.log(joint(budget).reducible / reducible) / -slope)


def claims() -> list[Claim]:
    """The law's optimum by search; both at once against one after the other."""
    result = []
    for flops in COMPUTE:
        parameters, tokens = (float(number) for number in law().optimum(flops))
        ours, loss = given_flops(flops), float(law().at(parameters, tokens))
        told = f"of 6 N D = {flops:.3g}, against the authors' formula"
        result += [
            Claim(NAME, f"lowest loss {told}", loss, ours.loss, 0.02, "certified; constants published"),
            Claim(
                NAME, f"parameters {told}", parameters, float(ours.row["parameters"]), 0.02, "certified; listed shapes"
            ),
            Claim(NAME, f"tokens {told}", tokens, float(ours.row["run_tokens"]), 0.02, "certified; listed shapes"),
        ]
    for budget in BUDGETS:
        both = joint(budget)
        told = f"loss for {budget:,.0f} USD, gap of what is above the text's entropy"
        result.append(Claim(NAME, told, None, both.loss, 1e-3, "certified", error=both.gap))
        for name, other in (
            ("model, then machine", model_first(budget)),
            ("machine, then model", machine_first(budget)),
        ):
            worse = other.reducible / both.reducible - 1
            result.append(Claim(NAME, f"{name} for {budget:,.0f} USD: more loss above the text's entropy, %", None,
                               100 * worse, 0.0, "both certified", error=max(-worse - both.gap, 0.0)))  # fmt: skip
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The designs of every budget, chosen at once and one after the other."""
    rows = []
    for budget in BUDGETS:
        ways = {"at once": joint, "model, then machine": model_first, "machine, then model": machine_first}
        for name, way in ways.items():
            design = way(budget)
            row = design.row
            rows.append({
                "budget, USD": budget, "chosen": name, "loss": design.loss, "above entropy": design.reducible,
                "gap": design.gap, "parameters, 1e9": row["parameters"] / 1e9, "tokens, 1e9": row["run_tokens"] / 1e9,
                "hidden": row.get("var.hidden", math.nan),
                "layers": row.get("var.layers", math.nan),
                "devices": row["var.device_count"], "mfu": row["mfu"], "goodput": row["goodput"],
                "days": row["time_to_train_s"] / 86400,
                "worth, % of the money": 100 * money_worth(budget, design.reducible),
                **{name: row[f"var.{name}"] for name in MACHINE if f"var.{name}" in row},
            })  # fmt: skip
    return {"designs": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """What choosing one after the other costs, in money, and what the proofs leave open."""
    table = tables()["designs"]
    figure, ((axes,),) = panels(2.9)
    ends, worst = [], {}
    open_ = [100 * money_worth(budget, joint(budget).reducible * (1 + 2 * joint(budget).gap)) for budget in BUDGETS]
    axes.fill_between(BUDGETS, 0, open_, color=GREY, alpha=0.3, linewidth=0)
    for (name, part), colour in zip(table.groupby("chosen", sort=False), (GREY, ORANGE, BLUE), strict=True):
        if name == "at once":
            continue
        lost = part["worth, % of the money"].to_numpy()
        axes.plot(part["budget, USD"], lost, "o-", color=colour)
        for budget, value in zip(part["budget, USD"], lost, strict=True):
            axes.annotate(f"{value:.1f} %", (budget, value), (0, 5), textcoords="offset points", ha="center",
                          fontsize=7.5, color=colour)  # fmt: skip
        ends.append(Label(BUDGETS[-1], float(lost[-1]), str(name), colour))
        worst[name] = lost
    ends.append(Label(BUDGETS[-1], open_[-1], "within the gaps of the proofs", GREY))
    axes.set(xscale="log", xlabel="budget, USD", ylabel="worth, % of the money", ylim=(-0.4, None))
    plain_ticks(axes, "x", BUDGETS, [f"{budget:,.0f}" for budget in BUDGETS])
    axes.margins(y=0.15)
    name_ends(axes, ends)
    model = worst["model, then machine"]
    headline(figure, f"Choosing the model before the machine wastes {model.min():.0f} to {model.max():.0f} % of the "
             "money; choosing the machine first hardly any")  # fmt: skip
    return {"loss over money": figure}
