"""The staged model is lowered for CUDA ahead of time: no option of the CPU's compiler, no call back to the host."""

import jax
import jax.numpy as jnp
import pytest
from contracts.problems import made

from codesign.model.metrics import evaluate


@pytest.mark.parametrize("platform", ["cuda", "cpu"])
def test_goal_and_slopes_are_lowered(platform):
    problem = made()

    def goal(u):
        metrics = evaluate(problem.space.place(problem.scenario, problem.space.values(u)))
        return problem.objective.log_goal(metrics)

    many = jax.jit(jax.vmap(jax.value_and_grad(goal)))
    points = {name: jax.ShapeDtypeStruct((256,), jnp.float64) for name in problem.space.names}
    lowered = jax.export.export(many, platforms=[platform])(points)
    assert lowered.platforms == (platform,)
    text = lowered.mlir_module()
    assert "custom_call" not in text  # neither host callbacks nor kernels that a platform may lack
    assert "f64" in text
    assert platform == "cpu" or "xla_cpu" not in text
