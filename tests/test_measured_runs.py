"""Measured runs of any table: columns, designs, and that what is scored is what the command line prints."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_serving_engines import jobs_of_a_table

from codesign.commands.cli import main
from codesign.config import scenario_from_config
from codesign.config.checks import broken_plan
from codesign.core.errors import ConfigError, DataError
from codesign.evidence.measurements.columns import RunMetric, metric_of, number_path
from codesign.evidence.measurements.folder import is_runs
from codesign.evidence.validation import commands_of, validate
from codesign.evidence.validation.measured_runs import run_of, run_tables
from codesign.evidence.validation.row_overrides import RUNS, PricedRun, command, predicted
from codesign.evidence.validation.served_rows import run_of as overrides_of
from codesign.evidence.validation.served_rows import service
from codesign.model.metrics import evaluate

TABLES = Path(__file__).parent / "data" / "tables"
ROW = {"gpu": "H100-SXM", "model": "meta-llama/Llama-3.1-8B-Instruct", "tp": "1", "isl": "1024", "osl": "256"}


@pytest.mark.parametrize(("column", "metric"), [
    ("ttft_ms", RunMetric("ttft_s", 1e-3)), ("ttft_mean_ms", RunMetric("ttft_s", 1e-3)),
    ("mean_ttft_ms", RunMetric("ttft_s", 1e-3)),
    ("p99_ttft_ms", RunMetric("ttft_p99_s", 1e-3)), ("median_itl_us", RunMetric("tpot_p50_s", 1e-6)),
    ("TPOT_s", RunMetric("tpot_s", 1.0)), ("p90_e2el_ms", RunMetric("e2e_p90_s", 1e-3)),
    ("step_time_s", RunMetric("time_s", 1.0)),
    ("output_tokens_per_s", RunMetric("tokens_per_s", 1.0)), ("mfu", RunMetric("mfu", 1.0)),
    ("ttft", None), ("latency_ms", None), ("note", None), ("ttft_p95_ms", None), ("ttft_itl_ms", None),
])  # fmt: skip
def test_a_column_holds_a_metric_by_its_name_and_unit(column, metric):
    assert metric_of(column) == metric


@pytest.mark.parametrize(("column", "metric"), [
    ("cache_gib", RunMetric("cache_room_bytes", 2.0**30)), ("kv_cache_tokens", RunMetric("cache_tokens", 1.0)),
    ("peak_memory_GB", RunMetric("peak_memory_bytes", 1e9)), ("fits", RunMetric("fits", 1.0)),
])  # fmt: skip
def test_a_column_holds_a_metric_of_memory(column, metric):
    assert metric_of(column) == metric


@pytest.mark.slow
def test_memory_is_scored_with_an_interval_and_what_fits_by_how_often_it_is_wrong(tmp_path):
    """Two starts that vLLM logged, one that it was not able to make, one that is said to be."""
    (tmp_path / "starts.csv").write_text(
        "gpu,model,precision,kv_cache_dtype,backend,tp,gpu_memory_utilization,cache_gib,cache_tokens,fits\n"
        "h100_sxm,Qwen/Qwen3-235B-A22B,fp8_block,bf16,vllm,4,0.9,8.11,178880,yes\n"
        "h200,moonshotai/Kimi-K2-Thinking,checkpoint,,vllm,8,0.9,46.80,715072,yes\n"
        "h20,deepseek-ai/DeepSeek-V3.2,checkpoint,,vllm,8,,,,no\n"
        "h20,deepseek-ai/DeepSeek-V3.2,checkpoint,,vllm,8,,,,yes\n"
    )
    result = validate(tmp_path)
    runs = {(row["stratum"], row["quantity"]): row for row in result if row["suite"] == "run"}
    for line in (2, 3):
        for quantity in ("cache_room_bytes", "cache_tokens"):
            row = runs[f"starts.csv, line {line}", quantity]
            assert row["low"] < row["measured"] < row["high"]
            assert abs(row["error"]) < 0.08
    score = next(row for row in result if row["quantity"] == "fits" and row["group"] == "all")
    assert (score["n"], score["mean"]) == (4, 0.25)


def test_wrong_memory_is_one_line():
    with pytest.raises(ConfigError, match="fits = 'maybe' is neither yes nor no"):
        run_of(ROW | {"fits": "maybe"}, "t.csv, line 2")
    with pytest.raises(ConfigError, match=r"a share of the memory of 9 is outside \[0, 1\]"):
        run_of(ROW | {"backend": "vllm", "fits": "yes", "gpu_memory_utilization": "9"}, "t.csv, line 2")


def test_columns_that_choose_and_tables_that_hold_runs():
    assert [number_path(name) for name in ("tp", "ISL", "request_rate", "plan.cp", "workload.input_cv", "price")] == [
        "plan.tp", "workload.input_tokens", "workload.arrivals_per_s", "plan.cp", "workload.input_cv", None,
    ]  # fmt: skip
    assert is_runs(["GPU", "ttft_ms"])
    assert not is_runs(["gpu", "latency_us"])
    assert not is_runs(["model", "ttft_ms"])


@pytest.mark.parametrize(("more", "words", "numbers"), [
    ({"concurrency": "8", "ttft_ms": "4"}, "workload=continuous", {"cluster.device_count": 1.0}),
    ({"concurrency": "8", "num_prompts": "80", "tpot_ms": "9"}, "workload=continuous", {"plan.micro_batch": 8}),
    (
        {"tp": "4", "ep": "4", "num_gpus": "4", "tpot_ms": "9"},
        "workload=continuous", {"plan.ep": 4.0, "plan.etp": 1.0, "plan.tp": 4.0},
    ),
    (
        {"tp": "4", "ep": "4", "num_gpus": "4", "plan.attention_dp": "4", "tpot_ms": "9"},
        "workload=continuous", {"plan.ep": 4.0, "plan.etp": 1.0, "plan.tp": 4.0},
    ),
    ({"request_rate": "2", "ttft_ms": "40"}, "workload=at_rate", {"workload.arrivals_per_s": 2.0}),
    ({"num_gpus": "4", "tpot_ms": "40"}, "workload=continuous", {"cluster.device_count": 4.0}),
    ({"workload": "serving", "ttft_ms": "40"}, "workload=serving", {"workload.input_tokens": 1024.0}),
    ({"precision": "FP8", "tpot_ms": "40"}, "workload.precision.weights=fp8", {}),
    ({"backend": "TensorRT-LLM", "tpot_ms": "40"}, "framework=trtllm", {}),
    ({"plan.ep": "1", "tpot_ms": "40"}, "model=llama31_8b", {"plan.ep": 1.0}),
])  # fmt: skip
def test_a_row_is_a_design(more, words, numbers):
    result = run_of(ROW | more, "t.csv, line 2")
    assert words in result.run.chosen
    assert result.run.numbers.items() >= numbers.items()
    assert result.run.overrides()[0] == "accelerator=h100_sxm"


@pytest.mark.parametrize(("more", "said"), [
    ({"note": "none"}, "no metric is stated"),
    ({"ttft_ms": "fast"}, "ttft_ms = 'fast' is no number"),
    ({"ttft_ms": "nan"}, "ttft_ms = nan must be a finite number from 0 on"),
    ({"ttft_ms": "1", "model": "Nope-8B"}, "model 'Nope-8B' has no configuration"),
    ({"ttft_ms": "1", "model": "Qwen/Qwen3-VL-32B-Instruct"}, "was measured with pictures, of which"),
    ({"ttft_ms": "1", "gpu": "Abacus-1"}, "gpu 'Abacus-1' is no accelerator"),
    ({"ttft_ms": "1", "precision": "int7"}, "precision 'int7' is not modelled"),
    ({"ttft_ms": "1", "ttft_mean_ms": "2"}, "disagrees with"),
    ({"ttft_ms": "1", "input_tokens": "77"}, "input_tokens = 77.0 disagrees with 1024.0"),
])  # fmt: skip
def test_a_row_that_cannot_be_meant_is_one_line(more, said):
    with pytest.raises(ConfigError, match=said):
        run_of(ROW | more, "t.csv, line 2")


def test_a_model_with_experts_in_a_format_of_their_own_is_read():
    assert "model=gpt_oss_120b" in run_of(ROW | {"ttft_ms": "1", "model": "openai/gpt-oss-120b"}, "t.csv").run.chosen


@pytest.mark.parametrize(("model", "precision", "expected"), [
    ("openai/gpt-oss-120b", "mxfp4", {"precision=checkpoint"}),
    ("openai/gpt-oss-120b", "fp4", {"precision=checkpoint"}),
    ("deepseek-ai/DeepSeek-V3", "fp8", {"precision=checkpoint"}),
    ("Qwen/Qwen3-32B", "mxfp4", {"precision=mxfp4"}),
    ("Qwen/Qwen3-32B", "fp8", {"precision=fp8_block", "workload.precision.kv_cache=fp8"}),
    ("Llama-3.1-8B", "fp8", {f"workload.precision.{part}=fp8" for part in ("compute", "weights", "kv_cache")}),
])  # fmt: skip
def test_a_format_that_a_checkpoint_was_published_in_is_that_of_the_checkpoint(model, precision, expected):
    row = ROW | {"ttft_ms": "1", "model": model, "precision": precision, "gpu": "B200"}
    assert {word for word in run_of(row, "t.csv").run.chosen if "precision" in word} == expected


def served(rate: float) -> PricedRun:
    numbers = {
        "cluster.device_count": 1.0, "plan.tp": 1.0, "plan.micro_batch": 32.0, "workload.arrivals_per_s": rate,
    }  # fmt: skip
    return PricedRun(("accelerator=h100_sxm", "model=llama31_8b", "workload=at_rate"), numbers)


@pytest.mark.slow
def test_what_is_scored_is_what_the_command_line_prints(capsys: pytest.CaptureFixture):
    """With names and without: several rows of one structure, and the command of each."""
    runs = [served(1.0), served(4.0)]
    names = ["ttft_s", "tpot_s", "ttft_p99_s"]
    plain, named = predicted(runs, [*names, RUNS]), predicted(runs, names, named=True)
    for at, run in enumerate(runs):
        words = command(run).split()
        assert words[:2] == ["codesign", "evaluate"]
        assert main([*words[1:], "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        for name in names:
            assert plain[name][at] == pytest.approx(printed[name], rel=1e-9)
            assert named[name][at] == pytest.approx(printed[name], rel=1e-9)
    assert plain[RUNS].tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_rows_of_a_closed_loop_are_what_evaluate_says_of_their_overrides():
    jobs = jobs_of_a_table()
    queued = np.where(np.arange(len(jobs)) % 2, 0.25, 0.0)
    result = service(jobs, crowded=queued)
    for at in (0, 3, 7, 10):
        extra = evaluate(scenario_from_config(*overrides_of(jobs[at], float(queued[at])).overrides())).extra
        assert float(extra["ttft_s"]) == pytest.approx(result.first_s[at], rel=1e-8)
        assert float(extra["tpot_s"]) == pytest.approx(result.between_s[at], rel=1e-8)


HEADER = "gpu,model,tp,isl,osl,concurrency,tpot_ms,weather\n"
GOOD = "H100-SXM,Llama-3.1-8B,1,1024,256,8,9.0,fair\n"


@pytest.mark.slow
def test_good_rows_are_scored_beside_those_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture):
    heavy = "H100-SXM,Llama-3.1-405B,1,9000,30,32,99,rain\n"
    (tmp_path / "mine.csv").write_text(HEADER + GOOD + heavy + GOOD.replace("Llama-3.1", "Nope") + GOOD)
    assert main(["validate", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "measured runs" in said.out
    assert "mine.csv: column(s) weather carried along" in said.err
    assert "mine.csv, line 4: set aside, model 'Nope-8B' has no configuration" in said.err
    assert "mine.csv, line 3: set aside, its design cannot run as priced: `codesign evaluate" in said.err
    (whole,) = [row for row in validate(tmp_path) if row["group"] == "all"]
    assert (whole["quantity"], whole["n"]) == ("tpot", 2)
    extra = evaluate(scenario_from_config(*run_tables(tmp_path, [], [])[0].run.overrides())).extra
    assert whole["median"] == pytest.approx(abs(float(extra["tpot_s"]) / 9e-3 - 1), rel=1e-6)


def test_each_run_has_its_command(tmp_path: Path):
    (tmp_path / "mine.csv").write_text(HEADER + GOOD)
    (line,) = commands_of(tmp_path)
    assert line.startswith("codesign evaluate accelerator=h100_sxm workload=continuous model=llama31_8b plan.tp=1 ")
    assert line.endswith("# mine.csv, line 2: tpot_s 0.009")


@pytest.mark.slow
def test_a_damaged_table_does_not_refuse_the_others(tmp_path: Path):
    (tmp_path / "good.csv").write_bytes((TABLES / "published_gemm.csv").read_bytes())
    (tmp_path / "bad.csv").write_bytes((TABLES / "gemm.csv").read_bytes().replace(b"31.5", b"-3"))
    (tmp_path / "worse.csv").write_bytes((TABLES / "gemm.csv").read_bytes().replace(b",", b";"))
    result = validate(tmp_path)
    notes = [row["quantity"] for row in result if row["suite"] == "note"]
    assert any(note.startswith("not used: bad.csv, row 1") for note in notes)
    assert any(note.startswith("not used: worse.csv, line 1: cells are separated by semicolons") for note in notes)
    assert {row["suite"] for row in result} > {"note"}
    (tmp_path / "good.csv").unlink()
    with pytest.raises(DataError, match=r"^(bad|worse)\.csv"):
        validate(tmp_path)


def test_words_of_paths_and_stages_that_no_column_states():
    row = {"gpu": "h100_sxm", "model": "llama31_8b", "plan.recompute": "full", "tp": "4", "num_gpus": "8", "gbs": "64",
           "source": "a log", "step_s": "3"}  # fmt: skip
    one = run_of(row, "t.csv, line 2")
    assert "plan.recompute=full" in one.run.chosen
    assert (one.run.numbers["plan.pp"], one.run.numbers["plan.virtual_stages"]) == (1.0, 1.0)
    assert one.carried == "a log"


def test_a_plan_that_does_not_suit_is_told_with_what_is_taken(tmp_path):
    """As the command line takes it: eight stages and three chunks do not divide over eight devices of four ranks."""
    (tmp_path / "steps.csv").write_text("gpu,model,workload,num_gpus,step_s\nh100_sxm,llama31_8b,training,8,9\n")
    messages = list[str]()
    (one,) = run_tables(tmp_path, [], messages)
    assert "priced with plan." in messages[-1]
    assert broken_plan(scenario_from_config(*one.run.overrides())) == ""
