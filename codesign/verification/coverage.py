"""Whether the nodes of a certificate stand for every legal plan of the space, with every combination of listed values.

A listed variable is one more field that no rule of the plan looks at.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Bool, Int

from ..errors import ConfigError
from ..fields import replace
from ..scenario import Scenario
from ..space import MOST_LISTED, DesignSpace, Rules
from .derivation import Derivation, Refuted
from .model_answers import Asked

PART = 1 << 20  # plans written out at once
EDGE = 1e-9  # relative: how far outside its range a listed value may lie, for rounding
SAMPLE = 4096  # random plans on which it is tested that open fields do not decide what is legal


@dataclass(frozen=True)
class Cover:
    """The plans of a space and the nodes over them.

    plans: legal plans, each with every combination of listed values. owner: combination of values -> a node over it, -1
    where there is none; None where there are too many to list. exact: every plan was looked up; else combinations of
    the fields that no node leaves open.
    """

    plans: int
    owner: Int[np.ndarray, " combinations"] | None
    exact: bool

    def nodes(self, certificate: Derivation, place: Int[np.ndarray, "k fields"]) -> Int[np.ndarray, " k"]:
        """A node over each plan, -1 where none is known."""
        if self.owner is None:
            return np.full(len(place), -1)
        return self.owner[_cell(place, certificate.sizes)]


def cover(certificate: Derivation, asked: Asked) -> Cover:
    """Look for a legal plan that no node stands for.

    Raises:
        Refuted: naming the first such plan, or what keeps this from being checked.
    """
    _same_space(certificate, asked)
    if not certificate.plan:
        if len(certificate.low) == 0:
            raise Refuted("the only plan is in no node")
        return Cover(1, np.zeros(1, dtype=np.int64), True)
    _every_value(certificate)
    _same_rules(asked)
    if asked.combinations <= MOST_LISTED:
        return _every_plan(certificate, asked)
    if certificate.held:
        return _value_by_value(certificate, asked)
    return _every_combination(certificate, asked)


def _same_space(certificate: Derivation, asked: Asked) -> None:
    """Fields, values and variables must be those of the study."""
    if list(asked.lists) != list(certificate.plan):
        raise Refuted(f"the certificate is of plan fields {list(certificate.plan)}, the study of {list(asked.lists)}")
    for name, values in asked.lists.items():
        if not np.array_equal(values, certificate.plan[name]):
            what = f"search.values.{name}" if name in asked.values else f"plan field {name}"
            raise Refuted(f"{what}: the certificate has other values than the study")
    for name in certificate.held:
        low, high = asked.space.hardware[name].low, asked.space.hardware[name].high
        for value in certificate.plan[name]:
            if not low * (1 - EDGE) <= value <= high * (1 + EDGE):
                raise Refuted(f"search.values.{name}: {value:g} is outside {low:g} to {high:g}")
    if certificate.variables != asked.variables:
        raise Refuted(f"the certificate is of variables {certificate.variables}, the study of {asked.variables}")


def _same_rules(asked: Asked) -> None:
    """Which plans are legal follows from workload and layout, and no listed value may change either."""
    known = _decisive(asked.scenario)
    for name, values in asked.values.items():
        for value in values:
            there = _decisive(asked.space.place(asked.scenario, {name: float(value)}))
            if not all(map(np.array_equal, known, there)):
                raise Refuted(f"search.values.{name} decides which plans are legal: that nodes cover them is not known")


def _decisive(scenario: Scenario) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves((scenario.workload, scenario.layout))]


def _every_value(certificate: Derivation) -> None:
    """Every combination of listed values has a node."""
    if not certificate.held:
        return
    first = len(certificate.plan) - len(certificate.held)
    sizes = certificate.sizes[first:]
    combinations: int = sizes.prod()
    missing = np.setdiff1d(np.arange(combinations), _cell(certificate.low[:, first:], sizes))
    if len(missing):
        said = f"search.values: {len(missing):,} of {combinations:,} combinations are in no node; the first: "
        raise Refuted(said + _shown_values(certificate, np.unravel_index(int(missing[0]), sizes)))


def _shown_values(certificate: Derivation, place: Iterable[int | np.integer]) -> str:
    """Listed values in words: `radix 64, wavelengths 8`."""
    pairs = zip(certificate.held, place, strict=True)
    return ", ".join(f"{name} {certificate.plan[name][at]:g}" for name, at in pairs)


def _cell(place: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Number of a combination of values; the last field changes fastest."""
    cell = np.zeros(len(place), dtype=np.int64)
    for j, size in enumerate(sizes):
        cell = cell * size + place[:, j]
    return cell


def _expanded(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places of all combinations within these ranges, the range of each)."""
    width = high - low + 1
    volume = width.prod(axis=1)
    line = np.repeat(np.arange(len(low)), volume)
    total: int = volume.sum()
    left = np.arange(total) - np.repeat(np.cumsum(volume) - volume, volume)
    place = low[line]
    for j in range(low.shape[1] - 1, -1, -1):
        left, step = np.divmod(left, width[line, j])
        place[:, j] += step
    return place, line


def _parts(volume: np.ndarray) -> list[np.ndarray]:
    """Nodes in parts of about `PART` plans."""
    return np.split(np.arange(len(volume)), np.flatnonzero(np.diff(np.cumsum(volume) // PART)) + 1)


def _every_plan(certificate: Derivation, asked: Asked) -> Cover:
    sizes = certificate.sizes
    owner = np.full(int(sizes.prod()), -1, dtype=np.int32)
    for nodes in _parts(certificate.weights):
        place, line = _expanded(certificate.low[nodes], certificate.high[nodes])
        owner[_cell(place, sizes)] = nodes[line]
    plans = _legal(asked)
    place = np.stack([np.searchsorted(certificate.plan[name], column) for name, column in plans.items()], axis=-1)
    missing = np.flatnonzero(owner[_cell(place, sizes)] < 0)
    if len(missing):
        first = ", ".join(f"{name} {column[missing[0]]:g}" for name, column in plans.items())
        raise Refuted(f"{len(missing):,} of {len(place):,} legal plans are in no node; the first: {first}")
    return Cover(len(place), owner, True)


def covered_by(certificate: Derivation, asked: Asked, chosen: Iterable[Bool[np.ndarray, " nodes"]]) -> Iterator[str]:
    """For each choice of nodes the first legal plan that none of them stands for, in words; empty where there is none.

    The certificate as a whole has passed `cover`.
    """
    if asked.combinations > MOST_LISTED or not certificate.plan:
        for some in chosen:
            try:
                cover(_of_nodes(certificate, some), asked)
                yield ""
            except Refuted as why:
                yield str(why)
        return
    sizes, cells, lines = certificate.sizes, list[np.ndarray](), list[np.ndarray]()
    for nodes in _parts(certificate.weights):
        place, line = _expanded(certificate.low[nodes], certificate.high[nodes])
        cells.append(_cell(place, sizes))
        lines.append(nodes[line])
    cell, line, plans = np.concatenate(cells), np.concatenate(lines), _legal(asked)
    place = np.stack([np.searchsorted(certificate.plan[name], column) for name, column in plans.items()], axis=-1)
    wanted = _cell(place, sizes)
    for some in chosen:
        there = np.zeros(int(sizes.prod()), dtype=bool)
        there[cell[some[line]]] = True
        missing = np.flatnonzero(~there[wanted])
        if len(missing):
            first = ", ".join(f"{name} {column[missing[0]]:g}" for name, column in plans.items())
            yield f"{len(missing):,} of {len(wanted):,} legal plans have no weights that say so; the first: {first}"
        else:
            yield ""


def _of_nodes(certificate: Derivation, some: np.ndarray) -> Derivation:
    """With these nodes only; its cuts are not looked at."""
    low, high, best = certificate.low[some], certificate.high[some], certificate.best[:, some]
    return dataclasses.replace(certificate, low=low, high=high, best=best)


def _legal(asked: Asked) -> dict[str, np.ndarray]:
    """Every legal plan with every combination of listed values, one array a field."""
    plans = asked.space.plans(asked.scenario) if asked.space.plan else {}
    count = len(next(iter(plans.values()))) if plans else 1
    listed = np.meshgrid(*(asked.lists[name] for name in sorted(asked.values)), indexing="ij")
    held = {name: np.tile(column.ravel(), count) for name, column in zip(sorted(asked.values), listed, strict=True)}
    times = listed[0].size if listed else 1
    return {name: np.repeat(column, times) for name, column in plans.items()} | held


def _value_by_value(certificate: Derivation, asked: Asked) -> Cover:
    """Where plans with all their listed values are too many to write out: one combination of values after the other."""
    first, plans, exact = len(certificate.plan) - len(certificate.held), 0, True
    own = dict(list(certificate.plan.items())[:first])
    alone = dataclasses.replace(asked, space=_without_held(certificate, asked), values={})
    for place in np.ndindex(*certificate.sizes[first:]):
        mine = (certificate.low[:, first:] == place).all(axis=1)
        part = dataclasses.replace(
            certificate, plan=own, held=(), low=certificate.low[mine, :first], high=certificate.high[mine, :first],
            best=certificate.best[:, mine, :first],
        )  # fmt: skip
        try:
            found = cover(part, alone)
        except Refuted as why:
            raise Refuted(f"{_shown_values(certificate, place)}: {why}") from why
        plans, exact = plans + found.plans, exact and found.exact
    return Cover(plans, None, exact)


def _without_held(certificate: Derivation, asked: Asked) -> DesignSpace:
    free = {name: variable for name, variable in asked.space.hardware.items() if name not in certificate.held}
    return DesignSpace(asked.space.plan, free)


def _every_combination(certificate: Derivation, asked: Asked) -> Cover:
    """Where plans are too many: legal combinations of fields that no node leaves open, with full ranges of the rest."""
    space, low, high = asked.space, certificate.low, certificate.high
    opened = np.any(low < high, axis=0)
    shut, names = ~opened, list(certificate.plan)
    inner = {name: certificate.plan[name] for name, open_ in zip(names, opened, strict=True) if open_}
    outer = DesignSpace({name: space.plan[name] for name in names if name not in inner})
    fixed = {name: float(values[0]) for name, values in inner.items()}
    if outer.combinations > MOST_LISTED:
        raise Refuted(f"{space.combinations:,} combinations of plan values are too many to check that nodes cover them")
    _check_open_fields(space, asked, fixed)
    scenario = replace(asked.scenario, {f"plan.{name}": value for name, value in fixed.items()})
    legal = outer.plans(scenario) if outer.plan else {}
    sizes, whole = certificate.sizes, int(certificate.sizes[opened].prod())
    key = _cell(low[:, shut], sizes[shut])
    full = certificate.weights == whole
    covered, rest = set(key[full].tolist()), np.flatnonzero(~full & ~np.isin(key, key[full]))
    seen = np.zeros(0, dtype=np.int64)
    for nodes in _parts(certificate.weights[rest]):
        place, line = _expanded(low[rest[nodes]], high[rest[nodes]])
        inside = _cell(place[:, opened], sizes[opened])
        seen = np.union1d(seen, key[rest[nodes]][line] * whole + inside)
    owners, counts = np.unique(seen // whole, return_counts=True)
    covered |= set(owners[counts == whole].tolist())
    place = [np.searchsorted(certificate.plan[name], column) for name, column in legal.items()]
    asked_for = _cell(np.stack(place, axis=-1), sizes[shut]) if place else np.zeros(1, dtype=np.int64)
    missing = np.flatnonzero(~np.isin(asked_for, np.fromiter(covered, dtype=np.int64)))
    if len(missing):
        first = ", ".join(f"{name} {column[missing[0]]:g}" for name, column in legal.items())
        raise Refuted(f"{len(missing):,} combinations are not covered by nodes; the first: {first}")
    return Cover(len(asked_for) * whole, None, False)


def _check_open_fields(space: DesignSpace, asked: Asked, fixed: dict[str, float]) -> None:
    """Test that no open field decides what is legal: then combinations of the others stand for all plans."""
    rng = np.random.default_rng(0)
    rules = Rules(space.lists, asked.scenario)
    columns = space.decoded(rng.integers(0, space.combinations, SAMPLE))
    try:
        some = space.legal_sample(asked.scenario, SAMPLE)
        columns = {name: np.concatenate([columns[name], some[:, j]]) for j, name in enumerate(space.plan)}
    except ConfigError:  # none found among random ones
        pass
    legal, _ = rules(columns)
    there, _ = rules({name: np.full_like(column, fixed.get(name, 0.0)) if name in fixed else column
                      for name, column in columns.items()})  # fmt: skip
    if (legal & ~there).any():
        raise Refuted("a plan is legal by the value of a field that nodes leave open: combinations cannot be checked")
