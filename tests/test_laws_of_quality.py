"""Laws of quality: values that were printed, slopes, ranges, intervals; and the metrics of a run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from _lib.lifetime_demand import least_flops, lifetime_of
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.scaling_laws import (
    BitWidths,
    DenseLaw,
    FineGrainedLaw,
    JointLaw,
    PrecisionLaw,
    ShapeCorrection,
    TrainedModel,
)

LAWS = [DenseLaw, JointLaw, FineGrainedLaw, PrecisionLaw]


def model(parameters=2e9, active=1e9, tokens=5e10, expansion=4.0, granularity=2.0) -> TrainedModel:
    numbers = (parameters, active, 0.9 * parameters, tokens, expansion, granularity)
    return TrainedModel(*map(jnp.asarray, numbers), BitWidths())


@functools.cache
def shipped(name: str):
    return scenario_from_config("workload=training_run", f"scaling_law={name}").workload.scaling_law


def loss_of(law):
    def loss(x):
        parameters, tokens = jnp.exp(x[0]), jnp.exp(x[1])
        return law.loss(
            model()._replace(parameters=parameters, active=0.5 * parameters, inner=0.9 * parameters, tokens=tokens)
        )

    return loss


@pytest.mark.parametrize("cls", LAWS)
def test_slopes_batches_and_curvature(cls):
    """Slopes are differences; a batch is what one by one is; logarithms are convex in those of size and data."""
    loss, rng = loss_of(cls.example()), np.random.default_rng(0)
    run, slopes = interpreted(jax.vmap(loss), always=True), interpreted(jax.vmap(jax.grad(loss)), always=True)
    a, b = rng.uniform([18, 21], [25, 29], (2, 30, 2))
    steps = 1e-5 * np.eye(2)
    result = slopes(a)
    for axis in range(2):
        difference = (run(a + steps[axis]) - run(a - steps[axis])) / 2e-5
        assert np.allclose(result[:, axis], difference, rtol=1e-6, atol=1e-9)
    assert np.allclose(run(a), [float(loss(jnp.asarray(one))) for one in a], rtol=1e-12)
    assert np.all(np.log(run((a + b) / 2)) <= 0.5 * (np.log(run(a)) + np.log(run(b))) + 1e-12)
    if cls is not PrecisionLaw:
        assert np.all(result < 0)  # more is better, but for rounding after training


@pytest.mark.slow
def test_what_was_printed():
    assert float(shipped("besiroglu").at(70e9, 1.4e12)) == pytest.approx(1.9739, abs=1e-4)
    joint = shipped("ludziejewski")
    assert [float(x) for x in joint.reduced(8.0)] == pytest.approx([21.833, -0.1676, 119.91, -0.2338], rel=1e-3)
    assert float(joint.optimum(1e21, 8.0)[0]) == pytest.approx(3.8e9, rel=0.01)
    fine = shipped("krajewski")
    assert float(fine.at(4.3e9, 4.37e9, 8.0)) == pytest.approx(3.133, rel=0.01)  # a row of its table of optima
    few = shipped("kumar").kept(BitWidths(4.0, 1e3, 1e3))
    assert float(few) == pytest.approx(0.776, abs=1e-3)
    small = lifetime_of(shipped("sardana"), 7e9, 2.0452817884779284, 2e12)
    assert 9.696587420341147e22 - small.flops == pytest.approx(1.7e22, rel=0.01)


def test_the_optimum_is_one():
    """Of the formula, over sizes at the same arithmetic; inference demand moves it down."""
    law = shipped("besiroglu")
    size = float(law.optimum(1e21)[0])
    at = [float(law.at(size * r, 1e21 / 6 / (size * r))) for r in (0.98, 1.0, 1.02)]
    assert at[1] <= min(at)
    sizes = [least_flops(law, 2.2, served).parameters for served in (0.0, 1e11, 1e12, 1e13)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(float(law.optimum(least_flops(law, 2.2, 0.0).flops)[0]), rel=1e-3)


@pytest.mark.slow
def test_intervals_widen_outside_and_are_first_order():
    """Draws of the constants spread the loss as the interval says, where errors are small."""
    law = DenseLaw.example()
    low, loss, high = (float(law.metrics(model())[name]) for name in ("loss_low", "loss", "loss_high"))
    assert 0 < low < loss < high
    rng = np.random.default_rng(0)
    errors = {
        "entropy": 1e-3,
        "parameters_scale": 1.0,
        "tokens_scale": 5.0,
        "parameters_power": 1e-4,
        "tokens_power": 1e-4,
    }
    exact = replace(law, {f"errors.{name}": error for name, error in errors.items()})
    drawn = [
        float(
            replace(law, {name: float(getattr(law, name)) + e * rng.normal() for name, e in errors.items()}).loss(
                model()
            )
        )
        for _ in range(400)
    ]
    assert float(exact.deviation(model())) == pytest.approx(np.std(drawn), rel=0.12)
    assert "loss_low" not in shipped("hoffmann").metrics(model())


@pytest.mark.parametrize("cls", LAWS)
def test_outside_its_range_a_law_refuses_unless_it_is_asked(cls):
    law, large = cls.example(), model(parameters=1e15, active=1e15)
    assert float(law.limits(large)["scaling_law.parameters"]) > 100
    assert float(law.metrics(large)["loss_beyond"]) > 100
    asked = replace(law, {"extrapolate": 1.0})
    assert all(float(share) == 0 for share in asked.limits(large).values())
    assert float(asked.metrics(large)["loss_beyond"]) > 100


@pytest.mark.slow
def test_a_configured_run_is_refused_outside_in_one_line():
    from codesign.config import check_memory

    scenario = scenario_from_config("workload=training_run", "scaling_law=besiroglu", "plan=megatron_3d")
    with pytest.raises(ConfigError, match=r"workload.scaling_law: parameters lie 10\.9 times outside the range"):
        check_memory(scenario)
    with pytest.raises(ConfigError, match=r"workload\.scaling_law: Training has no such argument"):
        scenario_from_config("scaling_law=besiroglu")


def shaped(width=2560.0, depth=32.0, **others) -> TrainedModel:
    return model(**others)._replace(width=jnp.asarray(width), depth=jnp.asarray(depth))


def test_the_factor_of_a_shape_is_one_at_the_best_of_as_many_weights():
    """Tried over aspect ratios at equal m^2 l; nowhere below 1; its slope against a difference."""
    one = shipped("besiroglu_shaped").shape
    for volume in (1e8 / 12, 4e9 / 12):
        ratios = np.geomspace(10, 400, 4001)
        depths = (volume / ratios**2) ** (1 / 3)
        tried = np.asarray(one.factor(shaped(ratios * depths, depths)))
        assert tried.min() == pytest.approx(1, abs=1e-6)
        assert tried.min() >= 1 - 1e-12
        best = ratios[np.argmin(tried)]
        assert float(one.best_aspect_ratio(shaped(100 * volume ** (1 / 3), volume ** (1 / 3) / 1e4))) == pytest.approx(
            best, rel=2e-3
        )
        assert 50 < best < 80
    slope = jax.grad(lambda depth: one.factor(shaped(depth=depth)))(40.0)
    difference = (one.factor(shaped(depth=40.001)) - one.factor(shaped(depth=39.999))) / 0.002
    assert float(slope) == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.slow
def test_a_shape_raises_what_is_lost_to_size_only():
    for name in ("besiroglu", "kumar"):
        plain, corrected = shipped(name), shipped(f"{name}_shaped")
        best, flat = shaped(2560.0, 40.0), shaped(5120.0, 10.0)
        factor = float(corrected.shape.factor(flat))
        more = float(corrected.loss(flat) - plain.loss(flat))
        assert float(corrected.loss(best) - plain.loss(best)) < 0.01 * more
        much = flat._replace(tokens=jnp.asarray(1e30), parameters=flat.parameters, served_bits=1000.0)
        of_size = float(plain.loss(much) - plain.least())
        assert more == pytest.approx((factor - 1) * of_size, rel=1e-6)


def test_shapes_outside_those_that_were_trained_are_refused():
    law = shipped("besiroglu_shaped")
    limits = law.limits(shaped(4096.0, 32.0))
    assert float(limits["scaling_law.aspect_ratios"]) == pytest.approx(128 / 109)
    assert max(float(limits[f"scaling_law.{name}"]) for name in ("widths", "layers")) <= 1
    assert float(law.limits(shaped(512.0, 8.0))["scaling_law.layers"]) == pytest.approx(9 / 8)
    from codesign.config import check_memory

    asked = ("workload=training_run", "scaling_law=besiroglu_shaped", "workload.tokens=1e11", "plan=megatron_3d")
    wide = scenario_from_config(*asked, "model=llama31_8b")
    with pytest.raises(ConfigError, match=r"workload.scaling_law: aspect_ratios lie 1\.17 times outside the range"):
        check_memory(wide)


def test_the_interval_of_a_shape_is_first_order_in_the_ratio_of_its_scales():
    one, at, rng = ShapeCorrection.example(), shaped(4096.0, 24.0), np.random.default_rng(0)
    drawn = [
        float(replace(one, {"depth_scale": float(one.depth_scale) * np.exp(0.01 * rng.normal())}).factor(at))
        for _ in range(400)
    ]
    small = replace(one, {"ratio_error": 0.01})
    assert float(small.deviation(at)) == pytest.approx(np.std(drawn), rel=0.12)
    law = shipped("besiroglu_shaped")
    assert float(law.deviation(shaped(5120.0, 47.0))) > float(
        replace(law, {"shape.ratio_error": 0.0}).deviation(shaped(5120.0, 47.0))
    )
