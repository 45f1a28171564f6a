"""What draws of errors make of metrics: intervals, how often one design beats another, what the optimum may lose."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ConfigError, suggestion
from ..fields import with_numpy
from ..metrics import Account, Metrics
from ..objective import Objective, feasible
from ..scenario import Scenario
from ..staging import base_of, keep_base_without, running
from ..typed_jax import flatten_with_path
from .draws import COUNT, draw_doubts, no_doubts
from .spreads import SHARE, spreads

NAMES = (
    "time_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "energy_j", "joules_per_token", "power_w",
)  # fmt: skip
"""Metrics that have an interval, where the job has them, beside what tokens cost."""

DOUBTS = (jax.tree_util.GetAttrKey("cluster"), jax.tree_util.GetAttrKey("doubts"))
"""Where the factors of draws are in a scenario."""

Interval = tuple[float, float]


def has_interval(name: str) -> bool:
    """Whether a metric is uncertain because times and energies are."""
    return name in NAMES or name.startswith("usd_per_million_")


def with_room(scenario: Scenario) -> Scenario:
    """The same scenario with factors of one in the place of draws: its numbers are the same to the last bit."""
    plain = with_numpy(scenario)
    return dataclasses.replace(plain, cluster=dataclasses.replace(plain.cluster, doubts=no_doubts()))


def trace_with_draws(scenario: Scenario) -> None:
    """Trace the model once for its numbers and for their draws: whoever asks for the first will want the second."""
    if not spreads():
        return
    room = with_room(scenario)
    paths, _ = flatten_with_path(room)
    ones = [place for place, (path, _) in enumerate(paths) if path[:2] == DOUBTS]
    with contextlib.suppress(ValueError):  # a component that does more with them is traced apart
        keep_base_without(with_numpy(scenario), base_of(room), ones)


def under_draws(
    scenarios: Sequence[Scenario], function: Callable[[Account], Mapping[str, Any]], count: int = COUNT
) -> dict[str, np.ndarray]:
    """Numbers of several scenarios of one structure in each draw, [scenarios, draws] each."""
    rooms = [with_room(scenario) for scenario in scenarios]
    base, names = base_of(rooms[0]), list[str]()

    def asked(account: Account) -> list[Any]:
        told = function(account)
        names[:] = list(told)
        return list(told.values())

    program = base.asked(asked)
    columns: list[list[np.ndarray]] = []
    for room, scenario in zip(rooms, scenarios, strict=True):
        drawn = draw_doubts(scenario, count)
        wide = dataclasses.replace(room, cluster=dataclasses.replace(room.cluster, doubts=drawn))
        pairs = zip(jax.tree.leaves(room), jax.tree.leaves(wide), strict=True)
        columns.append([_draws(np.asarray(leaf), np.asarray(full), count) for leaf, full in pairs])
    kinds = (program.kinds[slot] for slot in program.inputs)
    joined = (np.concatenate(parts, axis=-1) for parts in zip(*columns, strict=True))
    values = running(program)(*(np.asarray(leaf, dtype=kind) for leaf, kind in zip(joined, kinds, strict=True)))
    shape, whole = (len(rooms), count), len(rooms) * count
    return {
        name: np.broadcast_to(np.asarray(value, dtype=float), (whole,)).reshape(shape)
        for name, value in zip(names, values, strict=True)
    }


def _draws(leaf: np.ndarray, full: np.ndarray, count: int) -> np.ndarray:
    """A leaf with an axis of draws behind its own."""
    return full if full.ndim > leaf.ndim else np.broadcast_to(leaf[..., None], (*leaf.shape, count))


def metrics_under_draws(scenario: Scenario, count: int = COUNT) -> dict[str, np.ndarray]:
    """Every metric that has an interval, in each draw; empty where no errors are known."""
    if not spreads():
        return {}

    def told(account: Account) -> dict[str, Any]:
        return {name: value for name, value in account.metrics.flat().items() if has_interval(name)}

    return {name: values[0] for name, values in under_draws([scenario], told, count).items()}


def ends(values: np.ndarray, share: float = SHARE) -> Interval:
    """Ends of the interval that holds this share of the draws."""
    low, high = np.quantile(values, ((1 - share) / 2, (1 + share) / 2))
    return float(low), float(high)


def intervals(scenario: Scenario, count: int = COUNT) -> dict[str, Interval]:
    """Metric -> ends of its 90 % interval; empty where no errors are known."""
    return {name: ends(values) for name, values in metrics_under_draws(scenario, count).items()}


class Wins(NamedTuple):
    """Of two designs: share of the joint draws in which the first has less of a metric, and their ratio's interval."""

    share: float
    ratio: Interval


def wins(first: Scenario, second: Scenario, metric: str = "usd_per_million_tokens", count: int = COUNT) -> Wins:
    """In how many draws of errors the first design has less of a metric than the second.

    Both are priced under the same draws: what they share (device, classes of kernels, source) errs alike.

    Raises:
        ConfigError: a metric without intervals.
    """
    found = [metrics_under_draws(scenario, count) for scenario in (first, second)]
    for values in found:
        if metric not in values:
            raise ConfigError(f"metric {metric!r} has no interval{suggestion(metric, values)}")
    ratio = found[0][metric] / found[1][metric]
    return Wins(float(np.mean(ratio < 1)), ends(ratio))


class Regret(NamedTuple):
    """What the best of some designs may lose to the others under draws of errors.

    stays: share of draws in which none of the others is better; typical, high: median and 90 % quantile of what it
    loses to the best of each draw, relative; keeps: share of draws in which it keeps all limits; designs: how many.
    """

    stays: float
    typical: float
    high: float
    keeps: float
    designs: int

    def text(self) -> str:
        """One line."""
        kept = f"; it keeps all limits in {self.keeps:.0%} of the draws" if self.keeps < 1 else ""
        if self.designs < 2:
            return f"Under joint draws of the model's errors nothing else was kept to compare with{kept}."
        return (
            f"Under joint draws of the model's errors the best design stays the best of {self.designs} in "
            f"{self.stays:.0%} of the draws; what it loses to the best of each draw is {self.typical:.2%} in the "
            f"median, at most {self.high:.2%} in nine of ten{kept}."
        )


class DesignIntervals(NamedTuple):
    """Intervals of designs, one mapping each, and the regret of the first."""

    intervals: list[dict[str, Interval]]
    regret: Regret


def of_designs(objective: Objective, scenarios: Sequence[Scenario], count: int = COUNT) -> DesignIntervals | None:
    """Intervals of designs of one structure, best first; None where no errors are known."""
    if not spreads() or not scenarios:
        return None

    def told(account: Account) -> dict[str, Any]:
        metrics: Metrics = account.metrics
        numbers = {name: value for name, value in metrics.flat().items() if has_interval(name)}
        return numbers | {"": objective.value(metrics, objective.goal), " ": objective.excess(metrics)}

    found = under_draws(scenarios, told, count)
    goals, excess = found.pop(""), found.pop(" ")
    each = [{name: ends(values[place]) for name, values in found.items()} for place in range(len(scenarios))]
    return DesignIntervals(each, _regret(goals, excess, maximise=bool(objective.maximise)))


def _regret(goals: np.ndarray, excess: np.ndarray, *, maximise: bool) -> Regret:
    best = goals.max(axis=0) if maximise else goals.min(axis=0)
    lost: np.ndarray = np.abs(goals[0] / best - 1)
    keeps = float(np.mean(np.asarray(feasible(excess[0]), dtype=bool)))
    return Regret(
        float(np.mean(lost <= 1e-9)), float(np.median(lost)), float(np.quantile(lost, 0.9)), keeps, len(goals)
    )


def as_columns(found: Mapping[str, Interval]) -> dict[str, float]:
    """Intervals as numbers: `time_s_low`, `time_s_high` and so on."""
    named = (((f"{name}_low", low), (f"{name}_high", high)) for name, (low, high) in found.items())
    return {name: value for pair in named for name, value in pair}
