"""A design to begin with: the nearest legal plan, and clients that wait where the cache has no room for all."""

import numpy as np

from ..core.errors import ConfigError
from ..core.fields import as_leaf, replace
from ..core.units import GIB
from ..model.scenario import Scenario
from ..model.workloads import Training, TrainingRun
from ..model.workloads.continuous import ContinuousServing
from ..model.workloads.goodput import AbstractOpenServing
from ..model.workloads.plan_fields import words_of
from ..study import DesignSpace
from .checks import broken_plan
from .composition import compose
from .device_counts import COUNT
from .memory_advice import PLACES, most_places, places_that_fit, shortage
from .starting import names
from .study import study_from_config

LARGE, PLACES_OF_LARGE, PLACES_OF_SMALL = 70 * GIB, 1024.0, 256.0
"""Memory of a device from which vLLM serves more sequences at once, and how many on such devices and on others.

Source: `get_batch_defaults` of vLLM 0.11 to 0.30, which counts A100 among the others.
"""
SMALL_ANYWAY = "a100"
CUTS = ("tp", "ep", "etp")
SPREADS = (8.0, 16.0, 32.0, 64.0, 4.0, 2.0)  # ranks of a box, of more where it lacks memory, and of few experts


def legal_start(scenario: Scenario, overrides: list[str]) -> tuple[Scenario, str]:
    """The scenario as an engine would start it, with the nearest legal plan of its space where a rule is broken.

    Nearest: the fewest fields are others, then the least factor between them. A plan that was chosen by name or by an
    experiment stays as it is, and so does every field that was chosen.

    Returns:
        (scenario, a line on what was taken instead, empty where nothing was)
    """
    if names(overrides, "plan", "experiment"):
        return scenario, ""
    spread, experts = _with_experts_spread(scenario, overrides)
    legal, broken = _nearest_legal(spread, overrides)
    started, places = _with_engine_places(legal, overrides)
    return started, "; ".join(line for line in (experts, broken, places) if line)


def _with_experts_spread(scenario: Scenario, overrides: list[str]) -> tuple[Scenario, str]:
    """The scenario with whole experts on the ranks of a box, where a mixture is trained and nobody says how.

    Published recipes spread experts; the default plan's tensor ranks would cut each, and keep all of them on a rank.
    """
    said = any(text.lstrip("+~").startswith(f"plan.{name}=") for text in overrides for name in CUTS)
    if said or not isinstance(scenario.workload, Training | TrainingRun):
        return scenario, ""
    experts = float(getattr(scenario.workload.model.feed_forward, "experts", 0.0))
    degrees = [ranks for ranks in SPREADS if experts > 0 and experts % ranks == 0]
    spread = [replace(scenario, {"plan.tp": as_leaf(1.0), "plan.ep": as_leaf(ranks)}) for ranks in degrees]
    if not spread:
        return scenario, ""
    taken = next((one for one in spread if not shortage(one)), spread[0])
    line = f"assumed: plan.tp=1 plan.ep={float(taken.plan.ep):g}, experts whole on ranks; name plan.* to choose"
    return taken, line


def _with_engine_places(scenario: Scenario, overrides: list[str]) -> tuple[Scenario, str]:
    """The scenario with as many requests at once as an engine admits and its cache has room for, under a rate.

    Fewer than the plan came with are not taken: what then lacks memory is refused with what would help.
    """
    if not isinstance(scenario.workload, AbstractOpenServing) or any(PLACES in text for text in overrides):
        return scenario, ""
    accelerator = scenario.cluster.accelerator
    large = float(accelerator.hbm.capacity_bytes) >= LARGE and not accelerator.name.startswith(SMALL_ANYWAY)
    most, current = PLACES_OF_LARGE if large else PLACES_OF_SMALL, float(scenario.plan.micro_batch)
    places = most_places(scenario, current, most)
    if places <= current:
        return scenario, ""
    why = "vLLM's max_num_seqs on such devices" if places == most else "for which the cache has room"
    line = f"assumed: {PLACES}={places:g} requests at once, {why}; name {PLACES} for another number"
    return replace(scenario, {PLACES: as_leaf(places)}), line


def _nearest_legal(scenario: Scenario, overrides: list[str]) -> tuple[Scenario, str]:
    chosen = {text.lstrip("+~").partition("=")[0].removeprefix("plan.") for text in overrides if "plan." in text}
    broken = broken_plan(scenario)
    if not broken:
        return scenario, ""
    try:
        space = _space_with(scenario, overrides, chosen)
        legal = space.plans(scenario) if space.plan else {}
    except ConfigError:  # no legal plan at all: what is wrong with this one says more
        return scenario, ""
    if not legal:
        return scenario, ""
    current = {
        name: float(getattr(scenario.plan, name)) for name in space.plan if getattr(scenario.plan, name) is not None
    }
    plans = {name: np.asarray(values, dtype=float) for name, values in legal.items()}
    fixed = np.all([plans[name] == current[name] for name in current if name in chosen] or [True], axis=0)
    if COUNT in plans and COUNT not in current:  # the space varies what the cluster says here
        fixed = fixed & (plans[COUNT] == float(scenario.cluster.device_count))
    if not np.any(fixed):
        return scenario, ""
    taken = nearest(
        current,
        {name: values[np.broadcast_to(fixed, values.shape)] for name, values in plans.items() if name in current},
    )
    others = ", ".join(f"plan.{name}={taken[name]:g}" for name in current if taken[name] != current[name])
    line = f"{broken}; priced with {others} instead (name plan.* to choose)"
    return replace(scenario, {f"plan.{name}": value for name, value in taken.items()}), line


def _space_with(scenario: Scenario, overrides: list[str], chosen: set[str]) -> DesignSpace:
    """The configuration's space, with the values that were chosen on its lists."""
    counted = (*overrides, *_without_counts(overrides))
    space = study_from_config(*counted).problem.space
    values = {name: getattr(scenario.plan, name) for name in sorted(chosen & {*space.plan})}
    unlisted = [
        f"space.plan.{name}=[{words[round(float(value))] if (words := words_of(name)) else f'{float(value):g}'}]"
        for name, value in values.items()
        if value is not None and not np.isin(float(value), space.lists[name])
    ]
    return study_from_config(*counted, *unlisted).problem.space if unlisted else space


def with_waiting_clients(scenario: Scenario) -> tuple[Scenario, str]:
    """The scenario, with clients that the cache has no room for waiting, as engines let them.

    Returns:
        (scenario, a line on who waits, empty where all have room, or where nobody can wait)
    """
    path = "workload.clients.queued_ratio"
    if not isinstance(scenario.workload, ContinuousServing) or not shortage(scenario):
        return scenario, ""
    places, clients = places_that_fit(scenario), float(scenario.plan.micro_batch)
    if not places:
        return scenario, ""
    waiting = clients / places - 1
    line = (
        f"the cache has room for {places:g} of {clients:g} clients, the others wait"
        f" ({PLACES}={places:g} {path}={waiting:.4g})"
    )
    return replace(scenario, {PLACES: as_leaf(places), path: as_leaf(waiting)}), line


def _without_counts(overrides: list[str]) -> list[str]:
    """The override that leaves out a list of device counts, where the one count of a design is said."""
    said = any(text.lstrip("+").startswith(f"cluster.{COUNT}=") for text in overrides)
    listed = said and COUNT in (compose(overrides).get("space", {}).get("plan") or {})
    return [f"~space.plan.{COUNT}"] if listed else []


def nearest(current: dict[str, float], plans: dict[str, np.ndarray]) -> dict[str, float]:
    """The plan nearest to `current`: fewest fields changed, then the least factor; the first of equals."""
    columns = {name: np.asarray(plans[name], dtype=float) for name in current}
    different = sum((column != current[name]).astype(float) for name, column in columns.items())
    apart = sum(np.abs(np.log1p(column) - np.log1p(current[name])) for name, column in columns.items())
    best = int(np.lexsort((apart, different))[0])
    return {name: float(column[best]) for name, column in columns.items()}
