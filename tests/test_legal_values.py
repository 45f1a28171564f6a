"""A layout that breaks a rule is refused in one line: the rule, the framework whose it is, and what would be legal."""

import functools
import re
from typing import Any

import pytest

from codesign.config.checks import check_plan
from codesign.config.study import documented_scenario
from codesign.core.errors import ConfigError
from codesign.core.fields import as_leaf, replace
from codesign.model.scenario import Scenario
from codesign.model.workloads.plan_fields import plan_value

TRAINED = "workload=training cluster.device_count=64 workload.global_batch=128 plan.virtual_stages=1 plan.pp=1"
BASES = {
    "dense": f"model=llama31_70b {TRAINED} plan.tp=1 plan.sequence_parallel=1 workload.sequence=8192",
    "experts": f"model=qwen3_235b_a22b {TRAINED} plan.tp=1 workload.sequence=4096",
    "served": "model=llama31_70b workload=serving cluster.device_count=64 plan.tp=8 plan.pp=1",
    "experts_served": "model=qwen3_235b_a22b workload=serving cluster.device_count=64 plan.tp=8 plan.pp=1",
    "trtllm": "model=qwen3_235b_a22b workload=serving framework=trtllm cluster.device_count=64 plan.tp=16 plan.pp=1",
    "pools": "model=llama31_70b workload=disaggregated prefill=same cluster.device_count=64 plan.tp=8 plan.pp=1",
    "rollouts": "model=llama31_70b workload=rl_post_training plan=rl_split",
}
WRONG = [  # (base, what is wrong, words of the refusal, one override that would be legal or "")
    ("dense", "plan.tp=3", "model heads = 64 (Megatron: num_attention_heads %", "plan.tp=4"),
    ("dense", "plan.tp=128", "does not divide model heads = 64", "plan.tp=64"),
    ("dense", "plan.tp=8 plan.pp=3", "does not divide cluster.device_count = 64 (Megatron: world size", "plan.pp=2"),
    ("dense", "plan.pp=4 plan.virtual_stages=3", "(20 layers a stage; Megatron: num_layers %", "plan.virtual_stages=4"),
    ("dense", "plan.virtual_stages=3", "Megatron: interleaving is of pipeline_", "plan.virtual_stages=1"),
    ("dense", "plan.pp=4 plan.micro_batch=3", "(Megatron: global_batch_size %", "workload.global_batch=144"),
    ("dense", "plan.ulysses=3", "with tp = 1 they divide 8 key-value heads", "plan.ulysses=1"),
    ("dense", "plan.cp=4 plan.ulysses=3", "does not divide plan.cp = 4 (Megatron", "plan.ulysses=2"),
    ("dense", "plan.tp=4 plan.cp=4 plan.ulysses=4", "does not divide 8 key-value heads (Transformer", "plan.ulysses=2"),
    ("dense", "plan.cp_order=contiguous", "needs context ranks", "plan.cp_order=zigzag"),
    ("dense", "plan.cp=32 workload.sequence=1000", "(Megatron: seq_length %", "workload.sequence=1024"),
    ("dense", "plan.pp=4 plan.schedule=zb_v", "PyTorch: two stages a rank", "plan.virtual_stages=2"),
    ("dense", "plan.schedule=zb_h1", "needs a pipeline", "plan.schedule=1f1b"),
    (
        "dense",
        "plan.pp=16 plan.schedule=dual_pipe workload.global_batch=64",
        "takes 32 micro-batches or more over plan.pp = 16 stages, not 16 of plan.micro_batch = 1 (DualPipe: num_chunks",
        "workload.global_batch=128",
    ),
    ("dense", "plan.first_stage_less=1", "need a pipeline", "plan.first_stage_less=0"),
    ("dense", "plan.pp=4 plan.first_stage_less=1", "(Megatron: --account-for-embedding", "plan.last_stage_less=3"),
    ("dense", "plan.pp=2 plan.first_stage_less=1 plan.last_stage_less=1", "so one of the two is 0", ""),
    ("dense", "plan.recompute=full plan.recompute_modules=layernorm", "(Megatron", "plan.recompute=selective"),
    ("dense", "plan.recompute_modules=moe+mlp", "this model has no moe", "plan.recompute_modules=mlp"),
    ("dense", "plan.decode_cp=2", "is of serving", "plan.decode_cp=1"),
    ("experts", "plan.ep=3", "must divide model experts = 128 and the 64 data ranks", "plan.ep=4"),
    ("experts", "plan.tp=2 plan.ep=64", "1 spreads whole ones over the 64 ranks of a stage", "plan.etp=1"),
    ("experts", "plan.tp=4 plan.ep=64 plan.etp=4", "(Megatron: world = expert_tensor", "plan.etp=1"),
    ("experts", "plan.tp=4 plan.ep=8 plan.etp=5", "(Megatron: expert_tensor_parallel_size)", "plan.etp=4"),
    ("served", "plan.tp=3", "(vLLM, SGLang, TensorRT-LLM: num_attention_heads", "plan.tp=4"),
    ("served", "plan.attention_dp=3", "(SGLang: tp_size % dp_size = 0)", "plan.attention_dp=1"),
    ("served", "plan.attention_dp=8", "vLLM runs no attention groups", "plan.attention_dp=1"),
    ("served", "plan.decode_cp=2", "(vLLM: decode_context_parallel_size", "plan.decode_cp=1"),
    ("served", "plan.ulysses=2", "is of training", "plan.ulysses=1"),
    ("served", "plan.micro_batch=1 plan.pp=2", "at least 2", "plan.micro_batch=2"),
    ("experts_served", "plan.attention_dp=2 plan.ep=2", "vLLM spreads whole experts over all ranks", "plan.ep=1"),
    ("trtllm", "plan.attention_dp=2", "TensorRT-LLM cuts attention over all ranks", "plan.attention_dp=16"),
    ("pools", "plan.prefill_devices=12 plan.prefill_tp=8", "does not divide plan.prefill_devices", "plan.prefill_tp=4"),
    ("pools", "plan.prefill_devices=16 plan.prefill_tp=8 plan.prefill_attention_dp=3", "plan.prefill_tp = 8", ""),
    ("rollouts", "plan.rollout_devices=200", "at most 127", "plan.rollout_devices=127"),
    ("rollouts", "plan.rollout_tp=3", "does not divide the 64 devices of rollouts", "plan.rollout_tp=4"),
]


@functools.cache
def base(name: str) -> Scenario:
    return documented_scenario(*BASES[name].split())[0]


def number(key: str, word: str) -> Any:
    return as_leaf(float(word)) if re.fullmatch(r"[\d.]+", word) else plan_value(key.removeprefix("plan."), word)


def moved(scenario: Scenario, overrides: str) -> Scenario:
    pairs = [one.split("=") for one in overrides.split()]
    return replace(scenario, {key: number(key, word) for key, word in pairs})


def offered(message: str) -> list[str]:
    """Overrides that a refusal names."""
    result: list[str] = []
    for part in message.rpartition("; take ")[2].split(", or "):
        key, _, values = part.partition("=")
        result += [f"{key}={one}" for one in re.split(", | or ", values)]
    return result


@pytest.mark.parametrize(("name", "wrong", "words", "way_out"), WRONG, ids=[one[1] for one in WRONG])
def test_wrong_layouts_are_refused_with_what_is_legal(name: str, wrong: str, words: str, way_out: str):
    scenario = moved(base(name), wrong)
    with pytest.raises(ConfigError) as caught:
        check_plan(scenario)
    message = str(caught.value)
    assert words in message, message
    assert "\n" not in message
    assert len(message) < 400
    assert any(one.partition("=")[0].rpartition(".")[2] in message for one in wrong.split())
    if way_out:
        assert way_out in offered(message), message
        for override in offered(message):
            check_plan(moved(scenario, override))


def test_where_no_single_field_is_enough_the_rule_alone_is_mended():
    with pytest.raises(ConfigError, match=r"; this rule holds with plan.ulysses=1$"):
        check_plan(moved(base("dense"), "cluster.device_count=48 plan.cp=3 plan.ulysses=3"))
