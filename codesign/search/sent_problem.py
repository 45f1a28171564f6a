"""A problem as it is sent to another process, which may not have been told to keep 64 bits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .base import Problem


class AbstractSentWork:
    """Work on a `problem` that is pickled with plain arrays: JAX narrows what it reads before it is told not to."""

    problem: Problem

    def __getstate__(self) -> dict[str, Any]:
        """Plain arrays in place of JAX's."""
        scenario = jax.tree.map(np.asarray, self.problem.scenario)
        parts = {"scenario": scenario, "space": self.problem.space, "objective": self.problem.objective}
        return {name: value for name, value in vars(self).items() if name != "problem"} | parts

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In float64, as whoever made it."""
        jax.config.update("jax_enable_x64", True)
        scenario = jax.tree.map(jnp.asarray, state.pop("scenario"))
        self.problem = Problem(scenario, state.pop("space"), state.pop("objective"))
        vars(self).update(state)
