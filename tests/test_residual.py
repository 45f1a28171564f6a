"""Learned factors of kernel times: bounded, blind to the design's own rates, read with distrust, provable."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from codesign.config import scenario_from_config, study_from_config
from codesign.core.errors import DataError
from codesign.evidence.calibration.fit import work_array
from codesign.evidence.calibration.gpus import Device, Peaks
from codesign.evidence.calibration.kernels import TABLES, TableGroup, gemm_works
from codesign.evidence.calibration.learned_factors import Launches, as_bytes, corrected, label_of, names_of, train
from codesign.model.hardware import Chip, Elementwise, Gemm, Residual, Work
from codesign.model.hardware.residual import BOUND, UNKNOWN, FitContext, ShapeNetwork, features, load
from codesign.model.metrics import evaluate
from codesign.search.branch_and_bound.node_relaxation import oracle_for
from codesign.search.branch_and_bound.oracle import rows_of

LABEL = "gemm h100_sxm trtllm bf16"
CHIP = Chip(label=LABEL)
NAMES = (("h100_sxm",), ("trtllm",), ("bf16", "fp8"))


def network(seed: int = 0, scale: float = 1.0) -> ShapeNetwork:
    """One with random numbers."""
    rng, width = np.random.default_rng(seed), features(Work(1.0, 1.0), CHIP).shape[-1]
    sizes = ((width, 8), (8, 8), (8, 8), (8, 1))
    return ShapeNetwork(
        tuple(scale * rng.normal(size=size) for size in sizes), tuple(rng.normal(size=size[1]) for size in sizes),
        np.zeros(width), np.ones(width), NAMES, tuple(rng.normal(size=(len(names) + 1, 8)) for names in NAMES),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for number, kind in enumerate(("gemm", "attention_prefill", "attention_decode")):
        (tmp_path / f"{kind}.npz").write_bytes(as_bytes(network(number)))
    return str(tmp_path)


def works(count: int = 200) -> Work:
    rng = np.random.default_rng(1)
    sizes = np.exp(rng.uniform(0.0, 11.0, (3, count))).round()
    batch = np.exp(rng.uniform(0.0, 6.0, count)).round()
    return Work(2 * batch * sizes.prod(axis=0), batch * sizes.sum(axis=0), *sizes, batch, np.ceil(batch / 2))


@pytest.mark.slow
def test_a_factor_is_bounded_and_the_same_alone_in_a_batch_and_compiled(folder):
    residual, kernel, many = Residual(folder), Gemm(chip=CHIP), works()
    result = np.asarray(residual.factor(kernel, many))
    assert (np.abs(np.log(result)) <= BOUND).all()
    assert np.ptp(np.log(result)) > 1.0  # not one number for all
    alone = [float(residual.factor(kernel, jax.tree.map(lambda x, i=i: x[i], many))) for i in range(20)]
    np.testing.assert_allclose(result[:20], alone, rtol=1e-12)
    np.testing.assert_allclose(eqx.filter_jit(residual.factor)(kernel, many), result, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(lambda work: residual.factor(kernel, work))(many), result, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("extent", [0.0, 1.0, 1e15])
def test_finite_with_finite_slopes_at_the_ends_of_what_may_be_asked(folder, extent):
    residual, kernel = Residual(folder), Gemm(chip=CHIP)
    value, slope = jax.value_and_grad(lambda x: residual.factor(kernel, Work(x, x, x, x, x, x, x)))(jnp.asarray(extent))
    assert np.isfinite(value)
    assert np.isfinite(slope)


def test_slopes_in_a_shape_are_those_of_differences(folder):
    residual, kernel = Residual(folder), Gemm(chip=CHIP)

    def told(depth):
        return jnp.log(residual.factor(kernel, Work(1e9, 1e6, 300.0, 500.0, depth, 1.0, 1.0)))

    depth, step = 777.3, 1e-4
    by_hand = (told(depth + step) - told(depth - step)) / (2 * step)
    assert float(jax.grad(told)(depth)) == pytest.approx(float(by_hand), rel=1e-5)


def test_what_was_not_measured_has_the_embedding_of_the_unknown(folder):
    one = load(Path(folder) / "gemm.npz")
    known = one.context(FitContext("gemm", "h100_sxm", "trtllm", "bf16"))
    other = one.context(FitContext("gemm", "h20", "trtllm", "bf16"))
    np.testing.assert_allclose(other - known, one.embeddings[0][UNKNOWN] - one.embeddings[0][1], atol=1e-12)


@pytest.mark.parametrize("kernel", [Gemm(), Elementwise(), Gemm(chip=Chip(label="moe_gemm h100_sxm trtllm bf16"))])
def test_nothing_is_multiplied_where_nothing_was_learned(folder, kernel):
    assert float(Residual(folder).factor(kernel, Work(1e9, 1e6))) == 1.0


def _spoilt(path, **changes):
    with np.load(path) as file:
        arrays = dict(file) | changes
    np.savez(path, **{name: part for name, part in arrays.items() if part is not None})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_bytes(b"no archive"), "no network"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "no network"),
        (lambda path: _spoilt(path, weight_1=None), "no network"),
        (lambda path: _spoilt(path, weight_1=np.full((8, 8), np.nan)), "not finite"),
        (lambda path: _spoilt(path, weight_1=np.ones((8, 7))), "do not fit"),
        (lambda path: _spoilt(path, weight_1=np.array([{}])), "no network"),
        (lambda path: _spoilt(path, edition=np.asarray(7)), "edition 7"),
    ],
)
def test_a_damaged_file_is_one_line(folder, spoil, says):
    path = Path(folder) / "gemm.npz"
    spoil(path)
    with pytest.raises(DataError, match=says) as caught:
        Residual(folder).factor(Gemm(chip=CHIP), Work(1e9, 1e6))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_study_with_factors_is_still_proven_log_convex(folder):
    """The factor is a constant of the plan: the walk sees through the network."""
    plain = study_from_config("space.plan.tp=[1,2]", "space.plan.pp=[1,2]")
    study = study_from_config(
        "space.plan.tp=[1,2]", "space.plan.pp=[1,2]", "kernel_correction=learned", f"kernel_correction.folder={folder}"
    )
    before, after = evaluate(plain.scenario).time_s, evaluate(study.scenario).time_s
    assert float(after) != pytest.approx(float(before), rel=1e-3)
    oracle = oracle_for(study.problem, rows_of(study.problem), 512)
    judgement = oracle.judged()
    assert not judgement.unproven


@pytest.mark.slow
def test_no_slope_along_the_rates_of_the_design(folder):
    """log seconds = log factor + log physics: slopes in peak and bandwidth are those of the physics."""
    plain = scenario_from_config()
    learned = scenario_from_config("kernel_correction=learned", f"kernel_correction.folder={folder}")

    def slopes(scenario):
        accelerator, work = scenario.cluster.accelerator, Work(1e12, 1e8, 4096.0, 4096.0, 4096.0, 1.0, 1.0)

        def told(rates):
            kernel = accelerator.kernel("gemm", "bf16")
            factor = accelerator.kernel_correction.factor(kernel, work) if accelerator.kernel_correction else 1.0
            return jnp.log(factor * kernel.time_s(work, *rates))

        return np.asarray(jax.grad(told)(jnp.asarray([9e14, 3e12])))

    np.testing.assert_allclose(slopes(learned), slopes(plain), rtol=1e-12)


@pytest.mark.slow
def test_training_finds_what_was_hidden_in_the_rows():
    """Products whose time is the physics times a known function of the shape; half of it remains unseen."""
    rng, count = np.random.default_rng(0), 600
    sizes = np.exp(rng.uniform(3.0, 9.0, (3, count))).round()
    columns = {"m": sizes[0], "n": sizes[1], "k": sizes[2], "dtype": np.full(count, "bfloat16")}
    device = Device("H100", "h100_sxm", True, Peaks(989e12, 1979e12, np.nan, 3.35e12, 450e9), 132.0, 50e6)
    group = TableGroup(
        TABLES[0], device, "trtllm", "bf16", 989e12, 2.0, gemm_works(pd.DataFrame(columns)), np.ones(count)
    )
    kernel = Gemm(chip=CHIP)
    work = Work(*np.moveaxis(work_array(group)[:, 0], -1, 0))
    physics = np.asarray(jax.vmap(lambda one: kernel.time_s(one, jnp.asarray(989e12), jnp.asarray(3.35e12)))(work))
    measured = physics * np.exp(0.3 * np.sin(np.log(sizes[0])) + 0.2 * (sizes[1] > 500))
    told = np.asarray(features(work, CHIP))[:, None]
    rows = Launches(told, np.ones((count, 3), dtype=int), physics[:, None], measured, np.zeros(count, dtype=int))
    half = rng.random(count) < 0.5
    learned = train(rows.some(half), names_of([group]), steps=600)
    result = corrected(rows, [group], [kernel], learned)[~half]
    assert label_of(group) == FitContext.of(LABEL)
    before = np.median(np.abs(physics / measured - 1)[~half])
    assert np.median(np.abs(result / measured[~half] - 1)) < 0.5 * before
    assert as_bytes(learned) == as_bytes(train(rows.some(half), names_of([group]), steps=600))  # the same again
