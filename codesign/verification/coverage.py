"""Coverage of a certificate: its nodes stand for every legal plan, with every combination of listed values.

A listed variable is one more field that no rule of the plan looks at.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Bool, Int

from ..model.scenario import Scenario
from ..study.design_space import DesignSpace
from .derivation import Derivation, Refuted
from .legal_plans import LegalPlans, legal_plans
from .model_answers import CheckedModel, VerifiedProblem

# Plans that are in no node: each must be equal, in every row and at any hardware, to one that is.


MOST_COMPARED = 1 << 19  # plans of which it is looked up which are equal in every row


def columns_of(number: Int[np.ndarray, " k"], lists: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fields of numbered combinations of lists; the last field changes fastest."""
    places = np.unravel_index(number, [len(values) for values in lists.values()])
    return {name: values[index] for (name, values), index in zip(lists.items(), places, strict=True)}


def twins_of(
    missing: Int[np.ndarray, " k"], present: Int[np.ndarray, " n"], lists: Mapping[str, np.ndarray], model: CheckedModel
) -> Int[np.ndarray, " k"]:
    """Number of a known plan that is equal to each missing one in every row; -1 where none is.

    Args:
        missing, present: numbers of combinations of the lists.
        lists: plan field -> its values.
        model: tells plans apart, by tables of what the plan decides; pairs are priced without tables as well.

    Raises:
        Refuted: a pair whose prices differ.
    """
    if len(present) == 0 or len(missing) + len(present) > MOST_COMPARED:
        return np.full(len(missing), -1)
    classes = model.classes(columns_of(np.concatenate([missing, present]), lists))
    numbers, first = np.unique(classes[len(missing) :], return_index=True)
    at = np.minimum(np.searchsorted(numbers, classes[: len(missing)]), len(numbers) - 1)
    twin = np.where(numbers[at] == classes[: len(missing)], present[first[at]], -1)
    pair = np.flatnonzero(twin >= 0)
    if len(pair):
        apart = model.apart(columns_of(missing[pair], lists), columns_of(twin[pair], lists))
        if apart > 0:
            raise Refuted(f"plans that stand for each other differ by {apart:.3g} in a logarithm")
    return twin


def equal_groups(
    missing: Mapping[str, np.ndarray],
    present: Mapping[str, np.ndarray],
    opened: Mapping[str, np.ndarray],
    model: CheckedModel,
) -> np.ndarray:
    """True for each missing group of plans that is equal, value by value of the open fields, to a known one.

    Args:
        missing, present: field that no node leaves open -> its value in each group.
        opened: field that nodes leave open -> its values.
        model: tells them apart.
    """
    count, more = (len(next(iter(each.values()))) for each in (missing, present))
    if count + more > MOST_COMPARED:
        return np.zeros(count, dtype=bool)
    classes = model.classes({name: np.concatenate([missing[name], present[name]]) for name in missing}, opened)
    return np.isin(classes[:count], classes[count:])


PART = 1 << 20  # plans written out at once
EDGE = 1e-9  # relative: how far outside its range a listed value may lie, for rounding

MOST_COVERED = 1 << 27  # combinations, four bytes each, of which it is written down which node stands for them


@dataclass(frozen=True)
class Groups:
    """Nodes that leave the same fields open, by the places of the others: sorted keys, and the node of each."""

    shut: tuple[int, ...]
    keys: Int[np.ndarray, " k"]
    node: Int[np.ndarray, " k"]

    def nodes(self, index: Int[np.ndarray, "k fields"], sizes: np.ndarray) -> Int[np.ndarray, " k"]:
        """The node over each plan, -1 where it is none of these."""
        wanted = _cell(index[:, list(self.shut)], sizes[list(self.shut)])
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.node[at], -1)


@dataclass(frozen=True)
class PlanCover:
    """The plans of a space and the nodes over them.

    plans: legal plans, each with every combination of listed values; twins: those of them that no node stands for, each
    equal in every row to one that a node stands for. owner: combination of values -> a node over it, -1 where there is
    none; None where there are too many to list. groups: nodes by the fields that they set, of
    whose plans some are not legal. exact: every plan was looked up; else combinations of the fields that
    no node leaves open.
    """

    plans: int
    owner: Int[np.ndarray, " combinations"] | None
    exact: bool
    twins: int = 0
    groups: tuple["Groups", ...] = ()
    legal: LegalPlans | None = None

    @property
    def distinct(self) -> int:
        """Plans without those that equal another."""
        return self.plans - self.twins

    def nodes(self, certificate: Derivation, index: Int[np.ndarray, "k fields"]) -> Int[np.ndarray, " k"]:
        """A node over each plan, -1 where none is known."""
        if self.groups:
            result = np.full(len(index), -1)
            for each in self.groups:
                result = np.where(result < 0, each.nodes(index, certificate.sizes), result)
            return result if self.legal is None else np.where(self.legal.keeps_at(index), result, -1)
        if self.owner is None:
            return np.full(len(index), -1)
        return self.owner[_cell(index, certificate.sizes)]

    @property
    def text(self) -> str:
        """Plans that the nodes stand for, in words."""
        what = "legal plans, counted apart" if self.exact else "plans, by combinations of their closed fields"
        return f"all {self.plans:,} {what}" + f" ({self.twins:,} equal another in every row)" * bool(self.twins)


def cover(certificate: Derivation, problem: VerifiedProblem, model: CheckedModel) -> PlanCover:
    """Look for a legal plan that no node stands for.

    Args:
        certificate: has the nodes.
        problem: the study, of which the legal plans are listed anew.
        model: says which plans are equal in every row.

    Raises:
        Refuted: naming the first such plan, or what keeps this from being checked.
    """
    _same_space(certificate, problem)
    if not certificate.plan:
        if len(certificate.low) == 0:
            raise Refuted("the only plan is in no node")
        return PlanCover(1, np.zeros(1, dtype=np.int64), True)
    _every_value(certificate)
    _same_rules(problem)
    if certificate.ranges:
        return _every_group(certificate, problem)
    if problem.combinations <= MOST_COVERED:
        return _every_plan(certificate, problem, model)
    if certificate.held:
        return _value_by_value(certificate, problem, model)
    return _every_combination(certificate, problem, model)


def _every_group(certificate: Derivation, problem: VerifiedProblem) -> PlanCover:
    """Cover of plans by nodes that set some fields and leave others entirely open.

    No two of them have a plan in common, and together they have as many legal plans as there are.
    """
    low, opened, sizes = certificate.low, certificate.low < certificate.high, certificate.sizes
    groups, plans = list[Groups](), 0
    for mask in np.unique(opened, axis=0):
        mine = np.flatnonzero((opened == mask).all(axis=1))
        shut = tuple(np.flatnonzero(~mask).tolist())
        keys = _cell(low[mine][:, list(shut)], sizes[list(shut)])
        order = np.argsort(keys, kind="stable")
        if (np.diff(keys[order]) == 0).any():
            raise Refuted("two nodes stand for the same plans")
        groups.append(Groups(shut, keys[order], mine[order]))
        plans += int(problem.legal.completed(low[mine], mask).sum())
    for one, other in itertools.combinations(groups, 2):
        both = [field for field in one.shut if field in other.shut]
        here, there = (_cell(low[each.node][:, both], sizes[both]) for each in (one, other))
        if np.isin(here, there).any():
            node = int(one.node[np.argmax(np.isin(here, there))])
            raise Refuted(f"{certificate.named(node)}: another node stands for some of its plans")
    if plans != problem.legal.count:
        raise Refuted(f"nodes stand for {plans:,} of {problem.legal.count:,} legal plans")
    return PlanCover(plans, None, True, groups=tuple(groups), legal=problem.legal)


def _same_space(certificate: Derivation, problem: VerifiedProblem) -> None:
    """Fields, values and variables must be those of the study."""
    if list(problem.lists) != list(certificate.plan):
        raise Refuted(f"the certificate is of plan fields {list(certificate.plan)}, the study of {list(problem.lists)}")
    for name, values in problem.lists.items():
        if not np.array_equal(values, certificate.plan[name]):
            what = f"search.allowed_values.{name}" if name in problem.values else f"plan field {name}"
            raise Refuted(f"{what}: the certificate has other values than the study")
    for name in certificate.held:
        low, high = problem.space.hardware[name].low, problem.space.hardware[name].high
        for value in certificate.plan[name]:
            if not low * (1 - EDGE) <= value <= high * (1 + EDGE):
                raise Refuted(f"search.allowed_values.{name}: {value:g} is outside {low:g} to {high:g}")
    if certificate.variables != problem.variables:
        raise Refuted(f"the certificate is of variables {certificate.variables}, the study of {problem.variables}")


def _same_rules(problem: VerifiedProblem) -> None:
    """Refuse listed values that change which plans are legal: that follows from workload and layout alone."""
    expected = _decisive(problem.scenario)
    for name, values in problem.values.items():
        for value in values:
            there = _decisive(problem.space.place(problem.scenario, {name: float(value)}))
            if not all(map(np.array_equal, expected, there)):
                raise Refuted(
                    f"search.allowed_values.{name} decides which plans are legal: that nodes cover them is not known"
                )


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
        said = f"search.allowed_values: {len(missing):,} of {combinations:,} combinations are in no node; the first: "
        raise Refuted(said + _shown_values(certificate, np.unravel_index(int(missing[0]), sizes)))


def _shown_values(certificate: Derivation, index: Iterable[int | np.integer]) -> str:
    """Listed values in words: `radix 64, wavelengths 8`."""
    pairs = zip(certificate.held, index, strict=True)
    return ", ".join(f"{name} {certificate.plan[name][at]:g}" for name, at in pairs)


def _cell(index: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Number of a combination of values; the last field changes fastest."""
    cell = np.zeros(len(index), dtype=np.int64)
    for j, size in enumerate(sizes):
        cell = cell * size + index[:, j]
    return cell


def _expanded(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places of all combinations within these ranges, the range of each)."""
    width = high - low + 1
    volume = width.prod(axis=1)
    line = np.repeat(np.arange(len(low)), volume)
    total: int = volume.sum()
    left = np.arange(total) - np.repeat(np.cumsum(volume) - volume, volume)
    index = low[line]
    for j in range(low.shape[1] - 1, -1, -1):
        left, step = np.divmod(left, width[line, j])
        index[:, j] += step
    return index, line


def _parts(volume: np.ndarray) -> list[np.ndarray]:
    """Nodes in parts of about `PART` plans."""
    return np.split(np.arange(len(volume)), np.flatnonzero(np.diff(np.cumsum(volume) // PART)) + 1)


def _every_plan(certificate: Derivation, problem: VerifiedProblem, model: CheckedModel) -> PlanCover:
    sizes = certificate.sizes
    owner = np.full(int(sizes.prod()), -1, dtype=np.int32)
    for nodes in _parts(certificate.weights):
        index, line = _expanded(certificate.low[nodes], certificate.high[nodes])
        owner[_cell(index, sizes)] = nodes[line]
    plans, values = _legal(problem)
    cell = (plans[:, None] * values + np.arange(values)).reshape(-1)
    without = cell[owner[cell] < 0]
    if len(without):
        missing = np.unique(without // values)
        there = np.all(owner.reshape(-1, values) >= 0, axis=1)
        lost = missing[twins_of(missing, plans[there[plans]], problem.legal.lists, model) < 0]
        _refuse(certificate, without[np.isin(without // values, lost)], len(cell), "are in no node")
    return PlanCover(len(cell), owner, True, len(without))


def _refuse(certificate: Derivation, lost: Int[np.ndarray, " k"], plans: int, why: str) -> None:
    """Name the first of the plans that nothing stands for.

    Raises:
        Refuted: there are some.
    """
    if len(lost):
        columns = columns_of(lost[:1], certificate.plan)
        first = ", ".join(f"{name} {column[0]:g}" for name, column in columns.items())
        raise Refuted(f"{len(lost):,} of {plans:,} legal plans {why}; the first: {first}")


def covered_by(
    certificate: Derivation, problem: VerifiedProblem, model: CheckedModel, chosen: Iterable[Bool[np.ndarray, " nodes"]]
) -> Iterator[str]:
    """For each choice of nodes the first legal plan that none of them stands for, in words; empty where there is none.

    The certificate as a whole has passed `cover`.
    """
    if problem.combinations > MOST_COVERED or not certificate.plan:
        for some in chosen:
            try:
                cover(_of_nodes(certificate, some), problem, model)
                yield ""
            except Refuted as why:
                yield str(why)
        return
    sizes, cells, lines = certificate.sizes, list[np.ndarray](), list[np.ndarray]()
    for nodes in _parts(certificate.weights):
        index, line = _expanded(certificate.low[nodes], certificate.high[nodes])
        cells.append(_cell(index, sizes))
        lines.append(nodes[line])
    cell, line = np.concatenate(cells), np.concatenate(lines)
    wanted = _standing(certificate, problem, model, cell)
    for some in chosen:
        there = np.zeros(int(sizes.prod()), dtype=bool)
        there[cell[some[line]]] = True
        try:
            _refuse(certificate, wanted[~there[wanted]], len(wanted), "have no weights that say so")
            yield ""
        except Refuted as why:
            yield str(why)


def _standing(certificate: Derivation, problem: VerifiedProblem, model: CheckedModel, cell: np.ndarray) -> np.ndarray:
    """Combinations, of those in nodes, that stand for all legal plans."""
    plans, values = _legal(problem)
    covered = np.zeros(int(certificate.sizes.prod()) // values, dtype=bool)
    covered[cell // values] = True
    missing, there = plans[~covered[plans]], plans[covered[plans]]
    if len(missing):
        plans = np.union1d(there, twins_of(missing, there, problem.legal.lists, model))
    return (plans[:, None] * values + np.arange(values)).reshape(-1)


def _of_nodes(certificate: Derivation, some: np.ndarray) -> Derivation:
    """With these nodes only; its cuts are not looked at."""
    low, high, best = certificate.low[some], certificate.high[some], certificate.best[:, some]
    return dataclasses.replace(certificate, low=low, high=high, best=best)


def _legal(problem: VerifiedProblem) -> tuple[Int[np.ndarray, " plans"], int]:
    """(numbers of the legal combinations of the plan's own fields, combinations of listed values of each)."""
    values = math.prod(len(problem.lists[name]) for name in problem.values)
    return np.flatnonzero(problem.legal.flags()), values


def _value_by_value(certificate: Derivation, problem: VerifiedProblem, model: CheckedModel) -> PlanCover:
    """Cover of plans with too many listed values to write out: one combination of values after the other."""
    first, plans, exact = len(certificate.plan) - len(certificate.held), 0, True
    plan_fields = dict(list(certificate.plan.items())[:first])
    alone = dataclasses.replace(problem, space=_without_held(certificate, problem), values={})
    for index in np.ndindex(*certificate.sizes[first:]):
        mine = (certificate.low[:, first:] == index).all(axis=1)
        part = dataclasses.replace(
            certificate, plan=plan_fields, held=(),
            low=certificate.low[mine, :first], high=certificate.high[mine, :first],
            best=certificate.best[:, mine, :first],
        )  # fmt: skip
        try:
            result = cover(part, alone, model)
        except Refuted as why:
            raise Refuted(f"{_shown_values(certificate, index)}: {why}") from why
        plans, exact = plans + result.plans, exact and result.exact
    return PlanCover(plans, None, exact)


def _without_held(certificate: Derivation, problem: VerifiedProblem) -> DesignSpace:
    free = {name: variable for name, variable in problem.space.hardware.items() if name not in certificate.held}
    return DesignSpace(problem.space.plan, free)


def _every_combination(certificate: Derivation, problem: VerifiedProblem, model: CheckedModel) -> PlanCover:
    """Cover of too many plans: legal combinations of fields that no node leaves open, with full ranges of the rest."""
    low, high = certificate.low, certificate.high
    opened = np.any(low < high, axis=0)
    shut, names = ~opened, list(certificate.plan)
    inner = {name: certificate.plan[name] for name, open_ in zip(names, opened, strict=True) if open_}
    outer = {name: certificate.plan[name] for name in names if name not in inner}
    decides = sorted(problem.legal.fields_of_rules.intersection(inner))
    if decides:
        raise Refuted(f"nodes leave {decides[0]} open, which decides what is legal: combinations cannot be checked")
    legal = legal_plans(outer, problem.scenario, **{name: float(values[0]) for name, values in inner.items()})
    if legal.combinations > MOST_COVERED:
        raise Refuted(
            f"{problem.combinations:,} combinations of plan values are too many to check that nodes cover them"
        )
    sizes, combinations = certificate.sizes, int(certificate.sizes[opened].prod())
    key = _cell(low[:, shut], sizes[shut])
    full = certificate.weights == combinations
    covered, rest = set(key[full].tolist()), np.flatnonzero(~full & ~np.isin(key, key[full]))
    seen = np.zeros(0, dtype=np.int64)
    for nodes in _parts(certificate.weights[rest]):
        index, line = _expanded(low[rest[nodes]], high[rest[nodes]])
        inside = _cell(index[:, opened], sizes[opened])
        seen = np.union1d(seen, key[rest[nodes]][line] * combinations + inside)
    owners, counts = np.unique(seen // combinations, return_counts=True)
    covered |= set(owners[counts == combinations].tolist())
    numbers = np.flatnonzero(legal.flags())
    there = np.isin(numbers, np.fromiter(covered, dtype=np.int64))
    missing = numbers[~there]
    if len(missing):
        equal = equal_groups(legal.values(missing), legal.values(numbers[there]), inner, model)
        if not equal.all():
            lost = legal.values(missing[~equal])
            first = ", ".join(f"{name} {column[0]:g}" for name, column in lost.items())
            raise Refuted(f"{int((~equal).sum()):,} combinations are not covered by nodes; the first: {first}")
    return PlanCover(len(numbers) * combinations, None, False, len(missing) * combinations)
