"""Catalogue values of a study's hardware: the same choices of groups with no number overridden."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..core.fields import walk, with_numpy
from ..model.scenario import Cluster
from .composition import chosen_options, compose
from .construct import build
from .groups import edition
from .own import own_files
from .parts_built import plain
from .starting import started

__all__ = ["catalogue_numbers", "hardware_numbers"]

HARDWARE = (
    "accelerator", "calibration", "memory", "die", "stack", "host", "fabric", "collective", "scale_out",
    "kernel_correction",
)  # fmt: skip
ENGINE = ("framework", "workload", "model")  # whose kernels and exchange of tokens stand in place of the catalogue's
PLACES = ("accelerator", "host", "network")


def catalogue_numbers(overrides: Sequence[str], conf: Sequence[Path]) -> Mapping[str, float]:
    """Path -> number of the hardware that the options chosen by these overrides have in the catalogue.

    Args:
        overrides: of a study.
        conf: folders of own files that it was composed with.
    """
    with own_files(*conf):
        options = chosen_options(started(list(overrides)))
        groups = HARDWARE + (ENGINE if options.get("framework", "none") != "none" else ())
        return _catalogue(tuple(f"{group}={options[group]}" for group in groups if options.get(group)), edition())


@functools.lru_cache(maxsize=16)
def _catalogue(chosen: tuple[str, ...], _: Any) -> Mapping[str, float]:
    result = build({"cluster": plain(compose(["experiment=null", *chosen]))["cluster"]})
    return MappingProxyType(hardware_numbers(result.objects["cluster"]))


def hardware_numbers(cluster: Cluster) -> dict[str, float]:
    """Path -> number of each leaf of the accelerators, hosts and networks that is one."""
    result: dict[str, float] = {}
    for path, _, value in walk(with_numpy(cluster), "cluster"):
        if path.split(".")[1] in PLACES and np.ndim(value) == 0:
            result[path] = float(value)
    return result
