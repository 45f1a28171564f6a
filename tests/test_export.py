"""`codesign export`: what it writes is what the engines' parsers take, and nothing of a plan is passed over."""

import csv
import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from example_run import write_run

from codesign.commands.cli import main
from codesign.commands.export import TARGETS, exported
from codesign.commands.export_plan import SERVERS, TRAINERS, deployment, published, supported_options, unsaid
from codesign.commands.export_training import RECIPES
from codesign.commands.launch import read_launch, with_launch
from codesign.core.errors import ConfigError
from codesign.core.resources import conf_dir

CHECKED = ("vllm", "sglang", "megatron", "torchtitan", "maxtext")
DENSE = {"name": "llama31_405b", "hidden": 16384, "layers": 126, "vocab": 128256, "tied_embeddings": 0,
         "norm_vectors": 1.0, "attention": {"heads": 128, "kv_heads": 8, "head_dim": 128},
         "feed_forward": {"width": 53248, "gated": 1}}  # fmt: skip
SPARSE = {"name": "deepseek_v3", "hidden": 7168, "layers": 61, "vocab": 129280,
          "attention": {"heads": 128, "q_rank": 1536, "kv_rank": 512, "nope_dim": 128, "rope_dim": 64,
                        "value_dim": 128},
          "feed_forward": {"experts": 256, "top_k": 8, "expert_width": 2048, "shared_experts": 1, "dense_layers": 3,
                           "dense_width": 18432}}  # fmt: skip
FP8 = {"compute": "fp8", "weights": "fp8", "kv_cache": "fp8"}
SERVING = {"_target_": "codesign.model.workloads.ContinuousServing", "input_tokens": 2048, "output_tokens": 512}
TRAINING = {"_target_": "codesign.model.workloads.Training", "sequence": 2048, "global_batch": 1024}


def run_of(folder: Path, workload: dict, model: dict, plan: dict, **row: float) -> Path:
    """A run folder with one design."""
    folder.mkdir(parents=True)
    config = {
        "cluster": {"device_count": 64, "accelerator": {"name": "h200"}},
        "workload": workload | {"model": model},
        "plan": {"tp": 8},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    result = {"rank": 1, "feasible": True, "method": "certified", "time_s": 1.0} | row
    pd.DataFrame([result | {f"var.{name}": float(value) for name, value in plan.items()}]).to_parquet(
        folder / "designs.parquet"
    )
    return folder


def commands(text: str) -> list[list[str]]:
    """Words of each command of a script."""
    joined = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [shlex.split(line) for line in joined.splitlines() if line.strip()]


def switches(words: list[str]) -> dict[str, list[str]]:
    """Option -> values, without the program and its launcher's own options."""
    start = next(
        (at + 1 for at, word in enumerate(words) if word == "pretrain_gpt.py" or word == "torchtitan.train"), 0
    )
    result: dict[str, list[str]] = {}
    if any(word.startswith("maxtext.") for word in words):
        return {key: [value] for key, _, value in (word.partition("=") for word in words[4:])}
    for word in words[start:]:
        if word.startswith(("--", "activation-checkpoint:")):
            result[word] = []
        elif result:
            result[next(reversed(result))].append(word)
    return result


def check_switches(files: dict[str, str], target: str) -> None:
    """Every option, those in comments too, and every value that has choices."""
    known = supported_options(target)
    for name, text in files.items():
        if name == "benchmark.sh":
            continue
        launched = re.sub(r"torchrun [^\n]*", "", text)
        for option in set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", launched)):
            assert option in known, option
        for words in commands(text):
            for option, values in switches(words).items():
                assert option in known, option
                for value in values:
                    assert not known[option] or value in known[option] or "FILL-IN" in value, (option, value)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serving runs that differ in all that a switch depends on."""
    folder, result = tmp_path_factory.mktemp("served"), []
    plans = (
        {"tp": 8, "micro_batch": 64, "token_budget": 512},
        {"tp": 8, "pp": 2, "micro_batch": 64, "offload_weights": 0.5},
        {"tp": 4, "prefill_devices": 32, "prefill_tp": 4, "prefill_pp": 2, "micro_batch": 48},
        {"tp": 4, "attention_dp": 4, "ep": 4, "micro_batch": 256},
    )
    formats = (
        {},
        FP8,
        {"compute": "fp4", "weights": "fp4", "kv_cache": "fp4"},
        {"weights": "int8", "kv_cache": "fp16"},
    )
    for at, (plan, model, precision) in enumerate(itertools.product(plans, (DENSE, SPARSE), formats)):
        if model is SPARSE or "attention_dp" not in plan:
            work = SERVING | {"precision": precision, "input_cv": 0.5 * (at % 2)}
            spilled = {"memory_bytes.ddr/weights": 30e9} if "offload_weights" in plan else {}
            result.append(run_of(folder / str(at), work, model, plan, **spilled))
    return result


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Training runs that differ in all that a switch depends on."""
    folder, result = tmp_path_factory.mktemp("trained"), []
    for at, (zero, recompute, pp, model) in enumerate(itertools.product(range(4), range(3), (1, 2), (DENSE, SPARSE))):
        plan = {"tp": 4, "pp": pp, "virtual_stages": pp, "micro_batch": 2, "zero": zero, "recompute": recompute}
        plan |= {"sequence_parallel": at % 2, "ep": 2.0 if model is SPARSE and zero else 1.0, "cp": 1 + at % 2}
        plan |= {"offload_optimizer": 0.5 * (at % 3), "offload_activations": 0.25 * (at % 2), "tp_overlap": 0.5}
        plan |= {"offload_weights": 0.5 * (at % 3 == 2), "offload_gradients": 0.5 * (at % 3 == 2)}
        work = TRAINING | {"precision": [{}, FP8, {"gradients": "bf16"}][at % 3]}
        work |= {"tokens": 3e11, "_target_": "codesign.model.workloads.TrainingRun"} if at % 4 == 0 else {}
        result.append(run_of(folder / str(at), work, model, plan))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_every_switch_of_a_server_is_one_of_its_parser(served, target):
    for run in served:
        check_switches(exported(run, target), target)


@pytest.mark.parametrize("target", TRAINERS)
def test_every_switch_of_a_trainer_is_one_of_its_parser(trained, target):
    written = 0
    for run in trained:
        try:
            files = exported(run, target)
        except ConfigError:  # unequal chunks, or experts without sharded parameters
            assert target == "maxtext"
            continue
        check_switches(files, target)
        written += 1
    assert written >= len(trained) / 4


def test_manifests_hold_the_same_switches(served):
    for run in served:
        for document in yaml.safe_load_all(exported(run, "k8s")["k8s.yaml"]):
            if document["kind"] == "Service":
                continue
            (container,) = document["spec"]["template"]["spec"]["containers"]
            assert container["image"].startswith("FILL-IN")
            assert set(switches(container["args"])) <= set(supported_options("vllm"))


def test_what_has_no_parser_says_so_first(served):
    for run in served:
        files = exported(run, "trtllm")
        assert files.pop("benchmark.sh").startswith("# switches as the parser of vllm")
        for text in files.values():
            assert text.startswith("# not checked")


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_of_the_plan_is_passed_over(tmp_path, target):
    """What no switch takes is a comment."""
    plan = {"tp": 8, "tp_algorithm": 1, "scatter_gather_p2p": 0, "offload_activations": 0.25, "hbm_capacity": 2e11}
    work = TRAINING if target in TRAINERS else SERVING
    text = "".join(exported(run_of(tmp_path / "run", work, DENSE, plan), target).values())
    assert "no switch: tp_algorithm" in text
    assert "no switch: scatter_gather_p2p = 0" in text
    assert "offload_activations" in text or "--activation-offload-fraction 0.25" in text
    assert "hbm_capacity = 200 G" in text


def test_a_node_of_vllm_by_hand(tmp_path):
    plan = {"tp": 8, "pp": 2, "micro_batch": 64, "token_budget": 512}
    run = run_of(tmp_path / "run", SERVING | {"precision": FP8}, DENSE, plan)
    text = exported(run, "vllm")["vllm.sh"]
    (words,) = commands(text)
    assert words[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-405B"]
    assert switches(words) == {
        "--tensor-parallel-size": ["8"], "--pipeline-parallel-size": ["2"], "--max-num-seqs": ["64"],
        "--max-num-batched-tokens": ["544"], "--max-model-len": ["2560"], "--quantization": ["fp8"],
        "--kv-cache-dtype": ["fp8"],
    }  # fmt: skip
    assert "16 devices; start 4 of these" in text
    assert "--nnodes 2" in text


def test_shared_experts_by_hand(tmp_path):
    """4 replicas of 4 ranks that attend alone are one engine of 16 ranks; 64 devices hold 4 of them."""
    plan = {"tp": 4, "attention_dp": 4, "ep": 4, "micro_batch": 256, "token_budget": 512}
    run = run_of(tmp_path / "run", SERVING, SPARSE, plan)
    (words,) = commands(exported(run, "vllm")["vllm.sh"])
    result = switches(words)
    assert (result["--tensor-parallel-size"], result["--data-parallel-size"]) == (["1"], ["16"])
    assert (result["--max-num-seqs"], "--enable-expert-parallel" in result) == (["64"], True)
    (words,) = commands(exported(run, "sglang")["sglang.sh"])
    result = switches(words)
    assert (result["--tp-size"], result["--attn-dp-size"], result["--ep-size"]) == (["16"], ["16"], ["4"])
    assert (result["--max-running-requests"], result["--chunked-prefill-size"]) == (["1024"], ["8192"])
    assert "start 4 of these" in exported(run, "vllm")["vllm.sh"]


@pytest.mark.parametrize(("tp", "replicas"), [(16, 1), (4, 4)])
def test_whole_experts_on_tensor_ranks_by_hand(tmp_path, tp, replicas):
    """16 ranks hold 16 parts of the experts, and are one tensor group or four."""
    run = run_of(tmp_path / "run", SERVING, SPARSE, {"tp": tp, "ep": 16, "etp": 1, "micro_batch": 64})
    (words,) = commands(exported(run, "vllm")["vllm.sh"])
    result = switches(words)
    assert result["--tensor-parallel-size"] == [str(tp)]
    assert result.get("--data-parallel-size", ["1"]) == [str(replicas)]
    assert "--enable-expert-parallel" in result
    (words,) = commands(exported(run, "sglang")["sglang.sh"])
    result = switches(words)
    assert (result["--tp-size"], result["--ep-size"]) == (["16"], ["16"])
    assert "start 4 of these" in exported(run, "vllm")["vllm.sh"]


def test_two_pools_by_hand(tmp_path):
    plan = {"tp": 4, "prefill_devices": 32, "prefill_tp": 4, "prefill_pp": 2, "micro_batch": 48}
    run = run_of(tmp_path / "run", SERVING, DENSE, plan)
    prefill, decode = map(switches, commands(exported(run, "sglang")["sglang.sh"]))
    assert (prefill["--disaggregation-mode"], prefill["--pp-size"]) == (["prefill"], ["2"])
    assert (decode["--disaggregation-mode"], decode["--max-running-requests"]) == (["decode"], ["48"])
    text = exported(run, "vllm")["vllm.sh"]
    assert "prefill engine: 8 devices; start 4" in text
    assert "decode engine: 4 devices; start 16" in text


def test_an_engine_of_two_nodes_is_a_stateful_set(tmp_path):
    run = run_of(tmp_path / "run", SERVING, DENSE, {"tp": 8, "pp": 2})
    first, service, *_ = yaml.safe_load_all(exported(run, "k8s")["k8s.yaml"])
    assert (first["kind"], first["spec"]["replicas"]) == ("StatefulSet", 2)
    (container,) = first["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["args"][-4:] == ["--node-rank", "$(NODE_RANK)", "--master-addr", "vllm-0-0.vllm-0"]
    assert service["metadata"]["name"] == first["spec"]["serviceName"]


def test_a_training_plan_by_hand(tmp_path):
    plan = {"tp": 8, "pp": 2, "virtual_stages": 3, "micro_batch": 2, "recompute": 2, "zero": 1, "sequence_parallel": 1}
    run = run_of(tmp_path / "run", TRAINING, DENSE, plan)
    (words,) = commands(exported(run, "megatron")["megatron.sh"])
    result = switches(words)
    assert words[:5] == ["torchrun", "--nproc-per-node", "8", "--nnodes", "8"]
    assert result["--num-virtual-stages-per-pipeline-rank"] == ["3"]
    assert result["--recompute-granularity"] == ["full"]
    assert "--use-distributed-optimizer" in result
    assert "--use-megatron-fsdp" not in result
    assert result["--num-query-groups"] == ["8"]
    assert result["--global-batch-size"] == ["1024"]
    text = exported(run, "torchtitan")["torchtitan.sh"]
    result = switches(commands(text)[0])
    assert result["--training.local_batch_size"] == ["256"]  # 1,024 sequences over 4 replicas, all in the pipeline
    assert result["--parallelism.pipeline_parallel_layers_per_stage"] == ["21"]
    assert "shards no optimizer alone" in text


@pytest.mark.parametrize(
    ("target", "work", "model", "plan", "said"),
    [
        ("vllm", TRAINING, DENSE, {}, "megatron, torchtitan, maxtext can run it"),
        ("k8s", TRAINING, DENSE, {}, "megatron, torchtitan, maxtext can run it"),
        ("megatron", SERVING, DENSE, {}, "vllm, sglang, trtllm, k8s, lws, dynamo, llm-d can run it"),
        ("vllm", SERVING, DENSE, {"attention_dp": 8}, "--to sglang"),
        ("sglang", SERVING, DENSE, {"cp": 2}, "--to vllm"),
        ("trtllm", SERVING, SPARSE, {"attention_dp": 2}, "over all ranks of an engine or over none"),
        ("torchtitan", TRAINING, SPARSE, {"ep": 2}, "ep without zero"),
        ("maxtext", TRAINING, SPARSE, {"tp": 1, "ep": 2}, "MaxText's expert axis shards parameters"),
        ("maxtext", TRAINING, DENSE, {"pp": 2, "schedule": 1}, "no other schedule"),
        ("maxtext", TRAINING, DENSE, {"pp": 4}, "126 layers do not divide over pp 4"),
        ("vllm", {"_target_": "codesign.model.workloads.Recommendation"}, {"name": "dlrm"}, {}, "no target runs it"),
    ],
)
def test_a_plan_that_the_target_cannot_run_is_one_line(tmp_path, capsys, target, work, model, plan, said):
    run = run_of(tmp_path / "run", work, model, plan)
    assert main(["export", str(run), "--to", target, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not printed.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "vlm"], "did you mean 'vllm'"),
        (["--to", "vllm", "--design", "7"], "has no design 7"),
        (["--to", "vllm", "--design", "0"], "has no design 0"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, capsys, words, said):
    run = run_of(tmp_path / "run", SERVING, DENSE, {})
    assert main(["export", str(run), *words]) == 2
    assert said in capsys.readouterr().err
    assert main(["export", str(tmp_path / "none"), "--to", "vllm"]) == 2


@pytest.mark.parametrize("plan", [{"tp": 0}, {"tp": float("inf")}, {"token_budget": -5}])
def test_a_plan_that_is_none_is_one_line(tmp_path, plan):
    with pytest.raises(ConfigError, match="of this run is no number from 1 to"):
        exported(run_of(tmp_path / "run", SERVING, DENSE, plan), "vllm")


@pytest.mark.parametrize("target", TARGETS)
def test_a_design_that_breaks_a_limit_is_refused_unless_asked_for(tmp_path, capsys, target):
    work = TRAINING if target in TRAINERS else SERVING
    over = {"limit.usage.hbm": 1.204, "limit.time_s": 0.7, "limit.capex_usd": float("inf")}
    run = run_of(tmp_path / "run", work, DENSE, {}, feasible=False, **over)
    assert main(["export", str(run), "--to", target, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert "breaks capex_usd (no capacity) and usage.hbm (120.4% of what is allowed); no design" in printed.err
    assert "--anyway" in printed.err
    assert not printed.out
    assert not (tmp_path / "out").exists()
    assert main(["export", str(run), "--to", target, "--anyway"]) == 0
    told = capsys.readouterr().out
    assert "NOT FEASIBLE: this design breaks" in told
    assert "usage.hbm" in told
    assert "time_s" not in told.partition("NOT FEASIBLE")[2].partition("\n")[0]


def test_a_refused_design_says_which_designs_meet_the_limits(tmp_path):
    run = run_of(tmp_path / "run", SERVING, DENSE, {})
    frame = pd.read_parquet(run / "designs.parquet")
    rows = [frame.assign(rank=rank, feasible=rank < 8) for rank in range(1, 9)]
    pd.concat(rows).to_parquet(run / "designs.parquet")
    assert exported(run, "vllm", 7)
    with pytest.raises(ConfigError, match=r"design 8 .* breaks a limit .*: 1, 2, 3, 4, 5 and 2 more; --anyway"):
        exported(run, "vllm", 8)


def test_files_are_written_where_asked(tmp_path, capsys):
    run = run_of(tmp_path / "run", SERVING, DENSE, {})
    assert main(["export", str(run), "--to", "trtllm", "--out", str(tmp_path / "out")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in written] == ["trtllm.sh", "trtllm.yaml", "benchmark.sh"]
    assert all(path.is_file() for path in written)


def test_a_run_as_a_search_leaves_it(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert main(["export", str(run), "--to", "megatron", "--design", "2"]) == 0
    assert "design 2 of run" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="not one of"):
        exported(run, "slurm")


def test_models_are_called_as_their_files_say():
    assert published("llama31_405b") == "meta-llama/Llama-3.1-405B"
    assert published("mixtral_8x22b") == "mistralai/Mixtral-8x22B-v0.1"
    assert published("gpt3_175b") == ""
    assert published("../config") == ""


def test_a_shape_that_the_plan_chose_is_no_published_model(tmp_path):
    from codesign.report.run_folder import read_run

    result = deployment(read_run(run_of(tmp_path / "run", TRAINING, DENSE, {"layers": 80})), 1)
    assert not result.hub
    assert result.model["layers"] == 80
    assert any("layers = 80" in line for line in unsaid(result, ()))


def test_recipes_are_those_of_the_package():
    for module, name in RECIPES.values():
        assert module in supported_options("torchtitan")["--module"]
        assert name in supported_options("torchtitan")["--config"]
    assert all((conf_dir() / "model" / f"{name}.yaml").is_file() for name in RECIPES)


def test_targets_are_either_servers_or_trainers():
    assert set(TARGETS) == {*SERVERS, *TRAINERS}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (DENSE, {"tp": 8, "micro_batch": 64, "token_budget": 512}),
        (DENSE, {"tp": 4, "pp": 2, "micro_batch": 32, "token_budget": 2048}),
        (SPARSE, {"tp": 1, "ep": 8, "micro_batch": 16, "token_budget": 192}),
        (SPARSE, {"tp": 8, "attention_dp": 8, "micro_batch": 256, "token_budget": 1024}),
    ],
)
def test_what_is_exported_is_read_back(tmp_path, engine, model, plan):
    """The plan of one engine, as a model that has a published name and fp8 numbers."""
    run = run_of(tmp_path / "run", SERVING | {"precision": FP8}, model, plan)
    (words,) = commands(exported(run, engine)[f"{engine}.sh"])
    result = dict(text.split("=", 1) for text in read_launch(shlex.join(words)).overrides)
    assert result["model"] == model["name"]
    assert (result["workload"], result["workload.precision.kv_cache"]) == ("continuous", "fp8")
    assert {key: float(result[f"plan.{key}"]) for key in plan} == plan
    devices = plan["tp"] * plan.get("pp", 1) * plan.get("ep", 1)
    assert float(result["cluster.device_count"]) == devices


@pytest.mark.parametrize(
    ("words", "weights"),
    [
        ("vllm serve deepseek-ai/DeepSeek-V3 -tp 8", "checkpoint"),
        ("python -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 16", "checkpoint"),
        ("vllm serve Qwen/Qwen3-32B -tp 8", None),
    ],
)
def test_weights_are_in_the_format_of_the_published_checkpoint(words, weights):
    """An engine that is told nothing serves DeepSeek-V3 as it is published; in two bytes it would fit no node."""
    result = read_launch(words)
    told = dict(text.split("=", 1) for text in result.overrides)
    assert told.get("precision") == weights
    assert any("published checkpoint is in fp8_block" in line for line in result.left) == (weights == "checkpoint")


def test_names_of_an_option_are_one():
    short = read_launch("vllm serve Qwen/Qwen3-32B -tp 4 -dp=2 --max_num_seqs 8 --kv-cache-dtype fp8")
    long = read_launch(
        "vllm serve Qwen/Qwen3-32B --tensor-parallel-size=4 --data-parallel-size 2 --max-num-seqs=8 \\\n"
        " --kv-cache-dtype=fp8"
    )
    assert short == long
    begun = read_launch("python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4 --mem-fraction 0.9")
    assert "plan.tp=4" in begun.overrides
    assert begun.memory.utilisation == 0.9
    assert "cluster.device_count=8" in short.overrides
    assert not any(text.startswith("precision=") for text in short.overrides)


def test_what_is_left_aside_is_said():
    text = "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-eplb --port 80 --max-model-len 4096 -tp 2"
    result, lines = with_launch(text, ["plan.tp=4", "accelerator=h200"])
    told = " ".join(lines)
    assert "not modelled: --enable-eplb" in told
    assert "--port" not in told
    assert "--max-model-len is a bound" in told
    assert "plan.tp=2" not in result
    assert result[-2:] == ("plan.tp=4", "accelerator=h200")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve Qwen/Qwen3-32B --tensor-paralel-size 8", "did you mean '--tensor-parallel-size'"),
        ("vllm serve Qwen/Qwen3-32 -tp 8", "of its family: Qwen/Qwen3-32B"),
        ("vllm serve Qwen/Qwen3-32B -tp eight", "no whole number"),
        ("vllm serve Qwen/Qwen3-32B --kv-cache-dtype fp9", "did you mean 'fp8'"),
        ("vllm serve 'Qwen", "cannot be read as words of a shell"),
        ("torchrun train.py", "no command that is read"),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tpp 8", "has no option '--tpp'"),
    ],
)
def test_a_command_that_cannot_be_read_is_one_line(capsys, text, said):
    assert main(["evaluate", "--from", text]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


def test_options_are_read_from_sources_without_importing_them(tmp_path):
    """As the parsers of vLLM and SGLang are written: unpacked fields of a class, annotated fields of a struct."""
    sources = {
        "vllm/engine/arg_utils.py": (
            "import absent\ncache_kwargs = get_kwargs(CacheConfig)\n"
            'group.add_argument("--cache", "-c", **cache_kwargs["dtype"])\n'
            'group.add_argument("--mode", choices=["a", "b"])\n'
        ),
        "vllm/config/cache.py": 'Kind = Literal["auto", "fp8"]\nclass CacheConfig:\n    dtype: Kind = "auto"\n',
        "vllm/config/kv_transfer.py": 'class KVTransferConfig:\n    kv_role: Literal["one"] | None = None\n',
        "vllm/distributed/kv_transfer/kv_connector/factory.py": 'Factory.register_connector("Own", "a", "b")\n',
        "sglang/srt/arg_groups/choices.py": 'KINDS = ["fp8", "fp4"]\n',
        "sglang/srt/arg_groups/fields/model.py": (
            'class LaunchedModel:\n    tp_size: A[int, Arg(help="x", aliases=["--tensor"])] = 1\n'
            "    kind: A[Optional[str], Arg(choices=KINDS)] = None\n    own: A[int, Arg(no_cli=True)] = 0\n"
        ),
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = Path(__file__).resolve().parent.parent / "benchmarks" / "engine_options.py"
    for target, expected in (
        ("vllm", {"--cache": "auto|fp8", "-c": "auto|fp8", "--mode": "a|b", "--kv-transfer-config.kv_role": "one",
                  "--kv-transfer-config.kv_connector": "Own"}),
        ("sglang", {"--tp-size": "", "--tensor": "", "--kind": "fp8|fp4"}),
    ):  # fmt: skip
        out = tmp_path / f"{target}.csv"
        subprocess.run([sys.executable, script, target, "1.0", tmp_path, out], check=True, capture_output=True)
        rows = list(csv.DictReader(out.open(encoding="utf-8")))
        assert {row["option"]: row["choices"] for row in rows} == expected
        assert {row["version"] for row in rows} == {"1.0"}
        assert all(re.fullmatch(rf"{target}/[\w/.]+py:\d+", row["at"]) for row in rows)
