"""Arithmetic intensity of a job's phases: FLOPs over bytes of device memory."""

from jaxtyping import Array

from codesign.core import at_least
from codesign.model import Scenario
from codesign.model.workloads import ComputeOp, Precision

CORES = ("attention_prefill", "attention_decode")


def streamed_again_bytes(op: ComputeOp, block_rows: float, causal: float) -> Array:
    """What a fused attention core reads beyond one pass over keys and values.

    Each block of `block_rows` queries streams the keys it attends once for each key-value head: in the mean
    rows / block_rows (1 - causal (rows - block_rows) / (2 cols)) passes, at least the one that is compulsory.

    Assumes: no cache keeps keys from one block to the next; the query heads of a group share a pass.
    """
    work = op.work
    once = 2 * work.groups * work.cols * work.depth * Precision(kv_cache=op.number_format).bytes_of("kv_cache")
    passes = work.rows / block_rows * (1 - 0.5 * causal * (work.rows - block_rows) / work.cols)
    return at_least(passes - 1, 0.0) * once


def arithmetic_intensity(
    scenario: Scenario, *, block_rows: float | None = None, causal: float = 1.0
) -> dict[str, Array]:
    """Phase -> FLOP per byte of everything one device computes in it, repetitions included.

    Args:
        scenario: any job.
        block_rows: queries a block of fused attention; keys and values are then read again for every block. None
            counts compulsory traffic only.
        causal: 1 where a block reads only the keys before it.
    """
    flops: dict[str, Array] = {}
    nbytes: dict[str, Array] = {}
    for op in scenario.workload.lower(scenario.layout):
        if not isinstance(op, ComputeOp):
            continue
        again = 0.0
        if block_rows is not None and op.kernel in CORES:
            again = streamed_again_bytes(op, block_rows, causal)
        flops[op.phase] = flops.get(op.phase, 0.0) + op.work.flops * op.count
        nbytes[op.phase] = nbytes.get(op.phase, 0.0) + (op.work.nbytes + again) * op.count
    return {phase: flops[phase] / nbytes[phase] for phase in flops}
