"""Values with which a plan that breaks a rule breaks none: for the line that refuses it."""

import functools
import re
from collections.abc import Iterable, Mapping

import jax
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.fields import get_path, range_of, replace
from ..jaxprs.evaluator import interpreted
from ..model.scenario import Scenario
from ..model.workloads.plan_fields import words_of

__all__ = ["legal_values", "violations_of"]

KEYS = re.compile(r"(?<![\w.])(?:plan|workload|cluster)\.[a-z_]+(?= = |\s\d| and | of |[,:;]|$)")
DEGREES = ("tp", "cp", "pp", "ep", "etp")  # a text names these without `plan.` where it multiplies them
MULTIPLIED = re.compile(rf"(?<![\w.])({'|'.join(DEGREES)}) \d")
NEAR = 256  # whole numbers on either side of the one that was given
SHOWN = 4  # values of a field
FIELDS = 2


def legal_values(scenario: Scenario, rule: str, text: str) -> str:
    """Say which values of the fields that a refusal names would be legal, the nearest ones; empty where none would.

    Values that keep every rule come first; where no single field has such, those that keep this one.

    Args:
        scenario: whose plan breaks the rule.
        rule: as `violations` names it.
        text: the refusal, which names keys of the configuration.
    """
    own: dict[str, float] = {}
    for key in _keys(text):
        try:
            value = get_path(scenario, key)
        except (ConfigError, AttributeError):
            continue
        if value is not None and np.ndim(value) == 0:
            own[key] = float(value)
    points = [(key, value) for key in own for value in _candidates(scenario, key, own[key])]
    if not points:
        return ""
    columns = {key: np.array([value if key == name else own[key] for name, value in points]) for key in own}
    result = {name: np.broadcast_to(each, len(points)) for name, each in violations_of(scenario, columns).items()}
    keeps = np.asarray(result[rule]) <= 0
    legal = np.all([np.asarray(each) <= 0 for each in result.values()], axis=0)
    told = _nearest(own, points, legal)
    if told:
        return f"; take {', or '.join(told)}"
    told = _nearest(own, points, keeps)
    return f"; this rule holds with {', or '.join(told)}" if told else ""


def _keys(text: str) -> list[str]:
    """Keys of the configuration that a refusal names, in their order; degrees of a product as fields of the plan."""
    places = {match.start(): match[0] for match in KEYS.finditer(text)}
    places |= {match.start(): f"plan.{match[1]}" for match in MULTIPLIED.finditer(text)}
    return list(dict.fromkeys(places[at] for at in sorted(places)))


def _candidates(scenario: Scenario, key: str, own: float) -> list[float]:
    """Values that may stand in a field's place: every word, fewer parts of a list, whole numbers near the given one."""
    name = key.removeprefix("plan.")
    field = range_of(scenario, key) or {}
    words, number = words_of(name) if key.startswith("plan.") else (), round(own)
    if field.get("parts"):
        fewer = {number & ~(1 << index) for index in range(len(field["parts"])) if number >> index & 1}
        return sorted(map(float, fewer | {0}))
    if words:
        return [float(each) for each in range(len(words)) if each != number]
    low, high = field.get("low", 1.0), field.get("high", np.inf)
    near = np.arange(max(number - NEAR, low), min(number + NEAR, high) + 1)
    powers = 2.0 ** np.arange(21)
    every = np.unique([*near, *powers[(powers >= low) & (powers <= high)]])
    return [float(each) for each in every if each != own]


def _nearest(own: Mapping[str, float], points: Iterable[tuple[str, float]], good: np.ndarray) -> list[str]:
    """Overrides of the first fields that have legal values, the nearest by ratio, in their order."""
    values: dict[str, list[float]] = {}
    for (key, value), fits in zip(points, good, strict=True):
        if fits:
            values.setdefault(key, []).append(value)
    told: list[str] = []
    for key, each in values.items():
        nearest = sorted(each, key=lambda value: abs(np.log1p(value) - np.log1p(own[key])))[:SHOWN]
        words = words_of(key.removeprefix("plan.")) if key.startswith("plan.") else ()
        said = [words[round(value)] if words else f"{value:g}" for value in sorted(nearest)]
        told.append(f"{key}={', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else f"{key}={said[0]}")
    return told[:FIELDS]


@functools.partial(interpreted, always=True)
def violations_of(scenario: Scenario, columns: dict[str, Array]) -> dict[str, Array]:
    """Rule -> above zero where a point breaks it."""

    def one(point: dict[str, Array]) -> dict[str, Array]:
        moved = replace(scenario, point)
        return moved.workload.violations(moved.layout)

    return jax.vmap(one)(columns)
