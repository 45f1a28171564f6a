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
from codesign.evidence.importers import IMPORTERS, as_csv, imported, inferencex, nccl_tests
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
FILES = {
    "nccl.txt": NCCL, "nccl.json": json.dumps(NCCL_JSON), "agg.json": json.dumps(RECORD),
    "results_bmk.json": json.dumps([RECORD, SPLIT]),
    "vllm.json": json.dumps(SERVED),
    "sglang.jsonl": "\n".join([json.dumps(SERVED), json.dumps(SERVED | {"request_rate": 4.0})]),
    "profile_export_aiperf.json": json.dumps(PROFILE), "printed.txt": PRINTED, "megatron.log": MEGATRON,
    "titan.log": TITAN,
}  # fmt: skip
COLLECTIVES = ("nccl.txt", "nccl.json")
COUNTS = {"sglang.jsonl": 2, "results_bmk.json": 2, "nccl.txt": 2}
EXPECTED = {
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
def test_a_file_becomes_runs_that_can_be_scored(name: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(FILES[name])
    result = imported(path)
    assert len(result) == COUNTS.get(name, 1)
    assert result[0].items() >= EXPECTED[name].items()
    if name in COLLECTIVES:
        return
    (row, *_) = csv.DictReader(io.StringIO(as_csv(result, {"gpu": "h100_sxm", "model": "llama31_8b", "num_gpus": "8"})))
    assert is_runs(list(row))
    run = run_of(row, name)
    assert run.measured
    assert run.run.numbers["cluster.device_count"] == 8


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
    (json.dumps([RECORD, 3]), "allowed: a list of JSON objects"),
    (json.dumps([RECORD, RECORD | {"hw": None}]), "record 2: gpu is not stated"),
    (json.dumps(RECORD | {"isl": "long"}), "input_tokens is not stated, or not by a number above 0"),
    (json.dumps({n: v for n, v in RECORD.items() if "t" not in n[-5:]}), "no latency is stated"),
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
