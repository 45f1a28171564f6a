"""The least devices that do a job, where nothing says how many there are: of one design, and of a study that trains."""

import dataclasses
from collections.abc import Iterator

from omegaconf import OmegaConf

from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.free_memory import give_back
from ..core.json_yaml import is_mapping
from ..model.scenario import Scenario
from ..model.workloads import Plan, Training, TrainingRun
from ..search import Grid, Mix, Problem
from ..search.results import numbers_of
from ..study.objective import Objective, feasible
from .checks import check_plan
from .composition import compose
from .device_counts import between, counts_of_job, left_open, listed, more_devices, rack_of
from .legal_start import legal_start
from .study import Study, study_from_config

__all__ = ["ANOTHER", "sized", "sized_study"]

COUNT = "cluster.device_count"
FURTHER = 2  # times that more devices are tried: a plan with a small batch needs many
ANOTHER = f"name {COUNT} for another number"
VARIED = f"{ANOTHER}, 'space.plan.device_count=[64,128]' lets it vary"


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
    last = ""
    for count in _counts(scenario):
        last = f"{COUNT}={count}"
        design = legal_start(replace(scenario, {COUNT: float(count)}), [*overrides, last])[0]
        if _runs(design):
            plan = [f"plan.{name}={value:g}" for name, value in _changed(scenario.plan, design.plan)]
            does = "sustain the rate" if hasattr(scenario.workload, "arrivals_per_s") else "hold a replica"
            does = "hold a training step" if isinstance(scenario.workload, Training | TrainingRun) else does
            among = f" with {', '.join(plan)}" if plan else ""
            return [last, *plan], f"assumed: {last}{among}, the least devices that {does}; {ANOTHER}"
    return [last] if last else [], ""


def sized_study(study: Study, overrides: list[str]) -> tuple[Study, str]:
    """A study that trains, on the least devices on which some plan of its space fits and keeps all limits.

    Args:
        study: of these overrides.
        overrides: of the configuration.

    Returns:
        (study, and a line about it); the same study, and nothing, where a number was named or varies, or the job is
        none that trains. Where no number keeps all limits it is the least that holds a training step.
    """
    scenario = study.scenario
    has_count = isinstance(study.search, Mix) or "device_count" in study.resolved.get("plan", {})
    if (
        has_count
        or not isinstance(scenario.workload, Training | TrainingRun)
        or not left_open(overrides, study.resolved)
    ):
        return study, ""
    if not study.space.plan:
        count_overrides, line = sized(scenario, overrides)
        return (study_from_config(*overrides, *count_overrides), line) if count_overrides else (study, "")
    limited = bool(study.objective.limits or study.objective.floors)
    for objective in (study.objective, dataclasses.replace(study.objective, limits={}, floors={})):
        count = _least(scenario, overrides, objective)
        if count:
            does = "hold a training step"
            if limited and objective is study.objective:
                does += " and keep the limits"
            elif limited:
                does += f": none of {listed([*_counts(scenario)])} keeps all limits"
            taken = study_from_config(*overrides, f"{COUNT}={count}")
            return taken, f"assumed: {count:,} devices, the least that {does}; {VARIED}"
        if not limited:
            break
    return study, ""


def _least(scenario: Scenario, overrides: list[str], objective: Objective) -> int:
    """The least number of devices on which a plan keeps this objective's limits; 0 where none does."""
    tried: list[int] = []
    batch = int(float(getattr(scenario.workload, "global_batch", 0.0)))
    for count in _counts(scenario):
        tried.append(count)
        give_back(cycles=True)  # the grid of the last count
        if _keeps_limits([*overrides, f"{COUNT}={count}"], objective):
            left_out = [one for one in between(tried, count, batch, 0) if one < count]
            return next((one for one in left_out if _keeps_limits([*overrides, f"{COUNT}={one}"], objective)), count)
    return 0


def _keeps_limits(overrides: list[str], objective: Objective) -> bool:
    """True if some plan on the hardware as it is keeps the limits; of more plans than are listed, the one that a
    design would begin with."""
    try:
        study = study_from_config(*overrides)
        space = dataclasses.replace(study.space, hardware={})
        if space.size(study.scenario) < float("inf"):
            return Grid(top_k=1).run(Problem(study.scenario, space, objective), 0).counts["feasible"] > 0
    except ConfigError:  # no legal plan on so many
        return False
    return _runs(legal_start(study.scenario, overrides)[0])


def _counts(scenario: Scenario) -> Iterator[int]:
    """Numbers of devices to try, the fewest first; none where the job is of a kind that has none to choose from."""
    counts = counts_of_job(scenario)
    yield from counts
    for _ in range(FURTHER if counts else 0):
        more = [count for count in more_devices(counts, rack=rack_of(scenario)) if count > counts[-1]]
        yield from more
        counts = [*counts, *more]


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
