"""Consistency of the parts of a design: levels and networks, experts, devices and the boxes they sit in."""

import math
from typing import Any

from ..core.errors import ConfigError
from ..model.networks.fabrics import AbstractFabric, FatTree, FoldedClos
from ..model.scenario import Cluster, Scenario

__all__ = ["check_boxes", "check_experts", "check_images", "check_levels"]

LARGEST_BOX = 16.0
"""Devices of the largest chassis that is sold. Larger domains are racks and pods: a cluster may have a part of one."""


def check_levels(cluster: Cluster) -> None:
    """Every network that is described must carry something, and none may be passed twice.

    Raises:
        ConfigError: the level, and how to name it or leave it out.
    """
    pools = {"cluster": cluster}
    if cluster.prefill is not None:
        pools["cluster.prefill.cluster"] = cluster.prefill.cluster
    if cluster.later_stages is not None:
        pools["cluster.later_stages.cluster"] = cluster.later_stages.cluster
    for where, one in pools.items():
        listed = f"{where}.levels = [{', '.join(one.levels)}]"
        pinned = {level for _, level in one.placement}
        for name in one.levels:
            if one.levels.count(name) > 1:
                raise ConfigError(f"{listed} names {name} twice; name each entry of {where}.network once")
        for name in one.network:
            if name not in one.levels and name not in pinned:
                every = ", ".join((name, *one.levels) if name == next(iter(one.network)) else (*one.levels, name))
                raise ConfigError(
                    f"{listed} leaves out {name} of {where}.network, which would carry and cost nothing; take"
                    f" {where}.levels=[{every}], innermost first, or delete the network: '~{where}.network.{name}'"
                )


def check_experts(scenario: Scenario) -> None:
    """A token visits no more experts than there are.

    Raises:
        ConfigError: both numbers.
    """
    network = getattr(getattr(scenario.workload, "model", None), "feed_forward", None)
    if not hasattr(network, "top_k"):
        return
    there, visited = (_number(scenario, network, name) for name in ("experts", "top_k"))
    if visited > there:
        raise ConfigError(
            f"workload.model.feed_forward.top_k = {visited:g} experts of a token are more than the"
            f" {there:g} of workload.model.feed_forward.experts; take {there:g} or fewer"
        )


def check_images(scenario: Scenario) -> None:
    """Images are of a model that sees, and of a size that is known.

    Raises:
        ConfigError: the number of images, and what would say their size.
    """
    images = float(getattr(scenario.workload, "images", 0.0))
    model: Any = getattr(scenario.workload, "model", None)
    if not images or not hasattr(model, "vision"):
        return
    if model.vision is None:
        raise ConfigError(
            f"workload.images = {images:g}: {model.name} has no vision encoder; allowed: 0, or a model whose"
            " config.json describes one under vision_config"
        )
    if not float(model.vision.patches) > 0:
        raise ConfigError(
            f"workload.images = {images:g}: the file of {model.name} does not say how large an image is; model.vision"
            ".patches=2304 (48 x 48 patches), or model.image_patches of a config.json, does"
        )


def _number(scenario: Scenario, network: Any, name: str) -> float:
    """A number of the model, or the one that the plan has in its place."""
    own = getattr(scenario.plan, name, None)
    return float(getattr(network, name) if own is None else own)


def check_boxes(scenario: Scenario) -> None:
    """Devices must fill the boxes that they are bought in; a job in one box may leave devices of it to others.

    Raises:
        ConfigError: how many are left over, and the nearest numbers of devices that fill boxes.
    """
    own = scenario.plan.device_count
    counted = "cluster.device_count" if own is None else "plan.device_count"
    _check_filled(counted, float(scenario.layout.devices), scenario.cluster)
    pool = scenario.cluster.prefill
    if pool is not None:
        _check_filled("plan.prefill_devices", float(scenario.plan.prefill_devices), pool.cluster)


def _check_filled(key: str, devices: float, cluster: Cluster) -> None:
    if len(cluster.levels) < 2:
        return
    name = cluster.levels[0]
    box = box_of(cluster.network[name].fabric)
    left = math.fmod(devices, box)
    if box <= 1 or devices <= box or left == 0:
        return
    near = f"{devices - left:.12g} or {devices - left + box:.12g}"
    raise ConfigError(
        f"{key} = {devices:.12g} does not fill boxes of {box:g} devices (cluster.network.{name}): {left:g} are left"
        f" over; take {near}"
    )


def box_of(fabric: AbstractFabric) -> float:
    """Devices of a box whose inside a fabric is; 1 of a fabric that joins boxes, racks or pods."""
    if isinstance(fabric, FatTree | FoldedClos):
        return 1.0
    reach = float(fabric.reach())
    return reach if reach <= LARGEST_BOX and reach.is_integer() else 1.0
