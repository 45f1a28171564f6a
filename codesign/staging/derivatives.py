"""Slopes of a program, written equation by equation by JAX's own rules: each kind of equation is traced once.

A model has some thousand equations of some hundred kinds (an operation, its settings, shapes, which arguments move).
Tracing the derivative of the whole costs a second; of each kind, milliseconds, and the next program finds them there.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.jax_typed import asarray, jvp, make_jaxpr, zeros
from ..jaxprs.program import Equation, Program, flatten, key_of
from .draft import AbstractDraft
from .rows import has_kink, run_equation

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
        own = key_of(equation, tuple((shape.shape, shape.dtype) for shape in shapes))
        key = (own, moving, soft)
        if key not in _kinds:
            _kinds[key] = (
                equation,
                _derived(equation, shapes, moving, soft),
            )  # what `own` tells apart by id stays alive
            if len(_kinds) > MOST_KINDS:
                _kinds.popitem(last=False)
        _kinds.move_to_end(key)
        return _kinds[key][1]


def _derived(equation: Equation, shapes: Sequence[Any], moving: tuple[int, ...], soft: bool) -> Rule:
    """Traced by JAX."""

    def value(given: Sequence[Any], sharpness: Any) -> list[Any]:
        return run_equation(equation, given, sharpness if soft else None)

    def told(given: list[Any], sharpness: list[Any], along: list[Any]) -> list[Any]:
        sharp = sharpness[0] if soft else None
        if not moving:
            return value(given, sharp)

        def of_moving(*some: Any) -> list[Any]:
            whole = list(given)
            for place, one in zip(moving, some, strict=True):
                whole[place] = one
            return value(whole, sharp)

        result, slopes = jvp(of_moving, tuple(given[i] for i in moving), tuple(along))
        return [s if jnp.issubdtype(f.dtype, jnp.inexact) else zeros(()) for f, s in zip(result, slopes, strict=True)]

    number = jax.ShapeDtypeStruct((), asarray(1.0).dtype)
    program = flatten(make_jaxpr(told)(list(shapes), [number] if soft else [], [shapes[i] for i in moving]))
    reached = program.reached(program.inputs[len(program.inputs) - len(moving) :]) if moving else frozenset[int]()
    return Rule(program, tuple(slot in reached for slot in program.outputs))
