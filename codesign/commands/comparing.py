"""Candidates side by side: what the best design of each does and costs, and in how many draws of errors it wins."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd

from ..config import Study
from ..config.as_sold import device_name, differences
from ..config.groups import expand
from ..core.earlier_names import say_once
from ..core.errors import CodesignError, ConfigError
from ..core.fields import get_path, range_of, replace
from ..core.interval_text import OF_THE_LOAD
from ..core.jax_typed import asarray
from ..core.json_yaml import is_mapping
from ..model.metrics import ScenarioEvaluation
from ..model.ownership import Cloud
from ..model.scenario import Scenario
from ..model.workloads.base import OTHERS
from ..report.side_by_side import API, METRICS, Comparison
from ..search.base import refuse_without_logarithm
from ..search.solve import solve
from ..staging import base_of, running
from ..study.objective import feasible
from ..uncertainty import with_room
from ..uncertainty.metrics import (
    ends,
    intervals_of,
    numbers_in_draws,
    spreads,
    under_draws,
    without_ends,
    without_goals,
)
from .api_prices import ApiPrices, usd_per_million_output
from .candidates import Candidate, listed, refuse_all, study_of
from .designs_table import all_devices
from .infeasible import refuse_infeasible
from .optimize import check_study
from .setup import prepare_jax
from .terminal import plan_text, texts

# Best design under other prices: the found designs priced anew, each with its plan as it is.


PRICE, RENT = "cluster.accelerator.price_usd", "cluster.facility.ownership.usd_per_device_h"
UNMOVED = 1e-9  # relative: a number that changes the goal by less is none of its prices
SHARED = (
    ("electricity", "cluster.facility.usd_per_j"), ("the time of write-off", "cluster.facility.amortisation_s"),
    ("PUE", "cluster.facility.pue"), ("the share of its life in use", "cluster.facility.utilisation"),
)  # fmt: skip
"""Prices and rates that all candidates have in common: (name, its leaf)."""

HIGHEST_PUE = 4.0
FACTORS = (0.5, 2.0)  # prices of energy and years of use differ by about so much between sites


def priced_anew(
    candidates: Sequence[Candidate], *, maximised: bool, more: tuple[str, float] | None = None
) -> pd.DataFrame:
    """Find the best design, and its goal, with each of the numbers that all share halved and doubled.

    Numbers that change no goal are left out, as electricity where everything is rented. The last row is the price, or
    the rent, of the best one's accelerators: `factor` is how many times it may be what it is until the next one
    (`best`) is as good; infinite where the goal does not grow with it. Empty with less than two designs. `more` is a
    name and a goal that no such number changes.
    """
    result = [candidate for candidate in candidates if candidate.best is not None]
    if len(result) + (more is not None) < 2 or not result:
        return pd.DataFrame()
    sign, names = -1.0 if maximised else 1.0, [candidate.label for candidate in result]
    cases: list[dict[str, float]] = [{path: factor} for _, path in SHARED for factor in FACTORS]
    paths = [_paid_how(candidate.scenario) for candidate in result]
    goals = sign * np.array([_goals(one, [{}, {path: 2.0}, *cases]) for one, path in zip(result, paths, strict=True)])
    if more is not None:
        names.append(more[0])
        paths.append("")
        goals = np.vstack([goals, np.full(goals.shape[1], sign * more[1])])
    now, dearer, others = goals[:, 0], goals[:, 1], goals[:, 2:]
    rows: list[dict[str, Any]] = []
    for at, (words, path, factor) in enumerate((words, path, f) for words, path in SHARED for f in FACTORS):
        if np.allclose(others[:, at], now, rtol=UNMOVED, atol=0.0):
            continue
        best = int(np.argmin(others[:, at]))
        goal = sign * others[best, at]
        rows.append({"what": words, "path": path, "factor": factor, "best": names[best], "goal": goal})
    first, second = (int(index) for index in np.argsort(now, kind="stable")[:2])
    slope = dearer[first] - now[first]
    until = 1 + (now[second] - now[first]) / slope if slope > 0 else np.inf
    paid = "price" if paths[first] == PRICE else "rent"
    what = f"the {paid} of {names[first]}'s accelerators" if paths[first] else f"the price of the {names[first]}"
    rows.append(
        {"what": what, "path": paths[first], "factor": until, "best": names[second], "goal": sign * now[second]}
    )
    return pd.DataFrame(rows)


def _paid_how(scenario: Scenario) -> str:
    """The leaf that says what an accelerator costs: its price, or its rent."""
    owner = scenario.cluster.facility.ownership
    return f"{RENT}.{owner.device}" if isinstance(owner, Cloud) else PRICE


def _goals(candidate: Candidate, cases: Sequence[Mapping[str, float]]) -> list[float]:
    """The goal of a candidate's best design where some numbers are so many times what they are, as far as legal."""
    assert candidate.study is not None
    objective, scenario = candidate.study.objective, with_room(candidate.scenario)

    def outputs(account: ScenarioEvaluation) -> list[Any]:
        return [objective.value(account.metrics, objective.goal)]

    program = base_of(scenario).program_of(outputs)
    changed: list[list[Any]] = []
    for case in cases:
        changes = {path: _legal(scenario, path, float(get_path(scenario, path)) * f) for path, f in case.items()}
        changed.append(jax.tree.leaves(with_room(replace(scenario, changes)) if changes else scenario))
    kinds = [program.kinds[slot] for slot in program.inputs]
    columns = zip(*changed, strict=True)
    stacked = [np.stack([np.asarray(one, kind) for one in leaf], -1) for leaf, kind in zip(columns, kinds, strict=True)]
    (values,) = running(program)(*stacked)
    return [float(value) for value in np.broadcast_to(np.asarray(values, dtype=float), (len(cases),))]


def _legal(scenario: Scenario, path: str, value: float) -> float:
    """The value, or the end of the leaf's legal range that it lies beyond; a PUE of at most 4."""
    limits = range_of(scenario, path) or {}
    high = HIGHEST_PUE if path.endswith(".pue") else limits.get("high", np.inf)
    return min(max(value, limits.get("low", -np.inf)), high)


ALONG, EARLIER = "sweep=", "along="
PAID = "usd_per_million_tokens"
CAPITAL = "capex_usd"  # of what is rented it is the landlord's affair
Tell = Callable[[str], None]


def _silent(_: str) -> None:
    """Nobody waits."""


def compare(*overrides: str, tell: Tell = _silent) -> Comparison:
    """The best design of each combination of listed values: `compare("accelerator=h200,b200", "model=llama31_70b")`.

    Overrides are those of `codesign compare`, `sweep=KEY:VALUE,VALUE` among them.

    Raises:
        ConfigError: an override that no candidate could take, or nothing that is listed.
    """
    prepare_jax()
    arguments, along = without_along(overrides)
    candidates = listed(arguments)
    refuse_along(candidates, along)
    result = [solved(candidate, tell=tell) for candidate in candidates]
    refuse_all(result)
    return beside_each_other(result, along, phases(candidates, along, tell))


def without_along(overrides: Sequence[str]) -> tuple[list[str], tuple[str, tuple[str, ...]]]:
    """The overrides, and (key, values) of what a diagram is drawn along; an empty key where there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    if any(text.startswith(EARLIER) for text in overrides):
        say_once(EARLIER, ALONG)
        overrides = [ALONG + text.removeprefix(EARLIER) if text.startswith(EARLIER) else text for text in overrides]
    names = [text for text in overrides if text.startswith(ALONG)]
    rest = [text for text in overrides if not text.startswith(ALONG)]
    if not names:
        return rest, ("", ())
    key, colon, values = names[-1].removeprefix(ALONG).partition(":")
    levels = tuple(value.strip() for value in values.split(",") if value.strip())
    if not (key and colon and levels) or len(names) > 1 or "=" in key:
        raise ConfigError(f"{names[-1]}: one key and its values, as in sweep=objective.limits.tpot_s:0.02,0.03,0.05")
    return rest, (key, levels)


def refuse_along(candidates: Sequence[Candidate], along: tuple[str, tuple[str, ...]]) -> None:
    """Refuse a key or value of a diagram that no candidate can take, before anything is searched.

    Raises:
        ConfigError: what the first candidate says of it.
    """
    key, levels = along
    for level in levels:
        errors: list[CodesignError] = []
        for candidate in candidates:
            try:
                check_study(study_of(candidate, [f"{key}={level}"]))
                break
            except CodesignError as error:
                errors.append(error)
        else:
            raise ConfigError(f"{ALONG}{key}:{level}: {errors[0]}")


def solved(candidate: Candidate, more: Sequence[str] = (), tell: Tell = _silent) -> Candidate:
    """With its best design; with the reason where it has none, which is no failure of the others."""
    try:
        study = _with_room(study_of(candidate, more))
        check_study(study)
        refuse_without_logarithm(study.search, study.problem)
        result = solve(study.problem, study.search, seed=study.seed)
        done = with_designs(candidate, study, result.designs, result.certificate, result.claim)
    except CodesignError as error:
        done = dataclasses.replace(candidate, why=str(error))
    level = f" with {' '.join(more)}" if more else ""
    tell(f"{candidate.label}{level}: {done.why or goal_text(done)}")
    return done


def _with_room(study: Study) -> Study:
    """With factors of one in the place of draws, so that one trace prices designs and draws."""
    roomy = jax.tree.map(asarray, with_room(study.scenario))
    return dataclasses.replace(study, scenario=roomy) if spreads() else study


def with_designs(candidate: Candidate, study: Any, designs: pd.DataFrame, certificate: Any, claim: str) -> Candidate:
    """A candidate with what its search found; the reason where nothing keeps all limits."""
    done = dataclasses.replace(candidate, study=study, designs=designs, certificate=certificate, claim=claim)
    try:
        refuse_infeasible(study, designs.iloc[0], certificate)
    except ConfigError as error:
        return dataclasses.replace(done, why=str(error))
    return done


def goal_text(candidate: Candidate) -> str:
    """Goal and value of the best design, with its unit."""
    assert candidate.study is not None
    assert candidate.best is not None
    goal = candidate.study.objective.goal
    return f"{goal} {texts(candidate.study)(goal, float(candidate.best['objective']))}"


def phases(
    candidates: Sequence[Candidate],
    along: tuple[str, tuple[str, ...]],
    tell: Tell = _silent,
    api: ApiPrices | None = None,
) -> pd.DataFrame:
    """The best design of each candidate at each level, with an API's price there; empty where there are no levels."""
    key, levels = along
    rows: list[dict[str, Any]] = []
    for level in levels:
        for candidate in candidates:
            done = solved(candidate, [f"{key}={level}"], tell)
            value = _setting(done.study.resolved, expand(key)) if done.study is not None else None
            rows.append({"level": level, "value": value, "candidate": candidate.label, **_numbers(done)})
        if api is not None:
            studies = [study_of(candidate, [f"{key}={level}"]) for candidate in candidates[:1]]
            rows.append({"level": level, "value": None, **_api_row(api, _paid(api, studies))})
    frame = pd.DataFrame(rows)
    if not frame.empty:
        frame["value"] = frame.groupby("level")["value"].transform("first")
    return frame


def _setting(resolved: dict[str, Any], key: str) -> float | None:
    node: Any = resolved
    for part in key.split("."):
        node = node.get(part) if is_mapping(node) else None
    return float(node) if isinstance(node, int | float) else None


def beside_each_other(
    candidates: Sequence[Candidate],
    along: tuple[str, tuple[str, ...]] = ("", ()),
    levels: pd.DataFrame | None = None,
    api: ApiPrices | None = None,
) -> Comparison:
    """The joint table of candidates that were searched, with an API's price list as one more where there is one.

    Raises:
        ConfigError: they do not ask for the same, or for what no price list says.
    """
    studies = [candidate.study for candidate in candidates if candidate.study is not None]
    goals = {(study.objective.goal, bool(study.objective.maximise)) for study in studies}
    if len(goals) > 1:
        raise ConfigError(f"candidates have different goals, {' and '.join(sorted(goal for goal, _ in goals))}")
    goal, maximised = next(iter(goals), ("", False))
    paid = None if api is None else _paid(api, studies)
    uncertain = _draws(candidates, maximised=maximised, more=paid)
    rows = [_row(candidate) | uncertain.get(at, {}) for at, candidate in enumerate(candidates)]
    if api is not None and paid is not None:
        rows.append(_api_row(api, paid) | uncertain.get(len(candidates), {}))
    table = pd.DataFrame(rows)
    order = table["objective"].where(table["feasible"]) * (-1 if maximised else 1)
    table = table.iloc[np.argsort(order.fillna(np.inf).to_numpy(), kind="stable")].reset_index(drop=True)
    words = studies[0].scenario.workload.words if studies else OTHERS
    phased = levels if levels is not None else pd.DataFrame()
    prices = priced_anew(candidates, maximised=maximised, more=None if paid is None else (API, paid))
    return Comparison(table, goal, maximised, _job(studies), words, along[0], phased, prices)


def refuse_api(candidates: Sequence[Candidate]) -> None:
    """Refuse a price list beside candidates that it cannot stand beside, before anything is searched.

    Raises:
        ConfigError: another goal than a price of tokens, or requests that are not alike.
    """
    studies: list[Study] = []
    for candidate in candidates:
        try:
            studies.append(study_of(candidate))
        except CodesignError:  # said where it is searched
            continue
    _paid(ApiPrices(0.0, 0.0, 0.0), studies)


def _paid(api: ApiPrices, studies: Sequence[Study]) -> float:
    """Dollars of an API for a million output tokens of what all serve; its cache finds what the best of theirs does."""
    goals = {study.objective.goal for study in studies}
    if goals - {PAID} or any(study.objective.maximise for study in studies):
        raise ConfigError(f"--api: a price list says what tokens cost, not {sorted(goals)[0]}: take the goal {PAID}")
    result = [usd_per_million_output(api, study.scenario) for study in studies]
    lengths = {(_length(study, "input_tokens"), _length(study, "output_tokens")) for study in studies}
    if len(lengths) > 1:
        raise ConfigError("--api: candidates serve different requests, whose price differs: compare them one by one")
    return min(result, default=math.nan)


def _length(study: Study, name: str) -> float:
    return float(getattr(study.scenario.workload, name, math.nan))


def _api_row(api: ApiPrices, paid: float) -> dict[str, Any]:
    return {
        "candidate": API, "feasible": math.isfinite(paid), "why": "", "objective": paid, PAID: paid, "devices": 0.0,
        "plan": api.text(), "active_constraints": "", "claim": "", "certified": False, "bound": None, "gap": None,
        "run": "", "overrides": "", "space": "", "margin": "", "device": "", "differs": "",
    }  # fmt: skip


def _job(studies: Sequence[Study]) -> str:
    """Name of the job that is compared for: `llama31_405b serving`, `training of 4 models`."""
    models = {str(study.scenario.workload.model.name) for study in studies}
    jobs = " and ".join(sorted({str(study.scenario.workload.words.job) for study in studies}))
    if len(models) > 1:
        return f"{jobs} of {len(models)} models"
    return f"{next(iter(models))} {jobs}" if models else "comparison"


def _numbers(candidate: Candidate) -> dict[str, Any]:
    """Metrics, plan and what binds of the best design."""
    best = candidate.best
    if best is None or candidate.study is None:
        return {"feasible": False, "why": candidate.why, "objective": np.nan}
    words = candidate.study.scenario.workload.words
    objective = candidate.study.objective
    rented = isinstance(candidate.scenario.cluster.facility.ownership, Cloud)
    needed = {objective.goal, *objective.limits, *objective.floors}
    names = [name for name in METRICS if name in best and not (name == CAPITAL and rented and name not in needed)]
    numbers = {name: float(best[name]) for name in (*names, *(name for name in OF_THE_LOAD if name in best))}
    devices = all_devices(candidate.scenario)
    return {
        "feasible": True, "why": "", "objective": float(best["objective"]), **numbers, "devices": devices,
        "tokens_per_s_per_device": float(best["tokens_per_s"]) / devices,
        "plan": plan_text(best.drop("var.device_count", errors="ignore"), words),
        "active_constraints": str(best["active_constraints"]),
    }  # fmt: skip


def _row(candidate: Candidate) -> dict[str, Any]:
    proof = candidate.certificate
    row = {"candidate": candidate.label, **{f"varied.{key}": value for key, value in candidate.varied.items()}}
    certified = bool(proof and proof.certified and not proof.assuming)
    row |= _numbers(candidate) | {"claim": candidate.claim, "certified": certified}
    row |= {"bound": proof.bound if proof else None, "gap": proof.gap if proof else None}
    row |= {"run": candidate.folder, "overrides": " ".join(candidate.overrides)}
    if candidate.study is not None:
        row["space"] = candidate.study.space.text(candidate.study.scenario)
        row["margin"] = candidate.margin
    if candidate.study is not None and candidate.best is not None:
        result = differences(candidate.study, candidate.scenario)
        row |= {"device": device_name(candidate.scenario, result), "differs": "; ".join(one.text for one in result)}
    return {"device": "", "differs": ""} | row


def _draws(
    candidates: Sequence[Candidate], *, maximised: bool, more: float | None = None
) -> dict[int, dict[str, float]]:
    """Place of a candidate -> ends of its intervals, how often it wins, how often it keeps all limits.

    `more` is the goal of one that no error of the model touches, behind them.
    """
    result: dict[int, dict[str, float]] = {}
    goals: dict[int, np.ndarray] = {}
    for at, candidate in enumerate(candidates):
        if candidate.best is None or candidate.study is None or not spreads():
            continue
        objective = candidate.study.objective

        def outputs(account: ScenarioEvaluation, bound_objective: Any = objective) -> dict[str, Any]:
            goal = bound_objective.value(account.metrics, bound_objective.goal)
            return numbers_in_draws(account.metrics) | {"": goal, " ": bound_objective.excess(account.metrics)}

        values = {name: drawn[0] for name, drawn in under_draws([candidate.scenario], outputs).items()}
        goal, excess = values.pop(""), values.pop(" ")
        drawn, feasible_samples = without_ends(values)
        goals[at] = without_goals(goal, feasible_samples, maximised=maximised)
        result[at] = {"keeps": float(np.mean(np.asarray(feasible(excess), dtype=bool)))} | intervals_of(
            drawn, feasible_samples
        ).columns()
        result[at]["objective_low"], result[at]["objective_high"] = ends(goals[at])
    if more is not None and goals:
        goals[len(candidates)] = np.full_like(next(iter(goals.values())), more)
        result[len(candidates)] = {}
    for at, share in zip(goals, _wins(np.array(list(goals.values())), maximised=maximised), strict=True):
        result[at]["wins"] = float(share)
    return result


def _wins(goals: np.ndarray, *, maximised: bool) -> np.ndarray:
    """Share of the draws in which each candidate's goal is the best; of those in which no load is sustained, of none.

    Args:
        goals: [candidates, draws].
        maximised: whether more is better.
    """
    if not len(goals):
        return np.zeros(0)
    signed = goals * (-1 if maximised else 1)
    least = signed.min(axis=0)
    some = np.isfinite(least) & (least != 0)  # 0 of what is maximised is none
    level = np.where(some, least, 0.0)
    best = some & (signed <= level * (1 + 1e-12 * np.sign(level)))
    return (best / np.maximum(best.sum(axis=0), 1)).mean(axis=1)
