"""The number of devices of one design, where nothing says how many there are."""

import dataclasses
from collections.abc import Iterator

from omegaconf import OmegaConf

from ..config.checks import check_plan
from ..config.composition import compose
from ..config.device_counts import counts_of_job, left_open, more_devices, rack_of
from ..config.legal_start import legal_start
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.json_yaml import is_mapping
from ..model.scenario import Scenario
from ..model.workloads import Plan, Training
from ..search.results import numbers_of
from ..study.objective import feasible

COUNT = "cluster.device_count"
FURTHER = 2  # times that more devices are tried: a plan with a small batch needs many


def sized(scenario: Scenario, overrides: list[str]) -> tuple[list[str], str]:
    """The override that names the least number of devices that hold the design and sustain its rate, if it has one.

    Args:
        scenario: of these overrides.
        overrides: of the configuration.

    Returns:
        (overrides that say so, and a line about it); nothing where a number was named or the job is of another kind.
        Where no listed number suffices it is the largest, which is then refused with what would help.
    """
    resolved = OmegaConf.to_container(compose(overrides), resolve=False)
    if not is_mapping(resolved) or not left_open(overrides, {**resolved, "space": {}}):  # one design searches none
        return [], ""
    counts = counts_of_job(scenario)
    if not counts:
        return [], ""
    for further in range(FURTHER + 1):
        for count in counts if not further else more_devices(counts, rack=rack_of(scenario)):
            counts = sorted({*counts, count})
            asked = f"{COUNT}={count}"
            design = legal_start(replace(scenario, {COUNT: float(count)}), [*overrides, asked])[0]
            if _runs(design):
                plan = [f"plan.{name}={value:g}" for name, value in _changed(scenario.plan, design.plan)]
                does = "sustain the rate" if hasattr(scenario.workload, "arrivals_per_s") else "hold a replica"
                does = "hold a training step" if isinstance(scenario.workload, Training) else does
                among = f" with {', '.join(plan)}" if plan else ""
                return [asked, *plan], f"{asked}{among}, the least devices that {does}; name {COUNT} for another number"
    return [f"{COUNT}={counts[-1]}"], ""


def _changed(before: Plan, after: Plan) -> Iterator[tuple[str, float]]:
    """Plan fields that differ, with their values afterwards."""
    for name in (field.name for field in dataclasses.fields(before)):
        first, second = getattr(before, name), getattr(after, name)
        if second is not None and (first is None or float(first) != float(second)):
            yield name, float(second)


def _runs(scenario: Scenario) -> bool:
    """True if the plan is legal, fits and sustains its rate."""
    try:
        check_plan(scenario)
    except ConfigError:
        return False
    numbers = numbers_of(scenario)
    return all(feasible(value - 1) for name, value in numbers.items() if name.startswith("usage."))
