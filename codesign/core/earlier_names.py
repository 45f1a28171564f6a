"""Names of earlier releases: how run folders and configurations written with them are read.

A run folder carries the number of its schema in `versions.json`; one without a number is of schema 1 (release 0.1).
`migrated` brings what such a folder holds to the names of this release.
"""

import functools
import sys
from typing import Any

from .errors import ConfigError
from .yaml_io import is_list, is_mapping

__all__ = ["SCHEMA", "current_target", "migrated", "schema_of"]

SCHEMA = 2
"""Schema of the run folders that this release writes."""
MOVED = {
    "codesign.hardware.": "codesign.model.hardware.",
    "codesign.slices.": "codesign.model.slices.",
    "codesign.quality.": "codesign.model.scaling_laws.",
    "codesign.reliability.": "codesign.model.reliability.",
    "codesign.carbon.": "codesign.model.carbon.",
    "codesign.topology.": "codesign.model.networks.topology.",
    "codesign.fabrics.": "codesign.model.networks.fabrics.",
    "codesign.collectives.": "codesign.model.networks.collectives.",
    "codesign.workloads.": "codesign.model.workloads.",
    "codesign.ownership.": "codesign.model.ownership.",
    "codesign.scenario.": "codesign.model.scenario.",
    "codesign.space.": "codesign.study.design_space.",
    "codesign.objective.": "codesign.study.objective.",
    "codesign.distributing.": "codesign.executors.",
    "codesign.search.Optimiser": "codesign.search.Optimizer",
}
"""Beginning of a `_target_` in release 0.1 -> in this one. These go with release 0.3."""


def current_target(target: str, *, warn: bool = True) -> str:
    """A `_target_` by the name of this release; an earlier one prints one line of warning, once a process."""
    for old, new in MOVED.items():
        if target.startswith(old):
            if warn:
                _warn(old, new)
            return new + target.removeprefix(old)
    return target


@functools.cache
def _warn(old: str, new: str) -> None:
    print(f"codesign: _target_ {old}* is {new}* since release 0.2; the old name goes with release 0.3", file=sys.stderr)


def schema_of(versions: dict[str, Any], path: str) -> int:
    """Schema of a run folder, of its `versions.json`.

    Raises:
        ConfigError: it is of a later release, or no number.
    """
    schema = versions.get("schema", 1)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise ConfigError(f"{path}: versions.json says schema = {schema!r}; allowed: a whole number from 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise ConfigError(f"{path} has schema {schema}; this release reads up to {SCHEMA}")
    return schema


def migrated(tree: Any, schema: int) -> Any:
    """A configuration of a run folder of this schema, by the names of this release."""
    if schema >= SCHEMA:
        return tree
    if is_mapping(tree):
        return {
            key: current_target(value, warn=False) if key == "_target_" and isinstance(value, str)
            else migrated(value, schema)
            for key, value in tree.items()
        }  # fmt: skip
    if is_list(tree):
        return [migrated(value, schema) for value in tree]
    return tree
