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

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ..measurements import tables
from .constants import Node, inline, provenance_lines, significant
from .gpus import device, option_of
from .kernels import peak_rows, read_peaks

PLATEAU = 0.75
"""Share of the dense peak that a large GEMM reaches ([aiconfigurator] bf16 on H100: 0.73 to 0.77)."""

BYTE_J = (32e-12, 72e-12)
"""Joules per byte of stacked DRAM with its interface: 4 to 9 pJ/bit ([oconnor2017], [micron_hbm])."""

LEAST_LATENCY_US = 50.0
"""Shorter kernels repeat faster than the power sensor resolves and measure the launch loop."""

FORMATS = {"bfloat16": ("bf16", 2.0), "fp8": ("fp8", 1.0), "fp8_block": ("fp8", 1.0)}
HEADER = "# @package cluster.accelerator\n"
LEAST_ROWS = 10


class Loads(NamedTuple):
    """Loads of boards and the power they drew: arrays of one length."""

    number_format: np.ndarray
    flops_per_s: np.ndarray
    bytes_per_s: np.ndarray
    power_w: np.ndarray


def kernel_loads(frame: pd.DataFrame) -> Loads:
    """Loads of single kernels that repeat (kind `kernel_power`)."""
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


READERS: tuple[tuple[str, str, Callable[[pd.DataFrame], Loads]], ...] = (  # kind of table, source, how it is read
    ("kernel_power", "aiconfigurator", kernel_loads),
    ("serving_power", "mlenergy2025", serving_loads),
)


def board_limits(directory: Path) -> dict[str, float]:
    """Device -> power limit of its board, from the folder's table of peaks."""
    rows = peak_rows(directory)
    rated = rows[rows["tdp_w"].notna()] if "tdp_w" in rows else rows[:0].assign(tdp_w=[])
    return dict(zip(rated["gpu"].astype(str), rated["tdp_w"].astype(float), strict=True))


def fit_power(directory: Path | str, messages: list[str]) -> dict[str, dict[str, Any]]:
    """Fit every device that the power tables below a folder cover, kernels and serving runs together.

    Args:
        directory: holds a table of peaks (with `tdp_w`, the board's limit) and tables of `READERS` at any depth.
        messages: what was set aside and why is added here.

    Returns:
        Device name of the tables -> what `fit_loads` returns, and `sources`, keys of references.bib.

    Raises:
        DataError: a damaged table.
    """
    directory = Path(directory)
    limits, folder = board_limits(directory), read_peaks(directory)
    loads_by_gpu: dict[str, list[tuple[str, Loads]]] = {}
    for kind, source, loads_of in READERS:
        for table in tables(directory, kind):
            for gpu, rows in table.rows(messages).groupby("gpu"):
                loads_by_gpu.setdefault(str(gpu), []).append((source, loads_of(rows)))
    fitted = {}
    for gpu, parts in loads_by_gpu.items():
        loads = Loads(*(np.concatenate(columns) for columns in zip(*(part for _, part in parts), strict=True)))
        if gpu not in limits or len(loads.power_w) < LEAST_ROWS:
            why = "no tdp_w in a table of peaks" if gpu not in limits else f"fewer than {LEAST_ROWS} usable"
            messages.append(f"board power: {len(loads.power_w)} rows of {gpu} set aside, {why}")
            continue
        peaks = device(gpu, folder).peaks
        result = fit_loads(loads, {"bf16": peaks.bf16, "fp8": peaks.fp8}, limits[gpu])
        fitted[gpu] = result | {"sources": [source for source, part in parts if len(part.power_w)]}
    return fitted


def calibrate_power(
    directory: Path, out: Path, messages: list[str], progress: Callable[[str], None]
) -> tuple[dict[Path, str], list[Node]]:
    """Content of `power/<accelerator>.yaml` for every device whose board was measured, and residuals.

    A file stands in the `calibration/power` group: `+calibration/power=h100_sxm` puts its numbers into the accelerator.
    """
    texts, residuals = {}, []
    for gpu, result in fit_power(directory, messages).items():
        name = option_of(gpu)
        if name is None:
            messages.append(f"board power of {gpu}: no accelerator of that name")
            continue
        error, p90 = result["median_error"], result["p90_error"]
        note = (
            f"{result['rows']} rows, error of the power {100 * error:.0f} % median, {100 * p90:.0f} % 90th percentile"
        )
        origin = {"source": result["sources"][0], "at": "fit_power", "kind": "fitted", "note": note}
        per_flop = {key: significant(value) for key, value in result["energy_j_per_flop"].items()}
        lines = [
            HEADER, f"# Board power of {name}, fitted by `codesign calibrate`.\n",
            f"idle_w: {inline(significant(result['idle_w']))}\n", f"energy_j_per_flop: {inline(per_flop)}\n",
            f"hbm: {inline({'energy_j_per_byte': significant(result['energy_j_per_byte'])})}\n",
            *provenance_lines(dict.fromkeys(("idle_w", "energy_j_per_flop", "hbm.energy_j_per_byte"), origin)),
        ]  # fmt: skip
        texts[out / f"{name}.yaml"] = "".join(lines)
        label = {"gpu": gpu, "framework": "", "class": "board power", "number_format": "/".join(per_flop)}
        residuals.append({**label, "n": result["rows"], "median": error, "p90": p90})
        progress(f"board power {gpu}: {note}")
    return texts, residuals
