"""Inference on eight H100 against one processor on a photonic memory appliance, as CelestiSim compares them.

A static batch is prefilled and decoded by this package's own serving model; only constants are replaced. With the
`reference` set (fitted) linear layers take max(F / (ec P), (bytes + Bh) / (u W)), attention half of ec, an all-reduce
alpha + 2 (t-1)/t bytes / rate; with `untuned` the kernels and collectives are those measured on an H100.

Source: [ding2025pfa] section 6; table 5.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Array

from codesign.config import scenario_from_config
from codesign.core import replace
from codesign.model import Scenario
from codesign.model.hardware import Accelerator, Link, MemoryTier, Roofline, SharedPool
from codesign.model.metrics import evaluate
from codesign.model.networks.collectives import Collectives, NetworkLevel, RingAllGather, ScaledVolume, Send
from codesign.model.networks.fabrics import SwitchDomain
from codesign.model.workloads import Plan
from codesign.staging import at_many

__all__ = [
    "APPLIANCE", "DGX", "H100_BYTES_PER_S", "HOP_BYTES_PER_S", "PATHS", "PORTS", "TWO_DGX", "appliance_pool", "at",
    "compare", "largest_batch", "outside", "price", "reference", "untuned",
]  # fmt: skip

H100_FLOPS, H100_BYTES_PER_S, H100_BYTES = 1.979e15, 3350e9, 80e9
APPLIANCE_BYTES_PER_S, APPLIANCE_BYTES = 26800e9, 32000e9
PORT_BYTES_PER_S, PORTS = 0.9e12, 16  # 7.2 Tb/s each

COMPUTE_RATIO, MEMORY_RATIO = 0.90, 0.90
HALF_BYTES = 8e6
ALL_REDUCE_S, ALL_REDUCE_BYTES_PER_S = 12e-6, 0.75 * 450e9
HOP_S, HOP_BYTES_PER_S = 10e-6, 50e9
RESERVED = 0.075

DGX = {"devices": 8.0, "tp": 8.0, "pp": 1.0, "flops": H100_FLOPS, "bandwidth": H100_BYTES_PER_S}
TWO_DGX = DGX | {"devices": 16.0, "pp": 2.0}
APPLIANCE = {"devices": 1.0, "tp": 1.0, "pp": 1.0, "flops": 8 * H100_FLOPS, "bandwidth": APPLIANCE_BYTES_PER_S}
LAYERS = {"405B": 126.0, "1T": 312.0}  # a trillion parameters of the same block
LENGTHS = ((128.0, 128.0), (128.0, 4096.0), (4096.0, 128.0), (4096.0, 4096.0))

PATHS = {
    "devices": ("cluster.device_count",),
    "tp": ("plan.tp",),
    "pp": ("plan.pp",),
    "batch": ("plan.micro_batch",),
    "flops": ("cluster.accelerator.peak_flops_per_s.fp8",),
    "bandwidth": ("cluster.accelerator.hbm.bandwidth_bytes_per_s",),
    "input": ("workload.input_tokens",),
    "output": ("workload.output_tokens",),
    "layers": ("workload.model.layers",),
}


def appliance_pool(ports: float = PORTS, *, bound: bool = True) -> SharedPool:
    """The appliance's memory through some of its ports; without their bound, the document's reading of it."""
    tier, port = MemoryTier(APPLIANCE_BYTES, APPLIANCE_BYTES_PER_S), Link(0.0, 1 / PORT_BYTES_PER_S)
    return SharedPool(tier, port, float(PORTS), 1.0, float(ports), port_bound=float(bound))


@functools.cache
def reference() -> Scenario:
    """Llama 3.1 405B in fp8 with 16-bit cache and activations, the fitted constants."""
    scenario = untuned()
    linear, attention = Roofline(0.0, COMPUTE_RATIO, MEMORY_RATIO), Roofline(0.0, 0.5 * COMPUTE_RATIO, MEMORY_RATIO)
    device = Accelerator(
        name="h100_of_the_document",
        peak_flops_per_s={"fp8": H100_FLOPS, "vector": 1e15},  # element-wise work waits for memory alone
        hbm=MemoryTier(H100_BYTES, H100_BYTES_PER_S, half_bytes=HALF_BYTES, reserved_bytes=0.0),
        kernels={
            "gemm": {"fp8": linear},
            "attention_prefill": {"fp8": attention},
            "attention_decode": {"fp8": attention},
            "elementwise": {"any": Roofline(0.0, 1.0, MEMORY_RATIO)},
        },
        energy_j_per_flop={},
    )

    def level(endpoints: float, rate: float, latency: float) -> NetworkLevel:
        once = ScaledVolume(2.0, -1.0)  # one latency, 2 (n-1)/n of the buffer
        rings = Collectives(once, RingAllGather(), RingAllGather(), RingAllGather(), Send())
        return NetworkLevel(SwitchDomain(endpoints, rate, latency), rings)

    network = {
        "scale_up": level(8.0, ALL_REDUCE_BYTES_PER_S, ALL_REDUCE_S),
        "scale_out": level(64.0, HOP_BYTES_PER_S, HOP_S),
    }
    cluster = dataclasses.replace(scenario.cluster, accelerator=device, network=network)
    return dataclasses.replace(scenario, cluster=cluster)


@functools.cache
def untuned() -> Scenario:
    """The same job with the kernel and collective constants measured on an H100, nothing fitted to the document."""
    scenario = scenario_from_config(
        "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=static_batch", "model=llama31_405b",
        "plan=serving_node", "workload.split_batch=0", "workload.precision.compute=fp8",
        "workload.precision.weights=fp8", "workload.precision.attention=fp8",
    )  # fmt: skip
    return dataclasses.replace(scenario, plan=Plan())


@functools.cache
def _priced() -> Callable[..., Any]:
    def one(base: Scenario, row: dict[str, Array]) -> dict[str, Array]:
        scenario = replace(base, {path: row[name] for name, paths in PATHS.items() for path in paths})
        metrics = evaluate(scenario)
        layout, job = scenario.layout, scenario.workload
        return {
            "time_s": metrics.time_s,
            "ttft_s": metrics.extra["ttft_s"],
            "tpot_s": metrics.extra["tpot_s"],
            "weights": job.weight_bytes(layout),
            "sequence": job.kv_bytes_per_sequence(layout),
            "parameters": job.model.parameters(),
        }

    return at_many(one, in_axes=(None, 0))


def price(scenario: Scenario, rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Many cases in one call.

    Args:
        scenario: constants, `reference()` or `untuned()`.
        rows: the keys of `PATHS`.

    Returns:
        time_s, ttft_s and tpot_s of the batch; bytes of the weights, of one sequence's cache, on a device; parameters.
    """
    columns = {name: np.array([float(row[name]) for row in rows]) for name in PATHS}
    return _priced()(scenario, columns)


def largest_batch(
    scenario: Scenario, rows: list[dict[str, float]], capacity_bytes: list[float], reserved: float = RESERVED
) -> np.ndarray:
    """Whole sequences that fit beside the weights when a share `reserved` of the memory is kept free."""
    held = price(scenario, [row | {"batch": 1.0} for row in rows])
    room = np.asarray(capacity_bytes) * (1 - reserved) - held["weights"]
    return np.maximum(np.floor(room / held["sequence"]), 0.0)


def compare(
    scenario: Scenario,
    model: str,
    *,
    reserved: float = RESERVED,
    compute: float = 1.0,
    pool: SharedPool | None = None,
) -> pd.DataFrame:
    """The appliance against the DGX (two of them for 1T) at the four pairs of lengths.

    Args:
        scenario: constants.
        model: 405B or 1T.
        reserved: share of every memory that is kept free.
        compute: of the appliance's processor, as a share of eight H100.
        pool: what the appliance's bandwidth is taken from; default the document's reading.

    Returns:
        A row a pair: input, output, largest batches, throughput_gain, latency_gain and the two MFU at those batches.
    """
    memory = appliance_pool(bound=False) if pool is None else pool
    remote = APPLIANCE | {"flops": compute * APPLIANCE["flops"], "bandwidth": float(memory.bandwidth())}
    systems = [TWO_DGX if model == "1T" else DGX, remote]
    rows = [system | {"input": i, "output": o, "layers": LAYERS[model]} for system in systems for i, o in LENGTHS]
    capacity = [H100_BYTES] * len(LENGTHS) + [float(memory.usable_bytes())] * len(LENGTHS)
    batch = largest_batch(scenario, rows, capacity, reserved)
    single = price(scenario, [row | {"batch": 1.0} for row in rows])["time_s"].reshape(2, -1)
    full = price(scenario, [row | {"batch": at} for row, at in zip(rows, batch, strict=True)])
    rate = batch / full["time_s"]
    flops = np.array([2 * (row["input"] + row["output"]) / (row["flops"] * row["devices"]) for row in rows])
    mfu, rate, batch = (values.reshape(2, -1) for values in (full["parameters"] * flops * rate, rate, batch))
    return pd.DataFrame(
        {
            "input": [i for i, _ in LENGTHS],
            "output": [o for _, o in LENGTHS],
            "dgx_batch": batch[0],
            "appliance_batch": batch[1],
            "throughput_gain": rate[1] / rate[0],
            "latency_gain": single[0] / single[1],
            "dgx_mfu": mfu[0],
            "appliance_mfu": mfu[1],
        }
    )


def at(frame: pd.DataFrame, given: float, wanted: float, column: str) -> float:
    """A column of `compare` at one pair of lengths."""
    return float(frame.loc[(frame["input"] == given) & (frame["output"] == wanted), column].iloc[0])


def outside(value: float, low: float, high: float) -> float:
    """Relative distance of a value from a range; 0 inside."""
    return max(low / value - 1, value / high - 1, 0.0)
