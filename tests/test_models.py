"""The published models of conf/model: sizes, caches and work against published totals and against hand counts."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from builders import cluster
from tiers import mostly_slow

from codesign.config import build, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate, priced_ops
from codesign.model.scenario import Scenario
from codesign.model.workloads import (
    CommOp,
    ComputeOp,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    Layout,
    MixtureOfExperts,
    Plan,
    Precision,
    StaticBatch,
    Training,
    Transformer,
)
from codesign.model.workloads.layer_operations import BlockComm, BlockOp, Shard

CONF = Path(__file__).parent.parent / "conf" / "model"
BIBLIOGRAPHY = Path(__file__).parent.parent / "codesign" / "references.bib"
FILES = sorted(  # of published transformers
    path
    for path in CONF.glob("*.yaml")
    if "_target_: codesign.model.workloads.Transformer\n" in path.read_text(encoding="utf-8")
    and not path.stem.startswith(("hf_config", "calculon"))
)

# Published totals in billions (reports and model cards; [narayanan2021] and [korthikanti2022] for Megatron's).
PUBLISHED = {
    "deepseek_r1": 671,
    "deepseek_v4_flash": 284,
    "deepseek_v4_pro": 1573,
    "gemma4_26b_a4b": 25.8,
    "glm_52": 743.4,
    "kimi_k3": 2780,
    "mimo_7b": 7.62,
    "mimo_v2_flash": 309,
    "minimax_m3": 427,
    "nemotron_3_nano_30b_a3b": 31.6,
    "nemotron_super_49b": 49.87,
    "qwen35_122b_a10b": 122.6,
    "qwen35_27b": 27.36,
    "qwen35_35b_a3b": 35.1,
    "qwen3_0_6b": 0.596,
    "qwen3_1_7b": 1.72,
    "qwen3_vl_235b_a22b": 235.7,
    "qwen3_vl_2b": 2.13,
    "qwen3_vl_32b": 33.36,
    "step_37_flash": 196,
    "dots3_note": 280,
    "ernie_45_21b_a3b": 21.8,
    "ernie_45_300b_a47b": 300,
    "gemma3_4b": 4.30,
    "gemma3_12b": 12.19,
    "gemma3_27b": 27.43,
    "nemotron_nano_12b_v2": 12.31,
    "gemma4_12b": 11.95,
    "gemma4_31b": 31.27,
    "gemma4_e2b": 4.82,
    "gemma4_e4b": 7.69,
    "hunyuan_a13b": 80.4,
    "hy3": 295,
    "kimi_linear_48b_a3b": 49.1,
    "laguna_m1": 225,
    "laguna_s21": 118,
    "laguna_xs2": 33.4,
    "lfm25_1_2b": 1.17,
    "lfm25_350m": 0.3545,
    "lfm25_8b_a1b": 8.47,
    "ling_3_flash": 124,
    "llama32_1b": 1.24,
    "llama32_3b": 3.21,
    "mellum2_12b_a2_5b": 12.15,
    "mimo_v25_pro": 1020,
    "minicpm5_1b": 1.08,
    "ministral_3_14b": 13.95,
    "ministral_3_8b": 8.92,
    "mistral_large_3_675b": 673,
    "mistral_medium_35_128b": 127.7,
    "mistral_small_4_119b": 119,
    "nemotron_3_nano_4b": 3.97,
    "nemotron_3_super_120b_a12b": 120.67,
    "nemotron_3_ultra_550b_a55b": 550,
    "nemotron_nano_9b_v2": 8.89,
    "phi_4_mini": 3.84,
    "qwen25_32b": 32.76,
    "qwen35_0_8b": 0.853,
    "qwen35_2b": 2.21,
    "qwen35_4b": 4.54,
    "qwen35_9b": 9.41,
    "qwen38_2400b_a95b": 2420,
    "qwen3_4b": 4.02,
    "qwen3_coder_480b_a35b": 480,
    "seed_oss_36b": 36.15,
    "trinity_large_400b_a13b": 398,
    "deepseek_v32": 671,
    "step3": 316,
    "glm_45": 355,
    "glm_45_air": 106,
    "granite_40_h_small": 32,
    "kimi_k2": 1026,  # of the checkpoint's matrices; the report says 1.04e12
    "llama4_maverick": 400,
    "llama4_scout": 107.8,  # without the vision part
    "qwen3_30b_a3b": 30.5,
    "qwen3_next_80b_a3b": 80,
    "deepseek_v3": 671,
    "falcon_180b": 179.5,
    "gpt3_175b": 174.6,
    "gpt_j_6b": 6.05,
    "bert_large": 0.335,
    "neox_1_3b": 1.41,  # 1.3 in its name, which counts one table of the vocabulary
    "neox_13b": 13.0,
    "llama2_13b": 13.02,
    "llama2_70b": 68.98,
    "llama2_7b": 6.74,
    "llama31_405b": 405.9,
    "llama31_70b": 70.55,
    "llama31_8b": 8.03,
    "megatron_146b": 145.6,
    "megatron_175b": 174.6,
    "megatron_18b": 18.4,
    "megatron_1_7b": 1.7,
    "megatron_1t": 1008,
    "megatron_22b": 22,
    "megatron_310b": 310.1,
    "megatron_39b": 39.1,
    "megatron_3_6b": 3.6,
    "megatron_530b": 529.6,
    "megatron_76b": 76.1,
    "megatron_7_5b": 7.5,
    "dbrx": 132.0,
    "gpt_oss_120b": 116.8,
    "gpt_oss_20b": 20.9,
    "mixtral_8x22b": 140.6,
    "mixtral_8x7b": 46.7,
    "qwen3_235b_a22b": 235,
    "qwen3_32b": 32.8,
    "codellama_34b": 33.74,
    "glm_5": 744,
    "kimi_k25": 1026,  # the language model, as kimi_k2
    "minimax_m25": 230,
    "mistral_7b": 7.24,
    "mistral_7b_v01": 7.24,
    "mistral_nemo_12b": 12.25,
    "qwen25_72b": 72.7,
    "qwen25_7b": 7.62,
    "qwen35_397b_a17b": 397,
    "qwen3_14b": 14.77,
    "qwen3_8b": 8.19,
    "yi_34b": 34.39,
}


def model(name: str) -> Transformer:
    return build({"model": yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))}).objects["model"]


def shard(devices: float = 64.0, tokens: float = 2048.0, *, precision=None, decode=False, keys=None, **plan) -> Shard:
    """`tokens` new tokens of one sequence, or one new token of each of `tokens` sequences where `decode`."""
    layout = Layout(Plan(**plan), devices)
    sequences, queries = (tokens, 1.0) if decode else (1.0, tokens)
    keys = tokens if keys is None else keys
    return Shard(layout, precision or Precision(), sequences, queries, keys, decode=decode)


def products(block: list[BlockOp]) -> float:
    """FLOPs of the products with weights, in an average layer."""
    chosen = [op for op in block if op.kernel in ("gemm", "moe_gemm") and not op.core]
    return sum(float(op.forward.flops * op.per_layer) for op in chosen)


def weights(block: list[BlockOp], *, expert: bool | None = None) -> float:
    return sum(float(op.weights * op.per_layer) for op in block if expert is None or op.expert == expert)


def comm(comms: list[BlockComm], name: str) -> BlockComm:
    (result,) = [entry for entry in comms if entry.name == name]
    return result


def layer_only(part, hidden: float = 1024.0, **attention) -> Transformer:
    """A two-layer model around a feed-forward part."""
    heads = GroupedQueryAttention(8.0, 8.0, hidden / 8)
    return Transformer("small", hidden, 2.0, heads, part, vocab=1000.0)


def test_every_file_has_a_published_size():
    assert {path.stem for path in FILES} == set(PUBLISHED)


@pytest.mark.parametrize("path", [*FILES, CONF / "hf_config.yaml"], ids=lambda path: path.stem)
def test_file_opens_with_what_it_is_and_where_it_goes(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert "# @package workload.model" in lines[:2]
    assert any(line.startswith("# ") and "@" not in line for line in lines[:2])
    content = yaml.safe_load("\n".join(lines))
    assert content.get("name", path.stem) == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_source_is_in_the_bibliography(path):
    known = re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cited = re.findall(r"\[(\w+)\]", path.read_text(encoding="utf-8"))
    assert cited
    assert set(cited) <= set(known)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name):
    assert float(model(name).parameters()) == pytest.approx(PUBLISHED[name] * 1e9, rel=0.01, abs=0.06e9)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral_8x7b", 12.9),
        ("mixtral_8x22b", 39),
        ("dbrx", 36),
        ("deepseek_v3", 37),
        ("qwen3_235b_a22b", 22),
        ("qwen35_397b_a17b", 17.3),
        ("minimax_m25", 11),
        ("glm_5", 41),
    ],
)
def test_activated_parameters_are_the_published_ones(name, billions):
    """Reports count the embedding table among them; a product per token it is not."""
    mixture = model(name)
    assert float(mixture.active_parameters() + mixture.vocab * mixture.hidden) == pytest.approx(
        billions * 1e9, rel=0.02
    )


def test_attention_and_experts_of_deepseek_v3_by_hand():
    """[deepseekv3] section 4.2; the multi-token-prediction module is left out."""
    deepseek = model("deepseek_v3")
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    expert, dense, router = 3 * 7168 * 2048, 3 * 7168 * 18432, 7168 * 256
    total = 61 * attention + 58 * (257 * expert + router) + 3 * dense + 2 * 129280 * 7168
    used = 61 * attention + 58 * (9 * expert + router) + 3 * dense + 129280 * 7168
    assert float(deepseek.parameters()) == pytest.approx(total, rel=1e-12)
    assert float(deepseek.active_parameters()) == pytest.approx(used, rel=1e-12)


ONE_OF_EACH = ("llama31_8b", "qwen3_30b_a3b", "deepseek_v3", "gemma4_26b_a4b", "minimax_m25", "nemotron_3_nano_30b_a3b")
"""Models of the quick tier: dense, experts, latent attention, sliding windows, another mixture, state space."""


@pytest.mark.parametrize("name", mostly_slow(PUBLISHED, quick=[name for name in ONE_OF_EACH if name in PUBLISHED]))
def test_layers_hold_and_multiply_the_parameters(name):
    """The operations of a layer carry the weights that `parameters` counts, and 2 FLOPs a token for each used one."""
    whole = model(name)
    part = shard()
    block = whole.layer_ops(part)
    norms = weights([op for op in block if op.name.endswith("_norm")])
    held = whole.layers * (weights(block) - norms) + whole.embedding_parameters()
    beside = whole.beside_parameters()
    assert float(held + (0 if beside is None else beside)) == pytest.approx(float(whole.parameters()), rel=1e-9)
    flops = whole.layers * products(block) + 2 * part.tokens * whole.vocab * whole.hidden
    assert float(flops) == pytest.approx(float(2 * part.tokens * whole.active_parameters()), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "tp", "nbytes"),
    [
        ("llama31_70b", 1, 327_680),  # 2 x 80 layers x 8 heads x 128 x 2 bytes
        ("llama31_70b", 8, 40_960),
        ("llama31_70b", 16, 40_960),  # two ranks share a key-value head, each with its own copy
        ("llama31_405b", 1, 516_096),
        ("gpt3_175b", 1, 4_718_592),
        ("deepseek_v3", 1, 70_272),  # 61 layers x (512 + 64) x 2 bytes
        ("deepseek_v3", 8, 70_272),  # the latent vector is on every tensor rank
        ("qwen3_235b_a22b", 1, 192_512),
    ],
)
def test_cache_bytes_per_token(name, tp, nbytes):
    served = StaticBatch(model(name), input_tokens=900.0, output_tokens=100.0)
    layout = Layout(Plan(tp=tp), 16.0)
    assert float(served.kv_bytes_per_sequence(layout)) == 1000 * nbytes
    eight_bit = StaticBatch(model(name), input_tokens=900.0, output_tokens=100.0, precision=Precision(kv_cache="fp8"))
    assert float(eight_bit.kv_bytes_per_sequence(layout)) == 500 * nbytes


def test_prefill_flops_by_hand():
    """Llama 3.1 8B, one request of 1,024 tokens: every layer weight on every token, half the score matrix, one head."""
    served = StaticBatch(model("llama31_8b"), input_tokens=1024.0, output_tokens=2.0)
    layer = 4096 * 128 * (32 + 8 + 8 + 32) + 3 * 4096 * 14336
    core = 4 * 1024 * 512 * 32 * 128
    by_hand = 32 * (2 * 1024 * layer + core) + 2 * 4096 * 128256
    ops = [op for op in served.lower(Layout(Plan(), 1.0)) if isinstance(op, ComputeOp) and op.phase == "prefill"]
    assert sum(float(op.work.flops * op.count) for op in ops if op.number_format == "bf16") == by_hand


def test_decode_of_latent_attention_reads_the_latent_cache_alone():
    deepseek = model("deepseek_v3")

    def read(keys: float, heads: float = 128.0, kv_cache: str = "bf16") -> float:
        attention = eqx.tree_at(lambda a: a.heads, deepseek.attention, jnp.asarray(heads))
        part = shard(tokens=4.0, keys=keys, decode=True, precision=Precision(kv_cache=kv_cache))
        (core,) = [op for op in attention.ops(part, deepseek.hidden, dropout=False, norm_vectors=1.0) if op.core]
        return float(core.forward.nbytes)

    assert read(2000.0) - read(1000.0) == 4 * 1000 * 576 * 2
    assert read(2000.0, heads=256.0) - read(1000.0, heads=256.0) == 4 * 1000 * 576 * 2
    assert read(2000.0, kv_cache="fp8") - read(1000.0, kv_cache="fp8") == 4 * 1000 * 576
    assert read(0.0) == 4 * 128 * (576 + 512) * 2  # queries in, latent results out


def test_prefill_of_latent_attention_expands_every_head():
    attention = model("deepseek_v3").attention
    assert isinstance(attention, LatentAttention)
    ops = attention.ops(shard(tokens=512.0), jnp.asarray(7168.0), dropout=False, norm_vectors=1.0)
    (core,) = [op for op in ops if op.core]
    assert float(core.forward.flops) == 2 * 512 * 256 * 128 * (192 + 128)  # half of the 512 x 512 matrix
    assert float(core.forward.nbytes) == 2 * 512 * 128 * (192 + 128) * 2  # queries and results; keys and values


def test_flops_of_a_token_grow_with_the_experts_it_visits():
    mixture = model("mixtral_8x7b").feed_forward

    def flops(top_k: float) -> float:
        chosen = eqx.tree_at(lambda f: f.top_k, mixture, jnp.asarray(top_k))
        block = chosen.ops(shard(tokens=1.0), jnp.asarray(4096.0), jnp.asarray(32.0), dropout=False, norm_vectors=1.0)
        return products(block)

    router, expert = 2 * 4096 * 8, 2 * 3 * 4096 * 14336
    assert flops(1.0) == router + expert
    assert flops(2.0) == router + 2 * expert


def test_expert_weights_are_divided_over_expert_ranks_and_the_rest_is_not():
    deepseek = model("deepseek_v3")
    one, eight = (deepseek.layer_ops(shard(ep=ep)) for ep in (1.0, 8.0))
    assert weights(eight, expert=True) == pytest.approx(weights(one, expert=True) / 8)
    assert weights(eight, expert=False) == pytest.approx(weights(one, expert=False))
    assert products(eight) == pytest.approx(products(one))  # each rank's experts see eight ranks' tokens
    both = deepseek.layer_ops(shard(ep=8.0, tp=4.0))
    assert weights(both, expert=True) == pytest.approx(weights(one, expert=True) / 32)


def test_few_tokens_read_few_experts():
    """One token of DeepSeek-V3 touches at most its 8 experts, 100,000 tokens touch all 256."""
    deepseek = model("deepseek_v3")

    def expert_bytes(tokens: float) -> float:
        block = deepseek.layer_ops(shard(tokens=tokens, decode=True, keys=1000.0))
        (up,) = [op for op in block if op.name == "moe_up"]
        return float(up.forward.nbytes) - tokens * 8 * (7168 + 2 * 2048) * 2

    matrix = 7168 * 2 * 2048 * 2
    assert 7.5 * matrix < expert_bytes(1.0) <= 8 * matrix
    assert expert_bytes(1e5) == pytest.approx(256 * matrix)


@pytest.mark.parametrize(("tp", "dispatch"), [(1.0, "bf16"), (1.0, "fp8"), (8.0, "fp8")])
def test_all_to_all_volume(tp, dispatch):
    """Each of 8 copies of a token of 7,168 elements goes out in the dispatch format and comes back in bf16."""
    part = shard(ep=8.0, tp=tp, sequence_parallel=1.0, precision=Precision(dispatch=dispatch))
    comms = model("deepseek_v3").layer_comms(part)
    out, back = comm(comms, "moe_dispatch"), comm(comms, "moe_combine")
    copies = 2048 * 8 * 7168
    assert {out.operation, back.operation} == {"all_to_all"}
    assert {out.axis, back.axis} == {"ep"}
    assert float(out.nbytes) == copies * (1 if dispatch == "fp8" else 2) / tp
    assert float(back.nbytes) == copies * 2 / tp
    assert float(out.per_layer) == pytest.approx(58 / 61)  # three layers are dense
    inside = comm(comms, "moe_dispatch_tp")
    assert float(inside.nbytes) == tp * float(out.nbytes)  # what reached a tensor group is gathered in it


@pytest.mark.parametrize(("ep", "shared", "sequence_parallel"), [(1, 0, 1), (8, 0, 1), (8, 0, 0), (8, 1, 1), (8, 1, 0)])
def test_tensor_ranks_gather_what_their_experts_work_on(ep, shared, sequence_parallel):
    """Bytes a tensor rank takes part in, forward: N tokens where they are needed whole, 2 N copies for the experts."""
    part = shard(ep=ep, tp=8.0, sequence_parallel=sequence_parallel)
    mixture = MixtureOfExperts(8.0, 2.0, 4096.0, shared_experts=shared)
    comms = mixture.comms(part, jnp.asarray(1024.0), jnp.asarray(2.0))
    tokens = 2048 * 1024 * 2
    volume = {"all_reduce": 0.0, "all_gather": 0.0, "reduce_scatter": 0.0}
    for entry in comms:
        if entry.axis in ("tp", "expert_tp"):
            volume[entry.operation] += float(entry.nbytes * entry.forward * entry.per_layer) / tokens
    copies = 2.0 if ep > 1 else 0.0
    whole = 1.0 if ep == 1 or shared else 0.0  # the tokens themselves: for shared experts, or undispatched
    assert volume["reduce_scatter"] == copies + whole * sequence_parallel
    assert volume["all_reduce"] == whole * (1 - sequence_parallel)
    again = 0.0 if whole or sequence_parallel else 1.0  # every rank wants all tokens back
    assert volume["all_gather"] == copies + whole * sequence_parallel + again


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1.0, 8.0])
def test_one_expert_is_a_dense_layer_with_a_router(tp):
    def cost(part) -> tuple[float, float, float]:
        plan = Plan(tp=tp, sequence_parallel=1.0, recompute="selective")
        job = Scenario(cluster(8.0), Training(layer_only(part), sequence=2048.0, global_batch=8.0), plan)
        seconds = joules = stored = 0.0
        for op, price in priced_ops(job):
            if op.phase in ("forward", "backward", "recompute") and op.name != "moe_router":
                seconds, joules = seconds + float(price.time_s), joules + float(price.energy_j)
        for op in job.workload.model.layer_ops(job.workload.shard(job.layout)):
            stored += float(op.stored_bytes * op.per_layer) if op.name != "moe_router" else 0.0
        return seconds, joules, stored

    dense = cost(DenseFeedForward(4096.0, gated=1.0))
    assert cost(MixtureOfExperts(1.0, 1.0, 4096.0)) == pytest.approx(dense, rel=1e-12)


def test_all_layers_dense_is_a_dense_model():
    deepseek = model("deepseek_v3")
    dense = eqx.tree_at(lambda m: m.feed_forward.dense_layers, deepseek, jnp.asarray(61.0))
    like = eqx.tree_at(lambda m: m.feed_forward, deepseek, DenseFeedForward(18432.0, gated=1.0))
    part = shard(tp=8.0, ep=8.0, sequence_parallel=1.0)
    assert float(dense.parameters()) == pytest.approx(float(like.parameters()), rel=1e-12)
    for total in (products, weights):
        assert total(dense.layer_ops(part)) == pytest.approx(total(like.layer_ops(part)), rel=1e-12)

    def volume(comms: list[BlockComm]) -> float:
        return sum(float(entry.nbytes * (entry.forward + entry.backward) * entry.per_layer) for entry in comms)

    assert volume(dense.layer_comms(part)) == pytest.approx(volume(like.layer_comms(part)), rel=1e-12)


def test_imbalance_slows_the_experts_and_the_dispatch():
    even = model("mixtral_8x7b")
    uneven = eqx.tree_at(lambda m: m.feed_forward.imbalance, even, jnp.asarray(1.5))
    part = shard(ep=8.0)
    routed = [sum(float(op.forward.flops) for op in m.layer_ops(part) if op.expert) for m in (even, uneven)]
    sent = [float(comm(m.layer_comms(part), "moe_dispatch").nbytes) for m in (even, uneven)]
    assert routed[1] == pytest.approx(1.5 * routed[0])
    assert sent[1] == pytest.approx(1.5 * sent[0])


def test_gradients_of_experts_are_reduced_among_their_own_replicas():
    job = Training(model("mixtral_8x7b"), sequence=2048.0, global_batch=64.0)
    layout = Layout(Plan(ep=8.0), 64.0)
    sync = {
        op.axis: float(op.nbytes) for op in job.lower(layout) if isinstance(op, CommOp) and op.name == "gradient_sync"
    }
    experts = 32 * 8 * 3 * 4096 * 14336
    assert sync["expert_data"] == pytest.approx(experts / 8 * 4)
    norms = 2 * 32 * 4096
    assert sync["data"] == pytest.approx((46_702_526_464 - experts + norms) * 4, rel=1e-9)
    assert float(layout.group("expert_data").size) == 8
    assert float(layout.group("data").size) == 64


TRAINED = Plan(tp=4.0, pp=16.0, ep=8.0, sequence_parallel=1.0, zero=1.0, recompute="full")
SERVED = Plan(tp=8.0, ep=4.0, micro_batch=64.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["training", "serving"])
def test_deepseek_v3_has_finite_metrics_and_gradients(kind):
    deepseek, plan = model("deepseek_v3"), TRAINED if kind == "training" else SERVED
    eight_bit = Precision(compute="fp8", weights="fp8", kv_cache="fp8", dispatch="fp8")
    if kind == "training":
        job = Training(deepseek, sequence=4096.0, global_batch=4096.0)
    else:
        job = StaticBatch(deepseek, input_tokens=2048.0, output_tokens=512.0, precision=eight_bit)
    scenario = Scenario(cluster(2048.0 if kind == "training" else 32.0), job, plan)

    def goal(candidate: Scenario):
        metrics = evaluate(candidate)
        return jnp.log(metrics.time_s) + jnp.log(metrics.energy_j) + jnp.log(metrics.usage["hbm"]), metrics

    (value, metrics), slope = interpreted(jax.value_and_grad(goal, has_aux=True))(scenario)
    assert np.isfinite(float(value))
    assert all(np.isfinite(float(number)) for number in metrics.flat().values())
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(slope))
    assert 0 < float(metrics.mfu) < 1
    assert float(slope.cluster.network["scale_out"].fabric.bandwidth_bytes_per_s) < 0
    assert float(slope.workload.model.feed_forward.expert_width) > 0
    assert float(slope.workload.model.attention.kv_rank) > 0


def test_a_single_expert_has_finite_gradients():
    """(1 - 1/experts) to the number of token copies is 0 there."""

    def traffic(part: MixtureOfExperts):
        block = part.ops(shard(), jnp.asarray(1024.0), jnp.asarray(2.0), dropout=False, norm_vectors=1.0)
        return sum(op.forward.nbytes for op in block if op.expert)

    slope = jax.grad(traffic)(MixtureOfExperts(1.0, 1.0, 4096.0))
    assert all(bool(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(slope))
    assert float(slope.expert_width) > 0


@pytest.mark.slow
def test_no_layers_leave_embedding_and_head():
    for part in (MixtureOfExperts(8.0, 2.0, 4096.0), DenseFeedForward(4096.0)):
        empty = eqx.tree_at(lambda m: m.layers, layer_only(part), jnp.asarray(0.0))
        assert float(empty.parameters()) == 2 * 1000 * 1024
        metrics = evaluate(Scenario(cluster(8.0), Training(empty, sequence=128.0, global_batch=8.0), Plan()))
        assert float(metrics.time_s) > 0
        assert np.isfinite(float(metrics.time_s))


@pytest.mark.parametrize(("name", "billions"), [("bert_large", 0.334), ("neox_1_3b", 1.41), ("neox_13b", 13.1)])
def test_models_of_the_source_documents(name, billions):
    """BERT large with positions and segments; NeoX with 12 L h^2 and both tables."""
    model = scenario_from_config(f"model={name}", "workload=training").workload.model
    assert float(model.parameters()) / 1e9 == pytest.approx(billions, rel=5e-3)


def test_an_encoder_generates_nothing():
    with pytest.raises(ConfigError, match=r"^workload.output_tokens = 512: bert_large is an encoder, which generates"):
        scenario_from_config("model=bert_large", "workload=static_batch")
    scenario_from_config("model=bert_large", "workload=static_batch", "workload.output_tokens=1")
