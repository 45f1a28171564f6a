"""Served rows whose clients do not all fit: how many requests an engine has room for, and who waits (`waiting_room`).

Engines fill `MEMORY_SHARE` of a device, or of what weights and activations leave, with cache; TensorRT-LLM promises a
request the room of its whole answer before it begins (`GUARANTEED_NO_EVICT`), the others take room back. An engine
serves B = min(clients, room) at a time and is priced with them; of a row `crowded` = clients / B - 1 says who waits.

Assumes: nobody shares a prompt, no table states one; an engine whose weights would leave less of its default share than
it keeps back of the device was given more, as it was measured: nobody waits there. Source: defaults of vLLM and
TensorRT-LLM in their documentation; those of SGLang, which differ by device, are taken alike.
"""

from collections.abc import Sequence

import numpy as np

from ...model.workloads import ContinuousServing
from ...model.workloads.waiting_room import RoomTaken, fitting
from .batches import batches, grouped, vectorised
from .served_jobs import Job, continuous_sheet

MEMORY_SHARE = 0.9
"""Share of a device's memory: `gpu_memory_utilization` (vLLM), `free_gpu_memory_fraction` (TensorRT-LLM), published."""
PROMISING = ("trtllm",)
"""Engines that promise the whole answer, and whose share is one of what is free once weights are there."""


def _memory(one):
    """Bytes of a device: all, weights, and with activations; what one request holds on average, and at its end."""
    job, layout = one.workload, one.layout
    assert isinstance(job, ContinuousServing)
    parts = job.footprint(layout)
    taken = parts["weights"][0] + parts["working"][0]
    block = 0.5 * job.block_tokens
    mean = job.kv_bytes(layout, job.context() + block)
    whole = job.kv_bytes(layout, job.input_tokens + job.output_tokens + block)
    return one.cluster.accelerator.hbm.usable_bytes(), parts["weights"][0], taken, mean, whole


_held = vectorised(_memory)


def room_of(jobs: Sequence[Job]) -> np.ndarray:
    """Requests that each job's engine has room for at once; infinite where the default leaves next to nothing.

    Raises:
        ConfigError: a device lacks a number format.
    """
    usable, weights, taken, mean, whole = grouped(batches([continuous_sheet(job, {}) for job in jobs]), _held)
    promised = np.array([job.engine in PROMISING for job in jobs])
    room = np.where(promised, MEMORY_SHARE * (usable - taken), MEMORY_SHARE * usable - taken)
    sharing = np.array([job.groups * job.replicas for job in jobs])
    result = sharing * fitting(RoomTaken(room, np.zeros(len(jobs)), mean, whole), promised)
    known = (MEMORY_SHARE * usable - weights > (1 - MEMORY_SHARE) * usable) & (result >= 1)
    return np.where(known, result, np.inf)


def in_room(jobs: Sequence[Job]) -> tuple[list[Job], np.ndarray]:
    """The jobs with as many sequences as are served at a time, and how many clients wait for each of these."""
    clients = np.array([job.sequences for job in jobs])
    served = np.minimum(clients, room_of(jobs))
    kept = [job._replace(sequences=float(count)) for job, count in zip(jobs, served, strict=True)]
    return kept, clients / served - 1
