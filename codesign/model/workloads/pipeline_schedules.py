"""Pipeline schedules beside 1F1B: exact lengths, micro-batches in flight, and rules of frameworks that run them.

A micro-batch takes F forward, B for input gradients (recomputation included) and W for weight gradients on each of p
equal stages; a step has m of them. A schedule that defers W fills with it what 1F1B leaves idle. Its length is the
longest of a few chains of operations, each a sum with counts that follow from p and m:

    T = m (F + B + W) + max over chains (f F + b B + w W)

    zb_h1      (p - 1) (F + B - W),  (p - 1) F,  (p - 1) B                                  m >= p
    zb_v       two chunks of half a stage each in V shape: eight chains, see `_zb_v`        m >= 2 p
    dual_pipe  both directions at once, p = 2 h, forward and backward side by side take
               F + B + W:  (h - 2) F + max(h F, (h - 1) B) + (h - 1) max(B - W, 0)          m >= 2 p

The chains are those of the schedules' own lists of operations, executed: `tests/test_pipeline_schedules.py` runs the
lists and finds no difference. Assumes: stages of equal time, messages part of F and B; what forward and
backward of `dual_pipe` hide of each other's exchanges is the plan's `ep_overlap`.

Source: ZB-H1 [qi2024zero]; ZB-V [qi2024memory] as PyTorch lists its operations (`ScheduleZBVZeroBubble`); DualPipe
[deepseekv3] and its published code.
"""

import jax.numpy as jnp
from jaxtyping import Array

from ...core.computed_once import one_call
from ...core.smooth import at_least, at_most, largest
from .lowering import beyond, indivisible
from .plan import SCHEDULES, Layout

__all__ = ["SCHEDULES", "broken_schedule", "chunked_length", "flying", "model_copies", "schedule_violation", "turned"]

ONE_F_ONE_B, ZB_H1, ZB_V, DUAL_PIPE = range(4)
Chain = tuple[Array | float, Array | float, Array | float]
"""Counts of F, B and W beyond m of each."""
MOST_CHAINS = 8


def _zb_h1(p: Array) -> list[Chain]:
    return [(p - 1, p - 1, 1 - p), (p - 1, 0.0, 0.0), (0.0, p - 1, 0.0)]


def _zb_v(p: Array) -> list[Chain]:
    """Chains of two chunks a stage, which take half as long as a stage."""
    chunks: list[Chain] = [
        (0.0, p - 1, 0.0), (1.0, 0.0, p - 2), (0.0, 1.0, p - 2), (2 * p - 3, 2 - p, 0.0),
        (2 * p - 2, 1 - p, -1.0), (0.0, 2 * p - 2, 2 - 2 * p), (2 * p - 2, 0.0, 1 - 2 * p), (2 * p - 3, 1.0, 2 - 2 * p),
    ]  # fmt: skip
    return [(f / 2, b / 2, w / 2) for f, b, w in chunks]


def _dual_pipe(p: Array) -> list[Chain]:
    h = p / 2
    return [(2 * h - 2, 0.0, 0.0), (2 * h - 2, h - 1, 1 - h), (h - 2, 2 * h - 2, 1 - h), (h - 2, h - 1, 0.0)]


def chunked_length(layout: Layout, passes: Array, forward: Array, backward: Array, weights: Array) -> Array:
    """Seconds of a step whose plan names a schedule beside 1F1B; of 1F1B without idle time.

    Args:
        layout: whose plan says which schedule, over how many stages.
        passes: micro-batches m, or those that are counted here.
        forward, backward, weights: F, B and W of one stage.
    """
    return _chunked(layout.plan.schedule, layout.plan.pp, passes, forward, backward, weights)


@one_call()
def _chunked(chosen: Array, p: Array, passes: Array, forward: Array, backward: Array, weights: Array) -> Array:
    """Longest chain of the schedule that is chosen."""
    rows: list[list[Array]] = [[], [], []]
    for index in range(MOST_CHAINS):
        counts: list[Array] = [jnp.asarray(0.0)] * 3
        for number, chains in ((ZB_H1, _zb_h1(p)), (ZB_V, _zb_v(p)), (DUAL_PIPE, _dual_pipe(p))):
            if index < len(chains):
                here = chosen == number
                counts = [jnp.where(here, passes + more, old) for more, old in zip(chains[index], counts, strict=True)]
        for row, count in zip(rows, counts, strict=True):
            row.append(count)
    f, b, w = (jnp.stack(row, axis=-1) for row in rows)
    return largest(f * forward[..., None] + b * backward[..., None] + w * weights[..., None])


def flying(layout: Layout, micro_batches: Array, one_f_one_b: Array) -> Array:
    """Micro-batches whose activations a stage holds, every stage alike but under 1F1B."""
    chosen, p = layout.plan.schedule, layout.plan.pp
    alike = at_most(jnp.where(chosen == DUAL_PIPE, p + 1, p), micro_batches)
    return jnp.where(chosen > ONE_F_ONE_B, alike, one_f_one_b)


def model_copies(layout: Layout) -> Array:
    """Stages that a device holds: two of `dual_pipe`, which sends micro-batches from both ends."""
    return jnp.where(layout.plan.schedule == DUAL_PIPE, 2.0, 1.0)


def turned(layout: Layout) -> Array:
    """1 where the first device holds the last stage too: V shape and both directions."""
    return jnp.where(layout.plan.schedule >= ZB_V, 1.0, 0.0)


def schedule_violation(layout: Layout, micro_batches: Array) -> Array:
    """Violation of the schedule's requirements: a pipeline, chunks, micro-batches, stages of equal length."""
    plan = layout.plan
    chosen, p = plan.schedule, plan.pp
    least = jnp.where(chosen == ZB_H1, p, 2 * p)
    few = beyond(least, at_least(micro_batches, 1e-6))
    chunks = jnp.abs(plan.virtual_stages - jnp.where(chosen == ZB_V, 2.0, 1.0))
    pairs = indivisible(p, jnp.asarray(2.0)) + indivisible(micro_batches, jnp.asarray(2.0))
    other = jnp.where(p > 1, 0.0, 1.0) + plan.first_stage_less + plan.last_stage_less
    result = few + chunks + other + jnp.where(chosen == DUAL_PIPE, pairs, 0.0)
    return jnp.where(chosen > ONE_F_ONE_B, result, 0.0)


def broken_schedule(layout: Layout, micro_batches: float) -> str:
    """One line on what a schedule asks and the plan does not give."""
    plan = layout.plan
    number, p, chunks = round(float(plan.schedule)), float(plan.pp), float(plan.virtual_stages)
    name = f"plan.schedule = {SCHEDULES[number]}"
    needed = 2.0 if number == ZB_V else 1.0
    least = p if number == ZB_H1 else 2 * p
    if p <= 1:
        return f"{name} needs a pipeline, but plan.pp = 1"
    if chunks != needed:
        whose = "PyTorch: two stages a rank" if number == ZB_V else "one chunk a stage"
        return f"{name} takes plan.virtual_stages = {needed:g} ({whose}), not {chunks:g}"
    if micro_batches < least:
        return (
            f"{name} takes {least:g} micro-batches or more over plan.pp = {p:g} stages, not {micro_batches:g} of"
            f" plan.micro_batch = {float(plan.micro_batch):g}"
            f"{' (DualPipe: num_chunks >= 2 * num_ranks)' if number == DUAL_PIPE else ''}:"
            f" workload.global_batch of {least * float(layout.dp * plan.micro_batch):g} or more"
        )
    if number == DUAL_PIPE and (p % 2 or micro_batches % 2):
        return (
            f"{name} takes stages and micro-batches in pairs (DualPipe: both directions), not plan.pp = {p:g} with"
            f" {micro_batches:g}"
        )
    return f"{name} takes stages of equal length: plan.first_stage_less and plan.last_stage_less of 0"
