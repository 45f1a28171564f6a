"""Every plan for every class on one kind of accelerator: requests/s within the class's SLO, and cost, of a replica.

All plans of all classes of one percentile are rows of one traced program: they differ in numbers alone. The rate that
a plan keeps an SLO at is a root, and only the largest one of each size counts. So roots are found for some of the
plans; the others are evaluated once, at the best rate so far: who does not keep the SLO there keeps it at no larger
rate, since times grow with the rate. Of a dense model a replica is the devices of one copy of the weights: a plan on
more of them is several replicas, which the assignment counts.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..config import Study, study_from_config
from ..config.consistency import at_rate, box_of
from ..config.device_counts import least_devices
from ..core.errors import ConfigError
from ..core.fields import replace, with_numpy
from ..model.metrics import ScenarioEvaluation
from ..model.metrics.money import device_idle_w
from ..model.ownership import Cloud
from ..model.scenario import Scenario
from ..model.workloads.goodput import ENGINE, AbstractGoodputServing
from ..search.assignment import DeviceKind, PoolOption
from ..staging import Blocks, base_of, model_of, running
from ..study import Continuous, DesignSpace
from ..study.objective import feasible
from ..uncertainty.metrics import under_draws
from .fleet_classes import FleetClass

__all__ = [
    "ClassOptions",
    "KindOptions",
    "composed_on",
    "device_kind",
    "numbers_at_once",
    "options_on",
    "placed",
    "replica_plans",
    "replica_sizes",
    "slopes",
    "sustained_rates",
]

BLOCK = 262_144
CHUNK = 6000  # rows at a time: arrays of them stay in a cache, and calling NumPy costs little beside them
DRAWS = 100
NEXT = 4  # plans of a size, the fastest ones, that are looked at in draws
STEP = 0.01  # of a limit, or of all prompt tokens, over which its worth is measured
MOVES = {"ttft_s": "workload.slo.ttft_s", "tpot_s": "workload.slo.tpot_s", "cached": "workload.cached_ratio"}
SMALLEST = 1e-5  # relative change of a rate that is one


class ClassOptions(NamedTuple):
    """Plans of one class on one kind: of each size that which serves most, and how many were looked at.

    plans: field -> values; alone: used shares of the limits (ttft, tpot) in the plan that is nearest to keeping them,
    where none does; fits: plans whose rate was asked for and that fit into memory; within_limits: those of them that
    keep the SLO at some rate.
    """

    request_class: FleetClass
    options: list[PoolOption]
    plans: list[dict[str, float]]
    scenario: Scenario
    looked_at: int
    fits: int
    within_limits: int
    alone: tuple[float, float]


class KindOptions(NamedTuple):
    """A kind of device and the options of each class on it."""

    kind: DeviceKind
    classes: list[ClassOptions]
    overrides: dict[float, list[str]]  # attainment -> what its study is composed of


def replica_sizes(box: int, least: float, named: Sequence[int] = ()) -> list[int]:
    """Devices of a replica: parts of a box, each a multiple of the one before, and whole boxes.

    Args:
        box: devices of a box.
        least: devices below which the weights do not fit.
        named: sizes that were asked for.

    Raises:
        ConfigError: sizes that do not fill boxes without a gap.
    """
    parts, left = [1], box
    for factor in range(2, box + 1):
        while left % factor == 0:
            left //= factor
            parts.append(parts[-1] * factor)
    sizes = sorted(named) or [size for size in [*parts, 2 * box, 4 * box] if size >= least]
    if not named:
        sizes = [size for size in sizes if size <= max(box, 2 * sizes[0] if sizes else 0)]
    small = [size for size in sizes if size < box]
    wrong = [b for a, b in zip(small, [*small[1:], box], strict=True) if b % a] if small else []
    wrong += [size for size in sizes if size > box and size % box]
    if wrong or not sizes:
        raise ConfigError(
            f"--devices {','.join(map(str, named)) or 'none'}: replicas have to fill boxes of {box}: sizes that divide"
            f" one another and {box}, or whole boxes, such as {','.join(map(str, [*parts, 2 * box]))}"
        )
    return sizes


def options_on(
    kind: str, classes: Sequence[FleetClass], overrides: Sequence[str], workload: str, *,
    sizes: Sequence[int] = (), owned: int = 0, most: int | None = None, confidence: float = 0.0,
) -> KindOptions:  # fmt: skip
    """All plans of all classes on one kind of device.

    Args:
        kind: the accelerator.
        classes: of requests.
        overrides: of the configuration, the same for all.
        workload: its name.
        sizes: devices of a replica; none: those that fill boxes.
        owned: devices that are there already.
        most: devices that can be bought.
        confidence: share of the draws of the model's errors in which a rate is kept; 0: the rate at the centre.

    Raises:
        ConfigError: a count of devices that is no number of boxes, or anything wrong in the configuration.
    """
    composed = composed_on(kind, [each.attainment for each in classes], overrides, workload, sizes)
    result, bought = list[ClassOptions](), None
    for share, texts in composed.items():
        study = study_from_config(*texts)
        result += _of_classes(kind, [one for one in classes if one.attainment == share], study, confidence)
        if bought is None:
            bought = device_kind(kind, study, owned, most)
    assert bought is not None
    return KindOptions(bought, result, composed)


def composed_on(
    kind: str, shares: Sequence[float], overrides: Sequence[str], workload: str, sizes: Sequence[int] = ()
) -> dict[float, list[str]]:
    """Percentile of a class's limits -> overrides of the study of its plans on a kind of device.

    Args:
        kind: the accelerator.
        shares: percentiles of all classes.
        overrides: of the configuration, the same for all.
        workload: its name.
        sizes: devices of a replica; none: those that fill boxes.
    """
    result = dict[float, list[str]]()
    for share in dict.fromkeys(shares):
        base = [f"accelerator={kind}", f"workload={workload}", "space=every_serving_plan", "search=grid", *overrides,
                f"workload.slo.attainment={share!r}"]  # fmt: skip
        first = study_from_config(*base).scenario
        counts = replica_sizes(_box_of(first), least_devices(first, 0.0), sizes)
        result[share] = [*base, f"+space.plan.device_count={counts}".replace(" ", "")]
    return result


def _box_of(scenario: Scenario) -> int:
    cluster = scenario.cluster
    return int(box_of(cluster.network[cluster.levels[0]].fabric)) if len(cluster.levels) > 1 else 1


def device_kind(kind: str, study: Study, owned: int, most: int | None) -> DeviceKind:
    """A kind of device as an assignment sees it.

    Args:
        kind: its name.
        study: of plans on it, with sizes of a replica.
        owned: devices that are there already.
        most: devices that can be bought.

    Raises:
        ConfigError: a count of devices that is no number of boxes, or owned ones where all are rented.
    """
    box, count = _box_of(study.scenario), int(max(study.space.plan["device_count"]))
    for option, devices in (("--own", owned), ("--most", most or 0)):
        if devices % box:
            raise ConfigError(
                f"{option} {kind}={devices}: whole boxes of {box}, such as {box * math.ceil(devices / box)}"
            )
    scenario = replace(study.scenario, {"plan.device_count": float(count)})
    if owned and isinstance(scenario.cluster.facility.ownership, Cloud):
        raise ConfigError(f"--own {kind}={owned}: what is rented is not owned: leave out --region and ownership=cloud")
    facility, one, none = scenario.cluster.facility, jnp.asarray(1.0), jnp.asarray(0.0)
    devices = jnp.asarray(float(count))
    result = numbers_at_once(
        [scenario], lambda account: [account.metrics.capex_usd, account.metrics.provisioned_power_w]
    )
    capex, watts = (float(column[0]) for column in result)
    held = float(facility.usd(jnp.asarray(capex), devices, one, none)) / count
    owned_usd_per_s = float(facility.usd(none, devices, one, none)) / count
    return DeviceKind(
        kind,
        box,
        held,
        owned_usd_per_s,
        capex / count,
        watts / count,
        owned // box,
        None if most is None else most // box,
    )


def _of_classes(kind: str, classes: Sequence[FleetClass], study: Study, confidence: float) -> list[ClassOptions]:
    """All legal plans of classes that differ in numbers alone.

    First some of the plans, with the rate that each keeps the SLO at; then whether the others keep it at the best rate
    of their class and size so far, one evaluation each; then the rates of those that do.
    """
    scenarios = [replace(study.scenario, one.leaves) for one in classes]
    space = study.space.settled(scenarios[0])
    rows = _PlanRows.of([replica_plans(space.plans(scenario)) for scenario in scenarios], classes)
    pricing = _Pricing(study, space)
    some = rows.sample()
    result = np.full((len(PRICED), len(rows)), np.nan)
    result[:, some] = pricing(rows, some)
    best = rows.best(result)
    left = np.flatnonzero(~np.isin(np.arange(len(rows)), some))
    if len(left):
        after = left[pricing.keeps(rows, left, best[rows.group[left]])]
        if len(after):
            result[:, after] = pricing(rows, after)
    lost = np.flatnonzero(
        [not (rows.feasible_plans(result) & (rows.owner == index)).any() for index in range(len(classes))]
    )
    for class_index in lost:  # by how much a class misses its limits is asked of all of its plans
        rest = np.flatnonzero((rows.owner == class_index) & np.isnan(result[0]))
        if len(rest):
            result[:, rest] = pricing(rows, rest)
    return [
        _class_options(kind, one, scenarios[index], rows, result, index, confidence)
        for index, one in enumerate(classes)
    ]


class _PlanRows(NamedTuple):
    """Plans of all classes, one after the other: columns of plan fields and of class numbers, and whose each is.

    group: number of (class, devices of a replica).
    """

    plans: dict[str, np.ndarray]
    numbers: dict[str, np.ndarray]
    owner: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, plans: Sequence[dict[str, np.ndarray]], classes: Sequence[FleetClass]) -> "_PlanRows":
        """Rows of each class's legal plans."""
        sizes = [len(each["device_count"]) for each in plans]
        owner = np.repeat(np.arange(len(classes)), sizes)
        joined = {name: np.concatenate([each[name] for each in plans]) for name in plans[0]}
        numbers = {path: np.repeat([one.leaves[path] for one in classes], sizes) for path in classes[0].leaves}
        _, group = np.unique(np.stack([owner, joined["device_count"]]), axis=1, return_inverse=True)
        return cls(joined, numbers, owner, group.ravel())

    def __len__(self) -> int:
        return len(self.owner)

    def sample(self) -> np.ndarray:
        """Places of some plans of every class and size: few batches and budgets of each."""
        chosen = np.ones(len(self), bool)
        for name, every, first in (("micro_batch", 2, 1), ("token_budget", 4, 2)):
            if name in self.plans:
                order = np.unique(self.plans[name], return_inverse=True)[1].ravel()
                chosen &= order % every == first % every
        for group in np.setdiff1d(self.group, self.group[chosen]):
            chosen[np.flatnonzero(self.group == group)] = True
        return np.flatnonzero(chosen)

    def feasible_plans(self, priced: np.ndarray) -> np.ndarray:
        """True for plans that keep the SLO at their rate."""
        rate = priced[PRICED.index("rate")]
        return feasible(np.nan_to_num(priced[0], nan=np.inf)) & np.isfinite(rate) & (rate > 0)

    def best(self, priced: np.ndarray) -> np.ndarray:
        """The largest rate of each class and size so far; next to nothing where there is none."""
        rates = np.where(self.feasible_plans(priced), priced[PRICED.index("rate")], LEAST_RATE)
        most = np.full(int(self.group.max()) + 1, LEAST_RATE)
        np.maximum.at(most, self.group, rates)
        return most


PRICED = ("excess", "ttft", "tpot", "rate", "usd", "capex", "watts", "memory")
LEAST_RATE = 1e-6  # requests/s
NEAR = 1e-6  # relative, of a rate: a root's rounding


class _Pricing:
    """Programs of a study over rows of plans and class numbers."""

    def __init__(self, study: Study, space: DesignSpace) -> None:
        self.study, self.space = study, space

    def __call__(self, rows: _PlanRows, which: np.ndarray) -> np.ndarray:
        """Numbers of `PRICED` of these rows, each plan at the largest rate that keeps its class's SLO."""
        objective = self.study.objective

        def outputs(answers: Any) -> list[Any]:
            metrics = answers.metrics
            limits = [metrics.usage[f"{ENGINE}.{name}"] for name in ("ttft", "tpot")]
            return [objective.excess(metrics), *limits, *_replica_numbers(answers.account), _memory(metrics)]

        return self._columns(self.study.scenario, rows, which, rows.numbers, outputs)

    def keeps(self, rows: _PlanRows, which: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """True for rows that keep the limits of their class at a rate."""
        work = self.study.scenario.workload
        assert isinstance(work, AbstractGoodputServing)
        scenario = dataclasses.replace(self.study.scenario, workload=at_rate(work, 1.0))
        share = f"p{100 * work.slo.attainment:.0f}"

        def outputs(answers: Any) -> list[Any]:
            metrics = answers.metrics
            engine = [used for name, used in metrics.usage.items() if name.startswith(ENGINE)]
            times = [metrics.extra[f"{name}_{share}_s"] for name in ("ttft", "tpot")]
            return [*times, jnp.stack(engine).max(), _memory(metrics)]

        numbers = {path: values for path, values in rows.numbers.items() if ".slo." not in path}
        column = np.ones(len(rows))
        column[which] = rate * (1 - NEAR)
        numbers["workload.arrivals_per_s"] = column
        ttft, tpot, engine, memory = self._columns(scenario, rows, which, numbers, outputs)
        limits = [rows.numbers[f"workload.slo.{name}_s"][which] for name in ("ttft", "tpot")]
        used = np.stack([ttft / limits[0], tpot / limits[1], engine, memory])
        return (np.nan_to_num(used, nan=np.inf).max(0)) <= 1 + NEAR

    def _columns(
        self, scenario: Scenario, rows: _PlanRows, which: np.ndarray, numbers: dict[str, np.ndarray], outputs: Any
    ) -> np.ndarray:
        """Outputs of a program, [outputs, rows]: class numbers are fields beside those of the plan."""
        names = {path: path.replace(".", "_") for path in numbers}
        moved = {names[path]: Continuous(path, 1e-12, 1e12) for path in numbers}
        space = dataclasses.replace(self.space, hardware=moved, given=tuple(moved))
        model = model_of(scenario, space, tuple(rows.plans))
        program = model.program_of(outputs)
        by_name = {names[path]: values for path, values in numbers.items()}
        flat = model._replace(fields=(*model.fields, *model.variables), variables=())
        parts: list[np.ndarray] = []
        for chunk in np.array_split(which, max(1, -(-len(which) // CHUNK))):
            table = {name: values[chunk] for name, values in rows.plans.items()}
            table |= {name: by_name[name][chunk] for name in model.variables}
            blocks = Blocks(flat, program, scenario, table, [], BLOCK)
            for first in range(0, len(chunk), blocks.tall):
                width = min(blocks.tall, len(chunk) - first)
                result = blocks(np.arange(first, first + width), 0, 1)
                parts.append(np.stack([np.broadcast_to(np.ravel(each), width) for each in result]))
        return np.concatenate(parts, axis=1)


def _memory(metrics: Any) -> Any:
    """The largest used share of a memory tier."""
    shares = [share for tier, share in metrics.usage.items() if not tier.startswith(ENGINE)]
    return jnp.stack([jnp.asarray(0.0), *shares]).max()


def _class_options(
    kind: str,
    one: FleetClass,
    scenario: Scenario,
    rows: _PlanRows,
    priced_rows: np.ndarray,
    class_index: int,
    confidence: float,
) -> ClassOptions:
    """Options of a class: of each size the plan that serves most."""
    in_class = rows.owner == class_index
    keeps, (_, ttft, tpot, rate, usd, capex, _, memory) = rows.feasible_plans(priced_rows) & in_class, priced_rows
    priced = in_class & ~np.isnan(priced_rows[0])
    fits = priced & feasible(memory - 1)
    alone = (math.inf, math.inf)
    if fits.any():
        nearest = int(np.argmin(np.where(fits, np.maximum(ttft, tpot), np.inf)))
        alone = (float(ttft[nearest]), float(tpot[nearest]))
    facility, none = scenario.cluster.facility, jnp.asarray(0.0)
    count = rows.plans["device_count"]
    held = np.asarray(facility.usd(jnp.asarray(capex), jnp.asarray(count), jnp.asarray(1.0), none))
    electricity = np.maximum(usd - held, 0.0)
    chosen: list[int] = []
    for size in np.unique(count[keeps]):
        same = np.flatnonzero(keeps & (count == size))
        chosen += same[np.lexsort((electricity[same], -rate[same]))][: NEXT if confidence else 1].tolist()
    plans = [{name: float(values[at]) for name, values in rows.plans.items()} for at in chosen]
    rates = rate[chosen]
    if confidence and chosen:
        rates = sustained_rates(scenario, plans, rates, confidence)
        others = _of_every_batch(rows, np.flatnonzero(keeps), rate, chosen, rates)
        if others:  # the fastest at the centre may be those with the least room
            more = [{name: float(values[at]) for name, values in rows.plans.items()} for at in others]
            rates = np.concatenate([rates, sustained_rates(scenario, more, rate[others], confidence)])
            chosen, plans = [*chosen, *others], [*plans, *more]
        best = {round(plans[at]["device_count"]): at for at in np.argsort(rates, kind="stable")}
        places = sorted(best.values())
        chosen, plans, rates = [chosen[at] for at in places], [plans[at] for at in places], rates[places]
    idle = _idle_usd_per_s(scenario)
    options = [
        PoolOption(one.name, kind, round(row["device_count"]), float(good), float(electricity[at]),
                   min(idle * row["device_count"], float(electricity[at])))
        for at, row, good in zip(chosen, plans, rates, strict=True)
    ]  # fmt: skip
    some = [at for at, option in enumerate(options) if option.rate > 0]
    return ClassOptions(
        one, [options[at] for at in some], [plans[at] for at in some], scenario, int(in_class.sum()), int(fits.sum()),
        int(keeps.sum()), alone,
    )  # fmt: skip


def _of_every_batch(
    rows: _PlanRows, keeps: np.ndarray, rate: np.ndarray, chosen: list[int], batch_rates: np.ndarray
) -> list[int]:
    """The fastest plan of every batch, of sizes of which none of the chosen plans keeps its limits at any rate."""
    count, batch = rows.plans["device_count"], rows.plans["micro_batch"]
    served = np.unique(count[[at for at, good in zip(chosen, batch_rates, strict=True) if good > 0]])
    left = keeps[~np.isin(count[keeps], served)]
    fastest = {(count[at], batch[at]): int(at) for at in left[np.argsort(rate[left], kind="stable")]}
    return sorted({*fastest.values()} - {*chosen})


def _idle_usd_per_s(scenario: Scenario) -> float:
    """Electricity of a device that computes nothing, dollars/s: no plan draws less."""
    facility = scenario.cluster.facility
    none = jnp.asarray(0.0)
    joules = facility.pue * device_idle_w(scenario.cluster)
    return float(facility.usd(none, none, none, joules))


def _replica_numbers(account: ScenarioEvaluation) -> list[Any]:
    """Requests/s, dollars/s, capital and provisioned watts."""
    metrics = account.metrics
    usd = metrics.usd_per_million_tokens * metrics.tokens_per_s / 1e6
    return [metrics.extra["requests_per_s"], usd, metrics.capex_usd, metrics.provisioned_power_w]


def replica_plans(plans: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Plans without those that are several replicas which share nothing."""
    model_shards = plans["tp"] * plans["pp"]
    one, none = np.ones_like(model_shards), np.zeros_like(model_shards)
    etp = plans.get("etp", none)
    sharing = plans.get("ep", one) * np.where(etp > 0, etp, plans["tp"]) / plans["tp"]
    several = (plans["device_count"] > model_shards) & (sharing <= 1)
    return {name: np.asarray(values, float)[~several] for name, values in plans.items()}


def numbers_at_once(
    scenarios: Sequence[Scenario], function: Callable[[ScenarioEvaluation], Sequence[Array]]
) -> list[np.ndarray]:
    """Numbers of several scenarios of one structure, a column each."""
    plain = [with_numpy(scenario) for scenario in scenarios]
    program = base_of(plain[0]).program_of(function)
    kinds = (program.kinds[slot] for slot in program.inputs)
    leaves = zip(*(jax.tree.leaves(scenario) for scenario in plain), strict=True)
    columns = [np.stack([np.asarray(each) for each in leaf], axis=-1) for leaf in leaves]
    values = running(program)(*(np.asarray(leaf, dtype=kind) for leaf, kind in zip(columns, kinds, strict=True)))
    return [np.broadcast_to(np.asarray(value, float), (len(plain),)) for value in values]


def placed(scenario: Scenario, plan: dict[str, float]) -> Scenario:
    """The scenario with a plan of the options."""
    return replace(scenario, {f"plan.{name}": value for name, value in plan.items()})


def sustained_rates(
    scenario: Scenario, plans: list[dict[str, float]], centre: np.ndarray, confidence: float
) -> np.ndarray:
    """Requests/s that each plan keeps the SLO at in this share of the draws, at most those at the centre.

    A draw in which a plan does not fit, or keeps the SLO at no rate, counts as none.
    """

    def outputs(account: ScenarioEvaluation) -> dict[str, Any]:
        metrics = account.metrics
        worst = jnp.stack(list(metrics.usage.values())).max()
        return {"rate": jnp.where(feasible(worst - 1), metrics.extra["requests_per_s"], 0.0)}

    drawn = under_draws([placed(scenario, plan) for plan in plans], outputs, DRAWS)["rate"]
    return np.minimum(centre, np.quantile(drawn, 1 - confidence, axis=-1, method="lower"))


def slopes(one: ClassOptions, plan: dict[str, float], name: str) -> float:
    """Requests/s that one unit more of a number of its class brings a plan: a difference over a small step.

    0 where it is rounding of the root: a limit that does not bind.

    Args:
        one: the class.
        plan: of its options.
        name: `ttft_s` or `tpot_s`, around its value; `cached`, from its value on.
    """
    value = float(getattr(one.request_class, name))
    step = STEP if name == "cached" else STEP * value
    ends = (value, value + step) if name == "cached" else (value - step, value + step)
    pair = [replace(placed(one.scenario, plan), {MOVES[name]: end}) for end in ends]
    low, high = numbers_at_once(pair, lambda account: [account.metrics.extra["requests_per_s"]])[0]
    return float((high - low) / (ends[1] - ends[0])) if high > low * (1 + SMALLEST) else 0.0
