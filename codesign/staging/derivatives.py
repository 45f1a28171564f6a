"""Slopes of a program, written equation by equation by JAX's own rules: each kind of equation is traced once.

A model has some thousand equations of some hundred kinds (an operation, its settings, shapes, which arguments move).
Tracing the derivative of the whole costs a second; of each kind, milliseconds, and the next program finds them there.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.fields import get_path
from ..core.jax_typed import asarray, flatten_with_path, jvp, make_jaxpr, structure, unflatten, zeros
from ..jaxprs.program import Equation, Program, cached, flatten, key_of, written_out
from ..model.metrics import ScenarioEvaluation
from ..model.scenario import Scenario
from .again import fingerprint, program_key
from .model import base_of
from .program_cache import as_text, equations_as_plain, made_once, program_as_plain, program_from_plain
from .rows import has_kink, run_equation
from .running import running

# A program that is written equation by equation.


class AbstractDraft:
    """A program that is being written.

    Args:
        program: whose slots keep their numbers.
        inputs: of the program that is written, slots of the other one.
    """

    def __init__(self, program: Program, inputs: Sequence[int]):
        self._of, self.inputs = program, list(inputs)
        self.equations: list[Equation] = []
        self.constants = dict(program.constants)
        self.shapes, self.kinds = list(program.shapes), list(program.kinds)

    def new(self, shape: tuple[int, ...] = (), kind: Any = float) -> int:
        """One more slot."""
        self.shapes.append(shape)
        self.kinds.append(np.dtype(kind))
        return len(self.shapes) - 1

    def given(self, like: int | None = None) -> int:
        """One more input: a number, or what has the shape of a slot."""
        self.inputs.append(self.new() if like is None else self.new(self.shapes[like], self.kinds[like]))
        return self.inputs[-1]

    def constant(self, value: Any) -> int:
        """A slot that always has this value."""
        array = np.asarray(value)
        slot = self.new(array.shape, array.dtype)
        self.constants[slot] = array
        return slot

    def put(self, program: Program, inputs: Sequence[int]) -> list[int]:
        """Write another program here; says where its outputs are."""
        shift, renamed = len(self.shapes), dict(zip(program.inputs, inputs, strict=True))
        self.shapes += program.shapes
        self.kinds += program.kinds
        self.constants |= {slot + shift: value for slot, value in program.constants.items()}
        for equation in program.equations:
            read, made = (
                tuple(renamed.get(slot, slot + shift) for slot in slots)
                for slots in (equation.inputs, equation.outputs)
            )
            self.equations.append(equation._replace(inputs=read, outputs=made))
        return [renamed.get(slot, slot + shift) for slot in program.outputs]

    def done(self, outputs: Sequence[int]) -> Program:
        """Return the program written so far."""
        return Program(self.equations, self.constants, tuple(self.inputs), tuple(outputs), self.shapes, self.kinds)


MOST_KINDS = 8192
_kinds: OrderedDict[Any, tuple[Any, "Rule"]] = OrderedDict()


class Rule(NamedTuple):
    """Derivative rule of an equation: (its arguments, sharpness if asked for, slopes) -> outputs.

    moves: of each output, whether any slope reaches it.
    """

    program: Program
    moves: tuple[bool, ...]


class Slopes(AbstractDraft):
    """A draft that can write slopes of the program it begins with."""

    def below(self, equations: Sequence[Equation], varied: frozenset[int], sharpness: int) -> dict[int, int]:
        """Write the reading below, in which a mean stands for each maximum that the hardware reaches.

        Returns:
            Slot of the program -> where its reading below is, of those that have another.
        """
        other: dict[int, int] = {}
        for equation in equations:
            inputs = [other.get(slot, slot) for slot in equation.inputs]
            if has_kink(equation) and equation.outputs[0] in varied:
                result = self.put(self._rule(equation, (), True).program, [*inputs, sharpness])
            elif inputs != list(equation.inputs):
                result = [self.new(self.shapes[slot], self.kinds[slot]) for slot in equation.outputs]
                self.equations.append(equation._replace(inputs=tuple(inputs), outputs=tuple(result)))
            else:
                continue
            other |= dict(zip(equation.outputs, result, strict=True))
        return other

    def slopes(
        self,
        equations: Sequence[Equation],
        seeds: Mapping[int, int],
        values: Mapping[int, int] | None = None,
        varied: frozenset[int] = frozenset(),
        sharpness: int | None = None,
    ) -> dict[int, int]:
        """Write slopes along one direction.

        Args:
            equations: in order.
            seeds: slot -> where its slope is.
            values: slot -> where its value is, if not there.
            varied, sharpness: of the reading below, if it is that one's slopes.

        Returns:
            Slot -> where its slope is, of those that move.
        """
        moved, values = dict(seeds), values or {}
        for equation in equations:
            moving = tuple(i for i, slot in enumerate(equation.inputs) if slot in moved)
            if not moving:
                continue
            soft = sharpness is not None and has_kink(equation) and equation.outputs[0] in varied
            rule = self._rule(equation, moving, soft)
            if not any(rule.moves):
                continue
            given: list[int] = [values.get(slot, slot) for slot in equation.inputs]
            along = [moved[equation.inputs[i]] for i in moving]
            result = self.put(rule.program, [*given, *([] if sharpness is None or not soft else [sharpness]), *along])
            parts = zip(equation.outputs, result, rule.moves, strict=True)
            moved |= {slot: slope for slot, slope, moves in parts if moves}
        return moved

    def _rule(self, equation: Equation, moving: tuple[int, ...], soft: bool) -> Rule:
        """Rule of this kind of equation: its value where nothing moves, else its slopes."""
        shapes = [jax.ShapeDtypeStruct(self._of.shapes[slot], self._of.kinds[slot]) for slot in equation.inputs]
        equation_key = key_of(equation, tuple((shape.shape, shape.dtype) for shape in shapes))
        key = (equation_key, moving, soft)
        if key not in _kinds:
            _kinds[key] = (
                equation,
                _derived(equation, shapes, moving, soft),
            )  # what `equation_key` tells apart by id stays alive
            if len(_kinds) > MOST_KINDS:
                _kinds.popitem(last=False)
        _kinds.move_to_end(key)
        return _kinds[key][1]


def _derived(equation: Equation, shapes: Sequence[Any], moving: tuple[int, ...], soft: bool) -> Rule:
    """Traced by JAX."""

    def value(given: Sequence[Any], sharpness: Any) -> list[Any]:
        return run_equation(equation, given, sharpness if soft else None)

    def derivative(given: list[Any], sharpness: list[Any], along: list[Any]) -> list[Any]:
        sharp = sharpness[0] if soft else None
        if not moving:
            return value(given, sharp)

        def of_moving(*some: Any) -> list[Any]:
            values = list(given)
            for index, one in zip(moving, some, strict=True):
                values[index] = one
            return value(values, sharp)

        result, slopes = jvp(of_moving, tuple(given[i] for i in moving), tuple(along))
        return [s if jnp.issubdtype(f.dtype, jnp.inexact) else zeros(()) for f, s in zip(result, slopes, strict=True)]

    number = jax.ShapeDtypeStruct((), asarray(1.0).dtype)
    program = flatten(make_jaxpr(derivative)(list(shapes), [number] if soft else [], [shapes[i] for i in moving]))
    reached = program.reached(program.inputs[len(program.inputs) - len(moving) :]) if moving else frozenset[int]()
    return Rule(program, tuple(slot in reached for slot in program.outputs))


# Slopes of a few numbers by every number of a scenario: one forward pass along all of them at once.


MAX_TEXTS = 256  # texts (disk: 0.2 MB each), more than all experiments have
MOST_MADE = 8  # programs that are kept with their slopes
_made: OrderedDict[Any, Any] = OrderedDict()


def slopes_of(
    scenario: Scenario, function: Callable[[ScenarioEvaluation], list[Array]], part: str = ""
) -> list[Scenario]:
    """For each number of `function`, its slope by every single number of the scenario, as a tree like the scenario.

    Tables have no slopes: zeros stand in their place. Hard maxima have, at a tie, the mean of both sides' slopes.

    Args:
        scenario: where slopes are taken.
        function: of its account.
        part: of the scenario, such as `cluster`: numbers elsewhere are held fixed, zeros stand in their place.
    """
    leaves, program = jax.tree.leaves(scenario), base_of(scenario).program_of(function)
    places = [path[0] for path, _ in flatten_with_path(scenario)[0]]
    varied = [not part or getattr(path_key, "name", "") == part for path_key in places]
    numbers = [program.shapes[slot] == () and _is_real(program.kinds[slot]) for slot in program.inputs]
    real = [i for i, both in enumerate(zip(numbers, varied, strict=True)) if all(both)]
    key = (program_key(program), id(program.constants), part)
    made = cached(_made, key, lambda: (program, running(_cached_along(program, real))), MOST_MADE)
    kinds = [program.kinds[slot] for slot in program.inputs]
    given = [np.asarray(leaf, dtype=kind)[..., None] for leaf, kind in zip(leaves, kinds, strict=True)]
    result: list[np.ndarray] = made[1](*given, *np.eye(len(real)))
    tree, zeros, trees = structure(scenario), [np.zeros(np.shape(leaf)) for leaf in leaves], list[Scenario]()
    for slopes in result:
        of_each = dict(zip(real, np.broadcast_to(slopes, (len(real),)), strict=True))
        trees.append(unflatten(tree, [of_each.get(i, zero) for i, zero in enumerate(zeros)]))
    return trees


def slopes_along(
    scenario: Scenario,
    function: Callable[[ScenarioEvaluation], list[Array]],
    values: Mapping[str, Float[np.ndarray, " points"]],
    direction: Mapping[str, Float[np.ndarray, " points"]],
) -> tuple[list[Float[np.ndarray, " points"]], list[Float[np.ndarray, " points"]]]:
    """Numbers at many points that differ in a few leaves of a scenario, and their slopes along a direction.

    Args:
        scenario: all other leaves.
        function: of its account; gives scalars.
        values: path of a leaf -> what it is at each point.
        direction: path of a leaf among these -> how far it moves at each point.

    Returns:
        (numbers, slopes) of what `function` gives. Hard maxima have, at a tie, the mean of both sides' slopes.
    """
    leaves, program = jax.tree.leaves(scenario), base_of(scenario).program_of(function)
    numbered = unflatten(structure(scenario), list(range(len(leaves))))
    placed = {get_path(numbered, path): np.asarray(column, dtype=float) for path, column in values.items()}
    moved = {get_path(numbered, path): np.asarray(column, dtype=float) for path, column in direction.items()}
    key = (program_key(program), id(program.constants), tuple(moved))
    made = cached(
        _made, key, lambda: (program, running(written_out(_along(program, list(moved), values=True)))), MOST_MADE
    )
    kinds = [program.kinds[slot] for slot in program.inputs]
    fixed = [np.asarray(leaf, dtype=kind)[..., None] for leaf, kind in zip(leaves, kinds, strict=True)]
    given = [placed.get(index, leaf) for index, leaf in enumerate(fixed)]
    points = max((len(column) for column in placed.values()), default=1)
    result = [np.broadcast_to(each, (points,)) for each in made[1](*given, *moved.values())]
    return result[: len(program.outputs)], result[len(program.outputs) :]


def _is_real(kind: Any) -> bool:
    return np.issubdtype(kind, np.floating)


def _cached_along(program: Program, real: Sequence[int]) -> Program:
    """`_along` by primitives alone, read from disk where an earlier process derived it."""

    def identity() -> list[Any]:
        constants = [[slot, fingerprint(value)[:2], as_text(value)] for slot, value in program.constants.items()]
        return [equations_as_plain(program), constants, real]

    return made_once(
        "slopes", identity, lambda: written_out(_along(program, real)), program_as_plain, program_from_plain, MAX_TEXTS
    )


def _along(program: Program, real: Sequence[int], *, values: bool = False) -> Program:
    """(leaves, direction: one number for each of the real ones) -> slopes of the outputs along the direction.

    Args:
        values: whether the outputs themselves come before their slopes.
    """

    draft = Slopes(program, program.inputs)
    seeds = {program.inputs[index]: draft.given() for index in real}
    draft.equations += program.equations
    moved, zero = draft.slopes(program.equations, seeds), draft.constant(0.0)
    slopes = [moved.get(slot, zero) for slot in program.outputs]
    return draft.done([*program.outputs, *slopes] if values else slopes)
