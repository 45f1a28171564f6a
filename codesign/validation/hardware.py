"""Which configuration a measured device has, and the cluster it stood in."""

import functools

from ..calibration.gpus import accelerator_of
from ..config import scenario_from_config
from ..config.groups import aliases
from ..errors import ConfigError, suggestion
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
