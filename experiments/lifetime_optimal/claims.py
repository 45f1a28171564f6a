"""Train once, serve two years: which of the models that are equally good costs least over its life, by demand."""

import functools
import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from _lib.lifetime_demand import least_flops, tokens_for
from codesign import Solution, solve, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.scaling_laws import DenseLaw
from codesign.model.workloads import TrainingRun
from codesign.report.findings import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    Label,
    beside,
    headline,
    name_ends,
    panels,
    plain_ticks,
)

NAME = "lifetime_optimal"
FLOPS = 5e21  # whose compute-optimal model is as good as is asked for
YEARS = 2
PER_DAY = (0.0, 3e7, 1e8, 3e8, 1e9)  # tokens served, prompts and answers
SHAPES = (
    (2048, 24), (2048, 32), (2560, 28), (2560, 32), (2560, 36), (3072, 32), (3072, 36), (3072, 40), (3584, 36),
    (3584, 40), (4096, 40), (4608, 44),
)  # fmt: skip
MACHINES = ("h100_sxm", "h200", "b200", "mi300x")
USUAL = "h100_sxm"
BASE = (
    "model=llama31_8b",
    "workload.model.vocab=32768",
    "workload.model.attention.kv_heads=4",
)
TTFT_S, TPOT_S = 1.0, 0.03
DAY_S = 86400.0


class Model(NamedTuple):
    """One of the equally good models: parameters, tokens it is trained on, cost of the run, cost of what it serves."""

    hidden: int
    layers: int
    parameters: float
    tokens: float
    train_usd: float
    usd_per_million: float

    def life_usd(self, per_day: float) -> float:
        """Training and two years of service."""
        return self.train_usd + 1e-6 * self.usd_per_million * per_day * 365.25 * YEARS


def shaped(hidden: int, layers: int) -> tuple[str, ...]:
    """Overrides of a shape."""
    return (
        f"workload.model.hidden={hidden}", f"workload.model.layers={layers}",
        f"workload.model.attention.heads={hidden // 128}",
        f"workload.model.feed_forward.width={128 * math.ceil(3.5 * hidden / 128)}",
    )  # fmt: skip


def machine_of(machine: str) -> tuple[str, ...]:
    """Overrides of a machine: a catalogue product with its rooflines, which the proof needs."""
    return (f"accelerator={machine}", f"calibration={machine}_roofline")


@functools.cache
def law() -> DenseLaw:
    """The law of the study."""
    job = study_from_config(
        *machine_of(USUAL), *BASE, "workload=training_run", "scaling_law=besiroglu_shaped"
    ).problem.scenario.workload
    assert isinstance(job, TrainingRun)
    assert isinstance(job.scaling_law, DenseLaw)
    return job.scaling_law


@functools.cache
def wanted() -> float:
    """The loss of the compute-optimal model."""
    return float(law().at(*(float(number) for number in law().optimum(FLOPS))))


@functools.cache
def trained(hidden: int, layers: int, machine: str) -> tuple[float, float, float]:
    """(parameters, tokens, USD) of the cheapest run that reaches the loss within two weeks on a machine."""
    if machine != USUAL and beyond_the_law(hidden, layers):
        return trained(hidden, layers, USUAL)
    solution = cheapest_run(hidden, layers, machine)
    best = solution.best
    if not solution.feasible:  # beyond the range in which the law was fitted
        return float(best["parameters"]), math.nan, math.inf
    return float(best["parameters"]), float(best["run_tokens"]), float(best["usd_to_train"])


@functools.cache
def beyond_the_law(hidden: int, layers: int) -> bool:
    """True if the loss alone is proven out of reach: it is of the model and its tokens, so no machine reaches it."""
    certificate = cheapest_run(hidden, layers, USUAL).certificate
    given = (certificate.infeasible or ()) if certificate else ()
    return any(row.constraint == "loss" and row.alone and (row.factor_at_least or 0) > 1 for row in given)


@functools.cache
def cheapest_run(hidden: int, layers: int, machine: str) -> Solution:
    """The proof behind `trained`."""
    study = study_from_config(
        *machine_of(machine), *BASE, *shaped(hidden, layers), "workload=training_run", "scaling_law=besiroglu_shaped",
        "reliability=llama3", "search=certified",
        "workload.global_batch=512", "plan.tp=1", "plan.pp=1", "plan.virtual_stages=1",
        "space.plan={tp: [1, 2, 4, 8], pp: [1, 2], micro_batch: [1, 2, 4], recompute: [none, selective],"
        " zero: [0, 1, 2], ep: [1], device_count: [64, 128, 256, 512]}",  # these models have no experts to spread
        "+space.hardware.trained_tokens={_target_: codesign.study.design_space.Continuous, path: workload.tokens,"
        " low: 5.0e9, high: 500.0e9}",
        "objective.minimise=usd_to_train", f"objective.limits={{loss: {wanted()}, time_to_train_s: {14 * DAY_S}}}",
    )  # fmt: skip
    return solve(study)


@functools.cache
def served(hidden: int, layers: int, machine: str) -> float:
    """USD per million tokens of the cheapest way to serve it on one node under limits on first and further tokens."""
    study = study_from_config(
        *machine_of(machine), *BASE, *shaped(hidden, layers), "workload=continuous", "plan=serving_node",
        "space=dense_serving_plans", "search=grid", "framework=none",
        "cluster.device_count=8", "plan.tp=1", "plan.pp=1", "objective=cheapest_tokens",
        "space.plan={tp: [1, 2, 4, 8], micro_batch: [8, 16, 32, 64, 128, 256], token_budget: [512, 1024, 2048]}",
        f"objective.limits={{ttft_s: {TTFT_S}, tpot_s: {TPOT_S}}}",
    )  # fmt: skip
    solution = solve(study)
    return float(solution.best["usd_per_million_tokens"]) if solution.feasible else math.inf


@functools.cache
def models() -> tuple[Model, ...]:
    """All that are equally good."""
    return tuple(Model(*shape, *trained(*shape, USUAL), served(*shape, USUAL)) for shape in SHAPES)


def best(per_day: float) -> Model:
    """Cheapest over its life."""
    return min(within(), key=lambda model: model.life_usd(per_day))


class Life(NamedTuple):
    """The cheapest life at a demand: a model, where it is trained and where it is served."""

    model: Model
    trains: str
    serves: str
    usd: float


@functools.cache
def cheapest(per_day: float, machines: tuple[str, ...] = MACHINES) -> Life:
    """Model and machines at once: every shape that reaches the loss, trained and served on any of the machines."""
    lives = []
    for shape in SHAPES:
        if beyond_the_law(*shape):
            continue
        runs = {machine: trained(*shape, machine) for machine in machines}
        costs = {machine: served(*shape, machine) for machine in machines}
        trains, serves = min(runs, key=lambda one: runs[one][2]), min(costs, key=lambda one: costs[one])
        model = Model(*shape, *runs[trains], costs[serves])
        lives.append(Life(model, trains, serves, model.life_usd(per_day)))
    return min(lives, key=lambda life: life.usd)


def by_machine(per_day: float) -> dict[str, Life]:
    """The cheapest life on each machine alone, and with all to choose from."""
    alone = {machine: cheapest(per_day, (machine,)) for machine in MACHINES}
    return alone | {"any of them": cheapest(per_day)}


def moved(model: Model, life: Life, per_day: float) -> float:
    """What a model would cost on the machines of another life, USD."""
    shape = (model.hidden, model.layers)
    there = Model(*shape, *trained(*shape, life.trains), served(*shape, life.serves))
    return there.life_usd(per_day)


def within() -> list[Model]:
    """Those that reach the loss on data of which the law knows."""
    return [model for model in models() if math.isfinite(model.train_usd)]


def factor_of(model: Model) -> float:
    """By which the shape raises what is lost to size; the best one of as many weights in its layers is searched for."""
    one = law().shape
    assert one is not None
    scales, powers = map(float, (one.width_scale, one.depth_scale)), map(float, (one.width_power, one.depth_power))
    (wide, deep), (across, along) = scales, powers
    volume, ratios = model.hidden**2 * model.layers, np.geomspace(5, 500, 20001)
    depths = (volume / ratios**2) ** (1 / 3)
    lost = wide * (ratios * depths) ** -across + deep * depths**-along
    return float((wide * model.hidden**-across + deep * model.layers**-along) / lost.min())


def claims() -> list[Claim]:
    """Tokens are those of the law; demand moves the best model below the compute-optimal one."""
    size = float(law().optimum(FLOPS)[0])
    usual, result = best(0.0), []
    for model in within():
        told = f"tokens to the loss by {model.parameters / 1e9:.2f} B parameters, 1e9"
        tokens = tokens_for(law(), model.parameters, wanted(), factor_of(model))
        result.append(Claim(NAME, told, tokens / 1e9, model.tokens / 1e9, 0.005, "certified"))
    told = "parameters of the cheapest model to train, against the law's optimum by FLOP, 1e9"
    flat = "of the shapes listed; the optimum is flat, and a machine prices more than FLOP"
    result.append(Claim(NAME, told, size / 1e9, usual.parameters / 1e9, 0.35, flat))
    smaller = [best(per_day).parameters for per_day in PER_DAY]
    grown = float(max(np.diff(smaller))) / size
    told = "the best model never grows with demand"
    result.append(Claim(NAME, told, None, grown, 0.0, "predicted", error=max(grown, 0.0)))
    for per_day in PER_DAY:
        lives = by_machine(per_day)
        least = min(lives[machine].usd for machine in MACHINES)
        dearer = lives["any of them"].usd / least - 1
        told = f"model and machines at once over the best machine alone at {per_day:.0e} tokens a day, %"
        result.append(Claim(NAME, told, None, 100 * dearer, 1e-9, "predicted: never dearer", error=max(dearer, 0.0)))
        kept = moved(best(per_day), lives["any of them"], per_day) / lives["any of them"].usd - 1
        told = f"the best model of {USUAL} on the cheapest machines, {per_day:.0e} tokens a day: dearer, %"
        result.append(Claim(NAME, told, None, 100 * kept, None, "note"))
    for per_day in PER_DAY[1:]:
        saved = 1 - best(per_day).life_usd(per_day) / usual.life_usd(per_day)
        paper = least_flops(law(), wanted(), per_day * 365.25 * YEARS).parameters
        told = f"{per_day:.0e} tokens a day for {YEARS} years"
        result += [
            Claim(NAME, f"saved over the model that is cheapest to train, {told}, %", None, 100 * saved, None, "note"),
            Claim(NAME, f"parameters of the cheapest life, {told}, 1e9; against equal cost of every FLOP", paper / 1e9,
                  best(per_day).parameters / 1e9, None, "note: decoding is priced by bytes, not by FLOP"),
        ]  # fmt: skip
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The equally good models, and what each costs over its life."""
    rows = [
        {
            "hidden": model.hidden, "layers": model.layers, "parameters, 1e9": model.parameters / 1e9,
            "tokens, 1e9": model.tokens / 1e9, "training, USD": model.train_usd,
            "USD per million served": model.usd_per_million,
        } | {f"life at {per_day:.0e} a day, USD": model.life_usd(per_day) for per_day in PER_DAY}
        for model in models()
    ]  # fmt: skip
    lives = [
        {
            "tokens a day": per_day, "machine": name, "parameters, 1e9": life.model.parameters / 1e9,
            "hidden": life.model.hidden, "layers": life.model.layers, "tokens, 1e9": life.model.tokens / 1e9,
            "trained on": life.trains, "served on": life.serves, "life, USD": life.usd,
        }
        for per_day in PER_DAY for name, life in by_machine(per_day).items()
    ]  # fmt: skip
    return {"equally good models": pd.DataFrame(rows), "model and machine": pd.DataFrame(lives)}


def figures() -> dict[str, Figure]:
    """Cost of a life over parameters, by demand; the cheapest model of each marked."""
    figure, ((axes,),) = panels(4.4)
    ordered = sorted(within(), key=lambda model: model.parameters)
    sizes, ends = [model.parameters / 1e9 for model in ordered], []
    for per_day, colour in zip(PER_DAY, (GREY, SKY, GREEN, ORANGE, BLUE), strict=True):
        costs = [model.life_usd(per_day) / 1e3 for model in ordered]
        least = int(np.argmin(costs))
        axes.plot(sizes, costs, "-", color=colour)
        axes.plot(sizes, costs, ".", color=colour, markersize=4)
        axes.plot([sizes[least]], [costs[least]], "o", color=colour, markersize=7)
        beside(axes, f"{sizes[least]:.1f} B, ${costs[least]:.3g}k", sizes[least], costs[least], colour, (3, -6))
        told = f"{per_day / 1e6:,.0f} million tokens a day" if per_day else "never served"
        ends.append(Label(sizes[-1], costs[-1], told, colour))
    axes.set(yscale="log", xlabel="parameters, billions", ylabel="training and two years of service, 1,000 USD")
    plain_ticks(axes, "y", (2, 5, 10, 20, 50, 100))
    axes.set_ylim(2.6, 160)
    name_ends(axes, ends)
    usual, most = best(PER_DAY[0]), best(PER_DAY[-1])
    saved = 1 - most.life_usd(PER_DAY[-1]) / usual.life_usd(PER_DAY[-1])
    headline(figure, f"The more a model is served the smaller it should be: {most.parameters / 1e9:.1f} instead of "
             f"{usual.parameters / 1e9:.1f} billion parameters save {saved:.0%} at a billion tokens a day")  # fmt: skip
    return {"cost of a life": figure, "model and machine": machines_figure()}


def machines_figure() -> Figure:
    """Phase diagram: the best model of each machine by demand, and how much dearer its life is than the cheapest."""
    names = (*MACHINES, "any of them")
    lives = [[by_machine(per_day)[name] for per_day in PER_DAY] for name in names]
    costs = np.array([[life.usd for life in row] for row in lives])
    over = costs / costs[-1]
    figure, ((axes,),) = panels(3.2)
    axes.imshow(np.log(over), origin="lower", aspect="auto", cmap="Blues", vmax=1.6)
    for (row, column), ratio in np.ndenumerate(over):
        told = f"{lives[row][column].model.parameters / 1e9:.1f} B, ${costs[row, column] / 1e3:.3g}k"
        axes.annotate(told + (f"\n{ratio:.2f} times" if ratio > 1 else ""), (column, row), ha="center", va="center",
                      fontsize=7.5)  # fmt: skip
    axes.grid(visible=False)
    axes.set_xticks(range(len(PER_DAY)), [f"{per_day / 1e6:,.0f}" for per_day in PER_DAY])
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="million tokens served a day")
    most = cheapest(PER_DAY[-1])
    headline(figure, f"The cheapest machine stays the same over demand, the model does not: at a billion tokens a day "
             f"{most.model.parameters / 1e9:.1f} billion parameters on {most.serves}")  # fmt: skip
    return figure
