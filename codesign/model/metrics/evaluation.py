"""evaluate(scenario) -> Metrics: pure, jittable, vmappable, differentiable in every leaf."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.computed_once import computing_once, one_call
from ...core.cost import Cost
from ...core.errors import ConfigError, suggestion
from ...core.fields import Module, static
from ...core.jax_typed import asarray
from ...core.json_yaml import is_mapping
from ...core.pretty import fields_text, html_table, number_text
from ...core.smooth import ratio, reads_hard, used_share
from ...jaxprs.evaluator import interpreted
from ...jaxprs.partial_evaluation import partially_evaluated
from ..hardware import Accelerator
from ..networks.fabrics import Group
from ..networks.fabrics.path_energy import PathEnergy, PathShares
from ..scenario import Cluster, Scenario
from ..workloads import CommOp, ComputeOp, Layout, Op
from ..workloads.schedule import FFN, KV_TRANSFER, LATER, PREFILL, Timeline
from .cache_placement import placed
from .footprint import engine_limits, memory_by_class, memory_limits, per_tier
from .money import (
    StepCost,
    device_capex_usd,
    device_idle_w,
    device_provisioned_w,
    ffn_pool,
    later_pool,
    lifetime,
    lifetime_limits,
    own_devices,
    prefill_pool,
    summed,
    with_spares,
)

# The traffic ledger: how many bytes each parallelism scheme moves over which class of path, and what they cost.
#
# What an algorithm of minimal volume puts on the wire, from the same operations that are timed.


SCHEMES = {"data": "dp", "expert_data": "dp"}
"""Mesh axes that are booked under another scheme's name."""

SENT: dict[str, Callable[[Array], Array]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send": lambda n: jnp.where(n > 1, 1.0, 0.0),
}
"""Bytes a member sends per byte of the operation."""


class Entry(Module):
    """Bytes that one scheme moves in a step or batch, on all devices, by class of path."""

    tray: Float[Array, "*b"]
    rack: Float[Array, "*b"]
    inter_rack: Float[Array, "*b"]
    offload: Float[Array, "*b"]

    def __add__(self, other: "Entry") -> "Entry":
        return Entry(*(mine + theirs for mine, theirs in zip(self._all(), other._all(), strict=True)))

    def _all(self) -> tuple[Array, Array, Array, Array]:
        return self.tray, self.rack, self.inter_rack, self.offload

    def total_bytes(self) -> Array:
        """Bytes over every path."""
        return self.tray + self.rack + self.inter_rack + self.offload

    def energy_j(self, paths: PathEnergy) -> Array:
        """Joules of the adapters and switches on the way; memories and arithmetic are counted where they work."""
        each = paths.j_per_byte()
        return sum((getattr(self, name) * joules for name, joules in each.items()), asarray(0.0))


def spread(nbytes: Array, shares: PathShares) -> Entry:
    """Bytes between accelerators, divided over the classes of path."""
    return Entry(nbytes * shares.tray, nbytes * shares.rack, nbytes * shares.inter_rack, 0.0 * nbytes)


def offloaded(nbytes: Array) -> Entry:
    """Bytes to or from memory that is no accelerator's own."""
    none = 0.0 * nbytes
    return Entry(none, none, none, nbytes)


def ledger(scenario: Scenario, paths: PathEnergy, ops: Sequence[Op] | None = None) -> dict[str, Entry]:
    """Scheme (tp, cp, ep, dp, pp, offload, kv_transfer) -> bytes by class of path, of one step or batch on all devices.

    Rings and pipelines talk to the next member, all-to-alls to every peer; groups lie as the layout numbers its ranks.
    A prefill pool stands in racks of its own, numbered alike; caches leave it for other racks.

    Args:
        scenario: what moves them.
        paths: where trays and racks end.
        ops: what the workload lowers to, where that is known already.
    """
    full_layout = scenario.layout
    repeats = scenario.workload.repeats(full_layout)
    booked: dict[str, Entry] = {}
    for op in scenario.workload.lower(full_layout) if ops is None else ops:
        apart = scenario.cluster.prefill is not None and op.phase in (*PREFILL, KV_TRANSFER)
        layout = full_layout.prefill if apart else full_layout
        times = layout.devices * repeats.get(op.phase, 1.0)
        if isinstance(op, ComputeOp):
            continue
        if op.phase == KV_TRANSFER:
            none, nbytes = asarray(0.0), times * op.count * op.nbytes
            name, entry = KV_TRANSFER, spread(nbytes, PathShares(none, none, asarray(1.0)))
        elif isinstance(op, CommOp):
            group = layout.group(op.axis)
            nbytes = times * op.count * op.nbytes * SENT[op.operation](group.size)
            if op.axis == "pp":  # the last stage of a pipeline has nobody to send to
                nbytes = nbytes * (group.size - 1) / group.size
            name, entry = SCHEMES.get(op.axis, op.axis), spread(nbytes, _place(op, group, paths))
        else:
            name, entry = "offload", offloaded(times * op.count * op.nbytes)
        booked[name] = booked[name] + entry if name in booked else entry
    return booked


def moved(scenario: Scenario, ops: Sequence[Op]) -> dict[str, Array]:
    """Scheme -> joules that its bytes cost on their way, on all devices; nothing where the cluster names no paths."""
    paths = scenario.cluster.path_energy
    if paths is None:
        return {}
    return {scheme: entry.energy_j(paths) for scheme, entry in ledger(scenario, paths, ops).items()}


def _place(op: CommOp, group: Group, paths: PathEnergy) -> PathShares:
    """Paths that the members of a group communicate over."""
    if op.operation == "all_to_all":
        return paths.to_any_peer(group)
    return paths.to_next(group, closed=op.axis != "pp")


BANDWIDTH = "near memory"  # among the rates of an account
AXES = ("tp", "attention_tp", "cp", "ep", "pp", "dp")  # parts of a time that are communication
SPARSE = ("violations", "memory_bytes", "breakdown_s")  # groups of which zeros are not shown
PROMPTS = "prompts, "  # begins the names of rates of the pool that computes prompts
LATER_RATES = "later stages, "  # of those of stages of a second kind
FFN_RATES = "FFN, "  # and of the pool of feed-forward networks


class Metrics(Module):
    """Metrics of a candidate. Times are of one step (training) or one batch of requests (serving).

    `usage` is the used share of each memory tier and of what bounds a network level as a thing that can be built
    (`scale_up.edge`) or as one that others use too (`scale_up.background`), feasible up to 1, infinite where there is
    nothing to use; `violations` the broken rules of the plan (feasible at 0), `extra` what only this kind of job or
    network has (TTFT, TPOT, `count.scale_out.switches`, `log_perplexity_penalty` where sums are rounded). `implied`
    names shares of `usage` that are kept wherever the others are: told, but no limits of their own.
    Powers include the facility's overhead.
    """

    time_s: Float[Array, "*b"]
    tokens_per_s: Float[Array, "*b"]
    mfu: Float[Array, "*b"]
    energy_j: Float[Array, "*b"]
    joules_per_token: Float[Array, "*b"]
    power_w: Float[Array, "*b"]
    provisioned_power_w: Float[Array, "*b"]
    capex_usd: Float[Array, "*b"]
    usd_per_million_tokens: Float[Array, "*b"]
    extra: dict[str, Float[Array, "*b"]]
    usage: dict[str, Float[Array, "*b"]]
    violations: dict[str, Float[Array, "*b"]]
    memory_bytes: dict[str, Float[Array, "*b"]]
    breakdown_s: dict[str, Float[Array, "*b"]]
    implied: tuple[str, ...] = static(default=())

    def __repr__(self) -> str:
        """Every number with its unit, on a few lines; parts that are zero and rules that are kept are left out."""
        return fields_text("Metrics", self._told())

    def _repr_html_(self) -> str:
        """Return the display as an HTML table."""
        fields = self._told()
        rows = [(name, number_text(value, name)) for name, value in fields.items() if not is_mapping(value)]
        for group, entries in fields.items():
            if is_mapping(entries):
                prefix = "" if group == "extra" else f"{group}."
                rows += [(prefix + name, number_text(value, prefix + name)) for name, value in entries.items()]
        return html_table("Metrics", rows)

    def _told(self) -> dict[str, Any]:
        """Field -> number, or what of a group is not zero."""
        return {
            name: {key: one for key, one in value.items() if name not in SPARSE or not _is_zero(one)}
            if is_mapping(value)
            else value
            for name, value in vars(self).items()
            if name != "implied"
        }

    if not TYPE_CHECKING:  # type checkers shall go on to refuse what is no field

        def __getattr__(self, name: str) -> Any:
            """A metric that only this kind of job has is no attribute: say how it is asked for."""
            extra = self.__dict__.get("extra") or {}
            where = f": of this job it is metrics[{name!r}]" if name in extra else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{where}")

    def get(self, name: str) -> Array:
        """A metric by name: a field, an entry of `extra`, or `usage.hbm` and the like.

        Raises:
            ConfigError: no such metric, with a suggestion.
        """
        flat = self.flat()
        if name not in flat:
            raise ConfigError(f"metric {name!r} does not exist{suggestion(name, flat)}")
        return flat[name]

    def __getitem__(self, name: str) -> Array:
        """`metrics["tpot_s"]`: as `get`."""
        return self.get(name)

    def flat(self) -> dict[str, Array]:
        """Every number by name; nested ones as `group.key`, those of `extra` by their own name."""
        result: dict[str, Array] = {}
        for field, value in vars(self).items():
            if field == "extra":
                result |= value
            elif field == "implied":
                continue
            elif is_mapping(value):
                result |= {f"{field}.{key}": entry for key, entry in value.items()}
            else:
                result[field] = value
        return result


def _is_zero(value: Any) -> bool:
    """Return True for a known number that is zero for all designs."""
    return not isinstance(value, Tracer) and not np.any(np.asarray(value))


def priced_ops(scenario: Scenario, layout: Layout | None = None) -> list[tuple[Op, Cost]]:
    """Every operation of the workload with its cost on the cluster, laid out as the scenario says."""
    if layout is None:
        scenario = placed(scenario)
        layout = scenario.workload.laid_out(scenario.layout)
    ops = scenario.workload.lower(layout)
    cluster = scenario.cluster.joining(layout.devices)
    return list(zip(ops, cluster.price(ops, layout, scenario.workload.repeats(layout)), strict=True))


def evaluate(scenario: Scenario) -> Metrics:
    """Price the scenario.

    Inside a transformation (`jit`, `vmap`, `grad`) this is plain tracing. Called with numbers it is traced once a
    structure and run by NumPy; one that is called often is compiled.

    Returns:
        Metrics with leaves of the scenario's batch shape.

    Raises:
        ConfigError: it is no scenario.
    """
    _refuse_others(scenario)
    if not reads_hard():
        return _evaluate(scenario)
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(scenario))
    return (_along_few() if traced else _by_numbers())(scenario)


def _refuse_others(given: object) -> None:
    if not isinstance(given, Scenario):
        part = ": give its scenario" if hasattr(given, "scenario") else ""
        raise ConfigError(f"evaluate prices a Scenario, not a {type(given).__name__}{part}")


@functools.cache
def _by_numbers() -> Callable[[Scenario], Metrics]:
    return interpreted(_evaluate)


@functools.cache
def _along_few() -> Callable[[Scenario], Metrics]:
    return partially_evaluated(_evaluate)


class ScenarioEvaluation(NamedTuple):
    """Complete evaluation of a scenario.

    metrics; ops and their costs, one each; rates: what operations are held against (peak by number format, bandwidth of
    the near memory; names of the pool's for prompts begin with `PROMPTS`); repeats: phase -> how often its operations
    are done; parts: see `parts_of`.
    """

    metrics: Metrics
    ops: list[Op]
    costs: list[Cost]
    rates: dict[str, Array]
    repeats: dict[str, Array]
    parts: dict[str, Array]


def account(scenario: Scenario) -> ScenarioEvaluation:
    """The whole account, for tracing: one trace answers whatever is asked of a scenario later."""
    with computing_once():
        scenario = placed(scenario)
        layout = scenario.workload.laid_out(scenario.layout)
        priced, repeats = priced_ops(scenario, layout), scenario.workload.repeats(layout)
        rates: dict[str, Array] = {}
        for op, _ in priced:
            if isinstance(op, ComputeOp):
                accelerator, owner = computed_by(scenario.cluster, op)
                rates |= {owner + op.number_format: accelerator.peak(op.number_format)}
                rates |= {owner + BANDWIDTH: accelerator.hbm.bandwidth()}
        ops, costs = [op for op, _ in priced], [cost for _, cost in priced]
        return ScenarioEvaluation(_metrics(scenario, priced, layout), ops, costs, rates, repeats, parts_of(scenario))


def computed_by(cluster: Cluster, op: Op) -> tuple[Accelerator, str]:
    """The accelerator that runs an operation, and what begins the names of its rates in an account."""
    if cluster.prefill is not None and op.phase in PREFILL:
        return cluster.prefill.cluster.accelerator, PROMPTS
    if cluster.later_stages is not None and op.phase.startswith(LATER):
        return cluster.later_stages.cluster.accelerator, LATER_RATES
    if cluster.ffn is not None and op.phase == FFN:
        return cluster.ffn.cluster.accelerator, FFN_RATES
    return cluster.accelerator, ""


def parts_of(scenario: Scenario) -> dict[str, Array]:
    """Replicas, and capex and provisioned power of the whole cluster by part."""
    devices = scenario.layout.devices
    cluster = scenario.cluster.joining(devices)
    count = with_spares(cluster, own_devices(cluster, scenario.layout))
    parts = {f"capex.{part}": count * usd for part, usd in device_capex_usd(cluster).items()}
    parts |= {f"power.{part}": count * watts for part, watts in device_provisioned_w(cluster).items()}
    for pool in (bought(cluster, scenario.layout) for bought in (prefill_pool, later_pool, ffn_pool)):
        if pool is None:
            continue
        parts |= {f"capex.{part}": usd for part, usd in pool.capex_usd.items()}
        parts |= {f"power.{part}": watts for part, watts in pool.provisioned_w.items()}
    return {"var.dp": scenario.layout.dp} | parts


def _evaluate(scenario: Scenario) -> Metrics:
    """Implementation of `evaluate`, without a decision on how it runs."""
    with computing_once():
        scenario = placed(scenario)
        layout = scenario.workload.laid_out(scenario.layout)
        return _metrics(scenario, priced_ops(scenario, layout), layout)


def _told(movement: dict[str, Array]) -> dict[str, Array]:
    """Joules of data movement by scheme and in all, before the facility's overhead."""
    if not movement:
        return {}
    parts = {f"movement_j.{scheme}": joules for scheme, joules in movement.items()}
    return parts | {"movement_j": summed(movement)}


def _balance(ops: Sequence[Op], repeats: Mapping[str, Array], timeline: Timeline) -> dict[str, Array]:
    """FLOPs of all kernels over the bytes they move to and from memory, and the share of communication in the time."""
    kernels = [op for op in ops if isinstance(op, ComputeOp)]
    flops, nbytes = _worked(
        [op.count for op in kernels], [asarray(repeats.get(op.phase, 1.0)) for op in kernels],
        [op.work.flops for op in kernels], [op.work.nbytes for op in kernels],
    )  # fmt: skip
    exposed = [seconds for name, seconds in timeline.breakdown_s.items() if name in AXES]
    balance = {"arithmetic_intensity": ratio(flops, nbytes)}
    return balance | ({"communication_share": sum(exposed[1:], exposed[0]) / timeline.time_s} if exposed else {})


@one_call()
def _worked(counts: list[Array], repeats: list[Array], flops: list[Array], nbytes: list[Array]) -> tuple[Array, Array]:
    """FLOPs and bytes of all kernels."""
    work = moved = asarray(0.0)
    for count, often, some, more in zip(counts, repeats, flops, nbytes, strict=True):
        times = count * often
        work, moved = work + times * some, moved + times * more
    return work, moved


def drawn_j(cluster: Cluster, timeline: Timeline) -> Array:
    """Joules of one device beyond idle power."""
    board = cluster.accelerator.board
    if board is None:
        return timeline.energy_j
    most = board.most_j(timeline.time_s, cluster.accelerator.idle_power_w())
    return jnp.minimum(timeline.energy_j + board.working_w * timeline.working_s, most)


class _ClusterCosts(NamedTuple):
    """Sums over all devices: provisioned power, price, energy, cost; shares of the cost and tokens of each kind that
    is billed; devices of the main pool with the arithmetic of all."""

    provisioned_w: Array
    capex_usd: Array
    energy_j: Array
    usd: Array
    paid: dict[str, tuple[Array, Array]]
    fast_devices: Array

    def with_pool(self, pool: Any, more: Any, ratio: Array, billed: str = "") -> "_ClusterCosts":
        """Sums with those of another pool, whose arithmetic is `ratio` of the main one's, device by device."""
        paid = self.paid
        if billed:
            paid = paid | {billed: (paid[billed][0] + more.usd, paid[billed][1])}
        return _ClusterCosts(
            self.provisioned_w + more.provisioned_w, self.capex_usd + more.capex_usd, self.energy_j + more.energy_j,
            self.usd + more.usd, paid, self.fast_devices + pool.devices * ratio,
        )  # fmt: skip


def _spent(
    scenario: Scenario, cluster: Cluster, timeline: Timeline, layout: Layout, movement: dict[str, Array]
) -> _ClusterCosts:
    """Power, price, energy and cost of a step, by all pools."""
    devices, facility = own_devices(cluster, layout), cluster.facility
    idle, count = with_spares(cluster, device_idle_w(cluster)), with_spares(cluster, devices)
    energy = devices * facility.pue * (drawn_j(cluster, timeline) + idle * timeline.time_s)
    if movement:  # links carry no energy of their own then: see `Cluster.path_energy`
        energy = energy + facility.pue * summed(movement)
    if cluster.doubts is not None:
        energy = energy * cluster.doubts.energy
    provisioned = count * facility.pue * summed(device_provisioned_w(cluster))
    capex = count * summed(device_capex_usd(cluster)) + provisioned * facility.usd_per_w
    usd = facility.usd(capex, count, timeline.time_s, energy)
    paid = {kind: (usd * share, tokens) for kind, (share, tokens) in timeline.billed.items()}
    result = _ClusterCosts(provisioned, capex, energy, usd, paid, devices)
    number_format = scenario.workload.number_format()
    peak = cluster.accelerator.peak(number_format)
    if (pool := prefill_pool(cluster, layout)) is not None:
        result = result.with_pool(pool, pool.cost(timeline, facility), pool.peak(number_format) / peak, "input")
    if (later := later_pool(cluster, layout)) is not None:
        result = result.with_pool(later, later.cost(timeline, facility), later.peak(number_format) / peak)
    if (ffn := ffn_pool(cluster, layout)) is not None:
        more = ffn.cost(timeline, facility, timeline.ffn_j)
        result = result.with_pool(ffn, more, ffn.peak(number_format) / peak, "output")
    return result


def _usage(
    scenario: Scenario, cluster: Cluster, layout: Layout, ops: list[Op], memory: dict[str, Array]
) -> dict[str, Array]:
    """Shares of what there is: memory of each tier and pool, links, the die, the life of its parts."""
    capacity = {"hbm": cluster.accelerator.hbm.usable_bytes(), "ddr": cluster.host.memory.usable_bytes()}
    usage = {tier: used_share(nbytes, capacity[tier]) for tier, nbytes in per_tier(memory).items()}
    for name in cluster.levels:
        usage |= {f"{name}.{limit}": share for limit, share in cluster.network[name].limits().items()}
    usage |= cluster.crowded(ops, layout, scenario.workload.repeats(layout))
    usage |= {f"hbm.{limit}": share for limit, share in memory_limits(cluster, memory).items()}
    usage |= {f"hbm.{limit}": share for limit, share in engine_limits(scenario, layout, memory).items()}
    usage |= {f"die.{limit}": share for limit, share in cluster.accelerator.limits().items()}
    if (pool := prefill_pool(cluster, layout)) is not None:
        usage |= pool.usage("prefill", scenario.workload.prefill_bytes(layout))
    if (later := later_pool(cluster, layout)) is not None:
        usage |= later.usage("later_stages", scenario.workload.later_bytes(layout))
    if (ffn := ffn_pool(cluster, layout)) is not None:
        usage |= ffn.usage("ffn", scenario.workload.ffn_bytes(layout))
    return usage | lifetime_limits(scenario, cluster)


def _implied(scenario: Scenario, cluster: Cluster, layout: Layout) -> tuple[str, ...]:
    """Used shares of memory that follow from those of its parts."""
    pools = {"prefill": prefill_pool, "later_stages": later_pool, "ffn": ffn_pool}
    memories = {f"{name}.hbm": pool.cluster.accelerator.hbm
                for name, of in pools.items() if (pool := of(cluster, layout)) is not None}  # fmt: skip
    memories |= {"hbm": cluster.accelerator.hbm}
    return tuple(name for name, memory in memories.items() if memory.fits_in_parts())


def _metrics(scenario: Scenario, priced: list[tuple[Op, Cost]], layout: Layout) -> Metrics:
    cluster = scenario.cluster.joining(layout.devices)
    work = scenario.workload if cluster.doubts is None else scenario.workload.under(cluster.doubts.first_token)
    timeline, ops = work.timeline(priced, layout), [op for op, _ in priced]
    movement, facility = moved(scenario, ops), cluster.facility
    spent = _spent(scenario, cluster, timeline, layout, movement)
    energy, usd = spent.energy_j, spent.usd
    billed = {f"usd_per_million_{kind}_tokens": 1e6 * part / tokens for kind, (part, tokens) in spent.paid.items()}
    memory = memory_by_class(scenario, layout)
    usage = _usage(scenario, cluster, layout, ops, memory) | timeline.usage
    if ffn_pool(cluster, layout) is not None:
        memory = memory | {f"ffn/{name}": nbytes for name, nbytes in scenario.workload.ffn_bytes(layout).items()}
    peak = cluster.accelerator.peak(scenario.workload.number_format())
    return Metrics(
        time_s=timeline.time_s,
        tokens_per_s=timeline.tokens / timeline.time_s,
        mfu=timeline.model_flops / peak / (timeline.time_s * spent.fast_devices),  # so ordered float32 holds the slopes
        energy_j=energy,
        joules_per_token=energy / timeline.tokens,
        power_w=energy / timeline.time_s,
        provisioned_power_w=spent.provisioned_w,
        capex_usd=spent.capex_usd,
        usd_per_million_tokens=1e6 * usd / timeline.tokens,
        extra=(timeline.extra if cluster.doubts is None else cluster.doubts.of_first_token(timeline.extra))
        | billed
        | facility.service()
        | cluster.counts(layout.devices)
        | cluster.quality(ops, layout)
        | cluster.delays(ops, layout, work.repeats(layout))
        | _balance(ops, work.repeats(layout), timeline)
        | _told(movement)
        | lifetime(scenario, cluster, timeline, StepCost(spent.capex_usd, energy, usd)),
        usage=usage,
        violations=scenario.workload.violations(layout),
        memory_bytes=memory,
        breakdown_s=timeline.breakdown_s,
        implied=_implied(scenario, cluster, layout),
    )
