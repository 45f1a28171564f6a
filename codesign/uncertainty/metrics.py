"""Uncertainty of metrics by draws of errors: intervals, how often a design beats another, what the optimum may lose."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.fields import with_numpy
from ..core.interval_text import AGREED, RATIO
from ..core.jax_typed import flatten_with_path
from ..model.metrics import Metrics, ScenarioEvaluation
from ..model.scenario import Scenario
from ..model.workloads.goodput import ENGINE
from ..staging import base_of, keep_base_without, running
from ..study.objective import Objective, feasible
from .draws import COUNT, draw_doubts, no_doubts
from .spreads import SHARE, spreads

__all__ = [
    "LOAD", "MetricIntervals", "PairedDraws", "Regret", "as_columns", "at_centre", "ends", "intervals", "intervals_of",
    "metrics_under_draws", "numbers_in_draws", "of_designs", "over_the_load", "quantile", "trace_with_draws",
    "uncertain", "under_draws", "wins", "with_room", "without_ends", "without_goals", "without_numbers",
]  # fmt: skip


# Draws in which the engines do not sustain the load: unbounded quantities there, and interval ends all the same.
#
# Where requests come at a rate, or must meet an SLO, a draw of the model's errors may make engines so slow that
# prompts or decodes pile up, or that no rate meets the SLO. There is no steady state then, and what a closed form
# says is no number: times, joules and dollars grow as long as one waits, and count as infinite. Of goodput nothing is
# kept, so throughput is 0; at a rate it is what the engines still answer.
#
# An interval of 90 % ends at the 95th percentile. Where more than one draw in twenty is not sustained that is
# infinite: "unbounded" for readers, infinity in frames, null in JSON (`interval_text`). Where more than 19 in twenty
# are not, neither end is a number.


LOAD = "load over what is sustained"  # beside the metrics of draws, and no metric
RATES = ("tokens_per_s", "mfu")  # of which there is less, the less is sustained
FINITE = (*RATES, "power_w")
WAITS, PAID = ("ttft_", "e2e_"), "usd_per_million_"  # how names of metrics begin

Interval = tuple[float, float]


def over_the_load(metrics: Metrics) -> dict[str, Array]:
    """Load of an engine over what it sustains, as a number of a draw; nothing of jobs without a load."""
    flat = metrics.flat()
    shares = [value for name, value in flat.items() if name.startswith(f"usage.{ENGINE}.")]
    if not shares:
        return {}
    most = shares[0]
    for share in shares[1:]:
        most = jnp.maximum(most, share)
    return {LOAD: most} | ({AGREED: flat[AGREED]} if AGREED in flat else {})


def without_ends(drawn: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Numbers of draws with those that are none made infinite, or 0.

    Args:
        drawn: metric -> values in each draw, [..., draws], with what `over_the_load` adds.

    Returns:
        (the metrics, whether each draw is sustained; None of jobs without a load).
    """
    numbers = {name: values for name, values in drawn.items() if name not in (LOAD, AGREED)}
    if LOAD not in drawn:
        return numbers, None
    sustained = np.asarray(feasible(drawn[LOAD] - 1), dtype=bool)
    agreed = AGREED in drawn

    def bounded(name: str, values: np.ndarray) -> np.ndarray:
        if name in RATES and agreed:
            return np.where(sustained, values, 0.0)
        return values if name in FINITE else np.where(sustained, values, np.inf)

    return {name: bounded(name, values) for name, values in numbers.items()}, sustained


def without_numbers(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of designs where those that are none are infinite: what waits, and dollars where no rate is agreed on.

    Args:
        rows: metric -> values of designs; searches need them finite, readers do not.
    """
    used = [np.asarray(value) for name, value in rows.items() if name.startswith(f"usage.{ENGINE}.")]
    if not used:
        return dict(rows)
    sustained = np.asarray(feasible(np.max(np.broadcast_arrays(*used), axis=0) - 1), dtype=bool)
    endless = (*WAITS, *((PAID,) if AGREED in rows else ()))
    return {
        name: np.where(sustained, value, np.inf) if name.startswith(endless) else value for name, value in rows.items()
    }


def ends(values: np.ndarray, share: float = SHARE) -> Interval:
    """Ends of the interval that holds this share of the draws; infinite where too many of them are."""
    return quantile(values, (1 - share) / 2), quantile(values, (1 + share) / 2)


def quantile(values: np.ndarray, level: float) -> float:
    """Quantile: this share of the draws stays below; infinite where more than the rest of them are."""
    endless = np.isposinf(values)
    if np.mean(endless) > 1 - level + 1e-9:  # rounding of 1 - level must not cost a draw
        return float(np.inf)
    most = values[~endless].max() if endless.any() else 0.0
    return float(np.quantile(np.where(endless, most, values), level))


NAMES = (
    "time_s", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s", "mfu", "energy_j", "joules_per_token", "power_w",
    *(f"{time}_{share}_s" for time in ("ttft", "tpot", "e2e") for share in ("p50", "p90", "p99")),
)  # fmt: skip
"""Metrics that have an interval, where the job has them, beside what tokens cost."""

DOUBTS = (jax.tree_util.GetAttrKey("cluster"), jax.tree_util.GetAttrKey("doubts"))
"""Path of the error factors in a scenario."""


def has_interval(name: str) -> bool:
    """True if a metric is uncertain because times and energies are."""
    return name in NAMES or name.startswith("usd_per_million_")


def with_room(scenario: Scenario) -> Scenario:
    """Copy of a scenario with factors of one in the place of draws: its numbers are the same to the last bit."""
    plain = with_numpy(scenario)
    return dataclasses.replace(plain, cluster=dataclasses.replace(plain.cluster, doubts=no_doubts()))


def trace_with_draws(scenario: Scenario) -> None:
    """Trace the model once for its numbers and for their draws: whoever asks for the first will want the second."""
    if not spreads():
        return
    room = with_room(scenario)
    paths, _ = flatten_with_path(room)
    ones = [index for index, (path, _) in enumerate(paths) if path[:2] == DOUBTS]
    with contextlib.suppress(ValueError):  # a component that does more with them is traced apart
        keep_base_without(with_numpy(scenario), base_of(room), ones)


def under_draws(
    scenarios: Sequence[Scenario],
    function: Callable[[ScenarioEvaluation], Mapping[str, Any]],
    count: int = COUNT,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Numbers of several scenarios of one structure in each draw, [scenarios, draws] each."""
    rooms = [with_room(scenario) for scenario in scenarios]
    base, names = base_of(rooms[0]), list[str]()

    def flat_outputs(account: ScenarioEvaluation) -> list[Any]:
        outputs = function(account)
        names[:] = list(outputs)
        return list(outputs.values())

    program = base.program_of(flat_outputs)
    columns: list[list[np.ndarray]] = []
    for room, scenario in zip(rooms, scenarios, strict=True):
        drawn = draw_doubts(scenario, count, seed)
        wide = dataclasses.replace(room, cluster=dataclasses.replace(room.cluster, doubts=drawn))
        pairs = zip(jax.tree.leaves(room), jax.tree.leaves(wide), strict=True)
        columns.append([_draws(np.asarray(leaf), np.asarray(full), count) for leaf, full in pairs])
    kinds = (program.kinds[slot] for slot in program.inputs)
    joined = (np.concatenate(parts, axis=-1) for parts in zip(*columns, strict=True))
    values = running(program)(*(np.asarray(leaf, dtype=kind) for leaf, kind in zip(joined, kinds, strict=True)))
    shape, total = (len(rooms), count), len(rooms) * count
    return {
        name: np.broadcast_to(np.asarray(value, dtype=float), (total,)).reshape(shape)
        for name, value in zip(names, values, strict=True)
    }


def at_centre(scenario: Scenario, function: Callable[[ScenarioEvaluation], Mapping[str, Any]]) -> dict[str, float]:
    """Numbers of a scenario by the model as it stands, from the trace that `under_draws` uses too."""
    room, names = with_room(scenario), list[str]()

    def flat_outputs(account: ScenarioEvaluation) -> list[Any]:
        outputs = function(account)
        names[:] = list(outputs)
        return list(outputs.values())

    program = base_of(room).program_of(flat_outputs)
    kinds = (program.kinds[slot] for slot in program.inputs)
    leaves = (np.asarray(leaf, dtype=kind)[..., None] for leaf, kind in zip(jax.tree.leaves(room), kinds, strict=True))
    return {name: float(np.ravel(value)[0]) for name, value in zip(names, running(program)(*leaves), strict=True)}


def _draws(leaf: np.ndarray, full: np.ndarray, count: int) -> np.ndarray:
    """A leaf with an axis of draws behind its own."""
    return full if full.ndim > leaf.ndim else np.broadcast_to(leaf[..., None], (*leaf.shape, count))


def numbers_in_draws(metrics: Metrics) -> dict[str, Any]:
    """Metrics that have an interval, and how much more than it sustains an engine is asked for."""
    return {name: value for name, value in metrics.flat().items() if has_interval(name)} | over_the_load(metrics)


def metrics_under_draws(scenario: Scenario, count: int = COUNT) -> dict[str, np.ndarray]:
    """Every metric that has an interval, in each draw, infinite where no load is sustained; empty without errors."""
    return _drawn(scenario, count)[0]


def _drawn(scenario: Scenario, count: int) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """(metrics, whether the load is sustained) in each draw."""
    if not spreads():
        return {}, None
    result = under_draws([scenario], lambda account: numbers_in_draws(account.metrics), count)
    return without_ends({name: values[0] for name, values in result.items()})


class MetricIntervals(NamedTuple):
    """Metric -> ends of its 90 % interval; share of the draws whose load is not sustained, None without a load."""

    intervals: dict[str, Interval]
    unsustained: float | None = None

    def columns(self) -> dict[str, float]:
        """Intervals and the overload probability as columns of a frame."""
        return as_columns(self.intervals) | ({} if self.unsustained is None else {RATIO: self.unsustained})


def uncertain(scenario: Scenario, count: int = COUNT) -> MetricIntervals:
    """Intervals of a design under draws of errors; none where no errors are known."""
    drawn, sustained = _drawn(scenario, count)
    return intervals_of(drawn, sustained)


def intervals_of(drawn: Mapping[str, np.ndarray], sustained: np.ndarray | None) -> MetricIntervals:
    """Intervals of numbers in draws, whose load is sustained or not."""
    share = None if sustained is None else float(np.mean(~sustained))
    return MetricIntervals({name: ends(values) for name, values in drawn.items()}, share)


def intervals(scenario: Scenario, count: int = COUNT) -> dict[str, Interval]:
    """Metric -> ends of its 90 % interval, infinite where it has none; empty where no errors are known."""
    return uncertain(scenario, count).intervals


class PairedDraws(NamedTuple):
    """Two designs compared: share of joint draws where the first has less of a metric, and their ratio's interval."""

    share: float
    ratio: Interval


def wins(first: Scenario, second: Scenario, metric: str = "usd_per_million_tokens", count: int = COUNT) -> PairedDraws:
    """Share of error samples in which the first design has less of a metric than the second.

    Both are priced under the same draws: what they share (device, classes of kernels, source) errs alike. Where neither
    sustains its load neither has less, and their ratio is 1.

    Raises:
        ConfigError: a metric without intervals.
    """
    result = [metrics_under_draws(scenario, count) for scenario in (first, second)]
    for values in result:
        if metric not in values:
            raise ConfigError(f"metric {metric!r} has no interval{suggestion(metric, values)}")
    one, other = (values[metric] for values in result)
    neither = np.isinf(one) & np.isinf(other)
    ratio = np.where(neither, 1.0, np.where(neither, 1.0, one) / np.where(neither, 1.0, other))
    return PairedDraws(float(np.mean(ratio < 1)), ends(ratio))


class Regret(NamedTuple):
    """Regret of the best of some designs: what it may lose to the others under draws of errors.

    stays: share of draws in which it sustains its load and none of the others is better; typical, high: median and 90 %
    quantile of its regret, relative, infinite where only another one sustains its load;
    keeps: share of draws in which it keeps all limits; designs: how many.
    """

    stays: float
    typical: float
    high: float
    keeps: float
    designs: int

    def text(self) -> str:
        """One line."""
        feasible_text = f"; it keeps all limits in {self.keeps:.0%} of the draws" if self.keeps < 1 else ""
        if self.designs < 2:
            return f"Under joint draws of the model's errors nothing else was kept to compare with{feasible_text}."
        lost = f"is {self.typical:.2%} in the median, at most {self.high:.2%} in nine of ten"
        if np.isinf(self.high):
            often = "half" if np.isinf(self.typical) else "one of ten"
            median = "" if np.isinf(self.typical) else f"is {self.typical:.2%} in the median and "
            lost = f"{median}is unbounded in more than {often}, where others sustain the load and it does not"
        return (
            f"Under joint draws of the model's errors the best design is optimal among {self.designs} in "
            f"{self.stays:.0%} of the draws; its regret {lost}{feasible_text}."
        )


class DesignIntervals(NamedTuple):
    """Intervals of designs under draws of errors, and the regret of the first."""

    designs: list[MetricIntervals]
    regret: Regret

    @property
    def intervals(self) -> list[dict[str, Interval]]:
        """Intervals of each design."""
        return [one.intervals for one in self.designs]


def of_designs(objective: Objective, scenarios: Sequence[Scenario], count: int = COUNT) -> DesignIntervals | None:
    """Intervals of designs of one structure, best first; None where no errors are known."""
    if not spreads() or not scenarios:
        return None

    def outputs(account: ScenarioEvaluation) -> dict[str, Any]:
        metrics: Metrics = account.metrics
        goal, excess = objective.value(metrics, objective.goal), objective.excess(metrics)
        return numbers_in_draws(metrics) | {"": goal, " ": excess}

    result = under_draws(scenarios, outputs, count)
    goals, excess = result.pop(""), result.pop(" ")
    drawn, sustained = without_ends(result)
    each = [
        intervals_of(
            {name: values[index] for name, values in drawn.items()}, None if sustained is None else sustained[index]
        )
        for index in range(len(scenarios))
    ]
    maximised = bool(objective.maximise)
    goals = without_goals(goals, sustained, maximised=maximised)
    return DesignIntervals(each, _regret(goals, excess, maximised=maximised))


def without_goals(goals: np.ndarray, sustained: np.ndarray | None, *, maximised: bool) -> np.ndarray:
    """Goals in draws: infinite where the load is not sustained, none of what there should be more of."""
    return goals if sustained is None else np.where(sustained, goals, np.minimum(goals, 0.0) if maximised else np.inf)


def _regret(goals: np.ndarray, excess: np.ndarray, *, maximised: bool) -> Regret:
    best = goals.max(axis=0) if maximised else goals.min(axis=0)
    some: np.ndarray = np.isfinite(best) & (best != 0)
    lost = np.zeros_like(best)  # where nobody sustains the load nothing is lost to others
    lost[some] = np.abs(goals[0][some] / best[some] - 1)
    keeps = float(np.mean(np.asarray(feasible(excess[0]), dtype=bool)))
    stays = float(np.mean(np.where(some, lost, np.inf) <= 1e-9))
    return Regret(stays, quantile(lost, 0.5), quantile(lost, 0.9), keeps, len(goals))


def as_columns(intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Intervals as numbers: `time_s_low`, `time_s_high` and so on."""
    named = (((f"{name}_low", low), (f"{name}_high", high)) for name, (low, high) in intervals.items())
    return {name: value for pair in named for name, value in pair}
