"""`codesign evaluate --from`: launch commands, scripts and manifests of every spelling."""

import csv
from pathlib import Path

import pytest
from launches import COMMANDS, MANIFESTS, REFUSED

from codesign.commands.cli import main
from codesign.commands.export_plan import OPTIONS
from codesign.commands.launch import read_launch, with_launch
from codesign.commands.launch.switches import ENGINES, options_of, read_switches
from codesign.config import available
from codesign.config.model_names import FORMATS, KINDS, hub_name, hub_names, of_the_family
from codesign.core.errors import ConfigError

DATA = Path(__file__).resolve().parent / "data"
H100 = ["accelerator=h100_sxm"]


def overrides_of(text: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in read_launch(text).overrides)


@pytest.mark.parametrize(("text", "expected"), [*COMMANDS, *MANIFESTS])
def test_a_command_says_these_overrides(text, expected):
    result = overrides_of(text)
    wanted = dict(one.split("=", 1) for one in expected.split())
    assert {key: result.get(key) for key in wanted} == wanted


def test_a_file_is_read_as_its_text(tmp_path):
    for (text, _), name in ((COMMANDS[4], "start.sh"), (MANIFESTS[0], "k8s.yaml"), (COMMANDS[-1], "train.toml")):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert read_launch(str(path)) == read_launch(text)


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_cannot_be_read_is_one_line(capsys, text, said):
    assert main(["evaluate", "--from", text]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


def test_every_switch_of_public_commands_is_known():
    """126 switches of 453 public commands for vLLM (vllm-project/recipes at 8959cf6)."""
    with (DATA / "vllm_switches.csv").open(encoding="utf-8") as file:
        switches = [row["switch"] for row in csv.DictReader(file)]
    for switch in switches:
        assert read_switches("vllm", ["Qwen/Qwen3-32B", f"{switch}=1"]).given, switch
    assert len(switches) == 126


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_has_an_effect(engine):
    with (OPTIONS / f"{engine}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["effect"] for row in rows} == {"priced", "none", "not modelled"}
    assert {row["takes"] for row in rows} <= {"0", "1", "?", "+", ""}
    for name, option in options_of(engine).items():
        same = {one.effect for one in options_of(engine).values() if one.name == option.name}
        assert len(same) == 1, name


def test_what_is_not_modelled_is_one_line():
    text = "VLLM_ATTENTION_BACKEND=X vllm serve Qwen/Qwen3-32B --enable-eplb --port 1 --moe-backend m --seed 3"
    told = read_launch(text).left
    assert [line for line in told if line.startswith("not modelled")] == [
        "not modelled: --enable-eplb, --moe-backend m",
        "not modelled: variables VLLM_ATTENTION_BACKEND=X",
    ]


def test_a_count_in_a_variable_that_nothing_sets_is_said():
    text = (
        "torchrun --nnodes $N --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
        " --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1 --global-batch-size 128"
    )
    notes = read_launch(text).left
    assert "--nnodes $N has no value here, 1 is taken: set it before the command, or give cluster.device_count" in notes


@pytest.mark.slow
def test_the_share_of_memory_is_the_engines():
    """What a command says, else the engine's default; vLLM's profile run takes more on devices of 70 GiB and more."""
    field = "workload.engine_memory"
    result, _ = with_launch("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8 --max-num-seqs 64", H100)
    assert {"engine_memory=vllm", f"{field}.utilisation=0.8", f"{field}.tokens=8192"} <= set(result)
    assert not any(one.startswith(f"{field}.sequences") for one in result)
    result, lines = with_launch("vllm serve Qwen/Qwen3-8B", ["accelerator=a100_80gb"])
    assert {f"{field}.utilisation=0.9", f"{field}.sequences=256", f"{field}.tokens=2048"} <= set(result)
    assert any("its default" in line for line in lines)
    result, _ = with_launch("sglang serve --model-path Qwen/Qwen3-8B --mem-fraction-static 0.9", H100)
    assert {"engine_memory=sglang", f"{field}.utilisation=0.9"} <= set(result)
    result, _ = with_launch("vllm serve Qwen/Qwen3-8B", [*H100, f"{field}.utilisation=0.5", "engine_memory=vllm"])
    assert f"{field}.utilisation=0.9" not in result


@pytest.mark.parametrize(("switch", "share"), [
    ("--free_gpu_memory_fraction 0.7", 0.7), ("--kv_cache_free_gpu_memory_fraction 0.6", 0.6), ("", 0.0),
    ("""--kv_cache_config '{"free_gpu_memory_fraction": 0.5}'""", 0.5),
])  # fmt: skip
def test_shares_of_tensorrt_llm_are_read(switch, share):
    assert read_launch(f"trtllm-serve Qwen/Qwen3-8B {switch}").memory.utilisation == share


def test_a_share_of_the_cache_that_is_none_is_one_line():
    with pytest.raises(ConfigError, match="free_gpu_memory_fraction 7 is no number from 0 to 1"):
        read_launch("""trtllm-serve Qwen/Qwen3-8B --kv_cache_config '{"free_gpu_memory_fraction": 7}'""")


def test_requests_are_no_longer_than_the_engine_takes():
    text = "vllm serve Qwen/Qwen3-8B --max-model-len 1000"
    result, _ = with_launch(text, H100)
    assert {"workload.input_tokens=800", "workload.output_tokens=200"} <= set(result)
    result, lines = with_launch(text, [*H100, "workload.input_tokens=4000"])
    assert "workload.input_tokens=800" not in result
    assert any("longer than the 1000" in line for line in lines)


@pytest.mark.slow
def test_weights_in_the_host_are_a_share_of_the_device_s():
    result, _ = with_launch("vllm serve meta-llama/Llama-3.1-70B -tp 1 --cpu-offload-gb 80", H100)
    share = float(dict(one.split("=", 1) for one in result)["plan.offload_weights"])
    assert share == pytest.approx(80 * 2**30 / (2 * 70.55e9), rel=0.01)


@pytest.mark.slow
def test_a_launch_says_what_room_its_cache_has(capsys):
    """As engines print when they start: 0.9 of what a driver shows, less weights and a sort of 1024 rows of logits."""
    assert main(["evaluate", "--from", "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.9", *H100]) == 0
    line = next(one for one in capsys.readouterr().out.splitlines() if one.startswith("room for KV cache"))
    room, tokens = float(line.split()[4]), float(line.split()[8].replace(",", ""))
    assert room == pytest.approx((0.9 * 0.99 * 85.899 - 2 * 8.19 - 1.05 * 6.0) / 1.073741824, rel=0.01)
    assert tokens == pytest.approx(room * 2**30 / (2 * 8 * 128 * 36 * 2), rel=0.02)


def test_what_is_typed_beside_a_command_holds():
    text = "vllm serve acme/Unheard-8B -tp 2 --max-num-seqs 8"
    result, lines = with_launch(text, ["model=llama31_8b", "plan.tp=4", "workload=at_rate"])
    assert {"plan.tp=4", "plan.micro_batch=8", "model=llama31_8b", "workload=at_rate"} <= set(result)
    assert not {"plan.tp=2", "workload=continuous"} & set(result)
    assert lines[0].startswith("read as: ")


def test_a_model_lies_in_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "fp8"}}',
        encoding="utf-8",
    )
    for name in (tmp_path, tmp_path / "config.json"):
        result = overrides_of(f"vllm serve {name}")
        assert (result["model"], result["model.path"]) == ("hf_config", str(tmp_path / "config.json"))
        assert result["precision"] == "checkpoint"


def test_rows_of_hub_names_are_sound():
    known = available("model")
    for row in hub_names().values():
        assert row.kind in ("", *KINDS)
        assert row.source
        assert row.kind or (row.model in known and row.format in FORMATS), row


@pytest.mark.parametrize(
    ("name", "model", "stored"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama31_70b", "bf16"),
        ("qwen/qwen3-235b-a22b-instruct-2507-fp8", "qwen3_235b_a22b", "fp8_block"),
        ("DeepSeek-V3.2-Exp", "deepseek_v32", "fp8_block"),
        ("nvidia/Llama-3.3-70B-Instruct-$DTYPE", "llama31_70b", "bf16"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_k25", "int4"),
        ("acme/Qwen3-32B-AWQ", "qwen3_32b", "int4"),
        ("zai-org/GLM-4.6-FP8", "glm_45", "fp8"),
    ],
)
def test_a_name_is_a_model_and_a_format(name, model, stored):
    result = hub_name(name)
    assert (result.model, result.format) == (model, stored)


def test_only_the_family_is_suggested():
    assert all(name.rpartition("/")[2].startswith("Qwen") for name in of_the_family("Qwen/Qwen9-32B"))
    assert of_the_family("acme/Unheard-32B") == []
    with pytest.raises(ConfigError, match=r"config\.json"):
        hub_name("meta-llama/Llama-9-Behemoth")


def test_two_stages_whose_ends_both_have_less_are_equal():
    titan = "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b"
    megatron = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 30 --hidden-size 1024 --num-attention-heads 16"
        " --seq-length 1024 --micro-batch-size 1 --global-batch-size 64 --account-for-embedding-in-pipeline-split"
        " --account-for-loss-in-pipeline-split --pipeline-model-parallel-size 2"
    )
    for command in (f"{titan} --parallelism.pipeline_parallel_degree 2", megatron):
        assert not any("stage_less" in word for word in read_launch(command).overrides)


def test_a_mesh_of_maxtext_takes_what_is_left_of_the_devices():
    """`ici_fsdp_parallelism=-1`, as recipes have it."""
    train = "python3 -m MaxText.train base.yml model_name=llama3.1-8b per_device_batch_size=2 ici_tensor_parallelism=4"
    words, _ = with_launch(f"{train} ici_fsdp_parallelism=-1", ["cluster.device_count=64"])
    assert {"plan.tp=4", "plan.zero=3", "workload.global_batch=128", "cluster.device_count=64"} <= set(words)
    with pytest.raises(ConfigError, match="4 devices, do not divide 30"):
        with_launch(train, ["cluster.device_count=30"])


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 23, 40, 59, 60, 61, 62, 63, 71, 72, -1])
def test_what_is_read_is_priced(at, capsys):
    """Commands of one engine, of two pools, of trainers: every override is one that a configuration takes."""
    text, _ = [*COMMANDS, *MANIFESTS][at]
    code = main(["evaluate", "--json", "--from", text, "accelerator=b200"])
    told = capsys.readouterr()
    assert code == 0 or "does not fit" in told.err, told.err
