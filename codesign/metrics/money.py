"""What a cluster costs to buy, to power and to run."""

from jaxtyping import Array

from ..scenario import Cluster


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
