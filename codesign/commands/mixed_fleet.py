"""`codesign fleet`: which class of requests runs on which kind of accelerator, with which plan, on how many replicas.

Every legal plan is priced for every class on every kind, then a mixed-integer programme chooses replicas and boxes; see
`search.assignment` for what is proven. Classes do not share a replica.
"""

import argparse
import dataclasses
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..core.json_yaml import dumps
from ..core.units import engineering
from ..report.drawing import render
from ..report.fleet_figures import fleet_mix_figure
from ..search.assignment import MOST_NODES, AssignedFleet, AssignmentLimits, PoolOption, assign
from .fleet_classes import (
    FLEET_FILE,
    ChosenPool,
    FleetClass,
    ReplayedPool,
    classes_of,
    replay,
    said_classes,
    sustained_load,
)
from .fleet_options import ClassOptions, KindOptions, options_on, placed, slopes
from .left_files import new_folder
from .plain_values import accelerators, count_of, number
from .questions import serving_base, share_of
from .setup import prepare_jax
from .terminal import console, plan_text, text_table
from .what_to_buy import MONTH_S, money, power

__all__ = [
    "FLEET_FILE", "FleetClass", "FleetQuestion", "KindOptions", "MixedFleet", "ReplayedPool", "classes_of", "confirmed",
    "costs_alone", "fleet", "fleet_question", "fleet_summary", "mixed_fleet", "options_on", "pool_options",
    "worth_of_limits",
]  # fmt: skip


SHOWN = ("tp", "pp", "ep", "etp", "attention_dp", "micro_batch", "token_budget")
MS, POINT = 1e-3, 0.01
WORTH = ("ttft_s", "tpot_s", "cached")


class MixedFleet(NamedTuple):
    """The answer: classes, kinds with their options, the fleet, what each kind costs alone, what limits are worth.

    alone: kind -> dollars/s, none where it cannot serve all; worth: (class, number of `WORTH`) -> dollars/s that one
    unit more of it saves; seconds: of pricing and of assigning; lowered: option -> share of its rate by the closed form
    that it keeps its limits at in a replay, where that is below 1.
    """

    classes: list[FleetClass]
    kinds: list[KindOptions]
    fleet: AssignedFleet
    alone: dict[str, float | None]
    worth: dict[tuple[str, str], float]
    seconds: dict[str, float]
    lowered: Mapping[int, float] = MappingProxyType({})

    @property
    def options(self) -> list[tuple[KindOptions, ClassOptions, dict[str, float]]]:
        """(kind, class, plan) of each option of the fleet, in its order."""
        return _listed(self.kinds)

    def pools(self) -> list[ChosenPool]:
        """Pools of the fleet, each with its part of its class's requests."""
        best, options = self.fleet, self.options
        served = {one.name: 0.0 for one in self.classes}
        for index, count in best.pools():
            served[best.options[index].request_class] += count * best.options[index].rate
        result: list[ChosenPool] = []
        for index, count in best.pools():
            kind, one, plan = options[index]
            carries = one.request_class.rate * count * best.options[index].rate / served[one.request_class.name]
            result.append(ChosenPool(one.request_class, kind.kind.name, placed(one.scenario, plan), count, carries))
        return result


def _listed(kinds: Sequence[KindOptions]) -> list[tuple[KindOptions, ClassOptions, dict[str, float]]]:
    return [(kind, one, plan) for kind in kinds for one in kind.classes for plan in one.plans]


def pool_options(kinds: Sequence[KindOptions]) -> list[PoolOption]:
    """Options of all kinds and classes, in the order of the fleet's."""
    return [option for kind in kinds for one in kind.classes for option in one.options]


def fleet(options: argparse.Namespace, words: Sequence[str], root: Path | str = "runs") -> int:
    """Answer `codesign fleet`.

    Args:
        options: of the command line.
        words: of the command line, as they stand in the folder.
        root: folder of run folders.

    Raises:
        ConfigError: classes or counts that are none, an SLO that no plan keeps, or no fleet within the limits.
    """
    question = fleet_question(options)
    classes, kinds, limits, confidence = question.classes, question.kinds, question.limits, question.confidence
    if options.requests and options.requests < LEAST_REPLAYED:
        raise ConfigError(f"--requests {options.requests}: at least {LEAST_REPLAYED} of each class, or none")
    prepare_jax()
    out = console(stderr=options.json)
    what = f"{len(classes)} classes of requests" if len(classes) > 1 else "requests"
    out.print(f"asked    least cost of serving {what} by {escape(options.model)} on {', '.join(kinds)}")
    for index, one in enumerate(classes):
        out.print(f"{'' if index else 'classes':8s} {one.name}: {one.text()}", soft_wrap=True)
    answer = mixed_fleet(
        classes,
        kinds,
        question.overrides,
        question.workload,
        question.owned,
        question.most,
        limits,
        question.sizes,
        confidence,
    )
    replayed: list[ReplayedPool] = []
    if options.requests:
        answer, replayed = confirmed(answer, limits, options.requests, options.seed)
    summary = fleet_summary(answer, replayed, confidence, words)
    folder = new_folder(Path(root), "fleet")
    write_files({
        folder / FLEET_FILE: dumps(summary, indent=2),
        folder / "fleet.png": render(fleet_mix_figure(summary)),
    })  # fmt: skip
    if options.json:
        print(dumps(summary, indent=2))
    else:
        _show(summary, folder)
    return 0


class FleetQuestion(NamedTuple):
    """Question of a command line: classes, kinds, overrides of each study, devices owned and for sale by kind."""

    classes: list[FleetClass]
    kinds: tuple[str, ...]
    overrides: list[str]
    workload: str
    owned: dict[str, int]
    most: dict[str, int]
    limits: AssignmentLimits
    sizes: list[int]
    confidence: float


def fleet_question(options: argparse.Namespace, classes: Sequence[FleetClass] = ()) -> FleetQuestion:
    """The question of `codesign fleet`.

    Args:
        options: of the command line.
        classes: those that it is about, where a trace of which it speaks is not to be read.

    Raises:
        ConfigError: classes or counts that are none.
    """
    fleet_classes = list(classes) or classes_of(said_classes(options), options.trace)
    kinds = accelerators(options.on)
    owned, most = (_counts(getattr(options, name), f"--{name}", kinds) for name in ("own", "most"))
    limits = AssignmentLimits(
        math.inf if options.budget is None else number(options.budget, "$", "--budget", "$5M"),
        math.inf if options.power is None else number(options.power, "W", "--power", "2MW or 500kW"),
    )
    sizes = (
        [] if options.devices is None else [round(count_of(text, "--devices")) for text in options.devices.split(",")]
    )
    suffix, overrides = serving_base(options)
    return FleetQuestion(
        fleet_classes, tuple(kinds), overrides, f"goodput{suffix}", owned, most, limits, sizes, share_of(options)
    )


LEAST_REPLAYED = 500
ROUNDS = 6  # of assigning again
TINY = 1e-3  # share of a rate that stands for none


def _counts(texts: Sequence[str], option: str, kinds: Sequence[str]) -> dict[str, int]:
    """Kind -> devices of `--own KIND=N`.

    Raises:
        ConfigError: no count, or a kind that is not among those to choose from.
    """
    result: dict[str, int] = {}
    for text in texts:
        name, sign, count = text.partition("=")
        if not sign:
            raise ConfigError(f"{option} {text!r}: write {option} {kinds[0]}=64")
        kind = accelerators(name)[0]
        if kind not in kinds:
            raise ConfigError(f"{option} {text}: {kind} is not among --on {','.join(kinds)}")
        much = 0.0 if count.strip() == "0" else count_of(count, f"{option} {name}")
        if much != round(much):
            raise ConfigError(f"{option} {text}: {much:g} is no whole number of devices")
        result[kind] = round(much)
    return result


def mixed_fleet(
    classes: Sequence[FleetClass], kinds: Sequence[str], overrides: Sequence[str], workload: str = "goodput",
    owned: dict[str, int] | None = None, most: dict[str, int] | None = None, limits: AssignmentLimits | None = None,
    sizes: Sequence[int] = (), confidence: float = 0.0,
) -> MixedFleet:  # fmt: skip
    """The cheapest fleet of these classes on these kinds.

    Args:
        classes: of requests.
        kinds: accelerators.
        overrides: of the configuration, such as `model=llama31_8b`.
        workload: `goodput` or one of its formats.
        owned: kind -> devices that are there already, at what running them costs.
        most: kind -> devices that can be bought.
        limits: of budget and power.
        sizes: devices of a replica.
        confidence: share of the draws of the model's errors in which a replica keeps its SLO at its rate.

    Raises:
        ConfigError: an SLO that no plan keeps, or no fleet within the limits.
    """
    begun = time.perf_counter()
    result = [
        options_on(
            kind, classes, overrides, workload, sizes=sizes, owned=(owned or {}).get(kind, 0),
            most=None if most is None else most.get(kind), confidence=confidence,
        )
        for kind in kinds
    ]  # fmt: skip
    priced = time.perf_counter()
    for one in classes:
        _check_served(one, result, confidence)
    rates = {one.name: one.rate for one in classes}
    best = assign(rates, pool_options(result), [kind.kind for kind in result], limits)
    alone = costs_alone(rates, result, limits)
    worth = worth_of_limits(best, result)
    seconds = {"pricing": priced - begun, "assignment": time.perf_counter() - priced}
    return MixedFleet(list(classes), result, best, alone, worth, seconds)


def confirmed(
    answer: MixedFleet, limits: AssignmentLimits, requests: int, seed: int
) -> tuple[MixedFleet, list[ReplayedPool]]:
    """The cheapest fleet whose pools all keep their limits in a replay, and that replay.

    A replica that does not is good for the largest load at which it does, and the fleet is assigned again; sizes that
    are not used stay at what the closed form says, so that nothing is ruled out that was not replayed.

    Args:
        answer: the fleet by the closed form alone.
        limits: of budget and power.
        requests: of each pool, at least.
        seed: of the replay.

    Raises:
        ConfigError: no fleet is left within the limits.
    """
    rates, first = {one.name: one.rate for one in answer.classes}, pool_options(answer.kinds)
    lowered = dict[int, float]()  # option -> share of its rate by the closed form
    replays: dict[tuple[int, int, float], ReplayedPool] = {}
    kinds, most_nodes = [kind.kind for kind in answer.kinds], MOST_NODES
    for turn in range(ROUNDS + 1):
        pools = [
            (option_index, pool) for (option_index, _), pool in zip(answer.fleet.pools(), answer.pools(), strict=True)
        ]
        for option_index, pool in pools:
            key = (option_index, pool.replicas, pool.rate)
            if key not in replays:
                replays[key] = replay([pool], requests, seed)[0]
        result = [replays[option_index, pool.replicas, pool.rate] for option_index, pool in pools]
        late = [each for each, one in zip(pools, result, strict=True) if not one.meets]
        if (not late or turn == ROUNDS) and most_nodes == MOST_NODES:
            return answer._replace(
                worth=worth_of_limits(answer.fleet, answer.kinds) if lowered else answer.worth
            ), result
        for option_index, pool in late:
            share = sustained_load(pool, requests, seed)
            lowered[option_index] = max(share, TINY) * pool.rate / pool.replicas / first[option_index].rate
        options = [one._replace(rate=lowered.get(index, 1.0) * one.rate) for index, one in enumerate(first)]
        most_nodes = 1 if late and turn < ROUNDS - 1 else MOST_NODES  # proven once all keep their limits
        best = assign(rates, options, kinds, limits, most_nodes)
        best = dataclasses.replace(best, known_floor=answer.fleet.floor)  # slower plans were not replayed
        answer = answer._replace(fleet=best, lowered=dict(lowered))
    raise AssertionError


def costs_alone(
    rates: dict[str, float], kinds: Sequence[KindOptions], limits: AssignmentLimits | None
) -> dict[str, float | None]:
    """Kind -> dollars a second of all classes on it alone; none where it cannot serve them."""
    return {kind.kind.name: _alone(rates, kind, limits) for kind in kinds}


def _alone(rates: dict[str, float], kind: KindOptions, limits: AssignmentLimits | None) -> float | None:
    if any(not one.options for one in kind.classes):
        return None
    try:
        return assign(rates, pool_options([kind]), [kind.kind], limits, most_nodes=1).usd_per_s
    except ConfigError:
        return None


def _check_served(one: FleetClass, kinds: Sequence[KindOptions], confidence: float) -> None:
    """Refuse a class whose SLO no plan keeps: by how much, and what would help.

    Raises:
        ConfigError: in one line.
    """
    of_class = [(kind.kind, each) for kind in kinds for each in kind.classes if each.request_class == one]
    if any(each.options for _, each in of_class):
        return
    names = ", ".join(kind.name for kind, _ in of_class)
    if not any(each.fits for _, each in of_class):
        raise ConfigError(
            f"class {one.name}: no plan fits into the memory of {names} at these sizes of a replica: more devices"
            " (--devices 16,32), a smaller number format (--format fp8) or larger devices"
        )
    if confidence and any(each.within_limits for _, each in of_class):
        raise ConfigError(
            f"class {one.name}: no plan keeps its limits at any rate in {confidence:.0%} of the draws on {names}:"
            " allow more time, or a lower --confidence"
        )
    kind, best = min(of_class, key=lambda pair: max(pair[1].alone))
    share = f"p{100 * one.attainment:.0f}"
    limit, used = ("ttft", best.alone[0]) if best.alone[0] >= best.alone[1] else ("tpot", best.alone[1])
    bound = one.ttft_s if limit == "ttft" else one.tpot_s
    helps = "shorter prompts" if limit == "ttft" else "faster memory"
    raise ConfigError(
        f"class {one.name}: {limit}_{share} = {bound:.4g} s is {1 - 1 / used:.1%} below {bound * used:.4g} s, the"
        f" least of any plan on {names} (a request that is alone on {kind.name}): allow {bound * used * 1.01:.4g} s, or"
        f" take {helps} or more devices a replica"
    )


def worth_of_limits(best: AssignedFleet, kinds: Sequence[KindOptions]) -> dict[tuple[str, str], float]:
    """(class, number of `WORTH`) -> dollars/s that one unit more of it saves, at the prices of the linear programme.

    Each replica serves slope requests/s more; a request/s is worth the price of its class.
    """
    result: dict[tuple[str, str], float] = {}
    for index, (_, one, plan) in enumerate(_listed(kinds)):
        count, name = best.relaxed[index], one.request_class.name
        if count <= 1e-9:
            continue
        for limit in WORTH:
            more = count * slopes(one, plan, limit) * best.prices["class", name]
            result[name, limit] = result.get((name, limit), 0.0) + more
    return result


def fleet_summary(
    answer: MixedFleet, replayed: Sequence[ReplayedPool], confidence: float, words: Sequence[str]
) -> dict[str, Any]:
    """The answer as numbers: what is printed, and what a verification needs."""
    best, options = answer.fleet, answer.options
    month = MONTH_S
    pools: list[dict[str, Any]] = []
    for (index, count), chosen in zip(best.pools(), answer.pools(), strict=True):
        option, plan = best.options[index], options[index][2]
        pools.append({
            "class": option.request_class, "kind": option.kind, "replicas": count, "devices": count * option.devices,
            "devices_per_replica": option.devices, "plan": plan, "requests_per_s_per_replica": option.rate,
            "requests_per_s": chosen.rate,
        })  # fmt: skip
    kinds: list[dict[str, Any]] = []
    for index, kind in enumerate(best.kinds):
        used = sum(pool["devices"] for pool in pools if pool["kind"] == kind.name)
        boxes = best.bought[index] + best.owned[index]
        on_kind = [(count, best.options[at]) for at, count in best.pools() if best.options[at].kind == kind.name]
        usd = kind.box * (best.bought[index] * kind.held_usd_per_s + best.owned[index] * kind.owned_usd_per_s)
        usd += sum(count * option.usd_per_s for count, option in on_kind)
        kinds.append(dataclasses.asdict(kind) | {
            "bought": best.bought[index] * kind.box, "owned_used": best.owned[index] * kind.box, "used": used,
            "spare": boxes * kind.box - used, "usd_per_month": usd * month,
            "capex": best.bought[index] * kind.box * kind.capex_usd, "provisioned_w": boxes * kind.box * kind.watts,
            "alone_usd_per_month": None if (alone := answer.alone[kind.name]) is None else alone * month,
            "owned_device_worth_usd_per_month": max(0.0, best.box_worth[kind.name] / kind.box * month),
        })  # fmt: skip
    classes = [
        dataclasses.asdict(one) | {
            "text": one.text(),
            "usd_per_month_of_a_request_per_s": best.prices["class", one.name] * month,
            "usd_per_month_of_a_ms_ttft": answer.worth.get((one.name, "ttft_s"), 0.0) * MS * month,
            "usd_per_month_of_a_ms_tpot": answer.worth.get((one.name, "tpot_s"), 0.0) * MS * month,
            "usd_per_month_of_a_point_cached": answer.worth.get((one.name, "cached"), 0.0) * POINT * month,
        }
        for one in answer.classes
    ]  # fmt: skip
    return {
        "command": shlex.join(["codesign", *words]), "classes": classes, "kinds": kinds, "pools": pools,
        "usd_per_month": best.usd_per_s * month, "bound_usd_per_month": best.bound * month,
        "floor_usd_per_month": best.floor * month, "relaxed_usd_per_month": best.relaxed_usd_per_s * month,
        "gap": best.gap, "confidence": confidence,
        "plans": sum(one.looked_at for kind in answer.kinds for one in kind.classes),
        "prices": {
            "budget_usd": best.prices.get(("budget", "")), "power_usd_per_month_per_w": _monthly(best, "power"),
        },
        "replay": [each.summary() for each in replayed],
        "certificate": _certificate(answer), "seconds": answer.seconds,
    }  # fmt: skip


def _monthly(best: AssignedFleet, row: str) -> float | None:
    price = best.prices.get((row, ""))
    return None if price is None else price * MONTH_S


def _certificate(answer: MixedFleet) -> dict[str, Any]:
    """Options, kinds, solution and tree of the assignment, in dollars a second."""
    best = answer.fleet
    limits = {sort: -float(best.program.sides[row]) for row, (sort, _) in enumerate(best.program.row_names)
              if sort in ("budget", "power")}  # fmt: skip
    return {
        "rates": {one.name: one.rate for one in answer.classes},
        "options": [
            option._asdict() | {"plan": plan, "lowered": float(answer.lowered.get(index, 1.0))}
            for index, (option, (_, _, plan)) in enumerate(zip(best.options, answer.options, strict=True))
        ],
        "kinds": [dataclasses.asdict(kind) for kind in best.kinds], "limits": limits,
        "replicas": list(best.replicas), "bought": list(best.bought), "owned": list(best.owned),
        "usd_per_s": best.usd_per_s, "bound": best.bound, "nodes": [list(node) for node in best.nodes],
        "overrides": {
            kind.kind.name: {str(share): texts for share, texts in kind.overrides.items()} for kind in answer.kinds
        },
    }  # fmt: skip


def replica_plan(plan: Mapping[str, float]) -> str:
    """The plan of a replica on one line, without what goes without saying."""
    return plan_text({f"var.{name}": plan[name] for name in SHOWN if name in plan})


def _show(summary: dict[str, Any], folder: Path) -> None:
    """Tables of pools, devices and prices, then the answer, its proof and what the replay says."""
    out = console()
    for table in _tables(summary):
        out.print(table)
    _show_replay(summary)
    for line in (*_answer_lines(summary), *_proof_lines(summary), *_replay_lines(summary)):
        out.print(line, soft_wrap=True)
    took = summary["seconds"]
    out.print(f"{'':8s} {took['pricing']:.1f} s pricing plans, {took['assignment']:.1f} s assigning")
    out.print(f"codesign verify {folder}   checks the proof", soft_wrap=True)


def _tables(summary: dict[str, Any]) -> Iterator[Table]:
    """Tables of pools, of devices of each kind, and of what more of anything is worth."""
    heads = ("class", "on", "replicas", "devices", "plan of a replica", "requests/s each, at most", "carries")
    pools = (
        (
            pool["class"], pool["kind"], f"{pool['replicas']:,}", f"{pool['devices']:,}", replica_plan(pool["plan"]),
            f"{pool['requests_per_s_per_replica']:.4g}", f"{pool['requests_per_s']:.4g}/s",
        )
        for pool in summary["pools"]
    )  # fmt: skip
    yield text_table("which class runs where", heads, pools, left=("class", "on", "plan of a replica"))
    heads = ("kind", "owned, used", "bought", "spare in boxes", "capital", "a month", "all on it alone",
             "an owned device more")  # fmt: skip
    kinds = (
        (
            kind["name"], f"{kind['owned_used']:,} of {kind['owned_boxes'] * kind['box']:,}", f"{kind['bought']:,}",
            f"{kind['spare']:,}", money(kind["capex"]), money(kind["usd_per_month"]),
            "cannot" if kind["alone_usd_per_month"] is None else money(kind["alone_usd_per_month"]),
            f"saves {money(kind['owned_device_worth_usd_per_month'])}",
        )
        for kind in summary["kinds"]
    )  # fmt: skip
    yield text_table("devices", heads, kinds, left=("kind",))
    heads = ("class", "a request/s more costs", "1 ms more of TTFT saves", "of TPOT", "1 % of prompts cached")
    worth = ("request_per_s", "ms_ttft", "ms_tpot", "point_cached")
    prices = (
        (one["name"], *(money(one[f"usd_per_month_of_a_{name}"]) for name in worth)) for one in summary["classes"]
    )
    yield text_table("shadow prices, a month", heads, prices, left=("class",))


def _answer_lines(summary: dict[str, Any]) -> Iterator[str]:
    """The fleet and its cost, what one kind alone would cost, capital and power."""
    best, kinds = summary["usd_per_month"], summary["kinds"]
    yield f"answer   {_fleet_text(summary)}: {money(best)} a month"
    for kind in kinds:
        usd = kind["alone_usd_per_month"]
        if usd is not None and len(kinds) > 1 and usd > best * (1 + SMALL):
            more = f"{usd / best - 1:.1%} above it" if usd < 2 * best else f"{usd / best:.3g} times as much"
            yield f"{'':8s} {more}: all classes on {kind['name']}, {money(usd)}"
    drawn = sum(kind["provisioned_w"] for kind in kinds)
    yield f"{'':8s} capital {money(sum(kind['capex'] for kind in kinds))}, {power(drawn)} provisioned"


def _proof_lines(summary: dict[str, Any]) -> Iterator[str]:
    """Lines on the proof and on what it assumes."""
    best, floor = summary["usd_per_month"], summary["floor_usd_per_month"]
    proof = "proven the least cost" if summary["gap"] <= SMALL else f"at most {summary['gap']:.2%} above the least cost"
    chance, count = summary["confidence"], summary["plans"]
    yield f"proof    {proof} of all numbers of replicas and boxes"
    if chance:
        few = "the few that are fastest at the centre, of"
        yield f"{'':8s} a size of replica runs what serves most in draws of {few} {count:,}; another may serve more"
    else:
        less = f"with any other plans no fleet is below {money(floor)}, {1 - floor / best:.1%} less"
        yield f"{'':8s} a size of replica runs the plan that serves most, of {count:,}; {less}"
    condition = f"in {chance:.0%} of the draws" if chance else "at the centre"
    yield (
        "assumed  classes share no replica; load evenly over a class's replicas; electricity as at full load; rates"
        f" that keep the limits {condition} of the model's errors{' (--confidence 0.9)' * (not chance)}"
    )


def _replay_lines(summary: dict[str, Any]) -> Iterator[str]:
    """Rates that the replay lowered, and pools that do not keep their limits in it."""
    less = [one for one in summary["certificate"]["options"] if one["lowered"] < 1]
    if less:
        names = ", ".join(
            f"{one['request_class']} on {one['devices']} {one['kind']} to {one['lowered']:.0%}" for one in less
        )
        yield f"replay   lowered the rates of {names} of what the closed form says"
    short = [row for row in summary["replay"] if not row["meets"]]
    if short:
        names = ", ".join(f"{row['class']} on {row['kind']}" for row in short)
        yield f"replay   does not keep the limits: {names}; --confidence 0.9 asks for room"


SMALL = 1e-4


def _fleet_text(summary: dict[str, Any]) -> str:
    parts = list[str]()
    for kind in summary["kinds"]:
        if kind["owned_used"]:
            parts.append(f"{kind['owned_used']:,} owned {kind['name']}")
        if kind["bought"]:
            parts.append(f"{kind['bought']:,} {kind['name']} to buy")
    return " and ".join(parts)


def _show_replay(summary: dict[str, Any]) -> None:
    if not summary["replay"]:
        return
    out = console()
    heads = ("class", "on", "requests", "TTFT", "simulated", "TPOT", "simulated", "kept", "agreed", "")
    rows = (
        (
            row["class"], row["kind"], f"{row['requests']:,}",
            *(engineering(row[f"{name}_{how}_s"], "s") for name in ("ttft", "tpot") for how in ("closed", "simulated")),
            f"{row['attainment']:.2%}", f"{row['agreed']:.0%}", "yes" if row["meets"] else "no",
        )
        for row in summary["replay"]
    )  # fmt: skip
    out.print(text_table("replayed, closed form beside the simulation", heads, rows, left=("class", "on", "")))
    for line in dict.fromkeys(row["doubt"] for row in summary["replay"] if row["doubt"]):
        out.print(line, soft_wrap=True)
