"""Kernel and memory tables that nothing is fitted on: the reference framework's constants judged on other sources.

    GEMM, published points   vendor libraries and best-shape searches [published_gemm]
    layer operators          projections and element-wise passes of served models [layer_operators]
    streaming bandwidth      working sets beyond twice the last-level cache, every processor busy [published_streams,
                             stream_occupancy, read_sweep]

fp16 takes the constants of bf16. A device that is in no configuration and has no peaks in the folder is set aside.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ...core.errors import DataError
from ..calibration.constants import REFERENCE
from ..calibration.gpus import FORMATS, Device, Peaks, device
from ..calibration.kernel_tables import TableGroup, read_peaks
from ..calibration.kernels import TABLES, Columns
from ..measurements import FoundTable, tables
from .measured_kernels import kernel_node, kernel_seconds, on_device
from .scores import Errors, Row, rows
from .suites import Suite

FORMAT = {"fp16": "float16", "bf16": "bfloat16", "fp8": "fp8"}
GEMM, ELEMENTWISE = (next(table for table in TABLES if table.name == name) for name in ("gemm", "elementwise"))
BYTES = 2.0  # fp16
PLATEAU = 2.0  # working set over last-level cache from which memory alone serves
STREAM_BYTES = 4e9  # a stream long enough for its launch not to show
NOISY_US = 10.0


def known_device(gpu: str, folder: dict[str, Peaks], count: int, where: str, messages: list[str]) -> Device | None:
    """The device, or None and a message."""
    try:
        return device(gpu, folder)
    except DataError as error:
        messages.append(f"{where}: {count} rows set aside: {error}")
        return None


def seconds(kind: str, who: Device, number_format: str, work: Columns, messages: list[str]) -> np.ndarray | None:
    """Predicted seconds of launches, under the reference framework's constants; None where it has none."""
    table, ours = (ELEMENTWISE, "any") if kind == "elementwise" else (GEMM, FORMATS[number_format][0])
    _, column, element = FORMATS[number_format]
    count = len(work["flops"])
    peak = who.peaks.flops(0 if kind == "elementwise" else column)
    group = TableGroup(table, who, REFERENCE, ours, peak, element, [work], np.ones(count))
    node = kernel_node(group, who.accelerator, messages)
    if node is None:
        messages.append(f"{group.label}: {count} rows set aside, no constants for this class")
        return None
    return kernel_seconds(on_device(node, who, peak), group)


def product(m: np.ndarray, n: np.ndarray, k: np.ndarray, element: float) -> Columns:
    """[m, k] x [k, n] with a 16-bit result."""
    nbytes = (m * k + n * k) * element + 2 * m * n
    return {"flops": 2 * m * n * k, "nbytes": nbytes, "rows": m, "cols": n, "depth": k}


def published_gemm(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Points of [published_gemm]."""
    folder = read_peaks(directory)
    for result in tables(directory, "published_gemm"):
        table = result.rows(messages)
        for (gpu, name, source), part in table.groupby(["gpu", "dtype", "source"], sort=True):
            who = known_device(str(gpu), folder, len(part), result.shown, messages)
            if who is None:
                continue
            m, n, k = (part[column].to_numpy(dtype=float) for column in ("m", "n", "k"))
            number_format = FORMAT[str(name)]
            ours = seconds("gemm", who, number_format, product(m, n, k, FORMATS[number_format][2]), messages)
            if ours is not None:
                measured = 2 * m * n * k / (part["tflops"].to_numpy(dtype=float) * 1e12)
                slow = measured > NOISY_US * 1e-6
                yield Errors("GEMM, published points", f"{gpu} {name} {source}", ours[slow], measured[slow])


def layer_work(op: str, part: pd.DataFrame) -> tuple[str, Columns] | None:
    """Class of kernel and work of an operator of one layer; None for one that is not known."""
    tokens, hidden, inner, heads, kv, tp = (
        part[c].to_numpy(dtype=float) for c in ("num_tokens", "hidden", "ffn_hidden", "num_heads", "num_kv_heads", "tp")
    )
    depth = hidden / heads
    kv = np.maximum(kv / tp, 1.0)
    shapes = {
        "attn_pre_proj": (heads / tp * depth + 2 * kv * depth, hidden),
        "attn_post_proj": (hidden, hidden / tp),
        "mlp_up_proj": (2 * inner / tp, hidden),
        "mlp_down_proj": (hidden, inner / tp),
    }
    if op in shapes:
        return "gemm", product(tokens, *shapes[op], BYTES)
    passes = {  # elements read and written
        "input_layernorm": 2 * hidden,
        "post_attention_layernorm": 2 * hidden,
        "add": 3 * hidden,
        "mlp_act": 3 * inner / tp,
        "attn_rope": 2 * (heads / tp + kv) * depth,
    }
    if op in passes:
        return "elementwise", {"flops": 0 * tokens, "nbytes": BYTES * tokens * passes[op], "rows": tokens}
    return None


def layer_operators(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Operators of [layer_operators] above 10 us."""
    folder = read_peaks(directory)
    for result in tables(directory, "layer_operators"):
        table = result.rows(messages)
        table = table[table["latency_us"] > NOISY_US]
        for (gpu, op), part in table.groupby(["gpu", "op"], sort=True):
            who = known_device(str(gpu), folder, len(part), result.shown, messages)
            work = layer_work(str(op), part)
            if work is None:
                messages.append(f"{result.shown}: {len(part)} rows of operator {op!r} set aside, it is not known")
            if who is None or work is None:
                continue
            ours = seconds(work[0], who, "float16", work[1], messages)
            if ours is not None:
                stratum = "layer operators, GEMM" if work[0] == "gemm" else "layer operators, element-wise"
                yield Errors(stratum, f"{gpu} {op}", ours, part["latency_us"].to_numpy(dtype=float) * 1e-6)


def stream_rate(who: Device, messages: list[str]) -> float | None:
    """Predicted bytes per second of a long stream."""
    shape = {"flops": np.zeros(1), "nbytes": np.full(1, STREAM_BYTES), "rows": np.full(1, 1e4)}
    result = seconds("elementwise", who, "bfloat16", shape, messages)
    return None if result is None else STREAM_BYTES / float(result[0])


def streams(directory: Path, messages: list[str]) -> Iterator[tuple[str, str, float]]:
    """(gpu, label, measured bytes per second) of every streaming row that memory alone serves."""
    for result in tables(directory, "published_streams"):
        for row in result.rows(messages).itertuples():
            yield str(row.gpu), f"{row.gpu} BabelStream", float(row.tbytes_per_s) * 1e12
    for result in tables(directory, "stream_occupancy"):
        table = result.rows(messages)
        full = table[table["occupancy_percent"] >= table.groupby("gpu")["occupancy_percent"].transform("max")]
        if len(full) < len(table):
            messages.append(
                f"{result.shown}: {len(table) - len(full)} rows below full occupancy set aside, no model of it"
            )
        for row in full.itertuples():
            yield str(row.gpu), f"{row.gpu} stream", float(row.gbytes_per_s) * 1e9


def sweeps(found: FoundTable, folder: dict[str, Peaks], messages: list[str]) -> Iterator[tuple[str, str, float]]:
    """(gpu, label, measured bytes per second) of a sweep over the working set, beyond the last-level cache."""
    table = found.rows(messages)
    for gpu, part in table.groupby("gpu", sort=True):
        who = known_device(str(gpu), folder, len(part), found.shown, messages)
        if who is None:
            continue
        beyond = part[part["working_set_bytes"] > PLATEAU * who.cache_bytes]
        inside = len(part) - len(beyond)
        if inside:
            why = "no model of reads from the last-level cache"
            messages.append(f"{found.shown}: {inside} rows of {gpu} set aside, {why}")
        for rate in beyond["read_gbytes_per_s"]:
            yield str(gpu), f"{gpu} read sweep", float(rate) * 1e9


def bandwidths(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured bytes per second of long streams."""
    folder = read_peaks(directory)
    result = list(streams(directory, messages))
    for table in tables(directory, "read_sweep"):
        result += sweeps(table, folder, messages)
    rates = pd.DataFrame(result, columns=["gpu", "label", "measured"])
    for (gpu, label), part in rates.groupby(["gpu", "label"], sort=True):
        who = known_device(str(gpu), folder, len(part), "memory streams", messages)
        rate = stream_rate(who, messages) if who is not None else None
        if rate is not None:
            yield Errors("streaming bandwidth", str(label), np.full(len(part), rate), part["measured"].to_numpy())


def run_unfitted(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all of these tables."""
    result = rows("unfitted", "latency", published_gemm(directory, messages))
    result += rows("unfitted", "latency", layer_operators(directory, messages))
    return result + rows("unfitted", "bandwidth", bandwidths(directory, messages))


KINDS = ("published_gemm", "layer_operators", "published_streams", "stream_occupancy", "read_sweep")
UNFITTED = Suite("unfitted", KINDS, run_unfitted)
