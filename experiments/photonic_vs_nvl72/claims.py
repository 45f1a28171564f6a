"""What photonic circuits must offer to beat NVL72 at equal cost and power: one number at a time, with a proof."""

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Continuous, DesignSpace, Objective, Problem, evaluate, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.jaxprs import quick_jit
from codesign.report.findings import BLUE, ORANGE, headline, panels, plain_ticks
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

NAME = "photonic_vs_nvl72"
SEED, GAP = 0, 1e-3
FABRIC = "cluster.network.scale_up.fabric"
TARGETS = ("time_s", "capex_usd", "provisioned_power_w", "joules_per_token")


@dataclass(frozen=True)
class Number:
    """One number of the photonic fabric: where it lies, its box, and how it is written."""

    path: str
    low: float
    high: float
    text: str
    unit: float
    along: tuple[str, ...] = ()


NUMBERS = {
    "bandwidth": Number(f"{FABRIC}.bandwidth_bytes_per_s", 50e9, 8e12, "GB/s per GPU and direction", 1e9),
    "energy": Number(
        f"{FABRIC}.energy_j_per_byte", 8e-14, 8e-9, "pJ/bit (transmission; laser in proportion)", 8e-12,
        (f"{FABRIC}.static_w_per_bytes_per_s",),
    ),
    "reconfiguration": Number(f"{FABRIC}.reconfiguration_s", 1e-8, 1e-2, "us to set a circuit", 1e-6),
    "price": Number(f"{FABRIC}.usd_per_bytes_per_s", 1e-11, 1e-6, "USD per GB/s of a port", 1e-9),
}  # fmt: skip
WORDS = {
    "bandwidth": "rate, GB/s a GPU", "energy": "energy, pJ/bit", "reconfiguration": "set-up, us",
    "price": "price, USD per GB/s",
}  # fmt: skip
WORSE = ("energy", "reconfiguration", "price")  # the larger, the worse: held at least at what the fabric has


@functools.cache
def nvl72() -> dict[str, float]:
    """The fastest plan on NVL72 with reduction in the switch: what it does, costs and draws."""
    study = study_from_config(f"experiment={NAME}", "fabric=nvl72", "collective=nvls")
    space = DesignSpace(study.space.plan)
    plans = {name: jnp.asarray(column) for name, column in space.plans(study.scenario).items()}

    def one(tree, point):
        metrics = evaluate(space.place(tree, point))
        usage = functools.reduce(jnp.maximum, metrics.usage.values())
        return {name: metrics.get(name) for name in TARGETS} | {"usage": usage} | point

    priced = quick_jit(jax.vmap(one, in_axes=(None, 0)))(study.scenario, plans)
    frame = pd.DataFrame({name: np.asarray(column) for name, column in priced.items()})
    return frame[frame["usage"] <= 1].sort_values("time_s", kind="stable").iloc[0].to_dict()


@functools.cache
def oracle() -> tuple[Oracle, dict[str, float], Verdict]:
    """Plans on photonic circuits under NVL72's time, cost, power and energy; the fabric's own numbers; convexity."""
    study = study_from_config(f"experiment={NAME}")
    best, fabric = nvl72(), study.scenario.cluster.network["scale_up"].fabric
    own = {name: float(getattr(fabric, number.path.rpartition(".")[2])) for name, number in NUMBERS.items()}
    hardware = {name: Continuous(n.path, n.low, n.high, tied=n.along) for name, n in NUMBERS.items()}
    objective = Objective("time_s", limits={name: best[name] for name in TARGETS})
    problem = Problem(study.scenario, DesignSpace(study.space.plan, hardware), objective)
    rows = rows_of(problem)

    def with_numbers(metrics, values):
        result = rows(metrics, values) | {"least bandwidth": jnp.log(values["bandwidth"])}
        for name in WORSE:
            result |= {
                f"most {name}": -jnp.log(values[name]),
                f"hold {name}": math.log(own[name]) - jnp.log(values[name]),
            }
        return result

    made = Oracle(problem, with_numbers, block=128)
    return made, own, check_convexity(made, SEED, 256)


def solve(wanted: str, **at_least: float) -> Outcome:
    """The extreme value of one number; the others at least as bad as the fabric's own, or as given here."""
    made, own, _ = oracle()
    goal = f"{'least' if wanted == 'bandwidth' else 'most'} {wanted}"
    limits = [name for name in made.names if name.startswith("usage.") or name in TARGETS]
    held = [name for name in WORSE if name != wanted]
    allowed = {f"hold {name}": math.log(own[name] / at_least[name]) for name in held if name in at_least}
    programme = Programme(made, goal, (*limits, *(f"hold {name}" for name in held)), allowed)
    return BranchAndBound(programme, SearchEffort(gap=GAP, seconds=120.0), SEED).run()


def value(wanted: str, log: float) -> float:
    """A number in its written unit from the log that was minimised."""
    return math.exp(log if wanted == "bandwidth" else -log) / NUMBERS[wanted].unit


@functools.cache
def answers() -> dict[str, Outcome]:
    """One search for each number."""
    return {name: solve(name) for name in NUMBERS}


def standing(outcome: Outcome) -> str:
    """How much is proven."""
    verdict = oracle()[2]
    if not verdict.convex:
        return f"derived: heuristic solution, no certificate ({verdict.reason})"
    if outcome.stopped:
        return f"derived: best found, {outcome.stopped}"
    if not math.isfinite(outcome.upper):
        return "derived: certified that no plan and no value achieves it"
    return f"derived: certified within {math.expm1(outcome.gap):.1g}"


def claims() -> list[Claim]:
    """NVL72's figures, then the extreme value of each photonic number that is as good."""
    best, own = nvl72(), oracle()[1]
    result = [
        Claim(NAME, f"NVL72, best plan: {name}", None, best[name], None, "derived: exhaustive over the plans")
        for name in TARGETS
    ]
    for name, outcome in answers().items():
        word = "least" if name == "bandwidth" else "most"
        found = value(name, outcome.upper) if math.isfinite(outcome.upper) else None
        text = f"{word} {NUMBERS[name].text} with which circuits are as fast, cheap and frugal as NVL72"
        text += f" (the fabric as published: {own[name] / NUMBERS[name].unit:.4g})"
        sound = math.isfinite(outcome.upper) and oracle()[2].convex
        gap = math.expm1(outcome.gap) if sound else None
        result.append(Claim(NAME, text, None, found, GAP if sound else None, standing(outcome), error=gap))
    return result


def _row(name: str, outcome: Outcome) -> dict:
    made = oracle()[0]
    result = math.isfinite(outcome.upper)
    row = {"wanted": name, "found": value(name, outcome.upper) if result else None}
    row |= {"bound": value(name, outcome.lower) if math.isfinite(outcome.lower) else None}
    if result:
        point = made.point(outcome.bounding.plan, outcome.bounding.u)
        row |= {key: point[key] for key in ("tp", "pp", "virtual_stages", "micro_batch", "recompute")}
        row |= {key: point[key] / number.unit for key, number in NUMBERS.items()}
        exact = made.tangents(np.array([outcome.bounding.plan]), outcome.bounding.u[None], 1e6).exact[0]
        used = {key: math.exp(exact[made.names.index(key)]) for key in TARGETS}
        row |= {"active_constraints": ", ".join(key for key, share in used.items() if share > 0.999)}
    return row


def tables() -> dict[str, pd.DataFrame]:
    """The design behind each answer."""
    return {"Designs at the answers": pd.DataFrame([_row(name, outcome) for name, outcome in answers().items()])}


def figures() -> dict[str, Figure]:
    """What each number of the circuits must or may be, over what it is; the others at least as they are."""
    figure, ((axes,),) = panels(2.5)
    own, places = oracle()[1], []
    for index, (name, outcome) in enumerate(answers().items()):
        if not math.isfinite(outcome.upper):
            continue
        number = NUMBERS[name]
        result, now, better = value(name, outcome.upper), own[name] / number.unit, name == "bandwidth"
        ratio, colour = result / now, ORANGE if better else BLUE
        axes.plot([1, ratio], [index, index], color=colour, linewidth=5, solid_capstyle="butt", alpha=0.45)
        axes.plot([ratio], [index], "o", color=colour, markersize=5)
        verb = "must be" if better else "may be"
        text = f"{verb} {result:.3g}, is {now:.3g}"
        axes.annotate(text, (ratio, index), (7, 0), textcoords="offset points", va="center", fontsize=8, color=colour)
        places.append((index, WORDS[name]))
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set(xscale="log", xlabel="over the fabric as published or assumed (1)", ylim=(len(places) - 0.5, -0.5))
    plain_ticks(axes, "x", (1, 2, 5, 10, 20))
    axes.set_xlim(0.9, 60)
    axes.set_yticks(*zip(*places, strict=True))
    axes.grid(axis="y", visible=False)
    proven = "each proven to 0.1 %" if oracle()[2].convex else "not proven"
    rate = value("bandwidth", answers()["bandwidth"].upper) / (own["bandwidth"] / NUMBERS["bandwidth"].unit)
    headline(figure, f"Circuits are as good as NVL72 only at {rate:.1f} times their rate; energy and set-up time have "
             f"room to spare, price hardly any ({proven})")  # fmt: skip
    return {"Least rate of the circuits": figure}
