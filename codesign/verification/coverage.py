"""Whether the nodes of a certificate stand for every legal plan of the space."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError
from ..fields import replace
from ..space import MOST_LISTED, DesignSpace, Rules
from .certificate import Certificate, Refuted
from .study import Asked

PART = 1 << 20  # plans written out at once
SAMPLE = 4096  # random plans on which it is tested that open fields do not decide what is legal


@dataclass(frozen=True)
class Cover:
    """The plans of a space and the nodes over them.

    plans: legal plans. owner: combination of plan values -> a node over it, -1 where there is none; None where there
    are too many to list. exact: every plan was looked up; else combinations of the fields that no node leaves open.
    """

    plans: int
    owner: Int[np.ndarray, " combinations"] | None
    exact: bool

    def nodes(self, certificate: Certificate, place: Int[np.ndarray, "k fields"]) -> Int[np.ndarray, " k"]:
        """A node over each plan, -1 where none is known."""
        if self.owner is None:
            return np.full(len(place), -1)
        return self.owner[_cell(place, certificate.sizes)]


def cover(certificate: Certificate, asked: Asked) -> Cover:
    """Look for a legal plan that no node stands for.

    Raises:
        Refuted: naming the first such plan, or what keeps this from being checked.
    """
    _same_space(certificate, asked)
    if not certificate.plan:
        if len(certificate.low) == 0:
            raise Refuted("the only plan is in no node")
        return Cover(1, np.zeros(1, dtype=np.int64), True)
    if asked.space.combinations <= MOST_LISTED:
        return _every_plan(certificate, asked)
    return _every_combination(certificate, asked)


def _same_space(certificate: Certificate, asked: Asked) -> None:
    """Fields, values and variables must be those of the study."""
    lists = {name: np.unique(values) for name, values in asked.space.lists.items()}
    if list(lists) != list(certificate.plan):
        raise Refuted(f"the certificate is of plan fields {list(certificate.plan)}, the study of {list(lists)}")
    for name, values in lists.items():
        if not np.array_equal(values, certificate.plan[name]):
            raise Refuted(f"plan field {name}: the certificate has other values than the study")
    if certificate.variables != asked.space.names:
        raise Refuted(f"the certificate is of variables {certificate.variables}, the study of {asked.space.names}")


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
    left = np.arange(volume.sum()) - np.repeat(np.cumsum(volume) - volume, volume)
    place = low[line]
    for j in range(low.shape[1] - 1, -1, -1):
        left, step = np.divmod(left, width[line, j])
        place[:, j] += step
    return place, line


def _parts(volume: np.ndarray) -> list[np.ndarray]:
    """Nodes in parts of about `PART` plans."""
    return np.split(np.arange(len(volume)), np.flatnonzero(np.diff(np.cumsum(volume) // PART)) + 1)


def _every_plan(certificate: Certificate, asked: Asked) -> Cover:
    sizes = certificate.sizes
    owner = np.full(int(sizes.prod()), -1, dtype=np.int32)
    for nodes in _parts(certificate.weights):
        place, line = _expanded(certificate.low[nodes], certificate.high[nodes])
        owner[_cell(place, sizes)] = nodes[line]
    plans = asked.space.plans(asked.scenario)
    place = np.stack([np.searchsorted(certificate.plan[name], column) for name, column in plans.items()], axis=-1)
    missing = np.flatnonzero(owner[_cell(place, sizes)] < 0)
    if len(missing):
        first = ", ".join(f"{name} {column[missing[0]]:g}" for name, column in plans.items())
        raise Refuted(f"{len(missing):,} of {len(place):,} legal plans are in no node; the first: {first}")
    return Cover(len(place), owner, True)


def _every_combination(certificate: Certificate, asked: Asked) -> Cover:
    """Where plans are too many: legal combinations of fields that no node leaves open, with full ranges of the rest."""
    space, low, high = asked.space, certificate.low, certificate.high
    opened = (low < high).any(axis=0)
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
