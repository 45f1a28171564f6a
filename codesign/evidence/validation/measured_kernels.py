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

from ...config.groups import conf_dir
from ...model.hardware import AbstractKernel, Chip
from ...uncertainty.spreads import MEASURED, NEW, RELATIVE
from ..calibration.collectives import BUCKETS as COLLECTIVE_BUCKETS
from ..calibration.collectives import CollectiveGroup, scale_out_groups, scale_up_groups
from ..calibration.collectives import seconds as collective_seconds
from ..calibration.constants import REFERENCE, build, inherited, is_fitted, load, place
from ..calibration.crossed import generation_of
from ..calibration.fit import NOISY_S, kernel_seconds
from ..calibration.gpus import Device, calibrated, option_of, stand_ins, wired_alike
from ..calibration.kernel_tables import TableGroup, kernel_groups
from ..calibration.learned_factors import predicted
from ..calibration.write_collectives import between
from .scores import Errors, Row, rows
from .suites import Suite

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
    return load(place(conf_dir() / "calibration", accelerator, framework))


def kernel_node(group: TableGroup, accelerator: str, messages: list[str]) -> dict[str, Any] | None:
    """Constants of an accelerator for a group's framework, class and number format, or what stands in for them."""
    kind = group.table.name
    for framework in (group.framework, REFERENCE):
        for number_format in (group.number_format, *RELATED.get(group.number_format, ())):
            formats, asked = constants(accelerator, framework).get(kind, {}), (framework, number_format)
            if number_format in formats:
                if asked != (group.framework, group.number_format):
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

    own = option_of(group.device.name) or group.device.accelerator
    family = [name for name in calibrated() if name != own and generation_of(name) == generation_of(own)]
    lent = RELATIVE if any(map(measured, family)) else NEW
    return (MEASURED if group.device.exact and measured(own) else lent), lent


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
            own = group.device.accelerator
            data = collective_set(collective_file(group, own))
            label = f"{group.device.name} {group.operation}" + ("" if name == "collectives" else f" {group.variant}")
            lenders = wired_alike(
                own, lambda r, g=group, own=own: r != own and _measured(collective_set(collective_file(g, r)), g)
            )
            lent = _lent(group, lenders)
            if group.operation not in data and lenders:
                messages.append(f"{label}: no constants, inherited from {' and '.join(lenders)}")
                data = lent
            elif group.operation not in data:
                messages.append(f"{label}: {len(group.nbytes)} rows set aside, no constants")
                continue
            elif not group.device.exact:
                messages.append(f"{label}: inherited from {own}")
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
