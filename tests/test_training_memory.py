"""Memory of a training step by moment and stage: by hand, against the largest moment, and public runs that fit."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.units import GB
from codesign.evidence.measurements import tables
from codesign.evidence.validation import measured_cluster
from codesign.evidence.validation.published_training import TABLES
from codesign.model.metrics.footprint import memory_by_class, per_tier
from codesign.model.workloads import (
    DenseFeedForward,
    GroupedQueryAttention,
    Layout,
    MixtureOfExperts,
    Plan,
    TrainerBuffers,
    Training,
    Transformer,
)
from codesign.model.workloads.training_memory import as_shown, near_bytes

MODEL = Transformer("small", 2048.0, 16.0, GroupedQueryAttention(16.0, 16.0, 128.0), DenseFeedForward(8192.0), 64000.0)
JOB = Training(MODEL, 1024.0, 32.0)
FSDP = "plan.tp=1 plan.pp=1 plan.virtual_stages=1 plan.recompute=full plan.zero=3 plan.sequence_parallel=0"
V6E = f"framework=maxtext {FSDP} plan.offload_activations=1"
ONE = "plan.tp=1 plan.virtual_stages=1 plan.micro_batch=1 plan.recompute=none plan.zero=1 plan.sequence_parallel=0"
FITTING = {  # rows of the public runs: `../shared/reference/public/runs.csv`
    "Llama 3.1 8B, 8 v6e": f"{V6E} model=llama31_8b accelerator=tpu_v6e cluster.device_count=8 workload.sequence=8192"
    " workload.global_batch=24 plan.micro_batch=3",
    "Llama 3.1 70B, 256 v6e": f"{V6E} model=llama31_70b accelerator=tpu_v6e cluster.device_count=256"
    " workload.sequence=8192 workload.global_batch=1280 plan.micro_batch=5 plan.recompute=none"
    " plan.recompute_modules=layernorm+context+out_proj+mlp plan.offload_modules=attn_norm+core_attn",
    "Llama 3.1 405B, 512 v6e": f"{V6E} model=llama31_405b accelerator=tpu_v6e cluster.device_count=512"
    " workload.sequence=8192 workload.global_batch=512 plan.micro_batch=1",
    "Mixtral 8x7B, 256 v6e": f"{V6E} model=mixtral_8x7b accelerator=tpu_v6e cluster.device_count=256"
    " workload.sequence=4096 workload.global_batch=3072 plan.micro_batch=12 plan.recompute=none"
    " plan.recompute_modules=layernorm+context+moe plan.offload_modules=attn_norm+core_attn+mlp_norm"
    " workload.expert_load.capacity_factor=1.25 workload.expert_load.padded=true",
    "Llama 3.1 405B, 512 v5p": f"{V6E} model=llama31_405b accelerator=tpu_v5p cluster.device_count=512"
    " workload.sequence=8192 workload.global_batch=1024 plan.micro_batch=2 plan.recompute=none plan.loss_chunks=4"
    " plan.recompute_modules=layernorm+qkv_proj+out_proj+mlp plan.offload_modules=attn_proj",
    "DeepSeek-V3, 512 v5p": f"{V6E} model=deepseek_v3 accelerator=tpu_v5p cluster.device_count=512"
    " workload.sequence=4096 workload.global_batch=6144 plan.micro_batch=12 plan.recompute=none"
    " plan.recompute_modules=layernorm+qkv_proj+context+mlp+moe+shared_experts plan.offload_modules=attn_norm+mlp_norm",
    "Mixtral 8x7B, 16 H100": f"{ONE} model=mixtral_8x7b accelerator=h100_sxm cluster.device_count=16 plan.pp=1"
    " workload.sequence=2048 workload.global_batch=128 plan.tp=2 plan.ep=8 plan.sequence_parallel=1",
}


def used(words: str) -> tuple[float, float]:
    """(bytes of a device's first memory, bytes that it has)."""
    scenario = scenario_from_config("workload=training", "space=fixed", *words.split())
    return float(per_tier(memory_by_class(scenario))["hbm"]), float(scenario.cluster.accelerator.hbm.usable_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("run", FITTING)
def test_what_ran_fits(run: str):
    needs, has = used(FITTING[run])
    assert 0.5 * has < needs <= has, f"{needs / GB:.1f} of {has / GB:.1f} GB"


def test_what_ran_out_of_memory_does_not_fit():
    words = f"{ONE} model=qwen3_30b_a3b accelerator=h100_sxm cluster.device_count=8 plan.pp=1 plan.ep=8"
    needs, has = used(f"{words} workload.sequence=4096 workload.global_batch=256")
    assert needs > has


def held(moment, name: str) -> float:
    return float(moment[name][0]) if name in moment else 0.0


def test_stages_hold_what_lies_on_them():
    """Four stages of four layers: embedding and four micro-batches first, three beside no table, head and one last."""
    plan = Plan(pp=4.0)
    result = JOB.moments(Layout(plan, 4.0))
    layer, table = 12 * 2048**2 + 2 * 2048, 64000 * 2048
    stored = [held(result[stage, "backward"], "activations") for stage in ("first", "middle", "last")]
    np.testing.assert_allclose(np.array(stored) / stored[2], [4, 3, 1], rtol=1e-12)
    weights = [held(result[stage, "backward"], "weights") for stage in ("first", "middle", "last")]
    np.testing.assert_allclose(weights, [2 * (4 * layer + table), 8 * layer, 2 * (4 * layer + table)], rtol=1e-12)
    assert {stage for stage, moment in result if moment == "loss"} == {"last"}
    logits = 1024 * 64000 * 6 + 2 * 1024 * 2048 * 2
    np.testing.assert_allclose(held(result["last", "loss"], "logits"), logits, rtol=1e-12)
    assert held(result["last", "loss"], "layer") == 0.0


def test_interleaving_keeps_more_of_every_stage():
    """2 (p - 1 - i) + (v - 1) p + 1 chunks of 1 / v."""
    result = JOB.moments(Layout(Plan(pp=4.0, virtual_stages=2.0), 4.0))
    one = held(JOB.moments(Layout(Plan(pp=4.0), 4.0))["last", "backward"], "activations")
    stored = [held(result[stage, "backward"], "activations") / one for stage in ("first", "middle", "last")]
    np.testing.assert_allclose(stored, [11 / 2, 9 / 2, 5 / 2], rtol=1e-12)


def test_layers_in_whose_place_embedding_and_head_stand_need_no_memory():
    job = dataclasses.replace(JOB, model=dataclasses.replace(MODEL, layers=jnp.asarray(14.0)))
    layout = Layout(Plan(pp=4.0, first_stage_less=1.0, last_stage_less=1.0), 4.0)
    layers = [float(stage.layers) for stage in job.stages(layout).values()]
    assert layers == [3.0, 4.0, 3.0]
    assert all(float(broken) == 0 for broken in job.violations(layout).values())
    assert float(JOB.violations(layout)["layers"]) > 0


PLANS = (
    Plan(), Plan(pp=4.0), Plan(pp=2.0, recompute="full"), Plan(zero=3.0, recompute="full"),
    Plan(zero=2.0, offload_activations=0.5), Plan(pp=2.0, offload_activations=1.0, offload_optimizer=0.5),
    Plan(tp=2.0, pp=4.0, virtual_stages=2.0, sequence_parallel=1.0), Plan(zero=3.0, prefetch=0.0, loss_chunks=8.0),
)  # fmt: skip


@pytest.mark.parametrize("buffers", [TrainerBuffers(), TrainerBuffers(4.0, 0.05, "tensor", gradient_buffers=False)])
def test_the_peak_is_the_largest_moment(buffers: TrainerBuffers):
    job = dataclasses.replace(JOB, buffers=buffers)
    for plan in PLANS:
        layout = Layout(plan, 8.0)
        near = [float(near_bytes(as_shown(classes), layout)) for classes in job.moments(layout).values()]
        np.testing.assert_allclose(float(near_bytes(job.footprint(layout), layout)), max(near), rtol=1e-12)


@pytest.mark.slow
def test_one_trace_says_the_same_of_all_plans():
    compiled = jax.jit(lambda layout: JOB.footprint(layout))
    layouts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(Layout(plan, 8.0) for plan in PLANS))
    answers = jax.vmap(JOB.footprint)(layouts)
    for row, plan in enumerate(PLANS):
        alone, traced = JOB.footprint(Layout(plan, 8.0)), compiled(Layout(plan, 8.0))
        for name, (whole, buffer) in alone.items():
            np.testing.assert_allclose(answers[name][0][row], whole, rtol=1e-12)
            np.testing.assert_allclose(answers[name][1][row], buffer, rtol=1e-12)
            np.testing.assert_allclose(traced[name][0], whole, rtol=1e-12)


def loss_of(**plan) -> float:
    return held(JOB.moments(Layout(Plan(**plan), 8.0))["last", "loss"], "logits")


def test_chunks_of_the_loss_divide_logits():
    inputs = 2 * 1024 * 2048 * 2
    np.testing.assert_allclose(loss_of(loss_chunks=8.0) - inputs, (loss_of() - inputs) / 8, rtol=1e-12)


def test_fully_sharded_layers_are_gathered_whole_and_ahead():
    """Two layers of weights less an own shard, and one layer's gradients, in bf16; one layer less without prefetch."""
    layer = 12 * 2048**2 + 2 * 2048
    ahead, alone = (
        held(JOB.moments(Layout(Plan(zero=3.0, prefetch=n), 8.0))["first", "backward"], "gathered") for n in (1.0, 0.0)
    )
    np.testing.assert_allclose(ahead, 2 * layer * 7 / 8 * 2 + 2 * layer, rtol=1e-12)
    np.testing.assert_allclose(ahead - alone, 2 * layer * 7 / 8, rtol=1e-12)


def test_a_share_of_the_allocator_is_of_what_comes_and_goes():
    plain, more = (
        dataclasses.replace(JOB, buffers=TrainerBuffers(allocator_share=x)).footprint(Layout(Plan(pp=4.0), 4.0))
        for x in (0.0, 0.1)
    )
    passing = float(plain["activations"][0] + plain["working"][0])
    np.testing.assert_allclose(float(more["working"][0] - plain["working"][0]), 0.1 * passing, rtol=1e-9)
    assert float(more["weights"][0]) == float(plain["weights"][0])


def test_own_gradients_are_those_of_one_operation():
    """Of the activation function: of its result, and of both halves that it reads."""
    gated = dataclasses.replace(JOB, model=dataclasses.replace(MODEL, feed_forward=DenseFeedForward(8192.0, 1.0)))
    twice, own = (
        held(dataclasses.replace(gated, buffers=buffers).moments(Layout(Plan(), 1.0))["first", "backward"], "layer")
        for buffers in (TrainerBuffers(), TrainerBuffers(own_gradients=True))
    )
    np.testing.assert_allclose(twice - own, (2 * 2 - 3) * 1024 * 8192 * 2, rtol=1e-12)


def test_results_of_experts_stay_for_the_gradient_of_their_weights():
    """Copies of each token, as many as it has experts."""
    network = MixtureOfExperts(8.0, 2.0, 1024.0)
    experts = dataclasses.replace(JOB, model=dataclasses.replace(MODEL, feed_forward=network))
    freed, kept = (
        held(dataclasses.replace(experts, buffers=buffers).moments(Layout(Plan(), 1.0))["first", "backward"], "layer")
        for buffers in (TrainerBuffers(), TrainerBuffers(weighted_results=True))
    )
    np.testing.assert_allclose(kept - freed, 2 * 1024 * 2048 * 2, rtol=1e-12)


ROWS = {"mosaicml_llm_foundry": 161, "korthikanti2022_recompute": 9, "megatron_sc21": 16, "vtrain_single_node": 51}
"""Table of measured runs whose whole layouts are printed -> rows, of the last every twentieth."""


@pytest.mark.slow
def test_what_was_measured_fits_and_bounds_the_allocator(reference_dir: Path):
    """None of them is refused; the fullest leaves a caching allocator 7 % of what comes and goes, and the reserve."""
    left: dict[str, list[float]] = {name: [] for name in ROWS}
    fused = scenario_from_config("workload=training", "framework=mosaic_fsdp").workload.buffers
    for table in tables(reference_dir / "measured" / "training", *TABLES):
        if (name := table.path.stem) not in ROWS:
            continue
        rows = table.rows([])
        for row in rows[:: 20 if "vtrain" in name else 1].itertuples():
            shares = [
                _spare(run, fused if "mosaic" in name else TrainerBuffers()) for run in TABLES[table.schema.name](row)
            ]
            left[name].append(max(shares))  # of candidates where the source prints no micro-batch
    assert {name: len(spare) for name, spare in left.items()} == ROWS
    assert min(min(spare) for spare in left.values()) == min(left["mosaicml_llm_foundry"])
    assert 0.07 < min(left["mosaicml_llm_foundry"]) < 0.08


def _spare(run, buffers: TrainerBuffers) -> float:
    """Bytes that are left over bytes that come and go."""
    job, plan = run.job
    job, layout = dataclasses.replace(job, buffers=buffers), Layout(plan, float(run.devices))
    held = {name: float(near_bytes({name: both}, layout)) for name, both in job.footprint(layout).items()}
    usable = float(measured_cluster(run.gpu).accelerator.hbm.usable_bytes())
    return (usable - sum(held.values())) / (held["activations"] + held["working"])


def test_units_of_gathering_have_names():
    with pytest.raises(ConfigError, match="gathers = 'layers' does not exist"):
        TrainerBuffers(gathers="layers")
