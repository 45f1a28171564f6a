"""Map of hardware variables to leaves: each leaf moved once, denominators before ratios, all within legal ranges."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax.core import Tracer

from ..core.errors import ConfigError
from ..core.fields import check_replacement, get_path, with_numpy
from ..model.scenario import Scenario

ROUNDING = 1e-12  # relative: low (high / low)^u ends a few roundings beside `high`
NOTHING: Mapping[str, Any] = MappingProxyType({})


@runtime_checkable
class Mover(Protocol):
    """Interface of a hardware variable."""

    @property
    def path(self) -> str:
        """The leaf that it moves."""
        ...

    @property
    def tied(self) -> Sequence[str]:
        """Leaves that change in proportion."""
        ...

    def leaves(self, scenario: Scenario, value: Any, moved: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Dotted path -> new value."""
        ...


def in_proportion(scenario: Scenario, path: str, target: Any, along: Sequence[str]) -> dict[str, Any]:
    """A leaf at its target, and others scaled by the same factor."""
    if not along:
        return {path: target}
    factor = target / get_path(scenario, path)
    return {path: target} | {other: get_path(scenario, other) * factor for other in along}


def moved_by(variable: Mover) -> tuple[str, ...]:
    """Paths that a variable moves."""
    return (variable.path, *variable.tied)


def check_movers(plan: Mapping[str, Any], hardware: Mapping[str, Mover]) -> None:
    """Refuse a leaf that two variables move: one of them would do nothing.

    Args:
        plan: fields of the plan that are listed.
        hardware: name -> variable.

    Raises:
        ConfigError: naming the leaf and both variables.
    """
    movers = {f"plan.{name}": f"space.plan.{name}" for name in plan}
    for name, variable in hardware.items():
        own = f"space.hardware.{name}"
        for path in moved_by(variable):
            if path in movers:
                if movers[path] == own:
                    raise ConfigError(f"{path} is moved twice by {own}: take it out of its `tied`")
                out = f"leave one of them out, '~{movers[path]}' or '~{own}'"
                raise ConfigError(f"{path} is moved by {movers[path]} and by {own}: {out}")
            movers[path] = own
    ordered(hardware)


def ordered(hardware: Mapping[str, Mover]) -> tuple[str, ...]:
    """Names of the variables, a ratio after what moves its denominator.

    Raises:
        ConfigError: denominators that depend on each other in a circle.
    """
    movers = {path: name for name, variable in hardware.items() for path in moved_by(variable)}
    needs = {name: movers.get(getattr(variable, "denominator", "")) for name, variable in hardware.items()}
    left = sorted(hardware)
    result: list[str] = []
    while left:
        ready = [name for name in left if needs[name] not in left]
        if not ready:
            circle = " and ".join(f"space.hardware.{name}" for name in left)
            raise ConfigError(f"{circle}: a ratio would move its own denominator; leave one of the variables out")
        result += ready
        left = [name for name in left if name not in ready]
    return tuple(result)


def check_bounds(hardware: Mapping[str, Mover], scenario: Scenario) -> None:
    """Refuse bounds that take a leaf out of its legal range, alone, along with another or as part of a ratio.

    Raises:
        ConfigError: the bound, what it makes of the leaf, and what the leaf may be.
    """
    plain = with_numpy(scenario)
    for name, variable in hardware.items():
        for path in [variable.path] * bool(variable.tied) + [getattr(variable, "denominator", "")]:
            value = get_path(plain, path) if path else 1.0
            if not isinstance(value, Tracer) and not np.all(value):
                raise ConfigError(f"space.hardware.{name}: {path} is 0, so nothing can be kept in proportion to it")
    for end, became in ends_of(hardware, scenario).items():
        for name, variable in hardware.items():
            for path in moved_by(variable):
                try:
                    check_replacement(scenario, path, became[path], ROUNDING)
                except ConfigError as error:
                    bound = f"space.hardware.{name}.{end} = {getattr(variable, end):g}"
                    raise ConfigError(f"{bound}: {error}") from error


def ends_of(hardware: Mapping[str, Mover], scenario: Scenario) -> dict[str, dict[str, Any]]:
    """`low` and `high` -> path -> what a leaf becomes where all variables are at that bound: its least and its most."""
    scenario = with_numpy(scenario)
    ends: dict[str, dict[str, Any]] = {"low": {}, "high": {}}
    for name in ordered(hardware):
        for end, moved in ends.items():
            moved |= hardware[name].leaves(scenario, getattr(hardware[name], end), moved)
    return ends
