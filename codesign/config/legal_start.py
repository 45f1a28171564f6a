"""A plan to begin with where the one that a workload brings does not suit the model that was named."""

import numpy as np

from ..core.fields import replace
from ..model.scenario import Scenario
from .checks import broken_plan
from .starting import names
from .study import study_from_config


def legal_start(scenario: Scenario, overrides: list[str]) -> tuple[Scenario, str]:
    """The scenario, with the nearest legal plan of its space where the one that came along breaks a rule.

    Nearest: the fewest fields are others, then the least factor between them. A plan that was chosen by name or by an
    experiment stays as it is, and so does every field that was chosen.

    Returns:
        (scenario, a line on what was taken instead, empty where nothing was)
    """
    if names(overrides, "plan", "experiment"):
        return scenario, ""
    chosen = {text.lstrip("+~").partition("=")[0].removeprefix("plan.") for text in overrides if "plan." in text}
    broken = broken_plan(scenario)
    if not broken:
        return scenario, ""
    space = study_from_config(*overrides).problem.space
    if not space.plan:
        return scenario, ""
    own = {name: float(getattr(scenario.plan, name)) for name in space.plan}
    plans = {name: np.asarray(values, dtype=float) for name, values in space.plans(scenario).items()}
    kept = np.all([plans[name] == own[name] for name in own if name in chosen] or [True], axis=0)
    if not np.any(kept):
        return scenario, ""
    taken = nearest(own, {name: values[np.broadcast_to(kept, values.shape)] for name, values in plans.items()})
    others = ", ".join(f"plan.{name}={taken[name]:g}" for name in own if taken[name] != own[name])
    line = f"{broken}; priced with {others} instead (name plan.* to choose)"
    return replace(scenario, {f"plan.{name}": value for name, value in taken.items()}), line


def nearest(own: dict[str, float], plans: dict[str, np.ndarray]) -> dict[str, float]:
    """The plan that differs from `own` in the fewest fields, and of these by the least factor; the first of equals."""
    columns = {name: np.asarray(plans[name], dtype=float) for name in own}
    different = sum((column != own[name]).astype(float) for name, column in columns.items())
    apart = sum(np.abs(np.log1p(column) - np.log1p(own[name])) for name, column in columns.items())
    best = int(np.lexsort((apart, different))[0])
    return {name: float(column[best]) for name, column in columns.items()}
