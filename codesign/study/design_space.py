"""Design variables: names over legal plans and over the unit cube of hardware numbers.

A point is a dict name -> value. Plan variables take the values listed; hardware variables range between two bounds
and have a coordinate u in [0, 1], value = low (high / low)^u, so that searches step in log-space.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as replaced
from types import MappingProxyType
from typing import Any, Protocol, cast, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..core.errors import ConfigError, suggestion
from ..core.fields import check_replacement, flattened, get_path, range_of, replace, with_numpy
from ..model.scenario import Scenario
from ..model.workloads.plan_fields import plan_fields, plan_numbers, words_of
from .feasible_plans import Rules, TooManyPlans
from .plan_axes import axes_text, check_word, generated_axes

__all__ = [
    "MOST_BOUNDED", "MOST_LISTED", "Continuous", "DesignSpace", "Ratio", "Variable", "ends_of", "levels", "moved_by",
    "ordered", "shown",
]  # fmt: skip


# Map of hardware variables to leaves: each leaf moved once, denominators before ratios, all within legal ranges.


ROUNDING = 1e-12  # relative: low (high / low)^u ends a few roundings beside `high`
NOTHING: Mapping[str, Any] = MappingProxyType({})


@runtime_checkable
class HardwareVariable(Protocol):
    """Interface of a hardware variable."""

    @property
    def path(self) -> str:
        """The leaf that it moves."""
        ...

    @property
    def tied(self) -> Sequence[str]:
        """Leaves that change in proportion."""
        ...

    def leaves(self, scenario: Scenario, value: Any, moved: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Dotted path -> new value."""
        ...


def in_proportion(scenario: Scenario, path: str, target: Any, along: Sequence[str]) -> dict[str, Any]:
    """A leaf at its target, and others scaled by the same factor."""
    if not along:
        return {path: target}
    factor = target / get_path(scenario, path)
    return {path: target} | {other: get_path(scenario, other) * factor for other in along}


def moved_by(variable: HardwareVariable) -> tuple[str, ...]:
    """Paths that a variable moves."""
    return (variable.path, *variable.tied)


def check_movers(plan: Mapping[str, Any], hardware: Mapping[str, HardwareVariable]) -> None:
    """Refuse a leaf that two variables move: one of them would do nothing.

    Args:
        plan: fields of the plan that are listed.
        hardware: name -> variable.

    Raises:
        ConfigError: naming the leaf and both variables.
    """
    movers = {f"plan.{name}": f"space.plan.{name}" for name in plan}
    for name, variable in hardware.items():
        key = f"space.hardware.{name}"
        for path in moved_by(variable):
            if path in movers:
                if movers[path] == key:
                    raise ConfigError(f"{path} is moved twice by {key}: take it out of its `tied`")
                out = f"leave one of them out, '~{movers[path]}' or '~{key}'"
                raise ConfigError(f"{path} is moved by {movers[path]} and by {key}: {out}")
            movers[path] = key
    ordered(hardware)


def ordered(hardware: Mapping[str, HardwareVariable]) -> tuple[str, ...]:
    """Names of the variables, a ratio after what moves its denominator.

    Raises:
        ConfigError: denominators that depend on each other in a circle.
    """
    movers = {path: name for name, variable in hardware.items() for path in moved_by(variable)}
    needs = {name: movers.get(getattr(variable, "denominator", "")) for name, variable in hardware.items()}
    left = sorted(hardware)
    result: list[str] = []
    while left:
        ready = [name for name in left if needs[name] not in left]
        if not ready:
            circle = " and ".join(f"space.hardware.{name}" for name in left)
            raise ConfigError(f"{circle}: a ratio would move its own denominator; leave one of the variables out")
        result += ready
        left = [name for name in left if name not in ready]
    return tuple(result)


def check_bounds(hardware: Mapping[str, HardwareVariable], scenario: Scenario) -> None:
    """Refuse bounds that take a leaf out of its legal range, alone, along with another or as part of a ratio.

    Raises:
        ConfigError: the bound, what it makes of the leaf, and what the leaf may be.
    """
    plain = with_numpy(scenario)
    for name, variable in hardware.items():
        for path in [variable.path] * bool(variable.tied) + [getattr(variable, "denominator", "")]:
            value = get_path(plain, path) if path else 1.0
            if not isinstance(value, Tracer) and not np.all(value):
                raise ConfigError(f"space.hardware.{name}: {path} is 0, so nothing can be kept in proportion to it")
    for end, became in ends_of(hardware, scenario).items():
        for name, variable in hardware.items():
            for path in moved_by(variable):
                try:
                    check_replacement(scenario, path, became[path], ROUNDING)
                except ConfigError as error:
                    bound = f"space.hardware.{name}.{end} = {getattr(variable, end):g}"
                    raise ConfigError(f"{bound}: {error}") from error


def ends_of(hardware: Mapping[str, HardwareVariable], scenario: Scenario) -> dict[str, dict[str, Any]]:
    """`low` and `high` -> path -> what a leaf becomes where all variables are at that bound: its least and its most."""
    scenario = with_numpy(scenario)
    ends: dict[str, dict[str, Any]] = {"low": {}, "high": {}}
    for name in ordered(hardware):
        for end, moved in ends.items():
            moved |= hardware[name].leaves(scenario, getattr(hardware[name], end), moved)
    return ends


LOOKED_AT, MOST_LOOKS = 1 << 18, 64  # random combinations decoded at once while legal ones are sought, and how often
MOST_LISTED = 20_000_000  # combinations that are listed one by one
MOST_BOUNDED = 5_000_000  # legal plans of many more combinations that are listed, since their rules leave few
MAX_LISTS = 16  # lists of legal plans that are kept for whoever asks again, as a run does three times and each job
_listed: OrderedDict[Any, tuple[np.ndarray, dict[str, int]]] = OrderedDict()


@dataclass(frozen=True)
class Continuous:
    """A hardware number between two bounds.

    Args:
        path: dotted path of the leaf.
        low, high: bounds, in the leaf's unit.
        grid: levels of the exhaustive search, evenly spaced in log.
        tied: further leaves that change in proportion (the bandwidth of a memory with its capacity).
    """

    path: str
    low: float
    high: float
    grid: int = 4
    tied: Sequence[str] = ()

    def leaves(self, scenario: Scenario, value: Any, moved: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Dotted path -> new value."""
        del moved
        return in_proportion(scenario, self.path, value, self.tied)


@dataclass(frozen=True)
class Ratio:
    """The ratio of one leaf to another, which stays: the numerator (and what is `tied` to it) is scaled.

    `numerator = value * denominator` is a monomial, so the model stays log-convex in it. A denominator that is itself a
    variable is moved first.
    """

    numerator: str
    denominator: str
    low: float
    high: float
    grid: int = 4
    tied: Sequence[str] = ()

    @property
    def path(self) -> str:
        """The leaf that moves."""
        return self.numerator

    def leaves(self, scenario: Scenario, value: Any, moved: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Dotted path -> new value; `moved` are leaves that other variables have moved."""
        denominator = moved[self.denominator] if self.denominator in moved else get_path(scenario, self.denominator)
        return in_proportion(scenario, self.numerator, value * denominator, self.tied)


Variable = Continuous | Ratio


def levels(variable: Variable) -> np.ndarray:
    """Values that an exhaustive search tries, evenly spaced in log; the middle if there is one."""
    if variable.grid == 1:
        return np.array([np.sqrt(variable.low * variable.high)])
    return np.geomspace(variable.low, variable.high, variable.grid)


@dataclass(frozen=True)
class DesignSpace:
    """The choices of a study: plan fields and hardware variables.

    Args:
        plan: field of the plan -> values to try, or a word for the axis (`plan_axes`) until the space is `settled`; the
            others keep the scenario's value.
        hardware: name -> `Continuous` or `Ratio`.
        given: variables whose coordinates are their values, exactly.
        words: fields whose values were made from a word -> the word.
    """

    plan: dict[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    hardware: dict[str, Variable] = field(default_factory=dict[str, Variable])
    given: tuple[str, ...] = ()
    words: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Known plan fields, non-empty lists, proper bounds."""
        all_fields = plan_fields()
        for name, values in self.plan.items():
            if name not in all_fields:
                raise ConfigError(f"space.plan.{name} is no field of a plan{suggestion(name, all_fields)}")
            if isinstance(values, str):
                check_word(name, values)
            elif not _is_list(values):
                raise ConfigError(f"space.plan.{name} = {values!r} must be a non-empty list of values")
        for name, variable in self.hardware.items():
            if name in all_fields:
                raise ConfigError(f"space.hardware.{name}: {name} is a field of a plan, give the variable another name")
            for key in ("low", "high"):
                bound: Any = getattr(variable, key)
                if isinstance(bound, bool) or not isinstance(bound, int | float):
                    raise ConfigError(f"space.hardware.{name}.{key} = {bound!r} is not a number")
            if not 0 < variable.low < variable.high < math.inf:
                raise ConfigError(
                    f"space.hardware.{name}: bounds {variable.low:g} and {variable.high:g} must be 0 < low < high < inf"
                )
            if variable.grid < 1:
                raise ConfigError(f"space.hardware.{name}.grid = {variable.grid} must be at least 1")

    def settled(self, scenario: Scenario) -> "DesignSpace":
        """The space with lists in place of words, made for a scenario.

        Raises:
            ConfigError: an axis without a possible value.
        """
        field_names = {each.name for each in fields(scenario.plan)}
        words = {name: word for name, word in self.plan.items() if isinstance(word, str) and name in field_names}
        if not words:
            return self
        return replaced(self, plan=generated_axes(self.plan, scenario), words={**self.words, **words})

    def check(self, scenario: Scenario) -> None:
        """Refuse variables that the scenario does not have, that move one leaf or take it out of its legal range.

        Raises:
            ConfigError: unknown path, with a suggestion; a leaf and both variables that move it; or the bound, what
                the leaf becomes, and what it may be.
        """
        field_names = [each.name for each in fields(scenario.plan)]
        for name in self.plan:
            if name not in field_names:
                kind = f"is no field of {type(scenario.plan).__name__}, the plan of this study"
                raise ConfigError(f"space.plan.{name} {kind}{suggestion(name, field_names)}")
        scenario.workload.check_lists(self.plan)
        self.check_paths(scenario)
        check_movers(self.plan, self.hardware)
        check_bounds(self.hardware, scenario)

    def check_paths(self, scenario: Scenario) -> None:
        """Refuse paths that lead to no number of the scenario.

        Raises:
            ConfigError: unknown path, with a suggestion, or one where no number stands.
        """
        for variable in self.hardware.values():
            for path in (*moved_by(variable), getattr(variable, "denominator", variable.path)):
                value = get_path(scenario, path)
                if range_of(scenario, path) is None or isinstance(value, dict):
                    raise ConfigError(f"{path} is no number that could be varied")
                if value is None:
                    raise ConfigError(f"{path} is not set: give it a value, from which it is varied")

    @property
    def names(self) -> tuple[str, ...]:
        """Hardware variables, in a fixed order."""
        return tuple(sorted(self.hardware))

    def values(self, coordinates: dict[str, Any]) -> dict[str, Any]:
        """Unit-cube coordinates -> values of the hardware variables."""
        return {
            name: u if name in self.given else (v := self.hardware[name]).low * (v.high / v.low) ** u
            for name, u in coordinates.items()
        }

    def coordinates(self, values: dict[str, Array]) -> dict[str, Array]:
        """Values of the hardware variables -> unit-cube coordinates."""
        return {
            name: jnp.log(value / self.hardware[name].low) / np.log(self.hardware[name].high / self.hardware[name].low)
            for name, value in values.items()
        }

    def place(self, scenario: Scenario, point: dict[str, Any]) -> Scenario:
        """The scenario with the plan fields and hardware variables of a point."""
        field_names = {each.name for each in fields(scenario.plan)}
        leaves = {f"plan.{name}": value for name, value in point.items() if name in field_names}
        for name in ordered(self.hardware):
            if name in point:
                leaves |= self.hardware[name].leaves(scenario, point[name], leaves)
        return replace(scenario, leaves, ROUNDING)

    def grid(self) -> dict[str, np.ndarray]:
        """All combinations of the hardware levels, one array per variable; a single point without variables."""
        points = list(itertools.product(*(levels(self.hardware[name]) for name in self.names)))
        table = np.array(points, dtype=float).reshape(len(points), len(self.names))
        return {name: table[:, column] for column, name in enumerate(self.names)}

    @property
    def lists(self) -> dict[str, np.ndarray]:
        """Plan field -> its listed values as numbers."""
        return {name: plan_numbers(name, values) for name, values in self.plan.items()}

    @property
    def combinations(self) -> int:
        """Combinations of listed plan values, legal or not."""
        return math.prod(len(values) for values in self.plan.values())

    def check_listable(self) -> None:
        """Refuse to try more plans one by one than memory holds.

        Raises:
            ConfigError: too many combinations.
        """
        if self.combinations > MOST_LISTED:
            raise ConfigError(
                f"space.plan lists {self.combinations:,} combinations, at most {MOST_LISTED:,} are tried one by one:"
                " shorten its lists, or take search=certified, which bounds plans in groups"
            )

    def plans(self, scenario: Scenario) -> dict[str, np.ndarray]:
        """Every legal plan, one array per listed field (one row where no field is listed).

        Legal means that no rule of the workload is broken on the scenario's devices.

        Raises:
            ConfigError: too many combinations; or no plan is legal: names the rule that the fewest plans keep.
        """
        try:
            legal, refused = self._legal(scenario)
        except TooManyPlans:
            raise ConfigError(
                f"space.plan lists {self.combinations:,} combinations, over {MOST_LISTED:,} of them legal, the most"
                " that are tried one by one: shorten its lists, or take search=certified, which bounds groups"
            ) from None
        if not len(legal):
            total, worst = self.combinations, max(refused, key=lambda rule: refused[rule])
            raise ConfigError(
                f"space is empty: none of {total} plans is legal;"
                f" the rule {worst!r} alone refuses {refused[worst] / total:.0%}"
            )
        return self.decoded(legal)

    def text(self, scenario: Scenario) -> str:
        """The space and its size in words, made from its axes: `every layout that vLLM runs on 8 to 64 devices ...`.

        Empty where its axes were listed by hand.
        """
        text = axes_text(self.plan, self.words, scenario)
        if not text:
            return ""
        size = self.size(scenario)
        return f"{text}: {f'{size:,.0f}' if size < math.inf else f'more than {MOST_LISTED:,}'} plans"

    def size(self, scenario: Scenario) -> float:
        """Legal plans, counted without listing them; inf where they are too many for that."""
        try:
            return float(Rules(self.lists, scenario).tables.total)
        except TooManyPlans:
            return math.inf

    def _legal(self, scenario: Scenario, most: int = MOST_LISTED) -> tuple[np.ndarray, dict[str, int]]:
        """(numbers of the legal combinations, rule -> combinations that break it), kept for whoever asks again."""
        rules = Rules(self.lists, scenario)
        key = (tuple((name, values.tobytes()) for name, values in self.lists.items()), _numbers(scenario, rules.read))
        if key not in _listed:
            _listed[key] = rules.of_all(most)
            if len(_listed) > MAX_LISTS:
                _listed.popitem(last=False)
        return _listed[key]

    def legal_sample(self, scenario: Scenario, most: int, seed: int = 0) -> np.ndarray:
        """Random legal plans, [plans, fields]; fewer than `most` where they are rare or there are no more.

        Raises:
            ConfigError: none is legal.
        """
        rng = np.random.default_rng(seed)
        if not self.plan:
            return np.zeros((1, 0))
        if self.combinations <= LOOKED_AT:
            table = np.stack(list(self.plans(scenario).values()), axis=-1)
            return table[np.sort(rng.choice(len(table), min(most, len(table)), replace=False))]
        if self.combinations > MOST_LISTED and self.size(scenario) <= MOST_BOUNDED:  # too rare to be met
            numbers = self._legal(scenario)[0]
            numbers = np.sort(rng.choice(numbers, min(most, len(numbers)), replace=False))
            return np.stack(list(self.decoded(numbers).values()), axis=-1)
        is_legal, count = self._is_legal(scenario), 0
        result: list[np.ndarray] = []
        for _ in range(MOST_LOOKS):
            numbers = rng.integers(0, self.combinations, LOOKED_AT)
            result.append(np.stack(list(self.decoded(numbers[is_legal(numbers)]).values()), axis=-1))
            count += len(result[-1])
            if count >= most:
                break
        if count == 0:
            raise ConfigError(
                f"space is empty: none of {MOST_LOOKS * LOOKED_AT:,} random plans of {self.combinations:,} is legal;"
                " shorten the lists of space.plan to values that fit"
            )
        return np.concatenate(result)[:most]

    def _is_legal(self, scenario: Scenario) -> Callable[[np.ndarray], np.ndarray]:
        """Numbers of combinations -> whether each is legal: by a list of all where there is one, else by the rules."""
        if self.combinations > MOST_LISTED:
            rules = Rules(self.lists, scenario)
            return lambda numbers: rules(self.decoded(numbers))[0]
        flags = np.zeros(self.combinations, dtype=bool)
        flags[self._legal(scenario)[0]] = True
        return lambda numbers: flags[numbers]

    def every_value(self, plans: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Field -> every value that it has in these plans or is listed with."""
        lists = self.lists
        return {name: np.unique([*column, *lists.get(name, ())]) for name, column in plans.items()}

    def decoded(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Plan fields of numbered combinations; the last field changes fastest."""
        columns = {}
        for name, values in reversed(self.lists.items()):
            numbers, index = np.divmod(numbers, len(values))
            columns[name] = values[index]
        return {name: columns[name] for name in self.plan}


def _is_list(values: Any) -> bool:
    """True if these are values to choose from."""
    return isinstance(values, Sequence) and not isinstance(values, str) and bool(cast(Sequence[Any], values))


def _numbers(scenario: Scenario, read: Sequence[np.ndarray]) -> Any:
    """Key of a scenario of which these numbers are read: equal ones have the same legal plans."""
    return flattened(scenario)[1], tuple((array.dtype.str, array.shape, array.tobytes()) for array in read)


def shown(name: str, value: float) -> str:
    """A plan value as a reader wants it."""
    words = words_of(name)
    return words[round(value)] if words else f"{value:g}"
