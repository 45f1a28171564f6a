"""Loops of traced programs run by NumPy at many rows: what a loop repeats is one Python function of calls.

Compiling a loop takes as long as running it on thousands of rows, and its results differ by rounding. Numbers have
their rows behind their own axes. What a loop repeats and its state does not reach is done once, before the first round.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .codegen import written_calls
from .program import Equation, Program, flatten, written_out
from .trailing_axes import behind

__all__ = ["LOOPS", "Body"]

Arrays = Sequence[np.ndarray]


class Body:
    """A traced program at many rows.

    Args:
        closed: the program.
        fixed: how many of its first arguments stay as they are from call to call.
    """

    def __init__(self, closed: Any, fixed: int = 0):
        program = written_out(flatten(closed))
        moving = program.reached(program.inputs[fixed:])
        early = [equation for equation in program.equations if not moving.intersection(equation.outputs)]
        late = [equation for equation in program.equations if moving.intersection(equation.outputs)]
        read = {*program.outputs, *(slot for equation in late for slot in equation.inputs)}
        made = [slot for equation in early for slot in equation.outputs if slot in read]
        known = {slot: np.reshape(value, (*np.shape(value), 1)) for slot, value in program.known.items()}
        self._known, first = list(known.values()), program.inputs[:fixed]
        self._early = _function(program, early, first, made, list(known))
        self._late = _function(program, late, (*program.inputs, *made), program.outputs, list(known))

    def at(self, *fixed: np.ndarray) -> Callable[[Arrays], list[Any]]:
        """The program of its other arguments."""
        made = self._early(fixed, self._known)
        return lambda moving: self._late((*fixed, *moving, *made), self._known)

    def __call__(self, *inputs: np.ndarray) -> list[Any]:
        """All outputs, [own axes, rows or 1] each."""
        return self.at()(inputs)


def _function(
    program: Program, equations: Sequence[Equation], inputs: Sequence[int], outputs: Sequence[int], known: list[int]
) -> Callable[[Arrays, Arrays], list[Any]]:
    calls = [_does(equation, [program.kinds[slot] for slot in equation.inputs]) for equation in equations]
    return written_calls(equations, calls, inputs, outputs, known, {})


def _does(equation: Equation, kinds: Sequence[Any]) -> Callable[..., Any]:
    """Function that runs one equation; a loop gives a list."""
    if equation.name in LOOPS:
        return LOOPS[equation.name](**equation.params)
    return behind(equation.primitive, equation.params, kinds, 1)


def _scan(
    jaxpr: Any, length: int, reverse: bool, num_consts: int, num_carry: int, **_: Any
) -> Callable[..., list[Any]]:
    """So many rounds: a state handed on, and of each round what is listed."""
    body, start = Body(jaxpr, num_consts), num_consts + num_carry

    def run(*inputs: np.ndarray) -> list[Any]:
        step, state, lists = body.at(*inputs[:num_consts]), list(inputs[num_consts:start]), inputs[start:]
        told: list[list[Any]] = []
        for place in range(length)[:: -1 if reverse else 1]:
            result = step([*state, *(each[place] for each in lists)])
            state = result[:num_carry]
            told.append(result[num_carry:])
        rounds = told[::-1] if reverse else told
        return [*state, *(np.stack(np.broadcast_arrays(*each)) for each in zip(*rounds, strict=True))]

    return run


def _while(
    cond_jaxpr: Any, cond_nconsts: int, body_jaxpr: Any, body_nconsts: int, **_: Any
) -> Callable[..., list[Any]]:
    """Until its condition is false; rows at which it is stay as they are."""
    condition, body, start = Body(cond_jaxpr, cond_nconsts), Body(body_jaxpr, body_nconsts), cond_nconsts + body_nconsts

    def run(*inputs: np.ndarray) -> list[Any]:
        holds, step = condition.at(*inputs[:cond_nconsts]), body.at(*inputs[cond_nconsts:start])
        state = list(inputs[start:])
        while (going := np.asarray(holds(state)[0])).any():
            result = step(state)
            state = (
                result if going.all() else [np.where(going, new, old) for new, old in zip(result, state, strict=True)]
            )
        return state

    return run


def _cond(branches: Sequence[Any], **_: Any) -> Callable[..., list[Any]]:
    """One of several programs, at each row another; those that no row takes are left out."""
    programs = [Body(each) for each in branches]

    def run(which: np.ndarray, *inputs: np.ndarray) -> list[Any]:
        taken = np.clip(which, 0, len(programs) - 1)
        numbers = np.unique(taken).tolist()
        result = programs[numbers[0]](*inputs)
        for number in numbers[1:]:
            own = programs[number](*inputs)
            result = [np.where(taken == number, new, old) for new, old in zip(own, result, strict=True)]
        return result

    return run


LOOPS: dict[str, Callable[..., Callable[..., list[Any]]]] = {"scan": _scan, "while": _while, "cond": _cond}
"""Primitive -> its settings -> what it does to arrays."""
