"""Models read from the config.json that hubs publish: every known architecture, and everything that must be refused."""

import copy
import json
import warnings
from pathlib import Path

import jax
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from codesign.config import build
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges
from codesign.model.workloads import (
    GroupedQueryAttention,
    LatentAttention,
    LocalAttention,
    MixtureOfExperts,
    from_config_json,
    transformer_from_dict,
)
from codesign.model.workloads.hub import ARCHITECTURES

HUB = Path(__file__).parent / "data" / "hub"
CONF = Path(__file__).parent.parent / "conf" / "model"
CONFIGS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(HUB.glob("*.json"))}

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
    "mistral_7b": (7.24e9, None),
    "mixtral_8x7b": (46.7e9, 12.9e9),
    "qwen2_57b_a14b": (57.4e9, 14.2e9),
    "qwen2_7b": (7.62e9, None),
    "qwen3_235b_a22b": (235e9, 22e9),
    "qwen3_30b_a3b": (30.5e9, 3.3e9),
    "qwen3_32b": (32.8e9, None),
    "qwen3_next_80b_a3b": (80e9, None),
}
# What the files ask for and the model leaves out; every other file is read without a warning.
LEFT_OUT = {
    "deepseek_r1": ("num_nextn_predict_layers", "quantization_config"),
    "deepseek_v3": ("num_nextn_predict_layers", "quantization_config"),
    "deepseek_v32": ("num_nextn_predict_layers", "quantization_config"),
    "glm_45": ("num_nextn_predict_layers",),
    "glm_45_air": ("num_nextn_predict_layers",),
    "kimi_k2": ("quantization_config",),
    "llama4_maverick": ("vision part",),
    "gpt_j_6b": ("side by side",),
    "gpt_neox_20b": ("use_parallel_residual",),
    "gpt_oss_120b": ("quantization_config",),
    "llama4_scout": ("vision part",),
    "qwen3_next_80b_a3b": ("gate",),
}


def read(name: str, **changes):
    """The fixture's model with keys changed, or dropped where the value is `...`; warnings aside."""
    config = {key: value for key, value in (CONFIGS[name] | changes).items() if value is not ...}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformer_from_dict(config, name)


def test_there_is_a_published_file_for_each_architecture():
    assert {config["architectures"][0] for config in CONFIGS.values()} == set(ARCHITECTURES)
    assert set(CONFIGS) == set(PUBLISHED)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_the_published_ones(name):
    model, (total, active) = read(name), PUBLISHED[name]
    check_ranges(model)
    assert float(model.parameters()) == pytest.approx(total, rel=0.01)
    if active:
        used = model.active_parameters() + model.vocab * model.hidden  # reports count the embedding table as well
        assert float(used) == pytest.approx(active, rel=0.025)


@pytest.mark.parametrize("name", sorted(set(CONFIGS) & {path.stem for path in CONF.glob("*.yaml")}))
def test_published_file_and_our_configuration_are_one_model(name):
    written = build({"model": yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))}).objects["model"]
    published = read(name)
    assert jax.tree.structure(written) == jax.tree.structure(published)
    assert jax.tree.map(float, jax.tree.leaves(written)) == jax.tree.map(float, jax.tree.leaves(published))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_left_out_is_said_in_one_line(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_config_json(HUB / f"{name}.json")
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
        ("mistral_7b", {}, 4096, 1.0),
        ("mistral_7b", {"sliding_window": None}, None, None),
        ("mistral_7b", {"max_position_embeddings": 4096}, None, None),  # as long as any context
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
        ("llama31_8b", {"architectures": ["LamaForCausalLM"]}, ["'LamaForCausalLM'", *ARCHITECTURES]),
        ("llama31_8b", {"architectures": ["BertForMaskedLM"]}, ["'BertForMaskedLM'", *ARCHITECTURES]),
        ("llama31_8b", {"architectures": ...}, ["architectures"]),
        ("llama31_8b", {"architectures": []}, ["architectures"]),
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
        ("mistral_7b", {"sliding_window": "long"}, ["sliding_window = 'long'"]),
        ("gpt_oss_120b", {"layer_types": ["sliding_attention"]}, ["layer_types names 1 of 36 layers"]),
        ("gpt_oss_120b", {"layer_types": 3}, ["layer_types = 3"]),
        ("qwen3_next_80b_a3b", {"layer_types": ["full_attention"]}, ["layer_types names 1 of 48 layers"]),
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
