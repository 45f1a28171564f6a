"""What lies in which memory."""

from jaxtyping import Array

from ...core.jax_typed import asarray
from ..networks.fabrics import Group
from ..scenario import Cluster, Scenario
from ..workloads import Layout


def memory_by_class(scenario: Scenario, layout: Layout | None = None) -> dict[str, Array]:
    """Bytes per device as `tier/class`: an offloaded share x leaves (1 - x) of the class, or its buffer, behind.

    Near memory holds (1 - x) all + x buffer, far memory x all. Of what near memory keeps once for several replicas
    (`AbstractMemory.kept_ratio`), each device has its part.
    """
    layout = scenario.workload.laid_out(scenario.layout) if layout is None else layout
    used: dict[str, Array] = {}
    hbm, holders = scenario.cluster.accelerator.hbm, layout.devices / layout.dp
    for name, (whole, buffer) in scenario.workload.footprint(layout).items():
        afar = layout.plan.offloaded(name)
        share = 0.0 if afar is None else afar
        kept = hbm.kept_ratio(name, holders, layout.dp)
        used[f"hbm/{name}"] = (1 - share) * kept * whole + share * buffer
        if afar is not None:
            used[f"ddr/{name}"] = share * whole
    return used


def per_tier(used: dict[str, Array]) -> dict[str, Array]:
    """Summed over classes."""
    tiers: dict[str, Array] = {}
    for name, nbytes in used.items():
        tier = name.split("/")[0]
        tiers[tier] = tiers.get(tier, 0.0) + nbytes
    tiers.setdefault("ddr", 0.0 * tiers["hbm"])  # of a family that leaves everything near
    return tiers


def memory_limits(cluster: Cluster, used: dict[str, Array]) -> dict[str, Array]:
    """Used share of what bounds the accelerator's memory beyond its capacity: tiers, placement, the die's edge."""
    accelerator = cluster.accelerator
    near = {name.split("/")[1]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
    limits = dict(accelerator.hbm.limits(near))
    if accelerator.shoreline is not None:
        link = cluster.network[cluster.levels[0]].fabric.link(Group(asarray(2.0)))
        rates = accelerator.hbm.edge_bytes_per_s() | {"scale_up": 1 / link.beta_s_per_byte}
        limits["shoreline"] = accelerator.shoreline.used_share(rates, accelerator.dies())
    return limits
