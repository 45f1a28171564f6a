"""The legal plans of a space, counted and listed for a verification by code of its own.

A rule of the workload is evaluated for every combination of the plan fields that reach it in its traced program.
Random combinations test that these are all the fields that matter: for them JAX evaluates all rules plainly.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..core.fields import replace
from ..core.jax_typed import jit, make_jaxpr
from ..model.scenario import Scenario
from ..staging import Program, at_points, flatten
from ..study.feasible_plans import violations
from .derivation import Refuted

TESTED = (
    10_000  # random combinations, each value of each field equally often, for which all rules are evaluated plainly
)
SUMMED = 64  # groups whose legal plans are counted at once
PART = 1 << 16  # combinations for which a rule is evaluated at once
MOST_COMBINATIONS = 1 << 24  # of the fields of one rule
_plainly: Any = jit(jax.vmap(violations, in_axes=(None, 0)))


class LegalPlans:
    """Combinations of listed plan values that break no rule of a scenario's workload.

    Args:
        lists: plan field -> its values, each once; the last field changes fastest where combinations are numbered.
        scenario: on whose devices; fields that are not listed have its values.

    Raises:
        Refuted: a rule depends on more combinations than can be evaluated.
    """

    def __init__(self, lists: Mapping[str, np.ndarray], scenario: Scenario):
        self.lists = {name: np.asarray(values, dtype=float) for name, values in lists.items()}
        self.scenario, self.sizes = scenario, tuple(len(values) for values in self.lists.values())
        names, result = tuple(self.lists), list[str]()

        def traced(scenario: Scenario, values: Sequence[jax.Array]) -> list[jax.Array]:
            rules = violations(scenario, dict(zip(names, values, strict=True)))
            result[:] = rules
            return list(rules.values())

        number = jax.ShapeDtypeStruct((), float)
        self._program = flatten(make_jaxpr(traced)(scenario, [number] * len(names)))
        self._leaves = jax.tree.leaves(scenario)
        self._reach = dict(zip(result, _reaching(self._program, len(self._leaves)), strict=True))
        self._rules = dict[str, np.ndarray]()
        for index, (rule, fields) in enumerate(self._reach.items()):
            self._reach[rule], self._rules[rule] = _relevant_fields(fields, self._evaluated(index, fields))

    @property
    def combinations(self) -> int:
        """Combinations of listed values, legal or not."""
        return math.prod(self.sizes)

    @functools.cached_property
    def fields_of_rules(self) -> frozenset[str]:
        """Plan fields that reach any rule; each value of another is legal wherever one is."""
        return frozenset(name for i, name in enumerate(self.lists) if any(i in each for each in self._reach.values()))

    @functools.cached_property
    def count(self) -> int:
        """Legal plans, exactly: fields are summed out one by one, so no combination of all of them is written down."""
        terms = self._terms
        summed = {field for fields in self._reach.values() for field in fields}
        free = math.prod(size for field, size in enumerate(self.sizes) if field not in summed)
        return free * (int(cast(Any, np.einsum)(*terms, [], optimize="greedy")) if terms else 1)

    @functools.cached_property
    def possible(self) -> list[Int[np.ndarray, " values"]]:
        """Places of the values, of each field, that some legal plan has."""
        result = list[np.ndarray]()
        for field, size in enumerate(self.sizes):
            there = np.ones(size, dtype=bool)
            if any(field in fields for fields in self._reach.values()):
                there = cast(Any, np.einsum)(*self._terms, [field], optimize="greedy") > 0
            result.append(np.flatnonzero(there))
        return result

    def rules_of(self, places: Sequence[np.ndarray]) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """(fields, whether values keep a rule) of each rule, of these places alone."""
        return [
            (fields, self._rules[rule][np.ix_(*(places[field] for field in fields))] if fields else self._rules[rule])
            for rule, fields in self._reach.items()
        ]

    def completed(
        self, index: Int[np.ndarray, "k fields"], opened: Bool[np.ndarray, " fields"]
    ) -> Int[np.ndarray, " k"]:
        """Legal plans of each group whose closed fields have these places and whose open ones any."""
        counts, batch = [np.zeros(0, dtype=np.int64)], len(self.sizes)
        rules = [(self._rules[rule], fields) for rule, fields in self._reach.items()]
        ruled = {field for _, fields in rules for field in fields}
        free = math.prod(size for field, size in enumerate(self.sizes) if opened[field] and field not in ruled)
        for first in range(0, len(index), SUMMED):
            part, terms = index[first : first + SUMMED], list[Any]()
            for table, fields in rules:
                left = [field for field in fields if opened[field]]
                closed_first = np.moveaxis(table, [fields.index(field) for field in left], range(-len(left), 0))
                at = tuple(part[:, field] for field in fields if not opened[field])
                there = closed_first[at] if at else np.broadcast_to(closed_first, (len(part), *closed_first.shape))
                terms += [there.astype(np.int64), [batch, *left]]
            ones = np.full(len(part), free, dtype=np.int64)
            counts.append(cast(Any, np.einsum)(ones, [batch], *terms, [batch], optimize="greedy"))
        return np.concatenate(counts)

    @property
    def _terms(self) -> list[Any]:
        return [
            term for rule, fields in self._reach.items() for term in (self._rules[rule].astype(np.int64), [*fields])
        ]

    def flags(self) -> Bool[np.ndarray, " combinations"]:
        """True for each combination that is legal, in the order of their numbers."""
        legal = np.ones(self.sizes, dtype=bool)
        for rule, fields in self._reach.items():
            shape = [size if field in fields else 1 for field, size in enumerate(self.sizes)]
            legal &= self._rules[rule].reshape(shape)
        return legal.reshape(-1)

    def values(self, number: Int[np.ndarray, " k"]) -> dict[str, np.ndarray]:
        """Plan fields of numbered combinations."""
        places = np.unravel_index(number, self.sizes) if self.sizes else ()
        return {name: values[index] for (name, values), index in zip(self.lists.items(), places, strict=True)}

    def sample(self, rng: np.random.Generator, most: int) -> Float[np.ndarray, "plans fields"]:
        """Random legal plans of the listed combinations, values of fields; fewer where they are rare."""
        if not self.lists:
            return np.zeros((1, 0))
        if self.combinations <= MOST_COMBINATIONS:
            legal = np.flatnonzero(self.flags())
            number = np.sort(rng.choice(legal, min(most, len(legal)), replace=False))
            return np.stack([*self.values(number).values(), np.zeros(len(number))], axis=-1)[:, :-1]
        index = self._stratified(rng, 64 * most)
        return np.unique(self._table(index[self.keeps_at(index)][:most]), axis=0)

    def check(self, rng: np.random.Generator) -> int:
        """Compare with all rules, evaluated plainly for random combinations; says how many.

        Raises:
            Refuted: a plan that is legal by one of the two only.
        """
        if not self.lists:
            return 0
        index = self._stratified(rng, TESTED)
        table = self._table(index)
        result: dict[str, jax.Array] = _plainly(self.scenario, dict(zip(self.lists, table.T, strict=True)))
        plain = np.all([np.broadcast_to(np.asarray(value) <= 0, len(index)) for value in result.values()], axis=0)
        wrong = np.flatnonzero(plain != self.keeps_at(index))
        if len(wrong):
            words = ", ".join(f"{name} {value:g}" for name, value in zip(self.lists, table[wrong[0]], strict=True))
            raise Refuted(f"whether the plan {words} is legal depends on how its rules are evaluated")
        return len(index)

    def keeps(self, columns: Mapping[str, np.ndarray]) -> Bool[np.ndarray, " plans"]:
        """True for plans, by the values of their fields, that keep every rule."""
        index = [np.searchsorted(values, columns[name]) for name, values in self.lists.items()]
        return self.keeps_at(np.stack(index, axis=-1)) if index else np.ones(1, dtype=bool)

    def _stratified(self, rng: np.random.Generator, count: int) -> Int[np.ndarray, "count fields"]:
        """Random combinations in which each value of each field comes equally often, as far as that goes."""
        columns = [rng.permutation(np.resize(np.arange(size), count)) for size in self.sizes]
        return np.stack(columns, axis=-1)

    def _table(self, index: Int[np.ndarray, "k fields"]) -> Float[np.ndarray, "k fields"]:
        return np.stack([values[index[:, j]] for j, values in enumerate(self.lists.values())], axis=-1)

    def keeps_at(self, index: Int[np.ndarray, "k fields"]) -> Bool[np.ndarray, " k"]:
        """True for combinations, by the places of their values, that keep every rule."""
        legal = np.ones(len(index), dtype=bool)
        for rule, fields in self._reach.items():
            legal &= self._rules[rule][tuple(index[:, field] for field in fields)]
        return legal

    def _evaluated(self, rule: int, fields: tuple[int, ...]) -> Bool[np.ndarray, "..."]:
        """True where one rule is kept, with an axis for each of these fields."""
        shape = tuple(self.sizes[field] for field in fields)
        count = math.prod(shape)
        if count > MOST_COMBINATIONS:
            raise Refuted(f"a rule of the plan depends on {count:,} combinations: which plans are legal is not known")
        values, legal = list(self.lists.values()), np.empty(count, dtype=bool)
        program = self._program._replace(outputs=self._program.outputs[rule : rule + 1])
        for first in range(0, count, PART):
            number = np.arange(first, min(first + PART, count))
            places = dict(zip(fields, np.unravel_index(number, shape) if shape else (), strict=True))
            columns = [
                each[places[i]] if i in places else np.full(len(number), each[0]) for i, each in enumerate(values)
            ]
            legal[first : first + len(number)] = at_points(program, self._leaves, columns)[0].reshape(-1) <= 0
        return legal.reshape(shape)


def _relevant_fields(fields: tuple[int, ...], legal: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """Fields of which one value keeps a rule and another does not, and the table of these."""
    for axis in reversed(range(legal.ndim)):
        if bool(np.all(legal == legal.take([0], axis))):
            legal, fields = np.asarray(legal.take(0, axis)), fields[:axis] + fields[axis + 1 :]
    return fields, legal


def _reaching(program: Program, leaves: int) -> list[tuple[int, ...]]:
    """Numbers of the inputs behind the scenario's leaves that reach each output."""
    reach = {slot: frozenset([i]) for i, slot in enumerate(program.inputs[leaves:])}
    for equation in program.equations:
        result = frozenset[int]().union(*(reach.get(slot, frozenset()) for slot in equation.inputs))
        reach |= dict.fromkeys(equation.outputs, result)
    return [tuple(sorted(reach.get(slot, frozenset()))) for slot in program.outputs]


def legal_plans(lists: Mapping[str, np.ndarray], scenario: Scenario, **fixed: float) -> LegalPlans:
    """The legal plans of these lists where other fields have fixed values."""
    return LegalPlans(lists, replace(scenario, {f"plan.{name}": value for name, value in fixed.items()}))
