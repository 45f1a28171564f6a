"""Purchase price, power and running cost of a cluster."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..scenario import Cluster, Facility
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


class Spent(NamedTuple):
    """Cost that a pool adds to a cluster: price, provisioned power, energy and money of one step or batch."""

    capex_usd: Array
    provisioned_w: Array
    energy_j: Array
    usd: Array


class PoolBought(NamedTuple):
    """A whole pool of accelerators that computes prompts beside a cluster, of which `cluster` is one; totals by part.

    The link between the pools is counted here: every device of both has a port of it.
    """

    cluster: Cluster
    devices: Array
    capex_usd: dict[str, Array]
    provisioned_w: dict[str, Array]
    idle_w: Array

    def cost(self, timeline: Timeline, facility: Facility) -> Spent:
        """Cost that the pool adds, the facility's overhead included."""
        watts = facility.pue * summed(self.provisioned_w)
        capex = summed(self.capex_usd) + watts * facility.usd_per_w
        energy = facility.pue * (self.devices * timeline.beside_j + self.idle_w * timeline.time_s)
        return Spent(capex, watts, energy, facility.usd(capex, self.devices, timeline.time_s, energy))

    def peak(self, number_format: str) -> Array:
        """FLOP/s of one device."""
        return self.cluster.accelerator.peak(number_format)

    def usable_bytes(self) -> Array:
        """Near memory of one device."""
        return self.cluster.accelerator.hbm.usable_bytes()


def later_pool(cluster: Cluster, layout: Layout) -> PoolBought | None:
    """The later stages of a pipeline; None where all are of one kind."""
    if cluster.later_stages is None:
        return None
    devices = layout.devices * layout.plan.later_stages / layout.plan.pp
    own = cluster.later_stages.cluster.joining(layout.devices)
    return PoolBought(
        own, devices,
        {"later_stages": devices * summed(device_capex_usd(own))},
        {"later_stages": devices * summed(device_provisioned_w(own))},
        devices * device_idle_w(own),
    )  # fmt: skip


def own_devices(cluster: Cluster, layout: Layout) -> Array:
    """Devices of a layout that are of the cluster's first kind."""
    later = later_pool(cluster, layout)
    return layout.devices if later is None else layout.devices - later.devices


def prefill_pool(cluster: Cluster, layout: Layout) -> PoolBought | None:
    """The pool of a layout; None where the cluster has none beside it."""
    if cluster.prefill is None:
        return None
    devices, link = layout.plan.prefill_devices, cluster.prefill.link
    own = cluster.prefill.cluster.joining(layout.prefill.devices)
    ports = devices + jnp.where(devices > 0, layout.devices, 0.0)
    lit = ports * link.fabric.static_power_w()
    return PoolBought(
        own, devices,
        {"prefill": devices * summed(device_capex_usd(own)), "kv_transfer": ports * link.capex_usd()},
        {"prefill": devices * summed(device_provisioned_w(own)), "kv_transfer": lit},
        devices * device_idle_w(own) + lit,
    )  # fmt: skip
