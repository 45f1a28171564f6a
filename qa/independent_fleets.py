"""Plans and fleets drawn at random, priced by plain evaluation, against the bounds of `codesign fleet`.

Of every class on every kind plans are drawn from the rules alone and priced: one of listed values that keeps the limits
and serves more than the option of its size refutes "the plan of each size that serves most". With a confidence the
rates are those kept in that share of 400 draws of the model's errors, of the fastest plans and of some others; not all
are priced in draws and the answer says so, so that only a size without an option is refuted. Then
fleets are drawn: replicas of any options, as many as each class needs, moved one by one between options; one that
costs less than the bound refutes it.

    codesign fleet llama31_8b --on h200,b200 --class chat:rate=20/s,... && python qa/independent_fleets.py runs/*_fleet
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from independent_plans import BLOCK, Attacked

from codesign import evaluate, prepare_jax, replace
from codesign import study_from_config as composed
from codesign.commands import mixed_fleet
from codesign.jaxprs import interpreted
from codesign.study import feasible
from codesign.uncertainty import under_draws

FILE = "fleet.json"
DRAWS, AT_ONCE, TRIED = 400, 8, 48
SAME = 1e-4  # relative, of a rate: a root's rounding
FIELDS = [field.name for field in dataclasses.fields(mixed_fleet.FleetClass)]


def rates_of(study: Any, plans: dict[str, np.ndarray], chance: float, rng: Any) -> np.ndarray:
    """Requests/s of plans that keep every limit, 0 of others; with a chance of some plans, the others none."""
    space = study.space

    def priced(point: Any) -> Any:
        metrics = evaluate(space.place(study.scenario, point))
        return study.objective.excess(metrics), metrics.extra["requests_per_s"]

    price, size, parts = interpreted(jax.vmap(priced), always=True), len(plans["tp"]), []
    for first in range(0, size, BLOCK):
        at = np.minimum(np.arange(first, first + min(BLOCK, size)), size - 1)
        excess, rate = (np.asarray(each, float) for each in price({name: column[at] for name, column in plans.items()}))
        parts.append(np.where(np.asarray(feasible(excess)), rate, 0.0)[: size - first])
    centre = np.nan_to_num(np.concatenate(parts))
    if not chance:
        return centre
    some, result = list[int](), np.zeros(size)
    for count in np.unique(plans["device_count"]):
        own = np.flatnonzero((plans["device_count"] == count) & (centre > 0))
        own = own[np.argsort(-centre[own])]
        some += [*own[: TRIED // 2], *rng.permutation(own[TRIED // 2 :])[: TRIED // 2]]

    def asked(account: Any) -> dict[str, Any]:
        metrics = account.metrics
        return {"over": study.objective.excess(metrics), "rate": metrics.extra["requests_per_s"]}

    for first in range(0, len(some), AT_ONCE):
        places = some[first : first + AT_ONCE]
        scenarios = [space.place(study.scenario, {n: float(c[at]) for n, c in plans.items()}) for at in places]
        told = under_draws(scenarios, asked, DRAWS)
        drawn = np.where(np.asarray(feasible(told["over"])), np.nan_to_num(told["rate"]), 0.0)
        result[places] = np.minimum(centre[places], np.quantile(drawn, 1 - chance, axis=-1, method="lower"))
    return result


def better_plans(told: Mapping[str, Any], count: int, rng: Any) -> tuple[int, int, list[str]]:
    """Plans drawn, those that keep the limits, and lines on options that a drawn plan of their size beats."""
    stated, chance = told["certificate"], float(told["confidence"])
    drawn, kept, lines = 0, 0, list[str]()
    for kind in told["kinds"]:
        for one in told["classes"]:
            name = one["name"]
            asked = mixed_fleet.FleetClass(**{field: one[field] for field in FIELDS})
            study = composed(*stated["overrides"][kind["name"]][str(asked.attainment)])
            scenario = replace(study.scenario, asked.leaves)
            made = Attacked(dataclasses.replace(study, scenario=scenario), rng)
            plans = made.drawn(count)
            dense = made.inside(plans)
            dense &= (plans["tp"] * plans["pp"] == plans["device_count"]) | (plans.get("ep", np.ones(1)) > 1)
            plans = {field: column[dense] for field, column in plans.items()}
            if not len(plans["tp"]):
                continue
            rate = rates_of(made.study, plans, chance, rng)
            drawn, kept = drawn + len(rate), kept + int((rate > 0).sum())
            for size in np.unique(plans["device_count"]):
                most = float(np.where(plans["device_count"] == size, rate, 0.0).max())
                own = [
                    float(each["rate"]) / float(each["lowered"]) for each in stated["options"]
                    if (each["kind"], each["request_class"], each["devices"]) == (kind["name"], name, size)
                ]  # fmt: skip
                if most > max(own, default=0.0) * (1 + SAME) and not (chance and own):
                    at = int(np.argmax(np.where(plans["device_count"] == size, rate, 0.0)))
                    plan = {field: float(column[at]) for field, column in plans.items()}
                    lines.append(
                        f"{name} on {kind['name']}: {plan} serves {most:.6g}/s, the option {max(own, default=0):.6g}/s"
                    )
    return drawn, kept, lines


def cost(stated: Mapping[str, Any], counts: Sequence[int]) -> float:
    """Dollars a second of replicas, in the fewest boxes, owned ones first where they cost less; inf where none fit."""
    total = sum(n * float(one["usd_per_s"]) for n, one in zip(counts, stated["options"], strict=True))
    capital, watts = 0.0, 0.0
    for kind in stated["kinds"]:
        used = sum(n * one["devices"] for n, one in zip(counts, stated["options"], strict=True)
                   if one["kind"] == kind["name"])  # fmt: skip
        boxes = math.ceil(used / kind["box"])
        owned = min(boxes, kind["owned_boxes"])
        if kind["most_boxes"] is not None and boxes - owned > kind["most_boxes"]:
            return math.inf
        total += kind["box"] * (owned * kind["owned_usd_per_s"] + (boxes - owned) * kind["held_usd_per_s"])
        capital += (boxes - owned) * kind["box"] * kind["capex_usd"]
        watts += boxes * kind["box"] * kind["watts"]
    limits = stated["limits"]
    within = capital <= limits.get("budget", math.inf) and watts <= limits.get("power", math.inf)
    return total if within else math.inf


def cheapest_fleet(stated: Mapping[str, Any], count: int, rng: Any) -> tuple[int, float]:
    """Fleets tried that serve every class, and the least cost among them."""
    options, rates = stated["options"], stated["rates"]
    serves = {name: [at for at, one in enumerate(options) if one["request_class"] == name] for name in rates}

    def filled(counts: list[int]) -> list[int]:
        for name, own in serves.items():
            while sum(counts[at] * options[at]["rate"] for at in own) < rates[name] * (1 - 1e-12):
                left = rates[name] - sum(counts[at] * options[at]["rate"] for at in own)
                enough = [at for at in own if options[at]["rate"] >= left]
                counts[int(rng.choice(enough if enough and rng.uniform() < 0.7 else own))] += 1
        return counts

    best, least, tried = filled([0] * len(options)), math.inf, 0
    while tried < count:
        tried += 1
        fresh = list(best) if tried % 50 else [0] * len(options)
        for at in rng.permutation(np.flatnonzero(fresh))[: rng.integers(1, 4)]:
            fresh[at] = max(0, fresh[at] - int(rng.integers(1, 3)))
        fresh = filled(fresh)
        value = cost(stated, fresh)
        if value <= least:
            best, least = fresh, value
    return tried, least


def main() -> int:
    """Attack fleets; 1 where an option or a bound is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=4_000, help="plans drawn for each class on each kind")
    parser.add_argument("--fleets", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    prepare_jax()
    wrong = 0
    for run in given.runs:
        told, rng = json.loads((run / FILE).read_text()), np.random.default_rng(given.seed)
        stated = told["certificate"]
        drawn, kept, lines = better_plans(told, given.count, rng)
        fleets, least = cheapest_fleet(stated, given.fleets, rng)
        false = least < stated["bound"] * (1 - 1e-9)
        wrong += false or bool(lines)
        print(
            f"{'FALSE' if false or lines else 'holds'}: {run}: ${stated['usd_per_s']:.6g}/s, bound"
            f" {stated['bound']:.6g}; {drawn:,} plans drawn, {kept:,} keep the limits, {len(lines)} sizes beaten;"
            f" {fleets:,} fleets, the cheapest {least:.6g}",
            flush=True,
        )
        for line in lines:
            print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
