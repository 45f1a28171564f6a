"""Goals and floors that a search takes logarithms of must be positive: told at the start, by a sample of the space."""

import jax
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError
from ..staging import Answers, at_points, model_of
from .base import AbstractSearch, Problem

PLANS, POINTS = 64, 256  # of the sample


def refuse_without_logarithm(search: AbstractSearch, problem: Problem, seed: int = 0) -> None:
    """Evaluate what might be zero or negative at legal plans and at hardware anywhere in its range, corners too.

    Quantities that their form keeps positive cost nothing.

    Raises:
        ConfigError: one that is not, with a value it takes and the searches that need no logarithm.
    """
    asked = search.logged(problem)
    if not asked:
        return
    space, rng = problem.space, np.random.default_rng(seed)
    plans = space.legal_sample(problem.scenario, PLANS, seed)
    plan = plans[np.arange(POINTS) % len(plans)]
    u = rng.uniform(size=(POINTS, len(space.names)))
    u[: POINTS // 2] = np.round(u[: POINTS // 2])  # most quantities are least at a corner

    def told(answers: Answers) -> list[Array]:
        return [problem.objective.value(answers.metrics, text) for _, text in asked]

    values = space.values({name: u[:, i] for i, name in enumerate(space.names)})
    columns = [*plan.T, *(values[name] for name in space.names)]
    program = model_of(problem.scenario, space, tuple(space.plan)).asked(told)
    result = at_points(program, jax.tree.leaves(problem.scenario), columns)
    result = np.stack([np.broadcast_to(column, (POINTS,)) for column in result], axis=-1)
    for (where, text), values in zip(asked, result.T, strict=True):
        bad = values[~(values > 0)]
        if len(bad):
            raise ConfigError(
                f"{where} = {text!r} is {bad.min():.4g} in {len(bad) / POINTS:.0%} of a sample of the space, but this"
                " search takes its logarithm: make it positive, or take search=grid or search=differential_evolution"
            )
