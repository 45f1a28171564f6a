"""Memory shortage: how much is missing where, and the smallest changes of plan, devices or formats that would fit."""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.fields import as_leaf, get_path, range_of, replace
from ..core.jax_typed import asarray
from ..core.smooth import used_share
from ..core.units import BYTES, GB
from ..jaxprs.evaluator import interpreted, quick_jit
from ..model.metrics import cache_budget, memory_by_class
from ..model.metrics.footprint import per_tier
from ..model.scenario import Scenario
from ..model.workloads import AbstractServing, AbstractWorkload
from ..model.workloads.continuous import AbstractContinuousServing
from ..model.workloads.plan_fields import words_of
from ..model.workloads.prefixes import kept_by
from ..model.workloads.served import OF_TRAINING
from ..study.objective import feasible

__all__ = [
    "PLACES", "TIERS", "FieldValues", "capacity_of", "changes_that_fit", "distance", "does_not_fit", "legal_values",
    "less_retained", "minimal_changes", "most_places", "narrower", "places_that_fit", "shortage", "smallest_change",
    "smallest_changes", "used_of",
]  # fmt: skip


# Smallest sets of changes that make a design fit: by number of fields, found by search over the values of each field.
#
# A set of fields is minimal where some values of it fit and no values of fewer of its fields do. Of its values those
# nearest to the design's own are taken: of the least sum of |log2(new / old)|, then the larger ones. Of a field that
# is a list of names (`plan_fields.combination`) the names that differ are counted.


PLACES = "plan.micro_batch"
"""Path of the sequences that an engine serves at once."""
FieldValues = Mapping[str, Sequence[float]]
"""Field -> values that it may take beside its own."""
Fits = Callable[[list[dict[str, float]]], np.ndarray]


class Change(NamedTuple):
    """New values of some fields, and how far they are from the old ones."""

    values: dict[str, float]
    distance: float


def minimal_changes(
    start: Mapping[str, float], fields: FieldValues, fits: Fits, most: int = 3, lists: Collection[str] = ()
) -> list[Change]:
    """Every minimal set of at most so many fields, the fewest and nearest first; of each its nearest values.

    Args:
        start: the design's own values.
        fields: what may change, and to what.
        fits: which points, of changed fields alone, are legal and fit; called once for each number of fields.
        most: fields of a set.
        lists: fields whose values stand for lists of names.
    """
    result: list[Change] = []
    for count in range(1, most + 1):
        smaller_sets = [set(change.values) for change in result]
        sets = [
            names for names in itertools.combinations(fields, count) if not any(one <= {*names} for one in smaller_sets)
        ]
        points = [
            dict(zip(names, values, strict=True))
            for names in sets
            for values in itertools.product(*(fields[name] for name in names))
        ]
        if not points:
            continue
        fitting = [point for point, good in zip(points, fits(points), strict=True) if good]
        best: dict[frozenset[str], Change] = {}
        for point in fitting:
            one, key = Change(point, distance(start, point, lists)), frozenset(point)
            if key not in best or _rank(one) < _rank(best[key]):
                best[key] = one
        result += sorted(best.values(), key=_rank)
    return result


def distance(start: Mapping[str, float], point: Mapping[str, float], lists: Collection[str] = ()) -> float:
    """Sum of |log2(new / old)|; a field that is 0 or becomes 0 counts its difference, a list the names that differ."""
    total = 0.0
    for name, new in point.items():
        old = start[name]
        if name in lists:
            total += (int(new) ^ int(old)).bit_count()
            continue
        total += abs(math.log2(new / old)) if new > 0 and old > 0 else abs(new - old)
    return total


def _rank(change: Change) -> tuple[float, tuple[float, ...]]:
    return round(change.distance, 9), tuple(-value for value in change.values.values())


# Values with which a plan that breaks a rule breaks none: for the line that refuses it.


KEYS = re.compile(r"(?<![\w.])(?:plan|workload|cluster)\.[a-z_]+(?= = |\s\d| and | of |[,:;]|$)")
DEGREES = ("tp", "cp", "pp", "ep", "etp")  # a text names these without `plan.` where it multiplies them
MULTIPLIED = re.compile(rf"(?<![\w.])({'|'.join(DEGREES)}) \d")
NEAR = 256  # whole numbers on either side of the one that was given

SHOWN_VALUES = 4  # values of a field

FIELDS = 2


def legal_values(scenario: Scenario, rule: str, text: str) -> str:
    """Say which values of the fields that a refusal names would be legal, the nearest ones; empty where none would.

    Values that keep every rule come first; where no single field has such, those that keep this one.

    Args:
        scenario: whose plan breaks the rule.
        rule: as `violations` names it.
        text: the refusal, which names keys of the configuration.
    """
    current: dict[str, float] = {}
    for key in _keys(text):
        try:
            value = get_path(scenario, key)
        except (ConfigError, AttributeError):
            continue
        if value is not None and np.ndim(value) == 0:
            current[key] = float(value)
    points = [(key, value) for key in current for value in _candidates(scenario, key, current[key])]
    if not points:
        return ""
    columns = {key: np.array([value if key == name else current[key] for name, value in points]) for key in current}
    result = {name: np.broadcast_to(each, len(points)) for name, each in violations_of(scenario, columns).items()}
    keeps = np.asarray(result[rule]) <= 0
    legal = np.all([np.asarray(each) <= 0 for each in result.values()], axis=0)
    nearest = _nearest(current, points, legal)
    if nearest:
        return f"; take {', or '.join(nearest)}"
    nearest = _nearest(current, points, keeps)
    return f"; this rule holds with {', or '.join(nearest)}" if nearest else ""


def _keys(text: str) -> list[str]:
    """Keys of the configuration that a refusal names, in their order; degrees of a product as fields of the plan."""
    places = {match.start(): match[0] for match in KEYS.finditer(text)}
    places |= {match.start(): f"plan.{match[1]}" for match in MULTIPLIED.finditer(text)}
    return list(dict.fromkeys(places[at] for at in sorted(places)))


def _candidates(scenario: Scenario, key: str, current: float) -> list[float]:
    """Values that may stand in a field's place: every word, fewer parts of a list, whole numbers near the given one."""
    name = key.removeprefix("plan.")
    field = range_of(scenario, key) or {}
    words, number = words_of(name) if key.startswith("plan.") else (), round(current)
    if field.get("parts"):
        fewer = {number & ~(1 << index) for index in range(len(field["parts"])) if number >> index & 1}
        return sorted(map(float, fewer | {0}))
    if words:
        return [float(each) for each in range(len(words)) if each != number]
    low, high = field.get("low", 1.0), field.get("high", np.inf)
    near = np.arange(max(number - NEAR, low), min(number + NEAR, high) + 1)
    powers = 2.0 ** np.arange(21)
    every = np.unique([*near, *powers[(powers >= low) & (powers <= high)]])
    return [float(each) for each in every if each != current]


def _nearest(current: Mapping[str, float], points: Iterable[tuple[str, float]], good: np.ndarray) -> list[str]:
    """Overrides of the first fields that have legal values, the nearest by ratio, in their order."""
    values: dict[str, list[float]] = {}
    for (key, value), fits in zip(points, good, strict=True):
        if fits:
            values.setdefault(key, []).append(value)
    lines: list[str] = []
    for key, each in values.items():
        nearest = sorted(each, key=lambda value: abs(np.log1p(value) - np.log1p(current[key])))[:SHOWN_VALUES]
        words = words_of(key.removeprefix("plan.")) if key.startswith("plan.") else ()
        said = [words[round(value)] if words else f"{value:g}" for value in sorted(nearest)]
        lines.append(f"{key}={', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else f"{key}={said[0]}")
    return lines[:FIELDS]


@functools.partial(interpreted, always=True)
def violations_of(scenario: Scenario, columns: dict[str, Array]) -> dict[str, Array]:
    """Rule -> above zero where a point breaks it."""

    def one(point: dict[str, Array]) -> dict[str, Array]:
        moved = replace(scenario, point)
        return moved.workload.violations(moved.layout)

    return jax.vmap(one)(columns)


MODULES = "plan.recompute_modules"
OFFLOADED = ("plan.offload_weights", "plan.offload_kv_cache")
AFAR = 80  # effort of offloading what every step reads: more than 256 times the devices, less than two other changes
MOST_FIELDS = 3  # that change together
SHOWN = 6  # sets of changes whose batches are made as large as they can be
FINE = 64  # batches that are tried at once
NARROW = "fp8"  # of what is only stored
ENGINE = "engine"  # the share of the first memory that an engine takes
TIERS = {
    "hbm": "cluster.accelerator.hbm",
    "ddr": "cluster.host.memory",
    ENGINE: "workload.engine_memory.utilisation of cluster.accelerator.hbm",
}


def shortage(scenario: Scenario) -> dict[str, float]:
    """Tier -> bytes per device that are missing; empty where everything fits."""
    used, capacity = used_of(scenario), capacity_of(scenario)
    beyond = [tier for tier in used if not feasible(float(used_share(used[tier], capacity[tier])) - 1)]
    return {tier: used[tier] - capacity[tier] for tier in beyond}


def used_of(scenario: Scenario) -> dict[str, float]:
    """Tier -> bytes that the design keeps there; of an engine, what its share has to hold."""
    return {tier: float(nbytes) for tier, nbytes in _used(scenario).items()}


@functools.partial(interpreted, always=True)
def _used(scenario: Scenario) -> dict[str, Array]:
    return {tier: held for tier, (held, _) in _held(scenario).items()}


def capacity_of(scenario: Scenario) -> dict[str, float]:
    """Tier -> bytes that a job may fill, none where its reserve is larger; of an engine its share."""
    return {tier: max(float(nbytes), 0.0) for tier, nbytes in _usable(scenario).items()}


@functools.partial(interpreted, always=True)
def _usable(scenario: Scenario) -> dict[str, Array]:
    return {tier: usable for tier, (_, usable) in _held(scenario).items()}


def _held(scenario: Scenario) -> dict[str, tuple[Array, Array]]:
    """Tier -> bytes that are stored there, and that may be."""
    layout = scenario.workload.laid_out(scenario.layout)
    by_class = memory_by_class(scenario, layout)
    usable = {
        "hbm": scenario.cluster.accelerator.hbm.usable_bytes(),
        "ddr": scenario.cluster.host.memory.usable_bytes(),
    }
    result = {tier: (held, usable[tier]) for tier, held in per_tier(by_class).items()}
    engine = cache_budget(scenario, layout, by_class) if has_share(scenario.workload) else None
    return result if engine is None else result | {ENGINE: (engine.used_bytes, engine.budget_bytes)}


def has_share(work: AbstractWorkload) -> bool:
    """True if an engine takes a stated share of the memory."""
    return isinstance(work, AbstractServing) and bool(work.engine_memory.utilisation)


def does_not_fit(scenario: Scenario, missing: dict[str, float]) -> str:
    """One line: which tier lacks how much, and what would help."""
    capacity = capacity_of(scenario)
    hopeless = scenario.workload.hopeless(scenario.layout, capacity)
    if hopeless:
        return hopeless
    lacks = " and ".join(
        f"{TIERS[tier]} lacks {nbytes / GB:.1f} GB per device (needs {(nbytes + capacity[tier]) / GB:.1f},"
        f" has {capacity[tier] / GB:.1f})"
        for tier, nbytes in missing.items()
    )
    ways = [" ".join(change) for change in changes_that_fit(scenario)]
    if ways:
        ways = [ways[0], *narrower(scenario), *less_retained(scenario), *ways[1:]]
        return f"the model does not fit: {lacks}; smallest change that fits: {', or '.join(ways)}"
    return f"the model does not fit: {lacks}; no change of plan or up to 256 times the devices would fit it"


def smallest_change(scenario: Scenario) -> list[str]:
    """Overrides that make the plan legal and fitting, as few and as small as possible; empty where none is found.

    What serves brings what it offloads in every step: more ranks, fewer sequences or more devices alone come before.
    """
    result = _changes(scenario)
    return min(result)[1] if result else []


def changes_that_fit(scenario: Scenario) -> list[list[str]]:
    """The smallest change; where that offloads what serves, the smallest one before it that does not."""
    result = sorted(_changes(scenario), key=lambda way: any(text.startswith(OFFLOADED) for text in way[1]))
    return [change for _, change in result]


def places_that_fit(scenario: Scenario) -> float:
    """Sequences that an engine has room for at once where fewer are the smallest change that fits; 0 elsewhere."""
    for change in changes_that_fit(scenario):
        path, _, value = change[0].partition("=")
        if len(change) == 1 and path == PLACES:
            return float(value)
    return 0.0


def most_places(scenario: Scenario, least: float, most: float) -> float:
    """Sequences, of so many at least and at most, that a legal plan has room for at once; 0 where for none."""
    start = {PLACES: most + 1}
    if not _fitting(scenario, start, [{PLACES: least}]).any():
        return 0.0
    return _largest(scenario, start, {PLACES: least})[PLACES]


def narrower(scenario: Scenario) -> list[str]:
    """Tensors of what serves that fit in a byte where they have two: overrides, as few as suffice."""
    precision = scenario.workload.precision
    wide = [name for name in ("kv_cache", "weights") if precision.bytes_of(name) > BYTES[NARROW]]
    if not isinstance(scenario.workload, AbstractServing):
        return []
    for names in (*((name,) for name in wide), *([tuple(wide)] if len(wide) > 1 else [])):
        stored = dataclasses.replace(precision, **dict.fromkeys(names, NARROW))
        if not shortage(replace(scenario, {"workload.precision": stored})):
            return [" ".join(f"workload.precision.{name}={NARROW}" for name in names)]
    return []


def less_retained(scenario: Scenario) -> list[str]:
    """The share of idle sessions that there is room for, which is that of those who come back to their cache."""
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing) or not float(work.idle_sessions * work.retained_share) > 0:
        return []
    none = replace(scenario, {"workload.retained_share": as_leaf(0.0)})
    used, bare, capacity = _used(scenario), _used(none), capacity_of(scenario)
    share = min(
        float(kept_by(asarray(capacity[tier] - float(bare[tier])), asarray(float(used[tier] - bare[tier]))))
        for tier in used
    )
    retained = math.floor(1000 * share * float(work.retained_share)) / 1000
    fits = retained > 0 and not shortage(replace(scenario, {"workload.retained_share": as_leaf(retained)}))
    return [f"workload.retained_share={retained:g}"] if fits else []


def smallest_changes(scenario: Scenario, most: int = MOST_FIELDS) -> list[list[str]]:
    """Minimal sets of changes of plan fields and of the number of devices that are legal and fit, the fewest first.

    Sets of up to two fields are looked for, of more while those found offload what serves, which every step would bring
    again.
    """
    start, fields = _levers(scenario)
    result = list[Change]()
    for count in range(1, most + 1):
        result = minimal_changes(start, fields, functools.partial(_fitting, scenario, start), count, (MODULES,))
        if count > 1 and any(not _serves_from_afar(scenario, change.values) for change in result):
            break
    ordered = sorted(result, key=lambda change: _serves_from_afar(scenario, change.values))
    larger = [_largest(scenario, start, change.values) for change in ordered[:SHOWN]]
    return [[_override(path, value) for path, value in move.items()] for move in larger]


def _levers(scenario: Scenario) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Own values of what may change, and what each may become."""
    serving = isinstance(scenario.workload, AbstractServing)
    changes = {
        name: change for name, change in scenario.plan.changes().items() if not serving or name not in OF_TRAINING
    }
    levers = {f"plan.{name}": change for name, change in changes.items()} | {"cluster.device_count": _doubled}
    start = {path: float(get_path(scenario, path)) for path in levers}
    result = {path: list(lever(start[path])) for path, lever in levers.items()}
    if MODULES in result:
        result[MODULES] = _of_the_model(scenario, result[MODULES])
    return start, result


def _of_the_model(scenario: Scenario, lists: list[float]) -> list[float]:
    """Lists of modules that the model has, where others stay as they are."""
    broken = violations_of(scenario, {MODULES: np.array(lists)}).get("modules")
    if broken is None or not lists:
        return []
    return list(itertools.compress(lists, np.broadcast_to(np.asarray(broken) <= 0, len(lists))))


def _serves_from_afar(scenario: Scenario, move: Iterable[str]) -> bool:
    return isinstance(scenario.workload, AbstractServing) and any(path.startswith(OFFLOADED) for path in move)


def _largest(scenario: Scenario, start: dict[str, float], move: dict[str, float]) -> dict[str, float]:
    """Change with the largest micro-batch that fits, which steps of two miss."""
    path = "plan.micro_batch"
    if path not in move or move[path] >= start[path]:
        return move
    between = np.unique(np.round(np.linspace(move[path], start[path] - 1, FINE)))[::-1]
    for _ in range(2):
        points = [move | {path: float(value)} for value in between]
        fits = _fitting(scenario, start, points)
        if not fits.any():
            return move
        best = float(between[np.argmax(fits)])
        above = between[between > best]
        move = move | {path: best}
        if not len(above):
            return move
        between = np.arange(best + 1, float(above.min()))[::-1]
        if not len(between):
            return move
    return move


def _changes(scenario: Scenario, most: int = MOST_FIELDS) -> list[tuple[float, list[str]]]:
    """Effort and overrides: the smallest change that offloads nothing of what serves, and one that does if less."""
    start, steps = _levers(scenario)
    if MODULES in steps:  # one more, as `codesign fit` says of several
        current = int(start[MODULES])
        steps[MODULES] = [value for value in steps[MODULES] if (int(value) ^ current).bit_count() == 1]
    numbered = {path: list(enumerate(values, 1)) for path, values in steps.items()}
    levers = list(steps)
    moves: list[tuple[float, dict[str, float]]] = []
    for count in range(1, most + 1):
        for paths in itertools.combinations(levers, count):
            for choice in itertools.product(*(numbered[path] for path in paths)):
                effort = 100 * count + 10 * sum(step for step, _ in choice) + _order(paths, levers)
                effort += AFAR * _serves_from_afar(scenario, paths)
                moves.append((effort, dict(zip(paths, (value for _, value in choice), strict=True))))
    moves.sort(key=lambda move: move[0])
    fits = _fitting(scenario, start, [move for _, move in moves])
    result = list[tuple[float, list[str]]]()
    for effort, move in itertools.compress(moves, fits):
        near = not _serves_from_afar(scenario, move)
        if near or not result:
            finest = _largest(scenario, start, move)
            result.append((effort, [_override(path, value) for path, value in finest.items()]))
        if near:
            break
    return result


def _doubled(count: float) -> list[float]:
    """Up to 256 times the devices."""
    return [count * 2**i for i in range(1, 9)]


def _order(paths: tuple[str, ...], levers: list[str]) -> float:
    """Earlier levers are easier to pull."""
    return sum(levers.index(path) for path in paths) / len(paths)


def _override(path: str, value: float) -> str:
    names = words_of(path.removeprefix("plan."))
    return f"{path}={names[round(value)] if names else f'{value:g}'}"


def _fitting(scenario: Scenario, start: dict[str, float], moves: list[dict[str, float]]) -> np.ndarray:
    """Mask of the moves that give a legal plan which fits in memory, priced all at once."""
    columns = {path: np.array([move.get(path, start[path]) for move in moves]) for path in start}

    def fits(point: dict[str, Array]) -> Array:
        candidate = replace(scenario, point)
        ok: Any = True
        for broken in candidate.workload.violations(candidate.layout).values():
            ok &= broken <= 0
        for held, usable in _held(candidate).values():
            ok &= feasible(used_share(held, usable) - 1)
        return ok

    return np.asarray(quick_jit(jax.vmap(fits), once=True)(columns))
