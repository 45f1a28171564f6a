"""Models read from the config.json that hubs publish: every known architecture, and everything that must be refused."""

import copy
import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import yaml
from hub_by_hand import BY_HAND
from hub_families_by_hand import FAMILIES
from hub_kinds_by_hand import KINDS_BY_HAND
from hypothesis import given
from hypothesis import strategies as st
from tiers import mostly_slow

from codesign.config import build, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges
from codesign.model.workloads import (
    ARCHITECTURES,
    GroupedQueryAttention,
    LatentAttention,
    LocalAttention,
    MixtureOfExperts,
    Precision,
    architecture_by_keys,
    from_config_json,
    transformer_from_dict,
)
from codesign.model.workloads.hub_architectures import ARCHITECTURES as EXACT

HUB = Path(__file__).parent / "data" / "hub"
CONF = Path(__file__).parent.parent / "conf" / "model"
FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(HUB.glob("*.json"))}
CONFIGS = FILES | BY_HAND | KINDS_BY_HAND

# Published totals and, for mixtures, activated parameters (model cards and reports, the embedding table included).
PUBLISHED = {
    "deepseek_v2": (236e9, 21e9),
    "deepseek_r1": (671e9, 37e9),
    "deepseek_v3": (671e9, 37e9),
    "deepseek_v32": (671e9, None),
    "glm_45": (355e9, None),
    "glm_45_air": (106e9, None),
    "granite_40_h_small": (32e9, None),
    "gpt2": (124.4e6, None),
    "gpt_j_6b": (6.053e9, None),
    "gpt_neox_20b": (20.55e9, None),
    "gpt_oss_120b": (116.8e9, None),
    "kimi_k2": (1.026e12, 32.6e9),
    "llama2_70b": (68.98e9, None),
    "llama31_8b": (8.03e9, None),
    "llama4_maverick": (400e9, 17.2e9),  # without the vision part
    "llama4_scout": (107.8e9, 17.2e9),
    "mistral_7b_v01": (7.24e9, None),
    "minimax_m25": (230e9, 11e9),  # the name says A10B: without the embedding table it is 10.4
    "kimi_k25": (1.026e12, 32.6e9),  # Kimi K2 with a vision part
    "glm_5": (744e9, 41e9),  # 40 by the card's rounding
    "qwen35_397b_a17b": (397e9, 17e9),
    "qwen35_122b_a10b": (122e9, None),
    "qwen35_27b": (27.36e9, None),
    "qwen3_vl_235b_a22b": (235e9, 22e9),
    "qwen3_vl_2b": (2.13e9, None),  # Qwen3-1.7B and a vision encoder
    "mimo_7b": (7.62e9, None),  # 7.83 with the module that predicts tokens ahead
    "mistral_7b": (7.24e9, None),
    "mistral_nemo_12b": (12.25e9, None),
    "qwen25_7b": (7.62e9, None),
    "qwen25_72b": (72.7e9, None),
    "qwen3_8b": (8.19e9, None),
    "qwen3_14b": (14.77e9, None),
    "yi_34b": (34.39e9, None),
    "codellama_34b": (33.74e9, None),
    "mixtral_8x7b": (46.7e9, 12.9e9),
    "qwen2_57b_a14b": (57.4e9, 14.2e9),
    "qwen2_7b": (7.62e9, None),
    "qwen3_235b_a22b": (235e9, 22e9),
    "qwen3_30b_a3b": (30.5e9, 3.3e9),
    "qwen3_32b": (32.8e9, None),
    "qwen3_0_6b": (596e6, None),
    "qwen3_1_7b": (1.72e9, None),
    "qwen3_vl_32b": (33.36e9, None),
    "qwen35_35b_a3b": (35.1e9, None),
    "mimo_v2_flash": (309e9, 15.4e9),
    "deepseek_v4_flash": (284e9, 13.7e9),
    "deepseek_v4_pro": (1.573e12, 49e9),
    "gemma4_26b_a4b": (25.8e9, None),
    "kimi_k3": (2.78e12, None),
    "nemotron_super_49b": (49.87e9, None),
    "minimax_m3": (427e9, None),
    "nemotron_3_nano_30b_a3b": (31.6e9, 3.6e9),
    "step_37_flash": (196e9, 11e9),
    "glm_52": (743.4e9, None),
    "qwen3_next_80b_a3b": (80e9, None),
}
# What the files ask for and the model leaves out; every other file is read without a warning.
LEFT_OUT = {
    "gpt_j_6b": ("side by side",), "gpt_neox_20b": ("use_parallel_residual",), "deepseek_v4_flash": ("streams",),
    "deepseek_v4_pro": ("streams",),
}  # fmt: skip
# Whole published files: billions of parameters as names, model cards and indices of weights say (heads that predict
# ahead left out), and bytes of cache that a further token adds in bf16, from the keys of the file by hand.
WHOLE = {
    "MiniMaxAI--MiniMax-M2.5": (228.7, 62 * 2 * 8 * 128 * 2),  # index of weights
    "MiniMaxAI--MiniMax-M2.7": (228.7, 62 * 2 * 8 * 128 * 2),
    "MiniMaxAI--MiniMax-M3": (427, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
    "Qwen--Qwen3-0.6B": (0.596, 28 * 2 * 8 * 128 * 2),  # card: 0.6, 0.44 without embedding
    "Qwen--Qwen3-1.7B": (1.72, 28 * 2 * 8 * 128 * 2),
    "Qwen--Qwen3-235B-A22B": (235.1, 94 * 2 * 4 * 128 * 2),
    "Qwen--Qwen3-235B-A22B-FP8": (235.1, 94 * 2 * 4 * 128 * 2),
    "Qwen--Qwen3-30B-A3B": (30.53, 48 * 2 * 4 * 128 * 2),
    "Qwen--Qwen3-30B-A3B-FP8": (30.53, 48 * 2 * 4 * 128 * 2),
    "Qwen--Qwen3-32B-FP8": (32.76, 64 * 2 * 8 * 128 * 2),
    "Qwen--Qwen3-VL-235B-A22B-Instruct": (235.7, 94 * 2 * 4 * 128 * 2),
    "Qwen--Qwen3-VL-2B-Instruct": (2.13, 28 * 2 * 8 * 128 * 2),
    "Qwen--Qwen3-VL-32B-Instruct": (33.36, 64 * 2 * 8 * 128 * 2),
    "Qwen--Qwen3.5-122B-A10B": (122.6, 12 * 2 * 2 * 256 * 2),  # index: 125.1 with a module of 2.5 that predicts ahead
    "Qwen--Qwen3.5-27B": (27.36, 16 * 2 * 4 * 256 * 2),  # index: 27.78 with one of 0.42
    "Qwen--Qwen3.5-35B-A3B": (35.1, 10 * 2 * 2 * 256 * 2),  # index: 35.95 with one of 0.85
    "XiaomiMiMo--MiMo-7B-Base": (7.62, 36 * 2 * 8 * 128 * 2),
    "XiaomiMiMo--MiMo-V2-Flash": (309, 9 * 4 * (192 + 128) * 2),
    "deepseek-ai--DeepSeek-R1": (671, 61 * 576 * 2),
    "deepseek-ai--DeepSeek-V3": (671, 61 * 576 * 2),
    "deepseek-ai--DeepSeek-V3.2": (671.9, 61 * (576 + 128) * 2),
    "deepseek-ai--DeepSeek-V4-Flash": (284, 21 * (512 + 128) / 4 * 2 + 20 * 512 / 128 * 2),
    "deepseek-ai--DeepSeek-V4-Pro": (1573, 30 * (512 + 128) / 4 * 2 + 31 * 512 / 128 * 2),  # card: 1.6 trillion
    "google--gemma-4-26B-A4B": (25.8, 5 * 2 * 2 * 512 * 2),  # card: 25.2 and a vision encoder of 0.55
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (400.7, 12 * 2 * 8 * 128 * 2),  # without a vision part: no keys
    "meta-llama--Meta-Llama-3.1-405B": (405.9, 126 * 2 * 8 * 128 * 2),
    "meta-llama--Meta-Llama-3.1-70B": (70.55, 80 * 2 * 8 * 128 * 2),
    "mistralai--Mixtral-8x22B-v0.1": (140.6, 56 * 2 * 8 * 128 * 2),
    "moonshotai--Kimi-K2.5": (1026.9, 61 * 576 * 2),
    "moonshotai--Kimi-K3": (2780, 24 * 576 * 2),  # card: 2.8 trillion
    "nvidia--DeepSeek-V3.2-NVFP4": (671.9, 61 * (576 + 128) * 2),
    "nvidia--GLM-5-NVFP4": (743.9, 78 * (576 + 128) * 2),
    "nvidia--GLM-5.1-NVFP4": (743.9, 78 * (576 + 128) * 2),
    "nvidia--GLM-5.2-NVFP4": (743.4, (78 * 576 + 21 * 128) * 2),
    "nvidia--Gemma-4-26B-A4B-NVFP4": (25.8, 5 * 2 * 2 * 512 * 2),
    "nvidia--Kimi-K2.5-NVFP4": (1026.9, 61 * 576 * 2),
    "nvidia--Llama-3.1-70B-Instruct-FP8": (70.55, 80 * 2 * 8 * 128 * 2),
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": (49.87, 49 * 2 * 8 * 128 * 2),
    "nvidia--MiniMax-M3-NVFP4": (427, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.58, 6 * 2 * 2 * 128 * 2),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": (31.58, 6 * 2 * 2 * 128 * 2),
    "nvidia--Qwen3.5-122B-A10B-NVFP4": (122.6, 12 * 2 * 2 * 256 * 2),
    "nvidia--Qwen3.5-397B-A17B-NVFP4": (396.8, 15 * 2 * 2 * 256 * 2),
    "nvidia--Qwen3.6-27B-NVFP4": (27.36, 16 * 2 * 4 * 256 * 2),
    "openai--gpt-oss-120b": (116.8, 18 * 2 * 8 * 64 * 2),
    "stepfun-ai--Step-3.7-Flash": (195.9, 12 * 2 * 8 * 128 * 2),
    "stepfun-ai--Step-3.7-Flash-FP8": (195.9, 12 * 2 * 8 * 128 * 2),
    "zai-org--GLM-5": (743.9, 78 * (576 + 128) * 2),
}  # fmt: skip
STORED = {  # bytes of the weights as published, GB (indices of weights; heads that predict ahead left out)
    "deepseek-ai--DeepSeek-R1": 673, "openai--gpt-oss-120b": 65.2, "moonshotai--Kimi-K2.5": 595,
    "moonshotai--Kimi-K3": 1560, "Qwen--Qwen3-235B-A22B-FP8": 236.4, "nvidia--Llama-3.1-70B-Instruct-FP8": 72.7,
}  # fmt: skip


def read(name: str, **changes):
    """The fixture's model with keys changed, or dropped where the value is `...`; warnings aside."""
    config = {key: value for key, value in (CONFIGS[name] | changes).items() if value is not ...}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformer_from_dict(config, name)


def test_there_is_a_published_file_for_each_architecture_with_a_mapping_of_its_own():
    assert {config["architectures"][0] for config in CONFIGS.values()} >= set(EXACT)
    assert set(CONFIGS) == set(PUBLISHED)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_the_published_ones(name):
    model, (total, active) = read(name), PUBLISHED[name]
    check_ranges(model)
    assert float(model.parameters()) == pytest.approx(total, rel=0.01)
    if active:
        used = model.active_parameters() + model.vocab * model.hidden  # reports count the embedding table as well
        assert float(used) == pytest.approx(active, rel=0.025)


@pytest.mark.parametrize("name", mostly_slow(WHOLE, quick=sorted(WHOLE)[::8]))
def test_whole_published_files_have_the_published_size_and_cache(reference_dir, name):
    folder = reference_dir / "hub" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not at hand: no whole file is kept in this repository")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = from_config_json(folder)
    billions, cached = WHOLE[name]
    assert float(model.parameters()) == pytest.approx(billions * 1e9, rel=0.005)
    one = jnp.asarray(1.0)
    held = [float(model.attention.cache_bytes(jnp.asarray(2.0**n), one, Precision())) for n in (21, 22)]
    assert (held[1] - held[0]) / 2**21 * float(model.layers) == pytest.approx(cached, rel=1e-6)
    if name in STORED:
        nbytes = model.stored_bytes(Precision(by_class=model.formats))
        assert float(nbytes) == pytest.approx(STORED[name] * 1e9, rel=0.005)


@pytest.mark.parametrize("name", FAMILIES)
def test_further_families_have_the_published_size(name):
    """Published totals, two roundings of them aside; decoders have a cache, encoders none."""
    config, total = FAMILIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformer_from_dict(config, name)
    check_ranges(model)
    assert float(model.parameters()) == pytest.approx(total, rel=0.005)
    cached = float(model.attention.cache_bytes(jnp.asarray(1000.0), jnp.asarray(1.0), Precision()))
    assert (cached > 0) == (not name.startswith("bert"))


def test_architecture_that_is_not_known_is_read_by_its_keys_with_a_line():
    config = CONFIGS["llama31_8b"] | {"architectures": ["LamaForCausalLM"], "model_type": "lama"}
    with pytest.warns(UserWarning, match=r"architecture 'LamaForCausalLM' is not known .*read by its keys alone"):
        model = transformer_from_dict(config, "lama")
    assert float(model.parameters()) == float(read("llama31_8b").parameters())
    by_type = {key: value for key, value in CONFIGS["qwen3_30b_a3b"].items() if key != "architectures"}
    assert transformer_from_dict(by_type | {"model_type": "qwen3_moe"}, "x").has_experts


def test_plug_in_brings_an_architecture(monkeypatch):
    """A mapping of a few lines: keys of its own, a default, and the builders that are there."""
    theirs = architecture_by_keys(
        names={"hidden": "their.width", "experts": "their.experts"}, tied=True, expert_width=64
    )
    monkeypatch.setitem(ARCHITECTURES, "TheirForCausalLM", theirs)
    config = {
        "architectures": ["TheirForCausalLM"], "their": {"width": 256, "experts": 8}, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "num_experts_per_tok": 2, "intermediate_size": 64,
    }  # fmt: skip
    model = transformer_from_dict(config, "theirs")
    assert float(model.parameters()) == 1000 * 256 + 2 * (4 * 256**2 + 8 * 3 * 64 * 256 + 256 * 8)


def test_what_stands_beside_the_language_model_is_read():
    """Whether embeddings are tied; the object of the language model goes before it."""
    beside = read("qwen35_397b_a17b", tie_word_embeddings=True)
    assert float(beside.tied_embeddings) == 1
    assert float(read("qwen3_vl_2b", tie_word_embeddings=False).tied_embeddings) == 1


@pytest.mark.parametrize("name", sorted(set(CONFIGS) & {path.stem for path in CONF.glob("*.yaml")}))
def test_published_file_and_our_configuration_are_one_model(name):
    written = build({"model": yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))}).objects["model"]
    published = read(name)
    assert jax.tree.structure(written) == jax.tree.structure(published)
    assert jax.tree.map(float, jax.tree.leaves(written)) == jax.tree.map(float, jax.tree.leaves(published))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_left_out_is_said_in_one_line(name, tmp_path):
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_config_json(file)
    assert len(caught) == (name in LEFT_OUT)
    for warning in caught:
        assert "\n" not in str(warning.message)
        assert all(word in str(warning.message) for word in (name, *LEFT_OUT[name]))


def test_fields_that_say_how_a_model_differs():
    assert float(read("qwen3_32b").attention.head_dim) == 128  # stated, not hidden / heads = 80
    assert float(read("llama31_8b").attention.head_dim) == 128  # not stated
    assert float(read("llama31_8b", num_key_value_heads=...).attention.kv_heads) == 32
    assert float(read("gpt2").feed_forward.width) == 4 * 768
    assert read("gpt2").dropout
    assert not read("gpt2", resid_pdrop=0.0).dropout
    assert float(read("gpt2").tied_embeddings) == 1
    assert float(read("gpt2", tie_word_embeddings=False).tied_embeddings) == 0
    assert float(read("qwen2_57b_a14b").feed_forward.shared_experts) == 8  # one of 20,480, in experts of 2,560
    assert float(read("deepseek_v2", n_shared_experts=None).feed_forward.shared_experts) == 0
    assert isinstance(read("deepseek_v2", q_lora_rank=None).attention, LatentAttention)
    assert float(read("deepseek_v2", q_lora_rank=None).attention.q_rank) == 0
    assert isinstance(read("gpt_neox_20b").attention, GroupedQueryAttention)


@pytest.mark.parametrize(
    ("name", "changes", "window", "share"),
    [
        ("mistral_7b_v01", {}, 4096, 1.0),
        ("mistral_7b_v01", {"sliding_window": None}, None, None),
        ("mistral_7b_v01", {"max_position_embeddings": 4096}, None, None),  # as long as any context
        ("gpt_oss_120b", {}, 128, 0.5),
        ("gpt_oss_120b", {"layer_types": ["sliding_attention"] * 30 + ["full_attention"] * 6}, 128, 30 / 36),
        ("qwen2_7b", {"use_sliding_window": True, "max_window_layers": 21, "sliding_window": 4096}, 4096, 7 / 28),
        ("llama31_8b", {"sliding_window": 1024, "sliding_window_pattern": 6}, 1024, 27 / 32),
        ("llama4_scout", {}, 8192, 0.75),
    ],
)
def test_windows_are_read(name, changes, window, share):
    attention = read(name, **changes).attention
    assert isinstance(attention, LocalAttention) == (window is not None)
    if window is not None:
        assert (float(attention.window), float(attention.share)) == (window, share)
        assert attention.chunked == (name == "llama4_scout")


@pytest.mark.parametrize(
    ("name", "changes", "dense"),
    [
        ("qwen3_235b_a22b", {}, 0),
        ("qwen3_235b_a22b", {"decoder_sparse_step": 2}, 47),  # layers 0, 2, 4, ... of 94
        ("qwen3_235b_a22b", {"mlp_only_layers": [0, 1, 93]}, 3),
        ("qwen3_235b_a22b", {"decoder_sparse_step": 2, "mlp_only_layers": [0, 1]}, 48),  # layer 0 is dense already
        ("deepseek_v3", {}, 3),
        ("deepseek_v3", {"moe_layer_freq": 2}, 32),  # of layers 3 .. 60 the even ones 4, 6, ... 60 have experts
        ("mixtral_8x7b", {}, 0),
    ],
)
def test_dense_layers_of_a_mixture_are_counted(name, changes, dense):
    feed_forward = read(name, **changes).feed_forward
    assert isinstance(feed_forward, MixtureOfExperts)
    assert float(feed_forward.dense_layers) == dense


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("llama31_8b", {"architectures": ..., "model_type": ...}, ["architectures and model_type are missing"]),
        ("llama31_8b", {"architectures": "LlamaForCausalLM"}, ["architectures"]),
        ("llama31_8b", {"architectures": [{}]}, ["architectures"]),
        ("llama31_8b", {"num_hidden_layers": ...}, ["num_hidden_layers is missing"]),
        ("llama31_8b", {"num_hidden_layers": None}, ["num_hidden_layers is missing"]),
        ("llama31_8b", {"num_hidden_layers": -1}, ["num_hidden_layers = -1"]),
        ("llama31_8b", {"num_hidden_layers": 10**7}, ["num_hidden_layers = 10000000"]),
        ("llama31_8b", {"hidden_size": "4096"}, ["hidden_size = '4096'"]),
        ("llama31_8b", {"hidden_size": 4096.5}, ["hidden_size = 4096.5"]),
        ("llama31_8b", {"hidden_size": True}, ["hidden_size = True"]),
        ("llama31_8b", {"hidden_size": 4100}, ["4100", "32 heads", "head_dim"]),
        ("llama31_8b", {"vocab_size": float("nan")}, ["vocab_size = nan"]),
        ("llama31_8b", {"vocab_size": 10**400}, ["vocab_size"]),
        ("llama31_8b", {"num_key_value_heads": 64}, ["64 key-value heads", "32 query heads"]),
        ("llama31_8b", {"num_key_value_heads": 5}, ["5 key-value heads"]),
        ("llama31_8b", {"num_key_value_heads": 0}, ["num_key_value_heads = 0"]),
        ("llama31_8b", {"tie_word_embeddings": "no"}, ["tie_word_embeddings = 'no'"]),
        ("gpt2", {"resid_pdrop": 1.5}, ["resid_pdrop = 1.5"]),
        ("qwen3_235b_a22b", {"mlp_only_layers": [-1]}, ["mlp_only_layers = [-1]"]),
        ("qwen3_235b_a22b", {"num_experts_per_tok": 129}, ["129 of 128 experts"]),
        ("deepseek_v3", {"kv_lora_rank": None}, ["kv_lora_rank is missing"]),
        ("deepseek_v3", {"q_lora_rank": ...}, ["q_lora_rank is missing"]),  # null means none; nothing means nothing
        ("deepseek_v3", {"n_routed_experts": ...}, ["n_routed_experts is missing"]),
        ("mistral_7b_v01", {"sliding_window": "long"}, ["sliding_window = 'long'"]),
        ("gpt_oss_120b", {"layer_types": ["sliding_attention"]}, ["layer_types names 1 of 36 layers"]),
        ("gpt_oss_120b", {"layer_types": 3}, ["layer_types = 3"]),
        ("qwen3_next_80b_a3b", {"layer_types": ["full_attention"]}, ["layer_types names 1 of 48 layers"]),
        ("minimax_m25", {"attn_type_list": [0, 1] * 30}, ["attn_type_list names 60 of 62 layers"]),
        ("glm_5", {"indexer_types": ["full", "shared"] * 38}, ["indexer_types names 76 of 78 layers"]),
        ("llama4_scout", {"text_config": ...}, ["text_config is missing"]),
        ("llama4_scout", {"text_config": []}, ["text_config is no object"]),
    ],
)
def test_refused_in_one_line_that_names_the_field(name, changes, words):
    with pytest.raises(ConfigError) as refused:
        read(name, **changes)
    assert all(word in str(refused.value) for word in (name, *words)), str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "{", "not json", "[" * 100_000, '{"hidden_size": 1', b"\xff\xfe\x00{"])
def test_what_is_not_json_is_refused(content, tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(
        ConfigError, match=r"config\.json' (is not JSON: .+|cannot be read: line 1 is no UTF-8 text)"
    ) as refused:
        from_config_json(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["[]", "3", "null", '"LlamaForCausalLM"'])
def test_json_that_is_no_object_is_refused(content, tmp_path):
    (tmp_path / "some_model.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="some_model: not a JSON object"):
        from_config_json(tmp_path / "some_model.json")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.json' cannot be read: No such file"):
        from_config_json(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        from_config_json(tmp_path)  # a folder without config.json


def test_a_folder_gives_its_name(tmp_path):
    folder = tmp_path / "my_llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama31_8b"]), encoding="utf-8")
    assert from_config_json(folder).name == from_config_json(folder / "config.json").name == "my_llama"
    assert from_config_json(HUB / "llama31_8b.json").name == "llama31_8b"


def test_as_configuration():
    node = {"_target_": "codesign.model.workloads.from_config_json", "path": str(HUB / "llama31_8b.json")}
    model = build({"model": node}).objects["model"]
    assert jax.tree.structure(model) == jax.tree.structure(read("llama31_8b"))
    hub = yaml.safe_load((CONF / "hf_config.yaml").read_text(encoding="utf-8"))
    assert hub["_target_"] == node["_target_"]
    with pytest.raises(ConfigError, match=r"model\.path is missing"):
        build({"model": hub})


def values() -> st.SearchStrategy:
    numbers = st.integers() | st.floats() | st.sampled_from([0, 1, 2, 8, 64, 4096])
    return st.none() | st.booleans() | numbers | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@pytest.mark.slow
@given(name=st.sampled_from(sorted(CONFIGS)), data=st.data())
def test_any_value_is_read_or_refused(name, data):
    """Whatever stands in a field: either a model whose every number is legal, or one line of complaint."""
    config = copy.deepcopy(CONFIGS[name])
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[key] = data.draw(values())
    model, complaint = None, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = transformer_from_dict(config, name)
        except ConfigError as error:
            complaint = str(error)
    if model is None:
        assert complaint.startswith(f"model {name}: ")
        assert "\n" not in complaint
    else:
        check_ranges(model)
        assert float(model.parameters()) > 0


@pytest.mark.parametrize(
    "framework", ["megatron", "megatron_selective", "deepspeed_zero3", "eager_node", "mosaic_fsdp"]
)
def test_training_frameworks_take_a_published_file(framework):
    path = HUB / "mixtral_8x7b.json"
    made = scenario_from_config("model=hf", f"model.path={path}", "workload=training", f"framework={framework}")
    assert made.workload.model.fused_loss is (framework == "mosaic_fsdp")
