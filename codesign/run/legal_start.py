"""A plan to begin with where the one that a workload brings does not suit the model that was named."""

import sys

import numpy as np

from ..config import check_plan, study_from_config
from ..config.starting import names
from ..errors import ConfigError
from ..fields import replace
from ..scenario import Scenario


def legal_start(scenario: Scenario, overrides: list[str]) -> Scenario:
    """The scenario, with the nearest legal plan of its space where nobody chose the plan and it breaks a rule.

    Nearest: the fewest fields are others, then the least factor between them. One line says what was taken instead.
    A plan that was chosen, by name, by a field or by an experiment, stays as it is.
    """
    chosen = any(text.lstrip("+~").startswith("plan.") for text in overrides) or names(overrides, "plan", "experiment")
    if chosen:
        return scenario
    try:
        check_plan(scenario)
    except ConfigError as error:
        broken = str(error)
    else:
        return scenario
    space = study_from_config(*overrides).problem.space
    if not space.plan:
        return scenario
    own = {name: float(getattr(scenario.plan, name)) for name in space.plan}
    taken = nearest(own, space.plans(scenario))
    others = ", ".join(f"plan.{name}={taken[name]:g}" for name in own if taken[name] != own[name])
    print(f"codesign: {broken}; priced with {others} instead (name plan.* to choose)", file=sys.stderr)
    return replace(scenario, {f"plan.{name}": value for name, value in taken.items()})


def nearest(own: dict[str, float], plans: dict[str, np.ndarray]) -> dict[str, float]:
    """The plan that differs from `own` in the fewest fields, and of these by the least factor; the first of equals."""
    columns = {name: np.asarray(plans[name], dtype=float) for name in own}
    different = sum((column != own[name]).astype(float) for name, column in columns.items())
    apart = sum(np.abs(np.log1p(column) - np.log1p(own[name])) for name, column in columns.items())
    best = int(np.lexsort((apart, different))[0])
    return {name: float(column[best]) for name, column in columns.items()}
