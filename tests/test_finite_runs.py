"""Runs of a benchmark from first request to last: by hand, as the command prints them, and as they are scored."""

import json
from pathlib import Path

import numpy as np
import pytest
from plain_engine import PlainEngine

from codesign.commands.cli import main
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.evidence.validation import commands_of, validate
from codesign.model.metrics import priced_ops
from codesign.model.metrics.simulated import finite_run
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals, lengths, simulate_run

DESIGN = (
    "accelerator=h100_sxm", "model=llama31_8b", "workload=continuous", "framework=vllm", "plan.tp=1",
    "cluster.device_count=1", "workload.input_tokens=1024", "workload.output_tokens=64", "plan.micro_batch=8",
)  # fmt: skip
EVEN = RooflineSteps(0.0, 0.1, 1e-12, 0.0, 0.0)  # every step takes a tenth of a second


def alike(count: int, prompt: int, answer: int, came: np.ndarray | None = None) -> Requests:
    return Requests(np.full(count, prompt), np.full(count, answer), came)


def test_clients_that_begin_at_once_wait_for_each_others_prompts():
    """Four prompts of 100 tokens, two to a step: first tokens after 0.1, 0.1, 0.2 and 0.2 s, then in turns."""
    engine = Engine(EVEN, budget=10**9, chunk=200)
    result = simulate_run(engine, alike(4, 100, 3), 4)
    assert np.sort(result.ttft_s) == pytest.approx([0.1, 0.1, 0.2, 0.2])
    assert result.tpot_s == pytest.approx(0.1)
    assert result.rate == pytest.approx(4 / 0.4)
    again = simulate_run(engine, alike(8, 100, 3), 4)  # each client asks twice
    assert np.sort(again.ttft_s)[-2:] == pytest.approx([0.2, 0.2])
    assert again.ttft_s.mean() == pytest.approx((0.1 * 6 + 0.2 * 2) / 8)


def test_a_burst_beyond_what_is_sustained_queues_and_ends():
    """Ten requests at once where two have a place: pairs of three steps each, one after another."""
    engine = Engine(EVEN, budget=10**9, chunk=200, sequences=2)
    result = simulate_run(engine, alike(10, 100, 3, np.zeros(10)))
    assert np.sort(result.ttft_s)[::2] == pytest.approx([0.1, 0.4, 0.7, 1.0, 1.3])
    assert result.rate == pytest.approx(10 / 1.5)
    with pytest.raises(ConfigError, match="arrivals, or clients"):
        simulate_run(engine, alike(3, 100, 3))


@pytest.mark.parametrize("clients", [None, 12])
def test_a_run_is_that_of_another_simulator(clients: int | None):
    rng = np.random.default_rng(2)
    steps = RooflineSteps(0.002, 0.01, 1e-5, 1e-7, 1e-9)
    came = arrivals(rng, 40.0, 1.0, 60)
    asked = Requests(lengths(rng, 400, 0.6, 60), lengths(rng, 40, 0.5, 60), None if clients else came - came[0])
    engine = Engine(steps, budget=512, sequences=16, blocks=2000)
    result, (first, last) = simulate_run(engine, asked, clients), PlainEngine(engine, asked).serve(clients)
    if asked.arrivals is not None:
        assert result.ttft_s == pytest.approx(first - asked.arrivals, rel=1e-9)
    assert result.rate == pytest.approx(60 / np.max(last), rel=1e-9)


@pytest.mark.slow
def test_a_run_of_many_rounds_is_the_closed_loop(capsys: pytest.CaptureFixture):
    """Where lengths vary clients fall out of step, as the closed form has it."""
    varied = (*DESIGN, "workload.input_cv=0.5", "workload.output_cv=0.8")
    assert main(["simulate", *varied, "--num-prompts", "1000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["evaluate", *varied, "--json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert told["tpot_s"] == pytest.approx(form["tpot_s"], rel=0.05)
    assert told["output_tokens_per_s"] == pytest.approx(form["tokens_per_s"], rel=0.05)
    assert told["duration_s"] == pytest.approx(1000 / told["rate"])


@pytest.mark.slow
def test_runs_are_scored_as_they_are_simulated(tmp_path: Path, capsys: pytest.CaptureFixture):
    """A table by its path: every prediction beside its measurement is what the command of the row prints."""
    table = tmp_path / "mine.csv"
    table.write_text(
        "gpu,model,framework,tp,isl,osl,concurrency,num_prompts,request_rate,ttft_ms,output_tokens_per_s\n"
        "H100-SXM,Llama-3.1-8B,vllm,1,1024,64,8,40,,100,500\n"
        "H100-SXM,Llama-3.1-8B,vllm,1,1024,64,,40,1000,900,3000\n"
    )
    rows = [row for row in validate(table) if row["suite"] == "run"]
    assert [row["quantity"] for row in rows] == ["ttft_s", "tokens_per_s"] * 2
    said = [line.partition("  #")[0].split()[1:] for line in commands_of(table)]
    assert said[1][-4:] == ["--num-prompts", "40", "--rate", "1000"]
    for words, (first, rate) in zip(said, (rows[:2], rows[2:]), strict=True):
        assert main([*words, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["ttft_s"] == pytest.approx(first["predicted"], rel=1e-9)
        assert told["output_tokens_per_s"] == pytest.approx(rate["predicted"], rel=1e-9)
        assert first["low"] < first["predicted"] < first["high"]
    assert main(["validate", str(table)]) == 0
    assert "mine.csv, line 3" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("words", "said"), [
    (("--num-prompts", "0"), r"--num-prompts 0 is outside \[1, 1000000\]"),
    (("--num-prompts", "9", "--rate", "nan"), "--rate nan is no rate; allowed: requests/s from 0 on"),
    (("--num-prompts", "9", "--rate", "-1"), "--rate -1 is no rate"),
    (("--num-prompts", "9", "--rate", "2", "--cv", "nan"), "--cv is in [0, 10]"),
    (("--num-prompts", "9", "--cv", "2"), "--cv 2 is of requests at a rate"),
    (("--num-prompts", "9", "--trace", "x.csv"), "leave out --trace"),
    (("workload=training", "--num-prompts", "9"), "serves no continuous batches"),
])  # fmt: skip
def test_wrong_runs_are_a_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture):
    assert main(["simulate", *DESIGN[:2], *(DESIGN[2:] if "workload=training" not in words else ()), *words]) == 2
    told = capsys.readouterr().err
    assert len(told.strip().splitlines()) == 1
    assert np.any([part in told for part in (said, said.replace("\\", ""))])


@pytest.mark.slow
def test_experts_of_few_rows_stream_their_weights():
    """An H20 has a seventh of the arithmetic of an H200 and 5/6 of its memory rate: experts differ little."""

    def experts_s(device: str) -> float:
        words = ("workload=continuous_fp8", "model=deepseek_v3", "framework=none", "plan.tp=8", "plan.micro_batch=64")
        design = scenario_from_config(f"accelerator={device}", "cluster.device_count=8", *words)
        return sum(
            float(cost.time_s)
            for op, cost in priced_ops(design)
            if op.phase == "decode" and op.name in ("moe_up", "moe_down")
        )

    assert 1.0 < experts_s("h20") / experts_s("h200") < 3.0


@pytest.mark.slow
def test_designs_that_are_simulated_are_spread_over_their_engines():
    one = finite_run(scenario_from_config(*DESIGN), 40, clients=8)
    two = finite_run(scenario_from_config(*DESIGN, "cluster.device_count=2"), 80, clients=16)
    assert two.rate == pytest.approx(2 * one.rate, rel=1e-6)
    assert two.ttft_s.mean() == pytest.approx(one.ttft_s.mean(), rel=1e-6)
