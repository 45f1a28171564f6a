"""Engines that compute nothing but prompts: their full steps, and a closed network against events."""

import heapq
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from codesign.evidence.validation.hardware import engine_cluster
from codesign.evidence.validation.prompt_engines import Clients, PromptEngine, closed_network, prompt_engines
from codesign.evidence.validation.served_jobs import Job
from codesign.evidence.validation.served_models import option_of
from codesign.evidence.validation.served_rows import parts_of
from codesign.evidence.validation.two_pools import pools

ANSWER_S = 10.0


def network(count: float, engines: float, engine: PromptEngine, burst: float = 0.0, answer_s: float = ANSWER_S):
    clients = Clients(*(np.array([number]) for number in (count, engines, burst)))
    return [one[0] for one in closed_network(clients, engine, lambda decoded: np.full(1, answer_s))]


def engine_of(alone: float, full: float, prompts: float) -> PromptEngine:
    return PromptEngine(np.array([alone]), np.array([full]), np.array([prompts]))


def simulated(count: int, engines: int, engine: PromptEngine, requests: int = 40_000) -> tuple[float, float]:
    """Mean seconds to the first token in the steady state, and requests that are waiting or computed at a time.

    An engine that is free takes all prompts that have room.
    """
    alone, full, room = (float(part[0]) for part in engine)
    random = np.random.default_rng(0)
    came = list(random.uniform(0, ANSWER_S, count))  # when requests come, and when engines are free
    heapq.heapify(came)
    free, waited, ended = [0.0] * engines, [], []
    while len(waited) < requests:
        start = max(heapq.heappop(free), came[0])
        batch = [heapq.heappop(came)]
        while came and came[0] <= start and len(batch) < room:
            batch.append(heapq.heappop(came))
        end = start + alone + (full - alone) * len(batch) / room
        heapq.heappush(free, end)
        for one in batch:
            waited.append(end - one)
            ended.append(end)
            heapq.heappush(came, end + ANSWER_S * random.uniform(0.8, 1.2))
    late, ends = np.array(waited), np.array(ended)
    seen = np.linspace(np.quantile(ends, 0.3), np.quantile(ends, 0.9), 2000)  # moments at which they are counted
    here = np.searchsorted(np.sort(ends - late), seen) - np.searchsorted(np.sort(ends), seen)
    return float(np.mean(waited[requests // 4 :])), float(np.mean(here))


@pytest.mark.parametrize(
    ("count", "engines", "engine"),
    [
        (1, 1, engine_of(0.3, 0.9, 8.0)),
        (16, 1, engine_of(0.3, 0.9, 8.0)),
        (64, 1, engine_of(0.3, 0.9, 8.0)),
        (64, 4, engine_of(0.3, 0.9, 8.0)),
        (400, 2, engine_of(0.3, 0.9, 8.0)),
        (20, 1, engine_of(0.2, 0.2, 1.0)),
        (200, 1, engine_of(0.2, 0.2, 1.0)),
        (1000, 1, engine_of(0.05, 0.4, 32.0)),
    ],
)
def test_first_tokens_are_near_the_simulation(count, engines, engine):
    """From nobody else to pools that are full five times over: within a quarter, and within 3 % where they are full."""
    found, _, here = network(count, engines, engine)
    events, counted = simulated(count, engines, engine)
    full = engines * float(engine.prompts[0] / engine.full_s[0])
    near = 0.03 if count > 1.5 * full * ANSWER_S else 0.25
    assert found == pytest.approx(events, rel=near)
    assert here * engines == pytest.approx(counted, rel=near, abs=0.02)


def test_one_client_meets_nobody():
    assert network(1.0, 2.0, engine_of(0.3, 0.9, 8.0), 1.0)[0] == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("count", [64.0, 4096.0])
def test_no_more_is_computed_than_full_steps_hold(count):
    found, answer, _ = network(count, 2.0, engine_of(1.0, 4.0, 8.0), answer_s=1.0)
    rate = count / (found + answer)
    assert rate <= 4.0 * (1 + 1e-6)
    if count == 4096.0:
        assert rate == pytest.approx(4.0, rel=1e-2)


def test_of_a_start_all_wait_for_half_of_the_others():
    """Where nobody waits later: answers take an hour."""
    engine = engine_of(0.3, 0.8, 8.0)
    later, at_start = (network(101.0, 1.0, engine, burst, answer_s=3600.0)[0] for burst in (0.0, 1.0))
    half = 50 * 0.1
    assert at_start - later == pytest.approx(half, rel=0.05)
    assert network(101.0, 1.0, engine, 0.25, answer_s=3600.0)[0] == pytest.approx(0.75 * later + 0.25 * at_start)


def row(groups: float, tokens: float, spread: bool) -> Job:
    """Eight ranks of an engine for prompts, in so many attention groups."""
    of = {"tp_size": 8.0 / groups, "attention_dp_size": groups, "moe_tp_size": 1.0 if spread else 8.0,
          "moe_ep_size": 8.0 if spread else 1.0, "pp_size": 1.0}  # fmt: skip
    sizes = {f"{pool}_{name}": value for pool in ("prefill", "decode") for name, value in of.items()}
    return pools(SimpleNamespace(
        **sizes, gpu="B200", model="deepseek-ai/DeepSeek-V3", precision="fp8", backend="sglang", origin="",
        concurrency=64.0, prefill_num_workers=1.0, decode_num_workers=1.0, input_tokens=tokens, output_tokens=1024.0,
    )).prefill  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("spread", [False, True])
def test_groups_that_are_all_at_work_compute_more_than_one_after_the_other(spread):
    """A prompt is attended by one group, whatever the others do: eight prompts take much less than eight times one."""
    jobs = [row(8.0, 8192.0, spread), row(8.0, 2048.0, spread), row(1.0, 8192.0, False), row(8.0, 32768.0, spread)]
    found = prompt_engines(jobs, parts_of(jobs, {}).alone_s, {})
    assert found.prompts == pytest.approx([8.0, 32.0, 1.0, 8.0])
    assert found.full_s[0] < 0.6 * 8 * found.alone_s[0]
    assert found.full_s[2] == pytest.approx(found.alone_s[2], rel=0.1)  # one group, one step: the same prompt
    each = found.full_s / found.prompts
    assert each[1] < each[0] / 3  # as many tokens a step, and fewer keys
    assert each[3] > 4 * each[0]


def all_to_all(model: str):
    """Seconds of the start and share of the link, at eight ranks."""
    leaves = jax.tree.leaves(engine_cluster("B200", "sglang", model).network["scale_up"].collectives.all_to_all)
    return [float(leaf) for leaf in (leaves[0], leaves[5])]


@pytest.mark.slow
def test_an_engine_of_a_row_sends_to_the_experts_of_its_model():
    """A start grows with experts, a share of the link with the bytes of a token: 128 and 4096 against 256 and 7168."""
    names = ("deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-8B")
    assert [option_of(name) for name in names] == ["deepseek_v3", "qwen3_235b_a22b", "qwen3_8b"]
    (start, share), (less, smaller) = all_to_all("deepseek_v3"), all_to_all("qwen3_235b_a22b")
    assert less < start
    assert smaller < share
    sending, idle = row(8.0, 1024.0, True).cluster, row(1.0, 1024.0, False).cluster
    assert sending is engine_cluster("B200", "sglang", "deepseek_v3")
    assert idle is engine_cluster("B200", "sglang", "")
