"""A plan to begin with where the one that a workload brings does not suit the model that was named."""

import numpy as np

from ..core.errors import ConfigError
from ..core.fields import replace
from ..model.scenario import Scenario
from .checks import broken_plan
from .composition import compose
from .device_counts import COUNT
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
    try:
        space = study_from_config(*overrides, *_without_counts(overrides)).problem.space
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
