"""Objects of a composed configuration: plain mappings in SI units, a scenario and a problem built of them."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..core.errors import ConfigError, suggestion
from ..core.fields import flattened
from ..core.yaml_io import is_mapping
from ..model.scenario import Cluster, Scenario
from ..model.workloads import AbstractPlan, AbstractWorkload
from ..search import Problem
from .checks import check_asked, check_encoder, check_formats, check_reach
from .consistency import check_experts, check_images, check_levels
from .construct import Built
from .expert_loads import with_expert_load
from .groups import available, expand, groups
from .in_units import in_si
from .space_checks import check_variables
from .traced_prefixes import with_prefixes
from .traced_requests import with_trace
from .weight_formats import with_weight_formats

SCENARIO = ("cluster", "workload", "plan")
MOST_KEPT = 8  # scenarios
OVERRIDE = "override"  # the source of a number that was set by hand
_scenarios: OrderedDict[Any, Scenario] = OrderedDict()


def complete(resolved: dict[str, Any]) -> dict[str, Any]:
    """Hardware variables written without a class: a ratio where they name a numerator, else a number.

    Raises:
        ConfigError: one that has no leaf, as where an override misspells the name of another.
    """
    given = resolved["space"].get("hardware")
    variables = given if is_mapping(given) else {}
    for name, variable in variables.items():
        if is_mapping(variable) and not variable.get("_target_"):
            if not {"path", "numerator"} & set(variable):
                known = [one for one in variables if one != name]
                hint = suggestion(str(name), known)
                raise ConfigError(f"space.hardware.{name}: no such variable here{hint}; one of your own needs a path")
            variable["_target_"] = f"codesign.study.design_space.{'Ratio' if 'numerator' in variable else 'Continuous'}"
    return resolved


def plain(config: DictConfig, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A configuration as plain mappings in SI units, interpolations resolved, Hydra's own settings left out.

    Args:
        config: as it was composed.
        overrides: of these.

    Raises:
        ConfigError: an interpolation that leads nowhere, a unit that its place does not have, a trace that is none.
    """
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        raise ConfigError("; ".join(str(error).splitlines()[:1])) from error
    assert is_mapping(resolved)
    given = with_trace(in_si({str(key): value for key, value in resolved.items() if key != "hydra"}), overrides)
    return with_expert_load(with_prefixes(given))


def scenario_of(built: Built) -> Scenario:
    """Build the scenario: what runs, on what, laid out how; parts of the right kinds.

    Raises:
        ConfigError: a part of another kind, a format or a reach that the hardware does not have.
    """
    for key, kind in {"cluster": Cluster, "workload": AbstractWorkload, "plan": AbstractPlan}.items():
        if not isinstance(built.objects[key], kind):
            raise ConfigError(f"{key} must be a {kind.__name__}, not {type(built.objects[key]).__name__}{choice(key)}")
    workload, plan = built.objects["workload"], built.objects["plan"]
    if not isinstance(plan, workload.plan_class):
        wanted = f"{type(workload).__name__} is laid out by a {workload.plan_class.__name__.removeprefix('Abstract')}"
        raise ConfigError(f"plan = {type(plan).__name__}: {wanted}; choose a plan of its own with plan=")
    scenario = with_weight_formats(Scenario(**{key: built.objects[key] for key in SCENARIO}))
    check_formats(scenario)
    check_encoder(scenario)
    check_reach(scenario)
    check_levels(scenario.cluster)
    check_experts(scenario)
    check_images(scenario)
    return scenario


def choice(key: str) -> str:
    """Hint at what to type for a part, where a group of its name has files of it."""
    return f"; choose one with {key}=NAME{suggestion('', available(key))}" if key in groups() else ""


def problem_of(built: Built) -> Problem:
    """Build the problem that is searched, its variables checked."""
    scenario = _shared(scenario_of(built))
    space = built.objects["space"].settled(scenario)
    check_variables(space, scenario)
    check_asked(built.objects["objective"], scenario)
    return Problem(scenario, space, built.objects["objective"])


def _shared(scenario: Scenario) -> Scenario:
    """Return one object for equal scenarios, such as jobs that differ in a limit: tables are kept of objects."""
    leaves, structure = flattened(scenario)
    arrays = [np.asarray(leaf) for leaf in leaves]
    numbers = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays)
    key = (structure, numbers, tuple((type(leaf).__name__, getattr(leaf, "weak_type", None)) for leaf in leaves))
    result = _scenarios.setdefault(key, scenario)
    _scenarios.move_to_end(key)
    if len(_scenarios) > MOST_KEPT:
        _scenarios.popitem(last=False)
    return result


def overridden(overrides: tuple[str, ...] | list[str]) -> dict[str, dict[str, Any]]:
    """An origin for every number changed by hand, so that reports do not credit it to a datasheet."""
    entries: dict[str, dict[str, Any]] = {}
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        path = expand(key)
        if path.split(".")[0] in SCENARIO and "." in path:
            entries[path] = {"source": OVERRIDE, "kind": "assumed", "note": f"set to {value} by hand"}
    return entries
