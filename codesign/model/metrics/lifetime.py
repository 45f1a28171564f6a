"""Account of a job over its life: share of productive time, time, money, energy and carbon of a whole run."""

from typing import NamedTuple

from jaxtyping import Array

from ...core.jax_typed import asarray
from ..networks.fabrics import Group
from ..scenario import Cluster, Scenario
from ..workloads.schedule import Timeline
from .money import summed


class Bill(NamedTuple):
    """Cost of one step or batch without failures: purchase price, energy, money."""

    capex_usd: Array
    energy_j: Array
    usd: Array


def with_spares(cluster: Cluster, amount: Array) -> Array:
    """Amount of something in the devices at work, their spares included."""
    return amount if cluster.reliability is None else amount * (1 + cluster.reliability.spare_ratio)


def lifetime(scenario: Scenario, cluster: Cluster, timeline: Timeline, bill: Bill) -> dict[str, Array]:
    """Metrics of failures, of carbon and of a whole run, where the scenario has them; nothing otherwise."""
    stretched, told = _failures(scenario, cluster)
    waits = asarray(1.0) if cluster.carbon is None else cluster.carbon.grid.waits()
    emitted: dict[str, Array] = {}
    if cluster.carbon is not None:
        emitted = _carbon(cluster, scenario.layout.devices, timeline.time_s, bill.energy_j)
        told |= emitted
        told["carbon_g_per_million_tokens"] = 1e9 * emitted["carbon_kg"] * stretched / timeline.tokens
    wanted = scenario.workload.run_tokens(scenario.layout)
    if wanted is None:
        return told
    steps = wanted / timeline.tokens
    lasts = steps * stretched
    told |= {
        "time_to_train_s": lasts * timeline.time_s * waits,
        "energy_to_train_j": lasts * bill.energy_j,
        "usd_to_train": lasts * (bill.usd + (waits - 1) * _idle_usd(cluster, timeline, bill)),
    }
    if emitted:
        told["carbon_to_train_kg"] = lasts * emitted["carbon_kg"]
    return told


def _idle_usd(cluster: Cluster, timeline: Timeline, bill: Bill) -> Array:
    """Write-off of a cluster that waits as long as a step takes, USD."""
    facility = cluster.facility
    return bill.capex_usd * timeline.time_s / (facility.amortisation_s * facility.in_use_ratio())


def _failures(scenario: Scenario, cluster: Cluster) -> tuple[Array, dict[str, Array]]:
    """(time over time without failures, metrics); a job that keeps nothing begins anew, each replica alone."""
    reliability, layout = cluster.reliability, scenario.layout
    if reliability is None:
        return asarray(1.0), {}
    saved = scenario.workload.saved_bytes(layout)
    if saved is None:
        stretched = reliability.stopped(layout.plan.ranks(), asarray(0.0))
        return stretched, {"availability": 1 / stretched}
    devices = layout.devices
    network = cluster.network[cluster.levels[-1]].fabric.link(Group(asarray(2.0)))
    written = reliability.written_s(
        saved, devices, 1 / cluster.host.link.beta_s_per_byte, 1 / network.beta_s_per_byte,
        cluster.accelerator.hbm.beyond_s_per_byte(),
    )  # fmt: skip
    stretched = reliability.stretched(devices, written)
    return stretched, {
        "goodput": 1 / stretched,
        "failures_per_day": 86400.0 * reliability.rate_hz(devices),
        "checkpoint_s": written,
        "checkpoint_interval_s": reliability.best_interval_s(devices, written),
    }


def _carbon(cluster: Cluster, devices: Array, time_s: Array, energy_j: Array) -> dict[str, Array]:
    """Kilograms of one step or batch: of making what it uses for so long, of the energy it takes."""
    carbon, facility, accelerator = cluster.carbon, cluster.facility, cluster.accelerator
    assert carbon is not None
    hbm, ddr = accelerator.hbm, cluster.host.memory
    good = None if accelerator.die is None else accelerator.die.good_mm2() * carbon.die_yield
    made = carbon.made_kg(
        getattr(hbm, "capacity_bytes", hbm.usable_bytes()), getattr(ddr, "capacity_bytes", ddr.usable_bytes()), good
    )
    whole = with_spares(cluster, devices) * summed(made)
    embodied = whole * time_s * carbon.grid.waits() / (facility.amortisation_s * facility.in_use_ratio())
    operational = energy_j * carbon.grid.kg_per_j()
    return {
        "carbon_kg": embodied + operational,
        "carbon_kg.embodied": embodied,
        "carbon_kg.operational": operational,
        "carbon_made_kg": whole,
    }


def lifetime_limits(scenario: Scenario, cluster: Cluster) -> dict[str, Array]:
    """Used shares of what bounds a job over its life: spares, the range of a law of quality."""
    limits = scenario.workload.limits(scenario.layout)
    if cluster.reliability is None or scenario.workload.saved_bytes(scenario.layout) is None:
        return limits
    return limits | cluster.reliability.limits(scenario.layout.devices)
