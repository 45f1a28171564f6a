"""A program that is written equation by equation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..jaxprs.program import Equation, Program


class AbstractDraft:
    """A program that is being written.

    Args:
        program: whose slots keep their numbers.
        inputs: of the program that is written, slots of the other one.
    """

    def __init__(self, program: Program, inputs: Sequence[int]):
        self._of, self.inputs = program, list(inputs)
        self.equations: list[Equation] = []
        self.known = dict(program.known)
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
        self.known[slot] = array
        return slot

    def put(self, program: Program, inputs: Sequence[int]) -> list[int]:
        """Write another program here; says where its outputs are."""
        shift, place = len(self.shapes), dict(zip(program.inputs, inputs, strict=True))
        self.shapes += program.shapes
        self.kinds += program.kinds
        self.known |= {slot + shift: value for slot, value in program.known.items()}
        for equation in program.equations:
            read, made = (
                tuple(place.get(slot, slot + shift) for slot in slots) for slots in (equation.inputs, equation.outputs)
            )
            self.equations.append(equation._replace(inputs=read, outputs=made))
        return [place.get(slot, slot + shift) for slot in program.outputs]

    def done(self, outputs: Sequence[int]) -> Program:
        """Return the program written so far."""
        return Program(self.equations, self.known, tuple(self.inputs), tuple(outputs), self.shapes, self.kinds)
