"""Clients of two pools: an event simulation of them beside the closed form, limits by hand, slopes."""

import dataclasses
import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import scenario_from_config
from codesign.jaxprs.evaluator import interpreted
from codesign.model.workloads.goodput import NodeTimes
from codesign.model.workloads.mean_step import Demand
from codesign.model.workloads.pools_under_load import ClosedLoop, PromptTimes, TwoQueues
from codesign.model.workloads.steady_state import Lockstep
from codesign.search.results import numbers_of

TOKENS, CHUNK, STEPS, PLACES = 512.0, 2048.0, 200.0, 512.0
ALONE_S, MORE_S = 0.05, 0.02  # a step of one prompt, and each further one in it
PLAIN_S, SEQUENCE_S = 0.01, 1e-4  # a step of decodes, and each sequence in it


def prefill_s(tokens):
    return ALONE_S + MORE_S * (np.maximum(tokens / TOKENS, 1.0) - 1)


def queues(engines: int, decoders: int) -> TwoQueues:
    tokens = np.array([1.0, TOKENS, 1024.0, CHUNK])
    nothing, decodes = jnp.asarray(0.0), jnp.array([1.0, PLACES])
    prompts = PromptTimes(jnp.asarray(tokens), jnp.asarray(prefill_s(tokens)), nothing, nothing)
    steps = (PLAIN_S + SEQUENCE_S * decodes)[:, None] * jnp.ones((1, 3))
    times = NodeTimes(decodes, jnp.array([0.0, 64.0, CHUNK]), steps)
    demand = Demand(1.0, TOKENS, STEPS + 1, CHUNK, 0.0, 0.1, 0.0, PLACES)
    counts = jnp.asarray(float(engines)), jnp.asarray(float(decoders))
    return TwoQueues(prompts, times, demand, counts, nothing, nothing, jnp.asarray(1.0), 0.5)


def simulated(clients: int, engines: int, decoders: int, requests: int) -> tuple[float, float]:
    """Mean seconds to the first token, and between tokens, of the later three quarters of requests.

    An engine of prompts that is free takes all that have room in a step; decode engines are taken by turns.
    """
    rng, order = np.random.default_rng(5), itertools.count()
    room = int(CHUNK / TOKENS)
    free, waiting, turn = engines, list[float](), itertools.cycle(range(decoders))
    joined: list[list[tuple[float, int]]] = [[] for _ in range(decoders)]  # first token, steps
    running: list[list[list[float]]] = [[] for _ in range(decoders)]
    busy = [False] * decoders
    firsts, betweens = list[float](), list[float]()
    events = [(float(at), next(order), "comes", None) for at in rng.uniform(0, 2.0, clients)]
    heapq.heapify(events)

    def push(at: float, kind: str, what) -> None:
        heapq.heappush(events, (at, next(order), kind, what))

    def step(now: float, own: int) -> None:
        running[own] += [[first, steps, steps] for first, steps in joined[own]]
        joined[own].clear()
        busy[own] = bool(running[own])
        if busy[own]:
            push(now + PLAIN_S + SEQUENCE_S * len(running[own]), "stepped", own)

    while len(betweens) < requests:
        now, _, kind, what = heapq.heappop(events)
        if kind == "comes":
            waiting.append(now)
        elif kind == "computed":
            free += 1
            for came in what:
                firsts.append(now - came)
                own = next(turn)
                joined[own].append((now, max(int(rng.normal(STEPS, 0.1 * STEPS)), 1)))
                if not busy[own]:
                    step(now, own)
        else:
            for one in running[what]:
                one[1] -= 1
                if one[1] == 0:
                    betweens.append((now - one[0]) / one[2])
                    push(now, "comes", None)
            running[what] = [one for one in running[what] if one[1]]
            step(now, what)
        while free and waiting and kind != "stepped":
            free, batch, waiting = free - 1, waiting[:room], waiting[room:]
            push(now + float(prefill_s(TOKENS * len(batch))), "computed", batch)
    later = len(firsts) // 4
    return float(np.mean(firsts[later:])), float(np.mean(betweens[len(betweens) // 4 :]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "engines", "decoders", "near"),
    [(1, 1, 1, 0.02), (16, 1, 1, 0.1), (64, 1, 2, 0.15), (64, 4, 1, 0.05), (256, 2, 2, 0.05), (512, 1, 4, 0.05)],
)
def test_clients_see_what_a_simulation_of_them_sees(clients, engines, decoders, near):
    asked = queues(engines, decoders)
    _, seen = ClosedLoop(jnp.asarray(float(clients))).answered(asked, decoders * PLACES / (STEPS * PLAIN_S))
    first, between = simulated(clients, engines, decoders, max(40 * clients, 400))
    assert float(seen.ttft_s.mean) == pytest.approx(first, rel=near)
    assert float(seen.tpot_s.mean) == pytest.approx(between, rel=0.01)


@pytest.mark.slow
def test_one_client_meets_nobody_and_many_wait_for_each_other():
    """Alone: a prompt, and the host; where prompts take all engines have, all clients but those decoding wait."""
    most = PLACES / (STEPS * PLAIN_S)
    loop = ClosedLoop(jnp.asarray(1.0), jnp.asarray(0.01), jnp.asarray(0.2))
    _, alone = loop.answered(queues(1, 1), most)
    assert float(alone.ttft_s.mean) == pytest.approx(0.2 + 0.01, rel=0.01)  # issuing takes longer than the prompt
    rate, crowd = ClosedLoop(jnp.asarray(4096.0)).answered(queues(1, 8), 8 * most)
    assert float(rate) == pytest.approx(4 / (ALONE_S + 3 * MORE_S), rel=0.01)
    answer_s = STEPS * float(crowd.tpot_s.mean)
    assert float(crowd.ttft_s.mean) == pytest.approx(4096.0 / float(rate) - answer_s, rel=0.01)
    burst = ClosedLoop(jnp.asarray(64.0), start=Lockstep(burst_ratio=1.0)).answered(queues(4, 8), 8 * most)[1]
    full = (ALONE_S + 3 * MORE_S) / 4
    assert float(burst.ttft_s.mean) == pytest.approx(ALONE_S + 63 / 2 * full / 4, rel=0.02)


@pytest.mark.slow
def test_slopes_of_clients_are_differences():
    most = PLACES / (STEPS * PLAIN_S)

    @jax.jit
    def told(concurrency):
        rate, seen = ClosedLoop(concurrency, jnp.asarray(0.01)).answered(queues(1, 1), most)
        return jnp.stack([rate, seen.ttft_s.mean, seen.tpot_s.mean])

    with jax.enable_x64(True):
        at, step = jnp.asarray(40.0), 1e-3
        slopes = interpreted(jax.jacfwd(told), always=True)(at)
        differences = (told(at + step) - told(at - step)) / (2 * step)
        assert np.asarray(slopes) == pytest.approx(np.asarray(differences), rel=1e-3)
        many = interpreted(jax.vmap(told), always=True)(jnp.array([10.0, 40.0]))
        assert np.asarray(many[1]) == pytest.approx(np.asarray(told(at)), rel=1e-9)


@pytest.mark.slow
def test_a_design_of_clients_is_that_at_their_rate():
    """What requests see that come evenly spaced at the rate of the clients, but for the host of those."""
    words = ("model=llama31_8b", "prefill=same", "framework=none", "cluster.device_count=4", "plan.prefill_devices=4",
             "plan.tp=1", "plan.prefill_tp=1", "plan.micro_batch=64", "workload.arrival_cv=0")  # fmt: skip
    clients = numbers_of(scenario_from_config(*words, "workload=disaggregated_clients", "workload.concurrency=32"))
    assert clients["concurrency"] == pytest.approx(32.0, rel=1e-3)
    rate = f"workload.arrivals_per_s={clients['requests_per_s']:.12g}"
    beside = numbers_of(scenario_from_config(*words, "workload=disaggregated_at_rate", rate))
    for name in ("ttft_s", "tpot_s", "e2e_p99_s", "decodes"):
        assert clients[name] == pytest.approx(beside[name], rel=1e-3), name


@pytest.mark.slow
def test_equal_prompts_wait_alike_whatever_rounding_makes_of_their_spread():
    """Their seconds do not vary: a variance by differences of squares would be of either sign, and waits with it."""
    plain = interpreted(lambda seconds, rate: _first_s(seconds, rate), always=True)
    for seconds in np.linspace(0.03, 0.3, 40):
        alone, busy = float(plain(seconds, 0.1)), float(plain(seconds, 20.0 / seconds))
        assert alone == pytest.approx(seconds, rel=1e-6)
        assert seconds <= busy * (1 + 1e-9) < 2 * seconds
        assert busy == pytest.approx(float(jax.jit(_first_s)(seconds, 20.0 / seconds)), rel=1e-9)


def _first_s(seconds, rate):
    """First token of prompts that fill a step, of one length in ten classes, of forty engines."""
    made = queues(40, 8)
    share = jnp.arange(1.0, 11.0) / 55.0
    alike = jnp.stack([jnp.ones(10), share, jnp.zeros(10)], axis=1)
    made = made._replace(demand=dataclasses.replace(made.demand, prompts=alike, input_tokens=CHUNK))
    return made._replace(prefill=made.prefill._replace(seconds=jnp.ones(4) * seconds)).seen(rate).ttft_s.mean
