"""Results of benchmarks and logs of trainers as tables of measured runs, of nccl-tests as tables of collectives."""

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign.commands.cli import main
from codesign.core.errors import ConfigError
from codesign.evidence.importers import IMPORTERS, imported, inferencex, nccl_tests
from codesign.evidence.measurements import survey, unread
from codesign.evidence.measurements.folder import is_runs
from codesign.evidence.validation.measured_runs import run_of

SERVED = {
    "date": "20260101-000000", "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 80,
    "request_rate": "inf", "max_concurrency": 8, "completed": 80, "total_input_tokens": 81920,
    "total_output_tokens": 20480, "output_throughput": 812.5, "mean_ttft_ms": 41.5, "median_ttft_ms": 40.0,
    "p99_ttft_ms": 88.0, "mean_tpot_ms": 9.1, "mean_itl_ms": 9.2, "ttfts": [0.04, 0.05],
}  # fmt: skip
LOAD = {"concurrency": 16, "request_count": 160}
PROFILE = {
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": LOAD},
    "time_to_first_token": {"unit": "ms", "avg": 60.0, "p99": 95.0, "p50": 58.0},
    "inter_token_latency": {"unit": "us", "avg": 9500.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "output_sequence_length": {"unit": "tokens", "avg": 256.0},
    "request_throughput": {"unit": "requests/sec", "avg": 3.5},
}  # fmt: skip
PRINTED = """
============ Serving Benchmark Result ============
Successful requests:                     100
Maximum request concurrency:             16
Benchmark duration (s):                  41.24
Total input tokens:                      99744
Total generated tokens:                  100000
Output token throughput (tok/s):         2425.01
---------------Time to First Token----------------
Mean TTFT (ms):                          60.77
P99 TTFT (ms):                           310.12
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          6.53
---------------Inter-token Latency----------------
Mean ITL (ms):                           6.53
==================================================
"""
MEGATRON = """
  global_batch_size ............................... 256
  micro_batch_size ................................ 1
  seq_length ...................................... 8192
  tensor_model_parallel_size ...................... 4
  pipeline_model_parallel_size .................... 2
  world_size ...................................... 64
""" + "".join(
    f" iteration {n:8d}/ 1000 | consumed samples: {256 * n} | elapsed time per iteration (ms): {ms} |"
    f" throughput per GPU (TFLOP/s/GPU): 410.0 | learning rate: 1E-04 | global batch size:   256 | lm loss: 3.1 |\n"
    for n, ms in enumerate((9000.0, 5000.0, 4100.0, 4001.0, 3999.0, 4000.0), 1)
)
TITAN = "".join(
    f"[rank0]:2026-01-01 00:00:00,000 - root - INFO - \x1b[31mstep: {n:2d}  \x1b[32mloss:  7.9  \x1b[33mmemory: 40.2GiB"
    f"(50.8%)  \x1b[34mtps: {tps}  \x1b[36mtflops: 370.1  \x1b[35mmfu: {mfu}%\x1b[39m\n"
    for n, tps, mfu in ((1, "1,000", "7.0"), (10, "6,900", "37.5"), (20, "7,100", "37.7"), (30, "7,000", "37.6"))
)
RANKS = "".join(
    f"#  Rank {rank:2d} Group  0 Pid   1{rank} on node1 device {rank:2d} [0000:{rank:02x}:00] NVIDIA H100 80GB HBM3\n"
    for rank in range(8)
)
NCCL = f"""# nccl-tests version 2.17.9 nccl-headers=22903 nccl-library=22903
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824 step: 2(factor) iters: 20 agg iters: 1 graph: 0
#
# Using devices
{RANKS}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.21    0.00    0.00       0     0.20    0.00    0.00       0
     1048576        262144     float     sum      -1    42.80   24.50   42.87       0    41.90   25.03   43.80       0
  1073741824     268435456     float     sum      -1   4120.5  260.59  456.03       0   4118.0  260.74  456.30       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 166.31
#
# Collective test concluded: all_reduce_perf
"""
NCCL_JSON = {
    "version": 2, "args": ["./build/all_gather_perf", "-G", "1", "-J", "out.json"], "env": [], "nccl_version": 22903,
    "config": {"nthreads": 1, "ngpus": 1, "graph": 1, "devices": [
        {"rank": rank, "group": 0, "hostname": f"node{rank // 4}", "device": rank % 4, "device_info": "NVIDIA GB200"}
        for rank in range(8)]},
    "results": [{"size": 67108864, "count": 2097152, "type": "float", "redop": "none", "root": "    -1",
                 "out_of_place": {"time": 201.5, "alg_bw": 333.0, "bus_bw": 291.4, "nwrong": 0.0},
                 "in_place": {"time": 200.1, "alg_bw": 335.4, "bus_bw": 293.5, "nwrong": 0.0}}],
}  # fmt: skip
RECORD = {
    "hw": "h200-nv", "conc": 64, "image": "vllm/vllm-openai:v0.11.0", "model": "/models/DeepSeek-R1",
    "infmax_model_prefix": "dsr1", "framework": "trt", "precision": "fp8", "spec_decoding": "none", "disagg": False,
    "isl": 1024, "osl": 8192, "is_multinode": False, "tp": 8, "ep": 8, "dp_attention": "true",
    "tput_per_gpu": 300.0, "output_tput_per_gpu": 266.0, "input_tput_per_gpu": 34.0, "mean_ttft": 0.31,
    "median_ttft": 0.28, "p99_ttft": 0.92, "mean_tpot": 0.0291, "mean_intvty": 34.4, "mean_itl": 0.0293,
    "mean_e2el": 239.0,
}  # fmt: skip
SPLIT = {name: value for name, value in RECORD.items() if name not in ("tp", "ep", "dp_attention")} | {
    "hw": "cluster:gb200-nv_2", "framework": "dynamo-sglang", "disagg": True, "is_multinode": True, "conc": 512,
    "prefill_tp": 4, "prefill_ep": 4, "prefill_dp_attention": "true", "prefill_num_workers": 2, "num_prefill_gpu": 8,
    "decode_tp": 16, "decode_ep": 16, "decode_dp_attention": "true", "decode_num_workers": 2, "num_decode_gpu": 32,
    "spec_decoding": "mtp",
}  # fmt: skip
TITAN_START = """[rank0]:2026-01-01 00:00:00,000 - root - INFO - CUDA capacity: NVIDIA H100 with 95.04GiB memory
[rank0]:2026-01-01 00:00:00,000 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [16, 4]
[rank0]:2026-01-01 00:00:00,000 - root - INFO - Trainer is initialized with local batch size 2, global batch size 32, \
gradient accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)
"""
MAXTEXT = """Num_devices: 256, shape (1, 1, 256, 1)
Config param ici_fsdp_parallelism: 64
Config param ici_tensor_parallelism: 4
Config param max_target_length: 8192
Config param model_name: llama3.1-8b
Config param per_device_batch_size: 4.0
""" + "".join(
    f"completed step: {n}, seconds: {s}, TFLOP/s/device: {f}, Tokens/s/device: 4681.1, total_weights: 8, loss: 9\n"
    for n, s, f in ((0, 60.1, 28.3), (1, 9.0, 190.0), (2, 7.02, 242.1), (3, 7.0, 242.9), (4, 7.01, 242.5))
)
DEEPSPEED = """[2026-01-01 10:00:00,000] [INFO] [launch.py:163:main] dist_world_size=16
[2026-01-01 10:00:00,000] [INFO] [config.py:1003:print]   train_batch_size ............. 128
[2026-01-01 10:00:00,000] [INFO] [config.py:1003:print]   train_micro_batch_size_per_gpu  2
[2026-01-01 10:00:00,000] [INFO] [config.py:1003:print]   zero_optimization_stage ...... 3
""" + "".join(
    f"[2026-01-01 10:01:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step={8 * n}/global_step={n}, "
    f"RunningAvgSamplesPerSec=30.5, CurrSamplesPerSec={rate}, MemAllocated=20.1GB, MaxMemAllocated=60.25GB\n"
    for n, rate in ((10, 31.2), (20, 31.4), (30, 31.3))
)
TRTLLM = """===========================================================
= PYTORCH BACKEND
===========================================================
Model:\t\t\tmeta-llama/Llama-3.1-8B-Instruct
KV Cache Dtype:\t\tFP8
Quantization:\t\tFP8

===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             3000
Number of concurrent requests:  2353.3158
Average Input Length (tokens):  128.0000
Average Output Length (tokens): 256.0000
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                2
PP Size:                1
EP Size:                None
Max Runtime Batch Size: 2048
Issue Rate (req/sec):   1.7e+14

===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     200.6882
Total Output Throughput (tokens/sec):             25688.0910
Total Token Throughput (tokens/sec):              51376.1820
Total Latency (ms):                               14948.5
Average request latency (ms):                     11726.32
Per GPU Output Throughput (tps/gpu):              12844.0455
Average time-to-first-token [TTFT] (ms):          5000.1
Average time-per-output-token [TPOT] (ms):        52.9
"""
TRTLLM_JSON = {
    "engine": {"model": "meta-llama/Llama-3.1-8B-Instruct", "dtype": "bfloat16", "kv_cache_dtype": "FP8",
               "quantization": "FP8"},
    "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": None, "max_batch_size": 2048, "issue_rate": 1.7e14},
    "request_info": {"num_requests": 3000, "avg_num_concurrent_requests": 63.8, "avg_input_length": 128.0,
                     "avg_output_length": 256.0},
    "performance": {"total_latency_ms": 14948.5, "avg_request_latency_ms": 500.0, "request_throughput_req_s": 200.7,
                    "system_output_throughput_tok_s": 25688.1, "output_throughput_per_gpu_tok_s": 12844.0},
    "streaming_metrics": {"avg_ttft_ms": 50.1, "avg_tpot_ms": 12.9},
}  # fmt: skip
AIPERF_CSV = """Metric,avg,min,max,p99,p95,p90,p75,p50
Time To First Token (ms),95.00,30.00,150.00,149.00,140.00,130.00,110.00,90.00
Request Latency (ms),"4,990.00","4,900.00","5,100.00","5,099.00","5,080.00","5,050.00","5,000.00","4,980.00"
Inter Token Latency (ms),4.80,4.00,6.00,5.90,5.30,5.10,4.90,4.79
Output Sequence Length (tokens),"1,024.00",900.00,"1,100.00","1,100.00","1,100.00","1,100.00","1,050.00","1,024.00"
Input Sequence Length (tokens),512.00,512.00,512.00,512.00,512.00,512.00,512.00,512.00

Metric,Value
Output Token Throughput (per sec),"3,276.80"
Request Throughput (per sec),3.20
Request Count (count),160.00
"""
NEMO = """### Pre-training performance
#### System: DGX-B200
| Model | #-GPUs | GBS | MBS | Sequence Length | FSDP | TP | PP | VP | Tokens / sec / GPU | Model TFLOP / sec / GPU |
|-------|--------|-----|-----|-----------------|------|----|----|----|--------------------|-------------------------|
| LLAMA3_8B | 8 | 128 | 1 | 8192 | 0 | 1 | 1 | n/a | 24,000 | 1,360 |
| LLAMA3_70B | 64 | 128 | 1 | 8192 | 1 | 1 | 1 | n/a | 3,400 | 1,620 |
"""
ONE_BATCH_PRINTED = """Warmup ...
Prefill. latency: 0.06440 s, throughput:   4000.00 token/s
Total. latency:  0.090 s, throughput:   3000.00 token/s
Benchmark ...
Prefill. latency: 0.35000 s, throughput:  46811.43 token/s
Decode 0. Batch size: 16, latency: 0.00950 s, throughput:   1684.21 token/s
Decode.  median latency: 0.00920 s, median throughput:   1739.13 token/s
Total. latency:  1.530 s, throughput:  12047.06 token/s
"""
ONE_BATCH = {
    "run_name": "default", "batch_size": 16, "input_len": 1024, "output_len": 128, "prefill_latency": 0.35,
    "median_decode_latency": 0.0092, "total_latency": 1.53, "overall_throughput": 12047.0,
}  # fmt: skip
MLPERF = (
    '"ID","Submitter","Division","Accelerator","# of Accelerators","Model MLC","Scenario","Result","Units"\n'
    '"5.1-0001","NVIDIA","Closed","NVIDIA H100-SXM-80GB","8","llama2-70b-99","Offline","31059.3","Tokens/s"\n'
    '"5.1-0001","NVIDIA","Closed","NVIDIA H100-SXM-80GB","8","resnet","Offline","700000","Samples/s"\n'
)
FILES = {
    "titan_start.log": TITAN_START + TITAN, "maxtext.log": MAXTEXT, "deepspeed.log": DEEPSPEED, "trtllm.log": TRTLLM,
    "trtllm.json": json.dumps(TRTLLM_JSON), "profile_export_genai_perf.csv": AIPERF_CSV, "nemo.md": NEMO,
    "one_batch.txt": ONE_BATCH_PRINTED, "one_batch.jsonl": json.dumps(ONE_BATCH) + "\n", "mlperf.csv": MLPERF,
    "throughput.json": json.dumps({"elapsed_time": 40.0, "num_requests": 1000, "total_num_tokens": 413000,
                                   "requests_per_second": 25.0, "tokens_per_second": 10325.0}),
    "latency.json": json.dumps({"avg_latency": 1.85, "latencies": [1.8, 1.9], "percentiles": {"50": 1.85}}),
    "list.json": json.dumps([SERVED, SERVED]),
    "agg.csv": "hw,conc,model,framework,precision,isl,osl,tp,tput_per_gpu\n"
               "h200-trt,64,meta-llama/Llama-3.3-70B-Instruct-FP8,trt,fp8,1024,1024,8,1000\n",
    "mine.csv": "GPU;Model;TP;users;prompt_len;gen_len;tokens/sec/gpu;TTFT P50 (ms)\n"
                "H100;Llama-3.1-8B;1;32;1024;512;1237;210\n",
    "nccl.txt": NCCL, "nccl.json": json.dumps(NCCL_JSON), "agg.json": json.dumps(RECORD),
    "results_bmk.json": json.dumps([RECORD, SPLIT]),
    "vllm.json": json.dumps(SERVED),
    "sglang.jsonl": "\n".join([json.dumps(SERVED), json.dumps(SERVED | {"request_rate": 4.0})]),
    "profile_export_aiperf.json": json.dumps(PROFILE), "printed.txt": PRINTED, "megatron.log": MEGATRON,
    "titan.log": TITAN,
}  # fmt: skip
COLLECTIVES = ("nccl.txt", "nccl.json")
TYPED = (*COLLECTIVES, "mlperf.csv")
COUNTS = {"sglang.jsonl": 2, "results_bmk.json": 2, "nccl.txt": 2, "list.json": 2, "nemo.md": 2, "mlperf.csv": 2}
LENGTHS = {"isl": "200", "osl": "213", "concurrency": "8"}
ADDED = {
    "throughput.json": {"isl": "200", "osl": "213"}, "latency.json": LENGTHS,
    "one_batch.txt": {"isl": "200", "osl": "20"},
    "profile_export_genai_perf.csv": {"concurrency": "8"}, "deepspeed.log": {"seq_len": "2048"},
    "titan.log": {"global_batch": "64", "seq_len": "8192"},
}  # fmt: skip
"""What whoever imports must say of a file beside device and model."""
EXPECTED = {
    "titan_start.log": {"gpu": "NVIDIA H100", "num_gpus": "64", "tp": "4", "pp": "1", "plan.zero": "3",
                        "global_batch": "32", "micro_batch": "2", "seq_len": "8192", "tokens_per_s_per_gpu": "7000"},
    "maxtext.log": {"framework": "maxtext", "model": "llama3.1-8b", "num_gpus": "256", "tp": "4", "pp": "1",
                    "global_batch": "1024", "seq_len": "8192", "step_time_s": "7.01", "tflops_per_gpu": "242.5"},
    "deepspeed.log": {"framework": "deepspeed_zero3", "num_gpus": "16", "global_batch": "128", "zero": "3",
                      "samples_per_s": "31.3", "peak_memory_gib": "60.25", "tp": "1", "pp": "1"},
    "trtllm.log": {"model": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP8", "kv_cache_dtype": "FP8",
                   "tp_size": "2", "num_prompts": "3000", "request_rate": "inf", "max_batch_size": "2048",
                   "input_tokens": "128", "output_tokens": "256", "output_tokens_per_s": "25688.091",
                   "ttft_mean_ms": "5000.1", "tpot_mean_ms": "52.9", "e2e_mean_ms": "11726.32"},
    "trtllm.json": {"concurrency": "64", "num_prompts": "3000", "e2e_mean_ms": "500", "ttft_mean_ms": "50.1",
                    "tpot_mean_ms": "12.9", "output_tokens_per_s": "25688.1", "tp_size": "2"},
    "profile_export_genai_perf.csv": {"ttft_mean_ms": "95", "ttft_p50_ms": "90", "ttft_p99_ms": "149",
                                      "itl_mean_ms": "4.8", "e2e_mean_ms": "4990", "input_tokens": "512",
                                      "output_tokens": "1024", "output_tokens_per_s": "3276.8", "num_prompts": "160"},
    "nemo.md": {"gpu": "B200", "Model": "LLAMA3_8B", "Tokens / sec / GPU": "24,000", "#-GPUs": "8", "GBS": "128"},
    "one_batch.txt": {"workload": "static_batch", "batch_size": "16", "ttft_mean_s": "0.35", "tpot_p50_s": "0.0092",
                      "e2e_mean_s": "1.53"},
    "one_batch.jsonl": {"workload": "static_batch", "batch_size": "16", "input_tokens": "1024", "output_tokens": "128",
                        "ttft_mean_s": "0.35", "tpot_p50_s": "0.0092", "e2e_mean_s": "1.53"},
    "mlperf.csv": {"gpu": "NVIDIA H100-SXM-80GB", "num_accelerators": "8", "model": "llama2-70b-99",
                   "scenario": "Offline", "result": "31059.3", "result_units": "Tokens/s"},
    "throughput.json": {"request_rate": "inf", "num_prompts": "1000", "requests_per_s": "25",
                        "total_tokens_per_s": "10325"},
    "latency.json": {"workload": "static_batch", "e2e_mean_s": "1.85"},
    "list.json": {"concurrency": "8", "mean_ttft_ms": "41.5"},
    "agg.csv": {"gpu": "h200", "framework": "trtllm", "num_gpus": "8", "concurrency": "64", "input_tokens": "921.6",
                "total_tokens_per_s_per_gpu": "1000"},
    "mine.csv": {"GPU": "H100", "tokens/sec/gpu": "1237", "TTFT P50 (ms)": "210"},
    "nccl.txt": {"gpu": "NVIDIA H100 80GB HBM3", "collective": "all_reduce", "num_gpus": "8", "num_nodes": "1",
                 "gpus_per_node": "8", "nccl_version": "2.29.3", "dtype": "float", "message_bytes": "1048576",
                 "latency_us": "42.8", "busbw_gbytes_per_s": "42.87"},
    "nccl.json": {"gpu": "NVIDIA GB200", "collective": "all_gather", "num_gpus": "8", "num_nodes": "2",
                  "gpus_per_node": "4", "cuda_graph": "1", "message_bytes": "67108864", "latency_us": "201.5"},
    "agg.json": {"gpu": "h200", "model": "deepseek-ai/DeepSeek-R1-0528", "framework": "trtllm", "precision": "fp8",
                 "tp": "8", "attention_dp": "8", "experts_over": "8", "num_gpus": "8", "concurrency": "64",
                 "input_tokens": "921.6", "output_tokens": "7372.8", "workload.input_cv": "0.06415002991",
                 "workload.clients.rounds": "10", "mean_ttft_s": "0.31", "mean_tpot_s": "0.0291",
                 "mean_e2el_s": "239", "output_tokens_per_s_per_gpu": "266"},
    "results_bmk.json": {"gpu": "h200"},
    "vllm.json": {"model": "meta-llama/Llama-3.1-8B-Instruct", "backend": "vllm", "input_tokens": "1024",
                  "output_tokens": "256", "concurrency": "8", "num_prompts": "80", "mean_ttft_ms": "41.5",
                  "p99_ttft_ms": "88", "mean_tpot_ms": "9.1", "output_tokens_per_s": "812.5"},
    "sglang.jsonl": {"concurrency": "8"},
    "profile_export_aiperf.json": {"model": "Qwen/Qwen3-8B", "concurrency": "16", "num_prompts": "160",
                                   "ttft_mean_ms": "60", "ttft_p99_ms": "95", "itl_mean_ms": "9.5",
                                   "input_tokens": "1024", "output_tokens": "256", "requests_per_s": "3.5"},
    "printed.txt": {"concurrency": "16", "num_prompts": "100", "input_tokens": "997.44", "output_tokens": "1000",
                    "mean_ttft_ms": "60.77", "mean_tpot_ms": "6.53", "output_tokens_per_s": "2425.01"},
    "megatron.log": {"global_batch": "256", "seq_len": "8192", "tp": "4", "pp": "2", "num_gpus": "64",
                     "step_time_ms": "4000", "workload": "training"},
    "titan.log": {"tokens_per_s_per_gpu": "7000", "mfu": "0.376", "workload": "training"},
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_becomes_runs_that_can_be_scored(name: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / name
    path.write_text(FILES[name])
    result = imported(path)
    assert len(result) == COUNTS.get(name, 1)
    assert result[0].items() >= EXPECTED[name].items()
    if name in TYPED:
        return
    added = {"gpu": "h100_sxm", "model": "llama31_8b", "num_gpus": "8"} | ADDED.get(name, {})
    assert main(["import", str(path), *(f"{key}={value}" for key, value in added.items())]) == 0
    (row, *_) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert is_runs(list(row))
    run = run_of(row, name)
    assert run.measured
    assert run.run.numbers["cluster.device_count"] == 8


@pytest.mark.parametrize(("name", "measured", "numbers"), [
    ("throughput.json", {"tokens_per_s": 10325 * 213 / 413, "requests_per_s": 25.0}, {"plan.micro_batch": 256.0}),
    ("latency.json", {"time_s": 1.85}, {"plan.micro_batch": 8.0}),
    ("agg.csv", {"tokens_per_s_per_device": 500.0}, {"plan.micro_batch": 64.0}),
    ("trtllm.log", {"tokens_per_s": 25688.091, "ttft_s": 5.0001, "tpot_s": 0.0529, "e2e_s": 11.72632},
     {"plan.micro_batch": 2048.0}),
    ("nemo.md", {"tokens_per_s": 192_000.0, "mfu": 1360 / 989.4}, {"plan.virtual_stages": 1.0}),
    ("deepspeed.log", {"tokens_per_s": 31.3 * 2048, "peak_memory_bytes": 60.25 * 2**30}, {"plan.zero": 3.0}),
    ("mine.csv", {"tokens_per_s_per_device": 1237.0, "ttft_p50_s": 0.21}, {"workload.output_tokens": 512.0}),
])  # fmt: skip
def test_units_and_loads_are_those_of_the_file(name, measured, numbers, tmp_path: Path):
    """Rates of a device and of all, of answers and of all tokens, milliseconds and seconds; bursts that stay bursts."""
    path = tmp_path / name
    path.write_text(FILES[name])
    row = imported(path)[0] | {"gpu": "h100_sxm", "model": "llama31_8b", "num_gpus": "8"} | ADDED.get(name, {})
    row = {key: value for key, value in row.items() if key not in ("Model", "#-GPUs", "GPU", "framework")}
    run = run_of(row, name)
    assert run.measured == pytest.approx(measured, rel=1e-3)
    assert run.run.numbers.items() >= numbers.items()
    assert run.rate == (float("inf") if "inf" in row.values() else 0.0)


@pytest.mark.parametrize("more", [{"max_concurrency": None}, {"max_concurrency": None, "request_rate": float("inf")}])
def test_requests_without_a_limit_come_all_at_once(more):
    assert run_of(imported_text(json.dumps(SERVED | more)) | {"gpu": "H100"}, "").rate == float("inf")
    printed = PRINTED.replace("Maximum request concurrency:             16", "Traffic request rate:   inf")
    assert imported_text(printed)["request_rate"] == "inf"
    before = "Traffic request rate: 2.5\nMaximum request concurrency: None\n" + PRINTED.replace(
        "Maximum request", "Other"
    )
    assert imported_text(before)["request_rate"] == "2.5"


def test_what_a_server_says_of_itself_is_read():
    server = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": 8, "ep_size": 8, "dp_size": 1, "device": "cuda",
              "quantization": None, "enable_dp_attention": False, "max_running_requests": 48,
              "speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}  # fmt: skip
    record = {name: value for name, value in SERVED.items() if name != "model_id"} | {"backend": "sglang"}
    row = imported_text(json.dumps(record | {"server_info": server, "accept_length": 2.8}))
    assert row.items() >= {
        "model": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": "8", "ep_size": "8", "concurrency": "8",
        "spec_decoding": "eagle", "workload.accepted_tokens": "2.8", "workload.verified_tokens": "4",
    }.items()  # fmt: skip
    assert not {"device", "quantization", "max_running_requests"} & {*row}
    drafted = {"spec_decode_acceptance_length": 2.5, "spec_decode_num_drafts": 100, "spec_decode_draft_tokens": 300}
    assert imported_text(json.dumps(SERVED | drafted))["workload.verified_tokens"] == "4"
    stated = imported_text(json.dumps(SERVED | {"tensor_parallel_size": "2", "gpu": "H200"}))
    assert (stated["tensor_parallel_size"], stated["gpu"]) == ("2", "H200")


def test_what_is_added_replaces_what_a_file_says_of_it(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(SERVED | {"tensor_parallel_size": "2"}))
    assert main(["import", str(path), "gpu=h100", "tp=4"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["tp"] == "4"
    assert "tensor_parallel_size" not in row


@pytest.mark.parametrize(("name", "said"), [
    ("throughput.json", "no file says model, input_tokens, output_tokens of its runs; add model=... input_tokens=..."),
    ("titan.log", "no file says model, global_batch, seq_len of its runs; add model=..."),
    ("profile_export_genai_perf.csv", "no file says model, concurrency or request_rate of its runs"),
    ("mlperf.csv", "no file says weight_dtype of these results of MLPerf; add weight_dtype=..."),
])  # fmt: skip
def test_a_run_whose_design_nobody_states_is_refused(name, said, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Else it would be compared with the defaults of the command line."""
    path = tmp_path / name
    path.write_text(FILES[name])
    assert main(["import", str(path), *([] if name == "mlperf.csv" else ["gpu=h100"])]) == 2
    assert said in capsys.readouterr().err


def test_results_of_mlperf_are_a_table_of_their_kind(tmp_path: Path):
    path, out = tmp_path / "mlperf.txt", tmp_path / "mine.csv"
    path.write_text(MLPERF)
    assert main(["import", str(path), "weight_dtype=fp8", "--out", str(out)]) == 0
    (table,) = survey(tmp_path).tables
    assert table.schema.name == "mlperf_inference"
    assert set(table.rows([])["gpu"]) == {"h100_sxm"}


def test_collectives_are_a_table_of_their_kind(tmp_path: Path, capsys: pytest.CaptureFixture):
    """One node is a scale-up domain, several are a cluster, whose network is what nobody prints."""
    for name in COLLECTIVES:
        (tmp_path / name).write_text(FILES[name])
    (tmp_path / "tables").mkdir()
    out = [str(tmp_path / "tables" / f"{name}.csv") for name in ("one", "many")]
    assert main(["import", str(tmp_path / "nccl.txt"), "fabric=NVLink", "--out", out[0]]) == 0
    assert "2 rows of 1 file" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "nccl.json")]) == 2
    assert "collectives on 2 nodes: add cluster=NAME" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "nccl.json"), "cluster=mine-400G", "--out", out[1]]) == 0
    assert main(["import", str(tmp_path / "nccl.txt"), "tp=8"]) == 2
    assert "tp is no column of collectives" in capsys.readouterr().err
    result = survey(tmp_path / "tables").tables
    assert [table.schema.name for table in result] == ["clusters", "scale_up"]
    rows = result[1].rows([])
    assert rows["latency_us"].tolist() == [42.8, 4120.5]
    assert set(rows["gpu"]) == {"h100_sxm"}
    assert not unread(tmp_path / "tables")


@pytest.mark.parametrize(("changed", "expected"), [
    (("nccl-library=22903", ""), {"num_gpus": "8"}),
    (("graph: 0", "graph: 4"), {"cuda_graph": "4"}),
    (("# Collective test", "NCCL version 2.20.5+cuda12.4\n# Collective test"), {"nccl_version": "2.20.5"}),
    (("all_reduce_perf", "a test"), {"collective": "all_reduce"}),
    (("     0    41.90   25.03   43.80       0", "   N/A"), {"latency_us": "42.8"}),
    (("     0    41.90   25.03   43.80       0", "     0    41.90   25.03   43.80       0  2026-01-01 12:00:00"),
     {"latency_us": "42.8"}),
    ((RANKS, ""), {"collective": "all_reduce"}),
    (("#  Rank", "#   Rank"), {"gpus_per_node": "8"}),
    (("  1048576 ", "  8: 1048576 "), {"message_bytes": "1048576"}),
])  # fmt: skip
def test_outputs_of_other_releases_and_options(changed: tuple[str, str], expected: dict[str, str]):
    text = NCCL.replace(*changed)
    assert text != NCCL
    rows = nccl_tests.rows(text)
    assert rows[0].items() >= expected.items()


def test_an_old_table_has_no_root_and_leaves_blank_what_is_not_summed():
    text = NCCL.replace("redop    root", "redop").replace("sum      -1", "").replace("#wrong", "error")
    text = text.replace("      0 ", "  0e+00 ")
    assert [row["latency_us"] for row in nccl_tests.rows(text)] == ["42.8", "4120.5"]


def test_what_sums_is_known_by_its_bus_bandwidth():
    """Without a name of the test; what only moves bytes has to be named."""
    bare = NCCL.replace("all_reduce_perf", "a test")
    half = bare.replace("260.59  456.03", "260.59  228.02").replace("24.50   42.87", "24.50   21.44")
    assert {row["collective"] for row in nccl_tests.rows(half)} == {"reduce_scatter"}
    assert all("collective" not in row for row in nccl_tests.rows(bare.replace(" sum ", "none ")))


def test_a_record_of_two_pools_has_the_degrees_of_both():
    _, row = inferencex.rows(FILES["results_bmk.json"])
    assert row.items() >= {
        "gpu": "gb200", "framework": "sglang", "tp": "16", "attention_dp": "16", "num_gpus": "32",
        "concurrency": "256", "workload.concurrency": "512", "plan.prefill_devices": "8", "plan.prefill_tp": "4",
        "plan.prefill_attention_dp": "4", "spec_decoding": "mtp",
    }.items()  # fmt: skip
    assert "output_tokens_per_s_per_gpu" not in row  # of the engines that decode alone
    with pytest.raises(ConfigError, match=r"it speculates \(mtp\), but how many tokens are accepted"):
        run_of(row, "")
    run = run_of(row | {"workload.accepted_tokens": "1.8"}, "").run
    assert {"workload=disaggregated_clients", "prefill=same"} <= set(run.chosen)
    assert (run.numbers["plan.prefill_devices"], run.numbers["workload.concurrency"]) == (8, 512)


def test_whole_answers_go_before_single_tokens():
    """Both would be the time between tokens; a rate of requests goes before a most of them."""
    served, other = imported_text(json.dumps(SERVED)), imported_text(json.dumps(SERVED | {"request_rate": 4}))
    assert "mean_itl_ms" not in served
    assert (served.get("request_rate"), other["request_rate"], other.get("concurrency")) == (None, "4", None)


def imported_text(text: str):
    (row,) = next(one for one in IMPORTERS if one.reads(text)).rows(text)
    return row


def test_each_file_is_read_by_one_importer():
    for text in FILES.values():
        assert sum(one.reads(text) for one in IMPORTERS) == 1


@pytest.mark.parametrize(("text", "said"), [
    ("", "nothing that is read here"),
    ("hello", "nothing that is read here; known: vllm bench serve JSON"),
    (json.dumps(SERVED)[:-40], "line 1: .*; allowed: JSON that is whole"),
    (json.dumps(SERVED) + "\n" + json.dumps(SERVED)[:50], "line 2: .*; allowed: JSON that is whole"),
    (json.dumps(SERVED | {"mean_ttft_ms": -1}), "mean_ttft_ms = -1 is negative"),
    (json.dumps(SERVED | {"mean_ttft_ms": "soon"}), "mean_ttft_ms is not stated, or not by a number"),
    (json.dumps(SERVED | {"total_output_tokens": None}), "output_tokens is not stated"),
    (json.dumps(PROFILE | {"time_to_first_token": {"unit": "parsec", "avg": 1}}), "the unit 'parsec'; allowed: ms, s"),
    (NCCL.replace("42.87       0    41.90", "42.87       3    41.90"), "line 19: 3 elements came out wrong"),
    (NCCL.replace("25.03   43.80       0", "25.03"), "line 19: the row breaks off after 6 of 8 times and rates"),
    (NCCL.replace("   time", "cputime"), "line 16: times of the processor"),
    (NCCL.replace("device  7 [0000:07:00] NVIDIA H100 80GB HBM3", "device  7 [0000:07:00] NVIDIA L4"),
     "ranks on NVIDIA H100 80GB HBM3 and NVIDIA L4; allowed: devices of one kind"),
    (NCCL.replace("node1 device  7", "node2 device  7").replace("node1 device  6", "node3 device  6"),
     "8 ranks on 3 nodes"),
    (NCCL[: NCCL.index("     1048576")], "output of nccl-tests or rccl-tests, printed or JSON, but no run in it has"),
    (json.dumps(NCCL_JSON | {"results": [{"size": 8, "out_of_place": None}]}), "result 1 has no time"),
    (json.dumps([RECORD])[:-9], "line 1: .*; allowed: JSON that is whole"),
    (json.dumps([RECORD, 3]), "allowed: JSON objects, one a run"),
    (json.dumps([RECORD, RECORD | {"hw": None}]), "record 2: gpu is not stated"),
    ("GPU,TTFT (ms)\nH100,5,6\n", "line 2: 3 cells; allowed: 2, as its header has"),
    (json.dumps(RECORD | {"isl": "long"}), "input_tokens is not stated, or not by a number above 0"),
    (json.dumps({n: None if "tput" in n else v for n, v in RECORD.items() if "t" not in n[-5:]}),
     "no latency and no rate is stated"),
    (json.dumps(SPLIT | {"num_prefill_gpu": None}), "num_prefill_gpu does not say how many"),
    (PRINTED[:400], "printed `Serving Benchmark Result` blocks of vLLM or SGLang, but no run in it has ended"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_line_with_the_file(text: str, said: str, tmp_path: Path):
    path = tmp_path / "result"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s)result.*{said}"):
        imported(path)


@given(cut=st.integers(0, 3000), name=st.sampled_from(sorted(FILES)))
def test_a_file_cut_anywhere_is_read_or_refused(cut: int, name: str):
    text = FILES[name][:cut]
    for one in IMPORTERS:
        if one.reads(text):
            rows = []
            with contextlib.suppress(ConfigError):
                rows = one.rows(text)
            assert all(isinstance(value, str) for row in rows for value in row.values())


def test_the_command_writes_a_table_and_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture):
    path, out = tmp_path / "vllm.json", tmp_path / "runs" / "mine.csv"
    path.write_text(FILES["vllm.json"])
    assert main(["import", str(path)]) == 2
    assert "add gpu=NAME" in capsys.readouterr().err
    assert main(["import", "gpu=h100_sxm"]) == 2
    assert "name at least one file" in capsys.readouterr().err
    assert main(["import", str(path), "gpus=h100_sxm", "tpp=1"]) == 2
    assert "tpp is no column of measured runs" in capsys.readouterr().err
    out.parent.mkdir()
    assert main(["import", str(path), "gpu=h100_sxm", "tp=1", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "1 run of 1 file; `codesign validate " in said.err
    (row,) = csv.DictReader(out.open())
    assert (row["gpu"], row["tp"], row["mean_tpot_ms"]) == ("h100_sxm", "1", "9.1")
    assert main(["import", str(path), "gpu=h100_sxm"]) == 0
    assert capsys.readouterr().out.startswith("gpu,model,")


@pytest.mark.slow
def test_imported_collectives_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "nccl.txt").write_text(FILES["nccl.txt"])
    assert main(["import", str(tmp_path / "nccl.txt"), "--out", str(tmp_path / "mine.csv")]) == 0
    assert main(["validate", str(tmp_path)]) == 0
    assert "collectives from 1 MiB" in capsys.readouterr().out


@pytest.mark.slow
def test_an_imported_run_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "vllm.json").write_text(FILES["vllm.json"])
    assert main(["import", str(tmp_path / "vllm.json"), "gpu=h100", "tp=1", "--out", str(tmp_path / "mine.csv")]) == 0
    assert main(["validate", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "measured runs" in out
    assert "ttft" in out
    assert "tokens_per_s" in out
