# ruff: noqa: E501
"""Traces of requests as they are published: Azure, BurstGPT, Mooncake, benchmarks, conversations, own columns."""

import json

import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.config.traced_requests import CHECKED_CV, doubts, moments
from codesign.core.errors import ConfigError
from codesign.simulation.serving import Requests, read_trace
from codesign.simulation.serving.traces import shared_prefix

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,3180,8\n"
)
TRACES = {
    "azure.csv": AZURE,
    "azure_2024.csv": AZURE.replace(".9799600", ".979960+00:00").replace(".4799600", ".479960+00:00"),
    "burstgpt.csv": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,4808,10,4818,Conversation log\n"
        "5.2,ChatGPT,7,0,7,API log\n5.5,GPT-4,3180,8,3188,API log\n"
    ),
    "mooncake.jsonl": (
        '{"timestamp": 27000, "input_length": 4808, "output_length": 10, "hash_ids": [1, 2, 3]}\n'
        '{"timestamp": 27500, "input_length": 3180, "output_length": 8, "hash_ids": [1, 2, 9]}\n'
    ),
    "aliases.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,3180,8\n0,4808,10\n",
    "milliseconds.csv": "arrival_ms,prompt_len,output_len\n0,4808,10\n500,3180,8\n",
    "time_ms.csv": "time_ms,prompt_tokens,completion_tokens\n100,4808,10\n600,3180,8\n",
    "microseconds.csv": "Timestamp (us),isl,osl\n100,4808,10\n500100,3180,8\n",
    "epoch.csv": "start_time,isl,osl\n1700000000000,4808,10\n1700000000500,3180,8\n",
    "bench.json": '{"backend": "vllm", "input_lens": [4808, 3180], "output_lens": [10, 8], "start_times": [7.0, 7.5], "rate": 2}',
    "list.json": '[{"timestamp": 0, "prompt_tokens": 4808, "completion_tokens": 10}, {"timestamp": 0.5, "prompt_tokens": 3180, "completion_tokens": 8}]',
}  # fmt: skip
CHAT = [{"conversations": [{"from": "human", "value": "a" * 400}, {"from": "gpt", "value": "b" * 80},
                           {"from": "human", "value": "a" * 40}, {"from": "gpt", "value": "b" * 40}]}]  # fmt: skip
INPUTS = {"data": [{"session_id": "x", "payloads": [
    {"messages": [{"role": "user", "content": "a" * 400}], "max_completion_tokens": 20},
    {"messages": [{"role": "user", "content": "a" * 520}], "max_completion_tokens": 10}]}]}  # fmt: skip
WRONG = [
    ("TIMESTAMP,ContextTokens\n2023-11-16,5\n", "no column output_tokens"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,5,5\nlate,6,6\n", "TIMESTAMP = 'soon' is no time"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,5,5\n2023-13-16,6,6\n", "is no date"),
    ("Timestamp,Request tokens,Response tokens\n1,5,0\n2,6,0\n", "0 requests"),
    ('{"timestamp": 1, "input_length": 5}\n{"timestamp": 2, "input_length": 5}\n', "no output_tokens"),
    ('{"timestamp": 1, "input_length": "x", "output_length": 1}\n{"timestamp": 2}\n', "is no number of tokens"),
    ('{"input_lens": [1, 2], "output_lens": [1]}', "lists of different lengths"),
    ("[1, 2", "trace"),
    ('"text"\n', "trace"),
]


@pytest.mark.parametrize("name", TRACES)
def test_a_published_trace_is_read_as_it_is(tmp_path, name):
    path = tmp_path / name
    path.write_text(TRACES[name], encoding="utf-8")
    result = read_trace(path)
    assert result.arrivals is not None
    assert (result.prompts.tolist(), result.outputs.tolist()) == ([4808, 3180], [10, 8])
    np.testing.assert_allclose(result.arrivals, [0, 0.5], atol=1e-9)
    assert result.cached_ratio == (2 * 512 / (4808 + 3180) if name == "mooncake.jsonl" else 0)


@pytest.mark.parametrize("tree", [CHAT, INPUTS])
def test_texts_count_four_characters_a_token(tmp_path, tree):
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    result = read_trace(path, timed=False)
    assert (result.prompts.tolist(), result.outputs.tolist()) == ([100, 130], [20, 10])
    with pytest.raises(ConfigError, match="does not say when"):
        read_trace(path)


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_wrong_trace_is_one_line(tmp_path, text, said):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as refused:
        read_trace(path, timed=False)
    assert "\n" not in str(refused.value)


def test_prefixes_end_at_the_first_block_that_is_new():
    """The first two of four blocks are known: one that is known behind a new one does not count."""
    prompts = np.array([2048, 2048, 100])
    assert shared_prefix([[1, 2, 3, 4], [1, 2, 9, 4], [1]], prompts) == pytest.approx((1024 + 100) / prompts.sum())


def stream(cv: float, seed: int = 0) -> Requests:
    rng = np.random.default_rng(seed)
    gaps = rng.gamma(1 / cv**2, cv**2, 6000)
    return Requests(np.full(6000, 9), np.full(6000, 9), np.cumsum(gaps))


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0, 4.0])
def test_closed_forms_are_believed_for_streams_of_one_rate(cv):
    assert doubts(stream(cv), "t.csv") == ""


def test_bursts_and_tides_are_left_to_the_simulation():
    assert "bursts" in doubts(stream(2 * CHECKED_CV), "t.csv")
    assert moments(stream(20.0))["arrival_cv"] == 10
    rates = np.repeat([1.0, 20.0, 1.0, 20.0], 1500)
    tide = Requests(np.full(6000, 9), np.full(6000, 9), np.cumsum(np.random.default_rng(1).exponential(1 / rates)))
    told = doubts(tide, "t.csv")
    assert "rate of arrivals varies" in told
    assert "codesign simulate ... --trace t.csv" in told


@pytest.mark.slow
def test_a_bursty_trace_is_priced_and_says_what_to_believe(tmp_path, capsys):
    """Gaps that deviate by 13 times their mean, as those of Azure's trace of code do: no field that nobody typed."""
    asked = stream(13.0)
    rows = (
        f"{came},{prompt},{answer}"
        for came, prompt, answer in zip(asked.arrivals, asked.prompts, asked.outputs, strict=True)
    )
    path = tmp_path / "t.csv"
    path.write_text("timestamp,ContextTokens,GeneratedTokens\n" + "\n".join(rows), encoding="utf-8")
    assert main(["evaluate", "model=llama31_8b", "cluster.device_count=1", "plan.tp=1", "plan.pp=1", "workload=at_rate",
                 f"workload.trace={path}"]) == 0  # fmt: skip
    told = capsys.readouterr().err
    assert "believe `codesign simulate" in told
    assert "arrival_cv" not in told
