"""The workloads of a mix as the configuration names them, and what they must have in common."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from ...core.errors import ConfigError
from ...core.fields import walk
from ...core.jax_typed import structure
from ...core.yaml_io import is_mapping
from ..base import Problem


@dataclass(frozen=True)
class MixEntry:
    """A workload of a mix.

    Args:
        overrides: what it changes of the study, such as `model=llama31_405b workload=serving`.
        weight: its share of the blend.
    """

    overrides: tuple[str, ...] = ()
    weight: float = 1.0

    def __post_init__(self) -> None:
        """A positive weight, a list of overrides."""
        if isinstance(self.overrides, str) or not all(map(_is_override, self.overrides)):
            raise ConfigError(f"overrides = {self.overrides!r} must be a list of key=value or ~key")
        if not self.weight > 0:
            raise ConfigError(f"weight = {self.weight:g} must be positive")


def _is_override(text: object) -> bool:
    return isinstance(text, str) and ("=" in text or text.startswith("~"))


def entry_of(name: str, given: Any) -> MixEntry:
    """An entry from what the configuration gives for it.

    Raises:
        ConfigError: naming the entry and what is wrong.
    """
    if isinstance(given, MixEntry):
        return given
    known = {f.name for f in dataclasses.fields(MixEntry)}
    if not is_mapping(given) or set(given) - known:
        raise ConfigError(f"search.workloads.{name} = {given!r} must be a mapping with overrides and weight")
    try:
        overrides: dict[str, Any] = {"overrides": tuple(given.get("overrides", ()))}
        return MixEntry(**(given | overrides))
    except ConfigError as error:
        raise ConfigError(f"search.workloads.{name}.{error}") from error


def check_hardware(first: str, one: Problem, second: str, other: Problem) -> None:
    """Refuse problems whose hardware differs in more than the number of devices.

    Raises:
        ConfigError: naming the first difference.
    """

    def refuse(what: str) -> None:
        raise ConfigError(
            f"search.workloads: {what} of {second} differs from that of {first}, but a mix has one hardware"
        )

    for name in sorted({*one.space.hardware, *other.space.hardware}):
        if one.space.hardware.get(name) != other.space.hardware.get(name):
            refuse(f"space.hardware.{name}")
    if structure(one.scenario.cluster) != structure(other.scenario.cluster):
        refuse("the structure of the cluster (fabric, kernels, collectives)")
    values = [{path: float(value) for path, _, value in walk(p.scenario.cluster, "cluster")} for p in (one, other)]
    for path, value in values[0].items():
        if path != "cluster.device_count" and values[1].get(path) != value:
            refuse(path)
