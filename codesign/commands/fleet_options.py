"""Every plan for every class on one kind of accelerator: requests/s within the class's SLO, and cost, of a replica.

All plans of a class are one pass of one traced program, and all classes of one percentile share it: they differ in
numbers alone. Of a dense model a replica is the devices of one copy of the weights: a plan on more of them is several
replicas, which the assignment counts.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..config import Study, study_from_config
from ..config.consistency import box_of
from ..config.device_counts import least_devices
from ..core.errors import ConfigError
from ..core.fields import replace, with_numpy
from ..model.metrics import Account
from ..model.metrics.money import device_idle_w
from ..model.ownership import Cloud
from ..model.scenario import Scenario
from ..model.workloads.under_load import ENGINE
from ..search.assignment import DeviceKind, PoolOption
from ..staging import Blocks, base_of, model_of, running
from ..study.objective import feasible
from ..uncertainty.metrics import under_draws
from .fleet_classes import FleetClass

__all__ = ["ClassOptions", "KindOptions", "numbers_at_once", "options_on", "placed", "replica_sizes", "slopes"]

BLOCK = 262_144
DRAWS = 100
NEXT = 4  # plans of a size, the fastest ones, that are looked at in draws
STEP = 0.01  # of a limit, by which its worth is measured
COLUMNS = ("rate", "usd_per_s", "capex_usd", "watts")


class ClassOptions(NamedTuple):
    """Plans of one class on one kind: of each size that which serves most, and how many were looked at.

    plans: field -> values; alone: least used shares of (ttft, tpot) of a request that is alone, over all plans that
    fit; fits: plans that fit into memory; kept: those that keep the SLO at some rate.
    """

    request_class: FleetClass
    options: list[PoolOption]
    plans: list[dict[str, float]]
    scenario: Scenario
    looked_at: int
    fits: int
    kept: int
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
    found, bought, composed = list[ClassOptions](), None, dict[float, list[str]]()
    for share in dict.fromkeys(each.attainment for each in classes):
        base = [f"accelerator={kind}", f"workload={workload}", "space=every_serving_plan", "search=grid", *overrides,
                f"workload.slo.attainment={share!r}"]  # fmt: skip
        first = study_from_config(*base).scenario
        box = _box_of(first)
        counts = replica_sizes(box, least_devices(first, 0.0), sizes)
        composed[share] = [*base, f"+space.plan.device_count={counts}".replace(" ", "")]
        study = study_from_config(*composed[share])
        for one in classes:
            if one.attainment == share:
                found.append(_of_class(kind, one, study, confidence))
        if bought is None:
            bought = _device_kind(kind, study, box, max(counts), owned, most)
    assert bought is not None
    return KindOptions(bought, found, composed)


def _box_of(scenario: Scenario) -> int:
    cluster = scenario.cluster
    return int(box_of(cluster.network[cluster.levels[0]].fabric)) if len(cluster.levels) > 1 else 1


def _device_kind(kind: str, study: Study, box: int, count: int, owned: int, most: int | None) -> DeviceKind:
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
    found = numbers_at_once(
        [scenario], lambda account: [account.metrics.capex_usd, account.metrics.provisioned_power_w]
    )
    capex, watts = (float(column[0]) for column in found)
    held = float(facility.usd(jnp.asarray(capex), devices, one, none)) / count
    kept = float(facility.usd(none, devices, one, none)) / count
    return DeviceKind(
        kind, box, held, kept, capex / count, watts / count, owned // box, None if most is None else most // box
    )


def _of_class(kind: str, one: FleetClass, study: Study, confidence: float) -> ClassOptions:
    """All legal plans of a class."""
    scenario = replace(study.scenario, one.leaves)
    space = study.space.settled(scenario)
    plans = _replicas(space.plans(scenario))
    model = model_of(scenario, space, tuple(plans))
    objective = study.objective
    names = ("ttft", "tpot")

    def asked(answers: Any) -> list[Any]:
        metrics = answers.metrics
        memory = [share for tier, share in metrics.usage.items() if not tier.startswith(ENGINE)]
        return [
            objective.excess(metrics), *(metrics.usage[f"{ENGINE}.{name}"] for name in names),
            *_replica_numbers(answers.account), jnp.stack([jnp.asarray(0.0), *memory]).max(),
        ]  # fmt: skip

    blocks = Blocks(model, model.asked(asked), scenario, plans, [], BLOCK)
    count = len(next(iter(plans.values())))
    parts = [blocks(np.arange(first, min(first + blocks.tall, count)), 0, 1) for first in range(0, count, blocks.tall)]
    widths = [min(blocks.tall, count - first) for first in range(0, count, blocks.tall)]
    columns = [
        np.concatenate([np.broadcast_to(np.ravel(part[row]), width) for part, width in zip(parts, widths, strict=True)])
        for row in range(len(parts[0]))
    ]
    excess, ttft, tpot, rate, usd, capex, _, memory = columns
    fits, keeps = feasible(memory - 1), feasible(excess) & np.isfinite(rate) & (rate > 0)
    alone = [float(np.min(each[fits])) if fits.any() else math.inf for each in (ttft, tpot)]
    worst = np.where(fits, np.maximum(ttft, tpot), np.inf)
    if not keeps.any() and fits.any():
        at = int(np.argmin(worst))
        alone = [float(ttft[at]), float(tpot[at])]
    facility = scenario.cluster.facility
    none = jnp.asarray(0.0)
    held = np.asarray(facility.usd(jnp.asarray(capex), jnp.asarray(plans["device_count"]), jnp.asarray(1.0), none))
    electricity = np.maximum(usd - held, 0.0)
    chosen: list[int] = []
    for size in np.unique(plans["device_count"]):
        own = np.flatnonzero(keeps & (plans["device_count"] == size))
        chosen += own[np.lexsort((electricity[own], -rate[own]))][: NEXT if confidence else 1].tolist()
    rows = [{name: float(values[place]) for name, values in plans.items()} for place in chosen]
    rates = rate[chosen]
    if confidence and chosen:
        rates = _kept_rates(scenario, rows, rates, confidence)
        best = {round(rows[place]["device_count"]): place for place in np.argsort(rates, kind="stable")}
        places = sorted(best.values())
        chosen, rows, rates = [chosen[at] for at in places], [rows[at] for at in places], rates[places]
    idle = _idle_usd_per_s(scenario)
    options = [
        PoolOption(one.name, kind, round(row["device_count"]), float(good), float(electricity[place]),
                   min(idle * row["device_count"], float(electricity[place])))
        for place, row, good in zip(chosen, rows, rates, strict=True)
    ]  # fmt: skip
    some = [place for place, option in enumerate(options) if option.rate > 0]
    return ClassOptions(
        one, [options[place] for place in some], [rows[place] for place in some], scenario, count,
        int(np.sum(fits)), int(np.sum(keeps)), (alone[0], alone[1]),
    )  # fmt: skip


def _idle_usd_per_s(scenario: Scenario) -> float:
    """Electricity of a device that computes nothing, dollars/s: no plan draws less."""
    facility = scenario.cluster.facility
    none = jnp.asarray(0.0)
    joules = facility.pue * device_idle_w(scenario.cluster)
    return float(facility.usd(none, none, none, joules))


def _replica_numbers(account: Account) -> list[Any]:
    """Requests/s, dollars/s, capital and provisioned watts."""
    metrics = account.metrics
    usd = metrics.usd_per_million_tokens * metrics.tokens_per_s / 1e6
    return [metrics.extra["requests_per_s"], usd, metrics.capex_usd, metrics.provisioned_power_w]


def _replicas(plans: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Plans without those that are several replicas which share nothing."""
    own = plans["tp"] * plans["pp"]
    several = (plans["device_count"] > own) & (plans.get("ep", np.ones_like(own)) <= 1)
    return {name: np.asarray(values, float)[~several] for name, values in plans.items()}


def numbers_at_once(scenarios: Sequence[Scenario], function: Any) -> list[np.ndarray]:
    """Numbers of several scenarios of one structure, a column each."""
    plain = [with_numpy(scenario) for scenario in scenarios]
    program = base_of(plain[0]).asked(function)
    kinds = (program.kinds[slot] for slot in program.inputs)
    leaves = zip(*(jax.tree.leaves(scenario) for scenario in plain), strict=True)
    columns = [np.stack([np.asarray(each) for each in leaf], axis=-1) for leaf in leaves]
    values = running(program)(*(np.asarray(leaf, dtype=kind) for leaf, kind in zip(columns, kinds, strict=True)))
    return [np.broadcast_to(np.asarray(value, float), (len(plain),)) for value in values]


def placed(scenario: Scenario, plan: dict[str, float]) -> Scenario:
    """The scenario with a plan of the options."""
    return replace(scenario, {f"plan.{name}": value for name, value in plan.items()})


def _kept_rates(scenario: Scenario, plans: list[dict[str, float]], centre: np.ndarray, confidence: float) -> np.ndarray:
    """Requests/s that each plan keeps the SLO at in this share of the draws, at most those at the centre.

    A draw in which a plan does not fit, or keeps the SLO at no rate, counts as none.
    """

    def asked(account: Account) -> dict[str, Any]:
        metrics = account.metrics
        worst = jnp.stack(list(metrics.usage.values())).max()
        return {"rate": jnp.where(feasible(worst - 1), metrics.extra["requests_per_s"], 0.0)}

    drawn = under_draws([placed(scenario, plan) for plan in plans], asked, DRAWS)["rate"]
    return np.minimum(centre, np.quantile(drawn, 1 - confidence, axis=-1, method="lower"))


def slopes(one: ClassOptions, plan: dict[str, float], limit: str) -> float:
    """Requests/s that a second more of a limit (`ttft_s`, `tpot_s`) brings a plan: a central difference."""
    value = float(getattr(one.request_class, limit))
    path = f"workload.slo.{limit}"
    pair = [replace(placed(one.scenario, plan), {path: value * factor}) for factor in (1 - STEP, 1 + STEP)]
    low, high = numbers_at_once(pair, lambda account: [account.metrics.extra["requests_per_s"]])[0]
    return float((high - low) / (2 * STEP * value))
