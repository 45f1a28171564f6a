"""Checks of a space on this hardware: values of plan fields, algorithms that a network offers, leaves."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..core.errors import ConfigError
from ..core.fields import check_integer, get_path
from ..model.networks.collectives import OPERATIONS, Chosen
from ..model.scenario import Scenario
from ..model.workloads.plan_fields import plan_field, plan_numbers, plan_value, words_of
from ..study.design_space import DesignSpace
from .checks import check_reach
from .groups import PACKAGES, available, expand

__all__ = ["check_variables", "not_held", "refuse_overruled", "refuse_overruled_count"]

MOST_LEVELS = 1_000_000  # of a variable's grid


def check_variables(space: DesignSpace, scenario: Scenario) -> None:
    """Every hardware variable must lead to a leaf of this scenario; another fabric or memory may have other leaves.

    Raises:
        ConfigError: what is missing, all variables that are, and how to go on without them.
    """
    for name, values in space.plan.items():
        for value in values:
            _check_listed(name, value)
        _refuse_repeated(name, plan_numbers(name, values), values)
    for name, variable in space.hardware.items():
        _refuse_along(name, variable)
    _check_algorithms(space, scenario)
    if "device_count" in space.plan:
        check_reach(scenario, max(map(float, space.plan["device_count"])))
    wrong: dict[str, ConfigError] = {}
    for name, variable in space.hardware.items():
        if variable.grid > MOST_LEVELS:
            raise ConfigError(f"space.hardware.{name}.grid = {variable.grid:,} levels: at most {MOST_LEVELS:,}")
        try:
            DesignSpace(hardware={name: variable}).check_paths(scenario)
        except ConfigError as error:
            wrong[name] = error
    if wrong:
        name, error = next(iter(wrong.items()))
        path = space.hardware[name].path
        absent = [g for g, place in PACKAGES.items() if path.startswith(f"{place}.") and not _has(scenario, place)]
        if absent:
            raise ConfigError(
                f"space.hardware.{name} needs a {absent[0]}: choose one, {absent[0]}={next(iter(available(absent[0])))}"
            ) from error
        also = f" (nor has it what {', '.join(list(wrong)[1:])} names)" if len(wrong) > 1 else ""
        without = " ".join(f"'~space.hardware.{name}'" for name in wrong)
        raise ConfigError(
            f"space.hardware.{name} does not exist on this hardware: {error}{also};"
            f" give it another path, choose another space (`codesign list space`), or leave it out: {without}"
        ) from error


COUNTS = ("cluster.device_count", "plan.device_count")


def refuse_overruled(space: DesignSpace, overrides: Sequence[str]) -> None:
    """Refuse a number of devices that is typed where the space lists numbers of its own, which would count instead.

    Raises:
        ConfigError: both, and how to say which is meant.
    """
    listed = space.plan.get("device_count", ())
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if len(listed) and expand(key) in COUNTS and [f"{float(count):g}" for count in listed] != [value]:
            numbers = ", ".join(f"{float(count):g}" for count in listed)
            raise ConfigError(
                f"{key} = {value} would not count: space.plan.device_count lists {numbers};"
                f" take 'space.plan.device_count=[{value}]', or leave the list out: '~space.plan.device_count'"
            )


def refuse_overruled_count(scenario: Scenario, overrides: Sequence[str]) -> None:
    """Refuse a number of devices of the cluster where the plan has one of its own, which nobody typed.

    Raises:
        ConfigError: both, and what to type.
    """
    typed = {expand(text.lstrip("+").partition("=")[0]): text.partition("=")[2] for text in overrides}
    own, said = scenario.plan.device_count, typed.get("cluster.device_count")
    if own is None or said is None or "plan.device_count" in typed or said == f"{float(own):g}":
        return
    raise ConfigError(
        f"cluster.device_count = {said} would not count: the plan has {float(own):g} devices of its own; take"
        f" plan.device_count={said}"
    )


def not_held(space: DesignSpace, overrides: Sequence[str]) -> list[str]:
    """A line for each plan field that is typed and varies all the same, since the space lists values of its own."""
    told = list[str]()
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        listed = space.plan.get(expand(key).removeprefix("plan."), ()) if expand(key).startswith("plan.") else ()
        if len(listed) and [str(one) for one in listed] != [value]:
            values = ", ".join(map(str, listed))
            told.append(f"{key} = {value} does not hold it: space.{key} lists {values}; 'space.{key}=[{value}]' does")
    return told


def _has(scenario: Scenario, path: str) -> bool:
    """True if something stands at a path that may be empty."""
    try:
        return get_path(scenario, path) is not None
    except ConfigError:
        return False


def _check_listed(name: str, value: Any) -> None:
    """A value of a plan's list must be one that the field may have.

    Raises:
        ConfigError: it is no number, or outside the field's range.
    """
    if words_of(name) and isinstance(value, str):
        plan_value(name, value)
        return
    field = plan_field(name)
    assert field is not None  # the space knows its fields
    if not isinstance(value, int | float) or (isinstance(value, bool) and field["high"] > 1):
        raise ConfigError(f"space.plan.{name}: {value!r} is not a number")
    if not field["low"] <= value <= field["high"] or not math.isfinite(value):
        raise ConfigError(f"space.plan.{name}: {value:g} is outside [{field['low']:g}, {field['high']:g}]")
    check_integer(f"space.plan.{name}", dict(field) | {"integer": field.get("integer") or field["low"] >= 1}, value)


def _refuse_repeated(name: str, numbers: Any, values: Sequence[Any]) -> None:
    """A value that stands twice in a list would be tried, and counted, twice.

    Raises:
        ConfigError: names it.
    """
    twice = next((index for index, count in enumerate(Counter(map(float, numbers)).values()) if count > 1), None)
    if twice is not None:
        value = list(Counter(map(float, numbers)))[twice]
        written = next(one for one, number in zip(values, numbers, strict=True) if float(number) == value)
        raise ConfigError(f"space.plan.{name} lists {written} twice; list each value once")


def _refuse_along(name: str, variable: Any) -> None:
    """A leaf that is named twice would move twice as far.

    Raises:
        ConfigError: names it.
    """
    paths = [variable.path, *variable.tied]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"space.hardware.{name} names {twice} twice; name each leaf once in path and tied")


def _check_algorithms(space: DesignSpace, scenario: Scenario) -> None:
    """Algorithms that a space lists must be offered by some operation of some network level.

    Raises:
        ConfigError: none is left to the plan, or one that nobody offers.
    """
    levels = scenario.cluster.network.values()
    algorithms = [level.collectives.algorithm(operation) for level in levels for operation in OPERATIONS]
    offered = {name for one in algorithms if isinstance(one, Chosen) for name in one.options}
    for field in ("tp_algorithm", "data_algorithm"):
        for value in space.plan.get(field, ()):
            name = words_of(field)[round(float(plan_value(field, value)))]
            if name not in offered:
                have = f"it has {', '.join(sorted(offered))}" if offered else "collective=lumorph_chosen leaves some"
                raise ConfigError(f"space.plan.{field}: no network leaves the choice of {name} to the plan ({have})")
