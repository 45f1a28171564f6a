"""Overlap in the peer model Calculon [isaev2023]: shares hidden behind a pass, as a plan of this package takes them."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array

from ...core.fields import replace
from ...core.smooth import at_least, at_most, floor, ratio
from ...model.metrics import priced_ops
from ...model.scenario import Cluster, Scenario
from ...model.workloads import CommOp, ComputeOp, Plan, Training
from ...model.workloads.schedule import Pass, Priced, one_pass, total


def hidden_shares(candidate: Scenario) -> dict[str, Array]:
    """Plan fields that say how much of a pass hides offload and data-parallel traffic, by the peer's own windows.

    Neither goes beside memory traffic. Gradients and gathered weights of all chunks but the last go beside p passes of
    a chunk, less a send for every chunk that they outlast; those of the last beside its own pass without one block.
    The peer takes the traffic of what is recomputed off as a running sum (its own bug); under full recomputation
    nothing remains of the window.
    """
    layout, job = candidate.layout, candidate.workload
    if not isinstance(job, Training) or job.forward_only:
        return {}
    peaks = {
        f"cluster.accelerator.peak_flops_per_s.{kind}": 1e30 for kind in candidate.cluster.accelerator.peak_flops_per_s
    }
    whole, moved = priced_ops(candidate), priced_ops(replace(candidate, peaks))
    exposed = dataclasses.replace(candidate.plan, offload_overlap=jnp.asarray(0.0), dp_overlap=jnp.asarray(0.0))

    def passed(phase: str, plan: Plan = exposed) -> Pass:
        return one_pass(whole, phase, plan, job.kernel_slowdown, job.launch_s)

    again, back = passed("recompute"), passed("backward")
    traffic, sends = total(moved, "backward", ComputeOp).time_s, back.exposed_s["pp"]
    own = back.busy_s - back.exposed_s["offload"] - sends
    offload = ratio(again.busy_s + own - traffic, own)
    forward = passed("forward", dataclasses.replace(exposed, offload_overlap=offload))
    busy = at_least(again.busy_s + own, traffic + back.exposed_s["offload"]) + sends

    v, pp, blocks = layout.plan.virtual_stages, layout.plan.pp, job.layers_per_stage(layout)
    sync, gather = (total(whole, phase, CommOp).time_s for phase in ("gradients", "parameters"))
    window = (busy - traffic - _redone_traffic(moved, candidate.cluster)) / v
    outlasted = at_most(floor((sync + gather) / busy), pp)
    chunks = (v - 1) * at_least(pp * window - outlasted * sends / v, 0.0)
    last = jnp.where(blocks > v, at_least(window - sends / v - busy / blocks, 0.0), 0.0)
    ours = (1 + (v - 1) * at_most(pp, job.micro_batches(layout))) / v * busy, forward.busy_s
    share = _hiding(at_most(chunks + last, (sync + gather) * (1 - 1 / blocks)), sync * (1 - 1 / blocks), gather, *ours)
    share = jnp.where(layout.plan.recompute < 2, share, 0.0)  # above 1: the gathering too goes beside backward passes
    return {"plan.offload_overlap": offload, "plan.dp_overlap": layout.plan.dp_overlap * share}


def _hiding(hidden: Array, sync: Array, gather: Array, backward: Array, forward: Array) -> Array:
    """The share o of a pass at which min(o backward, sync) + min(o forward, gather) is what the peer hides."""
    both = hidden / (backward + forward)
    return at_least(at_least(both, (hidden - sync) / forward), (hidden - gather) / backward)


def _redone_traffic(moved: Priced, cluster: Cluster) -> Array:
    """Memory time of the operations that are recomputed, each with all that come before it in the layer."""
    gathers = [
        op for op, _ in moved if isinstance(op, CommOp) and op.phase == "forward" and op.operation == "all_gather"
    ]
    running = jnp.asarray(0.0)
    for op in gathers[:1]:
        if op.local is not None:
            running = (
                running
                + cluster.accelerator.compute(op.local, op.count, kind="elementwise", number_format="vector").time_s
            )
    forward = [(op, cost) for op, cost in moved if isinstance(op, ComputeOp) and op.phase == "forward"]
    again = [op for op, _ in moved if isinstance(op, ComputeOp) and op.phase == "recompute"]
    redone = jnp.asarray(0.0)
    for (op, cost), repeat in zip(forward, again, strict=False):
        running = running + cost.time_s
        redone = redone + running * ratio(repeat.count, op.count)
    return redone
