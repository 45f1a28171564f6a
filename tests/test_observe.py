"""`codesign observe` against a real server whose service process is known and which records what it did."""

import csv
import itertools
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streaming_server import ServiceProcess, serving, tokens_of

from codesign.commands.cli import main
from codesign.core.errors import ConfigError
from codesign.evidence.observing import Endpoint
from codesign.evidence.observing.endpoint import _TokenEvents
from codesign.simulation.serving import read_trace

DESIGN = ("accelerator=h100_sxm", "model=llama31_8b", "tp=1", "framework=vllm")
PROBES = 2  # requests that are sent before anything is measured
BUSY_S = 0.04  # by which a loaded machine may be late in the median


def observe(tmp_path: Path, process: ServiceProcess, *words: str, code: int = 0) -> dict[str, Any]:
    """Its row and the rows of its requests."""
    with serving(process) as url:
        assert main(["observe", url, *DESIGN, "--out", str(tmp_path / "runs"), *words]) == code
    (run,) = sorted(path for path in (tmp_path / "runs").iterdir() if ".requests" not in path.name)
    requests = run.with_suffix(".requests.csv")
    with run.open() as one, requests.open() as other:
        (row,) = csv.DictReader(one)
        return {"row": row, "requests": list(csv.DictReader(other)), "path": requests}


def recorded(process: ServiceProcess) -> dict[str, np.ndarray]:
    """Seconds as the server saw them: to the first token, between tokens, whole."""
    records = process.records[PROBES:]
    return {
        "ttft": np.array([r.first - r.came for r in records]), "e2e": np.array([r.last - r.came for r in records]),
        "tpot": np.array([(r.last - r.first) / (r.output_tokens - 1) for r in records]),
    }  # fmt: skip


def agree(row: dict[str, str], process: ServiceProcess) -> None:
    """Medians and means are the server's own, but for what the connection takes."""
    for name, values in recorded(process).items():
        slack = BUSY_S if name != "tpot" else 0.1 * process.between_s
        for share, theirs in (("p50", np.median(values)), ("mean", values.mean())):
            assert float(row[f"{name}_{share}_ms"]) / 1e3 == pytest.approx(theirs, abs=slack, rel=0.05), (name, share)


def test_times_of_a_closed_loop_are_those_that_the_server_kept_to(tmp_path: Path, capsys: pytest.CaptureFixture):
    process = ServiceProcess(first_s=0.04, between_s=0.01)
    result = observe(tmp_path, process, "--clients", "4", "--requests", "12", "--input", "100", "--output", "12")
    row = result["row"]
    agree(row, process)
    assert 40 <= float(row["ttft_p50_ms"]) < 40 + 1e3 * BUSY_S
    assert 9.7 <= float(row["tpot_p50_ms"]) < 12  # a first token that is late makes the others look early
    assert row.items() >= {"accelerator": "h100_sxm", "tp": "1", "concurrency": "4", "num_prompts": "12"}.items()
    assert float(row["output_tokens"]) == 12
    assert float(row["input_tokens"]) == np.mean([r.prompt_tokens for r in process.records[PROBES:]])
    assert float(row["input_tokens"]) == pytest.approx(100, rel=0.1)  # words have one or two tokens here
    span = 3 * (0.04 + 11 * 0.01)
    assert 0.7 * 144 / span < float(row["output_tokens_per_s"]) <= 144 / span * 1.001
    assert len(result["requests"]) == 12
    said = capsys.readouterr()
    assert "time to first token" in said.out
    assert "12 requests, 4 at a time" in said.out
    assert "compares this run" in said.err
    assert process.bodies[-1]["stream_options"] == {"include_usage": True}


def test_requests_without_a_place_wait_for_their_first_token(tmp_path: Path):
    """Four clients on two places: each waits a whole service time, 40 + 9 x 10 ms, beside its own."""
    process = ServiceProcess(first_s=0.04, between_s=0.01, slots=2)
    row = observe(tmp_path, process, "--clients", "4", "--requests", "12", "--output", "10", "--chat")["row"]
    agree(row, process)
    assert float(row["ttft_p50_ms"]) >= 130 + 40 - 1
    assert float(row["tpot_p50_ms"]) == pytest.approx(10, rel=0.2)
    assert process.bodies[-1]["messages"][0]["role"] == "user"


def test_a_rate_sends_each_request_when_it_is_due(tmp_path: Path, capsys: pytest.CaptureFixture):
    """However busy the server is: one place, a fifth of what is needed."""
    process = ServiceProcess(first_s=0.03, between_s=0.005, slots=1)
    result = observe(tmp_path, process, "--rate", "6000/min", "--requests", "20", "--output", "4", "--json")
    came = np.array([r.came for r in process.records[PROBES:]])
    sent = np.array([float(row["arrival_s"]) for row in result["requests"]])
    assert np.median(np.abs((came - came[0]) - (sent - sent[0]))) < BUSY_S
    assert float(result["row"]["request_rate"]) == pytest.approx(19 / (sent[-1] - sent[0]), rel=1e-3)
    assert "concurrency" not in result["row"]
    assert "output_tokens_per_s" not in result["row"]  # of an open loop that is the rate again
    agree(result["row"], process)
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["requests"] == 20
    assert numbers["ttft_p99_s"] > numbers["ttft_p50_s"] > 0.15  # the queue grows


def test_a_trace_is_sent_as_recorded_and_becomes_one(tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n5,40,3\n5.05,80,9\n5.2,120,2\n5.4,60,1\n")
    process = ServiceProcess()
    result = observe(tmp_path, process, "--trace", str(trace))
    assert [r.output_tokens for r in process.records[PROBES:]] == [3, 9, 2, 1]
    again = read_trace(result["path"])
    assert again.arrivals is not None
    assert np.diff(again.arrivals) == pytest.approx([0.05, 0.15, 0.2], abs=2 * BUSY_S)
    assert again.prompts == pytest.approx([40, 80, 120, 60], rel=0.3)
    assert result["requests"][3]["tpot_s"] == ""  # an answer of one token
    assert float(result["row"]["workload.output_cv"]) > 0.5
    assert float(result["row"]["workload.arrival_cv"]) == pytest.approx(0.47, abs=0.2)


@pytest.mark.parametrize(("odd", "said"), [
    ("500", "2 of 8 requests failed: 2 x HTTP 500 out of memory"),
    ("cut", "2 of 8 requests failed: 2 x "),
    ("malformed", "2 of 8 requests failed: 2 x an event that is no JSON object"),
    ("whole", "2 of 8 requests failed: 2 x an answer that is no stream of events"),
])  # fmt: skip
def test_errors_of_a_server_are_counted_and_named(odd: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    process = ServiceProcess(odd=lambda number: odd if number in (4, 7) else "", first_s=0.01, between_s=0.002)
    result = observe(tmp_path, process, "--clients", "2", "--requests", "8", "--output", "4")
    assert said in capsys.readouterr().err
    assert len(result["requests"]) == 8
    assert sum(bool(row["error"]) for row in result["requests"]) == 2
    assert all(bool(row["error"]) != bool(row["ttft_s"]) for row in result["requests"])


@pytest.mark.parametrize(("process", "words", "said"), [
    (ServiceProcess(odd=lambda number: "500" if number >= PROBES else ""), (),
     "observe: all 10 requests failed: 10 x HTTP 500 out of memory"),
    (ServiceProcess(odd=lambda number: "500"), (), "/v1/completions does not serve: HTTP 500 out of memory"),
    (ServiceProcess(models=()), (), "/v1/models names no model (HTTP 200): say --served-model NAME"),
    (ServiceProcess(models=("a", "b")), (), "/v1 serves a, b: say --served-model NAME"),
    (ServiceProcess(first_s=5.0), ("--timeout", "0.2"), "does not serve: Timeout"),
])  # fmt: skip
def test_a_server_that_does_not_serve_is_one_line(
    process: ServiceProcess, words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    design = DESIGN if process.models == ("tiny",) else ("accelerator=h100_sxm",)
    with serving(process) as url:
        assert main(["observe", url, *design, *words, "--out", str(tmp_path / "runs")]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n"), (tmp_path / "runs").exists()) == ("", 1, False)


@pytest.mark.parametrize(("words", "said"), [
    (["http://127.0.0.1:{port}", "gpu=h100"], "http://127.0.0.1:{port}/v1 does not answer: Connection refused"),
    (["ftp://host", "accelerator=h100_sxm"], "'ftp://host' is no URL of a server; allowed: http://HOST:PORT"),
    (["http://host:999999", "accelerator=h100_sxm"], "is no URL of a server"),
    (["http://host"], "observe: say what serves: accelerator=NAME"),
    (["http://host", "acelerator=h100_sxm"], "observe: acelerator is no column of measured runs (did you mean"),
    (["http://host", "h100_sxm"], "observe: 'h100_sxm' is no key=value"),
    (["http://host", "gpu=h100", "--rate", "fast"], "observe: --rate 'fast' is no rate"),
    (["http://host", "gpu=h100", "--rate", "0"], "observe: --rate '0' is no rate"),
    (["http://host", "gpu=h100", "--rate", "5", "--clients", "3"], "--clients and --rate are different loads: say one"),
    (["http://host", "gpu=h100", "--clients", "0"], "observe: --clients 0 is outside [1, 100,000]"),
    (["http://host", "gpu=h100", "--timeout", "-1"], "observe: --timeout -1 must be above 0"),
    (["http://host", "gpu=h100", "--trace", "none.csv"], "trace 'none.csv' cannot be read"),
    (["http://host", "gpu=h100", "--key-env", "NO_SUCH_KEY_HERE"], "--key-env NO_SUCH_KEY_HERE: no such variable"),
])  # fmt: skip
def test_what_is_asked_wrongly_is_one_line(words: list[str], said: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["observe", *(word.format(port=port) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert said.format(port=port) in err
    assert (out, err.count("\n"), list(tmp_path.iterdir())) == ("", 1, [])


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture, caplog):
    def ended(number: int) -> None:
        if number == PROBES + 5:
            os.kill(os.getpid(), signal.SIGINT)

    process = ServiceProcess(first_s=0.05, between_s=0.01, ended=ended)
    before = signal.getsignal(signal.SIGINT)
    result = observe(tmp_path, process, "--clients", "2", "--requests", "1000", "--output", "4", code=130)
    assert signal.getsignal(signal.SIGINT) is before
    assert 4 <= len(result["requests"]) <= 10
    assert not caplog.records  # requests that are given up are no fault of the client
    assert result["row"]["num_prompts"] == str(len(result["requests"]))
    assert (
        f"interrupted: {len(result['requests'])} of 1,000 requests had ended, and are kept" in capsys.readouterr().err
    )


def test_ctrl_c_before_a_request_ended_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    def odd(number: int) -> str:
        if number == PROBES:
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    with serving(ServiceProcess(first_s=0.3, odd=odd)) as url:
        assert main(["observe", url, *DESIGN, "--out", str(tmp_path / "runs")]) == 130
    assert capsys.readouterr().err == "codesign: interrupted before a request ended: nothing is measured\n"
    assert not (tmp_path / "runs").exists()


def test_servers_that_know_less_are_measured_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture):
    """OpenAI's fields alone, answers that end early, no count of tokens."""
    process = ServiceProcess(own_fields=False, longest=5, usage=False, models=("mine/private-7b",))
    with serving(process) as url:
        words = ["observe", f"{url}/v1/", "gpu=h100", "--output", "8", "--input", "50", "--out", str(tmp_path)]
        assert main(words) == 0
    assert "ignore_eos" not in process.bodies[-1]
    said = capsys.readouterr().err
    assert "`codesign validate` will set this run aside: model 'mine/private-7b' has no configuration" in said
    assert "the server reports no tokens: a word of a prompt is taken for one" in said
    assert "10 answers ended early (mean of all: 5 tokens)" in said
    assert {len(body["prompt"].split()) for body in process.bodies[-10:]} == {50}


def test_two_runs_of_a_second_are_two_files(tmp_path: Path):
    with serving(ServiceProcess(first_s=0.005)) as url:
        words = ["observe", url, *DESIGN, "--requests", "2", "--output", "2", "--out", str(tmp_path)]
        assert [main(words), main(words)] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_prompt_is_as_long_as_the_server_counts_it(tmp_path: Path):
    process = ServiceProcess(first_s=0.002, between_s=0.001)
    for words in (("--input", "300"), ("--input", "300", "--chat")):
        process.records.clear()
        observe(tmp_path / words[-1], process, *words, "--requests", "20", "--clients", "4", "--output", "2")
        lengths = [r.prompt_tokens for r in process.records[PROBES:]]
        assert np.mean(lengths) == pytest.approx(300, rel=0.05)
    assert tokens_of("a company") == 3


STREAM = (
    b"".join(
        b'data: {"choices": [{"index": 0, "text": " a", "finish_reason": %s}]}\n\n' % reason
        for reason in (b"null", b"null", b'"length"')
    )
    + b': a comment\n\ndata: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\ndata: [DONE]\n\n'
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_is_read_however_it_is_cut(cuts: list[int]):
    events, ends = _TokenEvents(), sorted({0, *cuts, len(STREAM)})
    for begin, end in itertools.pairwise(ends):
        events.take(STREAM[begin:end])
    answer = events.answer(0.0, 200, "")
    assert (answer.error, answer.events, answer.tokens, answer.prompt_tokens) == ("", 3, 3, 7)


def test_an_event_that_never_ends_is_not_kept():
    events = _TokenEvents()
    for _ in range(40):
        events.take(b"x" * 2**16)
    assert len(events._rest) < 2**20
    assert events.answer(0.0, 200, "").error == "an event without an end"


@given(st.binary(max_size=300))
def test_no_bytes_of_a_server_break_in(data: bytes):
    events = _TokenEvents()
    events.take(b"data: " + data + b"\n\n" + data)
    assert events.answer(0.0, 200, "").error


@pytest.mark.parametrize(("url", "base", "chat"), [
    ("http://h:1", "http://h:1/v1", False), ("h:8000/", "http://h:8000/v1", False),
    ("https://h/api/v1/chat/completions", "https://h/api/v1", True), ("http://h/v1/completions", "http://h/v1", False),
])  # fmt: skip
def test_urls(url: str, base: str, chat: bool):
    result = Endpoint.of_url(url)
    assert (result.base, result.chat) == (base, chat)
    assert result.url == f"{base}/{'chat/' if chat else ''}completions"
    with pytest.raises(ConfigError):
        Endpoint.of_url("http://")


@pytest.mark.slow
def test_an_observed_run_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture):
    observe(tmp_path, ServiceProcess(), "--clients", "4", "--requests", "8", "--output", "8")
    assert main(["validate", str(tmp_path / "runs")]) == 0
    out, err = capsys.readouterr()
    assert "measured runs" in out
    assert "tpot" in out
    assert "requests.csv: no suite uses this table, the run that they are of is compared" in err
