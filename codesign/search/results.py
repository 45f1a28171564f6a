"""From a trace to tidy frames: every kept design priced exactly (hard model, float64), one row each.

JAX arrays end here; reports are made from these frames alone.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from ..core.errors import CodesignError
from ..core.fields import walk, with_numpy
from ..core.jax_typed import asarray, device_put, shapes_of, structure, unflatten
from ..core.pareto_tools import non_dominated_rows
from ..model.metrics import BANDWIDTH, ScenarioEvaluation, computed_by
from ..model.networks.collectives import stages
from ..model.networks.fabrics import AbstractFabric, RoutedTopology
from ..model.networks.topology import limit, link_columns
from ..model.scenario import Scenario
from ..model.workloads import CommOp, ComputeOp
from ..model.workloads.plan_fields import plan_fields
from ..staging import Answers, at_points, base_of, model_of, slopes_of
from ..study.design_space import DesignSpace
from ..study.objective import feasible, share_text
from ..uncertainty.metrics import without_numbers
from .base import Problem, Trace

__all__ = [
    "Results", "binding", "busy_links", "check_float64", "collect", "designs", "elasticities", "numbers_in",
    "numbers_of", "ops", "pareto", "placed", "priced",
]  # fmt: skip

ELASTICITY_METRICS = ("time_s", "usd_per_million_tokens", "joules_per_token", "ttft_s", "tpot_s")
BINDS_FROM = 0.98  # a constraint used to this share is called binding


def check_float64() -> None:
    """Refuse to report numbers in single precision.

    Raises:
        CodesignError: how to mend it.
    """
    if asarray(1.0).dtype != jnp.float64:
        raise CodesignError("results need float64: jax.config.update('jax_enable_x64', True) before anything is built")


def row_of(account: ScenarioEvaluation) -> dict[str, Array]:
    """Every number of one design that a row needs; capex and power by part are those of the whole cluster."""
    return account.metrics.flat() | account.parts


def numbers_of(scenario: Scenario) -> dict[str, float]:
    """Every number of one scenario as it is."""
    return numbers_in(priced(scenario))


def numbers_in(account: ScenarioEvaluation) -> dict[str, float]:
    """Every number of a scenario that is priced."""
    return {name: float(value) for name, value in row_of(account).items()}


def priced(scenario: Scenario) -> ScenarioEvaluation:
    """The account of one scenario, by NumPy."""
    base = base_of(scenario)
    result = at_points(base.program, jax.tree.leaves(scenario))
    numbers = [np.reshape(number, number.shape[1:]) for number in result]
    return unflatten(base.structure, device_put(numbers))  # compiles nothing


def designs(problem: Problem, trace: Trace, seed: int) -> pd.DataFrame:
    """One row per distinct kept design, best feasible first.

    Columns: design, rank, method, seed, feasible, objective, excess, `var.*`, every metric, `limit.*` (used share of
    each constraint), `capex.*` and `power.*` (of the whole cluster), binds.

    Raises:
        CodesignError: not in float64: reported numbers are exact evaluations.
    """
    check_float64()
    points = {name: np.asarray(column, dtype=float) for name, column in trace.points.items()}
    rows, usages, excess, goal = _priced(problem, points)
    count = len(trace.method)
    columns: dict[str, Any] = {"method": trace.method, "seed": seed}
    columns |= {"feasible": feasible(excess), "objective": goal, "excess": excess}
    columns |= {f"var.{name}": column for name, column in points.items()}
    columns |= without_numbers(rows) | {f"limit.{name}": share for name, share in usages.items()}
    columns = {name: np.broadcast_to(cast(np.ndarray, v), (count,)) if isinstance(v, np.ndarray) else v
               for name, v in columns.items()}  # fmt: skip
    frame = pd.DataFrame(columns)
    frame["active_constraints"] = [binding(row) for _, row in frame.iterrows()]
    return _ranked(frame, maximise=bool(problem.objective.maximise))


def _priced(problem: Problem, points: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any], Any, Any]:
    """(numbers of a row, used shares, largest violation, goal) of many designs."""
    fields = tuple(name for name in points if name not in problem.space.hardware)
    hardware = {name: problem.space.hardware[name] for name in points if name not in fields}
    model = model_of(problem.scenario, DesignSpace({}, hardware), fields)
    trees: list[Any] = []

    def outputs(answers: Answers) -> Any:
        metrics, objective = answers.metrics, problem.objective
        rows = (
            row_of(answers.account) | objective.made(metrics),
            objective.usages(metrics),
            objective.excess(metrics),
            objective.value(metrics, objective.goal),
        )
        trees[:] = [structure(rows)]
        return rows

    columns = [points[name] for name in (*fields, *model.variables)]
    result = at_points(model.program_of(outputs), jax.tree.leaves(problem.scenario), columns)
    return unflatten(trees[0], result)


def _ranked(frame: pd.DataFrame, *, maximise: bool) -> pd.DataFrame:
    """Sort (feasible first by goal, then by what is exceeded), drop repeated designs, number them."""
    key = (frame["objective"] * (-1 if maximise else 1)).where(frame["feasible"], frame["excess"])
    order = np.lexsort((key.to_numpy(), ~frame["feasible"].to_numpy()))
    frame = frame.iloc[order]
    variables = [name for name in frame.columns if name.startswith("var.")]
    frame = frame[~frame[variables].apply(_rounded).duplicated()].reset_index(drop=True)
    frame.insert(0, "design", np.arange(len(frame)))
    frame.insert(1, "rank", np.arange(1, len(frame) + 1))
    return frame


def _rounded(column: pd.Series) -> pd.Series:
    """To nine decimals, of numbers below 1 (seconds a byte) to nine digits: what differs less is the same design."""
    size = np.abs(column.to_numpy(dtype=float))
    small = np.where((size > 0) & (size < 1), 10.0 ** np.floor(np.log10(np.where(size > 0, size, 1.0))), 1.0)
    return (column / small).round(9) * small


def binding(row: pd.Series) -> str:
    """Name what holds a design back: constraints used up, then the largest parts of its time."""
    full = [
        f"{name.removeprefix('limit.').removeprefix('usage.')} {share_text(row[name], 1)}"
        for name in row.index
        if name.startswith("limit.") and row[name] >= BINDS_FROM
    ]
    parts = {name.removeprefix("breakdown_s."): row[name] for name in row.index if name.startswith("breakdown_s.")}
    largest = sorted(parts, key=lambda name: -parts[name])[:2]
    shares = [f"{name} {parts[name] / row['time_s']:.0%} of time" for name in largest if row["time_s"] > 0]
    return "; ".join(full + shares)


def pareto(frame: pd.DataFrame) -> pd.DataFrame:
    """The feasible designs that no other beats in both time and cost."""
    feasible = frame[frame["feasible"]]
    return feasible.iloc[non_dominated_rows(feasible[["time_s", "usd_per_million_tokens"]].to_numpy())]


def placed(problem: Problem, row: pd.Series) -> Scenario:
    """The scenario of one row."""
    columns = {*plan_fields(), *problem.space.hardware}
    point = {
        name.removeprefix("var."): float(row[name])
        for name in row.index
        if name.startswith("var.") and name[4:] in columns
    }
    return problem.space.place(with_numpy(problem.scenario), point)


def ops(scenario: Scenario, account: ScenarioEvaluation | None = None) -> pd.DataFrame:
    """One row per operation of a design: what it does, how long it takes, how well it uses the hardware.

    Args:
        scenario: of the design.
        account: of it, where there is one already.
    """
    account, main_device = account or priced(scenario), scenario.cluster.accelerator.name
    rows: list[dict[str, Any]] = []
    for op, cost in zip(account.ops, account.costs, strict=True):
        count = float(op.count)
        if count == 0 or float(cost.time_s) == 0:
            continue
        once = float(cost.time_s) / count
        row: dict[str, Any] = {"name": op.name, "phase": op.phase, "count": count, "time_s": once}
        row |= {"total_s": float(cost.time_s), "energy_j": float(cost.energy_j)}
        row["repeats"] = float(account.repeats.get(op.phase, 1.0))
        if isinstance(op, ComputeOp):
            flops, nbytes = float(op.work.flops), float(op.work.nbytes)
            row |= {"kind": "compute", "kernel": op.kernel, "number_format": op.number_format, "flops": flops}
            row |= {"nbytes": nbytes, "achieved_flops_per_s": flops / once, "intensity": flops / max(nbytes, 1e-9)}
            accelerator, prefix = computed_by(scenario.cluster, op)
            row |= {"device": accelerator.name + (" (prompts)" if prefix and accelerator.name == main_device else "")}
            row |= {"peak_flops_per_s": float(account.rates[prefix + op.number_format])}
            row |= {"bandwidth_bytes_per_s": float(account.rates[prefix + BANDWIDTH])}
        elif isinstance(op, CommOp):
            row |= {"kind": "communication", "operation": op.operation, "axis": op.axis, "nbytes": float(op.nbytes)}
        else:
            row |= {"kind": "transfer", "nbytes": float(op.nbytes)}
        rows.append(row)
    return pd.DataFrame(rows)


def elasticities(scenario: Scenario, provenance: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """d log metric / d log value for every number of the cluster that matters, with where the number comes from.

    At a kink (communication exactly hidden) the hard model's derivative is one-sided; see the searches for better.
    """
    metrics = shapes_of(_flat, base_of(scenario).account)
    names = tuple(name for name in ELASTICITY_METRICS if name in metrics)
    each = slopes_of(scenario, lambda account: [jnp.log(account.metrics.get(name)) for name in names], "cluster")
    slopes = jax.tree.map(lambda *parts: np.stack(parts), *(tree.cluster for tree in each))
    values = {path: value for path, _, value in walk(scenario.cluster, "cluster")}
    rows: list[dict[str, Any]] = []
    for path, _, slope in walk(slopes, "cluster"):
        value = float(values[path])
        metrics = np.isfinite(np.asarray(slope, dtype=float))  # a metric that is zero has no elasticity
        row = dict(zip(names, np.where(metrics, slope, 0.0) * value, strict=True))
        if not any(abs(e) > 1e-6 for e in row.values()):
            continue
        entry = origin(path, provenance)
        rows.append(
            {"path": path, "value": value, "kind": entry.get("kind", ""), "source": entry.get("source", "")} | row
        )
    frame = pd.DataFrame(rows)
    return frame.sort_values(names[1], key=lambda s: -s.abs()).reset_index(drop=True) if len(frame) else frame


def _flat(account: ScenarioEvaluation) -> dict[str, Array]:
    return account.metrics.flat()


def origin(path: str, provenance: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The provenance entry of a path, or of the nearest parent that has one."""
    while path:
        if path in provenance:
            return provenance[path]
        path = path.rpartition(".")[0]
    return {}


@dataclass
class Results:
    """The frames of one run.

    cables says which cable limits the best design's groups on each routed topology, regret what the best design may
    lose to the others under draws of the model's errors, catalogue what of its hardware is not as products have it,
    errors the strata of cross-validation that its numbers rest on.
    """

    designs: pd.DataFrame
    pareto: pd.DataFrame
    ops: pd.DataFrame
    elasticities: pd.DataFrame
    links: pd.DataFrame = field(default_factory=pd.DataFrame)
    cables: dict[str, str] = field(default_factory=dict[str, str])
    regret: dict[str, Any] = field(default_factory=dict[str, Any])
    catalogue: list[str] = field(default_factory=list[str])
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def best(self) -> pd.Series:
        """The best design, or the least violating one where nothing is feasible."""
        return self.designs.iloc[0]


def collect(problem: Problem, trace: Trace, seed: int, provenance: dict[str, dict[str, Any]]) -> Results:
    """Price what a search kept."""
    frame = designs(problem, trace, seed)
    best = placed(problem, frame.iloc[0])
    table = ops(best)
    links, cables = busy_links(best, table)
    return Results(frame, pareto(frame), table, elasticities(best, provenance), links, cables)


def busy_links(scenario: Scenario, table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Every link of every routed topology under the design's groups, and which cable limits each.

    Args:
        scenario: one design.
        table: its operations, as `ops` lists them.

    Returns:
        (one row per level, axis and link, as `topology.link_columns`; "level: axis" -> a sentence), the axes with
        most communication first; both empty where no level is a routed topology.
    """
    cluster, frames = scenario.cluster, list[pd.DataFrame]()
    cables: dict[str, str] = {}
    routed = {name: _routed(cluster.network[name].fabric) for name in cluster.levels}
    if not any(routed.values()):
        return pd.DataFrame(), {}
    for axis in _axes_by_time(table):
        parts = stages([cluster.network[name] for name in cluster.levels], scenario.layout.group(axis))
        for name, part in zip(cluster.levels, parts, strict=True):
            fabric = routed[name]
            if fabric is None or float(part.group.size) <= 1:
                continue
            topology, load = fabric.group_load(float(part.group.size), float(part.group.stride))
            frames.append(pd.DataFrame({"level": name, "axis": axis} | link_columns(topology, load)))
            text = f"{float(part.group.size):g} devices, {float(part.group.stride):g} apart: {limit(topology, load)}"
            cables[f"{name}: {axis}"] = text
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), cables


def _routed(fabric: AbstractFabric) -> RoutedTopology | None:
    """The routed topology that a fabric is or wraps."""
    while not isinstance(fabric, RoutedTopology):
        inner = getattr(fabric, "inner", None)
        if inner is None:
            return None
        fabric = inner
    return fabric


def _axes_by_time(table: pd.DataFrame) -> list[str]:
    """Mesh axes that communicate, the one with most seconds first."""
    if "axis" not in table:
        return []
    seconds = (table["total_s"] * table["repeats"]).groupby(table["axis"]).sum()
    return [str(axis) for axis in seconds.sort_values(ascending=False, kind="stable").index]
