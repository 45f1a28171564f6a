"""Answers to the sliders: every plan of the study priced at their hardware, the best ones in full.

Limits are not part of what is traced: they are held against the numbers of each plan, so that moving one costs nothing.
"""

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from ..core.fields import with_numpy
from ..core.jax_typed import structure, unflatten
from ..core.pareto_tools import non_dominated_rows
from ..core.smooth import used_share
from ..model.workloads.plan_fields import plan_value
from ..report.run_folder import PLAN_PREFIX, RunFolder
from ..search.results import binding, row_of
from ..staging import Answers, at_points, model_of, running
from ..staging.staged import EveryPlan
from ..study.design_space import DesignSpace
from ..study.objective import feasible
from .beginning import FLOORS, HARDWARE, LIMITS, SliderStudy, limits_of

SHOWN = 8  # designs priced in full
DOTS = 400  # plans of the picture of time against cost
MOST_PLANS = 400_000  # that are priced at each move of a slider
QUICK = 40_000  # plans priced at once where all of them take longer than a slider should
SLOW_S = 0.06
SAMPLED = 8  # places of the hardware at which plans are ranked for that


class ExplorerAnswer(NamedTuple):
    """Answer at one position of the sliders.

    run: the best plans in full, as if they were the designs of a run; dots: time, cost, whether feasible and on the
    front, of plans worth a dot; plans, feasible_count: how many were priced, and how many of them keep everything.
    """

    run: RunFolder
    dots: pd.DataFrame
    plans: int
    feasible_count: int
    seconds: float


class Answerer:
    """Prices a study at any place of its sliders.

    Attributes: how says in words which plans are priced; whole is false where there are more than are priced at once;
    proofs are kept here for whoever proves (see `proving`).
    """

    def __init__(self, setup: SliderStudy):
        self._given, study = setup, setup.study
        self.proofs: OrderedDict[Any, Any] = OrderedDict()
        self._scenario = with_numpy(study.scenario)
        plans, self.how = _plans(setup)
        self._objective = dataclasses.replace(study.objective, limits={}, floors={})
        self._metric_names = [study.objective.goal, *study.objective.limits, *study.objective.floors]
        model = model_of(self._scenario, DesignSpace({}, study.space.hardware), tuple(plans))
        self._names, self._fields, self._tiers = model.variables, tuple(plans), list[str]()
        self._full_sweep = self._sweep(model, plans)
        self._some, self._plans = self._full_sweep, plans
        self._every = np.arange(self._full_sweep.count)
        self._trees: list[Any] = []
        self._program = model.program_of(self._in_full)
        self._made = running(self._program)
        self.all_plans = True
        self._shortlist(model)

    def _sweep(self, model: Any, plans: Mapping[str, np.ndarray]) -> EveryPlan:
        """All plans: what is asked for, time, cost, used shares of memories, the worst broken rule."""

        def outputs(answers: Answers) -> list[Any]:
            metrics, objective = answers.metrics, self._given.study.objective
            self._tiers = list(metrics.usage)
            values = [objective.value(metrics, name) for name in self._metric_names]
            return [*values, metrics.time_s, metrics.usd_per_million_tokens, _worst(metrics), *metrics.usage.values()]

        return EveryPlan(model, model.program_of(outputs), self._scenario, plans)

    def _in_full(self, answers: Answers) -> Any:
        metrics = answers.metrics
        flat_outputs = (
            row_of(answers.account),
            [self._given.study.objective.value(metrics, name) for name in self._metric_names],
        )
        self._trees[:] = [structure((*flat_outputs, _worst(metrics)))]
        return (*flat_outputs, _worst(metrics))

    def _shortlist(self, model: Any) -> None:
        """Shortlist plans if all of them take too long: the best, or nearest to feasible, at random points."""
        self.at(self._given.start)
        if self.at(self._given.start).seconds < SLOW_S or self._full_sweep.count <= QUICK:
            return
        rng, places = np.random.default_rng(0), set[int]()
        for share in rng.random((SAMPLED, len(self._names))):
            values = dict(self._given.start)
            space = self._given.study.space
            for name, u in zip(self._names, share, strict=True):
                values[f"{HARDWARE}.{name}"] = float(space.values({name: u})[name])
            goal, excess, *_ = self._judged(self._full_sweep, values)
            order = np.lexsort((self._sign * goal, np.maximum(excess, 0.0)))
            places.update(order[: QUICK // SAMPLED].tolist())
        self._every = np.array(sorted(places))
        self._plans = {name: column[self._every] for name, column in self._plans.items()}
        self._some, self.all_plans = self._sweep(model, self._plans), False
        self.how = (
            f"the {len(self._every):,} best of {self._full_sweep.count:,} legal plans (all of them a moment later)"
        )

    @property
    def _sign(self) -> float:
        return 1.0 if self._given.study.objective.minimise else -1.0

    def _judged(self, sweep: EveryPlan, values: Mapping[str, float]) -> tuple[np.ndarray, ...]:
        """(goal, largest relative violation, time, cost) of each plan."""
        study, knobs = self._given.study, self._given.knobs
        result = sweep([values[f"{HARDWARE}.{name}"] for name in self._names])
        metrics, (seconds, cost, worst, *shares) = result[: len(self._metric_names)], result[len(self._metric_names) :]
        limits, floors = (limits_of(study, knobs, values, kind) for kind in (LIMITS, FLOORS))
        used = [metrics[1 + at] / bound for at, bound in enumerate(limits.values())]
        first = 1 + len(limits)
        with np.errstate(divide="ignore"):
            used += [bound / metrics[first + at] for at, bound in enumerate(floors.values())]
        excess = np.where(np.isfinite(metrics[0]), worst, np.inf)
        for share in (*used, *shares):
            excess = np.maximum(excess, share - 1)
        return metrics[0], np.where(np.isnan(excess), np.inf, excess), seconds, cost

    def at(self, values: Mapping[str, float], *, every: bool = False) -> ExplorerAnswer:
        """The best plans at these values, key of a knob -> value; `every`: of all there are."""
        started = time.perf_counter()
        sweep, plans = (self._full_sweep, self._all()) if every else (self._some, self._plans)
        goal, excess, seconds, cost = self._judged(sweep, values)
        is_feasible = feasible(excess)
        order = np.lexsort((np.where(is_feasible, self._sign * goal, excess), ~is_feasible))
        front = _front(seconds, cost, is_feasible)
        shown = np.unique(np.concatenate([order[:DOTS], front]))
        dots = pd.DataFrame(
            {"time_s": seconds[shown], "usd_per_million_tokens": cost[shown], "feasible": is_feasible[shown]}
        )
        dots["front"], dots["best"] = np.isin(shown, front), shown == order[0]
        best = {name: column[order[:SHOWN]] for name, column in plans.items()}
        run = self._run(self._frame(best, values), values)
        return ExplorerAnswer(run, dots, len(goal), int(is_feasible.sum()), time.perf_counter() - started)

    def _all(self) -> dict[str, np.ndarray]:
        return _plans(self._given)[0] if not self.all_plans else self._plans

    def _frame(self, plans: Mapping[str, np.ndarray], values: Mapping[str, float]) -> pd.DataFrame:
        """Designs as a run has them, a row each."""
        study, knobs = self._given.study, self._given.knobs
        count = len(next(iter(plans.values())))
        hardware = {name: np.full(count, values[f"{HARDWARE}.{name}"]) for name in self._names}
        columns = [*plans.values(), *hardware.values()]
        result = at_points(self._program, jax.tree.leaves(self._scenario), columns, self._made)
        rows, metrics, worst = unflatten(self._trees[0], [np.broadcast_to(x, (count,)) for x in result])
        limits, floors = (limits_of(study, knobs, values, kind) for kind in (LIMITS, FLOORS))
        used = {f"usage.{tier}": rows[f"usage.{tier}"] for tier in self._tiers}
        used |= {name: metrics[1 + at] / bound for at, (name, bound) in enumerate(limits.items())}
        floored = enumerate(floors.items(), start=1 + len(limits))
        used |= {name: np.asarray(used_share(bound, metrics[at])) for at, (name, bound) in floored}
        excess = np.maximum(np.max([share - 1 for share in used.values()], axis=0), worst)
        summary: dict[str, Any] = {"design": np.arange(count), "rank": np.arange(1, count + 1)}
        summary |= {"feasible": feasible(excess), "objective": metrics[0], "excess": excess}
        summary |= {
            PLAN_PREFIX + name: column for name, column in {**plans, **hardware}.items() if name in self._varied
        }
        summary |= (
            rows
            | dict(zip(self._metric_names, metrics, strict=True))
            | {f"limit.{n}": share for n, share in used.items()}
        )
        frame = pd.DataFrame(summary)
        frame["active_constraints"] = [binding(row) for _, row in frame.iterrows()]
        return frame

    @property
    def _varied(self) -> set[str]:
        return {*self._given.study.space.plan, *self._names}

    def _run(self, frame: pd.DataFrame, values: Mapping[str, float]) -> RunFolder:
        study, knobs = self._given.study, self._given.knobs
        summary = {
            "experiment": study.name,
            "objective": {"minimise": study.objective.minimise, "maximise": study.objective.maximise},
            "limits": limits_of(study, knobs, values, LIMITS), "floors": limits_of(study, knobs, values, FLOORS),
            "words": dataclasses.asdict(study.scenario.workload.words),
        }  # fmt: skip
        path = self._given.run.path if self._given.run else Path()
        return RunFolder(path, study.resolved, frame, summary=summary, overrides=self._given.overrides)


def _worst(metrics: Any) -> Any:
    """The largest broken rule of the plan; -1 where none is."""
    worst: Any = -1.0 + 0.0 * metrics.time_s
    for broken in metrics.violations.values():
        worst = jax.numpy.maximum(worst, jax.numpy.where(broken <= 0, -1.0, broken))
    return worst


def _front(seconds: np.ndarray, cost: np.ndarray, is_feasible: np.ndarray) -> np.ndarray:
    """Places of the feasible plans that no other beats in both time and cost."""
    places = np.flatnonzero(is_feasible & np.isfinite(seconds) & np.isfinite(cost))
    return places[non_dominated_rows(np.stack([seconds[places], cost[places]], axis=-1))] if len(places) else places


def _plans(setup: SliderStudy) -> tuple[dict[str, np.ndarray], str]:
    """Plans to price at each move, and in words which they are."""
    space, scenario = setup.study.space, setup.study.scenario
    if not space.plan:
        name = dataclasses.fields(scenario.plan)[0].name
        return {name: np.array([float(plan_value(name, getattr(scenario.plan, name)))])}, "the one plan of this study"
    if space.combinations <= MOST_PLANS * 10:
        plans = space.plans(scenario)
        count = len(next(iter(plans.values())))
        if count <= MOST_PLANS:
            return plans, f"all {count:,} legal plans"
    if setup.run is not None and all(PLAN_PREFIX + name in setup.run.designs for name in space.plan):
        run_plans = (
            setup.run.designs[[PLAN_PREFIX + name for name in space.plan]].drop_duplicates().to_numpy(dtype=float)
        )
        which = f"the {len(run_plans):,} plans that the run kept"
    else:
        run_plans = space.legal_sample(scenario, QUICK)
        which = f"{len(run_plans):,} random plans"
    text = f"{which} of {space.combinations:,} combinations, too many to try at each move"
    return dict(zip(space.plan, run_plans.T, strict=True)), text
