"""Which configuration a measured device has, and the cluster it stood in."""

import functools

import equinox as eqx

from ..calibration.gpus import RELATIVES, accelerator_of
from ..config import scenario_from_config
from ..config.groups import aliases
from ..errors import ConfigError, suggestion
from ..hardware import AbstractKernel
from ..scenario import Cluster


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


def nearest_measured(option: str) -> str | None:
    """The nearest other accelerator with kernel constants of its own, or None."""
    return next(iter(RELATIVES.get(accelerator_of(option) or option, ())), None)


@functools.cache
def left_out_cluster(device: str) -> Cluster:
    """The cluster of a device whose kernels take the constants of the nearest other accelerator, on its own chip.

    Raises:
        ConfigError: nothing of that name, or no other accelerator was measured.
    """
    option, own = accelerator_option(device), measured_cluster(device)
    relative = nearest_measured(option)
    if relative is None:
        raise ConfigError(f"gpu {device!r} has no measured relative")
    network = "infiniband_hdr" if option.startswith("a100") else "infiniband_ndr"
    borrowed = scenario_from_config(f"accelerator={option}", f"calibration={relative}", f"scale_out={network}").cluster
    kernels = {
        kind: {name: _on_chip(kernel, own, kind, name) for name, kernel in formats.items()}
        for kind, formats in borrowed.accelerator.kernels.items()
    }
    return eqx.tree_at(lambda c: c.accelerator.kernels, own, kernels, is_leaf=lambda node: isinstance(node, dict))


def _on_chip(kernel: AbstractKernel, own: Cluster, kind: str, number_format: str) -> AbstractKernel:
    chip = getattr(own.accelerator.kernel(kind, number_format), "chip", None)
    if chip is None or not hasattr(kernel, "chip"):
        return kernel
    return eqx.tree_at(lambda k: k.chip, kernel, chip)
