"""Configuration of a measured device, and of the cluster that it stood in."""

import functools
from dataclasses import replace

import equinox as eqx

from ...config import scenario_from_config
from ...config.groups import aliases, conf_dir
from ...core import fields
from ...core.errors import ConfigError, suggestion
from ...model.hardware import AbstractKernel
from ...model.scenario import Cluster
from ..calibration.constants import REFERENCE, build
from ..calibration.gpus import accelerator_of, accelerators
from .measured_kernels import left_out

__all__ = ["accelerator_option", "board_cluster", "engine_cluster", "left_out_cluster", "measured_cluster"]


def _plain(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())


def accelerator_option(device: str) -> str:
    """The accelerator a device name of a table means: by alias, else its nearest relative by name.

    Raises:
        ConfigError: nothing of that name, and no relative.
    """
    known = aliases()
    for alias, option in known.items():
        if _plain(alias) == _plain(device):
            return option
    matches = [alias for alias in known if _plain(device).startswith(_plain(alias))]
    if matches:
        return known[max(matches, key=len)]
    relative = accelerator_of(device)
    if relative is None:
        raise ConfigError(f"gpu {device!r} is no accelerator of conf/accelerator{suggestion(device, known)}")
    return relative


@functools.cache
def measured_cluster(device: str) -> Cluster:
    """A cluster of the device with its native scale-up fabric and the scale-out network of its generation."""
    option = accelerator_option(device)
    network = "infiniband_hdr" if option.startswith("a100") else "infiniband_ndr"
    return scenario_from_config(f"accelerator={option}", f"scale_out={network}").cluster


def engine_cluster(device: str, engine: str, experts_of: str = "") -> Cluster:
    """A cluster of the device under a serving engine that `framework` knows, its kernels with learned factors.

    Args:
        device: as a table names it.
        engine: of `framework`; none where it is empty.
        experts_of: model of the configuration, whose tokens the engine's library sends to experts.
    """
    return _engine_cluster(device, engine, experts_of)


@functools.cache
def _engine_cluster(device: str, engine: str, experts_of: str) -> Cluster:
    option = accelerator_option(device)
    chosen = [f"accelerator={option}", "experiment=serve_llama31_405b", "kernel_correction=learned"]
    chosen += [f"framework={engine}"] if engine else []
    return scenario_from_config(*chosen, *([f"model={experts_of}"] if experts_of else [])).cluster


@functools.cache
def board_cluster(device: str, engine: str, blocks: bool) -> Cluster:
    """Cluster of `engine_cluster` with what its board was found to draw, where it was measured.

    Args:
        device: as a table names it.
        engine: of `framework`.
        blocks: products of 8 bits scale blocks of weights, as some models are published; else rows or whole tensors.
    """
    option, own = accelerator_option(device), engine_cluster(device, engine)
    accelerator, kernels = own.accelerator, own.accelerator.kernels
    if (conf_dir() / "calibration" / "power" / f"{option}.yaml").is_file():
        drawn = scenario_from_config(f"accelerator={option}", f"+calibration/power={option}").cluster.accelerator
        accelerator = replace(
            accelerator, idle_w=drawn.idle_w, energy_j_per_flop=drawn.energy_j_per_flop, board=drawn.board,
            hbm=fields.replace(accelerator.hbm, {"energy_j_per_byte": drawn.hbm.energy()}),
        )  # fmt: skip
    if blocks:
        kernels = {k: v | ({"fp8": v["fp8_block"]} if "fp8_block" in v else {}) for k, v in kernels.items()}
    return replace(own, accelerator=replace(accelerator, kernels=kernels))


@functools.cache
def left_out_cluster(device: str) -> Cluster:
    """The cluster of a device whose kernels take what relatives would have lent it; its collectives stay its own.

    Raises:
        ConfigError: nothing of that name, or no relative was measured.
    """
    own, owner = measured_cluster(device), accelerator_of(device) or accelerator_option(device)
    kernels: dict[str, dict[str, AbstractKernel]] = {}
    described = owner in accelerators()  # of others neither they nor relatives were measured
    for kind, formats in own.accelerator.kernels.items() if described else ():
        entries = {name: left_out(owner, REFERENCE, kind, name) for name in formats}
        lent = {name: _on_chip(build(entry), own, kind, name) for name, entry in entries.items() if entry}
        if lent:
            kernels[kind] = lent
    if not kernels:
        raise ConfigError(f"gpu {device!r} has no measured relative")
    return replace(own, accelerator=replace(own.accelerator, kernels=kernels))


def _on_chip(kernel: AbstractKernel, own: Cluster, kind: str, number_format: str) -> AbstractKernel:
    chip = getattr(own.accelerator.kernel(kind, number_format), "chip", None)
    if chip is None or not hasattr(kernel, "chip"):
        return kernel
    return eqx.tree_at(lambda k: k.chip, kernel, chip)
