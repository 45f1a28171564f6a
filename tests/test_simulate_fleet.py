"""`codesign simulate --replicas`: a fleet beside its closed form, what is refused, and what is not to be trusted."""

import json
from pathlib import Path

import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.commands.simulate_fleet import agreed_of
from codesign.core.errors import ConfigError
from codesign.report.drawing import render
from codesign.report.fleet_figures import fleet_figure
from codesign.simulation.fleet import LatencyLimits, RequestClass, conversations, simulate_fleet
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals, read_trace

DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=at_rate",
    "cluster.device_count=4", "plan.tp=1", "plan.pp=1", "plan.micro_batch=64", "plan.token_budget=2048",
    "workload.input_tokens=1024", "workload.output_tokens=64", "workload.arrivals_per_s=40",
)  # fmt: skip
CLASSES = (
    RequestClass("agent", 600, 60, prefix_tokens=4096, prefixes=20, turns=8, think_s=4),
    RequestClass("chat", 300, 60, share=2, prefix_tokens=1024, prefixes=10, turns=3, think_s=10),
)


def lines_of(requests: Requests) -> str:
    """As Mooncake writes them, with conversations and classes."""
    rows = [
        {
            "timestamp": round(1e3 * float(requests.arrivals[one])), "input_length": int(requests.prompts[one]),
            "output_length": int(requests.outputs[one]), "hash_ids": requests.hashes_of(one),
            "session_id": f"s{requests.sessions[one]}", "class": requests.class_names[requests.classes[one]],
        }
        for one in range(len(requests))
    ]  # fmt: skip
    return "\n".join(json.dumps(row) for row in rows)


def drawn(seed: int = 0, count: int = 200) -> Requests:
    rng = np.random.default_rng(seed)
    return conversations(rng, arrivals(rng, 2.0, 1.0, count), CLASSES, open_loop=True, answer_s=1.0, most_tokens=16_000)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "agents.jsonl"
    path.write_text(lines_of(drawn()), encoding="utf-8")
    return str(path)


def test_a_trace_is_read_with_all_that_it_says(trace):
    asked, read = drawn(), read_trace(trace)
    assert read.hash_tokens == asked.hash_tokens
    assert [read.class_names[one] for one in read.classes] == [asked.class_names[one] for one in asked.classes]
    for one in (0, 5, len(asked) - 1):
        same = [other for other in range(len(asked)) if asked.sessions[other] == asked.sessions[one]]
        assert {read.sessions[other] for other in same} == {read.sessions[one]}
        assert len(read.hashes_of(one)) == len(asked.hashes_of(one))
    some = read.chosen(np.array([3, 7]))
    assert some.hashes_of(1) == read.hashes_of(7)


def test_columns_of_a_table_name_conversations_and_classes(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,session,class\n0,5,5,a,chat\n1,6,6,b,code\n2,7,7,a,chat\n")
    read = read_trace(path)
    assert read.sessions.tolist() == [0, 1, 0]
    assert [read.class_names[one] for one in read.classes] == ["chat", "code", "chat"]


@pytest.mark.slow
@pytest.mark.parametrize("router", ["round_robin", "prefix_aware"])
def test_a_trace_on_a_fleet(router, trace, capsys):
    words = ["simulate", *DESIGN, "--replicas", "4", "--trace", trace, "--router", router, "--prefix-cache", "20GB"]
    assert main([*words, "--slo", "ttft=2s,tpot=50ms", "--slo", "chat:ttft=1us,share=0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["closed_form"]["hit_rate"] == pytest.approx(told["simulated"]["hit_rate"], abs=0.05)
    assert told["simulated"]["hit_rate"] > 0.3
    assert told["closed_form"]["tpot_s"] == pytest.approx(told["simulated"]["tpot_s"], rel=0.15)
    kept = {row["class"]: row["meets"] for row in told["classes"]}
    assert kept == {"agent": True, "chat": False}
    assert told["traffic"]["turns"] > 2
    assert bool(told["doubts"]) == (router != "round_robin")


@pytest.mark.slow
def test_drawn_requests_on_a_fleet(capsys):
    words = ["simulate", *DESIGN, "--replicas", "2", "--rate", "10", "--burstiness", "3", "--requests", "3000"]
    assert main([*words, "--router", "power_of_two", "--slo", "ttft=1s"]) == 0
    told = capsys.readouterr().out
    assert "power_of_two" in told
    assert "requests that kept their limits" in told
    assert "99th percentile of first tokens: not trusted" in told
    assert "of power_of_two trust the simulation" in told


@pytest.mark.slow
def test_classes_go_first_or_are_turned_away(tmp_path, capsys):
    """One slot of one replica, twice the load: the class that goes first waits less, the other one is turned away."""
    rng = np.random.default_rng(0)
    came = np.cumsum(rng.exponential(0.25, 600))
    rows = "\n".join(f"{t:.5f},1024,64,{'ab'[k]}" for t, k in zip(came, rng.integers(2, size=600), strict=True))
    path = tmp_path / "classes.csv"
    path.write_text(f"arrival_s,input_tokens,output_tokens,class\n{rows}\n", encoding="utf-8")
    words = ["simulate", *DESIGN, "plan.micro_batch=2", "--replicas", "1", "--trace", str(path), "--json"]
    result = []
    for more in ([], ["--priority", "b"], ["--admit", "a=2"]):
        assert main([*words, *more]) == 0
        told = json.loads(capsys.readouterr().out)
        result.append({row["class"]: row for row in told["classes"]})
        assert any("whoever came first" in line for line in told["doubts"]) == bool(more)
    plain, first, away = result
    assert first["b"]["ttft_p90_s"] < 0.7 * plain["b"]["ttft_p90_s"]
    assert first["a"]["ttft_p90_s"] > plain["a"]["ttft_p90_s"]
    assert away["a"]["refused"] > 0.05
    assert away["b"]["refused"] == 0
    assert away["b"]["ttft_p90_s"] < plain["b"]["ttft_p90_s"]


WRONG = [
    (["--replicas", "0"], "--replicas 0 is outside [1, 1024]"),
    (["--replicas", "2", "--router", "round_robbin"], "did you mean 'round_robin'"),
    (["--replicas", "2", "--admit", "chat=0"], "a class once with a whole number from 1 on"),
    (["--replicas", "2", "--priority", "chat"], "take a --trace with a column class"),
    (["--replicas", "2", "--trace", "PLAIN", "--admit", "chat=3"], "take a --trace with a column class"),
    (["--replicas", "2", "--trace", "TRACE", "--priority", "nobody"], "no class nobody"),
    (["--replicas", "2", "--trace", "TRACE", "--admit", "nobody=3"], "--admit: the requests have no class nobody"),
    (["--replicas", "2", "--trace", "TRACE", "--rate", "3"], "leave out --rate and --cv"),
    (["--replicas", "2", "--slo", "ttft=0s"], "is no number above 0"),
    (["--replicas", "2", "--slo", "ttft=2"], "of what? write"),
    (["--replicas", "2", "--slo", "speed=2s"], "'speed=2s' is no limit"),
    (["--replicas", "2", "--slo", "ttft=2s", "--slo", "tpot=1s"], "twice"),
    (["--replicas", "2", "--trace", "TRACE", "--slo", "batch:ttft=2s"], "no class batch (they have agent, chat)"),
    (["--replicas", "2", "--trace", "PLAIN", "--router", "prefix_aware"], "goes by hash_ids"),
    (["--replicas", "2", "--trace", "PLAIN", "--router", "session_sticky"], "goes by a column session"),
    (["--replicas", "2", "--num-prompts", "5"], "leave out --replicas"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_one_line(words, said, trace, tmp_path, capsys):
    plain = tmp_path / "plain.csv"
    plain.write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n1,6,6\n2,7,7\n", encoding="utf-8")
    named = [trace if word == "TRACE" else str(plain) if word == "PLAIN" else word for word in words]
    if named[-1] == "round_robbin":
        named += ["--trace", trace]
    assert main(["simulate", *DESIGN, *named]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert "\n" not in told


@pytest.mark.slow
def test_a_cache_that_nothing_is_known_of_is_one_line(tmp_path, capsys):
    plain = tmp_path / "plain.csv"
    rows = "\n".join(f"{one},50,5" for one in range(300))
    plain.write_text(f"arrival_s,input_tokens,output_tokens\n{rows}\n", encoding="utf-8")
    words = ["simulate", *DESIGN, "--replicas", "2", "--trace", str(plain), "--prefix-cache"]
    assert main([*words, "20GB"]) == 2
    assert "take a trace with hash_ids" in capsys.readouterr().err


def test_hashes_that_are_none_are_one_line(tmp_path):
    text = '{"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": [[1]]}'
    path = tmp_path / "wrong.jsonl"
    path.write_text(f"{text}\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"request 1: hash_ids = .* is no list of numbers or names"):
        read_trace(path)


def test_limits_are_read():
    result = agreed_of(["ttft=2s,tpot=50ms,share=0.95", "chat:ttft=500ms"])
    assert result == {"": LatencyLimits(2.0, 0.05, 0.95), "chat": LatencyLimits(0.5)}


def test_the_timeline_is_drawn():
    engine = Engine(RooflineSteps(2e-3, 5e-3, 2e-5, 1e-8, 1e-9), budget=4096, chunk=4096, store_blocks=300)
    result = simulate_fleet(engine, drawn(), "session_sticky", replicas=3)
    figure = fleet_figure(result, {"": LatencyLimits(0.2, 0.05), "chat": LatencyLimits(0.1)})
    assert len(figure.axes) == 4
    assert "keep their limits" in figure.get_suptitle()
    assert render(figure)[:4] == b"\x89PNG"
