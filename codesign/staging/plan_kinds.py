"""Shorter programs for plans of one kind: of which the same numbers are zero, one, true or false at every level.

A block of a grid has few plans where the hardware has many levels. A plan without pipeline stages sends nothing between
them, one inside a node nothing outside: what is multiplied by these zeros, and the choices that these truths make, are
half to three quarters of a model's operations.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ..jaxprs.program import Program
from .identities import without_identities
from .lanes import in_turn

UNKNOWN, ZERO, ONE = 0, 1, 2  # what is known of a number: zero is false, one is true
MOST = 64  # kinds that programs are made for
WORTH = 1 << 19  # points of a kind, at least: making a program takes as long as a hundred thousand of them


class PlanKind(NamedTuple):
    """program: of numbers that are not known; inputs: places of its inputs among those of the whole program."""

    program: Program
    inputs: tuple[int, ...]


def known_of(values: np.ndarray) -> Int[np.ndarray, " rows"]:
    """Known value of each row of [rows, levels]: zero, one or unknown."""
    least, most = values.min(axis=1), values.max(axis=1)
    return np.select([(least == 0) & (most == 0), (least == 1) & (most == 1)], [ZERO, ONE], UNKNOWN).astype(np.int8)


class PlanKinds:
    """Kind of each run of plans.

    Args:
        program: numbers alone, of which the inputs are known or not.
        sizes: input -> what its numbers never exceed, in either direction.
        known: place of an input -> [plans] what is known of it; not asked where there are few points.
        plans: how many there are.
        tall: plans of a run; what is known of all of them is known of the run.
        levels: of the hardware, of which each plan has so many points.
    """

    def __init__(
        self,
        program: Program,
        sizes: Mapping[int, float],
        known: Callable[[int], Int[np.ndarray, " plans"]],
        plans: int,
        tall: int,
        levels: int,
    ):
        self._program, self._sizes, self._tall = program, sizes, tall
        first = np.arange(0, plans, tall)
        alike = np.full((len(program.inputs), len(first)), UNKNOWN, dtype=np.int8)
        for index in range(len(alike) if plans * levels >= WORTH else 0):
            codes = known(index)
            least, most = np.minimum.reduceat(codes, first), np.maximum.reduceat(codes, first)
            alike[index] = np.where(least == most, least, UNKNOWN)
        self._known, of_run = np.unique(alike, axis=1, return_inverse=True)
        runs = np.bincount(of_run, minlength=self._known.shape[1])
        order = np.argsort(-runs, kind="stable")[:MOST]
        worth = order[(runs[order] * tall * levels >= WORTH) & self._known[:, order].any(axis=0)]
        self._of_run = np.where(np.isin(of_run, worth), of_run, -1)

    def of(self, plan: Int[np.ndarray, " plans"]) -> int:
        """The number of the kind of these plans; -1 where they have no program of their own."""
        runs = np.unique(plan // self._tall)
        return int(self._of_run[runs[0]]) if len(runs) == 1 else -1

    def written(self, kind: int) -> PlanKind:
        """The program of a kind."""
        whole, codes = self._program, self._known[:, kind].tolist()
        given = dict(zip(whole.inputs, codes, strict=True))
        truths = {
            slot: np.asarray(code == ONE, dtype=whole.kinds[slot]) for slot, code in given.items() if code != UNKNOWN
        }
        left = tuple(slot for slot, code in given.items() if code == UNKNOWN)
        short = without_identities(whole._replace(known={**whole.known, **truths}, inputs=left), self._sizes)
        short = short._replace(equations=in_turn(short))
        read = {*short.outputs, *(slot for equation in short.equations for slot in equation.inputs)}
        places = tuple(index for index, slot in enumerate(whole.inputs) if slot in read and slot in left)
        return PlanKind(short._replace(inputs=tuple(whole.inputs[place] for place in places)), places)
