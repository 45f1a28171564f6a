"""Problems as they are sent to another process, which may not have been told to keep 64 bits."""

import functools
from typing import Any

import jax
import numpy as np

from ..core.jax_typed import asarray, configure
from .base import Problem

Sent = tuple[Any, Any, Any]
"""Scenario with plain arrays, space, objective: JAX narrows what it reads before it is told not to."""


def plain(problem: Problem) -> Sent:
    """Plain arrays in place of JAX's."""
    return jax.tree.map(np.asarray, problem.scenario), problem.space, problem.objective


def read_back(sent: Sent) -> Problem:
    """Rebuild a problem in float64, as whoever sent it had it."""
    configure("jax_enable_x64", True)
    scenario, space, objective = sent
    return Problem(jax.tree.map(asarray, scenario), space, objective)


def _sent(work: object) -> dict[str, Any]:
    """State of work as it is sent, without what each process makes of it for itself."""
    own = type(work)
    return {name: value for name, value in vars(work).items()
            if not isinstance(getattr(own, name, None), functools.cached_property)}  # fmt: skip


class AbstractSentWork:
    """Work on a `problem` that is pickled with plain arrays; cached properties stay where they are."""

    problem: Problem

    def __getstate__(self) -> dict[str, Any]:
        """With the problem as it is sent."""
        return _sent(self) | {"problem": plain(self.problem)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With the problem as it was."""
        vars(self).update(state | {"problem": read_back(state["problem"])})


class AbstractSentProblems:
    """Work on several `problems`, by name, that are pickled likewise."""

    problems: dict[str, Problem]

    def __getstate__(self) -> dict[str, Any]:
        """With the problems as they are sent."""
        return _sent(self) | {"problems": {name: plain(problem) for name, problem in self.problems.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With the problems as they were."""
        problems = {name: read_back(sent) for name, sent in state["problems"].items()}
        vars(self).update(state | {"problems": problems})
