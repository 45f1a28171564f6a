"""Run tables as strangers write them: column names of benchmarks, devices, formats, replicas, rates."""

import contextlib
import io
import json
import shlex
from pathlib import Path

import pytest

from codesign.commands.cli import main
from codesign.core.errors import ConfigError, DataError
from codesign.evidence.measurements.columns import metric_of, number_path, plain
from codesign.evidence.validation import validate
from codesign.evidence.validation.compared_runs import command_of, compared, run_rows
from codesign.evidence.validation.measured_runs import run_of, run_tables

VLLM = {
    "GPU": "NVIDIA H100 80GB HBM3", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tensor_parallel_size": "1",
    "max_concurrency": "16", "request_rate": "inf", "random_input_len": "1024", "random_output_len": "256",
    "dtype": "bfloat16", "kv_cache_dtype": "auto", "mean_ttft_ms": "60", "mean_tpot_ms": "9", "mean_itl_ms": "8.9",
}  # fmt: skip
STEP = {
    "gpu_type": "H100", "world_size": "64", "model": "Llama-3-70B", "tensor_model_parallel_size": "4",
    "pipeline_model_parallel_size": "4", "micro_batch_size": "1", "global_batch_size": "128", "seq_length": "8192",
    "precision": "bf16", "elapsed_time_per_iteration_ms": "15000",
}  # fmt: skip


def overrides(row: dict[str, str]) -> dict[str, str]:
    """Overrides of a row by their key."""
    return {text.partition("=")[0]: text.partition("=")[2] for text in run_of(row, "here").run.overrides()}


@pytest.mark.parametrize(("column", "metric"), [
    ("Mean TTFT (ms)", ("ttft_s", 1e-3)), ("time_to_first_token_p99_ms", ("ttft_p99_s", 1e-3)),
    ("Median E2EL (s)", ("e2e_p50_s", 1.0)), ("request_latency_avg_ms", ("e2e_s", 1e-3)),
    ("inter_token_latency_avg_ms", ("tpot_s", 1e-3)), ("output_token_throughput", ("tokens_per_s", 1.0)),
    ("Output TPUT per GPU", ("tokens_per_s_per_device", 1.0)), ("Throughput (tokens/s)", ("tokens_per_s", 1.0)),
    ("request_throughput", ("requests_per_s", 1.0)), ("elapsed_time_per_iteration_ms", ("time_s", 1e-3)),
    ("throughput_per_gpu_tflops", ("tflops_per_device", 1.0)), ("hbm_gb", ("peak_memory_bytes", 1e9)),
    ("Total Token Throughput (tok/s)", ("all_tokens_per_s", 1.0)), ("mean_ttft", None),
    ("total tokens/s/GPU", ("all_tokens_per_s_per_device", 1.0)),
    ("output_token_throughput_per_user", None),
])  # fmt: skip
def test_a_metric_is_known_however_it_is_spelt(column, metric):
    assert metric_of(column) == metric


@pytest.mark.parametrize(("column", "path"), [
    ("Input Tokens", "workload.input_tokens"), ("CONC", "plan.micro_batch"),
    ("# of accelerators", "cluster.device_count"), ("VP", "plan.virtual_stages"), ("users", "plan.micro_batch"),
    ("workload.input_cv", "workload.input_cv"), ("input_throughput", None),
])  # fmt: skip
def test_a_number_is_known_however_it_is_spelt(column, path):
    assert number_path(column) == path
    assert plain(plain(column)) == plain(column)


def test_a_row_of_vllm_is_a_closed_loop_of_clients():
    told = overrides(VLLM)
    assert told["accelerator"] == "h100_sxm"
    assert told["model"] == "llama31_8b"
    assert told["workload"] == "continuous"
    assert (told["plan.micro_batch"], told["cluster.device_count"], told["plan.tp"]) == ("16", "1", "1")
    assert not any(key.startswith(("precision", "workload.precision")) for key in told)
    run = run_of(VLLM, "here")
    assert run.measured == pytest.approx({"ttft_s": 0.06, "tpot_s": 0.009})
    assert run.carried == ""


@pytest.mark.parametrize(("more", "said"), [
    ({"GPU": "8xH100", "tensor_parallel_size": "2"}, {"cluster.device_count": "8", "plan.micro_batch": "4"}),
    ({"GPU": "H100-SXM x 4", "tensor_parallel_size": "4"}, {"cluster.device_count": "4", "accelerator": "h100_sxm"}),
    ({"GPU": "NVIDIA GeForce RTX 4090"}, {"accelerator": "rtx_4090"}),
    ({"GPU": "AMD Instinct MI325X 256GB HBM3E"}, {"accelerator": "mi325x"}),
    ({"GPU": "TPU v6e-8", "tensor_parallel_size": "8"}, {"accelerator": "tpu_v6e", "cluster.device_count": "8"}),
    ({"GPU": "TPU v5e"}, {"accelerator": "tpu_v5e"}), ({"GPU": "NVIDIA A10G"}, {"accelerator": "a10g"}),
    ({"GPU": "gfx942"}, {"accelerator": "mi300x"}), ({"GPU": "GB300 NVL72"}, {"accelerator": "gb300"}),
    ({"quantization": "awq"}, {"precision": "int4"}), ({"quantization": "w8a8"}, {"precision": "int8"}),
    ({"quantization": "modelopt_fp4"}, {"workload.precision.weights": "fp4"}),
    ({"quantization": "fp8"}, {"workload.precision.weights": "fp8", "workload.precision.kv_cache": "fp8"}),
    ({"model_id": "Qwen/Qwen2.5-7B-Instruct-AWQ"}, {"precision": "int4"}),
    ({"model_id": "Qwen/Qwen3-8B-FP8"}, {"precision": "fp8_block"}),
    ({"model_id": "nvidia/DeepSeek-R1-0528-FP4-v2", "tensor_parallel_size": "8"}, {"precision": "nvfp4"}),
    ({"kv_cache_dtype": "fp8_e4m3"}, {"workload.precision.kv_cache": "fp8"}),
    ({"engine": "vLLM 0.8.5"}, {"framework": "vllm"}), ({"engine": "TensorRT-LLM"}, {"framework": "trtllm"}),
    ({"data_parallel_size": "4"}, {"cluster.device_count": "4", "plan.micro_batch": "4"}),
    ({"tensor_parallel_size": "8", "dp_size": "8", "enable_dp_attention": "True"},
     {"cluster.device_count": "8", "plan.attention_dp": "8", "plan.micro_batch": "16"}),
    ({"max_concurrency": "", "request_rate": "2.5"}, {"workload": "at_rate", "workload.arrivals_per_s": "2.5"}),
    ({"tensor_parallel_size": "", "num_gpus": "4"}, {"plan.tp": "4"}),
])  # fmt: skip
def test_what_a_cell_means(more, said):
    told = overrides(VLLM | more)
    assert {key: told.get(key) for key in said} == said


def test_tokens_of_prompts_and_answers_are_counted_apart():
    told = run_of(VLLM | {"total_token_throughput": "5000"}, "here").measured
    assert told["tokens_per_s"] == pytest.approx(1000.0)  # 256 of every 1,280
    told = run_of(VLLM | {"total_token_throughput": "5000", "output_throughput": "990"}, "here").measured
    assert told["tokens_per_s"] == 990.0
    told = run_of(STEP | {"total_tokens_per_s": "5000"}, "here").measured
    assert told["tokens_per_s"] == 5000.0
    assert "all_tokens_per_s" not in told


@pytest.mark.slow
def test_medians_of_a_closed_loop_are_compared_with_means():
    medians = {"median_ttft_ms": "60", "median_tpot_ms": "9"}
    means = {name: cell for name, cell in VLLM.items() if not name.startswith("mean_")}
    messages: list[str] = []
    found = {one.metric: one for one in compared([run_of(means | medians, "line 2")], messages)}
    exact = {one.metric: one for one in compared([run_of(VLLM, "line 2")], [])}
    assert found["ttft_p50_s"].predicted == pytest.approx(exact["ttft_s"].predicted, rel=1e-12)
    assert found["tpot_p50_s"].predicted == pytest.approx(exact["tpot_s"].predicted, rel=1e-12)
    assert ["medians compared with means" in text for text in messages] == [True]
    shown = {row["quantity"]: row for row in run_rows(list(found.values()))}
    assert shown["tpot_p50_s"]["low"] < shown["tpot_p50_s"]["predicted"] < shown["tpot_p50_s"]["high"]


def test_a_burst_comes_all_at_once():
    run = run_of(VLLM | {"max_concurrency": "", "num_prompts": "100"}, "here")
    assert (run.requests, run.rate) == (100, float("inf"))
    clients = run_of(VLLM | {"num_prompts": "100"}, "here")
    assert (clients.requests, clients.rate) == (100, 0.0)
    shared = run_of(VLLM | {"num_prompts": "100", "data_parallel_size": "4"}, "here")  # dealt to replicas by turns
    assert shared.run.numbers["plan.micro_batch"] == 16


def test_steps_of_trainers():
    told = overrides(STEP | {"recompute_granularity": "selective", "precision": "mxfp8"})
    assert told["plan.recompute"] == "selective"
    assert told["workload.precision.compute"] == "fp8"
    run = run_of(STEP | {"throughput_per_gpu_tflops": "494.5", "samples_per_s": "8.5"}, "here")
    assert run.measured["mfu"] == pytest.approx(0.5, rel=1e-3)
    assert run.measured["tokens_per_s"] == 8.5 * 8192


def test_what_a_table_does_not_state_is_told(tmp_path: Path):
    """Not read in silence: a load that nobody states, times without a unit, prices of defaults."""
    (tmp_path / "mine.csv").write_text('GPU,Model,TP,TTFT,tokens/s/gpu\nH100,Llama-3.1-8B,1,0.2,"1,237.5"\n')
    messages: list[str] = []
    (run,) = run_tables(tmp_path, [], messages)
    assert run.measured == {"tokens_per_s_per_device": 1237.5}
    assert messages[1:] == [
        "mine.csv: column TTFT states no unit: called TTFT_ms or TTFT_s it would be compared",
        "mine.csv: input_tokens, output_tokens, concurrency or request_rate not stated: compared with what "
        "`codesign evaluate` takes by itself",
    ]
    messages.clear()
    (tmp_path / "mine.csv").write_text("GPU,Model,num_gpus,GBS,Step (s)\nH100,Llama-3.1-8B,8,64,2.5\n")
    run_tables(tmp_path, [], messages)
    assert any("mine.csv: seq_len not stated" in text for text in messages)


def test_a_result_that_is_no_table_is_sent_to_import(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "result.json").write_text("{}")
    assert main(["validate", str(tmp_path / "result.json")]) == 2
    assert f"result.json is no CSV; `codesign import {tmp_path}" in capsys.readouterr().err


def test_a_burst_waits_for_places_of_an_engine_and_not_for_clients():
    burst = run_of(VLLM | {"max_concurrency": "", "max_num_seqs": "64", "num_prompts": "500"}, "here")
    assert (burst.rate, burst.run.numbers["plan.micro_batch"]) == (float("inf"), 64)
    assert run_of(VLLM | {"max_concurrency": "64", "num_prompts": "500"}, "here").rate == 0


def test_a_batch_that_starts_together_ends_together():
    row = {
        "workload": "static_batch",
        "batch": "8",
        "request_latency_avg_s": "1.85",
        "max_concurrency": "",
        "request_rate": "",
    }
    run = run_of({name: cell for name, cell in VLLM.items() if "mean" not in name} | row, "here")
    assert (run.measured, run.run.numbers["plan.micro_batch"]) == ({"time_s": 1.85}, 8)


@pytest.mark.parametrize(("more", "said"), [
    ({"GPU": "Tesla T4"}, "gpu 'Tesla T4' is no accelerator"), ({"GPU": "L40"}, "gpu 'L40' is no accelerator"),
    ({"model_id": "my-org/secret"}, "model 'my-org/secret' has no configuration"),
    ({"quantization": "awq", "precision": "fp8"}, "are two number formats"),
    ({"quantization": "q4_k_m"}, "precision 'q4_k_m' is not modelled"),
    ({"max_concurrency": ""}, "requests come all at once"),
    ({"samples_per_s": "8.5"}, "rates of training"),
])  # fmt: skip
def test_a_row_that_cannot_be_answered_says_why(more, said):
    with pytest.raises(ConfigError, match=said) as error:
        run_of(VLLM | more, "here")
    assert "\n" not in str(error.value)


def table_of(rows: list[dict[str, str]]) -> str:
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join(row.get(name, "") for name in header) for row in rows]
    return "\n".join([",".join(header), *lines]) + "\n"


@pytest.mark.slow
def test_both_commands_give_one_number(tmp_path: Path):
    """Devices that nobody counts, clients without room, a step that fits with what the row leaves open."""
    rows = [
        VLLM | {"tensor_parallel_size": ""}, VLLM | {"GPU": "RTX 4090", "model_id": "Qwen/Qwen2.5-7B-Instruct-AWQ"},
        VLLM | {"model_id": "meta-llama/Llama-3.3-70B-Instruct", "tensor_parallel_size": "2", "quantization": "fp8",
                "random_input_len": "8192", "max_concurrency": "256"},
    ]  # fmt: skip
    (tmp_path / "serve.csv").write_text(table_of(rows))
    (tmp_path / "step.csv").write_text(table_of([STEP]))
    messages: list[str] = []
    found = run_tables(tmp_path, [], messages)
    assert len(found) == 4, messages
    assert any("a cache has room for" in line for line in messages)
    assert any("it does not fit as stated; priced with" in line for line in messages)
    told = {one.run.location: one for one in compared(found, messages) if one.metric in ("tpot_s", "time_s")}
    assert len(told) == 4, messages
    for one in told.values():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main([*shlex.split(command_of(one.run))[1:], "--json"]) == 0
        assert json.loads(out.getvalue())[one.metric] == pytest.approx(one.predicted, rel=1e-9)


@pytest.mark.parametrize(("cell", "said"), [("-5", "line 2: set aside, "), ("fast", "line 2: set aside, ")])
def test_a_table_of_which_no_row_can_be_read_says_why(tmp_path: Path, cell, said):
    (tmp_path / "mine.csv").write_text(f"GPU,Model,Median TPOT (ms)\nH100,Llama-3.1-8B,{cell}\n")
    with pytest.raises(DataError, match=said):
        validate(tmp_path)


def test_an_engine_that_is_not_modelled_is_told(tmp_path: Path):
    row = VLLM | {"framework": "LMDeploy", "num_gpus": "1"}
    (tmp_path / "mine.csv").write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    messages: list[str] = []
    assert len(run_tables(tmp_path, [], messages)) == 1
    assert any("framework 'LMDeploy' is not modelled" in text for text in messages)
