"""The one pytree: a cluster, a workload and a plan."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.computed_once import pieces_of
from ..core.cost import Cost, zero
from ..core.errors import ConfigError, suggestion
from ..core.fields import Module, integer, quantity, static
from ..core.jax_typed import asarray, flatten, unflatten
from ..core.pretty import as_html, as_text
from ..core.smooth import maximum, used_share
from .carbon import Carbon
from .error_factors import ErrorFactors
from .hardware import Accelerator, Link
from .hardware.memory import AbstractMemory
from .network_traffic import Flow, beside, collective_times, shares_links
from .networks.collectives import OPERATIONS, PERPLEXITY_FACTOR, NetworkLevel, log_perplexity_penalty, stages
from .networks.collectives.levels import Stage, spanning
from .networks.fabrics import BackgroundTraffic, Group, PathEnergy, QueuedNode
from .networks.fabrics.contended import CALM_RATIO
from .ownership import AbstractOwnership
from .reliability import Reliability
from .slices import SharedRack
from .workloads import AbstractWorkload, CommOp, ComputeOp, Layout, Op
from .workloads.schedule import FFN, FROM_FFN, KV_TRANSFER, LATER, PREFILL, TO_FFN, kind_of

MANY = 40  # kernels of a kind above which they are priced as one batch
OTHERS = "background"
"""Name of the used share of a level's links that traffic of others takes."""


class Host(Module):
    """An accelerator's share of its node: the second memory tier, the link to it, processors, chassis."""

    memory: AbstractMemory
    link: Link
    price_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(2900.0, 12000.0))
    power_w: Float[Array, "*b"] = quantity(default=0.0, usual=(150.0, 390.0))

    def transfer(self, nbytes: Array) -> Cost:
        """Move bytes to or from the second tier: the slower of link and memory would bound; the link is taken.

        Assumes: the second tier's own bandwidth exceeds the link's (checked as a violation).
        """
        seconds = jnp.where(nbytes > 0, self.link.alpha_s + nbytes * self.link.beta_s_per_byte, 0.0)
        return Cost(seconds, nbytes * (self.link.energy_j_per_byte + self.memory.energy()))


class Facility(Module):
    """Facility around the cluster: overhead power, electricity, write-off, and the tenants who share it.

    Without `tenancy` the cluster is in use for `utilisation` of its life; with it, for that share of what its tenants
    leave in use. Without `ownership` its price is written off evenly.
    """

    pue: Float[Array, "*b"] = quantity(low=1.0, high=4.0, default=1.2)
    usd_per_j: Float[Array, "*b"] = quantity(default=0.08 / 3.6e6, usual=(2.2e-8, 3e-8))
    amortisation_s: Float[Array, "*b"] = quantity(low=1.0, default=4 * 365.25 * 86400.0, usual=(1.2e8, 1.6e8))
    utilisation: Float[Array, "*b"] = quantity(low=1e-3, high=1.0, default=1.0, doc="share of its life in use")
    usd_per_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="building and cooling per provisioned watt", usual=(2.7, 3.2)
    )
    tenancy: SharedRack | None = None
    ownership: AbstractOwnership | None = None

    def usd(self, capex_usd: Array, devices: Array, time_s: Array, energy_j: Array) -> Array:
        """Dollars of some time in use: the cluster's, as its owner counts, and electricity."""
        if self.ownership is None:
            return capex_usd * time_s / (self.amortisation_s * self.in_use_ratio()) + energy_j * self.usd_per_j
        held = self.ownership.usd_per_s(capex_usd, devices, self.amortisation_s) * time_s / self.in_use_ratio()
        return held + energy_j * (self.usd_per_j * self.ownership.energy_share())

    def in_use_ratio(self) -> Array:
        """Share of its life in which the cluster earns its price."""
        return self.utilisation if self.tenancy is None else self.utilisation * self.tenancy.utilisation()

    def service(self) -> dict[str, Array]:
        """Service to tenants: share of the accelerators asked for that they get."""
        return {} if self.tenancy is None else {"acceptance": self.tenancy.acceptance()}


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(sorted(dict(value).items()))
    except (TypeError, ValueError):
        raise ConfigError(
            f"placement = {value!r} must map mesh axes to network levels, such as {{tp: scale_up}}"
        ) from None


class Cluster(Module):
    """`device_count` equal accelerators, their hosts, and network levels from the inside out.

    `levels` names the entries of `network` innermost first. `placement` pins mesh axes to one level (axis -> level
    name); an axis that is not pinned spreads over the levels as ranks are numbered. With `paths`, what a byte costs on
    its way is theirs to say, by where the partners sit; links of the network and of the host then add no energy. With
    `doubts`, times are those of one draw of the model's errors. `prefill` is a pool of other accelerators beside these
    that computes prompts, `ffn` one that holds feed-forward networks. `reliability` says what fails, `carbon` what is
    emitted to make and to run it.
    """

    accelerator: Accelerator
    host: Host
    network: dict[str, NetworkLevel]
    device_count: Float[Array, "*b"] = integer(low=1.0, usual=(1.0, 1e6, "the largest clusters that were announced"))
    facility: Facility = eqx.field(default_factory=Facility)
    path_energy: PathEnergy | None = None
    doubts: ErrorFactors | None = None
    prefill: "PrefillPool | None" = None
    later_stages: "StagePool | None" = None
    ffn: "FFNPool | None" = None
    reliability: Reliability | None = None
    carbon: Carbon | None = None
    levels: tuple[str, ...] = static(default=("scale_up", "scale_out"), converter=tuple)
    placement: tuple[tuple[str, str], ...] = static(default=(), converter=_pairs)

    __repr__ = as_text
    _repr_html_ = as_html

    def __check_init__(self) -> None:
        """Some level; every level and every pin must name an entry of `network`."""
        if not self.levels:
            raise ConfigError("levels is empty: name at least one entry of network")
        for name in (*self.levels, *(level for _, level in self.placement)):
            if name not in self.network:
                raise ConfigError(f"network level {name!r} is not in network{suggestion(name, self.network)}")

    def joining(self, devices: Array) -> "Cluster":
        """With an outermost network that joins so many devices."""
        name = self.levels[-1]
        level = self.network[name]
        fabric = level.fabric.joining(devices)
        if fabric is level.fabric:
            return self
        return dataclasses.replace(self, network=self.network | {name: dataclasses.replace(level, fabric=fabric)})

    def counts(self, devices: Array) -> dict[str, Array]:
        """`count.LEVEL.PART` -> what is counted of the networks that join so many devices (switches, cables)."""
        return {
            f"count.{name}.{part}": count
            for name in self.levels
            for part, count in self.network[name].fabric.counts(devices).items()
        }

    def communicate(
        self,
        operation: str,
        axis: str,
        nbytes: Array,
        layout: Layout,
        beside: Sequence[BackgroundTraffic] = (),
        element_bytes: float = 0.0,
    ) -> Cost:
        """Cost of a collective among the members of a mesh axis, `beside` what each level carries at the same time.

        `element_bytes` is the size of a number where it may be rounded, 0 where it may not.
        """
        return spanning(operation, nbytes, self._stages(axis, layout, beside, element_bytes))

    def _stages(
        self, axis: str, layout: Layout, beside: Sequence[BackgroundTraffic] = (), element_bytes: float = 0.0
    ) -> list[Stage]:
        """The members of a mesh axis by the levels on which they talk."""
        group = dataclasses.replace(layout.group(axis), element_bytes=element_bytes)
        pinned = dict(self.placement).get(layout.plan.placed_as.get(axis, axis))
        names = (pinned,) if pinned else self.levels
        parts = stages([self.network[name] for name in names], group)
        if beside:
            parts = [
                part._replace(group=dataclasses.replace(part.group, beside=seen))
                for part, seen in zip(parts, beside, strict=True)
            ]
        return parts

    def quality(self, ops: Sequence[Op], layout: Layout) -> dict[str, Array]:
        """Effect of rounded sums on a language model, with the ends of an interval; nothing where no level rounds.

        The law knows models all of whose sums are rounded alike: where they are not, of a prefill pool and of those
        that decode for instance, the largest counts.
        """
        pool = self.prefill
        if not (self.may_round() or (pool is not None and pool.cluster.may_round())):
            return {}
        penalty = self.rounding([op for op in ops if pool is None or op.phase not in PREFILL], layout)
        if pool is not None:
            away = [op for op in ops if op.phase in PREFILL]
            there = pool.cluster.joining(layout.prefill.devices).rounding(away, layout.prefill)
            penalty = maximum(penalty, jnp.where(layout.plan.prefill_devices > 0, there, 0.0))
        low, high = penalty / PERPLEXITY_FACTOR, penalty * PERPLEXITY_FACTOR
        name = "log_perplexity_penalty"
        return {name: penalty, f"{name}_low": low, f"{name}_high": high}

    def may_round(self) -> bool:
        """True if any operation on any level rounds what is sent."""
        algorithms = [self.network[name].collectives.algorithm(op) for name in self.levels for op in OPERATIONS]
        return any(algorithm.may_round() for algorithm in algorithms)

    def rounding(self, ops: Sequence[Op], layout: Layout) -> Array:
        """Increase of ln(perplexity) by what is rounded of these operations, the largest of any."""
        sums = {(op.operation, op.axis): op for op in ops if isinstance(op, CommOp) and op.element_bytes}
        penalty = asarray(0.0)
        for (operation, axis), op in sums.items():
            one = log_perplexity_penalty(operation, self._stages(axis, layout, (), op.element_bytes))
            penalty = maximum(penalty, jnp.where(op.count > 0, one, 0.0))
        return penalty

    def beside(
        self, ops: Sequence[Op], layout: Layout, repeats: Mapping[str, Array]
    ) -> dict[Flow, list[BackgroundTraffic]]:
        """Traffic that runs beside each flow of the plan; nothing where no level is `Contended` or axes are pinned."""
        levels = [self.network[name] for name in self.levels]
        if self.placement or not shares_links(levels):
            return {}
        return beside(ops, levels, layout, repeats)

    def _own(self, ops: Sequence[Op]) -> list[Op]:
        """Operations that run on the cluster itself, not on a pool beside it or between the two."""
        away = (*PREFILL, KV_TRANSFER) if self.prefill is not None else ()
        away += (FFN, TO_FFN, FROM_FFN) if self.ffn is not None else ()
        return [op for op in ops if op.phase not in away and not op.phase.startswith(LATER)]

    def crowded(self, ops: Sequence[Op], layout: Layout, repeats: Mapping[str, Array]) -> dict[str, Array]:
        """Level -> share of its links' rate that others take where the plan talks, over what waits are known for."""
        shared = [name for name in self.levels if self.network[name].fabric.sees_others]
        if not shared:
            return {}
        ops = self._own(ops)
        sent: dict[Flow, Array] = {}
        for op in ops:
            if isinstance(op, CommOp):
                sent[op.phase, op.axis] = sent.get((op.phase, op.axis), asarray(0.0)) + op.count * op.nbytes
        seen, result = self.beside(ops, layout, repeats), {name: asarray(0.0) for name in shared}
        for flow, nbytes in sent.items():
            for stage in self._stages(flow[1], layout, seen.get(flow, ())):
                for name in shared:
                    taken = stage.level.fabric.taken_ratio(stage.group)
                    if stage.level is self.network[name] and taken is not None:
                        busy = (stage.group.size > 1) & (nbytes > 0)
                        result[name] = jnp.maximum(result[name], jnp.where(busy, taken, 0.0))
        return {f"{name}.{OTHERS}": used_share(taken, CALM_RATIO) for name, taken in result.items()}

    def delays(self, ops: Sequence[Op], layout: Layout, repeats: Mapping[str, Array]) -> dict[str, Array]:
        """Times of single collectives and sends among others' bursts; nothing where no level has queues."""
        if not any(isinstance(self.network[name].fabric, QueuedNode) for name in self.levels):
            return {}
        ops = self._own(ops)
        seen = self.beside(ops, layout, repeats)
        here = [op for op in ops if isinstance(op, CommOp)]
        return collective_times(
            (op, self._stages(op.axis, layout, seen.get((op.phase, op.axis), ()), op.element_bytes)) for op in here
        )

    def price(self, ops: Sequence[Op], layout: Layout, repeats: Mapping[str, Array] | None = None) -> list[Cost]:
        """Cost of each operation on this hardware, its count included.

        Operations that only differ in their numbers are priced as one batch where their formula is long, or where there
        are many, as in the nine steps of serving at a rate: compile time then grows with the kinds of operations and
        not with their number. A few short formulas run faster one by one.

        Args:
            ops: what the workload lowers to.
            layout: the plan on the devices.
            repeats: how often each phase runs, so that shared levels see the plan's other traffic; without it no level
                does.
        """
        if self.later_stages is not None:
            there = {index for index, op in enumerate(ops) if op.phase.startswith(LATER)}
            here = dataclasses.replace(self, later_stages=None)
            here_costs = iter(here.price([op for index, op in enumerate(ops) if index not in there], layout, repeats))
            other = iter(self.later_stages.price([ops[index] for index in sorted(there)], layout, repeats, self.doubts))
            return [next(other if index in there else here_costs) for index in range(len(ops))]
        if self.ffn is not None:
            away = {index for index, op in enumerate(ops) if op.phase in (FFN, TO_FFN, FROM_FFN)}
            here = dataclasses.replace(self, ffn=None)
            here_costs = iter(here.price([op for index, op in enumerate(ops) if index not in away], layout, repeats))
            other = iter(self.ffn.price([ops[index] for index in sorted(away)], layout, self.doubts))
            return [next(other if index in away else here_costs) for index in range(len(ops))]
        if self.prefill is not None:
            away = {index for index, op in enumerate(ops) if op.phase in (*PREFILL, KV_TRANSFER)}
            here = dataclasses.replace(self, prefill=None)
            here_costs = iter(here.price([op for index, op in enumerate(ops) if index not in away], layout, repeats))
            away_ops = [ops[index] for index in sorted(away)]
            other = iter(self.prefill.price(away_ops, layout, self.path_energy, self.doubts))
            return [next(other if index in away else here_costs) for index in range(len(ops))]
        seen = self.beside(ops, layout, repeats) if repeats is not None else {}
        alike = [kind_of(op) for op in ops]
        many = Counter(kind for kind, op in zip(alike, ops, strict=True) if isinstance(op, ComputeOp))
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for index, op in enumerate(ops):
            together = many[alike[index]] > MANY or self._is_long(op)
            kinds.setdefault(alike[index] if together else (index,), []).append(index)
        costs: list[Cost] = [zero()] * len(ops)
        for members in kinds.values():
            if len(members) == 1:
                costs[members[0]] = self._price(ops[members[0]], _numbers(ops[members[0]], seen), layout)
                continue
            numbers = [_numbers(ops[index], seen) for index in members]
            stacked = jax.tree.map(lambda *leaves: jnp.stack(jnp.broadcast_arrays(*leaves)), *numbers)

            def price(one: tuple[Any, ...], op: Op = ops[members[0]]) -> Cost:
                return self._price(op, one, layout)

            priced = jax.vmap(price)(stacked)
            leaves, tree = flatten(priced)
            for index, *parts in zip(members, *(pieces_of(leaf) for leaf in leaves), strict=True):
                costs[index] = unflatten(tree, parts)
        return costs

    def _is_long(self, op: Op) -> bool:
        """True if the formula that prices an operation is worth batching."""
        if isinstance(op, ComputeOp):
            return self.accelerator.kernel(op.kernel, op.number_format).long
        if isinstance(op, CommOp):
            return any(self.network[name].collectives.algorithm(op.operation).long for name in self.levels)
        return False

    def _price(self, op: Op, numbers: tuple[Any, ...], layout: Layout) -> Cost:
        """Cost of the kind of operation that `op` is, at these numbers and doubts."""
        cost = self._certain_price(op, numbers, layout)
        if self.doubts is None:
            return cost
        if isinstance(op, ComputeOp):
            factor = self.doubts.of_kernel(op.kernel, op.number_format)
        else:
            factor = self.doubts.of_collective(op.operation if isinstance(op, CommOp) else "transfer")
        return Cost(factor * cost.time_s, cost.energy_j, factor * cost.engine_s)

    def _certain_price(self, op: Op, numbers: tuple[Any, ...], layout: Layout) -> Cost:
        """Cost as the model has it."""
        if isinstance(op, ComputeOp):
            work, count = numbers
            return self.accelerator.compute(work, count, kind=op.kernel, number_format=op.number_format)
        if isinstance(op, CommOp):
            nbytes, count, local, seen = numbers
            wire = self.communicate(op.operation, op.axis, nbytes, layout, seen, op.element_bytes) * count
            wire = wire if self.path_energy is None else dataclasses.replace(wire, energy_j=0.0 * nbytes)
            if self.accelerator.board is not None:  # collectives are kernels too
                clocks = self.accelerator.board.working_w * wire.time_s
                wire = dataclasses.replace(wire, energy_j=wire.energy_j + clocks)
            if local is None:
                return wire
            return wire + self.accelerator.compute(local, count, kind="elementwise", number_format="vector")
        nbytes, count = numbers
        moved = self.host.transfer(nbytes) * count
        if self.path_energy is None:
            return moved
        return dataclasses.replace(moved, energy_j=nbytes * self.host.memory.energy() * count)


class StagePool(Module):
    """Accelerators of a second kind, which hold the last stages of a pipeline.

    `cluster` is one of which accelerator, host and networks count: how many there are is the plan's to say
    (`later_stages` of `pp`).
    """

    cluster: Cluster

    __repr__ = as_text

    def price(
        self, ops: Sequence[Op], layout: Layout, repeats: Mapping[str, Array] | None = None,
        doubts: ErrorFactors | None = None,
    ) -> list[Cost]:  # fmt: skip
        """Cost of the operations of these stages, under a draw of the model's errors; see `Cluster.price`.

        Assumes: errors of a class of operations are those of the first kind's.
        """
        named = [dataclasses.replace(op, phase=op.phase.removeprefix(LATER)) for op in ops]
        cluster = dataclasses.replace(self.cluster, doubts=doubts)
        return cluster.joining(layout.devices).price(named, layout, repeats)


class PrefillPool(Module):
    """Accelerators beside a cluster's own that compute prompts, and the network over which caches leave them.

    `cluster` is one of which accelerator, host and networks count: how many there are is the plan's to say
    (`prefill_devices`). Each device of both pools has a port of `link`.
    """

    cluster: Cluster
    link: NetworkLevel

    __repr__ = as_text
    _repr_html_ = as_html

    def price(
        self,
        ops: Sequence[Op],
        layout: Layout,
        path_energy: PathEnergy | None = None,
        doubts: ErrorFactors | None = None,
    ) -> list[Cost]:
        """Cost of the operations that run here or cross the link, under a draw of the model's errors; see
        `Cluster.price`, whose `path_energy` counts here too.

        Assumes: errors of a class of operations are those of the pool that decodes.
        """
        pool, crossing = layout.prefill, Stage(self.link, Group(asarray(2.0)))
        cluster = dataclasses.replace(self.cluster, path_energy=path_energy) if path_energy else self.cluster
        cluster = dataclasses.replace(cluster, doubts=doubts)
        here = iter(cluster.joining(pool.devices).price([op for op in ops if op.phase in PREFILL], pool))

        def sent(op: CommOp) -> Cost:
            cost = crossing.run("send", op.nbytes) * op.count
            if doubts is not None:
                cost = dataclasses.replace(cost, time_s=doubts.of_collective("send") * cost.time_s)
            return dataclasses.replace(cost, energy_j=0.0 * op.nbytes) if path_energy else cost

        return [sent(op) if isinstance(op, CommOp) and op.phase == KV_TRANSFER else next(here) for op in ops]


class FFNPool(Module):
    """Accelerators beside a cluster's own for feed-forward networks, and the network over which tokens reach them.

    `cluster` is one of which accelerator, host and networks count: how many there are is the plan's to say
    (`ffn_devices`). Each device of both sides has a port of `link`.

    Assumes: messages of one device to all its partners leave together, as one of their whole size (a library that
    writes to remote memory, many to many, [zhu2025megascale]); both directions at once.
    """

    cluster: Cluster
    link: NetworkLevel

    __repr__ = as_text
    _repr_html_ = as_html

    def price(self, ops: Sequence[Op], layout: Layout, doubts: ErrorFactors | None = None) -> list[Cost]:
        """Cost of the operations that run here or cross the link, under a draw of the model's errors."""
        pool, crossing = layout.ffn, Stage(self.link, Group(asarray(2.0)))
        cluster = dataclasses.replace(self.cluster, doubts=doubts)
        here = iter(cluster.joining(pool.devices).price([op for op in ops if op.phase == FFN], pool))

        def sent(op: CommOp) -> Cost:
            cost = crossing.run("send", op.nbytes) * op.count
            factor = 1.0 if doubts is None else doubts.of_collective("send")
            return dataclasses.replace(cost, time_s=factor * cost.time_s)

        return [sent(op) if isinstance(op, CommOp) and op.phase != FFN else next(here) for op in ops]


def _numbers(op: Op, beside: Mapping[Flow, Sequence[BackgroundTraffic]]) -> tuple[Any, ...]:
    """The traced part of an operation, with what runs beside its flow."""
    if isinstance(op, ComputeOp):
        return op.work, op.count
    if isinstance(op, CommOp):
        return op.nbytes, op.count, op.local, beside.get((op.phase, op.axis), ())
    return op.nbytes, op.count


class Scenario(Module):
    """A candidate: what runs, on what, laid out how."""

    cluster: Cluster
    workload: AbstractWorkload
    plan: Any  # an `AbstractPlan`, of the class that the workload names

    __repr__ = as_text
    _repr_html_ = as_html

    def __check_init__(self) -> None:
        """A prefill pool and a workload that uses it come together."""
        name, pool = type(self.workload).__name__, self.cluster.prefill
        if pool is None and self.workload.two_pools:
            raise ConfigError(f"{name} needs cluster.prefill, a pool that computes prompts: choose prefill=same")
        if pool is not None and not self.workload.two_pools:
            raise ConfigError(f"{name} uses no cluster.prefill: choose workload=disaggregated, or leave out prefill")
        later, cluster = self.cluster.later_stages, self.cluster
        if later is None and self.workload.two_kinds:
            raise ConfigError(f"{name} needs cluster.later_stages, accelerators of a second kind: later_stages=other")
        if later is not None and not self.workload.two_kinds:
            raise ConfigError(
                f"{name} uses no cluster.later_stages: choose workload=mixed_training, or leave out later_stages"
            )
        if cluster.ffn is None and self.workload.ffn_apart:
            raise ConfigError(f"{name} needs cluster.ffn, a pool for feed-forward networks: choose ffn=same")
        if cluster.ffn is not None and not self.workload.ffn_apart:
            raise ConfigError(f"{name} uses no cluster.ffn: choose workload=attention_ffn, or leave out ffn")
        beside = "later_stages" if later is not None else "ffn"
        one_kind = {"later_stages": ("path_energy",), "ffn": ("reliability", "path_energy")}
        for part in one_kind[beside] if getattr(cluster, beside) is not None else ():
            if getattr(cluster, part) is not None:
                raise ConfigError(f"cluster.{part} counts accelerators of one kind: leave out {part} or {beside}")

    @property
    def layout(self) -> Layout:
        """The plan on its own number of devices, or on all that the cluster has."""
        devices = self.plan.device_count
        return Layout(self.plan, self.cluster.device_count if devices is None else devices)
