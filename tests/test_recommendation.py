"""Recommendation models: counts against an executed look-up, limits by hand, slopes, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import cluster
from contracts.probing import midpoint_excess
from executed_embedding import balanced_indices, execute
from slopes import values_and_slopes

from codesign.config.checks import check_memory, check_plan
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted, quick_jit
from codesign.model.metrics import evaluate, memory_by_class
from codesign.model.scenario import Scenario
from codesign.model.workloads import (
    CommOp,
    ComputeOp,
    EmbeddingTables,
    Plan,
    Precision,
    Recommendation,
    RecommendationModel,
    RecommendationTraining,
)
from codesign.model.workloads.recommendation_model import hot_share

FP32 = Precision(compute="bf16", weights="fp32", activations="fp32")


def criteo(**tables) -> RecommendationModel:
    shape = dict(count=26.0, rows=7.2e6, dimension=128.0, pooling=1.0, skew=1.0) | tables
    return RecommendationModel(
        "criteo", EmbeddingTables(**shape), 13.0, [512, 256, shape["dimension"]], [1024, 1024, 512, 256, 1]
    )


def scenario(plan: Plan, devices: float = 8.0, model: RecommendationModel | None = None, *, kind=Recommendation, **job):
    return Scenario(cluster(devices), kind(model or criteo(), precision=FP32, **job), plan)


def named(job: Scenario) -> dict:
    return {op.name: op for op in job.workload.lower(job.layout)}


CUTS = [(4, 1, 1, 8), (4, 4, 1, 3), (4, 1, 2, 6), (8, 2, 2, 4), (8, 4, 2, 5), (8, 8, 1, 1), (4, 1, 1, 6)]


@pytest.mark.parametrize(("devices", "rows", "columns", "count"), CUTS)
def test_counts_of_an_executed_lookup(devices: int, rows: int, columns: int, count: int):
    """The fullest of the simulated devices holds, reads, adds and sends what the operations say."""
    rng = np.random.default_rng(devices * 100 + rows * 10 + columns)
    samples, height, width, pooling = 16, 32, 16, 8
    tables = rng.integers(-8, 8, (count, height, width)).astype(np.float32)
    indices = balanced_indices(rng, samples, count, pooling, height, rows)
    run = execute(tables, indices, devices, (rows, columns), index_bytes=8, length_bytes=4)
    np.testing.assert_array_equal(run.pooled, np.stack([tables[t][indices[:, t]].sum(1) for t in range(count)], 1))

    model = RecommendationModel("small", EmbeddingTables(count, height, width, pooling))
    plan = Plan(tp=devices, row_shards=rows, column_shards=columns, micro_batch=samples)
    job = scenario(plan, devices, model, access_bytes=4.0)
    ops, shard = named(job), job.workload.sharding(job.layout)
    fullest = max(run.devices, key=lambda device: device.held_bytes)
    assert float(shard.held_bytes()) == fullest.held_bytes
    assert float(shard.lookups()) == fullest.rows_read
    assert float(ops["embedding_lookup"].work.flops) == fullest.additions
    written = float(shard.sums()) * 4
    asked = float(ops["embedding_lookup"].work.nbytes) - written - fullest.rows_read * 8
    assert asked == fullest.row_bytes_read
    assert float(ops["embedding_indices"].nbytes) == fullest.index_bytes_in
    # a collective of n members sends (n - 1) / n of its buffer
    others = devices // rows
    partial = float(ops["embedding_partial_sums"].nbytes) * (rows - 1) / rows
    vectors = float(ops["embedding_vectors"].nbytes) * (others - 1) / others
    assert partial == max(device.sum_bytes_out["rows"] for device in run.devices)
    assert vectors == max(device.sum_bytes_out["tables"] for device in run.devices)


def test_interaction_and_perceptrons_of_an_executed_model():
    """Additions and products of one sample, counted while they are done."""
    model = criteo(pooling=3.0)
    vectors, dimension, products = 27, 128, 0
    for first in range(vectors):
        products += sum(2 * dimension for second in range(vectors) if second < first)
    for inputs, outputs in zip((13, 512, 256), (512, 256, 128), strict=True):
        products += 2 * inputs * outputs
    for inputs, outputs in zip((351 + 128, 1024, 1024, 512, 256), (1024, 1024, 512, 256, 1), strict=True):
        products += 2 * inputs * outputs
    assert float(model.forward_flops()) == products + 26 * 3 * 128
    assert float(model.dense_parameters()) == 2368897
    assert float(model.tables.parameters()) == 26 * 7.2e6 * 128


def test_zipf_against_the_sum():
    """Shares of the hottest rows from the exact harmonic numbers, and from draws."""
    rows = 20_000
    for exponent in (0.0, 0.6, 1.0, 1.2):
        weights = np.arange(1, rows + 1) ** -exponent
        exact = np.cumsum(weights) / weights.sum()
        held = np.array([10, 100, 1000, 10_000, rows])
        share = hot_share(jnp.asarray(1.0 * held), jnp.asarray(1.0 * rows), jnp.asarray(exponent))
        np.testing.assert_allclose(share, exact[held - 1], rtol=0.03)
    assert float(hot_share(jnp.asarray(0.0), jnp.asarray(1.0 * rows), jnp.asarray(1.0))) == 0
    np.testing.assert_allclose(
        hot_share(jnp.asarray(500.0), jnp.asarray(1.0 * rows), jnp.asarray(0.0)), 500 / rows, rtol=1e-12
    )
    drawn = np.random.default_rng(0).choice(rows, 200_000, p=np.arange(1, rows + 1) ** -1.0 / exact_sum(rows))
    np.testing.assert_allclose(
        hot_share(jnp.asarray(1000.0), jnp.asarray(1.0 * rows), jnp.asarray(1.0)), (drawn < 1000).mean(), rtol=0.01
    )


def exact_sum(rows: int) -> float:
    return float((1 / np.arange(1, rows + 1)).sum())


def test_one_device_sends_nothing():
    job = scenario(Plan(tp=1, micro_batch=4096.0), 1.0, criteo(rows=1e6))
    ops = [op for op in job.workload.lower(job.layout) if isinstance(op, CommOp)]
    metrics = evaluate(job)
    assert len(ops) == 3
    assert float(metrics.breakdown_s["indices"]) == float(metrics.breakdown_s["sums"]) == 0
    lookup = named(job)["embedding_lookup"]
    kernel = job.cluster.accelerator.kernel("embedding", "vector")
    seconds = 4e-6 + float(lookup.work.nbytes) / (0.8 * 3.35e12)
    np.testing.assert_allclose(float(metrics.breakdown_s["lookup"]), seconds, rtol=1e-12)
    assert float(kernel.t0_s) == 4e-6


def test_shared_memory_sends_nothing_and_reads_its_own_samples():
    apart = scenario(Plan(tp=8, row_shards=8, micro_batch=8192.0))
    together = scenario(Plan(tp=8, row_shards=8, micro_batch=8192.0), shared_memory=1.0)
    assert all(float(op.count) == 0 for op in together.workload.lower(together.layout) if isinstance(op, CommOp))
    shards = [job.workload.sharding(job.layout) for job in (apart, together)]
    np.testing.assert_allclose(shards[0].lookups(), shards[1].lookups(), rtol=1e-12)  # the work is the same,
    assert float(shards[0].sums()) == 8 * float(shards[1].sums())  # but nobody writes partial sums
    assert float(evaluate(together).time_s) < float(evaluate(apart).time_s)


def test_short_rows_cost_whole_accesses():
    """A row of 512 bytes in 32 columns is 16 bytes, of which memory reads 32."""
    cuts = [scenario(Plan(tp=32, column_shards=c, micro_batch=8192.0), 32.0) for c in (4.0, 16.0, 32.0)]
    rows = [float(job.workload.sharding(job.layout).row_bytes()) for job in cuts]
    assert rows == [128, 32, 32]


def test_far_rows_are_the_cold_ones():
    job = scenario(Plan(tp=8, micro_batch=8192.0, offload_weights=0.9))
    shard, ops = job.workload.sharding(job.layout), named(job)
    misses = 1 - float(hot_share(jnp.asarray(0.1 * 7.2e6), jnp.asarray(7.2e6), jnp.asarray(1.0)))
    np.testing.assert_allclose(
        float(ops["embedding_far_rows"].nbytes), misses * float(shard.lookups()) * 512, rtol=1e-9
    )
    held = memory_by_class(job)
    np.testing.assert_allclose(float(held["ddr/tables"]), 0.9 * float(shard.held_bytes()), rtol=1e-12)
    np.testing.assert_allclose(float(held["hbm/tables"]), 0.1 * float(shard.held_bytes()), rtol=1e-9)


def test_training_step_by_hand():
    """Three products a layer, gradients of vectors as large as the sums, one all-reduce of the perceptrons."""
    job = scenario(Plan(tp=8, row_shards=2, micro_batch=8192.0), kind=RecommendationTraining)
    ops = job.workload.lower(job.layout)
    forward = sum(float(op.work.flops * op.count) for op in ops if isinstance(op, ComputeOp) and op.phase == "bottom")
    back = sum(float(op.work.flops * op.count) for op in ops if getattr(op, "phase", "") == "bottom_backward")
    assert back == 2 * forward
    there, here = (
        [float(op.nbytes) for op in ops if isinstance(op, CommOp) and op.phase == p] for p in ("sums", "vectors_back")
    )
    assert there == here
    gradients = named(job)["dense_gradients"]
    assert (gradients.operation, gradients.axis, float(gradients.nbytes)) == ("all_reduce", "world", 4 * 2368897)
    assert float(job.workload.violations(job.layout)["replicas"]) == 0
    two = scenario(Plan(tp=4, micro_batch=8192.0), kind=RecommendationTraining)
    assert float(two.workload.violations(two.layout)["replicas"]) == 1


BOX = {  # leaf -> what it may be
    "plan.micro_batch": (8.0, 65536.0), "plan.offload_weights": (0.0, 1.0), "plan.tp_overlap": (0.0, 1.0),
    "plan.row_shards": (1.0, 8.0), "plan.column_shards": (1.0, 8.0), "plan.tp": (1.0, 8.0),
    "workload.model.tables.pooling": (0.0, 100.0), "workload.model.tables.skew": (0.0, 3.0),
    "workload.model.tables.count": (1.0, 100.0), "workload.model.tables.rows": (1.0, 1e9),
    "workload.model.tables.dimension": (4.0, 512.0), "workload.imbalance": (1.0, 4.0),
    "workload.access_bytes": (1.0, 128.0), "workload.shared_memory": (0.0, 1.0),
    "cluster.accelerator.hbm.bandwidth_bytes_per_s": (1e9, 1e14), "cluster.host.link.beta_s_per_byte": (1e-13, 1e-9),
    "cluster.network.scale_up.fabric.bandwidth_bytes_per_s": (1e9, 1e13),
    "cluster.network.scale_out.fabric.bandwidth_bytes_per_s": (1e9, 1e12),
}  # fmt: skip
NAMES = tuple(BOX)
JOBS = {
    kind.__name__: scenario(Plan(tp=8, micro_batch=8192.0), 16.0, kind=kind)
    for kind in (Recommendation, RecommendationTraining)
}


def seconds(job: Scenario, values):
    metrics = evaluate(replace(job, dict(zip(NAMES, values, strict=True))))
    return metrics.time_s, metrics.energy_j


def priced(job: Scenario, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds [points] and their slopes [points, leaves]."""
    columns = dict(zip(NAMES, points.T, strict=True))
    values, slopes = values_and_slopes(
        lambda at: [seconds(job, [at[n] for n in NAMES])[0]], dict.fromkeys(NAMES, 1.0), columns
    )
    return values[:, 0], np.concatenate([slopes[n] for n in NAMES], axis=1)


def corners(count: int, seed: int) -> np.ndarray:
    """Points of the legal box, its ends included."""
    rng = np.random.default_rng(seed)
    low, high = np.array(list(BOX.values())).T
    share = rng.uniform(0, 1, (count, len(low)))
    share[::3] = rng.integers(0, 2, share[::3].shape)
    return low + share**3 * (high - low)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_finite_everywhere_with_slopes_as_differences_say(name: str):
    """Values and slopes over the legal box; slopes in the middle against differences; jit = vmap = plain."""
    job, points = JOBS[name], corners(60, 3)
    # smooth leaves only: counts of tables and accesses are rounded up, which slopes pass by
    smooth = [n for n in NAMES if not n.endswith(("tp", "shards", "count", "dimension", "access_bytes", "skew"))]
    low, high = np.array(list(BOX.values())).T
    middle = np.sqrt(np.maximum(low, 1e-2) * high)
    middle[[NAMES.index(n) for n in NAMES if n.endswith(("shards", "tp"))]] = (2.0, 2.0, 8.0)
    middle[[NAMES.index("workload.model.tables.count"), NAMES.index("workload.model.tables.dimension")]] = (24.0, 64.0)
    middle[NAMES.index("workload.access_bytes")] = 32.0
    step = 1e-5
    moved = [middle]
    for n in smooth:
        for sign in (1, -1):
            moved.append(middle.copy())
            moved[-1][NAMES.index(n)] *= 1 + sign * step
    value, slope = priced(job, np.concatenate([points, moved]))
    assert np.isfinite(value).all()
    assert (value > 0).all()
    assert np.isfinite(slope).all()
    value, slope = value[len(points) :], slope[len(points) :]
    compiled = quick_jit(jax.vmap(lambda values: seconds(job, values)[0]))(jnp.asarray(np.stack(moved)))
    np.testing.assert_allclose(compiled, value, rtol=1e-12)
    np.testing.assert_allclose(float(seconds(job, middle)[0]), value[0], rtol=1e-12)
    for place, n in enumerate(smooth):
        difference = (value[1 + 2 * place] - value[2 + 2 * place]) / (2 * step)
        own = slope[0, NAMES.index(n)] * middle[NAMES.index(n)]
        assert own == pytest.approx(difference, rel=1e-4, abs=1e-7 * value[0]), n


def test_log_convex_in_hardware():
    leaves = [n for n in NAMES if n.startswith("cluster")]
    job = scenario(Plan(tp=16, row_shards=4, micro_batch=8192.0, offload_weights=0.5, tp_overlap=0.7), 16.0)

    @interpreted
    @jax.vmap
    def time(logs):
        return evaluate(replace(job, dict(zip(leaves, jnp.exp(logs), strict=True)))).time_s

    low, high = np.log(np.array([BOX[n] for n in leaves])).T
    a, b = (jnp.asarray(np.random.default_rng(s).uniform(low, high, (64, len(leaves)))) for s in (1, 2))
    assert midpoint_excess(time, a, b) <= 1e-9


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (dict(tp=8, row_shards=3, micro_batch=64.0), "does not divide plan.tp = 8"),
        (dict(tp=8, pp=2, micro_batch=64.0), "pp, cp and ep must be 1"),
        (dict(tp=8, micro_batch=60.0), "plan.micro_batch = 60"),
        (dict(tp=3, micro_batch=60.0), "cluster.device_count = 8"),
    ],
)
def test_broken_rules_are_told(plan: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        check_plan(scenario(Plan(**plan)))


def test_more_devices_than_tables_is_told():
    with pytest.raises(ConfigError, match="8 groups of devices for 4 tables"):
        check_plan(scenario(Plan(tp=8, micro_batch=64.0), model=criteo(count=4.0)))
    check_plan(scenario(Plan(tp=8, micro_batch=64.0, row_shards=2), model=criteo(count=4.0)))


def test_a_table_larger_than_all_memory_is_told():
    """8 devices x (76 + 512) GB = 4.7 TB; a table of 10 TB is 5.3 TB too much. One of 400 GB only wants cutting."""
    huge = scenario(Plan(tp=8, row_shards=8, micro_batch=64.0), model=criteo(count=1.0, rows=10e12 / 512))
    with pytest.raises(ConfigError, match=r"one embedding table of 10,000.0 GB is larger than all memory") as error:
        check_memory(huge)
    assert "5,296.0 GB too much" in str(error.value)
    many = scenario(Plan(tp=8, micro_batch=64.0), model=criteo(count=40.0, rows=200e9 / 512))
    with pytest.raises(ConfigError, match=r"40 embedding tables of 8,000.0 GB"):
        check_memory(many)
    with pytest.raises(ConfigError, match=r"cluster.accelerator.hbm lacks .*smallest change that fits"):
        check_memory(scenario(Plan(tp=8, micro_batch=64.0), model=criteo(count=8.0, rows=100e9 / 512)))
    with pytest.raises(ConfigError, match="must all be positive"):
        RecommendationModel("bad", EmbeddingTables(1.0, 1.0, 1.0), 1.0, [8, -1])
