"""Oracles whose rows are posynomials written by hand, with optima known by calculus."""

import numpy as np

from codesign.search.branch_and_bound.model_oracle import affine
from codesign.search.branch_and_bound.oracle import GOAL, AbstractOracle, Tangents


class Posynomials(AbstractOracle):
    """Stands in for an oracle: plan p has rows log of max over terms of sums of monomials in x = exp(width u)."""

    def __init__(self, rows: dict[str, list[list[list[tuple[np.ndarray, np.ndarray]]]]], width: np.ndarray):
        # rows[name][plan] = [posynomial, ...] of which the maximum is taken; a posynomial = [(coefficient, powers)]
        self.rows, self.width = rows, width
        self.names, self.evaluated = tuple(rows), 0

    @property
    def count(self) -> int:
        return len(self.rows[GOAL])

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(f"x{i}" for i in range(len(self.width)))

    def near(self, plan: int, changes: int) -> np.ndarray:
        return np.flatnonzero(np.abs(np.arange(self.count) - plan) <= changes)

    def _one(self, name: str, plan: int, u: np.ndarray) -> tuple[float, np.ndarray]:
        best, slope = -np.inf, np.zeros(len(u))
        for posynomial in self.rows[name][plan]:
            terms = np.array([np.log(c) + np.dot(a, self.width * u) for c, a in posynomial])
            top = terms.max()
            value = top + np.log(np.exp(terms - top).sum())
            if value > best:
                share = np.exp(terms - value)
                best, slope = value, (share[:, None] * np.array([a * self.width for _, a in posynomial])).sum(axis=0)
        return best, slope

    def tangents(self, plan, u, sharpness):
        del sharpness
        self.evaluated += len(plan)
        exact = np.zeros((len(plan), len(self.names)))
        slopes = np.zeros((len(plan), len(self.names), u.shape[1]))
        for i, p in enumerate(plan.tolist()):
            for row, name in enumerate(self.names):
                exact[i, row], slopes[i, row] = self._one(name, p, u[i])
        return Tangents(exact, affine(exact, slopes, u), np.zeros(len(plan)))


def slower_of(a: float, b: float, budget: float = 2.0) -> dict:
    """time = max(a / x, b / y) with x + y <= budget: the optimum lies on the kink x / y = a / b."""
    x, y, one = np.array([1.0, 0.0]), np.array([0.0, 1.0]), 1.0
    return {GOAL: [[(a, -x)], [(b, -y)]], "money": [[(one / budget, x), (one / budget, y)]]}


def kinked(pairs: list[tuple[float, float]]) -> Posynomials:
    plans = [slower_of(a, b) for a, b in pairs]
    rows = {name: [plan[name] for plan in plans] for name in (GOAL, "money")}
    return Posynomials(rows, np.log(np.array([20.0, 20.0])))  # x, y from 1 to 20: too dear, so scaled below


def scaled(pairs: list[tuple[float, float]]) -> Posynomials:
    """The same with x, y from 0.05 to 20."""
    rows = kinked(pairs).rows
    moved = {
        name: [
            [[(c * np.prod(0.05**power), power) for c, power in posynomial] for posynomial in plan] for plan in plans
        ]
        for name, plans in rows.items()
    }
    return Posynomials(moved, np.log(np.array([400.0, 400.0])))
