"""Diagnosis of infeasible studies in configuration terms: conflicting constraints and how much each must relax."""

from collections.abc import Sequence

import pandas as pd

from ..config import Study
from ..config.checks import check_hopeful, does_not_fit, shortage
from ..config.consistency import check_load
from ..core.errors import ConfigError
from ..model.workloads.goodput import ENGINE
from ..report.labels import TIERS
from ..report.proof import LITTLE
from ..search.certificate import Certificate, RequiredRelaxation
from ..search.results import numbers_of, placed
from ..study.objective import feasible, share_text
from .terminal import texts

ENGINE_SHARE = "usage.hbm.engine"
MOST_DIGITS = 9  # a limit is missed by more than 1e-9 of itself


def refuse_infeasible(study: Study, best: pd.Series, certificate: Certificate | None) -> None:
    """Say why nothing is feasible.

    Raises:
        ConfigError: the constraints that conflict and what each would have to give, as far as that is known.
    """
    if best["feasible"]:
        return
    if certificate is not None and certificate.infeasible:
        raise ConfigError(_conflict(study, certificate.infeasible))
    used = {str(name)[6:]: float(best[name]) for name in best.index if str(name).startswith("limit.")}
    over = {name: share for name, share in used.items() if not feasible(share - 1)}
    if over and all(name.startswith("usage.") and (name.count(".") == 1 or name == ENGINE_SHARE) for name in over):
        scenario = placed(study.problem, best)
        raise ConfigError("no design of the space fits; the nearest: " + does_not_fit(scenario, shortage(scenario)))
    _served(study, best, over)
    broken = [_broken(study, name, share) for name, share in sorted(over.items(), key=lambda item: -item[1])]
    hint = "" if certificate is not None else "; search=certified tells how much each must give"
    raise ConfigError(f"no design keeps all limits; the nearest one found breaks {' and '.join(broken)}{hint}")


def _served(study: Study, best: pd.Series, over: dict[str, float]) -> None:
    """Say what engines cannot keep, or that a request fits nowhere, where that is all there is to say.

    Raises:
        ConfigError: of the nearest design.
    """
    if not any(name.startswith("usage.") for name in over):
        return
    scenario = placed(study.problem, best)
    try:
        if "usage.hbm" in over:
            check_hopeful(scenario)
        if over and all(name.startswith(f"usage.{ENGINE}.") for name in over):
            check_load(scenario, numbers_of(scenario))
    except ConfigError as error:
        raise ConfigError(f"no design of the space serves that; the nearest: {error}") from error


def _conflict(study: Study, proof: Sequence[RequiredRelaxation]) -> str:
    """Sentence on a certificate's conflict: which constraints, and how much each would have to give alone."""
    ways = [_given(study, row.constraint, row.factor) for row in proof if row.alone and row.factor is not None]
    if ways:
        return f"no design keeps all limits; enough, with all else as it is, would be {', or '.join(ways)}"
    enough = [(row.constraint, row.together) for row in proof if row.together]
    together = [_given(study, name, factor) for name, factor in enough if factor > 1 + LITTLE]
    if together:
        return f"no design keeps all limits, and none of them alone can give enough; together: {' and '.join(together)}"
    names = [_constraint_words(study, row.constraint) for row in proof]
    return f"no design keeps all limits, and none of them alone can give enough: {', '.join(names)}"


def _constraint_words(study: Study, name: str) -> str:
    """Configuration key of a constraint, or the hardware resource that it limits."""
    kind, _, rest = name.removeprefix("usage.").partition(".")
    if not name.startswith("usage."):
        return name
    if not rest:
        return TIERS.get(kind, kind)
    owner = {"hbm": "cluster.accelerator.hbm", "die": "cluster.accelerator.die", ENGINE: "an engine"}
    owner |= {level: f"cluster.network.{level}.fabric" for level in study.scenario.cluster.network}
    return f"{rest} of {owner[kind]}" if kind in owner else f"{kind}.{rest}"


def _given(study: Study, name: str, factor: float) -> str:
    """Value that a constraint would have to have: `objective.limits.capex_usd = $61.7 M instead of $55 M`."""
    objective = study.objective
    for group, scale in (("limits", factor), ("floors", 1 / factor)):
        bounds = getattr(objective, group)
        if name in bounds:
            wanted, bound = _distinct(study, name, bounds[name] * scale, bounds[name])
            return f"objective.{group}.{name} = {wanted} instead of {bound}"
    return f"{factor:.4g} times the {_constraint_words(study, name)}"


def _distinct(study: Study, name: str, value: float, bound: float) -> tuple[str, str]:
    """A value and its bound in the fewest digits, three or more, in which they differ."""
    pairs = [
        (texts(study, digits)(name, value), texts(study, digits)(name, bound)) for digits in range(3, MOST_DIGITS + 1)
    ]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])


def _broken(study: Study, name: str, share: float) -> str:
    """A constraint that a design breaks: `objective.limits.capex_usd ($61.7 M, $55 M allowed)`."""
    objective = study.objective
    if name in objective.limits:
        bound = objective.limits[name]
        reached, allowed = _distinct(study, name, bound * share, bound)
        return f"objective.limits.{name} ({reached}, {allowed} allowed)"
    if name in objective.floors:
        bound = objective.floors[name]
        reached, allowed = _distinct(study, name, bound / share, bound)
        return f"objective.floors.{name} ({reached}, {allowed} asked for)"
    return f"{_constraint_words(study, name)} ({share_text(share)} used)"
