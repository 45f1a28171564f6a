"""Consistency of the parts of a design: levels and networks, experts, devices and the boxes they sit in."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError
from ..core.fields import as_leaf
from ..model.networks.fabrics import AbstractFabric, FatTree, FoldedClos
from ..model.scenario import Cluster, Scenario
from ..model.workloads import AbstractServing
from ..model.workloads.goodput import (
    ENGINE,
    FOREVER_S,
    HELPS,
    SLO,
    AbstractGoodputServing,
    AbstractOpenServing,
    AbstractServingAtRate,
    GoodputServing,
    ServingAtRate,
    below_the_floor,
    over_the_rate,
)
from ..model.workloads.plan import PREFILL
from ..model.workloads.pools_under_load import AbstractPoolsUnderLoad, DisaggregatedAtRate, DisaggregatedGoodput
from ..search.results import numbers_of
from ..study.objective import feasible

__all__ = [
    "at_rate", "box_of", "check_boxes", "check_experts", "check_images", "check_levels", "check_load",
    "idle_fields",
]  # fmt: skip


# Checks of arrival rates and SLOs, with messages that name configuration keys.


QUIET = 1e-6  # requests/s at which nobody meets anybody


def check_load(scenario: Scenario, numbers: Mapping[str, float]) -> None:
    """Refuse a rate that the engines of a design do not sustain, and an SLO that they keep at no rate.

    Args:
        scenario: of any workload.
        numbers: its metrics by name.

    Raises:
        ConfigError: by how much, and what would help.
    """
    over = {
        name: numbers[f"usage.{ENGINE}.{name}"]
        for name in ("prompts", "decodes", "ttft", "tpot")
        if not feasible(numbers.get(f"usage.{ENGINE}.{name}", 0.0) - 1)
    }
    if not over:
        return
    work = scenario.workload
    if isinstance(work, AbstractServingAtRate):
        raise ConfigError(_too_many(scenario, work, over))
    assert isinstance(work, AbstractGoodputServing)
    raise ConfigError(_too_tight(scenario, work))


def _too_many(scenario: Scenario, work: AbstractServingAtRate, over: Mapping[str, float]) -> str:
    """A rate beside what is sustained."""
    forever = SLO(as_leaf(FOREVER_S), as_leaf(FOREVER_S))
    unbounded = numbers_of(dataclasses.replace(scenario, workload=keeping(work, forever)))
    rate, plan = float(work.arrivals_per_s), scenario.plan
    apart = work.two_pools and float(plan.prefill_devices) > 0
    if apart and max(over, key=lambda name: over[name]) == "prompts":
        why = f"since the prefill engines, or their links, would be {over['prompts']:.4g} times as busy as they can"
        helps = "a larger plan.prefill_devices or plan.prefill_token_budget"
    elif "prompts" in over and not apart:
        size = float(plan.token_budget)
        why = f"since prefill would fill {over['prompts']:.4g} of every step of plan.token_budget = {size:g} tokens"
        helps = "a larger plan.token_budget"
    else:
        why = f"decodes would take {over['decodes']:.4g} of the slots of plan.micro_batch = {float(plan.micro_batch):g}"
        helps = "a larger plan.micro_batch"
    return over_the_rate(f"workload.arrivals_per_s = {rate:.4g}", rate, unbounded["requests_per_s"], why, helps)


def _too_tight(scenario: Scenario, work: AbstractGoodputServing) -> str:
    """An SLO beside what a request sees that is alone."""
    quiet = at_rate(work, QUIET)
    alone, agreed = numbers_of(dataclasses.replace(scenario, workload=quiet)), work.slo
    floors = {name: alone[f"{name.removesuffix('_s')}_p{100 * agreed.attainment:.0f}_s"] for name in HELPS}
    worst = max(HELPS, key=lambda name: floors[name] / float(getattr(agreed, name)))
    limit = float(getattr(agreed, worst))
    return below_the_floor(f"workload.slo.{worst}", limit, floors[worst], agreed.attainment)


def keeping(work: AbstractOpenServing, slo: SLO) -> AbstractOpenServing:
    """Goodput workload of the same requests and engines: the largest rate that meets an SLO."""
    two = isinstance(work, AbstractPoolsUnderLoad)
    return (DisaggregatedGoodput if two else GoodputServing)(**_common(work), slo=slo)


def at_rate(work: AbstractOpenServing, rate: float) -> AbstractOpenServing:
    """Workload of the same requests and engines at a given arrival rate."""
    two = isinstance(work, AbstractPoolsUnderLoad)
    return (DisaggregatedAtRate if two else ServingAtRate)(**_common(work), arrivals_per_s=as_leaf(rate))


def _common(work: AbstractOpenServing) -> dict[str, Any]:
    return {field.name: getattr(work, field.name) for field in dataclasses.fields(AbstractOpenServing)}


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
    if cluster.ffn is not None:
        pools["cluster.ffn.cluster"] = cluster.ffn.cluster
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
    stated = getattr(scenario.plan, name, None)
    return float(getattr(network, name) if stated is None else stated)


def check_boxes(scenario: Scenario) -> None:
    """Devices must fill the boxes that they are bought in; a job in one box may leave devices of it to others.

    Raises:
        ConfigError: how many are left over, and the nearest numbers of devices that fill boxes.
    """
    plan_count = scenario.plan.device_count
    counted = "cluster.device_count" if plan_count is None else "plan.device_count"
    _check_filled(counted, float(scenario.layout.devices), scenario.cluster)
    pool, networks = scenario.cluster.prefill, scenario.cluster.ffn
    if pool is not None:
        _check_filled("plan.prefill_devices", float(scenario.plan.prefill_devices), pool.cluster)
    if networks is not None:
        _check_filled("plan.ffn_devices", float(scenario.plan.ffn_devices), networks.cluster)


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


OF_TRAINING = (
    "virtual_stages", "schedule", "first_stage_less", "last_stage_less", "recompute", "recompute_share",
    "recompute_modules", "zero", "reduce_grads_every_microbatch", "prefetch", "loss_chunks", "offload_activations",
    "offload_modules", "offload_optimizer", "offload_gradients", "partition_activations", "sequence_parallel_regather",
    "dp_overlap",
)  # fmt: skip
OF_SERVING = ("token_budget", "attention_dp", "offload_kv_cache", "pool_kv_cache", "prefill_devices", *PREFILL)
OF_EXPERTS = ("ep", "etp", "ep_overlap", "prefill_ep", "prefill_etp")


def idle_fields(scenario: Scenario) -> dict[str, str]:
    """Plan field -> why it changes nothing of a scenario, whatever its value and the rest of the plan."""
    work, result = scenario.workload, dict[str, str]()
    model = getattr(work, "model", None)
    if hasattr(work, "global_batch"):
        result |= dict.fromkeys(OF_SERVING, "it is of serving; leave it out, or choose workload=continuous")
        why = "it is of serving; leave it out, or choose workload=disaggregated"
        result |= dict.fromkeys(("prefill_devices", *PREFILL), why)
    if isinstance(work, AbstractServing):
        result |= dict.fromkeys(OF_TRAINING, "it is of training; leave it out, or choose workload=training")
        if not work.two_pools:
            why = "prompts are computed beside decodes; choose workload=disaggregated prefill=same"
            result |= dict.fromkeys(("prefill_devices", *PREFILL), why)
    if model is not None and hasattr(model, "feed_forward"):
        result |= dict.fromkeys(
            ("row_shards", "column_shards"),
            "it is of embedding tables; leave it out, or choose workload=recommendation",
        )
        if not model.has_experts:
            result |= dict.fromkeys(OF_EXPERTS, f"{model.name or 'this model'} has no experts")
    return result
