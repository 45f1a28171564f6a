"""Lowering of training steps against formulas of the literature, limits by hand, and what every model must satisfy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import cluster, gpt3, training

from codesign.core.fields import get_path, replace
from codesign.core.units import GIB
from codesign.jaxprs.evaluator import interpreted, quick_jit
from codesign.model.hardware import Roofline
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import (
    DenseFeedForward,
    GroupedQueryAttention,
    Layout,
    Plan,
    Precision,
    Training,
    Transformer,
)

SLOWEST_LINKS = {
    "cluster.network.scale_up.fabric.bandwidth_bytes_per_s": 1e30,
    "cluster.network.scale_out.fabric.bandwidth_bytes_per_s": 1e30,
    "cluster.network.scale_up.fabric.latency_s": 0.0,
    "cluster.network.scale_out.fabric.latency_s": 0.0,
    "cluster.network.scale_out.fabric.hop_latency_s": 0.0,
}
MEGATRON = {  # layers, hidden, heads, micro-batch, pipeline stages, interleaving of Korthikanti et al. 2022, table 3
    "22B": (48, 6144, 64, 4, 1, 1),
    "175B": (96, 12288, 96, 1, 8, 3),
    "530B": (105, 20480, 128, 1, 35, 3),
    "1T": (128, 25600, 160, 1, 64, 1),
}


def gpt(layers: float, hidden: float, heads: float, *, fused: bool = False, **changes) -> Transformer:
    """A GPT with a materialised score matrix: what the papers of 2021 and 2022 count."""
    attention = GroupedQueryAttention(heads, heads, hidden / heads, causal=0.0, fused=fused)
    values = dict(
        name="gpt", hidden=hidden, layers=layers, attention=attention, feed_forward=DenseFeedForward(4 * hidden),
        norm_vectors=2.0, dropout=True,
    )  # fmt: skip
    return Transformer(**(values | changes))


def ideal(scenario: Scenario) -> Scenario:
    """Links and memory without limits, kernels at the peak of their matrices and nothing else to pay."""
    values = SLOWEST_LINKS | {
        "cluster.accelerator.hbm.bandwidth_bytes_per_s": 1e30,
        "cluster.accelerator.peak_flops_per_s.vector": 1e30,
    }
    bare = replace(scenario, values)
    kernels = {
        kind: {name: Roofline() for name in formats} for kind, formats in bare.cluster.accelerator.kernels.items()
    }
    return eqx.tree_at(lambda s: s.cluster.accelerator.kernels, bare, kernels)


def megatron(size: str, **plan) -> tuple[Scenario, Layout]:
    layers, hidden, heads, micro_batch, stages, chunks = MEGATRON[size]
    layout = Plan(tp=8.0, pp=stages, virtual_stages=chunks, micro_batch=micro_batch, **plan)
    job = Training(gpt(layers, hidden, heads), sequence=2048.0, global_batch=64.0 * stages * micro_batch)
    scenario = Scenario(cluster(8.0 * stages), job, layout)
    return scenario, scenario.layout


def test_forward_flops_of_a_layer():
    """24 b s h^2 (1 + s / 6h) of Narayanan et al. 2021, appendix."""
    hidden, sequence, micro_batch = 4096.0, 2048.0, 2.0
    for fused in (True, False):
        job = Training(gpt(1.0, hidden, 32.0, fused=fused), sequence=sequence, global_batch=micro_batch)
        shard = job.shard(Layout(Plan(micro_batch=micro_batch), 1.0))
        ops = job.model.layer_ops(shard)
        matrix = sum(float(op.forward.flops) for op in ops if op.forward is not None and op.number_format != "vector")
        want = 24 * micro_batch * sequence * hidden**2 * (1 + sequence / (6 * hidden))
        np.testing.assert_allclose(matrix, want, rtol=1e-12)


def test_parameters_of_known_models():
    np.testing.assert_allclose(float(gpt3().parameters()), 174.6e9, rtol=2e-3)
    llama = Transformer(
        name="llama-3.1-405b", hidden=16384.0, layers=126.0, attention=GroupedQueryAttention(128.0, 8.0, 128.0),
        feed_forward=DenseFeedForward(53248.0, gated=1.0), vocab=128256.0,
    )  # fmt: skip
    np.testing.assert_allclose(float(llama.parameters()), 405.85e9, rtol=1e-3)
    layers = Training(gpt(2.0, 1024.0, 16.0), 512.0, 1.0).shard(Layout(Plan(), 1.0))
    held = sum(float(op.weights) for op in gpt(2.0, 1024.0, 16.0).layer_ops(layers))
    np.testing.assert_allclose(held, 12 * 1024**2 + 4 * 1024, rtol=1e-12)  # what a device holds is what is counted


@pytest.mark.parametrize(
    ("choices", "sbh", "scores"),
    [
        ({}, 10 + 24 / 8, 5 / 8),
        ({"sequence_parallel": 1.0}, 34 / 8, 5 / 8),
        ({"recompute": "selective"}, 10 + 24 / 8, 0.0),
        ({"sequence_parallel": 1.0, "recompute": "selective"}, 34 / 8, 0.0),
        ({"recompute": "full"}, 2.0, 0.0),
    ],
)
def test_stored_activations_of_a_layer(choices: dict, sbh: float, scores: float):
    """Korthikanti et al. 2022, equations 2 to 6: s b h (10 + 24/t + 5 a s / h t) and its variants."""
    scenario, layout = megatron("22B", **choices)
    job, (layers, hidden, heads, micro_batch, _, _) = scenario.workload, MEGATRON["22B"]
    want = 2048 * micro_batch * hidden * layers * (sbh + scores * heads * 2048 / hidden)
    np.testing.assert_allclose(float(job.footprint(layout)["activations"][0]), want, rtol=1e-9)


METHODS = {
    "no recompute": {},
    "selective recompute": {"recompute": "selective"},
    "full recompute": {"recompute": "full"},
    "sequence parallelism": {"sequence_parallel": 1.0},
    "selective recompute + sequence parallelism": {"recompute": "selective", "sequence_parallel": 1.0},
}


@pytest.mark.slow
def test_memory_of_korthikanti(reference_dir):
    """Activations, and weights with gradients and optimizer, within 5 % of the published bytes of every row."""
    table = pd.read_csv(reference_dir / "measured/training/korthikanti2022_memory.csv")
    activations = {}
    for size in MEGATRON:
        for method, choices in METHODS.items():
            scenario, layout = megatron(size, **choices)
            used = scenario.workload.footprint(layout)
            activations[size, method] = float(used["activations"][0]) / GIB
            state = sum(float(used[kind][0]) for kind in ("weights", "gradients", "optimizer")) / GIB
        rows = table[(table["model"] == size) & table["params_optimizer_gib"].notna()]
        np.testing.assert_allclose(state, rows["params_optimizer_gib"], rtol=0.05)
    for row in table.itertuples():
        mine = activations[row.model, row.method]
        if not np.isnan(row.activations_gib):
            np.testing.assert_allclose(mine, row.activations_gib, rtol=0.05, err_msg=f"{row.model} {row.method}")
        share = 100 * mine / activations[row.model, "no recompute"]
        np.testing.assert_allclose(share, row.activations_percent_of_tp_baseline, rtol=0.05)


def test_working_set_holds_what_recomputation_drops():
    """A whole layer under full recomputation, the attention core under selective, and its gradients."""
    none, selective, full = (
        megatron("22B", recompute=kind)[0].workload.footprint(megatron("22B", recompute=kind)[1])["working"][0]
        for kind in ("none", "selective", "full")
    )
    layer = 2048 * 4 * 6144 * (10 + 24 / 8 + 5 * 64 * 2048 / (6144 * 8))
    core = 2048 * 4 * 6144 * 5 * 64 * 2048 / (6144 * 8)
    np.testing.assert_allclose(float(selective - none), core, rtol=1e-9)
    np.testing.assert_allclose(float(full - none), layer, rtol=1e-9)


def test_one_device_does_not_communicate():
    times = evaluate(training(1.0, Plan())).breakdown_s
    assert {name: float(times[name]) for name in ("tp", "cp", "ep", "dp", "pp", "bubble", "offload")} == dict.fromkeys(
        ("tp", "cp", "ep", "dp", "pp", "bubble", "offload"), 0.0
    )
    assert float(times["forward"]) > 0


def test_without_other_limits_a_step_runs_at_peak():
    model = gpt(8.0, 2048.0, 16.0, vocab=32000.0)
    job = Training(model, 1024.0, 32.0)
    for plan in (Plan(), Plan(tp=4.0), Plan(tp=4.0, sequence_parallel=1.0)):
        devices = 4.0 * float(plan.tp)
        metrics = evaluate(ideal(Scenario(cluster(devices), job, plan)))
        np.testing.assert_allclose(float(metrics.mfu), 1.0, rtol=1e-9)


def test_recomputation_costs_a_third_at_peak():
    """Full recomputation: 4 passes' FLOPs in place of 3."""
    job = Training(gpt(8.0, 2048.0, 16.0), 1024.0, 32.0)
    none, full = (
        evaluate(ideal(Scenario(cluster(4.0), job, Plan(recompute=kind)))).time_s for kind in ("none", "full")
    )
    np.testing.assert_allclose(float(full / none), 4 / 3, rtol=1e-9)


def test_no_layers_no_time():
    job = Training(gpt(0.0, 2048.0, 16.0), 1024.0, 32.0, step_overhead_s=0.5)
    metrics = evaluate(Scenario(cluster(16.0), job, Plan(tp=4.0, sequence_parallel=1.0, zero=1.0)))
    assert float(metrics.time_s) == 0.5
    assert float(metrics.memory_bytes["hbm/weights"]) == 0.0


def test_one_tensor_rank_has_no_tensor_traffic():
    plan = Plan(pp=4.0, sequence_parallel=1.0)
    assert float(evaluate(training(64.0, plan)).breakdown_s["tp"]) == 0.0
    staged = dataclasses.replace(training(64.0, plan).workload, copy_before_collective=True)
    assert float(evaluate(Scenario(cluster(64.0), staged, plan)).breakdown_s["tp"]) == 0.0


@pytest.mark.parametrize("chunks", [1.0, 3.0])
def test_bubble_of_a_pipeline(chunks: float):
    """(p - 1) / v micro-batches however many there are, so that its share vanishes."""
    shares = []
    for batch in (128.0, 1280.0, 128e4):
        plan = Plan(pp=8.0, virtual_stages=chunks)
        job = Training(gpt(96.0, 2048.0, 16.0), 1024.0, batch)
        times = evaluate(Scenario(cluster(8.0), job, plan)).breakdown_s
        micro_batch = (times["forward"] + times["backward"] + times["pp"]) / batch
        np.testing.assert_allclose(float(times["bubble"] / micro_batch), 7 / chunks, rtol=1e-9)
        shares.append(float(times["bubble"] / sum(times.values())))
    assert shares[0] > 0.01 > shares[1] > shares[2] < 1e-5


def test_uneven_stages_and_interleaving_that_does_not_divide():
    """5 layers on 2 stages: m passes of 3 layers, one of 2 to fill; 6 micro-batches on 4 stages wait for 2 a chunk."""
    job = Training(gpt(5.0, 2048.0, 16.0), 1024.0, 4.0)
    uneven = ideal(Scenario(cluster(2.0), job, Plan(pp=2.0)))
    layer = evaluate(ideal(Scenario(cluster(1.0), job, Plan()))).time_s / (4 * 5)
    np.testing.assert_allclose(float(evaluate(uneven).time_s / layer), 4 * 3 + 2, rtol=1e-9)
    plan = Plan(pp=4.0, virtual_stages=2.0)
    idle = [Training(gpt(8.0, 2048.0, 16.0), 1024.0, m).bubbles(Layout(plan, 4.0)) for m in (8.0, 6.0)]
    np.testing.assert_allclose([float(x) for x in idle], [3 / 2, 3 / 2 + 2 / 2], rtol=1e-9)


def test_sharding_divides_state():
    """ZeRO 1, 2, 3 over 8 replicas divide optimizer state, gradients, weights; a buffer holds one layer's gradients."""
    job = Training(gpt(16.0, 2048.0, 16.0), 1024.0, 32.0)
    used = [job.footprint(Layout(Plan(zero=stage), 8.0)) for stage in (0.0, 1.0, 2.0, 3.0)]
    for first, kind in ((1, "optimizer"), (2, "gradients"), (3, "weights")):
        ratios = [float(used[0][kind][0] / use[kind][0]) for use in used]
        assert ratios == [1.0] * first + [8.0] * (4 - first)
    buffered = dataclasses.replace(job, precision=Precision(gradients="bf16", gradient_buffer="fp32"))
    layer = 12 * 2048**2 + 4 * 2048
    kept = buffered.footprint(Layout(Plan(zero=2.0), 8.0))["gradients"][0]
    np.testing.assert_allclose(float(kept), 4 * layer + 15 * 2 * layer / 8, rtol=1e-9)


def test_forward_only_is_the_forward_part():
    """Same forward time as a training step of one stage, no gradients, no state, a third of the model's FLOPs."""
    job = Training(gpt(16.0, 2048.0, 16.0), 1024.0, 32.0)
    scoring = dataclasses.replace(job, forward_only=True)
    whole, part = (evaluate(Scenario(cluster(4.0), each, Plan(tp=4.0))) for each in (job, scoring))
    np.testing.assert_allclose(float(part.breakdown_s["forward"]), float(whole.breakdown_s["forward"]), rtol=1e-12)
    np.testing.assert_allclose(float(part.mfu * part.time_s), float(whole.mfu * whole.time_s / 3), rtol=1e-9)
    assert {name for name in part.memory_bytes if name.startswith("hbm")} == {"hbm/weights", "hbm/working"}
    slower = evaluate(Scenario(cluster(4.0), scoring, Plan(tp=4.0, offload_weights=1.0)))
    assert float(slower.time_s) > float(part.time_s)


@pytest.mark.slow
def test_options_of_the_runtime_cost_what_they_say():
    """Launches a weight tensor, staged collectives, gathering at the receiver, early stop of a recomputation."""
    model, plan = gpt(16.0, 2048.0, 16.0), Plan(tp=4.0, recompute="selective")
    job = Training(model, 1024.0, 32.0)

    def times(job: Training, plan: Plan = plan) -> dict[str, float]:
        return {k: float(v) for k, v in evaluate(Scenario(cluster(8.0), job, plan)).breakdown_s.items()}

    base = times(job)
    single = times(dataclasses.replace(job, optimizer=dataclasses.replace(job.optimizer, fused=False)))
    assert single["optimizer"] > base["optimizer"]  # the launches
    np.testing.assert_allclose(single["optimizer"] - base["optimizer"], (16 * 6 - 1) * 4e-6, rtol=1e-6)

    staged = times(dataclasses.replace(job, copy_before_collective=True))
    volume = 2 * 1024 * 2048 * 2.0  # read and written, bf16
    passes = 4 * 16 * 32 / 2  # all-reduces a layer, layers, micro-batches of two replicas
    np.testing.assert_allclose(staged["tp"] - base["tp"], passes * (4e-6 + volume / (0.8 * 3.35e12)), rtol=1e-6)

    stop = eqx.tree_at(lambda m: m.attention, model, dataclasses.replace(model.attention, redo_values=False))
    early = times(dataclasses.replace(job, model=stop))
    assert 0 < early["recompute"] < base["recompute"]
    redone = [times(dataclasses.replace(job, model=m), Plan(recompute="full")) for m in (model, stop)]
    np.testing.assert_allclose(redone[0]["recompute"], redone[1]["recompute"], rtol=1e-12)

    cut, whole = (times(job, Plan(tp=4.0, pp=2.0, scatter_gather_p2p=choice)) for choice in (1.0, 0.0))
    assert cut["pp"] < whole["pp"]
    assert cut["tp"] > whole["tp"]


def test_overlapped_communication_slows_compute_down():
    """Hidden, it costs the engines' share of its time; not overlapped, nothing more than its time."""
    taken = {"cluster.network.scale_up.processor_ratio": 0.25}
    for hidden, more in ((0.0, 0.0), (1.0, 0.25)):
        plain = training(8.0, Plan(tp=8.0, tp_overlap=hidden))
        exposed = evaluate(replace(plain, {"plan.tp_overlap": 0.0})).breakdown_s["tp"]
        with_engines, without = (float(evaluate(s).time_s) for s in (replace(plain, taken), plain))
        np.testing.assert_allclose(with_engines - without, more * float(exposed), rtol=1e-6, atol=1e-9)


HARDWARE = (
    "cluster.accelerator.peak_flops_per_s.bf16",
    "cluster.accelerator.peak_flops_per_s.vector",
    "cluster.accelerator.hbm.bandwidth_bytes_per_s",
    "cluster.accelerator.kernels.gemm.bf16.compute_ratio",
    "cluster.accelerator.kernels.gemm.bf16.t0_s",
    "cluster.accelerator.kernels.elementwise.any.memory_ratio",
    "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_up.fabric.latency_s",
    "cluster.network.scale_out.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_out.fabric.latency_s",
    "cluster.host.link.beta_s_per_byte",
    "cluster.facility.pue",
)
SCENARIO = training(
    256.0, Plan(tp=8.0, pp=4.0, sequence_parallel=1.0, zero=2.0, recompute="full", offload_optimizer=1.0)
)
SCENARIO = replace(SCENARIO, {"cluster.accelerator.peak_flops_per_s.vector": 5e12})  # some of it bound by arithmetic


@pytest.mark.slow
def test_gradient_is_the_slope():
    """d log(time + energy) / d log(leaf) against central differences, for a dozen hardware leaves."""

    def score(scenario: Scenario) -> jax.Array:
        metrics = evaluate(scenario)
        return jnp.log(metrics.time_s * metrics.energy_j)

    slopes = interpreted(jax.grad(score))(SCENARIO)
    priced = interpreted(score)
    for path in HARDWARE:
        value, step = get_path(SCENARIO, path), 1e-5
        up, down = (float(priced(replace(SCENARIO, {path: value * (1 + sign * step)}))) for sign in (1, -1))
        slope = float(get_path(slopes, path) * value)
        np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-4, atol=1e-8, err_msg=path)
        assert slope != 0.0, path


@pytest.mark.slow
def test_plain_compiled_and_batched_agree():
    plain, compiled = evaluate(SCENARIO).flat(), quick_jit(evaluate, once=True)(SCENARIO).flat()
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), SCENARIO)
    batched = quick_jit(jax.vmap(evaluate), once=True)(batch).flat()
    for name, value in plain.items():
        np.testing.assert_allclose(float(compiled[name]), float(value), rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(np.asarray(batched[name]), float(value), rtol=1e-12, err_msg=name)


def test_better_hardware_is_never_slower():
    time_s = interpreted(lambda scenario: evaluate(scenario).time_s)
    before = float(time_s(SCENARIO))
    for path in HARDWARE[:-1]:
        better = 0.5 if path.endswith(("t0_s", "latency_s", "beta_s_per_byte")) else 1.5
        assert float(time_s(replace(SCENARIO, {path: get_path(SCENARIO, path) * better}))) < before, path
