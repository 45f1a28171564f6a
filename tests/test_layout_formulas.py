"""Formulas of training layouts over their whole range: traced as plain, finite, slopes as differences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_training_memory import JOB

from codesign import evaluate, replace, scenario_from_config
from codesign.jaxprs.evaluator import interpreted
from codesign.model.workloads import ExpertLoad, Muon

BASE = ("workload=training", "space=fixed", "model=mixtral_8x7b", "cluster.device_count=64", "plan.pp=1", "plan.ep=8")
BASE = (*BASE, "plan.virtual_stages=1", "plan.tp=1", "plan.cp=4", "plan.ulysses=2", "plan.zero=3", "optimizer=muon")
BASE = (*BASE, "workload.global_batch=64", "plan.recompute_modules=layernorm+moe_act", "workload.document_tokens=1024")
BASE = (*BASE, "plan.offload_activations=0.5", "plan.offload_modules=core_attn", "workload.expert_load.exponent=0.4")
NUMBERS = (
    "cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.network.scale_out.fabric.bandwidth_bytes_per_s",
    "workload.document_tokens", "workload.optimizer.state_bytes", "workload.optimizer.gather_bytes",
    "plan.offload_activations",
)  # fmt: skip


@pytest.mark.slow
def test_slopes_are_those_of_differences():
    scenario = scenario_from_config(*BASE)
    start = jnp.array([float(_get(scenario, path)) for path in NUMBERS])

    def figures(values):
        metrics = evaluate(replace(scenario, dict(zip(NUMBERS, values, strict=True))))
        return jnp.log(jnp.stack([metrics.time_s, metrics.memory_bytes["hbm/optimizer"],
                                  metrics.memory_bytes["hbm/activations"]]))  # fmt: skip

    slopes = interpreted(jax.jacobian(figures), always=True)(start) * start
    for index in range(len(NUMBERS)):
        step = 1e-5 * start[index]
        both = [figures(start.at[index].add(sign * step)) for sign in (1, -1)]
        np.testing.assert_allclose(slopes[:, index], (both[0] - both[1]) / 2e-5, rtol=1e-4, atol=1e-8)
    assert bool(jnp.isfinite(slopes).all())
    np.testing.assert_allclose(jax.jit(figures)(start), figures(start), rtol=1e-12)


def _get(scenario, path: str):
    from codesign import get_path

    return get_path(scenario, path)


@pytest.mark.parametrize("cv", [0.0, 3.0, 10.0])
def test_documents_of_any_length_are_finite(cv: float):
    for tokens in (0.0, 1e-3, 1.0, 1e3, 1e6, 1e12):
        job = dataclasses.replace(JOB, document_tokens=tokens, document_cv=cv)
        result = float(job.model_flops_per_step())
        assert 0 < result <= float(JOB.model_flops_per_step()) * (1 + 1e-12)
        slope = jax.grad(lambda x, cv=cv: dataclasses.replace(JOB, document_tokens=x, document_cv=cv)
                         .model_flops_per_step())(jnp.asarray(tokens))  # fmt: skip
        assert np.isfinite(float(slope))


def test_loads_and_momenta_at_the_ends_of_their_ranges():
    for load in (
        ExpertLoad(1, 4.0),
        ExpertLoad(7, 4.0),
        ExpertLoad(4096, 0.0),
        ExpertLoad(64, 4.0, capacity_factor=64.0),
    ):
        ratio = np.array([float(load.ratio(jnp.asarray(ranks))) for ranks in (1.0, 1e3, 1e9)])
        assert np.isfinite(ratio).all()
        assert (ratio >= 1 - 1e-9).all()
        assert (ratio <= load.experts * (1 + 1e-9)).all()
    for steps in (1.0, 100.0):
        job = dataclasses.replace(JOB, optimizer=Muon(steps=steps))
        assert job.optimizer.steps == steps
