"""Models chosen by the names that hubs and tables give them: which option each means, and what means none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign.config import own_files
from codesign.config.composition import admit, chosen_options, combinations, compose
from codesign.config.groups import files
from codesign.config.model_names import model_aliases, model_option
from codesign.core.errors import ConfigError

NAMES = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama31_8b",
    "meta-llama/Meta-Llama-3.1-8B": "llama31_8b",
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": "llama31_8b",
    "llama3.1-8b": "llama31_8b",
    "LLAMA3_70B": "llama31_70b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama31_70b",
    "Llama-3.3 70B": "llama31_70b",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": "llama31_70b",
    "meta-llama/Llama-3.1-405B-Instruct-FP8": "llama31_405b",
    "LLAMA3.1_405B": "llama31_405b",
    "meta-llama/Llama-2-7b-chat-hf": "llama2_7b",
    "llama2-70b-99.9": "llama2_70b",
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": "llama4_scout",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": "llama4_maverick",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama_34b",
    "Qwen/Qwen3-32B": "qwen3_32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3_32b",
    "Qwen/Qwen3-8B-Base": "qwen3_8b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3_30b_a3b",
    "Qwen3_30B_a3B": "qwen3_30b_a3b",
    "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8": "qwen3_235b_a22b",
    "Qwen/Qwen3-VL-235B-A22B-Instruct": "qwen3_vl_235b_a22b",
    "Qwen/Qwen3.5-397B-A17B": "qwen35_397b_a17b",
    "Qwen/Qwen2.5-7B-Instruct-AWQ": "qwen25_7b",
    "mistralai/Mistral-Nemo-Instruct-2407": "mistral_nemo_12b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral_7b",
    "mistralai/Mistral-7B-Instruct-v0.1": "mistral_7b_v01",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral_8x7b",
    "deepseek-ai/DeepSeek-V3.1": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3-Base": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek_v32",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek_r1",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek_r1",
    "zhipuai/GLM-5": "glm_5",
    "zai-org/GLM-4.5": "glm_45",
    "zai-org/GLM-4.5-Air-FP8": "glm_45_air",
    "moonshotai/Kimi-K2-Instruct-0905": "kimi_k2",
    "moonshotai/Kimi-K2.5": "kimi_k25",
    "MiniMaxAI/MiniMax-M2.7": "minimax_m25",
    "GPT OSS 120B": "gpt_oss_120b",
    "01-ai/Yi-34B-Chat": "yi_34b",
    "databricks/dbrx-instruct": "dbrx",
    "Qwen/Qwen3-33B": None,
    "Qwen/Qwen-72B": None,  # of the first generation: another shape
    "Llama-2-70": None,
    "Qwen2-57B": None,  # letters and digits alone would be those of Qwen2.5-7B
    "Megatron-17B": None,  # and of megatron_1_7b
    "meta-llama/Llama-7B": None,
    "nvidia/GLM-5.2-NVFP4": "glm_52",
    "google/gemma-3-27b-it": "gemma3_27b",
    "google/gemma-2-27b-it": None,
    "Instruct": None,
    "70B": None,
    "/": None,
    "": None,
}
MINE = """# @package workload.model
# Mine
_target_: codesign.model.workloads.from_config_json
name: mine
path: config.json
"""


@pytest.mark.parametrize("name", NAMES)
def test_published_name_means_one_option_or_none(name):
    assert model_option(name) == NAMES[name]


def test_every_option_and_alias_finds_itself():
    options, aliases = {path.stem for path in files("model")}, model_aliases()
    assert {name: model_option(name) for name in options} == {name: name for name in options}
    assert {name: model_option(f"SOMEBODY/{name}-FP8") for name in aliases} == aliases
    assert set(aliases.values()) <= options
    assert not set(aliases) & options


@pytest.mark.parametrize("ending", ["", "-Instruct", "-FP8-dynamic", "-Thinking-2507", "-chat-hf", "-NVFP4", "_AWQ"])
def test_endings_that_change_no_shape_do_not_count(ending):
    for option in ("llama31_70b", "qwen3_32b", "mixtral_8x22b", "mistral_7b_v01"):
        assert model_option(f"x/{option.upper()}{ending}") == option


OPTIONS = {None, *(path.stem for path in files("model"))}


@given(st.text(max_size=30))
def test_any_text_is_an_option_or_nothing(name):
    assert model_option(name) in OPTIONS


def named(overrides: list[str]) -> list[str]:
    """What is admitted, without the framework that people run."""
    return [text for text in admit(overrides) if not text.startswith("framework=")]


@pytest.mark.parametrize(
    ("overrides", "admitted"),
    [
        (["model=Qwen/Qwen3-32B"], ["model=qwen3_32b"]),
        (["model=Llama-3.3 70B"], ["model=llama31_70b"]),
        (["experiment=serve_goodput", "model=GLM-4.6"], ["experiment=serve_goodput", "model=glm_45"]),
        (["model=Qwen/Qwen3-32B,glm_5,zhipuai/GLM-5"], ["model=qwen3_32b,glm_5,glm_5"]),
        (["model=[DeepSeek-V3.1]"], ["model=[deepseek_v3]"]),
        (["model=qwen3_32b"], ["model=qwen3_32b"]),
        (["model=hf_config", "model.path=Qwen/Qwen3-32B"], ["model=hf_config", "workload.model.path=Qwen/Qwen3-32B"]),
    ],
)
def test_a_name_is_admitted_as_the_option_it_means(overrides, admitted):
    assert named(overrides) == admitted


def test_a_name_composes_to_what_its_option_composes_to():
    assert compose(["model=Qwen/Qwen3-32B"]) == compose(["model=qwen3_32b"])
    assert chosen_options(["model=mistralai/Mistral-7B-v0.1"])["model"] == "mistral_7b_v01"


def test_jobs_of_several_names():
    jobs = combinations(admit(["model=Qwen/Qwen3-32B,zhipuai/GLM-5"]))
    assert [job[0] for job in jobs] == ["model=qwen3_32b", "model=glm_5"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Qwen/Qwen3-33B", "did you mean 'qwen3_32b'?"),
        ("nope", "known: bert_large, calculon_gpt3_175b, "),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_both_ways_out(name, words):
    with pytest.raises(ConfigError) as refused:
        admit([f"model={name}"])
    assert str(refused.value).startswith(f"model = {name} does not exist (")
    assert words in str(refused.value)
    assert str(refused.value).endswith("(or model=hf_config model.path=CONFIG.JSON)")


def mine(folder: Path, text: str, name: str = "mine") -> Path:
    """A folder of own files with one model."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / f"{name}.yaml").write_text(text.replace("name: mine", f"name: {name}"), encoding="utf-8")
    return folder


def test_own_files_have_names_and_aliases(tmp_path):
    with own_files(mine(tmp_path, MINE + "aliases: [Our-Model-9B, 01-ai/Yi-6B]\n")):
        assert model_option("us/our-model-9b-instruct") == model_option("Yi-6B-Chat") == model_option("Mine") == "mine"
        assert named(["model=us/Our-Model-9B-FP8"]) == ["model=mine"]
    assert model_option("us/our-model-9b-instruct") is None


def test_a_name_with_an_ending_goes_before_one_without(tmp_path):
    with own_files(mine(tmp_path, MINE, "qwen3_32b_fp8")):
        assert model_option("Qwen/Qwen3-32B-FP8") == "qwen3_32b_fp8"
        assert model_option("Qwen/Qwen3-32B-FP8-dynamic") == "qwen3_32b_fp8"
        assert model_option("Qwen/Qwen3-32B-NVFP4") == "qwen3_32b"


@pytest.mark.parametrize(
    ("aliases", "words"),
    [
        ("[GLM-4.6]", r"model/mine\.yaml: alias 'GLM-4\.6' stands in model/glm_45\.yaml too: a name means one model"),
        ("[glm46]", r"alias 'glm46' stands in model/glm_45\.yaml too as 'GLM-4\.6'"),
        ("[Qwen3-32B]", r"(alias 'qwen3_32b' stands in model/mine|alias 'Qwen3-32B' stands in model/qwen3_32b)"),
        ("Our-9B", r"model/mine\.yaml: aliases = 'Our-9B' must be a list of names, such as \[Our-9B\]"),
    ],
)
def test_two_files_with_one_name_are_refused(tmp_path, aliases, words):
    with own_files(mine(tmp_path, f"{MINE}aliases: {aliases}\n")):
        with pytest.raises(ConfigError, match=words):
            admit(["model=Some-Name-7B"])
        assert named(["model=mine"]) == ["model=mine"]  # options need no names
