"""`codesign verify` of a fleet: its assignment in exact fractions, its question, its options priced anew, other plans.

Classes, kinds, stock, limits and sizes are those of the command that the file states, prices and boxes of a kind are
the model's; what is shown beside the proof is derived again.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..config import study_from_config
from ..core.disk_cache import keep_in
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.json_yaml import dumps
from ..core.untrusted_io import read_json
from ..model.scenario import Scenario
from ..search.assignment import PoolOption, assign
from ..search.results import numbers_of
from ..study.objective import Objective, feasible
from ..verification import Refuted, check_assignment
from .fleet_classes import FLEET_FILE, FleetClass
from .fleet_options import (
    BLOCK,
    ClassOptions,
    KindOptions,
    composed_on,
    device_kind,
    numbers_at_once,
    placed,
    replica_plans,
    sustained_rates,
)
from .mixed_fleet import (
    FleetQuestion,
    MixedFleet,
    costs_alone,
    fleet_question,
    fleet_summary,
    pool_options,
    worth_of_limits,
)
from .rederivation import same
from .setup import prepare_jax
from .terminal import console

Parsed = Callable[[list[str]], argparse.Namespace]
NEVER = (math.inf, math.inf)
SHOWN = 1e-6  # relative, to which numbers that are shown are those derived
ATTACK = 64  # plans of each class on each kind that are tried

SAME_OPTIONS = 1e-9  # relative

FIELDS = (
    "name", "rate", "input", "output", "ttft_s", "tpot_s", "attainment", "cv", "input_cv", "output_cv", "cached",
)  # fmt: skip


def verify_fleet(folder: Path, attack: int | None, seed: int, parsed: Parsed, *, as_json: bool = False) -> int:
    """Check a fleet's folder and print the answer: 0 where nothing that it states is false, 1 where something is.

    Args:
        folder: that `codesign fleet` wrote.
        attack: plans of each class on each kind to try.
        seed: of these.
        parsed: words of a command -> its options.
        as_json: print the answer as JSON.

    Raises:
        ConfigError: a file that cannot be read, or a count that is none.
    """
    count = ATTACK if attack is None else attack
    if not 0 <= count <= BLOCK:
        raise ConfigError(f"--attack {count}: the number of plans to try is from 0 to {BLOCK:,}")
    summary = read_json(folder / FLEET_FILE, f"fleet {str(folder)!r}")
    prepare_jax()
    keep_in(None)  # priced anew, by no program that the search kept
    checks: list[str] = []
    try:
        stated = summary["certificate"]
        checks += check_assignment(stated)
        question, unread = _question(summary, parsed)
        checks += [f"classes, kinds, stock, limits and sizes are those of: {summary['command']}"]
        kinds = _check_options(summary, question, count, seed, checks)
        checks += _check_shown(summary, question, kinds)
        checks += [f"not checked: {', '.join(unread)}"] * bool(unread)
        line, verified = "verified: no fleet of these options is cheaper within the stated gap", True
    except Refuted as error:
        line, verified = f"not verified: {error}", False
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        line, verified = f"not verified: {FLEET_FILE} cannot be read ({type(error).__name__})", False
    if as_json:
        print(dumps({"verified": verified, "answer": line, "checks": checks}, indent=2))
    else:
        out = console()
        for text in checks:
            out.print(f"  {text}", soft_wrap=True)
        out.print(line, soft_wrap=True, markup=False)
    return 0 if verified else 1


def _question(summary: Mapping[str, Any], parsed: Parsed) -> tuple[FleetQuestion, list[str]]:
    """The question of the stated command, and what of it cannot be checked.

    Raises:
        Refuted: classes, kinds, limits or a confidence that the command does not ask for.
    """
    stated = summary["certificate"]
    classes = [FleetClass(**{name: one[name] for name in FIELDS}) for one in summary["classes"]]
    words = shlex.split(summary["command"])
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            options = parsed(words[1:])
        if options.command != "fleet":
            raise Refuted(f"the stated command asks for no fleet: {summary['command']}")
        traced = bool(options.trace)  # a file that the folder's author names is not read
        question = fleet_question(options, classes if traced else ())
    except (ConfigError, SystemExit) as error:
        raise Refuted(f"the stated command asks for no fleet ({error})") from error
    most = {"budget": question.limits.capex_usd, "power": question.limits.watts}
    limits = {name: value for name, value in most.items() if math.isfinite(value)}
    for what, in_file, said in (
        ("classes", [dataclasses.asdict(each) for each in classes], [*map(dataclasses.asdict, question.classes)]),
        ("confidence", summary["confidence"], question.confidence),
        ("certificate.kinds", [kind["name"] for kind in stated["kinds"]], list(question.kinds)),
        ("certificate.rates", stated["rates"], {one.name: one.rate for one in classes}),
        ("certificate.limits", stated["limits"], limits),
    ):  # fmt: skip
        same(FLEET_FILE, in_file, said, what, "asked for")
    if not options.requests and any(float(one["lowered"]) != 1 for one in stated["options"]):
        raise Refuted("rates are lowered, but the stated command replays no requests")
    unread = ["what a trace says of classes"] * traced
    return question, unread + ["the replay, and rates that it lowered"] * bool(options.requests)


def _check_shown(summary: Mapping[str, Any], question: FleetQuestion, kinds: list[KindOptions]) -> list[str]:
    """Pools, sums, prices and what else is shown follow from the certificate.

    Raises:
        Refuted: naming what does not.
    """
    stated = summary["certificate"]
    rates, limits = {one.name: one.rate for one in question.classes}, question.limits
    options = pool_options(kinds)
    best = assign(rates, options, [kind.kind for kind in kinds], limits)
    lowered = {index: float(one["lowered"]) for index, one in enumerate(stated["options"]) if one["lowered"] < 1}
    first = kinds
    if lowered:  # before the replay
        places = itertools.count()
        first = [kind._replace(classes=[
            one._replace(options=[option._replace(rate=option.rate / lowered.get(next(places), 1.0))
                                  for option in one.options])
            for one in kind.classes
        ]) for kind in kinds]  # fmt: skip
        floor = assign(rates, pool_options(first), [kind.kind for kind in kinds], limits).floor
        best = dataclasses.replace(best, known_floor=floor)
    best = dataclasses.replace(
        best, replicas=tuple(stated["replicas"]), bought=tuple(stated["bought"]), owned=tuple(stated["owned"]),
        usd_per_s=float(stated["usd_per_s"]), bound=float(stated["bound"]),
    )  # fmt: skip
    answer = MixedFleet(
        question.classes, kinds, best, costs_alone(rates, first, limits), worth_of_limits(best, kinds), {}, lowered
    )
    again = fleet_summary(answer, [], question.confidence, [])
    left = ("command", "replay", "seconds", "certificate")
    stated_fields, derived_fields = (
        {name: value for name, value in each.items() if name not in left} for each in (summary, again)
    )
    same(FLEET_FILE, stated_fields, derived_fields, close=SHOWN)
    return ["pools, sums, prices and the bound for any other plans follow from the certificate"]


def _check_options(
    summary: Mapping[str, Any], question: FleetQuestion, count: int, seed: int, checks: list[str]
) -> list[KindOptions]:
    """Rates and costs of options and kinds are the model's, and no other plan of a size that is tried serves more.

    Returns:
        Kinds with their options, as they were stated; lines on what was checked are added to `checks`.

    Raises:
        Refuted: naming the option that is not so.
    """
    stated, chance = summary["certificate"], float(summary["confidence"])
    kinds = {kind["name"]: kind for kind in stated["kinds"]}
    rng, tried, worst = np.random.default_rng(seed), 0, 0.0
    result, listed = list[KindOptions](), list[Any]()
    for kind in kinds:
        composed = composed_on(
            kind, [one.attainment for one in question.classes], question.overrides, question.workload, question.sizes
        )
        texts = {str(share): each for share, each in composed.items()}
        same(FLEET_FILE, stated["overrides"][kind], texts, f"certificate.overrides.{kind}", "asked for")
        first = study_from_config(*next(iter(composed.values())))
        derived = device_kind(kind, first, question.owned.get(kind, 0), question.most.get(kind))
        same(FLEET_FILE, kinds[kind], dataclasses.asdict(derived), f"certificate.kinds.{kind}", "the model's")
        classes = list[ClassOptions]()
        for one in sorted(question.classes, key=lambda each: list(composed).index(each.attainment)):
            name, study = one.name, study_from_config(*composed[one.attainment])
            scenario = replace(study.scenario, one.leaves)
            options = [each for each in stated["options"] if (each["kind"], each["request_class"]) == (kind, name)]
            for option in options:
                numbers = numbers_of(placed(scenario, option["plan"]))
                worst = max(worst, _check_option(option, numbers, kinds[kind], chance))
            if chance and options:
                _check_chances(options, scenario, chance)
            plans = study.space.settled(scenario).plans(scenario)
            looked_at = len(replica_plans(plans)["tp"])
            pools = [PoolOption(**{field: each[field] for field in PoolOption._fields}) for each in options]
            classes.append(
                ClassOptions(one, pools, [each["plan"] for each in options], scenario, looked_at, 0, 0, NEVER)
            )
            listed += options
            places = rng.choice(len(plans["tp"]), min(count, len(plans["tp"])), replace=False)
            rows = [{field: float(values[index]) for field, values in plans.items()} for index in places]
            tried += _try_plans(rows, options, study.objective, scenario, f"{name} on {kind}", chance)
        result.append(KindOptions(derived, classes, composed))
    if listed != stated["options"]:
        raise Refuted("options are of other classes or kinds, or in another order")
    lines = [
        f"{len(stated['options'])} options priced anew: rates and electricity agree within {max(worst, 1e-12):.0e}"
    ]
    more = "with a confidence, only the fastest at the centre were compared" if chance else "none serves more"
    checks += [*lines, f"{tried} other plans tried: {more} than the option of its size" if not chance else more]
    return result


def _try_plans(
    rows: list[dict[str, float]],
    options: Sequence[Mapping[str, Any]],
    objective: Objective,
    scenario: Scenario,
    what: str,
    chance: float,
) -> int:
    """Price some other plans of a class on a kind, and count them.

    Raises:
        Refuted: one of them serves more than the option of its size.
    """
    dense = [row for row in rows if row.get("ep", 1) > 1 or row["tp"] * row["pp"] == row["device_count"]]
    if not dense:
        return 0
    excess, rate = numbers_at_once(
        [placed(scenario, row) for row in dense],
        lambda account: [objective.excess(account.metrics), account.metrics.extra["requests_per_s"]],
    )
    best = {each["devices"]: float(each["rate"]) / float(each["lowered"]) for each in options}
    for row, over, good in zip(dense, excess, rate, strict=True):
        size = round(row["device_count"])
        if not chance and feasible(over) and good > best.get(size, 0.0) * (1 + SAME_OPTIONS):
            raise Refuted(
                f"{what}: a plan of {size} devices serves {good:.6g} requests/s, the option of that size"
                f" {best.get(size, 0.0):.6g}"
            )
    return len(dense)


def _check_chances(options: Sequence[Mapping[str, Any]], scenario: Scenario, chance: float) -> None:
    """Rates of a class's options on a kind are those kept in the stated share of the draws.

    Raises:
        Refuted: naming the option whose rate is another one.
    """
    plans = [dict[str, float](option["plan"]) for option in options]
    centre = np.asarray([numbers_of(placed(scenario, plan))["requests_per_s"] for plan in plans])
    for option, rate in zip(options, sustained_rates(scenario, plans, centre, chance), strict=True):
        if abs(float(option["rate"]) - rate * float(option["lowered"])) > SAME_OPTIONS * float(option["rate"]):
            raise Refuted(
                f"{option['request_class']} on {option['kind']}, {option['devices']} devices: {option['rate']:.9g}"
                f" requests/s are stated, the draws say {rate * float(option['lowered']):.9g} in {chance:.0%} of them"
            )


def _check_option(
    option: Mapping[str, Any], numbers: Mapping[str, float], kind: Mapping[str, Any], chance: float
) -> float:
    """Relative difference of an option's numbers.

    Raises:
        Refuted: it is more than rounding.
    """
    what = f"{option['request_class']} on {option['kind']}, {option['devices']} devices"
    rate, stated = numbers["requests_per_s"] * float(option["lowered"]), float(option["rate"])
    if not 0 < float(option["lowered"]) <= 1:
        raise Refuted(f"{what}: a replay lowers a rate to a share of it, not to {option['lowered']}")
    if (stated > rate * (1 + SAME_OPTIONS)) if chance else abs(stated / rate - 1) > SAME_OPTIONS:
        raise Refuted(f"{what}: {stated:.9g} requests/s are stated, the model says {rate:.9g}")
    usd = numbers["usd_per_million_tokens"] * numbers["tokens_per_s"] / 1e6
    devices = float(option["devices"])
    usd_per_s = float(option["usd_per_s"]) + devices * float(kind["held_usd_per_s"])
    if abs(usd_per_s / usd - 1) > SAME_OPTIONS:
        raise Refuted(f"{what}: {usd_per_s:.9g} dollars a second are stated, the model says {usd:.9g}")
    if abs(float(kind["capex_usd"]) * devices / numbers["capex_usd"] - 1) > SAME_OPTIONS:
        raise Refuted(f"{what}: the capital of a device is not the model's")
    return max(abs(usd_per_s / usd - 1), 0.0 if chance else abs(stated / rate - 1))
