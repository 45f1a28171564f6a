"""Idle power and energy per FLOP and byte, fitted to measured board power.

    P = idle_w + energy_j_per_flop * FLOP/s + energy_j_per_byte * byte/s

A board saturates at its power limit, which a sum of energies cannot: an uncapped fit to the flat part would charge a
GEMM at its plateau far more than the limit. Each energy per FLOP is therefore written as a share (0 to 1) of what is
left between idle and limit when that format runs at `PLATEAU` of its peak, so no compute-bound kernel draws more than
the board may. Memory energy is kept to what is published for stacked DRAM (`BYTE_J`).

Assumes: traffic and arithmetic are the compulsory ones, a lower bound of the real ones; idle is the floor of a board
that is at work (clocks up), well above that of an empty one. The slope is too small at low load: see the residuals.
Source: tables of [mlenergy2025] and of the operator measurements [aiconfigurator].
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

PLATEAU = 0.75
"""Share of the dense peak that a large GEMM reaches ([aiconfigurator] bf16 on H100: 0.73 to 0.77)."""

BYTE_J = (32e-12, 72e-12)
"""Joules per byte of stacked DRAM with its interface: 4 to 9 pJ/bit ([oconnor2017], [micron_hbm])."""

LEAST_LATENCY_US = 50.0
"""Shorter kernels repeat faster than the power sensor resolves and measure the launch loop."""

FORMATS = {"bfloat16": ("bf16", 2.0), "fp8": ("fp8", 1.0), "fp8_block": ("fp8", 1.0)}
PEAKS = {"bf16": "dense_bf16_tflops", "fp8": "dense_fp8_tflops"}
KERNELS = "power/gpu_kernel_power_b200.csv"
SERVING = "power/mlenergy_llm_inference.csv"


class Loads(NamedTuple):
    """What boards did and drew: arrays of one length; format is a column of `PEAKS`."""

    number_format: np.ndarray
    flops_per_s: np.ndarray
    bytes_per_s: np.ndarray
    power_w: np.ndarray


def kernel_loads(frame: pd.DataFrame) -> Loads:
    """Loads of single kernels that repeat (columns of `gpu_kernel_power_b200.csv`)."""
    frame = frame[frame.dtype.isin(FORMATS) & (frame.latency_us > LEAST_LATENCY_US)]
    formats = frame["dtype"].map(lambda name: FORMATS[name][0]).to_numpy()
    return Loads(
        formats,
        frame.achieved_tflops.to_numpy() * 1e12,
        frame.achieved_tbytes_per_s.to_numpy() * 1e12,
        frame.power_w.to_numpy(),
    )


def serving_loads(frame: pd.DataFrame) -> Loads:
    """Loads of dense models in steady-state decoding: all weights once a token interval, 2 FLOPs a weight and token."""
    frame = frame[(frame.architecture == "Dense Transformer") & frame.weight_precision.isin(FORMATS)]
    weights = frame.total_params_billions * 1e9
    nbytes = frame.weight_precision.map(lambda name: FORMATS[name][1])
    return Loads(
        frame.weight_precision.map(lambda name: FORMATS[name][0]).to_numpy(),
        (2 * weights * frame.output_tokens_per_s / frame.num_gpus).to_numpy(),
        (weights * nbytes / (frame.median_itl_ms * 1e-3) / frame.num_gpus).to_numpy(),
        frame.avg_power_w_per_gpu.to_numpy(),
    )


def fit_loads(loads: Loads, peaks: dict[str, float], limit_w: float) -> dict[str, Any]:
    """Robust least squares of the relative error of the power.

    Args:
        loads: at least a handful of rows.
        peaks: format -> dense FLOP/s, for every format in `loads`.
        limit_w: board power limit.

    Returns:
        idle_w, energy_j_per_flop by format, energy_j_per_byte, rows, and the median and 90th percentile of the
        relative error of the power.
    """
    formats = sorted(set(loads.number_format))
    chosen = np.array([formats.index(name) for name in loads.number_format])
    rates = np.array([peaks[name] for name in formats])

    def energies(x: np.ndarray) -> tuple[float, np.ndarray, float]:
        idle = limit_w * x[0]
        return idle, x[2:] * (limit_w - idle) / (PLATEAU * rates), x[1] * 1e-12

    def relative(x: np.ndarray) -> np.ndarray:
        idle, per_flop, per_byte = energies(x)
        power = idle + per_flop[chosen] * loads.flops_per_s + per_byte * loads.bytes_per_s
        return power / loads.power_w - 1

    low = [0.0, BYTE_J[0] * 1e12, *[0.0] * len(formats)]
    high = [1.0, BYTE_J[1] * 1e12, *[1.0] * len(formats)]
    start = 0.5 * (np.array(low) + np.array(high))
    fit = least_squares(relative, start, bounds=(low, high), loss="soft_l1", f_scale=0.1)
    idle, per_flop, per_byte = energies(fit.x)
    errors = np.abs(relative(fit.x))
    return {
        "idle_w": float(idle),
        "energy_j_per_flop": {name: float(value) for name, value in zip(formats, per_flop, strict=True)},
        "energy_j_per_byte": float(per_byte),
        "rows": len(errors),
        "median_error": float(np.median(errors)),
        "p90_error": float(np.quantile(errors, 0.9)),
    }


def fit_power(directory: Path | str) -> dict[str, dict[str, Any]]:
    """Fit every device that the power tables of a folder cover, kernels and serving runs together.

    Args:
        directory: holds `hardware_peaks.csv` and the tables `KERNELS` and `SERVING`; either table may be missing.

    Returns:
        Device name of the tables -> what `fit_loads` returns.
    """
    directory = Path(directory)
    peaks = pd.read_csv(directory / "hardware_peaks.csv").set_index("gpu")
    found: dict[str, list[Loads]] = {}
    for name, read in ((KERNELS, kernel_loads), (SERVING, serving_loads)):
        if (directory / name).is_file():
            for gpu, rows in pd.read_csv(directory / name).groupby("gpu"):
                found.setdefault(str(gpu), []).append(read(rows))
    fitted = {}
    for gpu, parts in found.items():
        if gpu in peaks.index:
            loads = Loads(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            rates = {name: float(peaks.loc[gpu, column]) * 1e12 for name, column in PEAKS.items()}
            fitted[gpu] = fit_loads(loads, rates, float(peaks.loc[gpu, "tdp_w"]))
    return fitted
