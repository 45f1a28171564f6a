"""The model traced once: whatever is asked of it, for whatever may vary, is written before and behind one program."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.fields import get_path
from ..core.jax_typed import asarray, make_jaxpr, unflatten
from ..core.jax_typed import flatten as leaves_of
from ..core.jax_typed import structure as structure_of
from ..core.smooth import at_least, used_share
from ..jaxprs.identities import without_ones
from ..jaxprs.program import Program, cached, chained, flatten, likeness
from ..model.hardware import MemoryTier
from ..model.metrics import Metrics, ScenarioEvaluation, account
from ..model.scenario import Scenario
from ..study.design_space import DesignSpace, ends_of
from .again import Made, made_again
from .program_cache import TracedProgram, traced_once

# Tiers that a box lets be smaller than their reserve: their used share is infinite there and has no slope.
#
# Wherever it is finite, log(reserved / capacity) <= 0 holds as well. That row is finite and has slopes everywhere, so
# a search that lands where nothing is usable learns from it which way out. Only tiers are asked that every plan
# fills.


FILLED = ("cluster.accelerator.hbm", "cluster.accelerator.hbm.tier", "cluster.accelerator.hbm.pool")
"""The near memory itself, or what of it holds the data where it is a shared or a cached pool."""
RESERVE = "reserve."  # start of the names of these rows
LEAST = 1e-9  # stands in for a reserve of nothing, which has no logarithm


def tight_tiers(scenario: Scenario, space: DesignSpace) -> tuple[str, ...]:
    """Paths of the tiers whose reserve may be all of them somewhere in the box."""
    ends = ends_of(space.hardware, scenario)
    return tuple(path for path in FILLED if _may_be_full(scenario, path, ends))


def _may_be_full(scenario: Scenario, path: str, ends: dict[str, dict[str, Any]]) -> bool:
    try:
        tier = get_path(scenario, path)
    except ConfigError:
        return False
    if not isinstance(tier, MemoryTier):
        return False
    least = ends["low"].get(f"{path}.capacity_bytes", tier.capacity_bytes)
    most = ends["high"].get(f"{path}.reserved_bytes", tier.reserved_bytes)
    if isinstance(least, Tracer) or isinstance(most, Tracer):
        return False
    return bool(np.min(np.asarray(least)) <= np.max(np.asarray(most)))


def reserve_shares(scenario: Scenario, paths: tuple[str, ...]) -> dict[str, Array]:
    """Row -> reserved share of these tiers; at most 1 wherever anything of them is usable."""
    tiers = {f"{RESERVE}{path}": get_path(scenario, path) for path in paths}
    return {row: used_share(tier.reserved_bytes, tier.capacity_bytes) for row, tier in tiers.items()}


def reserve_rows(shares: dict[str, Array]) -> dict[str, Array]:
    """Row -> log of a reserved share."""
    return {row: jnp.log(at_least(share, LEAST)) for row, share in shares.items()}


MAX_PROGRAMS = 32
_bases: OrderedDict[Any, "Base"] = OrderedDict()
_models: OrderedDict[Any, "Model"] = OrderedDict()
_programs: OrderedDict[Any, Made] = OrderedDict()


class Base(NamedTuple):
    """The account of a scenario as a program of its numbers.

    program: leaves of the scenario -> leaves of `structure`, of which `avals` are the shapes and types.
    """

    program: Program
    structure: Any
    avals: tuple[Any, ...]

    @property
    def account(self) -> ScenarioEvaluation:
        """The account with shapes in the place of numbers."""
        return unflatten(self.structure, self.avals)

    def program_of(self, function: Callable[[ScenarioEvaluation], Any]) -> Program:
        """The leaves of `function` of the account, as a program of the scenario's numbers."""

        def flat_outputs(leaves: Sequence[Any]) -> list[Any]:
            return jax.tree.leaves(function(unflatten(self.structure, leaves)))

        second = flatten(make_jaxpr(flat_outputs)(list(self.avals)))
        return _behind(self.program, second, self.program.outputs)


class Answers(NamedTuple):
    """Inputs of a function behind the model: values of the variables, and reserved shares of tight tiers."""

    account: ScenarioEvaluation
    values: dict[str, Array]
    reserves: dict[str, Array]

    @property
    def metrics(self) -> Metrics:
        """Metrics of the design: what it does and costs."""
        return self.account.metrics


class Model(NamedTuple):
    """The account of a scenario in which plan fields and hardware variables are placed.

    program: (leaves of the scenario, plan fields, values of the variables) -> leaves of `structure`; leaves, fields,
    variables: what its inputs are; structure, avals: of (account, reserved shares).
    """

    program: Program
    leaves: int
    fields: tuple[str, ...]
    variables: tuple[str, ...]
    structure: Any
    avals: tuple[Any, ...]

    @property
    def of_variables(self) -> tuple[int, ...]:
        """Inputs that are values of hardware variables."""
        return self.program.inputs[self.leaves + len(self.fields) :]

    def program_of(self, function: Callable[[Answers], Any]) -> Program:
        """The leaves of `function`, as a program of the model's inputs."""

        def flat_outputs(leaves: Sequence[Any], values: Sequence[Any]) -> list[Any]:
            result, reserves = unflatten(self.structure, leaves)
            return jax.tree.leaves(function(Answers(result, dict(zip(self.variables, values, strict=True)), reserves)))

        number = jax.ShapeDtypeStruct((), asarray(1.0).dtype)
        second = flatten(make_jaxpr(flat_outputs)(list(self.avals), [number] * len(self.variables)))
        return _behind(self.program, second, (*self.program.outputs, *self.of_variables))


def _behind(first: Program, second: Program, given: Sequence[int]) -> Program:
    """A program behind the model, of these slots of it; made once for all that differ in numbers alone."""
    fed, shift = dict(zip(second.inputs, given, strict=True)), len(first.shapes)
    key = (id(first), likeness(second, values=False), tuple(given))
    constants = {slot + shift: value for slot, value in second.constants.items()}
    return made_again(_programs, key, (first, second), constants, lambda: chained(first, second, fed), MAX_PROGRAMS)


def base_of(scenario: Scenario) -> Base:
    """The account of scenarios of this structure, traced where none was asked for before."""
    leaves, structure = leaves_of(scenario)
    return _base(structure, tuple(map(_shape, leaves)))


def keep_base_without(scenario: Scenario, roomy: Base, ones: Collection[int]) -> Base:
    """The account of a scenario, from that of a tree which has more numbers, for as long as bases are kept.

    Args:
        scenario: what is left of the tree without them.
        roomy: account of the tree; it does nothing with `ones` but multiply by them.
        ones: places of the numbers that are left out; they are one.
    """
    given = roomy.program.inputs
    program = without_ones(roomy.program, frozenset(given[index] for index in ones))
    leaves, structure = leaves_of(scenario)
    return cached(
        _bases, (structure, tuple(map(_shape, leaves))), lambda: roomy._replace(program=program), MAX_PROGRAMS
    )


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))


def _base(structure: Any, avals: tuple[jax.ShapeDtypeStruct, ...]) -> Base:
    def traced() -> TracedProgram:
        shapes: list[Any] = []

        def flat_account(leaves: list[Any]) -> list[Array]:
            result = jax.tree.map(asarray, account(unflatten(structure, leaves)))
            flat, tree = leaves_of(result)
            shapes[:] = [tree, tuple(map(_shape, flat))]
            return flat

        return TracedProgram(flatten(make_jaxpr(flat_account)(list(avals))), *shapes)

    return cached(_bases, (structure, avals), lambda: Base(*traced_once(traced, structure, avals)), MAX_PROGRAMS)


def model_of(scenario: Scenario, space: DesignSpace, fields: Sequence[str]) -> Model:
    """The model of a space.

    Args:
        scenario: of which the structure matters, and which tiers may be too small.
        space: of which the leaves matter that its variables move.
        fields: of the plan, which are given; others are the scenario's.
    """
    leaves, structure = leaves_of(scenario)
    tight = tight_tiers(scenario, space)
    kinds = tuple(map(_shape, leaves))
    moved = tuple((name, type(space.hardware[name]).__name__, _moves(space.hardware[name])) for name in space.names)
    key = (structure, kinds, tuple(fields), moved, tight)
    return cached(_models, key, lambda: _placed(scenario, space, tuple(fields), tight), MAX_PROGRAMS)


def _moves(variable: Any) -> tuple[Any, ...]:
    """Identity of a variable without its bounds."""
    return (variable.path, getattr(variable, "denominator", ""), tuple(variable.tied))


def _placed(scenario: Scenario, space: DesignSpace, fields: tuple[str, ...], tight: tuple[str, ...]) -> Model:
    """The base behind the placement of fields and variables."""
    leaves, structure = leaves_of(scenario)
    shapes: list[Any] = []

    def flat_candidate(leaves: list[Any], plan: list[Any], values: list[Any]) -> list[Array]:
        point = dict(zip((*fields, *space.names), (*plan, *values), strict=True))
        candidate = space.place(unflatten(structure, leaves), point)
        reserves = jax.tree.map(asarray, reserve_shares(candidate, tight))
        placed, account_shape = leaves_of(jax.tree.map(asarray, candidate))
        shapes[:] = [account_shape, tuple(map(_shape, placed)), structure_of(reserves)]
        return [*placed, *jax.tree.leaves(reserves)]

    one, arrays = asarray(1.0), [asarray(leaf) for leaf in leaves]
    before = flatten(make_jaxpr(flat_candidate)(arrays, [one] * len(fields), [one] * len(space.names)))
    own, avals, tree = shapes
    base, count = _base(own, avals), len(avals)
    reserves = before.outputs[count:]
    fed = dict(zip(base.program.inputs, before.outputs[:count], strict=True))
    program = chained(before, base.program, fed, also=reserves)
    outputs = structure_of((base.account, unflatten(tree, reserves)))
    return Model(program, len(leaves), fields, space.names, outputs, (*base.avals, *[_shape(one)] * len(reserves)))
