"""Muon: FLOPs of its steps counted by XLA, its result orthogonal, state and messages by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_training_memory import JOB, MODEL, held

from codesign import evaluate, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.workloads import Adam, Layout, MixtureOfExperts, Muon, Plan
from codesign.model.workloads.schedule import CommOp, ComputeOp

MUON = dataclasses.replace(JOB, optimizer=Muon())
SPARSE = dataclasses.replace(MUON, model=dataclasses.replace(MODEL, feed_forward=MixtureOfExperts(8.0, 2.0, 1024.0)))
STEPS = ((3.4445, -4.7750, 2.0315),) * 5  # published coefficients


def newton_schulz(x: jax.Array) -> jax.Array:
    x = x / jnp.linalg.norm(x)
    x = x.T if x.shape[0] > x.shape[1] else x
    for a, b, c in STEPS:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def update(job, *, phase: str = "optimizer", **plan) -> list:
    layout = Layout(Plan(**plan), 8.0)
    return [op for op in job.lower(layout) if op.phase == phase]


def product_flops(ops: list) -> float:
    return sum(float(op.work.flops * op.count) for op in ops if isinstance(op, ComputeOp) and op.kernel == "gemm")


SHAPES = [(2048, 3 * 2048), (2048, 2048), (2048, 8192), (8192, 2048)]  # of a layer of the model


def test_flops_are_those_that_xla_counts():
    """Three products a step; XLA also counts the elementwise rest, which is far less."""
    counted = 0.0
    for shape in SHAPES:
        compiled = jax.jit(newton_schulz).lower(jax.ShapeDtypeStruct(shape, jnp.float32)).compile()
        counted += compiled.cost_analysis()["flops"]
    assert product_flops(update(MUON)) == pytest.approx(16 * counted, rel=0.01)


def test_five_steps_leave_singular_values_near_one():
    x = jax.random.normal(jax.random.key(0), (32, 96))
    values = jnp.linalg.svd(newton_schulz(x), compute_uv=False)
    assert 0.6 < float(values.min()) < float(values.max()) < 1.3


def test_state_is_a_master_copy_and_a_momentum_and_adams_for_tables():
    layer, table = 12 * 2048**2 + 2 * 2048, 64000 * 2048
    for zero, shards in ((0.0, 1), (1.0, 8)):
        result = MUON.moments(Layout(Plan(zero=zero), 8.0))
        state = held(result["first", "update"], "optimizer")
        np.testing.assert_allclose(state, (16 * layer * 8 + 2 * table * 12) / shards, rtol=1e-12)
    np.testing.assert_allclose(float(MUON.saved_bytes(Layout(Plan(), 8.0))),
                               float(MODEL.inner_parameters()) * 10 + 2 * table * 14, rtol=1e-12)  # fmt: skip
    largest = 2 * (2048 * 8192 + 2048**2) * 4
    assert held(result["first", "update"], "matrices") == largest


def test_data_ranks_divide_matrices_and_no_rank_has_less_than_one():
    whole = product_flops(update(MUON))
    assert product_flops(update(MUON, zero=1.0)) == pytest.approx(whole / 8)
    few = dataclasses.replace(MUON, model=dataclasses.replace(MODEL, layers=jnp.asarray(1.0)))
    assert product_flops(update(few, zero=1.0)) == pytest.approx(product_flops(update(few)) / 4)  # of four matrices


def test_parts_of_matrices_travel_where_parameters_are_cut():
    assert sum(float(op.nbytes * op.count) for op in update(MUON, zero=2.0) if isinstance(op, CommOp)) == 0
    [gather] = [op for op in update(MUON, zero=3.0) if isinstance(op, CommOp)]
    weights = 16 * (12 * 2048**2 + 2 * 2048)
    assert (gather.axis, gather.operation, float(gather.count)) == ("data", "all_to_all", 2.0)
    np.testing.assert_allclose(float(gather.nbytes), weights / 8 * 2, rtol=1e-12)


@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_ranks_by_each_mode(tp: int):
    """Blocks of each matrix; whole matrices on each rank; Gram matrices of the side that is not cut."""

    def steps(shapes):
        return 5 * sum(4 * m * m * n + 2 * m**3 for m, n in shapes) * 16

    cut = [(2048, 6144 // tp), (2048 // tp, 2048), (2048, 8192 // tp), (8192 // tp, 2048)]
    plan = {"tp": float(tp)}
    modes = {mode: update(dataclasses.replace(MUON, optimizer=Muon(tp_mode=mode)), **plan)
             for mode in ("blockwise", "duplicated", "distributed")}  # fmt: skip
    assert product_flops(modes["blockwise"]) == pytest.approx(steps((min(s), max(s)) for s in cut))
    assert product_flops(modes["duplicated"]) == pytest.approx(steps((min(s), max(s)) for s in SHAPES))
    sides = [(2048, 6144 // tp), (2048, 2048 // tp), (2048, 8192 // tp), (2048, 8192 // tp)]
    assert product_flops(modes["distributed"]) == pytest.approx(steps(sides))
    gathered = sum(
        float(op.nbytes * op.count) for op in modes["duplicated"] if isinstance(op, CommOp) and op.axis == "tp"
    )
    assert gathered == pytest.approx(16 * sum(a * b for a, b in SHAPES) * 4)
    summed = sum(
        float(op.nbytes * op.count) for op in modes["distributed"] if isinstance(op, CommOp) and op.axis == "tp"
    )
    assert summed == pytest.approx(16 * 4 * 5 * 2048**2 * 4)


def test_every_expert_is_a_matrix_of_its_own():
    gated = [*SHAPES[:2], (2048, 8), *[(2048, 2048), (1024, 2048)] * 8]
    expected = 5 * 16 * sum(4 * min(s) ** 2 * max(s) + 2 * min(s) ** 3 for s in gated)
    assert product_flops(update(SPARSE)) == pytest.approx(expected)


@pytest.mark.slow
def test_a_step_with_muon_is_priced_whole():
    base = ("workload=training", "space=fixed", "model=llama31_8b", "cluster.device_count=64", "plan.virtual_stages=1")
    base = (*base, "plan.pp=1", "plan.tp=1", "plan.zero=3", "workload.global_batch=512")
    adam, muon = (evaluate(scenario_from_config(*base, *more)) for more in ((), ("optimizer=muon",)))
    assert isinstance(scenario_from_config(*base, "optimizer=adam").workload.optimizer, Adam)
    for metrics in (adam, muon):
        assert float(sum(metrics.breakdown_s.values())) == pytest.approx(float(metrics.time_s), rel=1e-9)
    assert float(muon.time_s) > float(adam.time_s)
    assert float(muon.memory_bytes["hbm/optimizer"]) < 0.72 * float(adam.memory_bytes["hbm/optimizer"])


def test_modes_have_names():
    with pytest.raises(ConfigError, match="tp_mode = 'block' does not exist"):
        Muon(tp_mode="block")
