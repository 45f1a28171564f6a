"""Measured kernels and collectives against fitted constants: a device's own, and those of its relatives.

`GPU left out`: what the device would have inherited had it not been measured (`calibration.gpus`). Two things of it
stay: its rows were in the pool near which its relatives' constants were held (`calibration.crossed` leaves them out
there too, and its errors are what intervals rest on), and collectives of devices measured at few group sizes follow,
beyond those, the shape of a relative's curve.
A device without constants of its own takes those of its nearest relative on its own chip and peaks; a framework or
number format without constants takes the reference framework's or the related format's. Every such step is named.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ...config.groups import conf_dir
from ...core.errors import DataError
from ...model.hardware import AbstractKernel, Chip
from ...uncertainty.spreads import MEASURED, NEW, RELATIVE
from ..calibration.collectives import BUCKETS as COLLECTIVE_BUCKETS
from ..calibration.collectives import CollectiveGroup, between, scale_out_groups, scale_up_groups
from ..calibration.collectives import seconds as collective_seconds
from ..calibration.constants import REFERENCE, build, constants_file, inherited, is_fitted, load
from ..calibration.fit import NOISY_S, kernel_seconds
from ..calibration.gpus import FORMATS, Device, Peaks, calibrated, device, option_of, stand_ins, wired_alike
from ..calibration.kernels import TABLES, Columns, TableGroup, kernel_groups, read_peaks
from ..calibration.learned_factors import generation_of, predicted
from ..measurements import FoundTable, tables
from .scores import Errors, Row, Suite, rows

STRATA = {
    "attention_prefill": "attention prefill", "attention_decode": "attention decode", "mla_prefill": "MLA prefill",
    "mla_decode": "MLA decode", "moe_gemm": "MoE", "elementwise": "elementwise",
}  # fmt: skip
RELATED = {
    "fp8_block": ("fp8",), "fp8": ("fp8_block", "bf16"), "fp16": ("bf16",), "fp4": ("fp8",), "bf16_kv_fp8": ("bf16",),
    "fp8_kv_bf16": ("fp8", "bf16"), "mxfp4_w4a8": ("fp8",), "mxfp4_w4a16": ("bf16",),
}  # fmt: skip
LARGE_BYTES = 2.0**20


@lru_cache
def constants(accelerator: str, framework: str) -> dict[str, Any]:
    """The file of an accelerator and framework; empty where there is none."""
    return load(constants_file(conf_dir() / "calibration", accelerator, framework))


def kernel_node(group: TableGroup, accelerator: str, messages: list[str]) -> dict[str, Any] | None:
    """Constants of an accelerator for a group's framework, class and number format, or what stands in for them."""
    kind = group.table.name
    for framework in (group.framework, REFERENCE):
        for number_format in (group.number_format, *RELATED.get(group.number_format, ())):
            formats, source = constants(accelerator, framework).get(kind, {}), (framework, number_format)
            if number_format in formats:
                if source != (group.framework, group.number_format):
                    messages.append(f"{group.label}: no constants, those of {framework} {number_format} taken")
                return formats[number_format]
            lent = left_out(accelerator, framework, kind, number_format)
            if lent:  # a relative's of the same framework say more than one's own of another
                messages.append(f"{group.label}: no constants, those of relatives under {framework} {number_format}")
                return lent
    return None


def on_device(node: dict[str, Any], device: Device, peak_flops_per_s: float) -> AbstractKernel:
    """The kernel model on a device's own chip."""
    kernel = build(node)
    if not hasattr(kernel, "chip"):
        return kernel
    chip = Chip(device.processors, device.cache_bytes, peak_flops_per_s, device.peaks.memory, kernel.chip.label)
    return eqx.tree_at(lambda k: k.chip, kernel, chip)


def left_out(accelerator: str, framework: str, kind: str, number_format: str) -> dict[str, Any]:
    """Entry that a device would have, had it not been measured; empty where no relative was."""

    def measured(other: str) -> bool:
        return other != accelerator and is_fitted(constants(other, framework), kind, number_format)

    entries = [constants(other, framework)[kind][number_format] for other in stand_ins(accelerator, measured)]
    return inherited(kind, entries, accelerator, number_format)


def kernel_stratum(group: TableGroup) -> str:
    """GEMM by number format; attention and others by class."""
    return STRATA.get(group.table.name, f"{group.table.name} {group.number_format}")


def regimes(group: TableGroup) -> tuple[str, str]:
    """Regimes of a group's constants: of a measured device, its generation or another; and with the device left out."""
    kind, number_format = group.table.name, group.number_format

    def measured(name: str) -> bool:
        return is_fitted(constants(name, group.framework), kind, number_format)

    device = option_of(group.device.name) or group.device.accelerator
    family = [name for name in calibrated() if name != device and generation_of(name) == generation_of(device)]
    lent = RELATIVE if any(map(measured, family)) else NEW
    return (MEASURED if group.device.exact and measured(device) else lent), lent


def kernel_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured seconds above 10 us, with own and with relatives' constants."""
    for group in kernel_groups(directory, messages):
        slow = group.measured_s > NOISY_S
        stratum, label = kernel_stratum(group), f"{group.device.name} {group.framework}"
        node = kernel_node(group, group.device.accelerator, messages)
        if node is None:
            messages.append(f"{group.label}: {len(slow)} rows set aside, no constants for this class")
            continue
        if not group.device.exact:
            messages.append(f"{group.label}: inherited from {group.device.accelerator}")
        kernel = on_device(node, group.device, group.peak_flops_per_s)
        seconds, regime, lent = predicted(kernel, group), *regimes(group)
        yield Errors(stratum, label, seconds.learned[slow], group.measured_s[slow], regime)
        yield Errors(f"{stratum}, physics alone", label, seconds.physics[slow], group.measured_s[slow], regime)
        node = left_out(group.device.accelerator, group.framework, group.table.name, group.number_format)
        if node:
            kernel = on_device(node, group.device, group.peak_flops_per_s)
            alone = kernel_seconds(kernel, group)[slow]
            yield Errors(f"{stratum}, GPU left out", label, alone, group.measured_s[slow], lent)


def run_kernels(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all kernel tables."""
    return rows("kernels", "latency", kernel_errors(directory, messages))


@lru_cache
def collective_set(name: str) -> dict[str, Any]:
    """A file of the `collective` group; empty where there is none."""
    return load(conf_dir() / "collective" / f"{name}.yaml")


def collective_file(group: CollectiveGroup, accelerator: str) -> str:
    """Name of the file that holds a group's constants for an accelerator."""
    if group.suite == "scale_out":
        return f"nccl_scaleout_{accelerator.removesuffix('_sxm')}"
    if group.suite == "scale_up":
        return f"nccl_{accelerator}"
    return f"custom/{group.variant.lower()}_{accelerator}"


_collective_seconds = eqx.filter_jit(collective_seconds)


def collective_prediction(data: dict[str, Any], group: CollectiveGroup) -> np.ndarray:
    """Predicted seconds of every row, padded so that few shapes are compiled."""
    count = len(group.nbytes)
    index = np.resize(np.arange(count), next((b for b in COLLECTIVE_BUCKETS if b >= count), count))
    arrays = jnp.asarray(group.members[index]), jnp.asarray(group.nbytes[index])
    bandwidth = jnp.asarray(group.bandwidth_bytes_per_s)
    return np.asarray(_collective_seconds(build(data[group.operation]), *arrays, bandwidth))[:count]


def collective_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured seconds from and below 1 MiB, with own and with relatives' constants."""
    sources: tuple[tuple[str, Callable[..., Iterator[CollectiveGroup]], tuple[str, ...]], ...] = (
        ("collectives", scale_up_groups, ()),
        ("custom all-reduce", scale_up_groups, ("custom_all_reduce",)),
        ("scale-out collectives", scale_out_groups, ()),
    )
    for name, groups, kind in sources:
        for group in groups(directory, messages, *kind):
            device = group.device.accelerator
            data = collective_set(collective_file(group, device))
            label = f"{group.device.name} {group.operation}" + ("" if name == "collectives" else f" {group.variant}")
            lenders = wired_alike(
                device,
                lambda r, g=group, device=device: r != device and _measured(collective_set(collective_file(g, r)), g),
            )
            lent = _lent(group, lenders)
            if group.operation not in data and lenders:
                messages.append(f"{label}: no constants, inherited from {' and '.join(lenders)}")
                data = lent
            elif group.operation not in data:
                messages.append(f"{label}: {len(group.nbytes)} rows set aside, no constants")
                continue
            elif not group.device.exact:
                messages.append(f"{label}: inherited from {device}")
            yield from _by_size(name, label, group, collective_prediction(data, group))
            if lenders and name == "collectives":
                yield from _by_size(name, label, group, collective_prediction(lent, group), ", GPU left out")


def _lent(group: CollectiveGroup, lenders: list[str]) -> dict[str, Any]:
    """The entry that relatives lend to a group."""
    entries = [collective_set(collective_file(group, lender))[group.operation] for lender in lenders]
    return {group.operation: entries[0] | between(entries)} if entries else {}


def _measured(data: dict[str, Any], group: CollectiveGroup) -> bool:
    return data.get("provenance", {}).get(group.operation, {}).get("kind") == "fitted"


def _by_size(
    name: str, label: str, group: CollectiveGroup, predicted: np.ndarray, suffix: str = ""
) -> Iterator[Errors]:
    large = group.nbytes >= LARGE_BYTES
    for text, chosen in (("from 1 MiB", large), ("below 1 MiB", ~large)):
        yield Errors(f"{name} {text}{suffix}", label, predicted[chosen], group.measured_s[chosen])


def run_collectives(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of collectives."""
    return rows("collectives", "latency", collective_errors(directory, messages))


KERNELS = Suite("kernels", ("gemm", "attention", "latent_attention", "experts", "quantise"), run_kernels)
COLLECTIVES = Suite("collectives", ("scale_up", "custom_all_reduce", "clusters"), run_collectives)


# Kernel and memory tables that nothing is fitted on: the reference framework's constants judged on other sources.
#
#     GEMM, published points   vendor libraries and best-shape searches [published_gemm]
#     layer operators          projections and element-wise passes of served models [layer_operators]
#     streaming bandwidth      working sets beyond twice the last-level cache, every processor busy [published_streams,
#                              stream_occupancy, read_sweep]
#
# fp16 takes the constants of bf16. A device that is in no configuration and has no peaks in the folder is set aside.


FORMAT = {"fp16": "float16", "bf16": "bfloat16", "fp8": "fp8"}
GEMM, ELEMENTWISE = (next(table for table in TABLES if table.name == name) for name in ("gemm", "elementwise"))
BYTES = 2.0  # fp16
PLATEAU = 2.0  # working set over last-level cache from which memory alone serves
STREAM_BYTES = 4e9  # a stream long enough for its launch not to show
NOISY_US = 10.0


def described_device(gpu: str, folder: dict[str, Peaks], count: int, where: str, messages: list[str]) -> Device | None:
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
            who = described_device(str(gpu), folder, len(part), result.shown, messages)
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
            who = described_device(str(gpu), folder, len(part), result.shown, messages)
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


def sweeps(sweep: FoundTable, folder: dict[str, Peaks], messages: list[str]) -> Iterator[tuple[str, str, float]]:
    """(gpu, label, measured bytes per second) of a sweep over the working set, beyond the last-level cache."""
    table = sweep.rows(messages)
    for gpu, part in table.groupby("gpu", sort=True):
        who = described_device(str(gpu), folder, len(part), sweep.shown, messages)
        if who is None:
            continue
        beyond = part[part["working_set_bytes"] > PLATEAU * who.cache_bytes]
        inside = len(part) - len(beyond)
        if inside:
            why = "no model of reads from the last-level cache"
            messages.append(f"{sweep.shown}: {inside} rows of {gpu} set aside, {why}")
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
        who = described_device(str(gpu), folder, len(part), "memory streams", messages)
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
