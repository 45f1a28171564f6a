"""Purchase price, power and running cost of a cluster."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ...core.jax_typed import asarray
from ...core.smooth import at_least, maximum, used_share
from ..carbon import Carbon
from ..networks.fabrics import Group
from ..scenario import Cluster, Facility, FFNPool, PrefillPool, Scenario
from ..workloads import Layout
from ..workloads.schedule import Timeline


def device_capex_usd(cluster: Cluster) -> dict[str, Array]:
    """Purchase price per accelerator, by part."""
    parts = {
        "accelerator": cluster.accelerator.capex_usd(),
        "hbm": cluster.accelerator.hbm.price_usd(),
        "host": cluster.host.price_usd,
        "ddr": cluster.host.memory.price_usd(),
    }
    for name in cluster.levels:
        parts[name] = cluster.network[name].capex_usd()
    return parts


def device_provisioned_w(cluster: Cluster) -> dict[str, Array]:
    """Power that must be provisioned per accelerator, by part, before the facility's overhead."""
    parts = {
        "accelerator": cluster.accelerator.rated_power_w(),
        "hbm": cluster.accelerator.hbm.peak_power_w(),
        "host": cluster.host.power_w + cluster.host.memory.static_power_w(),
    }
    for name in cluster.levels:
        parts[name] = cluster.network[name].fabric.static_power_w()
    return parts


def device_idle_w(cluster: Cluster) -> Array:
    """Power per accelerator that is drawn whatever runs."""
    total = cluster.accelerator.idle_power_w() + cluster.accelerator.hbm.static_power_w()
    total = total + cluster.host.power_w + cluster.host.memory.static_power_w()
    for name in cluster.levels:
        total = total + cluster.network[name].fabric.static_power_w()
    return total


def summed(parts: dict[str, Array]) -> Array:
    """Sum of the parts."""
    values = iter(parts.values())
    total = next(values)
    for value in values:
        total = total + value
    return total


class PoolCost(NamedTuple):
    """Cost that a pool adds to a cluster: price, provisioned power, energy and money of one step or batch."""

    capex_usd: Array
    provisioned_w: Array
    energy_j: Array
    usd: Array


class PoolBought(NamedTuple):
    """A whole pool of accelerators that works beside a cluster, of which `cluster` is one; totals by part.

    The link between the pools is counted here: every device of both has a port of it. `held` are its devices with
    their spares.
    """

    cluster: Cluster
    devices: Array
    held: Array
    capex_usd: dict[str, Array]
    provisioned_w: dict[str, Array]
    idle_w: Array

    def cost(self, timeline: Timeline, facility: Facility, each_j: Array | None = None) -> PoolCost:
        """Cost that the pool adds, the facility's overhead included; each device works for the joules given."""
        worked = timeline.beside_j if each_j is None else each_j
        watts = facility.pue * summed(self.provisioned_w)
        capex = summed(self.capex_usd) + watts * facility.usd_per_w
        energy = facility.pue * (self.devices * worked + self.idle_w * timeline.time_s)
        return PoolCost(capex, watts, energy, facility.usd(capex, self.held, timeline.time_s, energy))

    def peak(self, number_format: str) -> Array:
        """FLOP/s of one device."""
        return self.cluster.accelerator.peak(number_format)

    def usable_bytes(self) -> Array:
        """Near memory of one device."""
        return self.cluster.accelerator.hbm.usable_bytes()

    def usage(self, name: str, stored: dict[str, Array]) -> dict[str, Array]:
        """Used shares of the memory of one device of the pool `name`: of all, and of what bounds it beyond."""
        memory = self.cluster.accelerator.hbm
        usage = {f"{name}.hbm": used_share(summed(stored), memory.usable_bytes())}
        return usage | {f"{name}.hbm.{limit}": share for limit, share in memory.limits(stored).items()}


def later_pool(cluster: Cluster, layout: Layout) -> PoolBought | None:
    """The later stages of a pipeline; None where all are of one kind."""
    if cluster.later_stages is None:
        return None
    devices = layout.devices * layout.plan.later_stages / layout.plan.pp
    joined, held = cluster.later_stages.cluster.joining(layout.devices), with_spares(cluster, devices)
    return PoolBought(
        joined, devices, held,
        {"later_stages": held * summed(device_capex_usd(joined))},
        {"later_stages": held * summed(device_provisioned_w(joined))},
        held * device_idle_w(joined),
    )  # fmt: skip


def own_devices(cluster: Cluster, layout: Layout) -> Array:
    """Devices of a layout that are of the cluster's first kind."""
    later = later_pool(cluster, layout)
    return layout.devices if later is None else layout.devices - later.devices


def prefill_pool(cluster: Cluster, layout: Layout) -> PoolBought | None:
    """The pool of a layout; None where the cluster has none beside it."""
    if cluster.prefill is None:
        return None
    return _bought(cluster, "prefill", "kv_transfer", cluster.prefill, layout.prefill, layout)


def ffn_pool(cluster: Cluster, layout: Layout) -> PoolBought | None:
    """The pool of feed-forward networks of a layout; None where the cluster has none beside it."""
    if cluster.ffn is None:
        return None
    return _bought(cluster, "ffn", "ffn_transfer", cluster.ffn, layout.ffn, layout)


def _bought(
    cluster: Cluster, name: str, crossing: str, pool: PrefillPool | FFNPool, part: Layout, layout: Layout
) -> PoolBought:
    """The devices of a pool with their spares, and a port of its link for each and for all that they work for."""
    joined, devices = pool.cluster.joining(part.devices), getattr(layout.plan, f"{name}_devices")
    held = with_spares(cluster, devices)
    ports = held + jnp.where(devices > 0, with_spares(cluster, layout.devices), 0.0)
    lit = ports * pool.link.fabric.static_power_w()
    return PoolBought(
        joined, devices, held,
        {name: held * summed(device_capex_usd(joined)), crossing: ports * pool.link.capex_usd()},
        {name: held * summed(device_provisioned_w(joined)), crossing: lit},
        held * device_idle_w(joined) + lit,
    )  # fmt: skip


# Account of a job over its life: share of productive time, time, money, energy and carbon of a whole run.


class StepCost(NamedTuple):
    """Cost of one step or batch without failures: purchase price, energy, money."""

    capex_usd: Array
    energy_j: Array
    usd: Array


def with_spares(cluster: Cluster, amount: Array) -> Array:
    """Amount of something in the devices at work, their spares included."""
    return amount if cluster.reliability is None else amount * (1 + cluster.reliability.spare_ratio)


def lifetime(scenario: Scenario, cluster: Cluster, timeline: Timeline, bill: StepCost) -> dict[str, Array]:
    """Metrics of failures, of carbon and of a whole run, where the scenario has them; nothing otherwise."""
    stretched, failure_metrics = _failures(scenario, cluster)
    waits = asarray(1.0) if cluster.carbon is None else cluster.carbon.grid.waits()
    emitted: dict[str, Array] = {}
    if cluster.carbon is not None:
        emitted = _carbon(cluster, scenario.layout, timeline.time_s, bill.energy_j)
        failure_metrics |= emitted
        failure_metrics["carbon_g_per_million_tokens"] = 1e9 * emitted["carbon_kg"] * stretched / timeline.tokens
    wanted = scenario.workload.run_tokens(scenario.layout)
    if wanted is None:
        return failure_metrics
    steps = wanted / timeline.tokens
    lasts = steps * stretched
    failure_metrics |= {
        "time_to_train_s": lasts * timeline.time_s * waits,
        "energy_to_train_j": lasts * bill.energy_j,
        "usd_to_train": lasts * (bill.usd + (waits - 1) * _idle_usd(cluster, timeline, bill)),
    }
    if emitted:
        failure_metrics["carbon_to_train_kg"] = lasts * emitted["carbon_kg"]
    return failure_metrics


def _idle_usd(cluster: Cluster, timeline: Timeline, bill: StepCost) -> Array:
    """Write-off of a cluster that waits as long as a step takes, USD."""
    facility = cluster.facility
    return bill.capex_usd * timeline.time_s / (facility.amortisation_s * facility.in_use_ratio())


def _failures(scenario: Scenario, cluster: Cluster) -> tuple[Array, dict[str, Array]]:
    """(time over time without failures, metrics); a job that keeps nothing begins anew, each replica alone.

    Of two pools the one counts whose engines stand longer.
    """
    reliability, layout = cluster.reliability, scenario.layout
    if reliability is None:
        return asarray(1.0), {}
    saved = scenario.workload.saved_bytes(layout)
    if saved is None:
        stretched = reliability.stopped(layout.plan.ranks(), asarray(0.0))
        if (pool := prefill_pool(cluster, layout)) is not None:
            there = reliability.stopped(layout.prefill.plan.ranks(), asarray(0.0))
            stretched = maximum(stretched, jnp.where(pool.devices > 0, there, 1.0))
        return stretched, {"availability": 1 / stretched}
    devices = layout.devices
    first, second = scenario.workload.writers(layout)
    written = _written_s(cluster, saved, first)
    if (later := later_pool(cluster, layout)) is not None:
        there = dataclasses.replace(later.cluster, reliability=reliability)
        written = maximum(written, _written_s(there, saved, second))
    stretched = reliability.stretched(devices, written)
    return stretched, {
        "goodput": 1 / stretched,
        "failures_per_day": 86400.0 * reliability.rate_hz(devices),
        "checkpoint_s": written,
        "checkpoint_interval_s": reliability.best_interval_s(devices, written),
    }


def _written_s(cluster: Cluster, saved: Array, writers: Array) -> Array:
    """Seconds of a checkpoint of which each of so many devices writes an equal part, with these hosts and networks."""
    assert cluster.reliability is not None
    network = cluster.network[cluster.levels[-1]].fabric.link(Group(asarray(2.0)))
    return cluster.reliability.written_s(
        saved, writers, 1 / cluster.host.link.beta_s_per_byte, 1 / network.beta_s_per_byte,
        cluster.accelerator.hbm.beyond_s_per_byte(),
    )  # fmt: skip


def _made_kg(carbon: Carbon, cluster: Cluster) -> Array:
    """Kilograms of making one device of a kind: its memories, its die where it has one, else that of the account."""
    hbm, ddr, die = cluster.accelerator.hbm, cluster.host.memory, cluster.accelerator.die
    good = None if die is None else die.good_mm2() * carbon.die_yield
    return summed(carbon.made_kg(hbm.installed_bytes(), ddr.installed_bytes(), good))


def _carbon(cluster: Cluster, layout: Layout, time_s: Array, energy_j: Array) -> dict[str, Array]:
    """Kilograms of one step or batch: of making what it uses for so long, of the energy it takes."""
    carbon, facility = cluster.carbon, cluster.facility
    assert carbon is not None
    made_kg = with_spares(cluster, own_devices(cluster, layout)) * _made_kg(carbon, cluster)
    for pool in (bought(cluster, layout) for bought in (prefill_pool, later_pool, ffn_pool)):
        if pool is not None:
            made_kg = made_kg + pool.held * _made_kg(carbon, pool.cluster)
    embodied = made_kg * time_s * carbon.grid.waits() / (facility.amortisation_s * facility.in_use_ratio())
    operational = energy_j * carbon.grid.kg_per_j()
    return {
        "carbon_kg": embodied + operational,
        "carbon_kg.embodied": embodied,
        "carbon_kg.operational": operational,
        "carbon_made_kg": made_kg,
    }


def lifetime_limits(scenario: Scenario, cluster: Cluster) -> dict[str, Array]:
    """Used shares of what bounds a job over its life: spares, the range of a law of quality."""
    limits = scenario.workload.limits(scenario.layout)
    if cluster.reliability is None or scenario.workload.saved_bytes(scenario.layout) is None:
        return limits
    layout, of = scenario.layout, cluster.reliability
    if (later := later_pool(cluster, layout)) is None:
        return limits | of.limits(layout.devices)
    there = {  # a spare of one kind takes no place of the other
        f"later_stages.{name}": jnp.where(later.devices > 0, share, 0.0)
        for name, share in of.limits(at_least(later.devices, 1.0)).items()
    }
    return limits | of.limits(own_devices(cluster, layout)) | there
